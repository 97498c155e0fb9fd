"""Python's own values that a body changes in attributes of objects, classes and functions: it does so once, while tracing."""

# ruff: noqa: F841, RUF059

from __future__ import annotations

import contextlib
from enum import Enum
from types import SimpleNamespace

import pytest

from ptxkit import Ptr, else_, for_range, if_, ring
from ptxkit.ptx import mov, st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("in Python before this loop")
def attr_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(a=SimpleNamespace(k=0))
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.a.k)
        s.a.k ^= 1  # wrong


@wrong("in Python before this loop")
def tuple_state(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(order=(0, 1))

    def out():
        st.global_.u32(x + s.order[0], 1)
    with for_range(n) as i:
        out()
        s.order = s.order[::-1]  # wrong


@wrong("in Python before this loop")
def func_attr(x: Ptr[u32], n: N) -> None:

    def out(i):
        st.global_.u32(x + out.k, i)
        out.k ^= 1
    out.k = 0
    with for_range(n) as i:
        out(i)  # wrong


@wrong("in Python before this loop")
def class_attr(x: Ptr[u32], n: N) -> None:

    class C:
        k = 0
    with for_range(n) as i:
        st.global_.u32(x + C.k, i)
        C.k = 1 - C.k  # wrong


@wrong("in Python before this loop")
def vars_(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=0)
    with for_range(n) as i:
        st.global_.u32(x + s.k, i)  # wrong
        vars(s)["k"] = 1


@wrong("in Python before this loop")
def nested_loops(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=SimpleNamespace(v=0))
    with for_range(n) as i:
        with for_range(n) as j:
            st.global_.u32(x + s.k.v, j)
        s.k.v += 1  # wrong


@wrong("in Python before this loop")
def ring_state(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=SimpleNamespace(v=False))
    with ring(2, n) as (k, stage, p):
        if s.k.v:
            st.global_.u32(x, k)
        s.k.v = True  # wrong


@wrong("in Python before this loop")
def slots(x: Ptr[u32], n: N) -> None:

    class T:
        __slots__ = ("k",)
    t = T()
    t.k = 0
    with for_range(n) as i:
        st.global_.u32(x + t.k, i)
        t.k ^= 1  # wrong


@wrong("in Python before this loop")
def enum_state(x: Ptr[u32], n: N) -> None:

    class E(Enum):
        A = 0
        B = 1
    s = SimpleNamespace(e=E.A)
    with for_range(n) as i:
        st.global_.u32(x + s.e.value, i)
        s.e = E.B  # wrong


@wrong("in Python before this loop")
def str_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(mode="first")
    with for_range(n) as i:
        if s.mode != "first":
            st.global_.u32(x, i)
        s.mode = "rest"  # wrong


@wrong("only binds the name `")
def attr2(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(a=SimpleNamespace(k=0))
    with if_(n > 3):
        s.a.k = 1  # wrong
    st.global_.u32(x, s.a.k)


@wrong("only binds the name `")
def other_half(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=SimpleNamespace(v=0))
    with if_(n > 3):
        pass
    with else_():
        s.k.v = 1  # wrong
    st.global_.u32(x + s.k.v, n)


@right
def attr_set_first(x: Ptr[u32], n: N) -> None:
    ctx = SimpleNamespace(slot=0)

    def use(i):
        st.global_.u32(x + ctx.slot, i)
    with for_range(n) as i:
        for s in range(3):
            ctx.slot = s
            use(i)


@right
def lazy_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(scale=None)
    with for_range(n) as i:
        if s.scale is None:
            s.scale = i * 2
        st.global_.u32(x, s.scale)


@right
def if_stats(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(c=SimpleNamespace(k=0))
    with if_(n > 3):
        st.global_.u32(x, n)
        s.c.k += 1
    with else_():
        st.global_.u32(x, n)
        s.c.k += 1


@right
def if_slot(x: Ptr[u32], n: N) -> None:
    ctx = SimpleNamespace(a=SimpleNamespace(slot=0))

    def use():
        st.global_.u32(x + ctx.a.slot, n)
    with if_(n > 3):
        ctx.a.slot = 1
        use()
    ctx.a.slot = 2
    use()


@right
def if_restore(x: Ptr[u32], n: N) -> None:
    ctx = SimpleNamespace(a=SimpleNamespace(slot=0))

    @contextlib.contextmanager
    def slot(k):
        old, ctx.a.slot = (ctx.a.slot, k)
        yield
        ctx.a.slot = old

    def use():
        st.global_.u32(x + ctx.a.slot, n)
    with if_(n > 3):
        with slot(1):
            use()
    use()


@right
def attr_toggle_written(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(side=0)
    with for_range(n) as i:
        s.side = 0
        st.global_.u32(x + s.side, i)
        s.side ^= 1
        st.global_.u32(x + s.side, i)


@right
def indexing_state(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(a=SimpleNamespace(k=0), stats={"n": 0})
    with for_range(n) as i:
        st.global_.u32(x.at(i), 1)
        s.a.k += 1
        s.stats["n"] += 1


@right
def indent(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(depth=SimpleNamespace(k=0))
    with for_range(n) as i:
        s.depth.k += 1
        st.global_.u32(x + s.depth.k, i)
        s.depth.k -= 1


@right
def two_with(x: Ptr[u32], n: N) -> None:
    with for_range(n) as i, for_range(n, t=mov.u32(0)) as j:
        j.t = j.t + i
        st.global_.u32(x, j.t)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
