"""Results of calls without a destination: a pure one that nothing takes, and a guarded one that is stored everywhere, are said at their
lines; what has an effect or a taker stays silent."""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, func, if_, kernel, laneid, smem
from ptxkit.check.dropped import RULES, findings
from ptxkit.check.places import Places
from ptxkit.errors import CheckError
from ptxkit.grammar import forms
from ptxkit.ptx import add, addc, atom, elect, fma, ld, mapa, max, mbarrier, mov, mul, selp, setp, shfl, vote
from ptxkit.ptx import st as store
from ptxkit.settings import settings
from ptxkit.types import f32, u32
from tests.check.test_traced import bundled
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import line_of, refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]
Twins = dict[str, tuple[Callable[..., None], Callable[..., None]]]


def _twins() -> Twins:
    """A kernel that drops a result, and what is meant."""
    found: Twins = {}

    def twins(wrong: Callable[..., None], right: Callable[..., None]) -> None:
        found[wrong.__name__] = wrong, right

    def total(x: Reg[f32], n: Numbers) -> None:
        add.rn.f32(x, x)                                                         # wrong

    def in_place(x: Reg[f32], n: Numbers) -> None:
        add.rn.f32(x, x, x)

    twins(total, in_place)

    def counted(n: Numbers) -> None:
        with if_(n > 3):
            add.u32(n, 1)                                                        # wrong

    def named(n: Numbers) -> None:
        with if_(n > 3):
            more = add.u32(n, 1)
            max.u32(n, n, more)

    twins(counted, named)

    def predicated(n: Numbers) -> None:
        add.u32(n, 1, pred=n > 3)                                                # wrong

    def thrown_away(n: Numbers) -> None:
        _ = add.u32(n, 1, pred=n > 3)

    twins(predicated, thrown_away)

    def starred(n: Numbers) -> None:
        given = (n, 1)
        add.u32(*given)                                                          # wrong

    def listed(n: Numbers) -> None:
        kept = [add.u32(n, 1), mul.lo.u32(n, 2)]
        add.u32(n, *kept)

    twins(starred, listed)

    def compared(n: Numbers) -> None:
        setp.lt.u32(n, 5)                                                        # wrong

    def given_away(n: Numbers) -> None:
        def less() -> Any:
            return setp.lt.u32(n, 5)

        add.u32(n, n, 1, pred=less())

    twins(compared, given_away)

    def value(x: Ptr[f32], y: Reg[f32]) -> None:
        step = fma.rn.f32

        def body(here: Any) -> None:
            step(here, here, y)                                                  # wrong

        body(ld.global_.f32(x))

    def written(x: Ptr[f32], y: Reg[f32]) -> None:
        step = fma.rn.f32

        def body(here: Any) -> None:
            step(here, here, here, y)

        body(ld.global_.f32(x))

    twins(value, written)

    def carry_in(n: Numbers) -> None:
        add.cc.u32(n, n, 1)
        addc.u32(n, 0)                                                           # wrong

    def carried(n: Numbers) -> None:
        add.cc.u32(n, 1)
        addc.u32(n, n, 0)

    twins(carry_in, carried)
    return found


TWINS = _twins()


@pytest.mark.parametrize("name", TWINS)
def test_a_dropped_result_and_its_twin(name: str) -> None:
    wrong, right = TWINS[name]
    (found,) = (f for f in kernel(block=128)(wrong).check() if f.rule == "result-dropped")
    assert found.position is not None
    assert (found.position.file, found.position.line) == (wrong.__code__.co_filename, line_of(wrong))
    assert (found.kind, found.severity) == ("advice", "review")
    assert found.ptx_line is not None
    assert re.search(r"`[\w.]+\([dp], a, b", found.fix)
    assert kernel(block=128)(right).trace().dropped == ()


def _guarded() -> Twins:
    found: Twins = {}

    def twins(wrong: Callable[..., None], right: Callable[..., None]) -> None:
        found[wrong.__name__] = wrong, right

    def larger(x: Ptr[f32], n: Numbers) -> None:
        best = mov.f32(0.0)
        best = max.f32(best, ld.global_.f32(x), pred=n > 3)                      # wrong
        store.global_.f32(x, best)

    def in_place(x: Ptr[f32], n: Numbers) -> None:
        best = mov.f32(0.0)
        max.f32(best, best, ld.global_.f32(x), pred=n > 3)
        store.global_.f32(x, best)

    twins(larger, in_place)

    def computed(x: Ptr[f32], n: Numbers) -> None:
        value = ld.global_.f32(x, pred=n > 3)                                    # wrong
        store.global_.f32(x, add.rn.f32(value, 1.0))

    def guarded_too(x: Ptr[f32], n: Numbers) -> None:
        p = n > 3
        value = ld.global_.f32(x, pred=p)
        store.global_.f32(x, add.rn.f32(value, 1.0), pred=p)

    twins(computed, guarded_too)

    def added(x: Ptr[u32], n: Numbers) -> None:
        more = add.u32(n, 1, pred=~(n > 3))                                      # wrong
        atom.global_.add.u32(x, more)

    def in_both_cases(x: Ptr[u32], n: Numbers) -> None:
        p = n > 3
        more = add.u32(n, 1, pred=p)
        mov.u32(more, 0, pred=~p)
        atom.global_.add.u32(x, more)

    twins(added, in_both_cases)

    def of_vector(x: Ptr[f32], n: Numbers) -> None:
        pair = ld.global_.v2.f32(x, pred=n > 3)                                  # wrong
        store.global_.f32(x, pair[1])

    def chosen(x: Ptr[f32], n: Numbers) -> None:
        p = n > 3
        pair = ld.global_.v2.f32(x, pred=p)
        store.global_.f32(x, selp.f32(pair[1], 0.0, p))

    twins(of_vector, chosen)

    def in_a_branch(x: Ptr[f32], n: Numbers) -> None:
        with if_(n > 1):
            value = ld.global_.f32(x, pred=n > 3)                                # wrong
            store.global_.f32(x, value)

    def where_it_holds(x: Ptr[f32], n: Numbers) -> None:
        p = n > 3
        value = ld.global_.f32(x, pred=p)
        with if_(p):
            store.global_.f32(x, value)

    twins(in_a_branch, where_it_holds)
    return found


GUARDED = _guarded()


@pytest.mark.parametrize("name", GUARDED)
def test_a_guarded_result_that_is_stored_everywhere_and_its_twin(name: str) -> None:
    wrong, right = GUARDED[name]
    (found,) = (f for f in kernel(block=128)(wrong).check() if f.rule == "result-guarded")
    assert found.position is not None
    assert (found.position.file, found.position.line) == (wrong.__code__.co_filename, line_of(wrong))
    assert (found.kind, found.severity) == ("advice", "review")
    assert [f for f in kernel(block=128)(right).check() if f.rule == "result-guarded"] == []


def _operators(n: Numbers, m: Numbers) -> None:
    n + 1
    1 - n
    n // 4
    n % 3
    n << m
    n ^ m
    ~n  # noqa: B018
    -n  # noqa: B018
    laneid + n
    n == m  # noqa: B015
    n > 5  # noqa: B015
    (n < m) & (n > 3)
    ~(n < m) | (n > 3)


def test_an_operator_as_a_statement_of_its_own() -> None:
    found = [f for f in kernel(block=128)(_operators).check() if f.rule == "result-dropped"]
    first = _operators.__code__.co_firstlineno
    assert [f.position.line - first for f in found if f.position is not None] == list(range(1, 14))
    assert {(f.kind, f.severity) for f in found} == {("advice", "review")}
    assert "`add.u32`" in found[0].message


def test_operators_whose_value_something_takes() -> None:
    def taken(n: Numbers) -> None:
        _ = n + 1
        (more := n + 2)
        _ = [n + i for i in (1, 2)]
        kept: list[Any] = []
        kept.append(n * 2)
        kept.extend(map(operator.add, [n, more], [1, 2]))
        _ = (lambda: n == 3)()
        f"{n + 1}"

    assert trace(taken).dropped == ()


def test_places_as_statements_of_their_own() -> None:
    def offset(x: Ptr[f32]) -> None:
        x + 1                                                                    # wrong

    def back(x: Ptr[f32]) -> None:
        x - 1                                                                    # wrong

    def indexed(x: Ptr[f32], n: Numbers) -> None:
        x + n                                                                    # wrong

    def shared(n: Numbers) -> None:
        smem.array(u32, 8) + 1                                                   # wrong

    def negated(n: Numbers) -> None:
        small = n < 3
        ~small  # noqa: B018                                                     # wrong

    for wrong, word in ((offset, "`p + i`"), (back, "`p + i`"), (indexed, "`p + i`"), (shared, "`place + i`"), (negated, "`~p`")):
        refused(wrong, word, "emits nothing")

    def method(x: Ptr[f32], n: Numbers) -> None:
        x.at(n)                                                                  # wrong

    (found,) = (f for f in kernel(block=128)(method).check() if f.rule == "result-dropped")
    assert found.position is not None
    assert found.position.line == line_of(method)

    def taken(x: Ptr[f32], n: Numbers) -> None:
        places = [x + 1, x - 1, x + n, *map(x.at, (n, 2))]
        places.extend(map(x.at, (n, 3)))
        for place in places:
            store.global_.f32(place, 0.0)

    assert trace(taken).dropped == ()


def test_what_has_an_effect_besides_its_result_is_silent() -> None:
    def effects(x: Ptr[u32], n: Numbers) -> None:
        full = smem.mbarrier(1)
        mbarrier.init.shared__cta.b64(full[0], 1)
        mbarrier.arrive.shared__cta.b64(full[0])
        atom.global_.add.u32(x, 1)
        ld.volatile.global_.u32(x)
        ld.global_.u32(x)
        shfl.sync.bfly.b32(n, 1, 31, 0xFFFFFFFF)
        vote.sync.any.pred(n > 3, 0xFFFFFFFF)
        elect.sync(0xFFFFFFFF)

    assert trace(effects).dropped == ()


def test_the_table_says_what_is_pure() -> None:
    pure = {form.syntax.split()[0].partition(".")[0].partition("{")[0] for form in forms.forms() if form.effects.pure}
    assert {"add", "mov", "setp", "cvt", "mapa", "selp"} <= pure
    assert not pure & {"ld", "st", "atom", "red", "shfl", "vote", "redux", "match", "elect", "bar", "wgmma", "mma", "tex", "call"}


def test_in_a_device_function_and_in_each_of_several() -> None:
    @func
    def helper(n: Numbers) -> Numbers:
        add.u32(n, 2)
        return add.u32(n, 1)

    def whole(x: Ptr[u32], n: Numbers) -> None:
        mapa.shared__cluster.u32(smem.array(u32, 4), 0)
        store.global_.u32(x, helper(helper(n)))

    dropped = trace(whole, name="whole").dropped
    assert [(each.function, each.opcode) for each in dropped] == [("helper", "add.u32"), ("whole", "mapa.shared::cluster.u32")]
    assert "`mapa.shared__cluster.u32(d, a, b)`" in dropped[1].finding().fix


@kernel(block=32)
def adding(x: Ptr[u32]) -> None:
    value = ld.global_.u32(x.at(laneid))
    add.u32(value, 1)
    store.global_.u32(x.at(laneid), mov.u32(value))


def test_a_run_says_it_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxkit.dsl.dropped._said", set())
    numbers = np.zeros(32, np.uint32)
    with caplog.at_level(logging.WARNING, "ptxkit"):
        for _ in range(2):
            adding.simulate(1, numbers)
    (said,) = caplog.messages
    assert said.startswith(f"{__file__}:")
    assert "`add.u32(d, a, b)`" in said


@pytest.mark.parametrize("wish", ["off", "error"])
def test_a_run_goes_by_the_setting(wish: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxkit.dsl.dropped._said", set())
    monkeypatch.setenv("PTXKIT_CHECK", wish)
    settings.cache_clear()
    try:
        if wish == "error":
            with pytest.raises(CheckError, match="result-dropped"):
                adding.simulate(1, np.zeros(32, np.uint32))
        else:
            adding.simulate(1, np.zeros(32, np.uint32))
    finally:
        settings.cache_clear()
    assert caplog.messages == []


def test_bundled_kernels_earn_nothing() -> None:
    for traced in bundled():
        module, lines = traced.numbered()
        assert list(findings(module, Places(module, lines), traced)) == [], traced.name


def test_the_rule_has_its_section() -> None:
    page = (Path(__file__).parents[3] / "docs" / "checks.md").read_text(encoding="utf-8")
    assert all(f"### `{rule}`\n" in page for rule in RULES)
