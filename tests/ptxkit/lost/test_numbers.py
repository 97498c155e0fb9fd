"""Python's own numbers, flags and None: a body changes them once, while tracing, and not on the GPU."""

# ruff: noqa: E731, SIM113

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections import deque
from enum import Enum
from pathlib import Path

import pytest

from ptxkit import Ptr, else_, for_range, if_, loop, smem
from ptxkit.idioms import wait
from ptxkit.ptx import add, ld, mov, mul, st
from ptxkit.types import f32, u32
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


@wrong("was made before this loop", "every iteration has what was taken first")
def pyiterator(x: Ptr[u32], n: N) -> None:
    numbers = iter([1, 2])
    with for_range(2):
        st.global_.u32(x, next(numbers))  # wrong


@wrong("was made before this loop", "every iteration has what was taken first")
def pygenerator(x: Ptr[u32], n: N) -> None:
    numbers = (each * 2 for each in range(9))
    with for_range(n):
        st.global_.u32(x, next(numbers))  # wrong


@wrong("was made before this loop", "every iteration has what was taken first")
def pycycle(x: Ptr[u32], n: N) -> None:
    stages = itertools.cycle((0, 1))
    with for_range(n):
        st.global_.u32(x, next(stages))  # wrong


@wrong("was made before this loop", "every iteration has what was taken first")
def pypop(x: Ptr[u32], n: N) -> None:
    numbers = [1, 2]
    with for_range(2):
        st.global_.u32(x, numbers.pop())  # wrong


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


@wrong("only binds the name `")
def pyif(x: Ptr[u32], n: N) -> None:
    best = 0
    with if_(n > 3):
        best = 1  # wrong
    st.global_.u32(x, best)


@wrong("only binds the name `")
def pyif_float(x: Ptr[f32], n: N) -> None:
    scale = 1.0
    with if_(n > 3):
        scale = 0.5  # wrong
    st.global_.f32(x, scale)


@wrong("only binds the name `")
def pyifelse(x: Ptr[u32], n: N) -> None:
    with if_(n > 3):
        best = 1
    with else_():
        best = 2  # wrong
    st.global_.u32(x, best)


@wrong("only binds the name `")
def pyif_flag(x: Ptr[u32], n: N) -> None:
    found = False
    with if_(n > 3):
        found = True  # wrong
    if found:
        st.global_.u32(x, 1)


@wrong("only binds the name `")
def pyif_none(x: Ptr[u32], n: N) -> None:
    best = None
    with if_(n > 3):
        best = n  # wrong
    st.global_.u32(x, best)


@wrong("only binds the name `")
def pyif_count(x: Ptr[u32], n: N) -> None:
    k = 0
    with if_(n > 3):
        st.global_.u32(x + k, 1)
        k += 1  # wrong
    st.global_.u32(x + k, 2)


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


@wrong("only binds the name `")
def modloop(x: Ptr[u32], n: N) -> None:
    k = 0
    with for_range(n) as i:
        with if_(i == 3):
            k = 1  # wrong
        st.global_.u32(x + k, n)


@wrong("only binds the name `")
def strflag(x: Ptr[u32], n: N) -> None:
    mode = "a"
    with if_(n > 3):
        mode = "b"  # wrong
    st.global_.u32(x, 1 if mode == "a" else 2)


@wrong("only binds the name `")
def enumflag(x: Ptr[u32], n: N) -> None:
    class E(Enum):
        A = 1
        B = 2

    mode = E.A
    with if_(n > 3):
        mode = E.B  # wrong
    st.global_.u32(x, mode.value)


@wrong("only binds the name `")
def tupleflag(x: Ptr[u32], n: N) -> None:
    at = (0, 1)
    with if_(n > 3):
        at = (1, 0)  # wrong
    st.global_.u32(x + at[0], 1)


@wrong("only binds the name `")
def intslot_if(x: Ptr[u32], n: N) -> None:
    k = [0]
    with if_(n > 3):
        k[0] = 1  # wrong
    st.global_.u32(x, k[0])


@wrong("only binds the name `")
def intattr_if(x: Ptr[u32], n: N) -> None:
    class S:
        phase = 0

    s = S()
    with if_(n > 3):
        s.phase = 1  # wrong
    st.global_.u32(x, s.phase)


@wrong("only binds the name `")
def opswitch(x: Ptr[u32], n: N) -> None:
    op = add.u32
    with if_(n > 3):
        op = mul.lo.u32  # wrong
    st.global_.u32(x, op(n, 2))


@wrong("only binds the name `")
def funcswitch(x: Ptr[u32], n: N) -> None:
    f = lambda v: v + 1
    with if_(n > 3):
        f = lambda v: v * 2  # wrong
    st.global_.u32(x, f(n))


@right
def mode_of_python(x: Ptr[u32], n: N) -> None:
    mode, at = "a", (0, 1)
    for mode in ("b", "c"):
        with if_(n > 3):
            place = at[0]
            st.global_.u32(x + place, 1 if mode == "b" else 2)
    place = 3
    st.global_.u32(x + place, 1)


@right
def slots_set_again(x: Ptr[u32], n: N) -> None:
    kept = [0]
    with if_(n > 3):
        kept[0] = 1
        st.global_.u32(x + kept[0], n)
    kept[0] = 2
    st.global_.u32(x + kept[0], n)


@right
def function_of_the_branch(x: Ptr[u32], n: N) -> None:
    op = add.u32
    with if_(n > 3):
        op = mul.lo.u32
        st.global_.u32(x, op(n, 2))
    op = add.u32
    st.global_.u32(x, op(n, 2))


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
def pycounter(x: Ptr[u32], n: N) -> None:
    ids = itertools.count()
    with for_range(n) as i:
        st.global_.u32(x + next(ids), i)
        st.global_.u32(x + next(ids), i)


@right
def pyiterator_outside(x: Ptr[u32], n: N) -> None:
    numbers = iter([1, 2, 3])
    for number in numbers:
        with for_range(n):
            st.global_.u32(x, number)
    with for_range(n):
        if numbers is not None:
            st.global_.u32(x, 1)


@right
def pypool(x: Ptr[u32], n: N) -> None:
    pool, left = [mov.u32(0), mov.u32(1)], [1, 2]
    with for_range(n):
        scratch = pool.pop()
        add.u32(scratch, scratch, 1)
        pool.append(scratch)
        inner = [1, 2]
        while inner:
            st.global_.u32(x, inner.pop())
    st.global_.u32(x, left.pop())


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


@right
def if_python(x: Ptr[u32], n: N) -> None:
    scale = 1
    with if_(n > 3):
        scale = 2
        st.global_.u32(x, scale)
    scale = 3
    st.global_.u32(x, scale)


@right
def if_inner_count(x: Ptr[u32], n: N) -> None:
    k = 0
    with if_(n > 3):
        for _ in range(3):
            st.global_.u32(x + k, 1)
            k += 1


@right
def if_each_half(x: Ptr[u32], n: N) -> None:
    with if_(n > 3):
        value = 1
        st.global_.u32(x, value)
    with else_():
        value = 2
        st.global_.u32(x, value)


@right
def if_constant(x: Ptr[u32], n: N) -> None:
    with if_(n > 3):
        SIZE = 32
        st.global_.u32(x, SIZE)
    st.global_.u32(x + SIZE, n)


@pytest.mark.parametrize("name", KERNELS.wrongs)
def test_a_wrong_kernel_is_an_error_at_its_line(name: str) -> None:
    KERNELS.is_refused(name)


@pytest.mark.parametrize("name", KERNELS.rights)
def test_a_right_kernel_that_looks_like_it_is_silent(name: str) -> None:
    KERNELS.is_silent(name)


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
