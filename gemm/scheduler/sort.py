"""Sorting in the registers of one warp: a bitonic network, and for a few values their places by counting."""

from __future__ import annotations

from collections.abc import Sequence

from ptxkit import Reg, for_range, laneid
from ptxkit.ptx import add, mov, selp, shfl, xor
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.types import pred, u32

from .tile_cost import ALL_LANES

LANES = 32


def descending(values: Sequence[Reg[u32]]) -> list[Reg[u32]]:
    """The same values in falling order. Executed by one warp. Each lane has as many values, a power of two: number i of lane l is in place
    32 i + l, before and after.

    The steps between lanes are loops, since unrolled ones of 1,024 values take longer to fetch than to execute.
    """
    lane, kept = mov.u32(laneid), [mov.u32(value) for value in values]
    _sort_halves(kept, lane)
    for stride in (1 << level for level in range(len(kept).bit_length())):      # runs of 32 * stride values
        rising = [i for i in range(len(kept)) if i & stride]
        for i in rising:                                        # runs that rise fall with all bits inverted
            xor.b32(kept[i], kept[i], 0xFFFFFFFF)
        _merge(kept, stride, lane)
        for i in rising:
            xor.b32(kept[i], kept[i], 0xFFFFFFFF)
    return kept


def places_of(values: Sequence[Reg[u32]]) -> list[Reg[u32]]:
    """The place that each of these values has in falling order; no two are equal. Executed by one warp. Each lane has as many values, and
    each is compared with all."""
    places = [mov.u32(0) for _ in values]
    kept = [mov.u32(value) for value in values]
    with for_range(LANES) as lane:
        for other in [shfl.sync.idx.b32(value, lane, LANES - 1, ALL_LANES) for value in kept]:
            for value, place in zip(kept, places, strict=True):
                add.u32(place, place, 1, pred=other > value)
    return places


def _sort_halves(kept: Sequence[Reg[u32]], lane: Reg[u32]) -> None:
    """Sort runs of 16 lanes, falling in the first half of the lanes and rising in the second."""
    run, distance = mov.u32(1), mov.u32(0)                      # their logarithms
    with for_range(10):                                         # 1 + 2 + 3 + 4 steps
        first = (((lane >> run) ^ (lane >> distance)) & 1) == 0
        _exchange(kept, mov.u32(1) << distance, first)
        last = distance == 0
        add.u32(run, run, 1, pred=last)
        mov.u32(distance, selp.u32(run, distance, last) - 1)


def _merge(kept: list[Reg[u32]], stride: int, lane: Reg[u32]) -> None:
    """Sort bitonic runs of `stride` values of each lane."""
    while stride > 1:
        stride //= 2
        for i in range(len(kept)):
            if not i & stride:
                one, other = kept[i], kept[i + stride]
                kept[i], kept[i + stride] = max_.u32(one, other), min_.u32(one, other)
    kept[:] = [mov.u32(value) for value in kept]
    distance = mov.u32(LANES // 2)
    with for_range(LANES.bit_length() - 1):
        _exchange(kept, distance, (lane & distance) == 0)
        mov.u32(distance, distance >> 1)


def _exchange(kept: Sequence[Reg[u32]], distance: Reg[u32], first: Reg[pred]) -> None:
    """Of the values of two lanes at this distance the larger one stays in the `first` lane."""
    for value in kept:
        other = shfl.sync.bfly.b32(value, distance, LANES - 1, ALL_LANES)
        mov.u32(value, selp.u32(max_.u32(value, other), min_.u32(value, other), first))


__all__ = ["descending", "places_of"]
