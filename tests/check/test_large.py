"""A long body costs what its length is, and what makes it cheap changes nothing of what the rules see."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptxkit.check import check_text
from ptxkit.check.analysis import Analysis
from ptxkit.check.names import Scope
from ptxkit.check.places import Places
from ptxkit.check.program import Routine, parts, routine
from ptxkit.grammar import parse, tree
from ptxkit.grammar.match import bind
from ptxkit.grammar.walk import statements

pytestmark = pytest.mark.pure

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.ptx"))
HEAD = """.version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n.reg .b32 %r<{0}>;\n.reg .b64 %rd<{0}>;
.reg .pred %p<{0}>;\n.reg .f32 %f<{0}>;\n.shared .align 16 .b8 sm[4096];\nld.param.u64 %rd1, [p];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, sm;
mov.f32 %f1, 0f00000000;\n"""


def joining(count: int) -> str:
    """Each value is computed twice from the one before: there are 2^count ways through them."""
    lines = [f"mad.lo.s32 %r{i}, %r{i - 1}, %r{i - 2}, %r{i - 1};\nsetp.lt.s32 %p{i}, %r{i}, %r{i - 1};\n"
             f"@%p{i} st.global.u32 [%rd1], %r{i};" for i in range(3, count)]
    return HEAD.format(count) + "\n".join(lines) + "\nret;\n}"


def masks(count: int) -> str:
    """As `joining`, of the parity that a wait asks for."""
    lines = [f"xor.b32 %r{i}, %r{i - 1}, %r{i - 2};\nmbarrier.test_wait.parity.shared.b64 %p{i}, [%r2], %r{i};" for i in range(3, count)]
    return HEAD.format(count) + "mbarrier.init.shared.b64 [%r2], 1;\n" + "\n".join(lines) + "\nret;\n}"


def descriptors(count: int) -> str:
    """As `joining`, of the descriptor of a matrix."""
    lines = [f"add.s64 %rd{i}, %rd{i - 1}, %rd{i - 2};" for i in range(3, count)]
    product = (f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1, %f2, %f3, %f4}}, %rd{count - 1}, %rd{count - 2}, 1, 1, 1, 0, 0;"
               "\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")
    return HEAD.format(count + 4) + "mov.u64 %rd2, %rd1;\nwgmma.fence.sync.aligned;\n" + "\n".join(lines) + f"\n{product}\nret;\n}}"


def stores(count: int) -> str:
    lines = [f"st.shared.f32 [%r2+{4 * (i % 1000)}], %f1;" for i in range(count)]
    return HEAD.format(9) + "\n".join(lines) + "\nret;\n}"


def loads(count: int) -> str:
    lines = [f"st.shared.f32 [%r2+{4 * (i % 1000)}], %f1;\nld.shared.f32 %f1, [%r2+{4 * (i % 999)}];" for i in range(count)]
    return HEAD.format(9) + "\n".join(lines) + "\nret;\n}"


def branches(count: int) -> str:
    lines = [f"@%p1 bra L{i};\nst.shared.f32 [%r2+{4 * (i % 1000)}], %f1;\nbar.sync 0;\nL{i}:" for i in range(count)]
    return HEAD.format(9) + "setp.eq.s32 %p1, %r1, 0;\n" + "\n".join(lines) + "\nret;\n}"


def work(text: str, most: int) -> int:
    """Calls of functions, and steps of generators, for one check; stops when there are more than that."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"
        if count > most:
            sys.setprofile(None)
            raise AssertionError(f"more than {most:,} calls")

    sys.setprofile(note)
    try:
        check_text(text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("make", [joining, masks, descriptors, stores, loads, branches], ids=lambda make: make.__name__)
def test_work_is_linear_in_the_length_of_a_body(make: Callable[[int], str]) -> None:
    check_text(make(8))
    small = work(make(60), 500_000)
    large = work(make(240), 2_000_000)
    assert large < 6 * small, f"{small:,} calls became {large:,}"


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_operands_are_those_that_the_signature_has_for_them(path: Path) -> None:
    module = parse(path.read_text())
    for entry, part in parts(module):
        made = routine(part, entry, Places(module, None))
        vectors = {v.name for v in statements(entry.body or ()) if isinstance(v, tree.Variable) and v.vector > 1}
        for site in made.sites:
            if site.signature is not None and site.mnemonic not in ("call", "bra", "brx"):
                found = bind(site.signature, site.instruction.operands, types(made))
                assert found == site.values or vectors.intersection((*site.reads, *site.writes)), site.instruction


def types(made: Routine) -> Callable[[str], str | None]:
    """What the unique names of a routine stand for."""
    scope = Scope()
    for name, variable in made.variables.items():
        list(scope.declare(tree.Variable(variable.space, variable.type, name)))

    def of(name: str) -> str | None:
        return made.registers.get(name) or scope.type(name)

    return of


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_only_computes_touches_nothing(path: Path) -> None:
    module = parse(path.read_text())
    for entry, part in parts(module):
        analysis = Analysis(part, entry, Places(module, None))
        telling = {site.index for sites in analysis.telling.values() for site in sites}
        for site in analysis.sites:
            if site.index not in telling:
                assert not analysis.memory.of(site)
                assert site.index not in analysis.barriers.by_site
                assert not site.sync
                assert site.effects.fence is None
                assert site.mnemonic not in ("tensormap", "wgmma", "cp")
