"""What is measured: products by extents, types and layout, and the named lists of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ptxkit.errors import PtxkitError

LAYOUTS = ("nt", "nn", "tn", "tt")
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "e4m3": 1, "e5m2": 1}
OPERAND_TYPES = ("bf16", "f16", "e4m3", "e5m2")


class ShapeError(PtxkitError, ValueError):
    """A list of shapes that cannot be read."""


@dataclass(frozen=True, slots=True)
class Problem:
    """D[m, n] = A[m, k] B[k, n]. `layout` is BLAS's: A then B, n row-major and t column-major. `block` says that fp8 operands carry
    scales of 1 x 128 (A) and 128 x 128 (B) blocks instead of one for the whole tensor."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "nt"
    block: bool = False

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ShapeError(f"{self.m}x{self.n}x{self.k}: extents are positive")
        if self.dtype not in OPERAND_TYPES:
            raise ShapeError(f"{self.dtype!r} is no type of operands: there are {', '.join(OPERAND_TYPES)}")
        if self.layout not in LAYOUTS:
            raise ShapeError(f"{self.layout!r} is no layout: there are {', '.join(LAYOUTS)}")

    @property
    def out(self) -> str:
        """The type of D: that of the operands; bf16 for fp8."""
        return self.dtype if BYTES[self.dtype] == 2 else "bf16"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """The least that memory must move: A, B and D once."""
        return (self.m + self.n) * self.k * BYTES[self.dtype] + self.m * self.n * BYTES[self.out]

    @property
    def weight_bytes(self) -> int:
        """Bytes of B."""
        return self.n * self.k * BYTES[self.dtype]

    @property
    def memory_bound(self) -> bool:
        """So few rows that a streaming read of the same bytes is the ceiling."""
        return self.m <= 64

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}:{self.dtype}{'-block' if self.block else ''}:{self.layout}"


CUBES = (512, 1024, 2048, 4096, 6144, 8192, 16384)
WEIGHTS = ((2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))
ROWS = (1, 16, 64, 128, 4096)


@dataclass(frozen=True, slots=True)
class Preset:
    """A named list, the regime that it is meant for, and the baselines that it is measured against."""

    problems: tuple[Problem, ...]
    regime: str
    against: tuple[str, ...]
    what: str


def _cubes(sizes: Sequence[int], **how: str) -> tuple[Problem, ...]:
    return tuple(Problem(size, size, size, **how) for size in sizes)  # type: ignore[arg-type]


_DENSE = ("cublas", "cublaslt")

PRESETS: dict[str, Preset] = {
    "burst": Preset((*_cubes(CUBES), Problem(4096, 4096, 1024), *(Problem(m, n, k) for m in ROWS for n, k in WEIGHTS)), "burst", _DENSE,
                    "cubes of 512 to 16384, 4096x4096x1024, and 1 to 4096 rows times seven weights"),
    "sustained": Preset((*_cubes((4096, 6144, 8192, 16384)), Problem(4096, 4096, 1024), Problem(4096, 7168, 2048),
                         Problem(4096, 2112, 7168)), "sustained", ("cublas", "wgmma"), "large products under the power limit"),
    "memory": Preset(tuple(Problem(m, n, k) for m in (1, 16, 64) for n, k in WEIGHTS), "burst", (*_DENSE, "read"),
                     "at most 64 rows: against a streaming read of the same bytes"),
    "layouts": Preset(tuple(Problem(size, size, size, layout=layout) for size in (4096, 8192) for layout in LAYOUTS), "burst", ("cublas",),
                      "4096 and 8192 in all four layouts"),
    "fp8": Preset((*_cubes((4096, 8192), dtype="e4m3"), *(Problem(*extents, "e4m3", block=True) for extents in (
                      (4096, 4096, 7168), (4096, 24576, 1536), (4096, 7168, 16384), (8192, 8192, 8192)))), "burst", ("scaled_mm", "wgmma"),
                  "e4m3 with one scale, and with block scales"),
    "quick": Preset((*_cubes((512, 1024, 4096, 8192)), Problem(16, 4096, 7168)), "burst", _DENSE, "five shapes for a first look"),
}


def parse(spec: str, dtypes: Sequence[str] = (), layout: str | None = None) -> tuple[Problem, ...]:
    """The problems that `--shapes` names: a preset, a file, or shapes with commas, `4096` (a cube) or `MxNxK[:dtype][:layout]`.

    `dtypes` and `layout`, if given, replace those of the list. A file has a shape a line (# begins a comment), or is a JSON list of
    [m, n, k] or of such strings.
    """
    found = list(_listed(spec))
    if layout is not None:
        found = [replace(problem, layout=layout) for problem in found]
    if dtypes:
        found = [replace(problem, dtype=dtype, block=problem.block and BYTES[dtype] == 1) for dtype in dtypes for problem in found]
    unique = list(dict.fromkeys(found))
    if not unique:
        raise ShapeError(f"--shapes {spec}: there is no shape in it")
    return tuple(unique)


def _listed(spec: str) -> Iterator[Problem]:
    if spec in PRESETS:
        yield from PRESETS[spec].problems
        return
    path = Path(spec)
    if path.suffix and path.is_file():
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            yield from _from_json(path, text)
        else:
            for line in text.splitlines():
                words = line.split("#")[0].replace(",", " ").split()
                if words:
                    yield problem("x".join(words) if len(words) == 3 and all(word.isdigit() for word in words) else words[0])
        return
    for word in spec.split(","):
        if word.strip():
            yield from PRESETS[word.strip()].problems if word.strip() in PRESETS else (problem(word.strip()),)


def _from_json(path: Path, text: str) -> Iterator[Problem]:
    try:
        items = json.loads(text)
    except ValueError as error:
        raise ShapeError(f"{path} is not JSON: {error}") from None
    if not isinstance(items, list):
        raise ShapeError(f"{path} is a list of [m, n, k] or of 'MxNxK:dtype:layout', not {type(items).__name__}")
    for item in items:
        yield problem(item if isinstance(item, str) else "x".join(map(str, item)))


def problem(text: str) -> Problem:
    """One shape: `4096`, `4096x2112x7168`, `4096x4096x4096:f16:nn`, `4096x4096x7168:e4m3-block`."""
    size, *words = text.split(":")
    parts = size.lower().split("x")
    try:
        extents = [int(part) for part in parts] * (3 if len(parts) == 1 else 1)
    except ValueError:
        extents = []
    if len(extents) != 3:
        raise ShapeError(f"{text!r} is not a shape: it is 4096 or 4096x4096x1024, with :dtype and :layout after it, a file, or one of "
                         f"{', '.join(PRESETS)}")
    m, n, k = extents
    made = Problem(m, n, k)
    for word in words:
        if word in LAYOUTS:
            made = replace(made, layout=word)
        else:
            made = replace(made, dtype=word.removesuffix("-block"), block=word.endswith("-block"))
    return made


__all__ = ["LAYOUTS", "PRESETS", "Preset", "Problem", "ShapeError", "parse", "problem"]
