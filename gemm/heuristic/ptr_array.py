"""Which configuration groups with matrices of their own get, by the expected rows of a group: N and K are known to the device alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ptxkit.types import Scalar

from ..config.grouped import CAPACITIES, GroupedConfig, GroupLoads, GroupOperands, StaticGroups
from ..config.parts import Pingpong, Promoted, Promotion, Sums, Swizzle, TensorCoreSums, Tile
from ..problem.dense import LINE
from .group_tile import GroupTile, swapped
from .grouped_rows import tokens_as_rows
from .grouped_tiles import FEW, FEWER_STAGES, FROM_TAIL_OF_MUCH, MORE_BUFFERS, SEVERAL, SORTED_WAITING


@dataclass(frozen=True, slots=True)
class _Choice:
    """A tile for groups of at most `most` rows, and how it loads."""

    most: float
    tile: GroupTile
    loads: GroupLoads = GroupLoads()
    partial_boxes: bool = True


_ROWS = GroupTile(Tile(128, 192), Pingpong())
ROOM = 1.5
"""Tokens that a tile has room for, for each token that a group is expected to have, where tokens are rows."""
_ONCE = GroupLoads(weights_evict_first=True, l2_fetch=LINE)
_CHOICES = (
    _Choice(8, swapped(64, 16, longest_first=False), _ONCE),
    _Choice(32, replace(swapped(128, 128), scheduler=StaticGroups(order=Swizzle(size=1))), _ONCE),
    _Choice(64, swapped(128, 128), _ONCE),
    _Choice(128, swapped(128, 192), GroupLoads(l2_fetch=LINE)),
    _Choice(224, swapped(256, 192).starting_from_tail(FROM_TAIL_OF_MUCH)),
    _Choice(448, swapped(128, 192)),
    _Choice(2048, GroupTile(Tile(128, 192), Pingpong()), partial_boxes=False),
    _Choice(math.inf, GroupTile(Tile(128, 256), stages=FEWER_STAGES, store=MORE_BUFFERS), partial_boxes=False))
"""How much slower each is than others was measured on an NVIDIA H200 in 66 products of bf16 and fp8, alike and skewed
(docs/grouped-performance.md)."""


ROWS = tuple(each.most for each in _CHOICES)
"""The most expected rows a group of each tile."""


def heuristic(x: type[Scalar], w: type[Scalar], out: type[Scalar], mean: float, promote: bool, scaled: bool, groups: int,
              invariant: bool = False) -> GroupedConfig:
    """The configuration for so many groups with `mean` expected rows each."""
    choice = next(each for each in _CHOICES if mean <= each.most)
    if invariant and choice.tile.swap_ab:
        rows = tokens_as_rows(mean * ROOM, mean, False, one_tile=mean * ROOM <= FEW) if mean <= 2 * FEW else _ROWS
        choice = _Choice(choice.most, rows, choice.loads, mean <= 2 * FEW)
    tile = choice.tile
    if groups > SORTED_WAITING:
        tile = tile.in_order()
    elif groups <= SEVERAL and tile.from_tail:                  # tiles of fewer features are enough for all SMs
        tile = tile.sized(BM=192).starting_from_tail(0)
    if promote:
        choice, tile = _Choice(math.inf, tile), GroupTile(Tile(64 if mean <= FEW else 128, 128))
    capacity = next(capacity for capacity in CAPACITIES if groups <= capacity)
    if capacity == CAPACITIES[-1]:                              # whose table takes a buffer's place
        tile = replace(tile, stages=0, store=None)

    def sums(how: Promotion, swap_ab: bool) -> Sums:
        return Promoted(how) if promote else TensorCoreSums()

    operands = GroupOperands(x, w, out, "ptr_array", scaled=scaled, max_groups=capacity)
    return tile.config(operands, sums, choice.loads, choice.partial_boxes)


__all__ = ["ROWS", "heuristic"]
