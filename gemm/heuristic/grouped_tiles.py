"""The tiles that groups of more than a few tokens choose from, and what each costs.

Costs and limits were measured on NVIDIA H200s in bursts, with cold weights, groups that are alike and skewed ones. How near the choice
comes to the fastest tile is in docs/grouped-performance.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ptxkit.cards import H200, Card

from ..collective.atoms import ROWS
from ..collective.thread_scales import BLOCK
from ..config.grouped import CONTIGUOUS_ROWS, DynamicGroups, StagedGroups, StaticGroups
from ..config.parts import ClusterShape, Pingpong, Swizzle, Tile
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import COUNTED
from ..scheduler.host_cost import on_host
from ..scheduler.tile_cost import TileCost
from .group_tile import LONGEST_FIRST, GroupTile, swapped
from .grouped_lines import longer, straddles

FEW, FEW_GATED = 64, 96
"""At most so many tokens a group, and with a gate, a product takes as long as reading its weights."""
PREFILL = 512
"""Tokens a group of a prefill, at least."""
SHORT = 192
"""Rows of a contiguous group, padding included, up to which the padding is left out. Beyond, CTAs whose tiles have less to do drift apart,
and take longer."""


@dataclass(frozen=True, slots=True)
class CostedTile:
    """A tile and its cost: time per output element relative to 128 x 256.

    `fixed_blocks` 0: a tile takes as long whatever tokens it has. Else it takes as long as it has m64 blocks, or multiples of
    n_granularity, and this many more. `store_stages`: nobody multiplies while a tile is stored, for as long as 128 x 256 takes for so
    many stages of 128 bytes of K.
    """

    cost: float
    tile: GroupTile
    fixed_blocks: int = 0
    store_stages: float = 0.0


CostedTiles = tuple[CostedTile, ...]


def without_cost(chosen: GroupTile | CostedTile) -> GroupTile:
    """The tile of a choice, whether that knows its cost or not."""
    return chosen.tile if isinstance(chosen, CostedTile) else chosen


WAITING = swapped(128, 192)
"""The tile of groups of up to 2 FEW tokens, whose CTAs wait for weights."""

COOPERATIVE = CostedTile(1.0, GroupTile(Tile(128, 256)), store_stages=0.75)
PINGPONG: CostedTiles = (CostedTile(0.993, GroupTile(Tile(128, 192), Pingpong())), CostedTile(1.04, GroupTile(Tile(128, 128), Pingpong())))
"""One of two warpgroups multiplies while the other stores."""
TALL = CostedTile(1.017, swapped(256, 192), fixed_blocks=1, store_stages=1.85)
PLAIN: CostedTiles = (COOPERATIVE, *PINGPONG, TALL,
                      CostedTile(1.027, swapped(192, 192), fixed_blocks=1, store_stages=1.85),
                      CostedTile(1.05, WAITING, fixed_blocks=2, store_stages=1.75))
"""Tiles whose sums stay in the tensor cores. Swapped ones waste no tokens where groups differ or have few rows of tiles."""
PLAIN_GATED: CostedTiles = (replace(COOPERATIVE, cost=1.01), *PINGPONG, TALL,
                            CostedTile(1.024, swapped(256, 128), fixed_blocks=4, store_stages=1.25))
"""Those with a gate: each warpgroup has m64 blocks of the gate and of the up projection."""
TALL_PAIR = CostedTile(1.01, GroupTile(Tile(256, 192), scheduler=StaticGroups(cluster=ClusterShape(1, 2))), store_stages=1.1)
"""The tile that reads the fewest lines of the L2 for a product. Its cost is that of the same dense tile, and was not measured."""
MORE_BUFFERS = StagedGroups(4)
FEWER_STAGES = 3
"""A warpgroup that stores all boxes of 128 x 256 at once is worth a stage of the ring, for results of 16 bits without a gate. For
contiguous groups it is so only where there are many rows."""
QUANTISED: CostedTiles = (CostedTile(1.0, GroupTile(Tile(128, 256), scheduler=LONGEST_FIRST), store_stages=0.75),
                          CostedTile(0.98, GroupTile(Tile(192, 128), scheduler=LONGEST_FIRST), store_stages=0.75))
"""Tiles of quantised results whose sums stay in the tensor cores."""
QUANTISED_PINGPONG = CostedTile(1.056, GroupTile(Tile(128, 128), Pingpong()), store_stages=0.25)
"""One more of them, where a work tile is one tile: without a gate."""

LONGEST_IN_PANELS = DynamicGroups(True, order=Swizzle("along_n", 16))
"""CTAs take the tiles of the longest groups first, in panels of 16 columns of tiles."""
THREE_WARPGROUPS = GroupTile(Tile(192, 128), scheduler=LONGEST_IN_PANELS)
"""One m64 block for each of three warpgroups."""
THREE_WAITING = 0.94
"""Its cost factor where weight bandwidth is the bound (`_waits`)."""
THREE_QUANTISED = 1.03
"""Its cost factor for quantised results, which its warpgroups store at the same time."""
NARROW = GroupTile(Tile(128, 192), scheduler=DynamicGroups(True, order=Swizzle(size=16)))
PROMOTED: CostedTiles = (
    CostedTile(1.0, GroupTile(Tile(256, 128), promotion="stagger", scheduler=LONGEST_FIRST), fixed_blocks=4),
    CostedTile(1.06, GroupTile(Tile(128, 128), promotion="overlap", scheduler=LONGEST_FIRST), fixed_blocks=1),
    CostedTile(1.0, THREE_WARPGROUPS, fixed_blocks=1),
    CostedTile(0.996, NARROW, fixed_blocks=1))
"""Tiles whose sums are promoted. Taken from a counter they are 1 to 3 % faster than assigned statically, where lengths differ."""
WIDE = GroupTile(Tile(128, 256), scheduler=DynamicGroups(True, order=Swizzle(size=16)))
"""The promoted tile whose columns are promoted in two halves. With a gate the halves are the two projections."""
WIDE_COST, WIDE_COST_GATED = 0.98, 0.966
"""Its cost without its stores; and with a gate or quantised results."""
WIDE_STORES = 1.0
"""Stages that its stores take, through one buffer."""
PAIR = replace(THREE_WARPGROUPS, scheduler=replace(LONGEST_IN_PANELS, cluster=ClusterShape(1, 2)))
"""THREE_WARPGROUPS for pairs of CTAs that share the tokens. It takes the place of the other where groups have several tiles."""
PAIR_COST = 0.993
"""Its cost. It is less where lengths differ, and more where K is 1024."""
PAIR_COLUMNS, PAIR_TOKENS, PAIR_PANEL = (16, 8, 4), 256, 17 << 20
"""How many columns of pairs a panel has: at most one for each 256 tokens of a group, and at most 17 MiB of weights, which stay in the L2
while all tokens pass by."""

STATIC_GAIN_WIDE = 0.008
"""What groups that are alike gain for certain where WIDE is assigned statically. NARROW gains 1 % on one card and nothing on another."""
NARROW_DEPTH = 2048
"""Minimum K for assigning NARROW statically."""
STATIC_BLOCKS = 4
"""`fixed_blocks` of a tile that is assigned statically: the CTA of a tile that is not full waits for the next wave's weights."""
BETWEEN_STAGES = 3.0
"""How long a CTA takes from the first kernel to the second, in stages of 128 bytes of 128 x 256."""
SORTED, SORTED_WAITING = 32, 64
"""The longest groups come first for at most so many groups; and, in swapped tiles, for at most so many groups of more than 2 FEW tokens.
Sorting more groups takes longer than it saves, and so does sorting groups of few or of many tokens."""
SEVERAL, FROM_TAIL, PROMOTED_FROM_TAIL = 16, 16, 192
"""With more than 16 groups about 16 CTAs start from the tail, with the shortest groups: they wait for weights while the others multiply.
With promoted sums that pays for at most 192 tokens a group."""
MUCH, FROM_TAIL_OF_MUCH, FROM_TAIL_OF_SECOND = 40_000, 48, 32
"""Where the tiles of weights have 40,000 stages in all, which take a few hundred microseconds, more CTAs start from the tail: 48 with
operands of 16 bits; 32 in the second of two kernels that share the groups. The groups of the first are about alike, and none of its CTAs
start from the tail."""


PLAIN_BUFFERED: CostedTiles = tuple(
    replace(each, tile=replace(each.tile, stages=FEWER_STAGES, store=MORE_BUFFERS)) if each == COOPERATIVE else each for each in PLAIN)
"""16-bit results without a gate: a warpgroup that stores all its boxes at once is worth a stage of the ring."""


def tiles_of(problem: GroupProblem, card: Card = H200) -> CostedTiles:
    """What groups of more than a few tokens choose from. Quantised results need whole blocks of 128 columns, or halves of them."""
    tiles = _promoted(problem) if problem.promote else _plain(problem)
    if straddles(problem):
        tiles = tuple(replace(each, cost=each.cost * longer(each.tile, problem, card)) for each in (*tiles, *_sharing(problem)))
    if problem.by_element or problem.scatter:                   # whose stores spill registers of pingpong warpgroups
        tiles = tuple(each for each in tiles if not isinstance(each.tile.schedule, Pingpong))
    if problem.as_rows:
        tiles = tuple(each for each in tiles if not each.tile.swap_ab)
    return tuple(CostedTile(each.cost, ordered(each.tile, problem), each.fixed_blocks, each.store_stages) for each in tiles)


def _sharing(problem: GroupProblem) -> CostedTiles:
    """More tiles where lines straddle those of the L2: of pairs of CTAs that share the tokens."""
    bare = not (problem.promote or problem.options.gated or problem.quantised) and problem.out.bits == 16
    return (TALL_PAIR,) if bare and problem.options.layout in COUNTED and problem.n > TALL_PAIR.tile.tile.BN else ()


def _plain(problem: GroupProblem) -> CostedTiles:
    gated = problem.options.gated
    if problem.quantised:
        return QUANTISED if gated else (*QUANTISED, QUANTISED_PINGPONG)
    if gated:
        return PLAIN_GATED
    if problem.out.bits != 16 or (problem.options.layout == "contiguous" and problem.mean <= 2 * PREFILL):
        return PLAIN
    return PLAIN_BUFFERED


def _promoted(problem: GroupProblem) -> CostedTiles:
    gated, quantised = problem.options.gated, problem.quantised
    tiles = tuple(_three_warpgroups(each, problem) if each.tile == THREE_WARPGROUPS else each for each in PROMOTED)
    if quantised:
        tiles = tuple(each for each in tiles if each.tile.tile.BN == BLOCK)
    if problem.mean > FEW_GATED and not _waits(problem) and problem.scales_in_shared:
        cost = WIDE_COST_GATED if gated or quantised else WIDE_COST
        wide = replace(WIDE, promotion="stagger") if quantised or not gated else WIDE
        tiles = (*tiles, CostedTile(cost, wide, fixed_blocks=1, store_stages=WIDE_STORES))
    return tiles


def _three_warpgroups(costed: CostedTile, problem: GroupProblem) -> CostedTile:
    """THREE_WARPGROUPS as this problem has it: for a CTA alone, or for pairs."""
    if _in_pairs(problem):
        order = Swizzle("along_n", _columns_of_pairs(problem))
        return replace(costed, cost=PAIR_COST, tile=replace(PAIR, scheduler=replace(PAIR.scheduler, order=order)))
    return replace(costed, cost=costed.cost * (THREE_QUANTISED if problem.quantised else THREE_WAITING if _waits(problem) else 1.0))


def _bare(problem: GroupProblem) -> bool:
    """Whether block scales come through shared memory, the kernel reads the lengths, and there is no gate and nothing quantised."""
    return problem.scales_in_shared and problem.options.layout in COUNTED and not (problem.options.gated or problem.quantised)


def _waits(problem: GroupProblem) -> bool:
    """Whether weight bandwidth is the bound though tokens are rows: with 65 to 128 tokens a group."""
    return _bare(problem) and FEW < problem.mean <= 2 * FEW


def _in_pairs(problem: GroupProblem) -> bool:
    """Whether pairs of CTAs take the place of single ones: groups have several tiles, and the producers copy all scales."""
    several = problem.n > PAIR.tile.BN and problem.mean >= 2 * PAIR.tile.BM
    return _bare(problem) and several and problem.scales_by_producer and not problem.options.order


def _columns_of_pairs(problem: GroupProblem) -> int:
    """Columns of pairs in a panel."""
    lines = PAIR.tile.BN * PAIR.scheduler.cluster.n
    most = min(problem.mean / PAIR_TOKENS, PAIR_PANEL / (lines * problem.k * problem.w.bits / 8))
    return next((columns for columns in PAIR_COLUMNS if columns <= most), PAIR_COLUMNS[-1])


def ordered(tile: GroupTile, problem: GroupProblem) -> GroupTile:
    """The tile with the groups in their own order where sorting them does not pay; else with some CTAs that start from the tail, where
    there are several groups."""
    mean, long = problem.mean, problem.mean > 2 * FEW
    many = problem.groups > (SORTED_WAITING if long and tile.n_granularity else SORTED)
    if many or not FEW < mean <= 2 * PREFILL or problem.options.layout not in COUNTED:
        return tile.in_order()
    if problem.groups <= SEVERAL or not long or (problem.promote and mean > PROMOTED_FROM_TAIL) or not tile.longest_first:
        return tile
    if problem.quantised and tile.tile.BN == BLOCK:             # takes a few registers more than tiles of three warpgroups have
        return tile
    about = FROM_TAIL_OF_MUCH if problem.x.bits == 16 and _much(tile, problem) else FROM_TAIL
    return tile.starting_from_tail(_whole_groups(about, tile, problem))


def as_second(tile: GroupTile, problem: GroupProblem) -> GroupTile:
    """The tile in the second of two kernels that share the groups, which has the longest and the shortest ones."""
    more = tile.from_tail and _much(tile, problem)
    return tile.starting_from_tail(_whole_groups(FROM_TAIL_OF_SECOND, tile, problem)) if more else tile


def _much(tile: GroupTile, problem: GroupProblem) -> bool:
    return problem.groups * _across(tile, problem) * problem.k // 64 >= MUCH


def _across(tile: GroupTile, problem: GroupProblem) -> int:
    """Tiles in a row of tiles."""
    return -(-problem.n // tile.features(problem.options.gated, problem.quantised))


def _whole_groups(ctas: int, tile: GroupTile, problem: GroupProblem) -> int:
    """About so many CTAs: as many as one row has tiles, or several rows, or a half, a third, ... of a row."""
    across = _across(tile, problem)
    return across * max(1, round(ctas / across)) // max(1, round(across / ctas))


def cost_of(costed: CostedTile, problem: GroupProblem) -> TileCost:
    """The cost of such tiles for this problem."""
    tile, gated = costed.tile, problem.options.gated
    tokens, features = tile.tile_tokens, tile.features(gated, problem.quantised)
    step = tile.n_granularity or (ROWS if costed.fixed_blocks else tokens)
    time = (costed.cost + costed.store_stages / _stages(problem)) * features * (1 + gated) * tokens
    return TileCost(tokens, features, step, int(time / (tokens // step + costed.fixed_blocks)), costed.fixed_blocks)


def between(first: CostedTile, problem: GroupProblem) -> int | None:
    """How long a CTA takes from the first kernel to another one with which it shares the groups, in the unit of `cost_of`. None where
    sharing was measured not to pay: with quantised results, with pairs of CTAs, and where sums stay in the tensor cores, with operands of
    8 bits, with a gate, or with long groups."""
    few = problem.x.bits == 16 and not problem.options.gated and problem.mean <= PREFILL
    if problem.quantised or first.tile.scheduler.cluster.n > 1 or not (problem.promote or few):
        return None
    tile = COOPERATIVE.tile.tile
    return int(BETWEEN_STAGES / _stages(problem) * tile.BM * tile.BN)


def expects_sharing(problem: GroupProblem) -> bool:
    """Whether a second kernel may be there only to share the groups, and tiles may be ordered for that."""
    return _bare(problem) and not _waits(problem)


def _stages(problem: GroupProblem) -> int:
    """Stages of 128 bytes along K."""
    return math.ceil(problem.k * problem.x.bits / 1024)


def for_alike(costed: CostedTile, problem: GroupProblem) -> CostedTile:
    """What such tiles cost for groups that are alike: assigned statically where that pays."""
    if not static_pays(costed.tile, problem):
        return costed
    return replace(costed, cost=costed.cost * (1 - static_gain(costed.tile)), fixed_blocks=STATIC_BLOCKS)


def static_gain(tile: GroupTile) -> float:
    """What groups that are alike gain for certain where such a tile, for which static assignment pays, is assigned statically."""
    return STATIC_GAIN_WIDE if tile.tile.BN == WIDE.tile.BN else 0.0


def static_pays(tile: GroupTile, problem: GroupProblem) -> bool:
    """Whether static assignment pays for groups that are alike, given another kernel for groups that differ: for promoted tiles of 128
    rows that are about full, and so few that CTAs stay at the same stage."""
    full = -math.ceil(problem.mean) % WIDE.tile.BM < ROWS and problem.mean <= 2 * PREFILL
    if not (full and problem.promote and problem.options.layout in COUNTED) or problem.options.order or tile.tile.BM != WIDE.tile.BM:
        return False
    narrow = _bare(problem) and problem.mean > 2 * FEW and problem.k >= NARROW_DEPTH
    return tile.tile.BN == WIDE.tile.BN or (tile.tile.BN == NARROW.tile.BN and narrow)


def best(tiles: CostedTiles, problem: GroupProblem, sms: int) -> CostedTile:
    """The tile for groups of the expected size, or for all blocks of contiguous groups."""
    alike = (math.ceil(problem.mean),) * problem.groups if problem.options.layout != "contiguous" else \
        (CONTIGUOUS_ROWS,) * problem.blocks
    groups = on_host(alike, sms)
    return min(tiles, key=lambda each: cost_of(for_alike(each, problem), problem).time(groups, problem.n))


__all__ = ["FEW", "FEWER_STAGES", "FEW_GATED", "FROM_TAIL_OF_MUCH", "MORE_BUFFERS", "NARROW", "PAIR", "PLAIN", "PLAIN_GATED", "PREFILL",
           "PROMOTED", "QUANTISED", "SEVERAL", "SHORT", "SORTED", "SORTED_WAITING", "STATIC_BLOCKS", "THREE_WARPGROUPS", "WAITING", "WIDE",
           "CostedTile", "CostedTiles", "as_second", "best", "between", "cost_of", "expects_sharing", "for_alike", "ordered",
           "static_gain", "static_pays", "tiles_of"]
