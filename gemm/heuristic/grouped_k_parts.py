"""Products with groups along K whose CTAs share the tiles of long groups: how long parts may be, what that costs by the model, and what
measurements say beyond it.

A tile of a long group is one CTA's work unless it has parts. The lengths are on the device, so the host asks what parts would bring for
groups that are alike, for groups that differ as experts do, and where one has half of all rows.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card

from ..collective.part_sums import COUNTER_WORDS
from ..config.budget import STAGE_BYTES
from ..config.grouped_k import MOST_ROWS
from ..problem.grouped_k import ProblemAlongK
from . import corrections
from .corrections import Trees, log2
from .costs import of_card
from .grouped_k_causes import Judged, shares_that_differ, shares_with_one, tiles_of
from .grouped_k_trees import NAMES, path_of

FACTORS = (0.5, 1.0, 2.0, 4.0)
"""How long a part may be, over the rows of all tiles for each CTA: with 1 a CTA has one part in the mean."""
LEAST_PART, ROUNDED = 256, 64   # rows, and what a part's rows are a multiple of
MOST_SUMS = 64 << 20            # bytes of a workspace that is chosen
MOST_PLACES = 32                # configurations that are asked about; of 235 products that gain by parts the best is among them for 97 %
HEAD, BINS = 8, 12              # of many groups that differ so many, the longest, are counted one by one, the others in so many bins
RATE, LATENCY = 48.0, 2500.0    # bytes a clock at which a warpgroup's CTA reads and writes sums of parts, and clocks until it does
NAMES_OF_PARTS = (*NAMES, "over fair", "mean over part", "rows over part", "alike shared", "differing shared", "one shared",
                  "differing parts", "one parts", "tiles")
"""What the trees of parts can ask about: all that those of configurations can; how long a part is over the fair share of a CTA; the mean
length and all rows over it; how many times as long groups that are alike, that differ, and of which one has half of all rows take with
parts as without; the latter two over the first, with parts; and the tiles of a group."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Candidates whose CTAs share tiles, an entry for each: the place of the configuration among those of the problem, the rows of a part,
    and the clocks by the model [lengths, entries], with parts and without."""

    places: Any
    part: Any
    clocks: Any
    whole: Any
    fair: Any                                   # rows of a CTA's fair share
    tiles: Any                                  # of a group

    @property
    def change(self) -> Any:
        """The logarithms of how many times as long configurations take with parts, in the mean of the lengths."""
        return (np.log(self.clocks) - np.log(self.whole)).mean(axis=0)

    def some(self, which: Any) -> Shared:
        """Some of the entries."""
        return Shared(self.places[which], self.part[which], self.clocks[:, which], self.whole[:, which], self.fair[which],
                      self.tiles[which])


def shared(problem: ProblemAlongK, found: Judged, card: Card, promise: Any) -> Shared | None:
    """The candidates; none if no group can be long. A group with half of all rows is if its tiles are no more than half of a wave: it has
    more than a CTA's fair share. `promise` orders the configurations: the least ones are asked about, if they are finite."""
    seen = found.said.seen
    tiles = tiles_of(problem, seen)
    fair = problem.rows * tiles / seen.resident
    places = np.flatnonzero((problem.rows > 2 * fair) & np.isfinite(promise))
    places = np.sort(places[np.argsort(promise[places], kind="stable")[:MOST_PLACES]])
    if not len(places):
        return None
    sizes = np.maximum(LEAST_PART, np.ceil(np.array(FACTORS)[:, None] * fair[places] / ROUNDED) * ROUNDED)
    part, every = sizes.ravel(), np.tile(places, len(FACTORS))
    whole_parts = problem.rows // part
    sums = 2 * whole_parts * tiles[every] * seen.BM[every] * seen.BN[every] * 4
    counters = whole_parts * tiles[every] * seen.warpgroups[every]
    fits = (part < problem.rows) & (part <= MOST_ROWS) & (sums <= MOST_SUMS) & (counters <= COUNTER_WORDS)
    if not fits.any():
        return None
    part, every = part[fits], every[fits]
    whole = clocks(problem, found, card, places, np.full(len(places), np.inf))
    at = np.searchsorted(places, every)
    return Shared(every, part, clocks(problem, found, card, every, part), whole[:, at], fair[every], tiles[every])


def clocks(problem: ProblemAlongK, found: Judged, card: Card, places: Any, part: Any) -> Any:
    """The model [lengths, entries]: SM clocks of the configurations at these places, with parts of so many rows."""
    c, seen, size = of_card(card), found.said.seen, problem.source.bits / 8
    parts = {name: np.broadcast_to(getattr(found.said.parts, name), len(found.configs))[places]
             for name in ("stage", "store", "cluster", "memory", "factor")}
    resident, tiles = seen.resident[places], tiles_of(problem, seen)[places]
    tile_bytes = 4 * seen.BM[places] * seen.BN[places]
    times = []
    for shares, counts in lengths(problem.groups):
        rows = problem.mean * shares[:, None]
        stages = np.maximum(1.0, np.ceil(rows * size / STAGE_BYTES))
        pieces = np.where(rows > part, np.ceil(rows / part), 1.0)
        each = np.ceil(stages / pieces) * parts["stage"] + parts["store"]
        units = counts[:, None] * pieces * tiles
        waves = np.ceil(np.cumsum(units, axis=0) / resident)
        work = parts["cluster"] + np.maximum((each * units).sum(axis=0) / resident, (waves * each).max(axis=0))
        most = pieces.max(axis=0)
        work = work + np.where(most > 1, (most + 1) * tile_bytes / RATE + LATENCY, 0.0)
        times.append((c.launch + (work ** c.overlap + parts["memory"] ** c.overlap) ** (1 / c.overlap)) * parts["factor"])
    return np.stack(times)


@functools.lru_cache(256)
def lengths(groups: int) -> tuple[tuple[Any, Any], ...]:
    """Lengths over their mean, in falling order, and how many groups have each: of groups that are alike, that differ, and of which one has
    half of all rows."""
    alike = np.ones(1), np.full(1, float(groups))
    if groups == 1:
        return (alike,) * 3
    shares = shares_that_differ(groups)
    rest = np.array_split(shares[HEAD:], BINS) if len(shares) > HEAD + BINS else [shares[place:place + 1] for place in range(HEAD, groups)]
    binned = (np.array([*shares[:HEAD], *(each.mean() for each in rest)]), np.array([*[1.0] * len(shares[:HEAD]), *map(len, rest)]))
    return alike, binned, (shares_with_one(groups)[:2], np.array([1.0, groups - 1.0]))


def matrix(problem: ProblemAlongK, told: Any, some: Shared) -> Any:
    """What trees are told of candidates [entries, NAMES_OF_PARTS]. `told` is that of the configurations."""
    with_parts, without = log2(some.clocks), log2(some.whole)
    found = (log2(some.part / some.fair), log2(problem.mean / some.part), log2(problem.rows / some.part), *(with_parts - without),
             *(with_parts[1:] - with_parts[0]), log2(some.tiles))
    return np.concatenate([told[some.places], corrections.in_rows(found, len(some.part))], axis=1)


def parts_beside(path: Path) -> Path:
    """Where the trees of parts are kept, beside those of configurations at this path."""
    return path.with_name(f"{path.stem}-parts{path.suffix}")


@functools.lru_cache(16)
def parts_of_card(card: Card) -> Trees:
    """The trees of parts of a card; none where it was not measured whole."""
    return corrections.measured_whole(card, parts_beside(path_of(card)), NAMES_OF_PARTS)


__all__ = ["FACTORS", "MOST_SUMS", "NAMES_OF_PARTS", "Shared", "clocks", "lengths", "matrix", "parts_beside", "parts_of_card", "shared"]
