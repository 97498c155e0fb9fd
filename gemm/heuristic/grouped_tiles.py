"""The tiles that groups of more than a few tokens choose from, and what their time goes by.

Measured on H200s in bursts, weights cold, alike and skewed lengths; how near the choice comes to the fastest tile is in
docs/grouped-performance.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..collective.atoms import ROWS
from ..collective.epilogue_quantize import passes
from ..collective.thread_scales import BLOCK
from ..config.grouped import ROWS_ALIGNED
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import COUNTED
from ..scheduler.tile_cost import Tiles
from ..tools.bench.grouped_cases import PREFILL

FEW, FEW_GATED = 64, 96
"""Tokens of a group up to which it counts as one of few, and with a gate."""


class Kind(NamedTuple):
    """A tile, and the time of a full one beside its share of the area of the first. It takes as long whatever it has; or, with `beside`, as
    long as it has slabs of 64 rows, or steps, and so many of them more. While it is stored nobody multiplies, for as long as the first
    takes for so many stages of 128 bytes of depth (`stores`)."""

    share: float
    tile: dict[str, Any]
    beside: int = 0
    stores: float = 0.0


Kinds = tuple[Kind, ...]
TICKET: dict[str, Any] = {"ORDER": "ticket", "LONGEST_FIRST": True}
FITTED_BY_TICKET: dict[str, Any] = {"TRANSPOSED": True, "STEP": 16, "GROUP": 1, **TICKET}
FITTED: dict[str, Any] = {"BM": 128, "BN": 192, **FITTED_BY_TICKET}
"""The tile of groups of up to 2 FEW tokens, which wait for their weights."""
COOPERATIVE = Kind(1.0, {"BM": 128, "BN": 256}, stores=0.75)
PINGPONG: Kinds = (Kind(0.993, {"BM": 128, "BN": 192, "PINGPONG": True}), Kind(1.04, {"BM": 128, "BN": 128, "PINGPONG": True}))
"""Of two warpgroups that take turns one multiplies while the other stores."""
TALL = Kind(1.017, {"BM": 256, "BN": 192, **FITTED_BY_TICKET}, beside=1, stores=1.85)
PLAIN: Kinds = (COOPERATIVE, *PINGPONG, TALL,
                Kind(1.027, {"BM": 192, "BN": 192, **FITTED_BY_TICKET}, beside=1, stores=1.85),
                Kind(1.05, FITTED, beside=2, stores=1.75))
"""Tiles whose sums stay in the tensor cores. Where groups differ, or are few tiles of rows, tiles of 16, 32, ... 192 tokens waste none, and
by ticket, the longest group first, CTAs end together."""
PLAIN_GATED: Kinds = (COOPERATIVE._replace(share=1.01), *PINGPONG, TALL,
                      Kind(1.024, {"BM": 256, "BN": 128, **FITTED_BY_TICKET}, beside=4, stores=1.25))
"""Those of the gate and of the up projection: warpgroups have slabs of both."""
ALL_BOXES: dict[str, Any] = {"STAGES": 3, "BUFFERS": 4}
"""Where results of 16 bits are a projection's own, a warpgroup that stores all its boxes at once is worth a stage of the ring; but of full
blocks of rows only where there are many."""
QUANTISED: Kinds = (Kind(1.0, {"BM": 128, "BN": 256, **TICKET}, stores=0.75), Kind(0.98, {"BM": 192, "BN": 128, **TICKET}, stores=0.75))
"""Of quantised results whose sums stay in the tensor cores."""
QUANTISED_IN_TURN = Kind(1.056, {"BM": 128, "BN": 128, "PINGPONG": True}, stores=0.25)
"""Besides, where a unit of work is one tile: without a gate."""
OF_THREE: dict[str, Any] = {"BM": 192, "BN": 128, "RASTER": "along_n", "GROUP": 16, **TICKET}
"""A slab for each of three warpgroups."""
OF_THREE_FEW = 0.94
"""Its time as of the others where everybody waits for weights (`_waits`)."""
NARROW: dict[str, Any] = {"BM": 128, "BN": 192, "GROUP": 16, **TICKET}
PROMOTED: Kinds = (
    Kind(1.0, {"BM": 256, "BN": 128, "STAGGER": True, **TICKET}, beside=4),
    Kind(1.06, {"BM": 128, "BN": 128, "OVERLAP": True, **TICKET}, beside=1),
    Kind(1.0, OF_THREE, beside=1),
    Kind(0.996, NARROW, beside=1))
"""Tiles whose sums are promoted: handed out as CTAs get to them they are 1 to 3 % faster than dealt out in advance where lengths differ."""
WIDE: dict[str, Any] = {"BM": 128, "BN": 256, "GROUP": 16, **TICKET}
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
ALIKE = {WIDE["BN"]: 0.008, NARROW["BN"]: 0.0}
"""What groups that are alike gain for certain if tiles so wide are dealt out in advance, for which those that differ need another kernel:
the narrower ones 1 % on one card and nothing on the next."""
NARROW_DEPTH = 2048
"""K from which on the narrower ones are."""
OVER = 3.0
"""What a CTA's way from one kernel to the other takes, in stages of 128 bytes of the first."""
DEALT = 4
"""Slabs beside its own that such a tile takes then: whoever has one that is not full waits for the next wave's weights."""
QUANTISED_OF_THREE = 1.03
"""How much longer tiles of three warpgroups, which store at the same time, take where results are quantised."""
SORTED, SORTED_FITTED = 32, 64
"""Groups up to which the longest come first, and those of tiles as wide as their tokens if they have more than 2 FEW: to sort more
takes longer than it saves, as does sorting groups of few tokens or of many."""
SEVERAL, FROM_END, PROMOTED_FROM_END = 16, 16, 192
"""Of more groups than that about so many CTAs begin with the shortest: they wait for weights while the others multiply. Where sums are
promoted that pays up to so many tokens a group."""
MUCH, FROM_END_OF_MUCH, FROM_END_OF_SECOND = 40_000, 48, 32
"""Where tiles of weights have so many stages in all, a few hundred microseconds' work: more of them with operands of 16 bits, and in the
second of two kernels that share the groups. Those of the first are about alike, and nobody begins with the shortest."""


def tiles_of(problem: GroupProblem) -> Kinds:
    """What groups of more than a few tokens choose from; where results are quantised those with whole blocks of 128 columns, or halves."""
    kinds = _promoted(problem) if problem.promote else _plain(problem)
    return tuple(kind._replace(tile=ordered(kind.tile, problem)) for kind in kinds)


def _plain(problem: GroupProblem) -> Kinds:
    gated = problem.options.gated
    if problem.quantised:
        return QUANTISED if gated else (*QUANTISED, QUANTISED_IN_TURN)
    if gated:
        return PLAIN_GATED
    if problem.out.bits != 16 or (problem.options.layout == "rows" and problem.mean <= 2 * PREFILL):
        return PLAIN
    return tuple(kind._replace(tile={**kind.tile, **ALL_BOXES}) if kind == COOPERATIVE else kind for kind in PLAIN)


def _promoted(problem: GroupProblem) -> Kinds:
    kinds = tuple(_of_three(kind, problem) if kind.tile == OF_THREE else kind for kind in PROMOTED)
    if problem.quantised:
        kinds = tuple(kind for kind in kinds if kind.tile["BN"] == BLOCK)
    if problem.mean > FEW_GATED and not _waits(problem) and scale_ring(problem):
        gated = problem.options.gated
        share = WIDE_SHARE_GATED if gated or problem.quantised else WIDE_SHARE
        kinds = (*kinds, Kind(share, {**WIDE, "STAGGER": problem.quantised or not gated}, beside=1, stores=WIDE_STORES))
    return kinds


def _of_three(kind: Kind, problem: GroupProblem) -> Kind:
    """The tile of three warpgroups as this problem has it: for a CTA alone, or for pairs."""
    if _in_pairs(problem):
        return kind._replace(share=PAIR_SHARE, tile={**PAIR, "GROUP": _columns_of_pairs(problem)})
    return kind._replace(share=kind.share * (QUANTISED_OF_THREE if problem.quantised else OF_THREE_FEW if _waits(problem) else 1.0))


def _bare(problem: GroupProblem) -> bool:
    """Whether block scales come through shared memory, the kernel reads the lengths, and there is no gate and nothing quantised."""
    return bool(scale_ring(problem)) and problem.options.layout in COUNTED and not (problem.options.gated or problem.quantised)


def _waits(problem: GroupProblem) -> bool:
    """Whether everybody waits for weights though tiles are rows: of 65 to 128 tokens."""
    return _bare(problem) and FEW < problem.mean <= 2 * FEW


def _in_pairs(problem: GroupProblem) -> bool:
    """Whether CTAs work in pairs where they would in OF_THREE alone: groups have several tiles, and the producers copy all scales."""
    several = problem.n > PAIR["BN"] and problem.mean >= 2 * PAIR["BM"]
    return _bare(problem) and several and all(problem.scale_copies.values()) and not problem.options.order


def _columns_of_pairs(problem: GroupProblem) -> int:
    """That are worked on before the next ones."""
    lines = PAIR["BN"] * PAIR["CLUSTER_N"]
    most = min(problem.mean / PAIR_TOKENS, PAIR_PANEL / (lines * problem.k * problem.w.bits / 8))
    return next((columns for columns in PAIR_COLUMNS if columns <= most), PAIR_COLUMNS[-1])


def ordered(tile: dict[str, Any], problem: GroupProblem) -> dict[str, Any]:
    """A tile with its groups in their own order where it does not pay to sort them; else from both ends where there are several."""
    mean, long = problem.mean, problem.mean > 2 * FEW
    many = problem.groups > (SORTED_FITTED if long and "STEP" in tile else SORTED)
    if many or not FEW < mean <= 2 * PREFILL or problem.options.layout not in COUNTED:
        return {**tile, "LONGEST_FIRST": False}
    if problem.groups <= SEVERAL or not long or (problem.promote and mean > PROMOTED_FROM_END) or not tile.get("LONGEST_FIRST"):
        return tile
    if problem.quantised and tile["BN"] == BLOCK:               # a few registers more than tiles of three warpgroups have
        return tile
    about = FROM_END_OF_MUCH if problem.x.bits == 16 and _much(tile, problem) else FROM_END
    return {**tile, "FROM_END": _whole_groups(about, tile, problem)}


def as_second(tile: dict[str, Any], problem: GroupProblem) -> dict[str, Any]:
    """A tile in the second one of two kernels that share the groups, which has the longest and the shortest."""
    more = tile.get("FROM_END") and _much(tile, problem)
    return {**tile, "FROM_END": _whole_groups(FROM_END_OF_SECOND, tile, problem)} if more else tile


def _much(tile: dict[str, Any], problem: GroupProblem) -> bool:
    return problem.groups * _across(tile, problem) * problem.k // 64 >= MUCH


def _across(tile: dict[str, Any], problem: GroupProblem) -> int:
    """Tiles of a row of them."""
    return -(-problem.n // features_of(tile, problem))


def _whole_groups(ctas: int, tile: dict[str, Any], problem: GroupProblem) -> int:
    """About so many: those of one row of tiles or of several, or of a half, a third, ... of one."""
    across = _across(tile, problem)
    return across * max(1, round(ctas / across)) // max(1, round(across / ctas))


def extents(tile: dict[str, Any]) -> tuple[int, int]:
    """Tokens and features of a tile, those of both projections."""
    return (tile["BN"], tile["BM"]) if tile.get("TRANSPOSED") else (tile["BM"], tile["BN"])


def features_of(tile: dict[str, Any], problem: GroupProblem) -> int:
    """Those of a unit of work, in the result."""
    features = extents(tile)[1] // (1 + problem.options.gated)
    return features * passes(features) if problem.quantised else features


def scale_ring(problem: GroupProblem) -> dict[str, Any]:
    """Block scales through shared memory, where there are some and, with a gate, the producer can copy them."""
    copied = all(problem.scale_copies.values()) or not problem.options.gated
    return {"RING": True, **problem.scale_copies} if problem.block_scales and copied else {}


def counted(kind: Kind, problem: GroupProblem) -> Tiles:
    """What the time of such tiles goes by."""
    tokens, features = extents(kind.tile)[0], features_of(kind.tile, problem)
    step = kind.tile.get("STEP", ROWS if kind.beside else tokens)
    time = (kind.share + kind.stores / _stages(problem)) * features * (1 + problem.options.gated) * tokens
    return Tiles(tokens, features, step, int(time / (tokens // step + kind.beside)), kind.beside)


def between(first: Kind, problem: GroupProblem) -> int | None:
    """What a CTA takes that goes over from the first kernel to another one with which it shares the groups, in the unit of `counted`; None
    where sharing was measured not to be worth it: of quantised results, from pairs of CTAs, and where sums stay in the tensor cores of 8
    bits, of 16 with a gate and of long groups."""
    few = problem.x.bits == 16 and not problem.options.gated and problem.mean <= PREFILL
    if problem.quantised or "CLUSTER_N" in first.tile or not (problem.promote or few):
        return None
    return int(OVER / _stages(problem) * COOPERATIVE.tile["BM"] * COOPERATIVE.tile["BN"])


def expects_sharing(problem: GroupProblem) -> bool:
    """Whether a second kernel may be there for the sake of sharing, and tiles may be ordered for that."""
    return _bare(problem) and not _waits(problem)


def _stages(problem: GroupProblem) -> int:
    """Of 128 bytes, in the depth."""
    return math.ceil(problem.k * problem.x.bits / 1024)


def for_alike(kind: Kind, problem: GroupProblem) -> Kind:
    """What such tiles take of groups that are alike: dealt out in advance where that pays."""
    return kind._replace(share=kind.share * (1 - ALIKE[kind.tile["BN"]]), beside=DEALT) if dealt_out(kind.tile, problem) else kind


def dealt_out(tile: dict[str, Any], problem: GroupProblem) -> bool:
    """Whether it pays to deal out the tiles of groups that are alike in advance, given another kernel for those that differ: promoted ones
    of 128 rows that are about full, and so few that CTAs stay at the same stage."""
    full = -math.ceil(problem.mean) % WIDE["BM"] < ROWS and problem.mean <= 2 * PREFILL
    if not (full and problem.promote and problem.options.layout in COUNTED) or problem.options.order or tile["BM"] != WIDE["BM"]:
        return False
    narrow = _bare(problem) and problem.mean > 2 * FEW and problem.k >= NARROW_DEPTH
    return tile["BN"] == WIDE["BN"] or (tile["BN"] == NARROW["BN"] and narrow)


def best(tiles: Kinds, problem: GroupProblem, sms: int) -> dict[str, Any]:
    """The tile for groups of the expected size, or for all blocks where rows say their group."""
    alike = (math.ceil(problem.mean),) * problem.groups if problem.options.layout != "rows" else \
        (ROWS_ALIGNED,) * math.ceil(problem.rows / ROWS_ALIGNED)
    return min(tiles, key=lambda kind: counted(for_alike(kind, problem), problem).time_of(alike, problem.n, sms)).tile


def tile_name(tile: dict[str, Any]) -> str:
    """`128x256`, and how it is worked on."""
    how = {" as wide as its tokens": tile.get("STEP"), " in turn": tile.get("PINGPONG"), " in pairs": tile.get("CLUSTER_N", 1) == 2}
    return f"{tile['BM']}x{tile['BN']}" + "".join(words for words, holds in how.items() if holds)


__all__ = ["ALIKE", "FEW", "FEW_GATED", "FITTED", "FITTED_BY_TICKET", "OF_THREE", "PAIR", "PLAIN", "PLAIN_GATED", "PROMOTED", "QUANTISED",
           "TICKET", "WIDE", "Kind", "Kinds", "as_second", "best", "between", "counted", "dealt_out", "expects_sharing", "extents",
           "features_of", "for_alike", "ordered", "scale_ring", "tile_name", "tiles_of"]
