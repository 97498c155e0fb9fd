"""The data of a measurement: operands of a case in as many sets as keep them out of the L2, and a check of the result."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .grouped_cases import Case
from .operands import ERROR, by_column, by_element, deviation, normal, rows_of, sets_for, uniform

MOST_SETS = 64


@dataclass(frozen=True, slots=True)
class Data:
    """The tensors of one launch."""

    x: Any
    w: Any
    cu: Any
    out: Any
    x_scale: Any = None
    w_scale: Any = None
    out_scale: Any = None


def make(torch: Any, case: Case) -> Data:
    """Fresh N(0, 1) data, y full of NaN."""
    lengths = torch.tensor((0, *itertools.accumulate(case.lengths)), dtype=torch.int32, device="cuda")
    x, w = normal(torch, case.dtype, case.rows, case.k), normal(torch, case.dtype, case.groups, case.n, case.k)
    aligned, out_scale = -(-case.rows // 4) * 4, None
    if case.quantised:
        out = torch.full((case.rows, case.columns), 0x7F, device="cuda", dtype=torch.uint8).view(torch.float8_e4m3fn)
        out_scale = torch.full((case.columns // 128, aligned), math.nan, device="cuda").T[:case.rows]
    else:
        out = torch.full((case.rows, case.columns), math.nan, device="cuda", dtype=torch.bfloat16)
    if case.kind == "fp8":
        return Data(x, w, lengths, out, torch.full((1,), 0.75, device="cuda"), uniform(torch, case.groups), out_scale)
    if case.kind == "fp8-block":
        blocks = -(-case.k // 128)
        x_scale = uniform(torch, blocks, aligned).T[:case.rows]
        return Data(x, w, lengths, out, x_scale, uniform(torch, case.groups, -(-case.n // 128), blocks), out_scale)
    return Data(x, w, lengths, out, out_scale=out_scale)


def wrong(torch: Any, case: Case, data: Data, y: Any = None) -> str | None:
    """A sentence when a sample of the groups' rows of `y` (`data.out`) is not the product, by float32 products of the same operands."""
    allowed = 0.05 if case.quantised else ERROR[case.dtype]     # e4m3 rounds to 0.026 on average
    return deviation(torch, _sampled(torch, case, data, data.out if y is None else y), allowed)


def _sampled(torch: Any, case: Case, data: Data, y: Any) -> Iterator[tuple[str, Any, Any]]:
    """Rows of some groups as `deviation` takes them."""
    first = 0
    filled = [g for g, length in enumerate(case.lengths) if length]
    picked_groups = set(filled if len(filled) <= 8 else filled[::len(filled) // 8])
    for group, length in enumerate(case.lengths):
        if group in picked_groups:
            rows = torch.unique(torch.linspace(first, first + length - 1, min(16, length), device="cuda").long())
            x, w, actual = rows_of(torch, data.x, rows), data.w[group].float(), rows_of(torch, y, rows)
            if case.kind == "fp8":
                w *= data.w_scale[group] * data.x_scale
            if case.kind == "fp8-block":
                x *= by_column(data.x_scale[rows], case.k)
                w *= by_element(data.w_scale[group], case.n, case.k)
            exact = x @ w.T
            if case.gated:
                exact = torch.nn.functional.silu(exact[:, :case.n // 2]) * exact[:, case.n // 2:]
            if case.quantised:
                actual *= by_column(data.out_scale[rows], case.columns)
            yield f"elements of group {group} are not finite or not written", actual, exact
        first += length


def sets_of(torch: Any, case: Case, cold: bool) -> list[Data]:
    """Operand sets that together exceed the L2 several times."""
    return [make(torch, case) for _ in range(sets_for(case.bytes, cold, MOST_SETS))]


__all__ = ["Data", "make", "sets_of", "wrong"]
