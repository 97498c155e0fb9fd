"""Dominance frontiers of random control flow against their definition, kept or found anew."""

from __future__ import annotations

import pytest

from ptxkit.check import frontiers
from ptxkit.check.definitions import Definitions
from ptxkit.check.frontiers import Frontiers
from ptxkit.check.places import Places
from ptxkit.check.program import Routine, Site, routine
from ptxkit.grammar import parse

from .graphs import program

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]


def made(seed: int) -> Routine:
    module = parse(program(seed))
    return routine(module, module.entries[0], Places(module))


def without(graph: Routine, block: int) -> set[int]:
    """The blocks that the entry reaches though one block is taken out."""
    seen, todo = set[int](), [0] if block != 0 else []
    while todo:
        here = todo.pop()
        if here not in seen:
            seen.add(here)
            todo += [after for after in graph.blocks[here].successors if after != block]
    return seen


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "found anew"])
def test_a_frontier_is_where_dominance_ends(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kept:
        monkeypatch.setattr(frontiers, "FEW", -1)
        monkeypatch.setattr(frontiers, "EACH", 0)
    for seed in range(120):
        graph = made(seed)
        tree = Frontiers(graph)
        for number, block in enumerate(tree.block):
            dominated = graph.reachable - without(graph, block)
            expected = {tree.number[after] for here in dominated for after in graph.blocks[here].successors
                        if after == block or after not in dominated}
            assert {*tree.frontier(number, -1, set())} == expected, (seed, block)
            assert tree.level[number] == sum(block in graph.reachable - without(graph, other) for other in tree.block) - 1
            assert {*tree.frontier(number, tree.level[number] - 1, set())} >= {
                join for join in expected if tree.level[join] == tree.level[number]}


def test_a_register_has_the_same_definition_whether_frontiers_are_kept_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(graph: Routine) -> list[Site | int]:
        known = Definitions(graph)
        return [known.at_end(block.index, name) for name in known.writes for block in graph.blocks]

    for seed in range(120):
        graph = made(seed)
        before = ends(graph)
        with monkeypatch.context() as patched:
            patched.setattr(frontiers, "FEW", -1)
            patched.setattr(frontiers, "EACH", 0)
            assert ends(graph) == before


def test_what_many_loops_in_one_another_keep_is_bounded() -> None:
    count = 300
    heads = "".join(f"L{i}:\nadd.u32 %r0, %r0, 1;\n" for i in range(count))
    ends = "".join(f"@%p1 bra L{i};\n" for i in range(count))  # from the outermost to the innermost: no frontier is that of another
    text = f".version 8.0\n.target sm_90a\n.address_size 64\n.entry k() {{ .reg .b32 %r<2>; .reg .pred %p<2>;\n{heads}{ends}ret; }}\n"
    module = parse(text)
    tree = Frontiers(routine(module, module.entries[0], Places(module)))
    kept = {id(members): len(members) for members in tree._kept if members is not None}
    assert sum(kept.values()) <= (frontiers.EACH + frontiers.FEW) * len(tree.block) < count * count / 4
    assert max(len(tree.frontier(number, -1, set())) for number in range(len(tree.block))) > count / 2
