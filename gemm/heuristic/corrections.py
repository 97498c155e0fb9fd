"""What measurements say beyond the model of `costs`: a factor for each candidate of a product, learned from its neighbours.

The model adds up causes. Some 5 to 20 % of a short product's time is in none of them. A sum of small oblivious trees estimates that rest
from what the model knows of a product and a configuration. `python -m ptxkit.gemm fit` grows them from the same measurements as the model's
constants, and keeps them beside those, in `gemm/cards/fits/NAME.trees.json`.

Only the first `CORRECTED` candidates of the model are looked at: the best one is among them, and choosing stays short.
"""

from __future__ import annotations

import base64
import functools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card, known
from ptxkit.files import WRONG_DATA, read_kept, write_whole

from ..config.budget import STAGE_BYTES
from ..problem.dense import Problem
from .costs import LINE, Columns, CostsError, Parts, Sizes, fit_path, fitted_as, taken

SECTOR = 32                     # bytes, the least that is written to memory whole
PARTLY_WRITTEN, TALL = 1.0, 0.2
"""What sectors cost that two copies write half each, over the time of all stores: once for each row of a copy, and again for each time that
a tile is twice as high as 64 rows. Measured in 28 batches on an H100 (docs/experiments.md)."""

CORRECTED = 64
"""Candidates that are corrected, the model's fastest. Over 828 products with M over 64 on an H100, the best of them takes as long as the
best of all in the geometric mean, and that of 32 takes 1.002 times as long."""
STAGES = ((200, 1.16), (800, 1.12), (1600, 1.05))
"""After so many trees the later ones are asked only about candidates that are within so many times the least clocks so far. Asking every
tree about every candidate gives another choice for one of 4,836 random products on an H200, whose clocks are then 1.016 times the least,
and for none on an H100."""
ROWS_AT_ONCE = 4096             # of `matrix`
Values = Any                    # a number or an array of them


def features(asked: Sizes, seen: Columns, parts: Parts, a_k: Values, b_k: Values) -> dict[str, Values]:
    """What a tree can ask of candidates. `a_k` and `b_k`: whether A and B are contiguous along K."""
    swapped = seen.swapped > 0
    problem, pairs = asked.multiplied(seen.swapped), ((a_k, b_k), (b_k, a_k))
    a_is_k, b_is_k = (np.where(swapped, other, own) for own, other in pairs)
    rows, columns = np.ceil(problem.m / seen.BM), np.ceil(problem.n / seen.BN)
    waves = rows * columns * asked.batches * seen.splits / seen.resident
    high, wide = (np.ceil(count / size) * size for count, size in ((rows, seen.cluster_m), (columns, seen.cluster_n)))
    return {
        "m": log2(problem.m), "n": log2(problem.n), "k": log2(asked.k), "batches": log2(asked.batches), "size": asked.size,
        "a along k": a_is_k, "b along k": b_is_k, "a line": _line(problem.a_pitch), "b line": _line(problem.b_pitch),
        "d line": _line(asked.n * asked.out_size), "BM": seen.BM, "BN": seen.BN, "warpgroups": seen.warpgroups, "pingpong": seen.pingpong,
        "cluster m": seen.cluster_m, "cluster n": seen.cluster_n, "splits": seen.splits, "in cluster": seen.in_cluster,
        "stream": seen.stream, "stages": seen.stages, "staged": seen.staged, "ctas": seen.ctas, "swapped": seen.swapped,
        "a rows": seen.a_rows, "along n": seen.along_n, "panel": seen.panel, "waves": waves, "last wave": waves - np.floor(waves),
        "busy": np.minimum(waves, 1.0), "full m": problem.m / (rows * seen.BM), "full n": problem.n / (columns * seen.BN), "rows": rows,
        "columns": columns, "full clusters m": rows / high, "full clusters n": columns / wide, "steps": parts.steps,
        "total": log2(parts.total), "copy": log2(parts.copy / parts.multiply), "memory": log2(parts.memory / parts.total),
        "store": log2(parts.store / (parts.steps * parts.stage)), "reduction": parts.reduction / parts.total, "bytes": log2(parts.bytes),
        "tile": log2(seen.BM * seen.BN), "ring": log2(seen.stages * (seen.BM + seen.BN) * STAGE_BYTES), "factor": seen.factor}


def log2(values: Values) -> Values:
    """The logarithm to the base 2; of 0 that of 1e-9."""
    return np.log2(np.maximum(np.asarray(values, dtype=np.float64), 1e-9))


def _line(pitch: Values) -> Values:
    """The bytes of a line of the L2 that a pitch is a multiple of."""
    return np.gcd(np.asarray(pitch, dtype=np.int64), LINE)


def matrix(asked: Sizes, seen: Columns, parts: Parts, a_k: Values, b_k: Values) -> Any:
    """The same as an array, a row for each candidate."""
    return in_rows(features(asked, seen, parts, a_k, b_k).values(), len(seen.BM))


def in_rows(found: Collection[Values], count: int) -> Any:
    """Features as an array [count, features]. Each is a number for all rows, or one for each."""
    columns = np.empty((len(found), count))
    for column, values in zip(columns, found, strict=True):
        column[:] = values
    return columns.T


@dataclass(frozen=True)
class Trees:
    """Oblivious trees: at each level one question of all nodes. `places` and `cuts` [trees, levels] are the questions, whether a feature is
    above a cut; `leaves` [trees, 2 ** levels] are added up to the logarithm of the factor."""

    places: Any
    cuts: Any
    leaves: Any
    few: bool = False
    """Whether products of few rows were among the measurements."""

    def __len__(self) -> int:
        return len(self.leaves)

    @functools.cached_property
    def _questions(self) -> tuple[Any, Any, Any]:
        """Each question once, its feature and its cut, and [levels, trees] which one it is that a tree asks: trees share most."""
        every = np.stack([self.places.ravel(), self.cuts.ravel()])
        once, which = np.unique(every, axis=1, return_inverse=True)
        return once[0].astype(np.int64), once[1][:, None].astype(np.float32), np.ascontiguousarray(which.reshape(self.places.shape).T)

    def __getitem__(self, some: slice) -> Trees:
        """Some of the trees, in their order."""
        return replace(self, places=self.places[some], cuts=self.cuts[some], leaves=self.leaves[some])

    @functools.cached_property
    def staged(self) -> tuple[tuple[Trees, float], ...]:
        """The trees in the parts of `STAGES`, each with its limit."""
        ends = [(count, near) for count, near in STAGES if count < len(self)] + [(len(self), math.inf)]
        begins = [0, *(count for count, _ in ends)]
        return tuple((self[begin:end], near) for begin, (end, near) in zip(begins, ends, strict=False))

    def logarithm(self, asked: Any) -> Any:
        """Of the factor, for rows of `matrix`."""
        places, cuts, which = self._questions
        begins = self.leaves.shape[1] * np.arange(len(self))
        leaves, found = self.leaves.ravel(), []
        for first in range(0, len(asked), ROWS_AT_ONCE):
            told = np.ascontiguousarray(asked[first:first + ROWS_AT_ONCE].T, dtype=np.float32)
            answers = (told.take(places, axis=0) > cuts).view(np.uint8)
            leaf = np.zeros((len(self), answers.shape[1]), dtype=np.uint8)
            for level in which:
                leaf += leaf
                leaf += answers.take(level, axis=0)
            found.append(leaves.take(np.add(leaf.T, begins, order="C")).sum(axis=1, dtype=np.float64))
        return np.concatenate(found) if found else np.zeros(0)


NONE = Trees(np.zeros((0, 1), dtype=np.int64), np.zeros((0, 1)), np.zeros((0, 2)))


def trees_beside(path: Path) -> Path:
    """Where the trees are kept that correct the constants at this path."""
    return path.with_name(f"{path.stem}.trees.json")


def read(path: Path, known: Sequence[str] = ()) -> Trees:
    """The trees in a file, whose features are among those `known` (none: NAMES). Raises CostsError."""
    try:
        data = read_kept(path)
        known = list(known or NAMES)
        names = np.array([known.index(name) for name in data["features"]])
        asks = np.array([asks for asks, _, _ in data["trees"]], dtype=np.float64)
        leaves = [step * np.frombuffer(base64.b64decode(counts, validate=True), dtype=np.int8) for _, step, counts in data["trees"]]
        small = np.array(leaves, dtype=np.float32)              # half the bytes: the leaves of 1,300 trees fit an L2 cache
        return Trees(names[asks[:, 0::2].astype(np.int64)], asks[:, 1::2], small, bool(data["few"]))
    except WRONG_DATA as error:
        raise CostsError(f"{path} has no trees of the cost model: {error!r}") from None


def measured_whole(card: Card, path: Path, names: Sequence[str]) -> Trees:
    """The trees in a file of a card that was measured whole; none of others, whosever constants they have, and of parts of a card. Raises
    CostsError."""
    whole = known(card.name)
    return read(path, names) if whole is not None and whole.sms == card.sms and path.is_file() else NONE


def write(path: Path, trees: Trees, about: Mapping[str, Any], known: Sequence[str] = ()) -> None:
    """Keeps the trees, whose features are those `known` (none: NAMES), and what is to be said about them.

    A tree is its questions, each a feature's number and a cut, a step, and its leaves as multiples of the step, each a byte with a sign.
    """
    said = {**about, "few": trees.few, "features": list(known or NAMES)}
    lines = [f'"{name}": {json.dumps(value)}' for name, value in said.items()]
    rows = []
    for places, cuts, leaves in zip(trees.places, trees.cuts, trees.leaves, strict=True):
        step = float(f"{max(float(np.abs(leaves).max()), 1e-9) / 127:.3e}")
        counts = np.clip(np.rint(leaves / step), -127, 127).astype(np.int8)
        asks = [part for place, cut in zip(places, cuts, strict=True) for part in (int(place), float(f"{cut:.5g}"))]
        rows.append(json.dumps([asks, step, base64.b64encode(counts.tobytes()).decode()], separators=(",", ":")))
    write_whole(path, ("{\n " + ",\n ".join(lines) + ',\n "trees": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n").encode())


@functools.lru_cache(16)
def of_card(card: Card) -> Trees:
    """The trees of the card whose constants a card has; none where that has none."""
    path = trees_beside(fit_path(fitted_as(card).name))
    return read(path) if path.is_file() else NONE


def asked_of(clocks: Any) -> Any:
    """The places of the model's first candidates, of which the trees are asked."""
    return np.argpartition(clocks, CORRECTED)[:CORRECTED] if len(clocks) > CORRECTED else np.arange(len(clocks))


def partly_written(memory: float, asked: Sizes, seen: Columns, parts: Parts) -> Any:
    """How many times as long products of a batch take whose rows of D do not begin at sectors, by the share of their stores at this rate:
    copies of narrow boxes have more edges within sectors, and the other half of one comes later where tiles are tall. Swapped tiles are
    always stored in whole lines."""
    pitch, width = (np.asarray(count * asked.out_size, dtype=np.int64) for count in (asked.n, seen.BN))
    partly = np.where(np.asarray(asked.batches) > 1, 1 - np.gcd(pitch, SECTOR) / SECTOR, 0.0)
    row = np.where(seen.swapped > 0, LINE, np.gcd(width, LINE))
    share = asked.m * asked.n * asked.batches * asked.out_size / memory / parts.total
    return np.exp(share * partly * (PARTLY_WRITTEN * SECTOR / row + TALL * np.log2(seen.BM / 64)))


@dataclass(frozen=True, slots=True)
class Corrected:
    """Candidates as the trees see them."""

    clocks: Any                                 # of all candidates
    places: Any                                 # of those that the trees were asked about
    told: Any                                   # what they were told about these: rows of `matrix`


def corrected(trees: Trees, problem: Problem, asked: Sizes, seen: Columns, parts: Parts, memory: float) -> Corrected:
    """The clocks of all candidates. Trees correct those that the model puts first. Later trees are asked only about those that are near the
    fastest by the early ones (`STAGES`). All others count at least as many clocks. `memory`: bytes in a clock."""
    clocks = parts.total
    if not len(trees):
        return Corrected(clocks, np.zeros(0, dtype=np.int64), np.zeros((0, len(NAMES))))
    first = asked_of(clocks)
    some = taken(seen, first), taken(parts, first)
    majors = problem.operands.a_major == "k", problem.operands.b_major == "k"
    told = matrix(asked, *some, *majors)
    changed = clocks[first] * partly_written(memory, asked, *some)
    near = np.arange(len(first))
    for part, limit in trees.staged:
        own = changed[near] * np.exp(part.logarithm(told[near]))
        changed[near] = own
        near = near[own <= limit * own.min()]
    left = np.full(len(first), changed[near].max())
    left[near] = 0.0
    changed = np.maximum(changed, left)
    result = np.maximum(clocks, changed.max())
    result[first] = changed
    return Corrected(result, first, told)


_ONE = np.ones(1)
NAMES = tuple(features(Sizes(*(1,) * 6, 128, 128), Columns(*(_ONE,) * len(fields(Columns))), Parts(*(_ONE,) * len(fields(Parts))),
                       True, True))
"""The features in the order of `matrix`."""


__all__ = ["CORRECTED", "NAMES", "NONE", "STAGES", "Corrected", "Trees", "corrected", "features", "in_rows", "log2", "matrix", "of_card",
           "partly_written", "read", "trees_beside", "write"]
