"""Post-dominators and live registers of random graphs against their definitions."""

from __future__ import annotations

import random

import pytest

from ptxkit.check.graph import liveness, loops, post_dominators

pytestmark = pytest.mark.pure
SEEDS = 2000


def graph(seed: int) -> dict[int, list[int]]:
    """Up to nine nodes, some without successors, with edges to themselves and double edges."""
    draw = random.Random(seed)
    count = draw.randint(1, 9)
    return {node: [draw.randrange(count) for _ in range(draw.choice((0, 1, 1, 2, 2, 3)))] for node in range(count)}


def ends(given: dict[int, list[int]], node: int, without: int | None = None) -> bool:
    """Whether a path leads from the node to one without successors."""
    seen, todo = {without, node}, [node] if node != without else []
    while todo:
        here = todo.pop()
        if not given[here]:
            return True
        todo += [after for after in given[here] if after not in seen]
        seen.update(given[here])
    return False


def test_a_post_dominator_is_on_every_path_to_the_end() -> None:
    for seed in range(SEEDS):
        given = graph(seed)
        on_all = {node: {other for other in given if other != node and not ends(given, node, other)} if ends(given, node) else set()
                  for node in given}
        for node, nearest in post_dominators(given).items():
            assert (nearest is None) == (on_all[node] == set()), (seed, given)
            assert nearest is None or on_all[node] == {nearest} | on_all[nearest], (seed, given)


def test_a_loop_is_all_that_control_comes_back_from() -> None:
    for seed in range(SEEDS):
        given = graph(seed)
        reached: dict[int, set[int]] = {}
        for node in given:
            todo, seen = [node], set[int]()
            while todo:
                new = [after for after in given[todo.pop()] if after not in seen]
                seen.update(new)
                todo += new
            reached[node] = seen
        expected = {node: {other for other in given if other in reached[node] and node in reached[other]} for node in given
                    if node in reached[node]}
        assert loops(given) == expected, (seed, given)


def test_a_node_is_above_those_below_it() -> None:
    for seed in range(200):
        parents = post_dominators(graph(seed))
        for node in parents:
            here, chain = node, {node}
            while (above := parents[here]) is not None:
                here = above
                chain.add(here)
            assert {other for other in parents if parents.above(other, node)} == chain


def test_a_register_is_live_where_a_path_reads_it_first() -> None:
    for seed in range(SEEDS):
        given, draw = graph(seed), random.Random(seed)
        effects = {node: (draw.choice((0, 0, 1)), draw.choice((0, 1))) for node in given}
        for node, live in liveness(given, effects).items():
            seen, todo = {node}, [node]
            found = False
            while todo:
                here = todo.pop()
                found |= effects[here][0] == 1
                new = [after for after in given[here] if after not in seen] if effects[here] == (0, 0) else []
                seen.update(new)
                todo += new
            assert live == found, (seed, given, effects)
