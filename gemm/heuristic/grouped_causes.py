"""The tile of a grouped product in bf16 or f16 whose rows begin anywhere in a line of the L2: the fastest one by a model of causes.

The causes and the constants of a card are those of the dense model (`costs`): copies into shared memory, products, stores, waves, memory
and launch. Lengths at random are counted group by group, once as if all were alike and once as a router of experts makes them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from ptxkit.cards import Card
from ptxkit.smem import SHARED_LIMIT

from ..collective.atoms import ROWS
from ..config.budget import STAGE_BYTES, default_warpgroups
from ..config.grouped import DynamicGroups, StaticGroups, SwapAB
from ..config.parts import ClusterShape, Cooperative, Pingpong, Swizzle, Tile
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import CONTIGUOUS_ROWS, COUNTED
from .costs import LINE, of_card
from .group_tile import GroupTile, swapped
from .grouped_lines import pitches, straddles
from .skewed import skewed

WIDTHS = (128, 192, 256)
"""Features of the tiles that every problem has."""
SHARED_OUT = 0.55
"""What the L2 gives all SMs of a grouped product, over what it gives those of a dense one: CTAs are at groups and depths of their own."""
FIXED_COLUMNS = 7
"""The columns whose time a swapped tile takes besides those that it multiplies."""
COUNTER = 2900.0
"""Clocks until CTAs have their first tiles from a counter."""
SWAPPED = 1.08
"""How many times as long as by the rest of the model swapped tiles take: random lengths fill them less evenly than those counted."""
NARROW_PINGPONG = 0.91
"""The same of 128 x 128 pingpong."""
HAND_OVER = 1000.0
"""Clocks from the last sum that a CTA writes until the CTA that waits for it reads the first."""
SUMS_WRITTEN, SUMS_READ = 32.0, 16.0
"""Bytes of sums that a CTA writes, and reads, in a clock."""
STEP = 16
"""The columns that a swapped tile multiplies, and further widths of tiles, are multiples of it."""
SKEWED = ((1, 0.125), (2, 0.5))
"""The number of the lengths at random that are counted, and the share of groups that are empty."""
DRIFT = 0.08
"""How much longer tiles take that CTAs do not take from a counter, if they are many: CTAs drift apart, and the L2 keeps less of what others
want as well."""
MOST_PINGPONG = 192
"""Features of a tile for which pingpong warpgroups, and two that share 256 rows, have registers."""
STAGING = 32 << 10
"""Shared memory of about all staging buffers."""
NARROW = 256
"""Features of the widest tile."""
EVEN = 2048
"""Features of the widest results that have tiles of an even share of them: of wider ones the last tile is a small part."""


@functools.cache
def tiles(widths: tuple[int, ...] = ()) -> tuple[GroupTile, ...]:
    """The tiles that are chosen from: of one CTA, of pairs that share tokens or weights, and swapped ones. `widths` adds tiles of so many
    features."""
    alone, share_tokens, share_weights = ClusterShape(), ClusterShape(1, 2), ClusterShape(2, 1)
    cooperative = {Tile(128, 256): (alone, share_weights), Tile(256, 192): (alone, share_tokens), Tile(256, 128): (share_tokens,)}
    pingpong = {Tile(128, 192): (alone, share_weights, share_tokens), Tile(128, 128): (alone,)}
    for width in widths:
        cooperative[Tile(128, width)] = (share_weights,)
        if width <= MOST_PINGPONG:
            pingpong[Tile(128, width)] = (share_weights,)
            cooperative[Tile(256, width)] = (alone, share_tokens)
    found = [GroupTile(tile, schedule, scheduler=StaticGroups(cluster=cluster))
             for schedule, shapes in ((Cooperative(), cooperative), (Pingpong(), pingpong))
             for tile, clusters in shapes.items() for cluster in clusters]
    counted = replace(GroupTile(Tile(256, 192)), scheduler=DynamicGroups(cluster=share_tokens))
    columns = [swapped(BM, BN, longest_first=False) for BM, BN in ((256, 192), (192, 192), (128, 192), (128, 256))]
    shared = replace(columns[0], tokens=SwapAB(), scheduler=DynamicGroups(order=Swizzle(size=1), cluster=share_tokens))
    return (*found, counted, *columns, shared)


@dataclass(frozen=True, slots=True)
class Columns:
    """Tiles as the model sees them, an array for each property."""

    tokens: Any
    features: Any
    blocks: Any                                 # of 64 rows that one warpgroup stores
    along_tokens: Any                           # CTAs of a cluster
    along_weights: Any
    swapped: Any
    whole: Any                                  # whether it multiplies columns that have no tokens
    pingpong: Any
    dynamic: Any
    resident: Any
    stages: Any
    factor: Any
    spans: Any                                  # times 128 bytes of K in a stage

    @classmethod
    def of(cls, some: tuple[GroupTile, ...], card: Card, *, as_they_are: bool = False, bits: int = 16) -> Columns:
        """`as_they_are`: with the warpgroups and the K of a stage that each tile has, for operands of `bits`. Otherwise every tile is seen
        with the usual ones of its height. The limits of shared K were measured so."""
        found = []
        for each in some:
            tile, cluster, swap, pingpong = each.tile, each.scheduler.cluster, each.swap_ab, isinstance(each.schedule, Pingpong)
            tokens, features = (tile.BN, tile.BM) if swap else (tile.BM, tile.BN)
            along = (cluster.n, cluster.m) if swap else (cluster.m, cluster.n)
            ring = SHARED_LIMIT - (0 if swap else STAGING)
            factor = SWAPPED if swap else NARROW_PINGPONG if pingpong and tile.BN == 128 else 1.0
            named = 1 if isinstance(each.schedule, Pingpong) else each.schedule.warpgroups * as_they_are
            warpgroups = named or default_warpgroups(tile.BM)
            spans = max(1, tile.BK * bits // 8 // STAGE_BYTES) if as_they_are else 1
            found.append((tokens, features, tile.BM // ROWS // warpgroups, *along, swap, not each.n_granularity, pingpong,
                          isinstance(each.scheduler, DynamicGroups), card.resident(cluster.size),
                          ring // ((tile.BM + tile.BN) * STAGE_BYTES * spans), factor, spans))
        return cls(*np.array(found, np.float64).T[:, :, None])


@functools.lru_cache(64)
def _columns(widths: tuple[int, ...], card: Card) -> Columns:
    return Columns.of(tiles(widths), card)


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths of several sets of groups, one set after another. A set has each of its lengths once, with the number of groups that have
    it."""

    rows: Any
    many: Any
    begins: Any                                 # the place of each set's first length
    owner: Any                                  # the set of each length

    @classmethod
    def of(cls, *sets: Sequence[int]) -> Lengths:
        found = [np.unique(np.array([each for each in lengths if each], np.float64), return_counts=True) for lengths in sets]
        sizes = [len(rows) for rows, _ in found]
        rows, many = (np.concatenate(each) for each in zip(*found, strict=True))
        return cls(rows, many, np.cumsum([0, *sizes[:-1]]), np.repeat(np.arange(len(sizes)), sizes))

    def sums(self, values: Any) -> Any:
        """The sum over the lengths of each set: [..., lengths] to [..., sets]."""
        return np.add.reduceat(values, self.begins, axis=-1)

    def most(self, values: Any) -> Any:
        """The largest value of each set: [..., lengths] to [..., sets]."""
        return np.maximum.reduceat(values, self.begins, axis=-1)

    def spread(self, values: Any) -> Any:
        """A set's value at each of its lengths: [..., sets] to [..., lengths]."""
        return values[..., self.owner]


@np.errstate(divide="ignore")
def clocks(problem: GroupProblem, seen: Columns, lengths: Lengths, card: Card, most: Any = None) -> Any:
    """The clocks of a launch, [sets of lengths, tiles]. Where the card has no room for a cluster, they are infinite. `most`: how many CTAs
    share the K of a tile, where CTAs have runs of stages (`StreamGroups`). With a gate both projections count as results, though half as
    many are stored."""
    c, n, size = of_card(card), problem.n * (1 + problem.options.gated), problem.x.bits / 8
    rows, many = lengths.rows, lengths.many
    swapped, pingpong = seen.swapped > 0, seen.pingpong > 0
    depth = math.ceil(problem.k * size / STAGE_BYTES)
    x, w = (1.0 + c.straddle * (1.0 - gcd(pitch, LINE) / LINE) for pitch in pitches(problem))

    # Tiles of each group, and what one of them has of tokens and of features.
    own = np.ceil(rows / seen.tokens)
    across = np.ceil(n / (seen.features * seen.along_weights)) * seen.along_weights
    count = np.ceil(own / seen.along_tokens) * seen.along_tokens * across
    tokens, features = rows * across / count, np.minimum(seen.features, n / across)
    count = count * many
    columns = np.where(swapped, np.where(seen.whole > 0, seen.tokens, np.ceil(rows / own / STEP) * STEP), seen.features)
    lines = np.where(swapped, seen.features, seen.tokens)

    # One stage, and a tile.
    shared = 1.0 + c.narrow * np.maximum(0.0, (64 + 4096 / columns) / LINE - 1)
    multiply = c.mma * lines / ROWS * (columns + FIXED_COLUMNS * swapped) * 2 * np.maximum(1 / c.tensor, shared)
    tiles = lengths.sums(count)
    touched = LINE * (tokens * x / seen.along_weights + features * w / seen.along_tokens)
    ctas = seen.resident if most is None else np.minimum(seen.resident, tiles * most[:, None])
    active = np.minimum(tiles, seen.resident) if most is None else ctas
    copy = np.maximum(LINE * (tokens + features) / c.ingest, touched * (1 / c.l2 + lengths.spread(active) / (c.l2_all * SHARED_OUT)))
    both = (multiply ** c.sharpness + copy ** c.sharpness) ** (1 / c.sharpness)
    stage = np.maximum(both, (c.latency + c.latency_mma * multiply) / (seen.stages * seen.spans)) + c.stage / seen.spans
    straddled = 1.0 + c.straddled_store * (1.0 - gcd(n * problem.out.bits // 8, LINE) / LINE)
    store = c.epilogue + np.where(swapped, c.block_direct, c.block) * seen.blocks * columns / 8 * problem.out.bits / 16 * straddled
    alone = depth * stage
    tile = np.where(pingpong, np.maximum(alone + c.hand_over, (alone + store) / 2), alone + store)

    # All of them, and the memory.
    waves = tiles / ctas
    mean = lengths.sums(tile * count) / tiles
    if most is None:
        work = np.where(waves > 1, mean * np.ceil(waves), lengths.most(tile))
        work = work * np.where(seen.dynamic > 0, 1.0, 1.0 + DRIFT * (1.0 - 1.0 / np.maximum(waves, 1.0)))
    else:
        whole = np.maximum(np.floor(waves) - 1, 0)              # waves of tiles that are not shared
        shared, sums = tiles - whole * ctas, seen.tokens * seen.features * 4
        own_share = lengths.spread(shared / ctas)
        each = lengths.sums((alone * own_share + store * np.ceil(own_share)) * count) / tiles
        added = HAND_OVER + sums * (1 / SUMS_WRITTEN + np.ceil(np.maximum(ctas / shared, 1)) / SUMS_READ)
        work = whole * mean + each + np.where(tiles % ctas, added, 0)
    groups, all_rows = lengths.sums(many), lengths.sums(rows * many)
    share = many / lengths.spread(groups)
    work = work + pingpong * lengths.sums(store * share) + c.cluster * (seen.along_tokens * seen.along_weights > 1)
    bytes = (all_rows + groups * n) * problem.k * size + all_rows * n * problem.out.bits / 8 * c.stores * straddled
    ring = seen.stages * seen.spans * (lengths.sums(tokens * share) + features) * LINE
    memory = bytes / np.minimum(c.memory, active * ring / c.latency * c.in_flight)
    total = c.launch + COUNTER * seen.dynamic + (work ** c.overlap + memory ** c.overlap) ** (1 / c.overlap)
    return (total * seen.factor).T


def bare(problem: GroupProblem) -> bool:
    """Whether a tile of operands and results of 16 bits is stored as it is multiplied, whatever its tokens, in any order."""
    plain = problem.x.bits == 16 and problem.out.bits == 16 and not (problem.options.gated or problem.promote or problem.as_rows)
    return plain and problem.options.layout in COUNTED and not problem.options.order


def chooses(problem: GroupProblem) -> bool:
    """Whether the tile is chosen here: it is stored as it is multiplied, and lines straddle."""
    return bare(problem) and straddles(problem)


def clocks_of(problem: GroupProblem, seen: Columns, card: Card, most: Any = None) -> Any:
    """The clocks of a launch for lengths that are alike and for some that are not, [lengths, tiles]; for contiguous groups, whose number of
    blocks is known, only for that. `most`: as of `clocks`."""
    contiguous = problem.options.layout == "contiguous"
    lengths = _blocks(problem.blocks) if contiguous else _lengths(max(1, round(problem.mean)), problem.groups)
    return clocks(problem, seen, lengths, card, most)


@functools.lru_cache(64)
def _lengths(tokens: int, groups: int) -> Lengths:
    """The lengths that are counted of groups of so many tokens in the mean."""
    rows = tokens * groups
    return Lengths.of((tokens,) * groups, *(skewed(groups, rows, empty=share, number=number) for number, share in SKEWED))


@functools.lru_cache(64)
def _blocks(count: int) -> Lengths:
    """So many blocks of contiguous groups, whose rows all count."""
    return Lengths.of((CONTIGUOUS_ROWS,) * count)


def fastest(problem: GroupProblem, card: Card) -> GroupTile:
    """The tile that takes the least time, in the mean over groups that are alike and ones that are not."""
    widths = widths_of(problem)
    return tiles(widths)[int(np.argmin(clocks_of(problem, _columns(widths, card), card).sum(axis=0)))]


def widths_of(problem: GroupProblem) -> tuple[int, ...]:
    """The widths of further tiles for a result of so many features: even shares of them, of as few tiles as have up to 256 features each,
    or up to 192. None where the other tiles are as wide, results have more than EVEN features, or weights have 64 at a time."""
    if problem.n > EVEN or problem.w_major == "mn":
        return ()
    even = (-(-problem.n // -(-problem.n // most)) for most in (NARROW, MOST_PINGPONG))
    return tuple(dict.fromkeys(width for width in (-(-share // STEP) * STEP for share in even) if width not in WIDTHS))


__all__ = ["Columns", "Lengths", "bare", "chooses", "clocks", "clocks_of", "fastest", "tiles", "widths_of"]
