"""The kernel that runs before a grouped product with tensor maps for each group. It makes the maps and the group table."""

from __future__ import annotations

from ptxkit import Ptr, Reg, TensorMap, ctaid, if_, kernel, laneid, smem
from ptxkit.flow import else_
from ptxkit.idioms import fast_div
from ptxkit.ptx import bar, griddepcontrol, ld, mov, mul
from ptxkit.types import b8, b32, u32, u64

from ..collective.tensormaps import COUNTERS_WORDS, MAP_WORDS, map_of, maps_of, matrix, publish, some_rows
from ..config.grouped import GroupOperands
from ..scheduler.group_table import GroupTable


@kernel(target="sm_90a", block=32)
def update_tensormaps(x: TensorMap, w: TensorMap, y: TensorMap, lengths: Ptr[u32], groups: Reg[u32], rows: Reg[u32], pitch: Reg[u32],
                      out: Ptr[b8], out_row_bytes: Reg[u32], x_at: Ptr[u64], w_at: Ptr[u64], y_at: Ptr[u64], workspace: Ptr[u32], *,
                      operands: GroupOperands = GroupOperands(), TOKENS: int = 128, FEATURES: int = 128, BK: int = 64,
                      longest_first: bool = False) -> None:
    """One warp per CTA. Each CTA makes one map; the last CTA makes the group table. `warps` is the number of CTAs.

    "cu_seqlens", "masked": CTA g makes the map of Y for group g. The map begins at the group's first row and ends at its last row, so no
    tensor copy reaches the next group. "ptr_array": CTAs 3 g to 3 g + 2 make the maps of x, w and y of group g. x_at, w_at, y_at [groups]
    are the addresses of matrices without gaps between rows, and `lengths` [groups, 3] are their M, N and K.

    The product is launched after this kernel by programmatic dependent launch. Its griddepcontrol.wait orders memory; in addition, each
    reader of a map acquires it for the tensormap proxy (`acquire`).
    """
    layout, capacity = operands.layout, operands.max_groups
    table = GroupTable(capacity, layout, longest_first)
    edited = smem.array(b32, MAP_WORDS, align=128, name="map")
    lane, number, each = mov.u32(laneid), mov.u32(ctaid.x), maps_of(layout)
    griddepcontrol.wait()                                       # the previous launch may still read the workspace
    griddepcontrol.launch_dependents()
    with if_(number == groups * each):
        table.scan(lengths, groups, rows, TOKENS, layout, pitch, FEATURES, BK)
        bar.warp.sync(0xFFFFFFFF)
        table.save(workspace + COUNTERS_WORDS, lane)
    with else_():
        group = fast_div(number, each)
        map_ = map_of(workspace, capacity, layout, group, 0)
        if layout == "ptr_array":
            which = number - group * each
            m, n, k = (ld.global_.u32(lengths.at(group * 3 + i)) for i in range(3))
            for i, (template, at, type_, lines, columns) in enumerate(((x, x_at, operands.x, m, k), (w, w_at, operands.w, n, k),
                                                                          (y, y_at, operands.out, m, n))):
                with if_(which == i):
                    address = ld.global_.u64(at.at(group))
                    publish(map_ + i * MAP_WORDS, template, edited, lane, matrix(address, lines, columns, type_))
        else:
            start, end = GroupTable.bounds(lengths, group, rows, layout, pitch)
            address = out.at(mul.wide.u32(start, out_row_bytes)).reg
            publish(map_, y, edited, lane, some_rows(address, end - start))


__all__ = ["update_tensormaps"]
