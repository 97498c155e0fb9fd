"""Python's own values that methods and properties of an object change: they do so once, while tracing."""

# ruff: noqa: F841

from __future__ import annotations

import contextlib
import functools
from types import SimpleNamespace

import pytest

from ptxkit import Ptr, for_range, if_, smem
from ptxkit.ptx import mov, st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("in Python before this loop")
def method(x: Ptr[u32], n: N) -> None:

    class T:
        k = 0

        def out(self, i):
            st.global_.u32(x.at(i), self.k)
            self.k ^= 1
    t = T()
    with for_range(n) as i:
        t.out(i)  # wrong


@wrong("in Python before this loop")
def state_helper(x: Ptr[u32], n: N) -> None:

    class State:

        def __init__(self):
            self.index = self.phase = 0

        def advance(self):
            self.index += 1
            if self.index == 2:
                self.index = 0
                self.phase ^= 1

    def wait(s):
        st.global_.u32(x + s.index, s.phase)
    s = State()
    with for_range(n) as i:
        wait(s)  # wrong
        s.advance()


@wrong("in Python before this loop")
def state_in_self(x: Ptr[u32], n: N) -> None:

    class Pipe:

        def __init__(self):
            self.state = SimpleNamespace(index=0)

        def wait(self):
            st.global_.u32(x + self.state.index, 1)

        def advance(self):
            self.state.index = (self.state.index + 1) % 4

        def run(self):
            with for_range(n) as i:
                self.wait()  # wrong
                self.advance()
    Pipe().run()


@wrong("in Python before this loop")
def call(x: Ptr[u32], n: N) -> None:

    class T:
        k = 0

        def __call__(self, i):
            st.global_.u32(x + self.k, i)
            self.k ^= 1
    t = T()
    with for_range(n) as i:
        t(i)  # wrong


@wrong("in Python before this loop")
def getitem(x: Ptr[u32], n: N) -> None:

    class T:
        k = 0

        def __getitem__(self, i):
            self.k ^= 1
            return self.k
    t = T()
    with for_range(n) as i:
        st.global_.u32(x + t[0], i)  # wrong


@wrong("in Python before this loop")
def property_state(x: Ptr[u32], n: N) -> None:

    class T:
        _k = 0

        @property
        def k(self):
            return self._k

        @k.setter
        def k(self, v):
            self._k = v
    t = T()
    with for_range(n) as i:
        st.global_.u32(x + t.k, i)  # wrong
        t.k = 1 - t.k


@wrong("only binds the name `")
def method_again(x: Ptr[u32], n: N) -> None:

    class T:
        k = 0

        def set(self):
            self.k = 1
    t = T()
    with if_(n > 3):
        t.set()  # wrong
    st.global_.u32(x, t.k)


@right
def attr_set_first2(x: Ptr[u32], n: N) -> None:

    class Ctx:
        slot = 0

        def at(self, s):
            self.slot = s
            return self

        def put(self, i):
            st.global_.u32(x + self.slot, i)
    c = Ctx()
    with for_range(n) as i:
        c.at(1).put(i)
        c.at(2).put(i)


@right
def cached_prop(x: Ptr[u32], n: N) -> None:

    class T:

        @functools.cached_property
        def off(self):
            return 4
    t = T()
    with for_range(n) as i:
        st.global_.u32(x + t.off, i)


@right
def unique2(x: Ptr[u32], n: N) -> None:

    class Names:
        used = 0

        def new(self):
            k = self.used
            self.used += 1
            return f't{k}'
    names = Names()
    with for_range(n) as i:
        smem.array(u32, 4, name=names.new())
        st.global_.u32(x, i)


@right
def counts_stats(x: Ptr[u32], n: N) -> None:

    class Stats:
        loads = 0
        stores = 0

        def load(self):
            self.loads += 1

        def report(self):
            return f'{self.loads} {self.stores}'
    s = Stats()
    with for_range(n) as i:
        st.global_.u32(x, i)
        s.stores += 1
        s.load()
    assert s.report()


@right
def rounds_phases(x: Ptr[u32], n: N) -> None:

    class State:

        def __init__(self):
            self.index = self.phase = 0

        def advance(self):
            self.index += 1
            if self.index == 2:
                self.index = 0
                self.phase ^= 1
    s = State()
    with for_range(n) as i:
        for _ in range(4):
            st.global_.u32(x + s.index, s.phase)
            s.advance()


@right
def two_cm(x: Ptr[u32], n: N) -> None:

    class Both:

        def __enter__(self):
            self.s = contextlib.ExitStack()
            a = self.s.enter_context(for_range(n))
            b = self.s.enter_context(for_range(n))
            return (a, b)

        def __exit__(self, *e):
            return self.s.__exit__(*e)
    with Both() as (a, b):
        st.global_.u32(x.at(a), b)


@right
def setprop(x: Ptr[u32], n: N) -> None:

    class T:

        def __init__(self):
            self._v = mov.u32(0)

        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, new):
            mov.u32(self._v, new)
    t = T()
    with for_range(n) as i:
        t.v = t.v + i
    st.global_.u32(x, t.v)


class Told:

    def __init__(self, state):
        self.state = state

    def begin(self, x):
        st.global_.u32(x + self.state.k, 1)


class Tells(Told):

    def begin(self, x):
        self.state.k = 3


OTHERS = [type(f"Told{i}", (Told,), {"begin": lambda self, x: st.global_.u32(x + self.state.k, 1)}) for i in range(12)]


@right
def methods_of_one_name(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=0)
    first, others = Tells(s), [each(s) for each in OTHERS]
    with for_range(n) as i:
        first.begin(x)
        for each in others:
            each.begin(x)


@right
def methods_of_items_of_one_name(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=0)
    parts = [Tells(s), *(each(s) for each in OTHERS)]
    with for_range(n) as i:
        parts[0].begin(x)
        parts[1].begin(x)


@wrong("in Python before this loop")
def methods_of_one_name_in_the_wrong_order(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=0)
    first, other = Tells(s), Told(s)
    with for_range(n) as i:  # wrong
        other.begin(x)
        first.begin(x)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
