"""The product of groups with K = 0: the rows of groups are zeros, and rows of no group stay as they are."""

from __future__ import annotations

from ptxkit import Ptr, Reg, ctaid, if_, kernel, tid
from ptxkit.flow import for_range
from ptxkit.ptx import add, cvt, ld, mov, mul, st
from ptxkit.types import b8, u32, u64

from ..scheduler.group_table import Layout

THREADS = 128


@kernel(target="sm_90a", block=THREADS)
def clear_groups(lengths: Ptr[u32], out: Ptr[b8], groups: Reg[u32], pitch: Reg[u32], row_bytes: Reg[u32], row_stride: Reg[u64],
                 group_stride: Reg[u64], *, layout: Layout = "cu_seqlens") -> None:
    """A CTA clears one row of D, `row_bytes` long, if it is a group's. Rows are `row_stride` bytes apart. "masked": groups have `pitch`
    rows and are `group_stride` bytes apart."""
    def apart(count: Reg[u32], stride: Reg[u64]) -> Reg[u64]:
        return mul.lo.u64(cvt.u64.u32(count), stride)

    row, within, group = mov.u32(ctaid.x), mov.u32(ctaid.x), mov.u32(0)
    if layout == "masked":
        group = row // pitch
        within = row - group * pitch
        inside = within < ld.global_.u32(lengths.at(group))
    elif layout == "contiguous":
        inside = ld.global_.u32(lengths.at(row)) < groups       # -1, for a row of no group, is a large number
    else:
        inside = (row >= ld.global_.u32(lengths)) & (row < ld.global_.u32(lengths.at(groups)))
    with if_(inside):
        place = out.at(apart(group, group_stride)).at(apart(within, row_stride))
        column = mov.u32(tid.x)
        with for_range((row_bytes + (THREADS - 1)) // THREADS):
            with if_(column < row_bytes):
                st.global_.b8(place.at(column), mov.u32(0))
            add.u32(column, column, THREADS)


__all__ = ["THREADS", "clear_groups"]
