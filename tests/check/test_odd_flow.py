"""Any control flow comes to an end in every tool, and what the rules know of a register there is what a plain data flow finds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from ptxkit import sim
from ptxkit.check import check_text
from ptxkit.check.places import Places
from ptxkit.check.program import Routine, Site, routine
from ptxkit.check.values import Value, Values
from ptxkit.diff import diff
from ptxkit.diff.program import of_module
from ptxkit.grammar import parse
from ptxkit.inspect.entry import facts
from ptxkit.lift import LiftError, lift

from .graphs import program
from .test_large import work

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry t() .reqntid 32\n{\n.reg .pred %p<2>;\n.reg .b32 %r<3>;\n"
MOST = 1_000_000
"""Calls for a check. A text of `program` takes up to 20,000, and a first check of an instruction reads its tables."""

NEVER_WRITTEN = [
    "L0:\nL1:\n@%p1 bra L1;\n@%p1 bra L0;\nret;",
    "L0:\n@%p1 bra L0;\nret;",
    "L0:\nbra L0;",
    "L0:\n@!%p1 bra L2;\nL1:\n@%p1 bra L1;\nL2:\n@%p1 bra L1;\n@%p0 bra L0;\nret;",
    "bra L1;\nL0:\n@%p1 bra L0;\nL1:\n@%p1 bra L1;\nret;",
]


@pytest.mark.parametrize("body", NEVER_WRITTEN)
def test_a_loop_of_the_entry_under_a_predicate_that_nothing_writes(body: str) -> None:
    text = f"{HEAD}{body}\n}}\n"
    work(text, MOST)
    assert {finding.rule for finding in check_text(text)} <= {"register-undefined"}
    assert bool(check_text(text)) == ("@" in body)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("first", range(0, 400, 50))
def test_a_check_ends(first: int) -> None:
    for seed in range(first, first + 50):
        work(program(seed), MOST)


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_other_tools_end(first: int) -> None:
    before = None
    for seed in range(first, first + 20):
        text = program(seed)
        module = parse(text)
        assert facts(module, Places(module, None))
        here = of_module(module, str(seed))
        assert before is None or diff(before, here)
        before = here
        with suppress(LiftError):  # of an entry that ends in a label
            lift(text)
        report = sim.run(text, "t", grid=1, args=[np.zeros(64, np.uint32)], max_steps=300)
        assert report.stats.instructions < 100_000  # the limit is looked at when a turn of a warp is over


# ------------------------------------------------------------------------------------------------ long texts


def to_one_label(count: int) -> str:
    return "".join(f"@%p0 bra L;\nadd.u32 %r0, %r0, {i};\n" for i in range(count)) + "L:\nbar.sync 0;\nret;"


def back_to_one_label(count: int) -> str:
    return "L:\n" + "".join(f"@%p0 bra L;\nadd.u32 %r0, %r0, {i};\n" for i in range(count)) + "bar.sync 0;\nret;"


def nested_loops(count: int) -> str:
    heads = "".join(f"mov.u32 %c{i}, 0;\nL{i}:\n" for i in range(count))
    ends = "".join(f"add.u32 %c{i}, %c{i}, 1;\nsetp.lt.u32 %p0, %c{i}, 9;\n@%p0 bra L{i};\n" for i in reversed(range(count)))
    return f".reg .b32 %c<{count}>;\n{heads}bar.sync 0;\n{ends}ret;"


def loops_of_one_register(count: int) -> str:
    heads = "".join(f"L{i}:\nadd.u32 %r0, %r0, 1;\n" for i in range(count))
    return heads + "bar.sync 0;\n" + "".join(f"@%p0 bra L{i};\n" for i in reversed(range(count))) + "ret;"


def lines(text: str) -> int:
    """Lines of Python that are executed for one check."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return note

    sys.settrace(note)
    try:
        check_text(text)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("make", [to_one_label, back_to_one_label, nested_loops, loops_of_one_register], ids=lambda make: make.__name__)
def test_work_follows_the_length_of_a_text(make: Callable[[int], str]) -> None:
    begin = HEAD + "setp.eq.u32 %p0, 1, 2;\nmov.u32 %r0, 1;\n"
    check_text(f"{begin}{make(5)}\n}}\n")
    small, large = (lines(f"{begin}{make(count)}\n}}\n") for count in (40, 160))
    assert large < 6 * small, f"{small:,} lines became {large:,}"


# ------------------------------------------------------------------------------------------------ registers

Reaching = frozenset[int]
"""The sites whose result a register may hold; NOTHING where it may hold what nobody has written."""
NOTHING = -1


def made(seed: int) -> Routine:
    module = parse(program(seed))
    return routine(module, next(iter(module.entries)), Places(module, None))


def reaching(given: Routine) -> Iterator[tuple[Site, str, Reaching]]:
    """For each register that a site reads, the sites that a data flow over all paths finds."""
    at: dict[int, dict[str, Reaching]] = {0: dict.fromkeys(given.registers, frozenset((NOTHING,)))}
    todo = [0]
    while todo:
        block = given.blocks[todo.pop()]
        state = dict(at[block.index])
        for site in given.sites[block.first:block.end]:
            written(state, site)
        for successor in block.successors:
            old = at.get(successor, {})
            new = {name: old.get(name, frozenset()) | held for name, held in state.items()}
            if new != old:
                at[successor] = new
                todo.append(successor)
    for index, state in at.items():
        block = given.blocks[index]
        for site in given.sites[block.first:block.end]:
            yield from ((site, name, state[name]) for name in site.reads if name in given.registers)
            written(state, site)


def written(state: dict[str, Reaching], site: Site) -> None:
    for name in site.writes:
        state[name] = (state.get(name, frozenset()) if site.instruction.guard else frozenset()) | {site.index}


def leaves(values: Values, value: Value) -> Reaching:
    """The sites that a value comes from, through phis and guarded instructions."""
    seen, todo = {value}, [value]
    while todo:
        for other in values.alternatives(todo.pop()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return frozenset(NOTHING if one.site is None else one.site.index for one in seen if one.kind != "phi")


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_value_is_what_reaches_the_place(first: int) -> None:
    for seed in range(first, first + 50):
        given = made(seed)
        values = Values(given)
        for site, name, expected in reaching(given):
            assert leaves(values, values.register(site, name)) == expected, (seed, site.instruction, name)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_phi_joins_several_values(first: int) -> None:
    for seed in range(first, first + 50):
        given = made(seed)
        values = Values(given)
        for site, name, _ in reaching(given):
            for value in values.depends(values.register(site, name)):
                assert value.kind != "phi" or len({*values.alternatives(value), value}) > 2, (seed, name)


# ------------------------------------------------------------------------------------------------ dominators


def reached(successors: dict[int, list[int]], start: int, without: int | None = None) -> set[int]:
    seen, todo = {start} - {without}, [start] if start != without else []
    while todo:
        for node in successors[todo.pop()]:
            if node not in seen and node != without:
                seen.add(node)
                todo.append(node)
    return seen


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_dominators_are_what_no_path_goes_round(first: int) -> None:
    for seed in range(first, first + 50):
        given = made(seed)
        successors = {block.index: block.successors for block in given.blocks}
        every = reached(successors, 0)
        assert every == given.reachable
        dominators = {node: {other for other in every - {node} if node not in reached(successors, 0, other)} for node in every}
        for node, nearest in given.dominators.items():
            above = dominators[node]
            assert nearest in above if above else nearest is None
            assert nearest is None or dominators[nearest] == above - {nearest}
