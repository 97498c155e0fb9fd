"""A tile and how CTAs work on it: what the heuristic of grouped products chooses, and what turns that into a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ptxkit.cards import Card

from ..collective.epilogue_quantize import passes
from ..config import budget
from ..config.grouped import (
    DynamicGroups,
    GroupedConfig,
    GroupLoads,
    GroupOperands,
    GroupScheduling,
    StagedGroups,
    StaticGroups,
    StreamGroups,
    SwapAB,
    TokensAsRows,
)
from ..config.parts import ClusterShape, Cooperative, Direct, Pingpong, Promotion, Sums, Swizzle, Tile
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import Layout
from ..scheduler.grouped import Order

LONGEST_FIRST = DynamicGroups(longest_first=True)
"""CTAs take the tiles of the longest groups first, so that the last tiles, with which they end, are short."""


@dataclass(frozen=True, slots=True)
class GroupTile:
    """A tile and how CTAs work on it. What depends on the problem is added by `config`: where sums are accumulated, and which rows of X
    are loaded. `promotion` is how sums are promoted, if they are; `store` None is staged where that is possible."""

    tile: Tile
    schedule: Cooperative | Pingpong = Cooperative()
    promotion: Promotion = "plain"
    tokens: TokensAsRows | SwapAB = TokensAsRows()
    scheduler: GroupScheduling = StaticGroups()
    stages: int = 0
    store: StagedGroups | Direct | None = None

    @property
    def swap_ab(self) -> bool:
        """Whether the tokens are columns."""
        return isinstance(self.tokens, SwapAB)

    @property
    def n_granularity(self) -> int:
        """The tokens to which the columns that a swapped tile multiplies are rounded up; 0: all are multiplied."""
        return self.tokens.n_granularity if isinstance(self.tokens, SwapAB) else 0

    @property
    def tile_tokens(self) -> int:
        """Tokens of the tile."""
        return self.tile.BN if self.swap_ab else self.tile.BM

    def features(self, gated: bool, quantised: bool) -> int:
        """Columns of Y in a work tile."""
        features = (self.tile.BM if self.swap_ab else self.tile.BN) // (1 + gated)
        return features * passes(features) if quantised else features

    def waves(self, problem: GroupProblem, card: Card) -> float:
        """The waves of such tiles, of groups that are alike."""
        features = self.features(problem.options.gated, problem.quantised)
        return problem.groups * math.ceil(problem.mean / self.tile_tokens) * math.ceil(problem.n / features) / card.sms

    @property
    def longest_first(self) -> bool:
        """Whether the longest groups come first."""
        return self.scheduler.longest_first

    @property
    def from_tail(self) -> int:
        """CTAs that start from the last tile."""
        return self.scheduler.from_tail if isinstance(self.scheduler, DynamicGroups) else 0

    def sized(self, BM: int | None = None, BN: int | None = None, BK: int = 0) -> GroupTile:
        """The same with other extents."""
        return replace(self, tile=Tile(BM or self.tile.BM, BN or self.tile.BN, BK))

    def in_order(self) -> GroupTile:
        """The same with the groups in their own order."""
        scheduler = self.scheduler
        if isinstance(scheduler, StreamGroups) or (not scheduler.longest_first and not self.from_tail):
            return self
        if isinstance(scheduler, DynamicGroups):
            return self._with(DynamicGroups(False, 0, scheduler.order, scheduler.cluster))
        return self._with(StaticGroups(scheduler.find, False, scheduler.order, scheduler.cluster, scheduler.overlap))

    def _with(self, scheduler: GroupScheduling) -> GroupTile:
        """The same with another scheduler; `replace` would take several times as long, and a choice orders a dozen tiles."""
        return GroupTile(self.tile, self.schedule, self.promotion, self.tokens, scheduler, self.stages, self.store)

    def starting_from_tail(self, ctas: int) -> GroupTile:
        """The same with so many CTAs that start from the last tile, where CTAs take tiles from a counter."""
        scheduler = self.scheduler
        if not isinstance(scheduler, DynamicGroups):
            return self
        return self._with(DynamicGroups(scheduler.longest_first, ctas, scheduler.order, scheduler.cluster))

    def config(self, operands: GroupOperands, sums: Callable[[Promotion, bool], Sums], loads: GroupLoads, partial_boxes: bool,
               tail_rows: int = 0, order: Order | None = None) -> GroupedConfig:
        """The configuration. `sums` says where sums are accumulated that are promoted in a given way, of operands that are swapped or not.
        Partial boxes and tail rows are wanted only where this tile can have them. `order` replaces that of the tile."""
        schedule, scheduler = self.schedule, self.scheduler if order is None else in_this_order(self.scheduler, order)
        if isinstance(schedule, Cooperative):
            schedule = Cooperative(schedule.warpgroups, sums(self.promotion, self.swap_ab))
        tokens = self.tokens
        if partial_boxes:
            tokens = with_partial_boxes(tokens, tail_rows, self.tile.BM, schedule, scheduler.cluster, operands.layout)
        return GroupedConfig(operands, tokens, self.tile, self.stages, schedule, scheduler, self.store, loads)

    def __str__(self) -> str:
        """`128x256`, and what sets it apart from other tiles of these extents."""
        how = {" swap AB": self.n_granularity, " pingpong": isinstance(self.schedule, Pingpong),
               " in pairs": self.scheduler.cluster.n == 2}
        return f"{self.tile.BM}x{self.tile.BN}" + "".join(words for words, holds in how.items() if holds)


def swapped(BM: int, BN: int, warpgroups: int = 0, longest_first: bool = True, BK: int = 0) -> GroupTile:
    """A tile whose columns are tokens: it multiplies as many as there are, in steps of 16. CTAs take such tiles from a counter."""
    return GroupTile(Tile(BM, BN, BK), Cooperative(warpgroups), tokens=SwapAB(16),  # type: ignore[arg-type]
                     scheduler=DynamicGroups(longest_first, order=Swizzle(size=1)))


def with_partial_boxes(tokens: TokensAsRows | SwapAB, tail_rows: int, BM: int, schedule: Cooperative | Pingpong, cluster: ClusterShape,
                       layout: Layout) -> TokensAsRows | SwapAB:
    """The tokens, loaded in partial boxes and, if they are rows, with so many tail rows: as far as such a tile can have them."""
    if isinstance(tokens, SwapAB):
        return replace(tokens, partial_boxes=bool(tokens.n_granularity))
    if isinstance(schedule, Pingpong) or cluster.n > 1:
        return TokensAsRows()
    tail = tail_rows if layout != "ptr_array" else 0
    several = (schedule.warpgroups or budget.default_warpgroups(BM)) > 1
    return TokensAsRows(True, tail) if several or tail else TokensAsRows()  # type: ignore[arg-type]


def in_this_order(scheduler: GroupScheduling, order: Order) -> StaticGroups | DynamicGroups:
    """The scheduler, with another way to give CTAs their tiles."""
    if order != "dynamic":
        return StaticGroups(order, scheduler.longest_first, scheduler.order, scheduler.cluster, scheduler.overlap)
    if isinstance(scheduler, DynamicGroups):
        return scheduler
    return DynamicGroups(scheduler.longest_first, 0, scheduler.order, scheduler.cluster)


__all__ = ["LONGEST_FIRST", "GroupTile", "in_this_order", "swapped", "with_partial_boxes"]
