"""The data of a measurement: normally distributed operands in as many sets as keep them out of the L2 cache, and a check of D."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ptxkit.measure.regimes import MOST_SETS, sets_that_are_cold
from ptxkit.runtime import driver

from .shapes import BYTES, Problem

TORCH_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
ERROR = {"bf16": 1e-2, "f16": 2e-3, "f32": 2e-3, "e4m3": 2e-2, "e5m2": 2e-2}
"""The relative Frobenius error that a right product stays far under: rounding of D gives 2e-3 for bf16, 3e-4 for f16; fp8 adds the
few bits that fast accumulation keeps."""


@dataclass(frozen=True, slots=True)
class Operands:
    """A [M, K], B [K, N] and D [M, N] as torch tensors on the device, or batches of them; scales for fp8."""

    a: Any
    b: Any
    d: Any
    a_scale: Any = None
    b_scale: Any = None


def sets_for(set_bytes: int, cold: bool = True, most: int = MOST_SETS) -> int:
    """How many operand sets a measurement on the current device takes."""
    return sets_that_are_cold(set_bytes, driver.device(driver.current_device()).l2_bytes, most) if cold else 1


def normal(torch: Any, dtype: str, *shape: int) -> Any:
    """N(0, 1) values."""
    kind = getattr(torch, TORCH_NAMES[dtype])
    if BYTES[dtype] > 1:
        return torch.randn(shape, device="cuda", dtype=kind)
    made = torch.empty(shape, device="cuda", dtype=kind)
    for part in made if len(shape) > 2 else (made,):        # a float of everything at once would not fit
        part.copy_(torch.randn(part.shape, device="cuda", dtype=torch.float16))
    return made


def uniform(torch: Any, *shape: int) -> Any:
    """Scales between 0.5 and 1.5."""
    return torch.rand(shape, device="cuda") + 0.5


def make(torch: Any, problem: Problem, count: int) -> list[Operands]:
    """`count` sets of fresh N(0, 1) data, D full of NaN."""
    return [_one(torch, problem) for _ in range(count)]


def _one(torch: Any, problem: Problem) -> Operands:
    m, n, k, outer = problem.m, problem.n, problem.k, problem.outer

    def shifted(array: Any) -> Any:
        if not problem.offset:
            return array
        whole = torch.empty(problem.offset + array.numel(), device="cuda", dtype=array.dtype)
        return whole[problem.offset:].view(array.shape).copy_(array)

    def matrix(rows: int, columns: int, letter: str) -> Any:
        if letter == "n":
            return shifted(normal(torch, problem.dtype, *outer, rows, columns))
        return shifted(normal(torch, problem.dtype, *outer, columns, rows)).transpose(-1, -2)

    a, b = matrix(m, k, problem.layout[0]), matrix(k, n, problem.layout[1])
    d = shifted(torch.full((*outer, m, n), math.nan, device="cuda", dtype=getattr(torch, TORCH_NAMES[problem.out])))
    if BYTES[problem.dtype] > 1:
        return Operands(a, b, d)
    if problem.block:
        blocks = -(-k // 128)
        return Operands(a, b, d, uniform(torch, blocks, m).T, uniform(torch, -(-n // 128), blocks).T)     # as `described` has them
    if problem.rowcol:
        return Operands(a, b, d, uniform(torch, m, 1), uniform(torch, 1, n))
    return Operands(a, b, d, torch.tensor(0.75, device="cuda"), torch.tensor(1.25, device="cuda"))


def fault(torch: Any, out: Any, launch: Callable[[], Any], wrong: Callable[[Any], str | None]) -> str | None:
    """What `wrong` says about a launch's result, which is NaN before."""
    out.fill_(math.nan)
    returned = launch()
    torch.cuda.synchronize()
    return wrong(returned)


def rows_of(torch: Any, matrix: Any, rows: Any) -> Any:
    """Some rows in float32."""
    bits = matrix.view(torch.uint8) if matrix.element_size() == 1 else matrix      # fp8 may have no indexing of its own
    return bits[rows].view(matrix.dtype).float()


def by_column(scales: Any, columns: int) -> Any:
    """The scales of blocks of 128 columns, one for each column."""
    return scales.repeat_interleave(128, 1)[:, :columns]


def by_element(scales: Any, rows: int, columns: int) -> Any:
    """The scales of 128 x 128 blocks, one for each element."""
    return by_column(scales.repeat_interleave(128, 0)[:rows], columns)


def deviation(torch: Any, pairs: Iterable[tuple[str, Any, Any]], allowed: float) -> str | None:
    """A sentence when the relative Frobenius error of all pairs (what is unwritten if it is not finite, actual, exact) is too large."""
    difference = size = 0.0
    for what, actual, exact in pairs:
        if not bool(torch.isfinite(actual).all()):
            return f"{int((~torch.isfinite(actual)).sum())} of {actual.numel()} {what}"
        difference += float((actual - exact).square().sum())
        size += float(exact.square().sum())
    error = math.sqrt(difference / size) if size else 0.0
    return None if error <= allowed else f"relative error {error:.3g}, at most {allowed:g} is allowed"


MOST_CHECKED = 8
"""Products of a batch that are compared: the first, the last, and some between them."""


def wrong(torch: Any, problem: Problem, data: Operands, rows: int = 32) -> str | None:
    """A sentence when a sample of D's rows is not the product, by a float32 product of the same operands."""
    if problem.batch is None:
        return _wrong(torch, problem, data, rows)
    for place in dict.fromkeys(torch.linspace(0, problem.batch - 1, min(MOST_CHECKED, problem.batch)).long().tolist()):
        one = replace(data, a=data.a[place], b=data.b[place], d=data.d[place])
        sentence = _wrong(torch, replace(problem, batch=None), one, rows)
        if sentence:
            return f"product {place} of {problem.batch}: {sentence}"
    return None


def _wrong(torch: Any, problem: Problem, data: Operands, rows: int) -> str | None:
    picked = torch.linspace(0, problem.m - 1, min(rows, problem.m), device="cuda").long()
    a = rows_of(torch, data.a, picked)
    exact = torch.cat([_product(problem, data, a, picked, slice(first, min(first + 4096, problem.n)))
                       for first in range(0, problem.n, 4096)], 1)
    what = "sampled elements are not finite or were not written"
    return deviation(torch, [(what, data.d[picked].float(), exact)], ERROR[problem.dtype])


def _product(problem: Problem, data: Operands, a: Any, picked: Any, columns: slice) -> Any:
    """Rows `picked` and some columns (from a multiple of 128) of the product, in float32."""
    b = data.b[:, columns].float()
    if not problem.block:
        exact = a @ b
        if problem.rowcol:
            return exact * data.a_scale[picked] * data.b_scale[:, columns]
        return exact if data.a_scale is None else exact * (data.a_scale * data.b_scale)
    k, width = b.shape
    scales = data.b_scale[:, columns.start // 128:-(-columns.stop // 128)]
    return (a * by_column(data.a_scale[picked], k)) @ (b * by_element(scales, k, width))


__all__ = ["Operands", "by_column", "by_element", "deviation", "fault", "make", "normal", "rows_of", "sets_for", "sets_that_are_cold",
           "uniform", "wrong"]
