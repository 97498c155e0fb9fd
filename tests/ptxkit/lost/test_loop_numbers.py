"""Python's own numbers, flags and None that a loop's body changes: it does so once, while tracing, and not on the GPU."""

# ruff: noqa: SIM113

from __future__ import annotations

import importlib.util
import sys
from collections import deque
from pathlib import Path

import pytest

from ptxkit import Ptr, for_range, loop, smem
from ptxkit.idioms import wait
from ptxkit.ptx import ld, mov, st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("in Python before this loop", "`loop.")
def pyparity(x: Ptr[u32], n: N) -> None:
    full = smem.mbarrier(1)
    parity = 0
    with for_range(n):
        wait(full[0], parity)
        parity ^= 1  # wrong


@wrong("in Python before this loop", "`loop.")
def pyflag(x: Ptr[u32], n: N) -> None:
    first = True
    with for_range(n) as i:
        if not first:
            st.global_.u32(x, i)
        first = False  # wrong


@wrong("`best` is None in Python before this loop", "`loop.")
def a_running_value_that_begins_as_none(x: Ptr[u32], n: N) -> None:
    best = None
    with for_range(n) as i:
        v = ld.global_.u32(x.at(i))
        best = v if best is None else best + v  # wrong
        st.global_.u32(x.at(i), best)


@wrong("`best` is None in Python before this loop")
def a_running_value_in_branches(x: Ptr[u32], n: N) -> None:
    best = None
    with for_range(n) as i:
        v = ld.global_.u32(x.at(i))
        if best is None:
            best = v
        else:
            best = best + v  # wrong
        st.global_.u32(x.at(i), best)


@right
def made_where_it_is_not_yet(x: Ptr[u32], n: N) -> None:
    one = two = three = None
    with for_range(n) as i:
        one = mov.u32(1) if one is None else one
        two = two or mov.u32(2)
        if not three:
            three = mov.u32(3)
        st.global_.u32(x.at(i), one + two + three)


@wrong("in Python before this loop", "`loop.")
def pynone(x: Ptr[u32], n: N) -> None:
    prev = None
    with for_range(n) as i:
        v = ld.global_.u32(x.at(i))
        if prev is not None:
            st.global_.u32(x, v - prev)
        prev = v  # wrong


@wrong("in Python before this loop", "`loop.")
def pycount(x: Ptr[u32], n: N) -> None:
    k = 0
    with for_range(n):
        st.global_.u32(x + k, 1)
        k += 1  # wrong


@wrong("in Python before this loop", "`loop.")
def pycount_loop(x: Ptr[u32], n: N) -> None:
    k = 0
    with loop() as rounds:
        st.global_.u32(x + k, 1)
        k += 1  # wrong
        rounds.break_if(n == 0)


@wrong("in Python before this loop", "total=mov.u32(0)")
def pyint_total(x: Ptr[u32], n: N) -> None:
    total = 0
    with for_range(n) as i:
        total = total + i  # wrong
    st.global_.u32(x, total)


@wrong("in Python before this loop", "`loop.")
def pyint_total2(x: Ptr[u32], n: N) -> None:
    total = 0
    with for_range(n) as i:
        total = i + total  # wrong
        st.global_.u32(x, total)


@wrong("in Python before this loop", "`loop.")
def pyslots(x: Ptr[u32], n: N) -> None:
    full = smem.mbarrier(2)
    parity = [0, 0]
    with for_range(n):
        for s in range(2):
            wait(full[s], parity[s])
            parity[s] ^= 1  # wrong


@wrong("in Python before this loop", "`loop.")
def pystate(x: Ptr[u32], n: N) -> None:
    full = smem.mbarrier(2)

    class State:
        index = phase = 0

        def advance(self):
            self.index += 1
            if self.index == 2:
                self.index, self.phase = 0, self.phase ^ 1

    state = State()
    with for_range(n):
        wait(full[state.index], state.phase)  # wrong
        state.advance()


@wrong("in Python before this loop")
def loop_int_attr(x: Ptr[u32], n: N) -> None:
    class S:
        phase = 0

    s = S()
    with for_range(n):
        st.global_.u32(x, s.phase)
        s.phase ^= 1  # wrong


@wrong("in Python before this loop")
def loop_str(x: Ptr[u32], n: N) -> None:
    which = "a"
    with for_range(n):
        st.global_.u32(x, 1 if which == "a" else 2)
        which = "b"  # wrong


@wrong("in Python before this loop")
def loop_tuple(x: Ptr[u32], n: N) -> None:
    order = (0, 1)
    with for_range(n):
        st.global_.u32(x + order[0], 1)
        order = (order[1], order[0])  # wrong


@wrong("in Python before this loop")
def loop_list_swap(x: Ptr[u32], n: N) -> None:
    order = [0, 1]
    with for_range(n):
        st.global_.u32(x + order[0], 1)
        order[0], order[1] = order[1], order[0]  # wrong


@wrong("in Python before this loop")
def loop_reverse(x: Ptr[u32], n: N) -> None:
    order = [0, 1]
    with for_range(n):
        st.global_.u32(x + order[0], 1)  # wrong
        order.reverse()


@wrong("in Python before this loop")
def loop_deque_int(x: Ptr[u32], n: N) -> None:
    order = deque([0, 1])
    with for_range(n):
        st.global_.u32(x + order[0], 1)  # wrong
        order.rotate(1)


@right
def pyinner(x: Ptr[u32], n: N) -> None:
    with for_range(n) as i:
        k = 0
        for _ in range(4):
            st.global_.u32(x + k, i)
            k += 1


@right
def pysame(x: Ptr[u32], n: N) -> None:
    parity = 0
    with for_range(n) as i:
        st.global_.u32(x + parity, i)
        parity ^= 1
        st.global_.u32(x + parity, i)
        parity ^= 1


@right
def pyloopvar(x: Ptr[u32], n: N) -> None:
    for s in range(2):
        st.global_.u32(x + s, 0)
    with for_range(n) as i:
        for s in range(4):
            st.global_.u32(x + s, i)


@right
def pyfirst(x: Ptr[u32], n: N) -> None:
    first = True
    for _ in range(3):
        if not first:
            st.global_.u32(x, n)
        first = False


@right
def pylazy(x: Ptr[u32], n: N) -> None:
    scale = None
    with for_range(n) as i:
        if scale is None:
            scale = i * 2
        st.global_.u32(x, scale)


@right
def pystats(x: Ptr[u32], n: N) -> None:
    stats = {"loads": 0}
    with for_range(n) as i:
        st.global_.u32(x, i)
        stats["loads"] += 1
    assert stats["loads"] == 1


@right
def pystats_attr(x: Ptr[u32], n: N) -> None:
    class S:
        loads = 0

    s = S()
    with for_range(n) as i:
        st.global_.u32(x, i)
        s.loads += 1


@right
def alloc(x: Ptr[u32], n: N) -> None:
    class Ids:
        k = 0

        def take(self):
            self.k += 1
            return self.k

    ids = Ids()
    with for_range(n) as i:
        st.global_.u32(x + ids.take(), i)


@right
def flag_list(x: Ptr[u32], n: N) -> None:
    done = [False] * 2
    with for_range(n) as i:
        st.global_.u32(x, i)
        done[0] = True


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()


def test_a_users_module_may_have_the_name_of_one_of_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "wave.py"
    source.write_text("class State:\n    phase = 0\n")
    spec = importlib.util.spec_from_file_location("wave", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "wave", module)
    spec.loader.exec_module(module)

    def toggled(x: Ptr[u32], n: N) -> None:
        state = module.State()
        with for_range(n):
            st.global_.u32(x, state.phase)
            state.phase ^= 1  # wrong

    refused(toggled, "`state.phase` is 0 in Python before this loop")
