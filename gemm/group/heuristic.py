"""Which configuration a group product gets, from the expected number of tokens of a group."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from ..atoms import ROWS
from ..config import AHEAD, L2_PROMOTION, LINE, ConfigError
from ..scales import BLOCK
from .cases import PREFILL, skewed
from .choice import Tiles
from .config import ROWS_ALIGNED, GroupConfig
from .problem import GroupProblem
from .quantised import passes
from .table import COUNTED

# Measured on an H200 (all candidates of 19 extents, bf16 and e4m3, per-tensor and block scales, bursts, weights cold, groups of one size
# and skewed ones): what a choice costs beside the fastest candidate of the same case is in docs/grouped-performance.md.
ROOM = 1.5
"""Tokens of a tile for each that a group is expected to have: lengths differ, and a group's second tile would read its weights again.
Of groups that are all alike this costs 2 % at most, and where they are skewed it saves 20 to 30 %."""
FEW = 64
"""Tokens of a group up to which it counts as one of few."""
FEWEST, FEWEST_OF_EIGHT, SINGLE = 4, 8, 16
"""Tokens of a group up to which the narrowest tiles are enough, those of up to eight groups, and up to which narrower ones are."""
MANY = 32
"""Groups from which on some of few tokens are long enough to count."""
FEW_GATED = 96
"""Tokens of a group up to which gated ones count as few."""


class Kind(NamedTuple):
    """A tile, and the time of a full one beside its share of the area of the first. It takes as long whatever it has; or, with `beside`, as
    long as it has slabs of 64 rows, or steps, and so many of them more. While it is stored nobody multiplies, for as long as the first
    takes for so many stages of 128 bytes of depth (`stores`)."""

    share: float
    tile: dict[str, Any]
    beside: int = 0
    stores: float = 0.0


Kinds = tuple[Kind, ...]
_TICKET: dict[str, Any] = {"ORDER": "ticket", "LONGEST_FIRST": True}
_FITTED: dict[str, Any] = {"TRANSPOSED": True, "STEP": 16, "GROUP": 1, **_TICKET}
PLAIN: Kinds = (
    Kind(1.0, {"BM": 128, "BN": 256, "STAGES": 3, "BUFFERS": 4}, stores=0.75),
    Kind(0.993, {"BM": 128, "BN": 192, "PINGPONG": True}),
    Kind(1.017, {"BM": 256, "BN": 192, **_FITTED}, beside=1, stores=1.85),
    Kind(1.027, {"BM": 192, "BN": 192, **_FITTED}, beside=1, stores=1.85))
"""Tiles whose sums stay in the tensor cores. A warpgroup that stores all its boxes at once is worth a stage of the ring; of two that take
turns one multiplies while the other stores. Where groups differ, or are few tiles of the first two, tiles of 16, 32, ... 192 tokens waste
none, and by ticket, the longest group first, CTAs end together."""
FITTED: dict[str, Any] = {"BM": 128, "BN": 192, **_FITTED}
"""The tile of groups of up to 2 FEW tokens, which wait for their weights."""
FITTED_SINGLE: tuple[dict[str, Any], ...] = tuple({**FITTED, "BM": BM, "BN": BN, "LONGEST_FIRST": False}
                                                  for BM, BN in ((64, 16), (64, 64), (128, 128)))
"""Those of groups of which most have one: of up to FEWEST tokens, of up to SINGLE, of more."""
FINER = 1.12
"""How much fuller tiles of half as many features must make the waves of few tokens for them to be taken; or with block scales, for the tile
with the deeper ring, since a few SMs are left with a second one each."""
OF_THREE: dict[str, Any] = {"BM": 192, "BN": 128, "RASTER": "along_n", "GROUP": 16, **_TICKET}
"""A slab for each of three warpgroups."""
OF_THREE_FEW = 0.94
"""Its time as of the others where everybody waits for weights (`_waits`)."""
PROMOTED: Kinds = (
    Kind(1.0, {"BM": 256, "BN": 128, "STAGGER": True, **_TICKET}, beside=4),
    Kind(1.06, {"BM": 128, "BN": 128, "OVERLAP": True, **_TICKET}, beside=1),
    Kind(1.0, OF_THREE, beside=1),
    Kind(0.996, {"BM": 128, "BN": 192, "GROUP": 16, **_TICKET}, beside=1))
"""Tiles whose sums are promoted: handed out as CTAs get to them they are 1 to 3 % faster than dealt out in advance."""
WIDE: dict[str, Any] = {"BM": 128, "BN": 256, "GROUP": 16, **_TICKET}
"""The one whose halves of columns are promoted in turn: of a gated tile those are the projections."""
PAIR: dict[str, Any] = {**OF_THREE, "CLUSTER_N": 2}
"""The same for pairs of CTAs that share the tokens: where groups have several it takes the place of the one for a CTA alone."""
PAIR_SHARE = 0.993
"""Its time as of the others; it is less where lengths differ, and more where K is 1024."""
PAIR_COLUMNS, PAIR_TOKENS, PAIR_PANEL = (16, 8, 4), 256, 17 << 20
"""How many columns of pairs are worked on before the next ones: one for each so many tokens of a group, and their weights so many bytes at
most, which stay in the L2 while all the tokens pass by."""
WIDE_SHARE, WIDE_SHARE_GATED = 0.98, 0.966
"""The time of such a tile as of the others, and with a gate or quantised results, but for its stores."""
WIDE_STORES = 1.0
"""What those take more through their one buffer, in stages."""
WIDE_ALIKE = 0.008
"""What groups that are alike gain if such tiles are dealt out in advance, for which those that differ need another kernel."""
WIDE_DEALT = 4
"""Slabs beside its own that such a tile takes then: whoever has one that is not full waits for the next wave's weights."""
QUANTISED_OF_THREE = 1.03
"""How much longer tiles of three warpgroups, which store at the same time, take where results are quantised."""
PROMOTED_COLUMNS: dict[str, Any] = {"TRANSPOSED": True, "BM": 128, "CONSUMERS": 1, "STAGES": 6, "GROUP": 1, "ORDER": "ticket"}
"""Tiles whose sums are promoted and whose columns are tokens: one warpgroup each. A ring that fills shared memory is 1 % slower."""
COLUMNS = 6
"""Tokens of a group up to which they are columns though the producer copies block scales: a column's scale is read by the threads."""
PROMOTED_FEW: tuple[dict[str, Any], ...] = ({"BM": 64, "BN": 128, "OVERLAP": True, "ORDER": "ticket"},
                                            {"BM": 128, "BN": 128, "ORDER": "ticket"})
"""Those of groups of up to SINGLE tokens, whose ring is the deeper one, and of more that have one tile."""
SORTED, SORTED_FITTED = 32, 64
"""Groups up to which the longest come first, and those of tiles as wide as their tokens if they have more than 2 FEW: to sort more
takes longer than it saves, as does sorting groups of few tokens or of many."""
SEVERAL, FROM_END, PROMOTED_FROM_END = 16, 16, 192
"""Of more groups than that about so many CTAs begin with the shortest: they wait for weights while the others multiply. Where sums are
promoted that pays up to so many tokens a group."""
MUCH, FROM_END_OF_MUCH = 40_000, 48
"""With more of them where operands have 16 bits and tiles of weights so many stages in all, a few hundred microseconds' work."""
SAMPLES = 8
"""Skewed lengths that are tried to see what the better of two tiles gains over one."""
LEAST, LEAST_PROMOTED, SECOND = 0.015, 0.006, 0.8
"""What two kernels must gain on average: a share, less where sums are promoted, whose times are known better; and the microseconds that the
second launch may take."""
SAME_HEIGHT = 0.03
"""What two kernels must gain more where tiles of both have the same tokens: these differ by waves alone, and 128 x 192 by so much between
cards that are hot and cool."""
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
    tile = {"PIECES": _in_pieces(problem), **_weights(problem), **tile}
    config = GroupConfig.of(**{**tile, **fixed(problem)})
    tiles = _tiles(problem)
    kind = next((each for each in tiles if each.tile.items() <= tile.items()), None)
    if kind is None or (problem.options.gated and not problem.promote) or problem.options.layout not in COUNTED:
        return config
    other = _other(problem, kind, tiles, sms)
    if other is None:
        return config
    if _dealt_out(tile, problem):                               # lengths that differ are the other one's
        config = replace(config, ORDER="linear", tile=replace(config.tile, SERPENTINE=True))
    same = {key: value for key, value in tile.items() if key not in kind.tile}
    second = GroupConfig.of(**{**same, **other.tile, "AHEAD": 0, **fixed(problem)})
    return config.or_(_counted(_for_alike(kind, problem), problem), second, _counted(other, problem))


def _for_alike(kind: Kind, problem: GroupProblem) -> Kind:
    """What such tiles take of groups that are alike: dealt out in advance where that pays."""
    return kind._replace(share=kind.share * (1 - WIDE_ALIKE), beside=WIDE_DEALT) if _dealt_out(kind.tile, problem) else kind


def _dealt_out(tile: dict[str, Any], problem: GroupProblem) -> bool:
    """Whether it pays to deal out the tiles of groups that are alike in advance: wide promoted ones that are about full, and so few that
    CTAs stay at the same stage."""
    wide = problem.promote and tile["BN"] == WIDE["BN"] and not problem.options.order and problem.options.layout in COUNTED
    return wide and -math.ceil(problem.mean) % WIDE["BM"] < ROWS and problem.mean <= 2 * PREFILL


def _other(problem: GroupProblem, first: Kind, tiles: Kinds, sms: int) -> Kind | None:
    """The tile to choose from beside the first where groups may differ much; none if it is not worth a second launch.

    Of few waves the last one is a large part, and lengths alone say whether it is full.
    """
    rows = round(problem.mean * problem.groups)
    samples = [skewed(problem.groups, rows, number=number) for number in range(1, SAMPLES + 1)]

    def times(kind: Kind) -> list[float]:
        counted = _counted(kind, problem)
        return [counted.time_of(lengths, problem.n, sms) for lengths in samples]

    def held_back(kind: Kind) -> float:
        same = problem.promote and _extents(kind.tile)[0] == _extents(first.tile)[0]
        return 1 + SAME_HEIGHT if same else 1.0

    alone, best, found = times(first), math.inf, None
    for kind in (each for each in tiles if each != first):
        both = sum(map(min, alone, times(kind))) * held_back(kind)
        if both < best:
            best, found = both, kind
    multiplied, moved = _at_least(problem)
    gain = (sum(alone) / best - 1) * min(1.0, multiplied / moved) + (WIDE_ALIKE if _dealt_out(first.tile, problem) else 0.0)
    least = LEAST_PROMOTED if problem.promote else LEAST
    return found if gain > least + SECOND / max(multiplied, moved) else None


def _at_least(problem: GroupProblem) -> tuple[float, float]:
    """Microseconds of multiplying and of moving bytes: the longer one is what is gained by fuller waves, or hides it."""
    rows, lines = problem.mean * problem.groups, problem.n * (1 + problem.options.gated)
    bytes = (problem.groups * lines + rows) * problem.k * problem.x.bits / 8 + rows * problem.n * problem.out.bits / 8
    return 2 * rows * lines * problem.k / FLOPS[problem.x.bits], bytes / BYTES


def _tiles(problem: GroupProblem) -> Kinds:
    """What groups of more than a few tokens choose from; where results are quantised those with whole blocks of 128 columns, or halves."""
    kinds = tuple(_of_three(kind, problem) if kind.tile == OF_THREE else kind for kind in (PROMOTED if problem.promote else PLAIN))
    if problem.quantised:
        kinds = tuple(kind for kind in kinds if kind.tile["BN"] == BLOCK)
    if problem.mean > FEW_GATED and not _waits(problem) and _scale_ring(problem):
        gated = problem.options.gated
        share = WIDE_SHARE_GATED if gated or problem.quantised else WIDE_SHARE
        kinds = (*kinds, Kind(share, {**WIDE, "STAGGER": problem.quantised or not gated}, beside=1, stores=WIDE_STORES))
    return tuple(kind._replace(tile=_ordered(kind.tile, problem)) for kind in kinds)


def _of_three(kind: Kind, problem: GroupProblem) -> Kind:
    """The tile of three warpgroups as this problem has it: for a CTA alone, or for pairs."""
    if _in_pairs(problem):
        return kind._replace(share=PAIR_SHARE, tile={**PAIR, "GROUP": _columns_of_pairs(problem)})
    return kind._replace(share=kind.share * (QUANTISED_OF_THREE if problem.quantised else OF_THREE_FEW if _waits(problem) else 1.0))


def _plain(problem: GroupProblem) -> bool:
    """Whether block scales come through shared memory, the kernel reads the lengths, and there is no gate and nothing quantised."""
    return bool(_scale_ring(problem)) and problem.options.layout in COUNTED and not (problem.options.gated or problem.quantised)


def _waits(problem: GroupProblem) -> bool:
    """Whether everybody waits for weights though tiles are rows: of 65 to 128 tokens."""
    return _plain(problem) and FEW < problem.mean <= 2 * FEW


def _in_pairs(problem: GroupProblem) -> bool:
    """Whether CTAs work in pairs where they would in OF_THREE alone: groups have several tiles, and the producers copy all scales."""
    several = problem.n > PAIR["BN"] and problem.mean >= 2 * PAIR["BM"]
    return _plain(problem) and several and all(problem.scale_copies.values()) and not problem.options.order


def _columns_of_pairs(problem: GroupProblem) -> int:
    """That are worked on before the next ones."""
    lines = PAIR["BN"] * PAIR["CLUSTER_N"]
    most = min(problem.mean / PAIR_TOKENS, PAIR_PANEL / (lines * problem.k * problem.w.bits / 8))
    return next((columns for columns in PAIR_COLUMNS if columns <= most), PAIR_COLUMNS[-1])


def _ordered(tile: dict[str, Any], problem: GroupProblem) -> dict[str, Any]:
    """A tile with its groups in their own order where it does not pay to sort them; else from both ends where there are several."""
    mean, long = problem.mean, problem.mean > 2 * FEW
    many = problem.groups > (SORTED_FITTED if long and "STEP" in tile else SORTED)
    if many or not FEW < mean <= 2 * PREFILL or problem.options.layout not in COUNTED:
        return {**tile, "LONGEST_FIRST": False}
    if problem.groups <= SEVERAL or not long or (problem.promote and mean > PROMOTED_FROM_END) or not tile.get("LONGEST_FIRST"):
        return tile
    if problem.quantised and tile["BN"] == BLOCK:               # a few registers more than tiles of three warpgroups have
        return tile
    across = -(-problem.n // _features(tile, problem))
    much = problem.x.bits == 16 and problem.groups * across * problem.k // 64 >= MUCH
    about = FROM_END_OF_MUCH if much else FROM_END
    whole, part = max(1, round(about / across)), max(1, round(across / about))      # groups at a time, or a half, a third, ... of one
    return {**tile, "FROM_END": across * whole // part}


def _extents(tile: dict[str, Any]) -> tuple[int, int]:
    """Tokens and features of a tile, those of both projections."""
    return (tile["BN"], tile["BM"]) if tile.get("TRANSPOSED") else (tile["BM"], tile["BN"])


def _features(tile: dict[str, Any], problem: GroupProblem) -> int:
    """Those of a unit of work, in the result."""
    features = _extents(tile)[1] // (1 + problem.options.gated)
    return features * passes(features) if problem.quantised else features


def _few(problem: GroupProblem) -> bool:
    """Whether groups have so few tokens that a product takes as long as its weights."""
    return problem.mean <= (FEW_GATED if problem.options.gated else FEW)


def _single(problem: GroupProblem) -> bool:
    """Whether groups have few tokens, and most of them one tile."""
    return _few(problem) and (problem.mean * ROOM <= FEW or problem.groups <= MANY)


def _in_pieces(problem: GroupProblem) -> bool:
    """Whether each warpgroup's rows are loaded apart: of more rows few are missing, and further copies cost large products 1 %."""
    return problem.mean <= PREFILL


def _weights(problem: GroupProblem) -> dict[str, Any]:
    """How weights are read. Where groups have one tile nobody wants them again; and where everybody waits for them the L2 fetches what is
    asked for, one line, and no other."""
    lines = _few(problem) or (problem.mean <= 2 * FEW and not problem.promote)
    return {"STREAM_W": _single(problem), "L2_PROMOTION": LINE if lines else L2_PROMOTION,
            "AHEAD": AHEAD if problem.mean <= FEW else 0}


def _counted(kind: Kind, problem: GroupProblem) -> Tiles:
    """What the time of such tiles goes by."""
    tokens, features = _extents(kind.tile)[0], _features(kind.tile, problem)
    step = kind.tile.get("STEP", ROWS if kind.beside else tokens)
    stages = math.ceil(problem.k * problem.x.bits / 1024)
    time = (kind.share + kind.stores / stages) * features * (1 + problem.options.gated) * tokens
    return Tiles(tokens, features, step, int(time / (tokens // step + kind.beside)), kind.beside)


def _fast(problem: GroupProblem, sms: int) -> dict[str, Any]:
    """bf16, f16, and fp8 whose sums stay in the tensor cores."""
    mean, gated, span = problem.mean, problem.options.gated, 1024 // problem.x.bits
    deep = 2 * span if problem.k >= 8 * span else span
    if problem.out.bits != 16:
        if mean <= (FEW_GATED if gated else FEW / ROOM):
            BK = deep if problem.x.bits == 8 else span
            return {"TRANSPOSED": True, "BM": 128 if gated else 64, "BN": _tokens(mean), "BK": BK, "CONSUMERS": 1, "GROUP": 1}
        return {"BM": 64 if not gated and mean <= FEW else 128, "BN": 256}
    if gated:
        return _gated(problem)
    if mean > 2 * FEW:
        return _best(_tiles(problem), problem, sms)
    if not _single(problem):
        return _ordered(FITTED, problem)
    narrow, medium, wide = FITTED_SINGLE
    if mean > SINGLE:
        return {**wide, "BM": wide["BM"] // 2} if _finer(problem, sms) else wide
    return {**(narrow if _fewest(problem) else medium), "BK": deep}


def _fewest(problem: GroupProblem) -> bool:
    """Whether groups have so few tokens that the narrowest tiles are enough. Of few groups a long one is less likely."""
    return problem.mean <= (FEWEST_OF_EIGHT if problem.groups <= 8 else FEWEST)


def _finer(problem: GroupProblem, sms: int) -> bool:
    """Whether tiles of 64 features instead of 128 make the waves of groups that have one tile each so much fuller."""
    def full(features: int) -> float:
        waves = problem.groups * -(-problem.n // features) / sms
        return waves / math.ceil(waves)

    return full(ROWS) > FINER * full(2 * ROWS)


def _gated(problem: GroupProblem) -> dict[str, Any]:
    """The same with a gate: a warpgroup has slabs of both projections."""
    mean = problem.mean
    if mean > 2 * PREFILL:
        return {"BM": 128, "BN": 256}
    if mean > 2 * FEW or (mean > FEW and problem.groups > MANY):
        return _ordered({**FITTED, "BM": 256}, problem)
    width = next((size for most, size in ((SINGLE, 64), (FEW, 128)) if mean <= most), 192)
    return _ordered({**FITTED, "BN": width, "CONSUMERS": 1}, problem)


def _promoted(problem: GroupProblem, sms: int) -> dict[str, Any]:
    """Block scales, or sums that are taken out of the tensor cores every 128 of K."""
    mean, gated = problem.mean, problem.options.gated
    if _fewest(problem) or mean <= (COLUMNS if problem.scale_bulk else SINGLE):
        return {**PROMOTED_COLUMNS, "BN": 16 if mean <= FEWEST else 32}
    if not problem.scale_bulk and not gated and mean * ROOM <= FEW:
        return {"TRANSPOSED": True, "BM": 256, "BN": _tokens(mean), "GROUP": 1, "ORDER": "ticket"}
    ways = _scale_ring(problem)
    if gated and problem.block_scales and not ways:
        return _ordered({"BM": 128, "BN": 128, **(_TICKET if mean <= 2 * FEW else {})}, problem)
    if _single(problem):
        narrow, wide = PROMOTED_FEW
        deeper = mean <= SINGLE or (problem.scale_bulk and not gated and _finer(problem, sms))
        return {**(narrow if deeper else wide), **ways}
    return {**_best(_tiles(problem), problem, sms), **ways}


def _tokens(mean: float) -> int:
    """Of a tile whose tokens are columns."""
    return next((size for size in (16, 32, 48, 64) if mean * ROOM <= size), FEW_GATED)


def _quantised(problem: GroupProblem, sms: int) -> dict[str, Any]:
    """Results with scales of their own: tokens are rows, also few."""
    few, ways = problem.mean <= FEW, _scale_ring(problem)
    if ways and not few:
        return {**_best(_tiles(problem), problem, sms), **ways}
    if ways and problem.options.gated:
        ways |= {"OVERLAP": True, "ORDER": "ticket"}
    return {"BM": 64 if few else 128, "BN": 128 if problem.promote else 256, **ways}


def _of_rows(problem: GroupProblem, sms: int) -> dict[str, Any]:
    """Rows that say their group, in blocks of 128: tiles of as many, which warpgroups share."""
    ways = _scale_ring(problem)
    if not ways:
        return {"BM": ROWS_ALIGNED, "BN": 128 if problem.promote else 256}
    return {**_best(tuple(kind for kind in _tiles(problem) if kind.tile["BM"] == ROWS_ALIGNED), problem, sms), **ways}


def _scale_ring(problem: GroupProblem) -> dict[str, Any]:
    """Block scales through shared memory, where there are some and, with a gate, the producer can copy them."""
    copied = all(problem.scale_copies.values()) or not problem.options.gated
    return {"RING": True, **problem.scale_copies} if problem.block_scales and copied else {}


def _best(tiles: Kinds, problem: GroupProblem, sms: int) -> dict[str, Any]:
    """The tile for groups of the expected size."""
    alike = (math.ceil(problem.mean),) * problem.groups
    return min(tiles, key=lambda kind: _counted(_for_alike(kind, problem), problem).time_of(alike, problem.n, sms)).tile


def _alone(tile: dict[str, Any], problem: GroupProblem) -> GroupConfig | None:
    """The kernel of a tile, which works whatever the lengths; None where the problem cannot have it."""
    try:
        return GroupConfig.of(**{"PIECES": _in_pieces(problem), **_weights(problem), **tile, **fixed(problem)})
    except ConfigError:
        return None


def each_tile(problem: GroupProblem) -> dict[str, GroupConfig]:
    """The tiles that are chosen from where groups have more than a few tokens, each in a kernel that works whatever the lengths."""
    ways = _scale_ring(problem)
    found = {tile_name(kind.tile): _alone({**kind.tile, **ways}, problem) for kind in _tiles(problem)}
    return {name: config for name, config in found.items() if config is not None}


def tile_name(tile: dict[str, Any]) -> str:
    """`128x256`, and how it is worked on."""
    how = {" as wide as its tokens": tile.get("STEP"), " in turn": tile.get("PINGPONG"), " in pairs": tile.get("CLUSTER_N", 1) == 2}
    return f"{tile['BM']}x{tile['BN']}" + "".join(words for words, holds in how.items() if holds)


def candidates(problem: GroupProblem) -> Iterator[GroupConfig]:
    """Configurations worth trying for a problem, the heuristic's first."""
    first = heuristic(problem)
    found = dict.fromkeys((first, *(each.alone for each in first.kernels)))
    yield from found
    seen = set(found)
    for each in _shapes(problem):
        config = _alone(each, problem)
        if config is not None and config not in seen:
            seen.add(config)
            yield config


def _shapes(problem: GroupProblem) -> Iterator[dict[str, Any]]:
    span = 1024 // problem.x.bits                               # elements of 128 bytes
    if problem.mean <= 2 * FEW:
        sizes = (8, 16, 32, 48, 64, 96, 128, 192, 256)
        fit = next((i for i, size in enumerate(sizes) if problem.mean <= size), len(sizes) - 1)
        for BN in sizes[max(0, fit - 1):fit + 2]:
            for BM, CONSUMERS, BK in ((64, 1, span), (64, 1, 2 * span), (128, 1, span), (128, 2, span), (128, 2, 2 * span), (256, 2, span)):
                for order in ("linear", "ticket"):
                    yield {"TRANSPOSED": True, "BM": BM, "BN": BN, "BK": BK, "CONSUMERS": CONSUMERS, "GROUP": 1, "ORDER": order}
    if not problem.promote:
        yield from _fitted_shapes(problem)
    ways = _scale_ring(problem)
    if problem.mean <= FEW:
        for BN in (128, 192, 256):
            for more in ({}, {"OVERLAP": True}) if problem.promote else ({}, {"PINGPONG": True}):
                for order in ("linear", "ticket"):
                    for stream in (True, False):
                        yield {"BM": 64, "BN": BN, "ORDER": order, "STREAM_W": stream, **more, **ways}
    if problem.mean >= FEW // 2:
        for tile in (kind.tile for kind in _tiles(problem)):
            yield {**tile, **ways}
            yield {**tile, **ways, "ORDER": "linear" if "ORDER" in tile else "ticket"}
            yield {**tile, **ways, "ORDER": "ticket", "LONGEST_FIRST": True, "FROM_END": 0}
            yield {**tile, **ways, "STREAM_W": not _single(problem)}
        for order in ("linear", "ticket"):
            yield from ({**tile, **ways, "ORDER": order} for tile in (_promoted_shapes(problem) if problem.promote else _fast_shapes()))


def _fast_shapes() -> Iterator[dict[str, Any]]:
    for BM in (64, 128, 192, 256):
        for BN in (128, 192, 256):
            yield {"BM": BM, "BN": BN}
            if BM < 192:
                yield {"BM": BM, "BN": BN, "PINGPONG": True}
    yield {"BM": 128, "BN": 256, "GROUP": 16}
    yield {"BM": 128, "BN": 256, "GROUP": 4}
    yield {"BM": 192, "BN": 192, "STAGES": 4, "BUFFERS": 1}
    yield {"BM": 192, "BN": 128, "STAGES": 5, "BUFFERS": 1}


def _fitted_shapes(problem: GroupProblem) -> Iterator[dict[str, Any]]:
    span, few = 1024 // problem.x.bits, problem.mean <= FEW
    if few:
        shapes = [(64, 16), (64, 32), (64, 64), (128, 64)] if problem.mean <= SINGLE else [(64, 64), (64, 128), (128, 128), (128, 192)]
    else:
        shapes = [(256, 192), (192, 192), (128, 256), (128, 192), (256, 128), (128, 128)]
    for BM, BN in shapes:
        for which in (False, True):
            for BK in (span, 2 * span) if problem.mean <= SINGLE else (span,):
                yield {**_FITTED, "BM": BM, "BN": BN, "BK": BK, "LONGEST_FIRST": which and not few, "STREAM_W": which and few}


def _promoted_shapes(problem: GroupProblem) -> Iterator[dict[str, Any]]:
    for BN in (112, 128, 144, 160, 192):
        yield {"BM": 128, "BN": BN}
    yield {"BM": 256, "BN": 128}
    yield {**OF_THREE, "LONGEST_FIRST": False}
    yield {"BM": 128, "BN": 192, "STAGGER": True}
    yield {**WIDE, "STAGGER": False}
    yield {**WIDE, "STAGGER": True, "SERPENTINE": True}
    yield {"BM": 64, "BN": 192}
    for BM in (64, 128):
        yield {"BM": BM, "BN": 128}
        if problem.block_scales:
            yield {"BM": BM, "BN": 128, "OVERLAP": True}


__all__ = ["candidates", "each_tile", "fixed", "heuristic", "tile_name"]
