"""Correctness on the GPU: random shapes, layouts, types and strides against float64, poisoned results, guard bands around D."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ptxkit.errors import LaunchError

from .reference import HALF_TINY, HALF_ULP, accumulation


@dataclass(frozen=True)
class Case:
    """One product. `pad_*` elements are added to the line strides, `offset` elements to every pointer."""

    m: int
    n: int
    k: int
    dtype: str
    out: str
    layout: str
    pad_a: int = 0
    pad_b: int = 0
    pad_d: int = 0
    offset: int = 0


_FIXED = (
    (1, 8, 8), (8, 8, 8), (1, 8, 1 << 14), (1, 1 << 14, 8), (16, 16, 16), (64, 64, 64), (128, 256, 64), (129, 264, 72), (127, 248, 56),
    (256, 256, 8), (1, 4096, 4096), (4096, 8, 4096), (8, 4096, 64), (3000, 1000, 520), (512, 512, 512), (1024, 1024, 1024),
    (2048, 2048, 2048), (4096, 4096, 4096), (65536, 8, 64), (8, 65536, 64), (200, 136, 65536), (385, 776, 200), (640, 256, 1032),
)


def cases(count: int, seed: int) -> Iterator[Case]:
    """The fixed shapes in all four layouts, then random ones up to `count`: below a tile, ragged, thin, large."""
    rng = random.Random(seed)
    made = 0
    for m, n, k in _FIXED:
        for layout in ("nt", "nn", "tn", "tt"):
            made += 1
            yield _legal(rng, m, n, k, layout)
    while made < count:
        kind = rng.choice(("small", "ragged", "ragged", "thin", "deep", "large"))
        top = {"small": 130, "ragged": 900, "thin": 64, "deep": 300, "large": 2600}[kind]
        m, n, k = (rng.randint(1, top) for _ in range(3))
        if kind == "thin":
            m, n = rng.choice(((m, rng.randint(1000, 9000)), (rng.randint(1000, 9000), n)))
            k = rng.randint(1, 600)
        if kind == "deep":
            k = rng.randint(2000, 9000)
        made += 1
        yield _legal(rng, m, n, k, rng.choice(("nt", "nn", "tn", "tt")))


def _legal(rng: random.Random, m: int, n: int, k: int, layout: str) -> Case:
    """The case with contiguous extents rounded up to multiples of 8."""
    def eight(x: int) -> int:
        return -(-x // 8) * 8

    n = eight(n)
    if layout[0] == "t":
        m = eight(m)
    if layout[0] == "n" or layout[1] == "t":
        k = eight(k)
    dtype = rng.choice(("f16", "bf16"))
    out = rng.choice((dtype, dtype, "f16", "bf16", "f32"))
    pads = [rng.choice((0, 0, 8, 40)) for _ in range(3)]
    return Case(m, n, k, dtype, out, layout, pads[0], pads[1], pads[2], rng.choice((0, 0, 8)))


def check(torch: Any, case: Case, config: Any = None) -> str | None:
    """A sentence when the product of this case is wrong."""
    from . import hgemm

    kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
    a = _matrix(torch, case.m, case.k, kinds[case.dtype], case.layout[0] == "t", case.pad_a, case.offset)
    b = _matrix(torch, case.k, case.n, kinds[case.dtype], case.layout[1] == "t", case.pad_b, case.offset)
    stride = case.n + case.pad_d
    guard = 64 + case.offset
    whole = torch.empty(guard + case.m * stride + 64, device="cuda", dtype=kinds[case.out])
    bits = whole.view(torch.int32 if case.out == "f32" else torch.int16)
    poison = 0x7FC0_1234 if case.out == "f32" else 0x7FE5
    bits.fill_(poison)
    d = whole[guard:guard + case.m * stride].view(case.m, stride)[:, :case.n]
    try:
        hgemm(a, b, d, config=config)
    except LaunchError as error:
        return f"refused: {error}"
    torch.cuda.synchronize()
    inside = torch.zeros_like(bits, dtype=torch.bool)
    inside[guard:guard + case.m * stride].view(case.m, stride)[:, :case.n] = True
    if not bool((bits[~inside] == poison).all()):
        return f"{int((bits[~inside] != poison).sum())} elements outside D were written"
    exact = a.double() @ b.double()
    magnitude = a.double().abs() @ b.double().abs()
    actual = d.double()
    if not bool(torch.isfinite(actual).all()):
        return f"{int((~torch.isfinite(actual)).sum())} elements of D are not finite or were not written"
    allowed = magnitude * accumulation(case.k) + exact.abs() * HALF_ULP[case.out] * 1.01 + HALF_TINY[case.out]
    share = float(((actual - exact).abs() / allowed).max())
    return None if share <= 1 else f"an error is {share:.3g} times what is allowed"


def _matrix(torch: Any, rows: int, columns: int, kind: Any, transposed: bool, pad: int, offset: int) -> Any:
    if transposed:
        return _matrix(torch, columns, rows, kind, False, pad, offset).T
    buffer = torch.full((offset + rows * (columns + pad),), float("nan"), device="cuda", dtype=kind)
    view = buffer[offset:].view(rows, columns + pad)[:, :columns]
    view.copy_(torch.randn((rows, columns), device="cuda"))
    return view


def run(count: int, seed: int) -> dict[str, Any]:
    """Check `count` cases and the empty ones; {"cases", "failures": [(case, sentence)], ...}."""
    import torch  # pyright: ignore[reportMissingImports]

    from . import hgemm

    failures = []
    done = 0
    for case in cases(count, seed):
        sentence = check(torch, case)
        done += 1
        if sentence:
            failures.append({**asdict(case), "why": sentence})
    d = torch.full((33, 64), float("nan"), device="cuda", dtype=torch.float16)
    hgemm(torch.empty((33, 0), device="cuda", dtype=torch.float16), torch.empty((0, 64), device="cuda", dtype=torch.float16), d)
    if not bool((d == 0).all()):
        failures.append({"k": 0, "why": "K = 0 did not give zeros"})
    return {"cases": done + 1, "seed": seed, "failures": failures, "device": torch.cuda.get_device_name()}
