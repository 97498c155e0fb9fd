"""Which structures a problem has, against the rules one by one: the choice judges all at once, and decides some rules ahead."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from ptxkit.cards import H100, H200
from ptxkit.gemm.config.parts import Pingpong, SplitK, StreamK, Tile
from ptxkit.gemm.heuristic import costs, rings, space
from ptxkit.gemm.heuristic.costs import Columns
from ptxkit.gemm.heuristic.dense import (
    MOST_HELD,
    MOST_SPLIT_WORK,
    SHALLOW,
    TOO_FEW_SWAPPED,
    TOO_WIDE,
    by_causes,
    few_rows,
    heuristic,
    judged,
)
from ptxkit.gemm.heuristic.overlaps import at_the_start, other_begins
from ptxkit.gemm.heuristic.space import Structure
from ptxkit.gemm.launch import tuning
from ptxkit.gemm.problem.dense import Problem
from ptxkit.gemm.tools.explain import explained, lines
from ptxkit.gemm.tools.problems import asked

PROBLEMS = {"large": asked(4096, 4096, 512), "one wave": asked(1160, 1600, 4096, layout="tn"), "shallow": asked(3000, 3000, 256),
            "long": asked(256, 512, 32768, layout="tt"), "few rows": asked(40, 4096, 8192), "up to 128 rows": asked(104, 4096, 7168),
            "batches of few rows": asked(24, 368, 3424, batches=96), "batches": asked(504, 360, 1024, batches=24, layout="nn"),
            "invariant": asked(700, 1040, 4096, batch_invariant=True), "few columns": asked(4096, 40, 1024),
            "fewer columns": asked(4096, 8, 1024), "few columns along N": asked(4096, 40, 1024, layout="nn")}


def sensible(problem: Problem, one: Structure, seen: dict[str, float]) -> bool:
    """The rules, for one structure with its ring."""
    m, n = (problem.n, problem.m) if one.swap_ab else (problem.m, problem.n)
    cluster, scheduler, tile = space.shared_by(one.scheduler), one.scheduler, one.tile
    clusters = math.ceil(math.ceil(m / tile.BM) / cluster.m) * math.ceil(math.ceil(n / tile.BN) / cluster.n)
    tiles = clusters * cluster.size * (problem.batches or 1)
    depth = math.ceil(problem.k * problem.a.bits / 8 / 128)
    odd = tile.BN % 16 > 0 or tile.BN > 256
    rules = [seen["resident"] >= one.cluster, seen["held"] <= (1 if odd else MOST_HELD) * tile.BN,
             one.swap_ab or space.Rows.of(problem).most >= tile.BM,
             not (tile == Tile(128, 256) and seen["stages"] < 4 and seen["staged"] and tiles <= seen["resident"])]
    if isinstance(scheduler, SplitK):
        waits = scheduler.reduce == "workspace" and tiles * scheduler.splits > MOST_SPLIT_WORK * seen["resident"]
        rules.append(depth >= space.LEAST_OF_A_SPLIT * scheduler.splits and not waits)
    if isinstance(scheduler, StreamK):
        rules.append(depth > SHALLOW)
    if isinstance(scheduler, SplitK | StreamK):
        rules.append(not problem.invariant)
    if space.few_columns(problem):
        rules.append(problem.n > TOO_FEW_SWAPPED if one.swap_ab else problem.n + TOO_WIDE >= tile.BN)
    else:
        rules.append(not one.for_few_columns)
    if problem.batches is None and not (few_rows(problem) or space.few_columns(problem)):
        rules.append(not ((64 if isinstance(one.schedule, Pingpong) else 32) > tile.BN or seen["ctas"] > 1))
    return all(rules)


@pytest.mark.parametrize("card", [H100, H200], ids=lambda card: card.name)
@pytest.mark.parametrize("what", PROBLEMS)
def test_the_candidates_are_those_of_the_rules(what, card):
    problem = PROBLEMS[what]
    every = space.structures(64 if few_rows(problem) else 256)
    own = costs.of_card(card)
    there, fitting = rings.fitting(every, Columns.of_structures(every, card, own), space.alike(problem.operands))
    structures = [every[place] for place in np.flatnonzero(there)]
    columns = {name: getattr(fitting, name) for name in ("resident", "held", "stages", "staged", "ctas")}
    wanted = {one for at, one in enumerate(structures)
              if sensible(problem, one, {name: float(values[at]) for name, values in columns.items()})
              and (not one.swap_ab or space.swappable(problem))}
    assert {*judged(problem, card, untried=True).structures} == wanted
    assert len(wanted) < len(structures)


def test_tuning_on_first_use_tries_each_begin_of_the_usual_configuration():
    problem, seen = asked(1000, 3000, 2048), []

    class Timer:
        def admit(self, found, until):
            seen.extend(found)
            return []

        def close(self):
            pass

    with pytest.raises(Exception, match="none of its configurations"):
        tuning.search(problem, H200, tuning.Wish(1.0), Timer)
    usual = heuristic(problem, H200)
    assert len(other_begins(usual)) == 2
    assert {usual, *other_begins(usual)} <= set(seen)


def test_explain_finds_a_table_s_configuration_whose_next_kernel_begins_at_another_time(monkeypatch):
    problem = asked(1000, 3000, 2048)
    usual = heuristic(problem, H200)
    assert usual.scheduler.overlap != "start"
    monkeypatch.setattr("ptxkit.gemm.tools.explain.tuned", lambda *given: at_the_start(usual))
    told = "\n".join(lines(explained(problem, H200, 4)))
    assert "the model puts it first of" in told
    assert "where the next kernel begins at another time" in told
    without = dataclasses.replace(usual, tile=Tile(64, 16))
    monkeypatch.setattr("ptxkit.gemm.tools.explain.tuned", lambda *given: without)
    assert "it is none of the model's candidates" in "\n".join(lines(explained(problem, H200, 4)))
    assert by_causes(problem, usual, H200)[1] < by_causes(problem, at_the_start(usual), H200)[1]
