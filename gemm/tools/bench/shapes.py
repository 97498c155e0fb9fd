"""What is measured: products by extents, types and layout, and the named lists of them."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ptxkit.cli.numbers import whole
from ptxkit.errors import PtxkitError
from ptxkit.files import read_text

from .. import models

LAYOUTS = ("nt", "nn", "tn", "tt")
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "e4m3": 1, "e5m2": 1}
OPERAND_TYPES = ("bf16", "f16", "f32", "e4m3", "e5m2")


class ShapeError(PtxkitError, ValueError):
    """A list of shapes that cannot be read."""


@dataclass(frozen=True, slots=True)
class Problem:
    """D[m, n] = A[m, k] B[k, n], or `batch` of them. `layout` is BLAS's: A then B, n row-major and t column-major. `block` says that fp8
    operands carry scales of 1 x 128 (A) and 128 x 128 (B) blocks instead of one for the whole tensor, `rowcol` that each row of A and
    each column of B has one. A, B and D begin `offset` elements after an aligned address."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "nt"
    block: bool = False
    batch: int | None = None
    offset: int = 0
    rowcol: bool = False

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k, 1 if self.batch is None else self.batch) < 1:
            raise ShapeError(f"{self.extents}: extents are positive")
        if self.offset < 0 or (self.block and self.offset):
            raise ShapeError(f"{self.extents}: an offset is a number of elements, and arrays with block scales have none")
        if (self.block or self.rowcol) and self.batch is not None:
            raise ShapeError(f"{self.extents}: scales of blocks, rows and columns are those of a single product")
        if self.rowcol and (self.block or BYTES.get(self.dtype) != 1):
            raise ShapeError(f"{self.extents}: scales of rows and columns are those of fp8 without block scales: take e4m3-rowcol")
        if self.dtype not in OPERAND_TYPES:
            raise ShapeError(f"{self.dtype!r} is no type of operands: there are {', '.join(OPERAND_TYPES)}")
        if self.layout not in LAYOUTS:
            raise ShapeError(f"{self.layout!r} is no layout: there are {', '.join(LAYOUTS)}")

    @property
    def out(self) -> str:
        """The type of D: that of the operands; bf16 for fp8."""
        return self.dtype if BYTES[self.dtype] > 1 else "bf16"

    @property
    def count(self) -> int:
        """The number of products."""
        return self.batch or 1

    @property
    def outer(self) -> tuple[int, ...]:
        """The extents before those of a matrix."""
        return () if self.batch is None else (self.batch,)

    @property
    def flops(self) -> int:
        return 2 * self.count * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """The least that memory must move: A, B and D once."""
        return self.count * ((self.m + self.n) * self.k * BYTES[self.dtype] + self.m * self.n * BYTES[self.out])

    @property
    def weight_bytes(self) -> int:
        """Bytes of B."""
        return self.count * self.n * self.k * BYTES[self.dtype]

    @property
    def memory_bound(self) -> bool:
        """So few rows that a streaming read of the same bytes is the ceiling."""
        return self.m <= 64

    @property
    def extents(self) -> str:
        """"MxNxK", or "LxMxNxK" of L products."""
        return "x".join(map(str, (*self.outer, self.m, self.n, self.k)))

    def __str__(self) -> str:
        kind = "" if self.scales == "one" else f"-{self.scales}"
        return f"{self.extents}:{self.dtype}{kind}:{self.layout}" + (f":+{self.offset}" if self.offset else "")

    @property
    def scales(self) -> str:
        """Those of fp8 operands: "one", "block" or "rowcol"."""
        return "block" if self.block else "rowcol" if self.rowcol else "one"

    def scaled(self, scales: str) -> Problem:
        """The same with these scales, if it is fp8."""
        fp8 = BYTES[self.dtype] == 1
        return replace(self, block=fp8 and scales == "block", rowcol=fp8 and scales == "rowcol")


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


def of_layers(shares: Iterable[models.Share]) -> tuple[Problem, ...]:
    """The products of layers with each of their numbers of rows, in each of their types."""
    found: dict[Problem, None] = {}
    for share in shares:
        for kind, m in itertools.product(share.types, share.rows):
            found[Problem(m, share.n, share.k, "e4m3" if kind.startswith("fp8") else kind, block=kind == "fp8-block")] = None
    return tuple(found)


_DENSE = ("cublas", "cublaslt")
ROWCOL_ROWS = (16, 128, 1024, 8192)


def with_rowcol(shares: Iterable[models.Share]) -> tuple[Problem, ...]:
    """The fp8 layers whose checkpoints have a scale for each row and column, with few and with many rows."""
    found = [Problem(m, share.n, share.k, "e4m3", rowcol=True) for share in shares if "fp8" in share.types for m in ROWCOL_ROWS]
    return tuple(dict.fromkeys(found))



PRESETS: dict[str, Preset] = {
    "burst": Preset((*_cubes(CUBES), Problem(4096, 4096, 1024), *(Problem(m, n, k) for m in ROWS for n, k in WEIGHTS)), "burst", _DENSE,
                    "cubes of 512 to 16384, 4096x4096x1024, and 1 to 4096 rows times seven weights"),
    "sustained": Preset((*_cubes((4096, 6144, 8192, 16384)), Problem(4096, 4096, 1024), Problem(4096, 7168, 2048),
                         Problem(4096, 2112, 7168)), "sustained", (*_DENSE, "wgmma"), "large products under the power limit"),
    "memory": Preset(tuple(Problem(m, n, k) for m in (1, 16, 64) for n, k in WEIGHTS), "burst", (*_DENSE, "read"),
                     "at most 64 rows: against a streaming read of the same bytes"),
    "layouts": Preset(tuple(Problem(size, size, size, layout=layout) for size in (4096, 8192) for layout in LAYOUTS), "burst", ("cublas",),
                      "4096 and 8192 in all four layouts"),
    "fp8": Preset((*_cubes((4096, 8192), dtype="e4m3"), *(Problem(*extents, "e4m3", block=True) for extents in (
                      (4096, 4096, 7168), (4096, 24576, 1536), (4096, 7168, 16384), (8192, 8192, 8192)))), "burst", ("scaled_mm", "wgmma"),
                  "e4m3 with one scale, and with block scales"),
    "rowcol": Preset(with_rowcol(models.every_dense()), "burst", ("scaled_mm",),
                     "fp8 layers of models with a scale for each row and column, against torch._scaled_mm's row-wise product"),
    "models": Preset(of_layers(models.every_dense()), "burst", (*_DENSE, "scaled_mm"),
                     "the layers of models that people run, with the rows of decoding and of prefill"),
    "quick": Preset((*_cubes((512, 1024, 4096, 8192)), Problem(16, 4096, 7168)), "burst", _DENSE, "five shapes for a first look"),
}


SCALES = ("one", "block", "rowcol")


def parse(spec: str, dtypes: Sequence[str] = (), layout: str | None = None, scales: str | None = None) -> tuple[Problem, ...]:
    """The problems that `--shapes` names: a preset, a file, or with commas shapes, `4096` (a cube), `MxNxK[:dtype][:layout]` or `LxMxNxK`
    (L products), and random ones, `random:SEED:COUNT[:aligned|any8|any][:batched]`.

    `dtypes`, `layout` and the `scales` of fp8, if given, replace those of the list. A file has a shape a line (# begins a comment), or is
    a JSON list of [m, n, k] or of such strings.
    """
    listed = [word for word in spec.split(",") if not word.strip().startswith("random:")]
    found = list(_listed(",".join(listed))) if listed else []
    if layout is not None:
        found = [replace(problem, layout=layout) for problem in found]
    if dtypes:
        found = [replace(problem, dtype=dtype, block=False, rowcol=False).scaled(problem.scales) for dtype in dtypes for problem in found]
    for word in spec.split(","):
        if word not in listed:
            found += _from_words(word.strip(), dtypes, layout)
    unique = list(dict.fromkeys(found if scales is None else [problem.scaled(scales) for problem in found]))
    if not unique:
        raise ShapeError(f"--shapes {spec}: there is no shape in it")
    return tuple(unique)


def _listed(spec: str) -> Iterator[Problem]:
    if spec in PRESETS:
        yield from PRESETS[spec].problems
        return
    path = Path(spec)
    if path.suffix and path.is_file():
        try:
            text = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ShapeError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
        if path.suffix == ".json":
            yield from _from_json(path, text)
        else:
            for line in text.splitlines():
                words = line.split("#")[0].replace(",", " ").split()
                if words:
                    yield problem("x".join(words) if len(words) in (3, 4) and all(word.isdigit() for word in words) else words[0])
        return
    for word in spec.split(","):
        if word.strip():
            yield from PRESETS[word.strip()].problems if word.strip() in PRESETS else (problem(word.strip()),)


def _from_json(path: Path, text: str) -> Iterator[Problem]:
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"{path} is not JSON: {error}") from None
    if not isinstance(items, list):
        raise ShapeError(f"{path} is a list of [m, n, k] or of 'MxNxK:dtype:layout', not {type(items).__name__}")
    for item in items:
        yield problem(item if isinstance(item, str) else "x".join(map(str, item)))


def problem(text: str) -> Problem:
    """One shape: `4096`, `4096x2112x7168`, `4096x4096x4096:f16:nn`, `4096x4096x7168:e4m3-block`, `:e4m3-rowcol`; `16x512x512x128` is 16
    products;
    the arrays of `1000:+1` begin one element after an aligned address."""
    size, *words = text.split(":")
    parts = size.lower().split("x")
    try:
        extents = [whole(part) for part in parts] * (3 if len(parts) == 1 else 1)
    except ValueError:
        extents = []
    if len(extents) not in (3, 4):
        raise ShapeError(f"{text!r} is not a shape: it is 4096 or 4096x4096x1024, with :dtype and :layout after it, 16x4096x4096x1024 for "
                         f"16 products, random:SEED:COUNT, a file, or one of {', '.join(PRESETS)}")
    *outer, m, n, k = extents
    made = Problem(m, n, k, batch=outer[0] if outer else None)
    for word in words:
        if word in LAYOUTS:
            made = replace(made, layout=word)
        elif word.startswith("+") and word[1:].isdigit():
            made = replace(made, offset=whole(word[1:]))
        else:
            dtype, _, kind = word.partition("-")
            if dtype not in OPERAND_TYPES:
                raise ShapeError(f"{word!r} is no type of operands and no layout: there are {', '.join((*OPERAND_TYPES, *LAYOUTS))}")
            if kind not in ("", "block", "rowcol"):
                raise ShapeError(f"{word!r} is no type of operands: there are {', '.join(OPERAND_TYPES)}, and of fp8 -block and -rowcol")
            made = replace(made, dtype=dtype, block=kind == "block", rowcol=kind == "rowcol")
    return made


RANDOM_ROWS = (16, 10_000)
RANDOM_COLUMNS = (128, 16_000)         # of N and of K
RANDOM_BATCH = (2, 128)
MOST_BATCHED_BYTES = 1 << 30           # of A, B and D of all products together
MOST_BATCHED_FLOPS = 2e12
RANDOM_OFFSETS = (0, 0, 0, 0, 1, 2, 3, 4)
"""Elements, of products of any address."""
RANDOM_TYPES = ("bf16", "f16")
RANDOM_KINDS = ("aligned", "any8", "any")
"""N and K are multiples of 64; of 8, or of 16 bytes if that is more; of nothing, as the addresses."""


def drawn(seed: int, count: int, kind: str = "any8", dtypes: Sequence[str] = (), layout: str | None = None,
          batched: bool = False) -> tuple[Problem, ...]:
    """`count` products. M is any number, but a multiple of 8 where A is contiguous along M (`any`: any number too).

    `batched`: each is a batch of 2 to 128 products. The extents are those of single products, and what would take more than 1 GiB or 2
    TFLOP in all is drawn again.
    """
    if kind not in RANDOM_KINDS:
        raise ShapeError(f"random products are {', '.join(RANDOM_KINDS)}, not {kind!r}")
    source = random.Random(f"{seed} {kind} batched" if batched else f"{seed} {kind}")
    found: dict[Problem, None] = {}
    while len(found) < count:
        dtype = source.choice(tuple(dtypes) or RANDOM_TYPES)
        letters = source.choice(LAYOUTS) if layout is None else layout
        if BYTES[dtype] == 1 or (BYTES[dtype] == 4 and kind != "any"):
            letters = "nt"                  # wgmma transposes 16-bit types only; threads or a kernel before turn others
        unit = 64 if kind == "aligned" else max(8, 16 // BYTES[dtype]) if kind == "any8" else 1
        m = extent(source, RANDOM_ROWS, 1 if letters[0] == "n" or kind == "any" else 8)
        n, k = extent(source, RANDOM_COLUMNS, unit), extent(source, RANDOM_COLUMNS, unit)
        offset = source.choice(RANDOM_OFFSETS) if kind == "any" and BYTES[dtype] > 1 else 0
        made = Problem(m, n, k, dtype, letters, batch=extent(source, RANDOM_BATCH, 1) if batched else None, offset=offset)
        if not batched or (made.bytes <= MOST_BATCHED_BYTES and made.flops <= MOST_BATCHED_FLOPS):
            found[made] = None
    return tuple(found)


MOST_DRAWN = 1_000_000


def extent(source: random.Random, limits: tuple[int, int], unit: int) -> int:
    """Log-uniform within the limits, to the nearest multiple of `unit` within them."""
    low, high = limits
    value = math.exp(source.uniform(math.log(low), math.log(high)))
    return max(-(-low // unit) * unit, min(high // unit * unit, round(value / unit) * unit))


def _from_words(text: str, dtypes: Sequence[str] = (), layout: str | None = None) -> tuple[Problem, ...]:
    """What `random:SEED:COUNT[:KIND]` names."""
    _, *words = text.split(":")
    batched = words[2:] and words[-1] == "batched"
    words = words[:-1] if batched else words
    try:
        seed, count = map(whole, words[:2])
    except ValueError:
        seed, count = 0, 0
    if not 1 <= count <= MOST_DRAWN or len(words) > 3:
        raise ShapeError(f"{text!r} draws nothing: random products are random:SEED:COUNT or random:SEED:COUNT:KIND, at most "
                         f"{MOST_DRAWN:,}, KIND one of {', '.join(RANDOM_KINDS)}, and :batched after them for batches of products")
    return drawn(seed, count, words[2] if len(words) > 2 else "any8", dtypes, layout, bool(batched))


__all__ = ["LAYOUTS", "PRESETS", "SCALES", "Preset", "Problem", "ShapeError", "drawn", "extent", "of_layers", "parse", "problem"]
