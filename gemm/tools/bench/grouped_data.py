"""The data of a measurement: operands of a case in as many sets as keep them out of the L2, and a check of the result."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from ptxkit.runtime import driver

from .grouped_cases import Case
from .operands import ERROR, sets_that_are_cold

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
    kind = {"bf16": torch.bfloat16, "f16": torch.float16}.get(case.kind, torch.float8_e4m3fn)

    def normal(*shape: int) -> Any:
        if case.operand_bytes == 2:
            return torch.randn(shape, device="cuda", dtype=kind)
        made = torch.empty(shape, device="cuda", dtype=kind)
        for part in (made,) if len(shape) == 2 else made:       # a float of everything at once would not fit
            part.copy_(torch.randn(part.shape, device="cuda", dtype=torch.float16))
        return made

    x, w = normal(case.rows, case.k), normal(case.groups, case.n, case.k)
    out = torch.full((case.rows, case.columns), float("nan"), device="cuda", dtype=kind if case.operand_bytes == 2 else torch.bfloat16)
    out_scale = None
    if case.quantised:
        out = torch.full((case.rows, case.columns), 0x7F, device="cuda", dtype=torch.uint8).view(torch.float8_e4m3fn)
        out_scale = torch.full((case.columns // 128, -(-case.rows // 4) * 4), float("nan"), device="cuda").T[:case.rows]
    if case.kind == "fp8":
        return Data(x, w, lengths, out, torch.full((1,), 0.75, device="cuda"), torch.rand((case.groups,), device="cuda") + 0.5, out_scale)
    if case.kind == "fp8-block":
        blocks = -(-case.k // 128)
        x_scale = (torch.rand((blocks, -(-case.rows // 4) * 4), device="cuda") + 0.5).T[:case.rows]
        return Data(x, w, lengths, out, x_scale, torch.rand((case.groups, -(-case.n // 128), blocks), device="cuda") + 0.5, out_scale)
    return Data(x, w, lengths, out, out_scale=out_scale)


def wrong(torch: Any, case: Case, data: Data, y: Any = None) -> str | None:
    """A sentence when a sample of the groups' rows of `y` (`data.out`) is not the product, by float32 products of the same operands."""
    y = data.out if y is None else y
    first, difference, size = 0, 0.0, 0.0
    filled = [g for g, length in enumerate(case.lengths) if length]
    picked_groups = set(filled if len(filled) <= 8 else filled[::len(filled) // 8])
    for group, length in enumerate(case.lengths):
        if group in picked_groups:
            rows = torch.unique(torch.linspace(first, first + length - 1, min(16, length), device="cuda").long())
            x = data.x.view(torch.uint8 if case.operand_bytes == 1 else data.x.dtype)[rows].view(data.x.dtype).float()
            w = data.w[group].float()
            if case.kind == "fp8":
                w *= data.w_scale[group] * data.x_scale
            if case.kind == "fp8-block":
                x *= data.x_scale[rows].repeat_interleave(128, 1)[:, :case.k]
                w *= data.w_scale[group].repeat_interleave(128, 0)[:case.n].repeat_interleave(128, 1)[:, :case.k]
            exact = x @ w.T
            if case.gated:
                exact = torch.nn.functional.silu(exact[:, :case.n // 2]) * exact[:, case.n // 2:]
            if case.quantised:
                actual = y.view(torch.uint8)[rows].view(y.dtype).float() * data.out_scale[rows].repeat_interleave(128, 1)
            else:
                actual = y[rows].float()
            if not bool(torch.isfinite(actual).all()):
                return f"{int((~torch.isfinite(actual)).sum())} of {actual.numel()} elements of group {group} are not finite or not written"
            difference += float((actual - exact).square().sum())
            size += float(exact.square().sum())
        first += length
    error = math.sqrt(difference / size) if size else 0.0
    allowed = 0.05 if case.quantised else ERROR["bf16" if case.operand_bytes == 2 else "e4m3"]     # e4m3 rounds to 0.026 on average
    return None if error <= allowed else f"relative error {error:.3g}, at most {allowed:g} is allowed"


def sets_of(torch: Any, case: Case, cold: bool) -> list[Data]:
    """Operand sets that together exceed the L2 several times."""
    l2 = driver.device(driver.current_device()).l2_bytes
    return [make(torch, case) for _ in range(sets_that_are_cold(case.bytes, l2, MOST_SETS) if cold else 1)]


__all__ = ["Data", "make", "sets_of", "wrong"]
