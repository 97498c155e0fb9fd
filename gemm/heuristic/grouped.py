"""Which configuration a grouped product gets, by the expected number of tokens of a group.

Limits were measured on an NVIDIA H200: all candidates of 19 extents, bf16 and e4m3, scales of tensors and of blocks, in bursts with cold
weights, groups of one size and skewed ones. How much slower a choice is than the fastest candidate is in docs/grouped-performance.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ptxkit.cards import H200, Card

from ..collective.atoms import ROWS
from ..collective.thread_scales import BLOCK
from ..config.grouped import CONTIGUOUS_ROWS, MAX_COLUMN_SCALES, DynamicGroups, GroupedConfig, GroupLoads, StaticGroups, SwapAB
from ..config.parts import L2_FETCH, ConfigError, Cooperative, Direct, Pingpong, Swizzle, Tile
from ..problem.dense import LINE, PREFETCH_STAGES
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import COUNTED
from ..scheduler.host_cost import on_host
from ..scheduler.tile_cost import Groups, TileCost
from ..scheduler.two_kernels import TwoKernelPlan
from . import grouped_causes, grouped_narrow, grouped_stream, grouped_trees
from .group_tile import LONGEST_FIRST, GroupTile, in_this_order, swapped
from .grouped_gathered import gathered
from .grouped_kinds import LEAST_STEP
from .grouped_rows import tokens_as_rows
from .grouped_tiles import (
    FEW,
    FEW_GATED,
    PREFILL,
    SHORT,
    WAITING,
    CostedTile,
    CostedTiles,
    as_second,
    best,
    between,
    cost_of,
    expects_sharing,
    for_alike,
    ordered,
    static_gain,
    static_pays,
    tiles_of,
    without_cost,
)
from .skewed import skewed

ROOM = 1.5
"""Tokens that a tile has room for, for each token that a group is expected to have. Lengths differ, and a group's second tile would read
its weights again. Groups that are all alike lose at most 2 %, skewed ones save 20 to 30 %."""
FEWEST, FEWEST_OF_EIGHT, SINGLE = 4, 8, 16
"""Most tokens a group for the narrowest tiles; the same for at most eight groups; most tokens a group for narrow tiles."""
MANY = 32
"""With more groups, some of few tokens are long enough to need a second tile."""
SINGLE_TILES = tuple(swapped(BM, BN, longest_first=False) for BM, BN in ((64, 16), (64, 64), (128, 128)))
"""Swap-AB tiles for one-tile groups: at most 4, at most 16, more tokens."""
FINER = 1.12
"""How much fuller tiles of half as many features must make the waves of few tokens to be taken. With block scales, this decides for the
tile with the deeper ring: a few SMs are left with a second tile each."""
LONG, FULLER = 96, 1.3
"""For more than 96 tokens a group, tiles of quantised results have twice the features where there are up to 1.3 times as many tiles as SMs:
a second wave of few tiles takes as long as the first."""
FEW_PROMOTED = GroupTile(Tile(128, 16), Cooperative(1), tokens=SwapAB(), scheduler=DynamicGroups(order=Swizzle(size=1)), stages=6)
"""The swap-AB tile whose sums are promoted: one warpgroup. A ring that fills shared memory is 1 % slower."""
SWAPPED_BULK = 6
"""Most tokens a group for swap AB where the producer copies block scales: swapped, the threads read the scale of each column."""
SINGLE_PROMOTED = (GroupTile(Tile(64, 128), promotion="overlap", scheduler=DynamicGroups()),
                   GroupTile(Tile(128, 128), scheduler=DynamicGroups()))
"""Promoted tiles for one-tile groups: at most 16 tokens, with the deeper ring; more tokens."""
SAMPLES = 8
"""Skewed lengths that are tried to see how much two kernels gain over one."""
GAIN, GAIN_PROMOTED, SECOND_US = 0.015, 0.006, 0.8
"""What two kernels must gain on average: a share, which is less with promoted sums, whose times are known better; and the microseconds that
the second launch may take."""
AT_ONCE = 0.8
"""The most waves of groups of few tokens whose CTAs know their tiles. On an H200 684 such products took 0.98 times as long as with a
counter, in the geometric mean: 0.85 to 1.10."""
MANY_WAVES = 24
"""With more waves the last one is a small part of the time, and CTAs of a second kernel, which do not begin together, drift apart: on an
H100 two kernels took 18 % longer than either alone at 149 x 790 x 7248 x 2176. With a gate there are two: 32 x 1,024 and 24 x 1,024 tokens
and the product after them took 15 and 9 % longer with one, though that one alone took 3 % more."""
SAME_TOKENS = 0.03
"""Extra gain required when both kernels have tiles of as many tokens: they differ by waves alone, and 128 x 192 by 3 % between cards."""
TAIL_ROWS, TAIL_DEPTH = 32, 2048
"""Tail rows of partial boxes, where rows of X have at least so many bytes."""


def heuristic(problem: GroupProblem, card: Card = H200) -> GroupedConfig:
    """The configuration for a problem on a card."""
    return _choice(problem, card, taught=True)


def untaught(problem: GroupProblem, card: Card = H200) -> GroupedConfig:
    """The same without what the trees of the card say."""
    return _choice(problem, card, taught=False)


def usual_tile(problem: GroupProblem, card: Card) -> GroupTile:
    """The tile that a product has without trees, and where no CTAs share a K. Not of numbered rows."""
    if problem.options.layout == "contiguous":
        return _usual_of_blocks(problem, card)
    return _at_once(without_cost(_usual(problem, card)), problem, card)


def _usual(problem: GroupProblem, card: Card) -> GroupTile | CostedTile:
    chosen = (_quantised if problem.quantised else _promoted if problem.promote else _plain)(problem, card)
    return _narrow(without_cost(chosen), problem, card) or chosen


def _choice(problem: GroupProblem, card: Card, *, taught: bool) -> GroupedConfig:
    if problem.options.layout == "contiguous":
        tile = _usual_of_blocks(problem, card)
        return _configured(_taught(tile, problem, card)[0] if taught else tile, problem)
    if problem.gathered:
        tile = gathered(problem, card, problem.mean * ROOM, one_tile=single(problem))
        tile = _at_once(_narrow(tile, problem, card) or tile, problem, card)
        tile = replace(tile, store=Direct(1)) if problem.by_element else tile
        return tile.config(problem.operands, problem.sums, loads_of(problem), False, order=problem.options.order)
    chosen = _usual(problem, card)
    own = _at_once(without_cost(chosen), problem, card)
    straddling = grouped_trees.forest_of(problem) == "straddling"      # the only trees that have seen products whose K CTAs share
    streamed = None if straddling else grouped_stream.better(without_cost(chosen), problem, card)
    tile, another = _taught(own, problem, card) if taught and streamed is None else (own, False)
    if straddling:
        streamed = grouped_stream.better(tile, problem, card)
    if streamed is not None:
        return _configured(streamed, problem, replace(loads_of(problem), l2_prefetch_stages=0))
    if another or isinstance(chosen, GroupTile) or problem.options.layout not in COUNTED or problem.scatter:
        return _configured(tile, problem)
    config, other = _configured(chosen.tile, problem), _second(problem, chosen, tiles_of(problem, card), card)
    if other is None:
        return _configured(tile, problem)
    if not (problem.promote or problem.options.gated) and chosen.tile.waves(problem, card) > MANY_WAVES:
        return _configured(min((chosen, other), key=lambda each: _random_time(problem, each, card)).tile, problem)
    if static_pays(chosen.tile, problem):                       # lengths that differ are left to the other kernel
        config = _assigned_statically(config)
    tile = other.tile
    if expects_sharing(problem):
        config, tile = _without_tail(config), as_second(tile, problem)
    second = _configured(tile, problem, replace(loads_of(problem), l2_prefetch_stages=0))
    return config.or_(cost_of(for_alike(chosen, problem), problem), second, cost_of(other, problem), between(chosen, problem))


def _at_once(tile: GroupTile, problem: GroupProblem, card: Card) -> GroupTile:
    """The tile for CTAs that know theirs, where few tokens leave some without one: they need not wait for a counter. Trees of few tokens in
    16 bits, where a card has some, choose between both themselves."""
    if problem.mean > FEW or not isinstance(tile.scheduler, DynamicGroups) or problem.options.order:
        return tile
    by_trees = grouped_trees.forest_of(problem) == "few" and grouped_trees.chooses(problem, card)
    if by_trees or tile.waves(problem, card) > AT_ONCE:
        return tile
    return replace(tile, scheduler=StaticGroups(order=tile.scheduler.order, cluster=tile.scheduler.cluster))


def _narrow(own: GroupTile, problem: GroupProblem, card: Card) -> GroupTile | None:
    """The fastest narrower tile of few that the problem can have, if it gains enough over the tile `own`."""
    return _first(grouped_narrow.faster(own, problem, card), problem)


def _taught(own: GroupTile, problem: GroupProblem, card: Card) -> tuple[GroupTile, bool]:
    """The fastest tile by the trees of the card that the problem can have, if it gains enough over the tile `own`, else that one; with the
    begin of the next kernel that is best for it. And whether it is another tile."""
    found = grouped_trees.answer(problem, own, card)
    tile = _first(found.better, problem)
    return (found.own, False) if tile is None else (tile, True)


def _first(tiles: Iterable[GroupTile], problem: GroupProblem) -> GroupTile | None:
    return next((tile for tile in tiles if alone(tile, problem) is not None), None)


def alone(tile: GroupTile, problem: GroupProblem, loads: GroupLoads | None = None) -> GroupedConfig | None:
    """The kernel of a tile, which works whatever the lengths; None where the problem cannot have it."""
    try:
        return _configured(tile, problem, loads)
    except ConfigError:
        return None


def _configured(tile: GroupTile, problem: GroupProblem, loads: GroupLoads | None = None) -> GroupedConfig:
    """The tile's configuration for a problem.

    Each warpgroup loads its own rows, and few tail rows, where groups have few tokens: with many, few rows are missing, and further copies
    cost large products 1 %. Rows that are not loaded are cleared in each tile, which saves time only where that has many stages.
    """
    few = _leaves_padding_out(problem) if problem.options.layout == "contiguous" else problem.mean <= PREFILL
    deep = problem.k * problem.x.bits >= TAIL_DEPTH * 8
    loads = loads or loads_of(problem)
    if problem.by_element or problem.scatter:
        tile = replace(tile, store=Direct(1 if problem.by_element else 2))
    return tile.config(problem.operands, problem.sums, loads, few, TAIL_ROWS if deep else 0, problem.options.order)


def loads_of(problem: GroupProblem) -> GroupLoads:
    """How weights are read. Where groups have one tile nobody reads them again. Where their bandwidth is the bound, the L2 fetches one
    line, which is what is asked for, and no other."""
    waits = _few(problem) or (problem.mean <= 2 * FEW and not problem.promote)
    fetch = LINE if waits else L2_FETCH
    if problem.options.layout == "contiguous":
        return GroupLoads(l2_fetch=fetch)
    return GroupLoads(single(problem), PREFETCH_STAGES if problem.mean <= FEW else 0, fetch)


def _assigned_statically(config: GroupedConfig) -> GroupedConfig:
    """The configuration with tiles that are assigned statically, every other panel backwards."""
    scheduler = in_this_order(config.scheduler, "linear")
    scheduler = replace(scheduler, order=replace(scheduler.order, serpentine=True))
    return replace(config, scheduler=scheduler, tokens=replace(config.tokens, partial_boxes=True))


def _without_tail(config: GroupedConfig) -> GroupedConfig:
    """The configuration with no CTAs that start from the tail."""
    scheduler = config.scheduler
    return replace(config, scheduler=replace(scheduler, from_tail=0)) if isinstance(scheduler, DynamicGroups) else config


# ----------------------------------------------------------------------------------------------------------------- the second kernel

def _second(problem: GroupProblem, first: CostedTile, tiles: CostedTiles, card: Card) -> CostedTile | None:
    """The tile of a second kernel for groups that differ much; None if it is not worth a second launch.

    Where there are few waves the last one is a large part of the time, and only the lengths say whether it is full.
    """
    samples = _samples(problem, card)

    def time(cost: TileCost | TwoKernelPlan) -> float:
        return sum(cost.time(groups, problem.n) for groups in samples)

    def held_back(other: CostedTile) -> float:
        same = problem.promote and other.tile.tile_tokens == first.tile.tile_tokens
        return 1 + SAME_TOKENS if same else 1.0

    own, over = cost_of(first, problem), between(first, problem) if expects_sharing(problem) else None
    its, least, found = time(own), math.inf, None
    for other in (each for each in tiles if each != first):
        both = time(TwoKernelPlan(own, cost_of(other, problem), over, True)) * held_back(other)
        if both < least:
            least, found = both, other
    multiplied, moved = _at_least(problem, card)
    gain = (its / least - 1) * min(1.0, multiplied / moved) + (static_gain(first.tile) if static_pays(first.tile, problem) else 0.0)
    enough = GAIN_PROMOTED if problem.promote else GAIN
    return found if gain > enough + SECOND_US / max(multiplied, moved) else None


def _random_time(problem: GroupProblem, costed: CostedTile, card: Card) -> float:
    """The time of such tiles over the lengths that are tried."""
    return sum(cost_of(costed, problem).time(groups, problem.n) for groups in _samples(problem, card))


def _samples(problem: GroupProblem, card: Card) -> list[Groups]:
    rows = round(problem.mean * problem.groups)
    return [on_host(skewed(problem.groups, rows, number=number), card.sms) for number in range(1, SAMPLES + 1)]


def _at_least(problem: GroupProblem, card: Card) -> tuple[float, float]:
    """Microseconds of multiplying, and of moving bytes. Fuller waves shorten the first, which the second may hide."""
    rows, lines = problem.mean * problem.groups, problem.n * (1 + problem.options.gated)
    bytes = (problem.groups * lines + rows) * problem.k * problem.x.bits / 8 + rows * problem.n * problem.out.bits / 8
    flops = card.fit.group_flops_8 if problem.x.bits == 8 else card.fit.group_flops_16
    return 2 * rows * lines * problem.k / flops, bytes / card.fit.group_bytes


# ------------------------------------------------------------------------------------------------------------------------- the tile

def _few(problem: GroupProblem) -> bool:
    """Whether groups have so few tokens that a product takes as long as reading its weights."""
    return problem.mean <= (FEW_GATED if problem.options.gated else FEW)


def single(problem: GroupProblem) -> bool:
    """Whether groups have few tokens, and most of them one tile."""
    return _few(problem) and (problem.mean * ROOM <= FEW or problem.groups <= MANY)


def _plain(problem: GroupProblem, card: Card) -> GroupTile | CostedTile:
    """bf16, f16, and fp8 whose sums stay in the tensor cores."""
    mean, span = problem.mean, 1024 // problem.x.bits
    deep = 2 * span if problem.k >= 8 * span else span
    if mean > 2 * FEW:
        if grouped_causes.chooses(problem):
            return grouped_causes.fastest(problem, card)
        return best(tiles_of(problem, card), problem, card.sms)
    if problem.as_rows:
        return ordered(tokens_as_rows(mean * ROOM, mean, problem.options.gated, one_tile=single(problem)), problem)
    if problem.options.gated:
        width = next((size for most, size in ((FEWEST, 16), (SINGLE, 64), (FEW, 128)) if mean <= most), 192)
        return ordered(swapped(128, width, 1, BK=min(deep, BLOCK) if width == 16 else 0), problem)
    if not single(problem):
        return ordered(WAITING, problem)
    narrow, medium, wide = SINGLE_TILES
    if mean > SINGLE:
        half = _tiles(problem, 2 * ROWS) <= card.sms or _finer(problem, card)
        return wide.sized(BM=wide.tile.BM // 2) if half else wide
    return (narrow if _fewest(problem) else medium).sized(BK=deep)


def _fewest(problem: GroupProblem) -> bool:
    """Whether groups have so few tokens that the narrowest tiles are enough. Among few groups a long one is less likely."""
    return problem.mean <= (FEWEST_OF_EIGHT if problem.groups <= 8 else FEWEST)


def _tiles(problem: GroupProblem, features: int) -> int:
    """Tiles of so many features, if each group has one tile of tokens."""
    return problem.groups * -(-problem.n // features)


def _spare(problem: GroupProblem, card: Card) -> bool:
    """Whether tiles of 128 features leave half of the SMs without a tile; these take the further m64 blocks of longer groups."""
    return 2 * _tiles(problem, 2 * ROWS) <= card.sms


def _finer(problem: GroupProblem, card: Card) -> bool:
    """Whether tiles of 64 features instead of 128 make the waves of one-tile groups much fuller."""
    def full(features: int) -> float:
        waves = _tiles(problem, features) / card.sms
        return waves / math.ceil(waves)

    return full(ROWS) > FINER * full(2 * ROWS)


def _promoted(problem: GroupProblem, card: Card) -> GroupTile | CostedTile:
    """Block scales, or sums that leave the tensor cores every 128 of K."""
    mean, gated, bulk = problem.mean, problem.options.gated, problem.scales_by_producer
    as_rows = problem.as_rows
    if not as_rows and (_fewest(problem) or mean <= (SWAPPED_BULK if bulk else SINGLE)):
        return FEW_PROMOTED.sized(BN=16 if mean <= FEWEST else 32)
    if not as_rows and not bulk and not gated and mean * ROOM <= FEW:
        return replace(FEW_PROMOTED, tile=Tile(256, _width(mean)), schedule=Cooperative(), stages=0)
    if problem.gate_step < LEAST_STEP:
        return _of_odd_gates(problem)
    if gated and problem.block_scales and not problem.scales_in_shared:
        scheduler = LONGEST_FIRST if mean <= 2 * FEW else StaticGroups()
        return ordered(GroupTile(Tile(128, 128), scheduler=scheduler), problem)
    if single(problem):
        narrow, wide = SINGLE_PROMOTED
        deeper = mean <= SINGLE or (bulk and not gated and (_spare(problem, card) or _finer(problem, card)))
        return narrow if deeper else wide
    return best(tiles_of(problem, card), problem, card.sms)


def _of_odd_gates(problem: GroupProblem) -> GroupTile:
    """The tile of a gate whose up projection begins somewhere in a block of scales: no wider than a thread can hold the scales of."""
    contiguous = problem.options.layout == "contiguous"
    scheduler = StaticGroups() if contiguous else LONGEST_FIRST
    rows = CONTIGUOUS_ROWS if contiguous or problem.mean > FEW else ROWS
    return ordered(GroupTile(Tile(rows, MAX_COLUMN_SCALES * problem.gate_step), scheduler=scheduler), problem)


def _width(mean: float) -> int:
    """Tokens of a swapped tile."""
    return next((size for size in (16, 32, 48, 64) if mean * ROOM <= size), FEW_GATED)


def _quantised(problem: GroupProblem, card: Card) -> GroupTile | CostedTile:
    """Results with scales of their own: tokens are rows, also few of them."""
    mean, gated, in_shared = problem.mean, problem.options.gated, problem.scales_in_shared
    if problem.promote and not in_shared:
        return GroupTile(Tile(64 if mean <= FEW else 128, BLOCK))
    if mean > (FEW if in_shared else 2 * FEW):
        return best(tiles_of(problem, card), problem, card.sms)
    short = mean <= (SINGLE // 2 if gated else SINGLE) or (mean <= FEW and _spare(problem, card))
    if not in_shared:
        tall = mean > FEW and not gated and not _spare(problem, card)
        twice = gated or (tall and mean > LONG and card.sms < _tiles(problem, BLOCK) <= FULLER * card.sms)
        tile = Tile(64 if short else 192 if tall and not twice else 128, 2 * BLOCK if twice else BLOCK)
        return ordered(GroupTile(tile, scheduler=LONGEST_FIRST), problem)
    narrow, wide = SINGLE_PROMOTED
    if gated:
        return narrow if mean > FEWEST else GroupTile(Tile(64, 2 * BLOCK), scheduler=DynamicGroups())
    return narrow if short else replace(wide, promotion="overlap")


def _leaves_padding_out(problem: GroupProblem) -> bool:
    """Whether contiguous groups are so short that much of them may be padding. With quantised results that was not measured."""
    return problem.mean <= SHORT and not problem.quantised


def _usual_of_blocks(problem: GroupProblem, card: Card) -> GroupTile:
    """Contiguous groups: tiles of their 128 rows count as full, so that they are assigned statically where it pays."""
    if problem.gate_step < LEAST_STEP:
        return _of_odd_gates(problem)
    if problem.promote and not problem.scales_in_shared:
        return GroupTile(Tile(CONTIGUOUS_ROWS, 128))
    whole = tuple(each for each in tiles_of(problem, card) if each.tile.tile.BM == CONTIGUOUS_ROWS and not each.tile.swap_ab
                  and not (_leaves_padding_out(problem) and isinstance(each.tile.schedule, Pingpong)))
    tile = best(whole, problem, card.sms).tile
    if narrow := _narrow(tile, problem, card):
        return narrow
    if problem.scales_in_shared and 2 * FEW < problem.mean < 2 * PREFILL and tile.tile.BN > BLOCK:
        scheduler = in_this_order(tile.scheduler, "linear")
        tile = replace(tile, scheduler=replace(scheduler, order=replace(scheduler.order, serpentine=True)))
    return tile


__all__ = ["FEW_PROMOTED", "SINGLE", "SINGLE_PROMOTED", "SINGLE_TILES", "alone", "heuristic", "loads_of", "single", "untaught",
           "usual_tile"]
