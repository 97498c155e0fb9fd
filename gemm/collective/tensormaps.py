"""Tensor maps edited on the device: a kernel before the product makes each group's maps from the host's templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxkit import Ptr, Reg, TensorMap, if_
from ptxkit.idioms import elect
from ptxkit.ptx import bar, cvt, fence, ld, st, tensormap
from ptxkit.ptx import max as max_
from ptxkit.smem import Shared
from ptxkit.types import Scalar, b32, u32, u64

from ..scheduler.group_table import GroupTable, Layout

MAP_WORDS = 32              # 128 bytes


def maps_of(layout: Layout) -> int:
    """The number of maps of each group: y; with "ptr_array" also x and w."""
    return 3 if layout == "ptr_array" else 1


def warps(groups: int, layout: Layout) -> int:
    """The number of warps of `update_tensormaps`; each is a CTA."""
    return groups * maps_of(layout) + 1


COUNTER_WORDS = 32          # a dynamic scheduler's counter is alone in its 128 bytes
MOST_SMS = 144              # of a chip of this architecture
FLAGS_WORDS = 1024          # the flags of stream-K: a CTA has one for each of its mma warpgroups, up to three
COUNTERS_WORDS = 2 * COUNTER_WORDS + FLAGS_WORDS
"""At the start of a workspace, and 0 between launches: the counters of a kernel and of the second kernel of a plan, then the flags."""

Edit = Callable[[Shared[Any]], None]


def workspace_bytes(capacity: int, layout: Layout) -> int:
    """The bytes of the counters, the group table and every group's maps."""
    return 4 * (COUNTERS_WORDS + _table_words(capacity, layout) + capacity * maps_of(layout) * MAP_WORDS)


def _table_words(capacity: int, layout: Layout) -> int:
    return -(-GroupTable.words(capacity, layout, longest_first=True) // MAP_WORDS) * MAP_WORDS


def map_of(workspace: Ptr[u32], capacity: int, layout: Layout, group: Reg[u32], which: int) -> Ptr[u32]:
    """The address of a group's map."""
    first = workspace + (COUNTERS_WORDS + _table_words(capacity, layout) + which * MAP_WORDS)
    return first.at(group * (maps_of(layout) * MAP_WORDS))


def some_rows(address: Reg[u64], rows: Reg[u32]) -> Edit:
    """Replace the address and the number of rows. A map has at least one row."""
    def edit(map_: Shared[Any]) -> None:
        replace = tensormap.replace.tile
        replace.global_address.shared__cta.b1024.b64(map_, address)
        replace.global_dim.shared__cta.b1024.b32(map_, 1, max_.u32(rows, 1))

    return edit


def matrix(address: Reg[u64], lines: Reg[u32], columns: Reg[u32], type_: type[Scalar]) -> Edit:
    """Replace the matrix: `lines` x `columns` elements without gaps between lines."""
    def edit(map_: Shared[Any]) -> None:
        replace = tensormap.replace.tile
        some_rows(address, lines)(map_)
        replace.global_dim.shared__cta.b1024.b32(map_, 0, max_.u32(columns, 1))
        replace.global_stride.shared__cta.b1024.b64(map_, 0, cvt.u64.u32(columns * (type_.bits // 8)))

    return edit


def publish(slot: Ptr[u32], template: TensorMap, edited: Shared[Any], lane: Reg[u32], edit: Edit) -> None:
    """In all lanes of a warp: copy the template to shared memory, edit it, and publish it in global memory (tensormap.cp_fenceproxy)."""
    source: Ptr[b32] = Ptr(template.reg, b32, "")  # type: ignore[attr-defined]
    st.shared__cta.b32(edited.at(lane), ld.b32(source.at(lane)))
    bar.warp.sync(0xFFFFFFFF)
    with if_(elect()):
        edit(edited.at(0))
    bar.warp.sync(0xFFFFFFFF)
    tensormap.cp_fenceproxy.global_.shared__cta.tensormap__generic.release.gpu.sync.aligned(slot, edited.at(0))


def acquire(slot: Ptr[u32], pred: Any = None) -> None:
    """In the thread that copies through the map: acquire what `publish` released."""
    fence.proxy.tensormap__generic.acquire.gpu(slot, pred=pred)


__all__ = [
    "COUNTERS_WORDS",
    "COUNTER_WORDS",
    "FLAGS_WORDS",
    "MAP_WORDS",
    "MOST_SMS",
    "acquire",
    "map_of",
    "maps_of",
    "matrix",
    "publish",
    "some_rows",
    "warps",
    "workspace_bytes",
]
