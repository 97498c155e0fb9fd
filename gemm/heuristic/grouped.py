"""Which configuration a group product gets, from the expected number of tokens of a group."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..collective.atoms import ROWS
from ..collective.thread_scales import BLOCK
from ..config.dense import AHEAD, L2_PROMOTION, LINE, ConfigError
from ..config.grouped import ROWS_ALIGNED, GroupConfig
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import COUNTED
from ..scheduler.tile_cost import OnHost, Tiles
from ..scheduler.two_kernels import Choice
from ..tools.bench.grouped_cases import PREFILL, skewed
from .grouped_tiles import (
    ALIKE,
    FEW,
    FEW_GATED,
    FITTED,
    TICKET,
    Kind,
    Kinds,
    as_second,
    best,
    between,
    counted,
    dealt_out,
    expects_sharing,
    extents,
    for_alike,
    ordered,
    scale_ring,
    tiles_of,
)

# Measured on an H200 (all candidates of 19 extents, bf16 and e4m3, per-tensor and block scales, bursts, weights cold, groups of one size
# and skewed ones): what a choice costs beside the fastest candidate of the same case is in docs/grouped-performance.md.
ROOM = 1.5
"""Tokens of a tile for each that a group is expected to have: lengths differ, and a group's second tile would read its weights again.
Of groups that are all alike this costs 2 % at most, and where they are skewed it saves 20 to 30 %."""
FEWEST, FEWEST_OF_EIGHT, SINGLE = 4, 8, 16
"""Tokens of a group up to which the narrowest tiles are enough, those of up to eight groups, and up to which narrower ones are."""
MANY = 32
"""Groups from which on some of few tokens are long enough to count."""
FITTED_SINGLE: tuple[dict[str, Any], ...] = tuple({**FITTED, "BM": BM, "BN": BN, "LONGEST_FIRST": False}
                                                  for BM, BN in ((64, 16), (64, 64), (128, 128)))
"""Those of groups of which most have one: of up to FEWEST tokens, of up to SINGLE, of more."""
FINER = 1.12
"""How much fuller tiles of half as many features must make the waves of few tokens for them to be taken; or with block scales, for the tile
with the deeper ring, since a few SMs are left with a second one each."""
LONG, FULLER = 96, 1.3
"""Tokens of a group from which on tiles of quantised results have twice the features where there are up to so many times as many as SMs: a
second wave of few takes as long as the first."""
PROMOTED_COLUMNS: dict[str, Any] = {"TRANSPOSED": True, "BM": 128, "CONSUMERS": 1, "STAGES": 6, "GROUP": 1, "ORDER": "ticket"}
"""Tiles whose sums are promoted and whose columns are tokens: one warpgroup each. A ring that fills shared memory is 1 % slower."""
COLUMNS = 6
"""Tokens of a group up to which they are columns though the producer copies block scales: a column's scale is read by the threads."""
PROMOTED_FEW: tuple[dict[str, Any], ...] = ({"BM": 64, "BN": 128, "OVERLAP": True, "ORDER": "ticket"},
                                            {"BM": 128, "BN": 128, "ORDER": "ticket"})
"""Those of groups of up to SINGLE tokens, whose ring is the deeper one, and of more that have one tile."""
SAMPLES = 8
"""Skewed lengths that are tried to see what the better of two tiles gains over one."""
LEAST, LEAST_PROMOTED, SECOND = 0.015, 0.006, 0.8
"""What two kernels must gain on average: a share, less where sums are promoted, whose times are known better; and the microseconds that the
second launch may take."""
SAME_HEIGHT = 0.03
"""What two kernels must gain more where tiles of both have the same tokens: these differ by waves alone, and 128 x 192 by so much between
cards that are hot and cool."""
REST, REST_DEPTH = 32, 2048
"""Rows at a time that come of a warpgroup's last ones, where rows of x have so many bytes."""
BYTES, FLOPS = 4.6e6, {8: 1.8e9, 16: 0.93e9}
"""A microsecond reads and multiplies at most, by bits of an operand."""


def fixed(problem: GroupProblem) -> dict[str, Any]:
    """What the problem leaves no choice in."""
    return {"x": problem.x, "w": problem.w, "out": problem.out, "GROUPS": problem.capacity, "LAYOUT": problem.options.layout,
            "SCALED": problem.scaled, "GATED": problem.options.gated, "PROMOTE": problem.promote, "BLOCK_SCALES": problem.block_scales,
            **({"ORDER": problem.options.order} if problem.options.order else {})}


def heuristic(problem: GroupProblem, sms: int = 132) -> GroupConfig:
    """The configuration for a problem."""
    if problem.options.layout == "rows":
        return GroupConfig.of(**{**_of_rows(problem, sms), **fixed(problem)})
    tile = (_quantised if problem.quantised else _promoted if problem.promote else _fast)(problem, sms)
    tile = {**_rows(problem), **_weights(problem), **tile}
    config = GroupConfig.of(**{**tile, **fixed(problem)})
    if not _by_count(problem) or problem.options.layout not in COUNTED:
        return config
    tiles = tiles_of(problem)
    kind = next((each for each in tiles if each.tile.items() <= tile.items()), None)
    if kind is None:
        return config
    other = _other(problem, kind, tiles, sms)
    if other is None:
        return config
    if dealt_out(tile, problem):                                # lengths that differ are the other one's
        config = replace(config, ORDER="linear", PIECES=True, tile=replace(config.tile, SERPENTINE=True))
    same = {key: value for key, value in tile.items() if key not in kind.tile}
    others = other.tile
    if expects_sharing(problem):
        config, others = replace(config, FROM_END=0), as_second(others, problem)
    second = GroupConfig.of(**{**same, **others, "AHEAD": 0, **fixed(problem)})
    return config.or_(counted(for_alike(kind, problem), problem), second, counted(other, problem), between(kind, problem))


def _by_count(problem: GroupProblem) -> bool:
    """Whether groups have so many tokens that the tile is chosen by counting. Where sums are promoted that says the kind."""
    return problem.promote or problem.mean > 2 * FEW


def _other(problem: GroupProblem, first: Kind, tiles: Kinds, sms: int) -> Kind | None:
    """The tile to choose from beside the first where groups may differ much; none if it is not worth a second launch.

    Of few waves the last one is a large part, and lengths alone say whether it is full.
    """
    rows = round(problem.mean * problem.groups)
    samples = [OnHost(sms).groups(skewed(problem.groups, rows, number=number)) for number in range(1, SAMPLES + 1)]

    def time(tiles: Tiles | Choice) -> float:
        return sum(tiles.time(groups, problem.n) for groups in samples)

    def held_back(kind: Kind) -> float:
        same = problem.promote and extents(kind.tile)[0] == extents(first.tile)[0]
        return 1 + SAME_HEIGHT if same else 1.0

    own, over = counted(first, problem), between(first, problem) if expects_sharing(problem) else None
    its, least, found = time(own), math.inf, None
    for kind in (each for each in tiles if each != first):
        both = time(Choice(own, counted(kind, problem), over, True)) * held_back(kind)
        if both < least:
            least, found = both, kind
    multiplied, moved = _at_least(problem)
    gain = (its / least - 1) * min(1.0, multiplied / moved) + (ALIKE[first.tile["BN"]] if dealt_out(first.tile, problem) else 0.0)
    enough = LEAST_PROMOTED if problem.promote else LEAST
    return found if gain > enough + SECOND / max(multiplied, moved) else None


def _at_least(problem: GroupProblem) -> tuple[float, float]:
    """Microseconds of multiplying and of moving bytes: the longer one is what is gained by fuller waves, or hides it."""
    rows, lines = problem.mean * problem.groups, problem.n * (1 + problem.options.gated)
    bytes = (problem.groups * lines + rows) * problem.k * problem.x.bits / 8 + rows * problem.n * problem.out.bits / 8
    return 2 * rows * lines * problem.k / FLOPS[problem.x.bits], bytes / BYTES


def _few(problem: GroupProblem) -> bool:
    """Whether groups have so few tokens that a product takes as long as its weights."""
    return problem.mean <= (FEW_GATED if problem.options.gated else FEW)


def single(problem: GroupProblem) -> bool:
    """Whether groups have few tokens, and most of them one tile."""
    return _few(problem) and (problem.mean * ROOM <= FEW or problem.groups <= MANY)


def _rows(problem: GroupProblem) -> dict[str, Any]:
    """How rows are loaded: each warpgroup's apart, and of its last ones what there is. Of more rows few are missing, and further copies
    cost large products 1 %; zeros are filled in for each tile, which takes longer than it saves where that has few stages."""
    deep = problem.k * problem.x.bits >= REST_DEPTH * 8
    return {"PIECES": True, "REST": REST if deep else 0} if problem.mean <= PREFILL else {}


def _weights(problem: GroupProblem) -> dict[str, Any]:
    """How weights are read. Where groups have one tile nobody wants them again; and where everybody waits for them the L2 fetches what is
    asked for, one line, and no other."""
    lines = _few(problem) or (problem.mean <= 2 * FEW and not problem.promote)
    return {"STREAM_W": single(problem), "L2_PROMOTION": LINE if lines else L2_PROMOTION,
            "AHEAD": AHEAD if problem.mean <= FEW else 0}


def _fast(problem: GroupProblem, sms: int) -> dict[str, Any]:
    """bf16, f16, and fp8 whose sums stay in the tensor cores."""
    mean, span = problem.mean, 1024 // problem.x.bits
    deep = 2 * span if problem.k >= 8 * span else span
    if mean > 2 * FEW:
        return best(tiles_of(problem), problem, sms)
    if problem.options.gated:
        width = next((size for most, size in ((FEWEST, 16), (SINGLE, 64), (FEW, 128)) if mean <= most), 192)
        return ordered({**FITTED, "BN": width, "CONSUMERS": 1, **({"BK": min(deep, BLOCK)} if width == 16 else {})}, problem)
    if not single(problem):
        return ordered(FITTED, problem)
    narrow, medium, wide = FITTED_SINGLE
    if mean > SINGLE:
        return {**wide, "BM": wide["BM"] // 2} if _tiles(problem, 2 * ROWS) <= sms or _finer(problem, sms) else wide
    return {**(narrow if _fewest(problem) else medium), "BK": deep}


def _fewest(problem: GroupProblem) -> bool:
    """Whether groups have so few tokens that the narrowest tiles are enough. Of few groups a long one is less likely."""
    return problem.mean <= (FEWEST_OF_EIGHT if problem.groups <= 8 else FEWEST)


def _tiles(problem: GroupProblem, features: int) -> int:
    """Those of so many features, if each group has one tile of tokens."""
    return problem.groups * -(-problem.n // features)


def _spare(problem: GroupProblem, sms: int) -> bool:
    """Whether tiles of 128 features leave half of the SMs without any, which take the slabs of longer groups."""
    return 2 * _tiles(problem, 2 * ROWS) <= sms


def _finer(problem: GroupProblem, sms: int) -> bool:
    """Whether tiles of 64 features instead of 128 make the waves of groups that have one tile each so much fuller."""
    def full(features: int) -> float:
        waves = _tiles(problem, features) / sms
        return waves / math.ceil(waves)

    return full(ROWS) > FINER * full(2 * ROWS)


def _promoted(problem: GroupProblem, sms: int) -> dict[str, Any]:
    """Block scales, or sums that are taken out of the tensor cores every 128 of K."""
    mean, gated = problem.mean, problem.options.gated
    if _fewest(problem) or mean <= (COLUMNS if problem.scale_bulk else SINGLE):
        return {**PROMOTED_COLUMNS, "BN": 16 if mean <= FEWEST else 32}
    if not problem.scale_bulk and not gated and mean * ROOM <= FEW:
        return {"TRANSPOSED": True, "BM": 256, "BN": _tokens(mean), "GROUP": 1, "ORDER": "ticket"}
    ways = scale_ring(problem)
    if gated and problem.block_scales and not ways:
        return ordered({"BM": 128, "BN": 128, **(TICKET if mean <= 2 * FEW else {})}, problem)
    if single(problem):
        narrow, wide = PROMOTED_FEW
        deeper = mean <= SINGLE or (problem.scale_bulk and not gated and (_spare(problem, sms) or _finer(problem, sms)))
        return {**(narrow if deeper else wide), **ways}
    return {**best(tiles_of(problem), problem, sms), **ways}


def _tokens(mean: float) -> int:
    """Of a tile whose tokens are columns."""
    return next((size for size in (16, 32, 48, 64) if mean * ROOM <= size), FEW_GATED)


def _quantised(problem: GroupProblem, sms: int) -> dict[str, Any]:
    """Results with scales of their own: tokens are rows, also few."""
    mean, gated, ways = problem.mean, problem.options.gated, scale_ring(problem)
    if problem.promote and not ways:
        return {"BM": 64 if mean <= FEW else 128, "BN": BLOCK}
    if mean > (FEW if ways else 2 * FEW):
        return {**best(tiles_of(problem), problem, sms), **ways}
    short = mean <= (SINGLE // 2 if gated else SINGLE) or (mean <= FEW and _spare(problem, sms))
    if not ways:
        tall = mean > FEW and not gated and not _spare(problem, sms)
        twice = gated or (tall and mean > LONG and sms < _tiles(problem, BLOCK) <= FULLER * sms)
        tile = {"BM": 64 if short else 192 if tall and not twice else 128, "BN": 2 * BLOCK if twice else BLOCK, **TICKET}
        return ordered(tile, problem)
    narrow, wide = PROMOTED_FEW
    if gated:
        return {**(narrow if mean > FEWEST else {"BM": 64, "BN": 2 * BLOCK, "ORDER": "ticket"}), **ways}
    return {**(narrow if short else {**wide, "OVERLAP": True}), **ways}


def _of_rows(problem: GroupProblem, sms: int) -> dict[str, Any]:
    """Rows that say their group, in blocks of 128: tiles of as many. They are all full, so what pays to be dealt out is."""
    ways = scale_ring(problem)
    fetched = {"L2_PROMOTION": _weights(problem)["L2_PROMOTION"]}
    if problem.promote and not ways:
        return {"BM": ROWS_ALIGNED, "BN": 128, **fetched}
    whole = tuple(kind for kind in tiles_of(problem) if kind.tile["BM"] == ROWS_ALIGNED and "TRANSPOSED" not in kind.tile)
    tile = best(whole, problem, sms)
    in_advance = {"ORDER": "linear", "SERPENTINE": True} if ways and 2 * FEW < problem.mean < 2 * PREFILL and tile["BN"] > BLOCK else {}
    return {**tile, **ways, **fetched, **in_advance}


def alone(tile: dict[str, Any], problem: GroupProblem) -> GroupConfig | None:
    """The kernel of a tile, which works whatever the lengths; None where the problem cannot have it."""
    try:
        return GroupConfig.of(**{**_rows(problem), **_weights(problem), **tile, **fixed(problem)})
    except ConfigError:
        return None


__all__ = ["alone", "fixed", "heuristic", "single"]
