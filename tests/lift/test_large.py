"""Lifting in linear work, and what is too large for it refused."""

from __future__ import annotations

import linecache
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ptxkit.check import check_text
from ptxkit.dsl import source
from ptxkit.grammar import parse
from ptxkit.lift import LiftError, lift
from ptxkit.lift import module as lifting
from ptxkit.lift.structure import Spans

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
BEGIN = f"{HEAD}.visible .entry k()\n{{\n.reg .b32 %r<4>;\n.reg .pred %p<2>;\nmov.u32 %r2, 1;\nsetp.eq.u32 %p1, %r2, 1;\n"
END = "ret;\n}\n"


def one_line(count: int) -> str:
    return BEGIN + "add.s32 %r1, %r2, %r2; " * count + END


def labels(count: int) -> str:
    """Branches from everywhere to everywhere."""
    return BEGIN + "".join(f"L{i}:\nadd.s32 %r1, %r2, %r2;\n@%p1 bra L{i * 7919 % count};\n" for i in range(count)) + END


def ifs(count: int) -> str:
    return BEGIN + "".join(f"@%p1 bra L{i};\nadd.s32 %r1, %r2, %r2;\nL{i}:\n" for i in range(count)) + END


def scopes(count: int) -> str:
    """Blocks whose registers all have the same name."""
    return BEGIN + "{\n.reg .b32 %r<3>;\nmov.u32 %r1, 1;\n}\n" * count + END


def entries(count: int) -> str:
    return HEAD + "".join(f".visible .entry k{i}()\n{{\nret;\n}}\n" for i in range(count))


def chain(count: int) -> str:
    """Functions that call one another, and variables that nobody needs."""
    calls = "".join(f".func f{i + 1}()\n{{\ncall f{i}, ();\nret;\n}}\n.global .b32 g{i};\n" for i in range(count))
    return f"{HEAD}.func f0()\n{{\nret;\n}}\n{calls}.visible .entry k()\n{{\ncall f{count}, ();\nret;\n}}\n"


def work(run: Callable[[], object]) -> int:
    """Calls of functions, those of built-in ones included."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("make", [one_line, labels, ifs, scopes, entries, chain])
def test_work_is_linear(make: Callable[[int], str]) -> None:
    lift(make(3))  # tables that are made once
    small, large = (work(partial(lift, make(count))) for count in (60, 240))
    assert large < 5.5 * small, f"{small} calls became {large}"


def test_first_and_last_source_of_places() -> None:
    rng = random.Random(7)
    for _ in range(300):
        places = rng.sample(range(60), rng.randrange(12))
        sources = {place: [rng.randrange(60) for _ in range(rng.randrange(1, 4))] for place in places}
        spans = Spans(sources)
        low, high = sorted(rng.sample(range(-1, 61), 2))
        within = [source for place, listed in sources.items() if low < place < high for source in listed]
        assert spans.within(low, high) == (min(within, default=low), max(within, default=low))


def test_lines_of_a_long_function() -> None:
    """What `user_position` says in a long function is what the frame itself says."""
    text = "def long(here):\n" + "".join(f"    here(1 +\n         {i})\n" for i in range(2000))
    space: dict[str, Any] = {}
    exec(compile(text, "<long>", "exec"), space)
    said: list[tuple[int, int]] = []

    def here(_: int) -> None:
        frame = sys._getframe(1)
        said.append((source.line_at(frame.f_code, frame.f_lasti) or 0, frame.f_lineno))

    space["long"](here)
    assert len(said) == 2000
    assert all(ours == python for ours, python in said)


def test_too_large_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifting, "MOST", 50)
    with pytest.raises(LiftError, match=r"`k` \(line \d+\): more than 50 statements are to be lifted: choose fewer entries with -e"):
        lift(one_line(60))
    two = entries(30)
    with pytest.raises(LiftError, match="more than 50 statements"):
        lift(two)
    assert "def k7()" in lift(two, ["k7"])


def test_a_range_of_registers_costs_what_is_used_of_it() -> None:
    """ptxas takes such ranges; nothing may make all of their names."""
    text = f"{HEAD}.visible .entry k()\n{{\n.reg .b32 %r<500000000>;\nmov.u32 %r499999999, 1;\nret;\n}}\n"
    assert check_text(text) == ()
    assert "mov.u32(1)" in lift(text)
    assert parse(text).functions[0].body


def test_nothing_stays_of_the_lines_of_lifted_files() -> None:
    before = set(linecache.cache)
    lift(one_line(3))
    assert set(linecache.cache) == before
