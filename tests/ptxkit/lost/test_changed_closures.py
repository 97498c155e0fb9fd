"""Python's own values that a body changes in closures, globals and defaults: it does so once, while tracing."""

# ruff: noqa: B006

from __future__ import annotations

import pytest

from ptxkit import Ptr, else_, for_range, if_
from ptxkit.ptx import st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right
GSTATE = 0
GK = 0


def gset():
    global GSTATE
    GSTATE = 0


def gput(x, i):
    global GSTATE
    st.global_.u32(x + GSTATE, i)
    GSTATE ^= 1


@wrong("in Python before this loop")
def nonlocal_(x: Ptr[u32], n: N) -> None:
    par = 0

    def step(i):
        nonlocal par
        st.global_.u32(x.at(i), par)
        par ^= 1  # wrong
    with for_range(n) as i:
        step(i)


@wrong("in Python before this loop")
def cell_here(x: Ptr[u32], n: N) -> None:
    par = 0

    def out(i):
        st.global_.u32(x.at(i), par)
    with for_range(n) as i:
        out(i)
        par ^= 1  # wrong


@wrong("in Python before this loop")
def comp_cell(x: Ptr[u32], n: N) -> None:
    k = 0
    with for_range(n) as i:
        for v in [k + j for j in range(2)]:
            st.global_.u32(x + v, i)
        k += 2  # wrong


@wrong("in Python before this loop")
def global_(x: Ptr[u32], n: N) -> None:
    global GK
    GK = 0
    with for_range(n) as i:
        st.global_.u32(x.at(i), GK)
        GK += 1  # wrong


@wrong("in Python before this loop")
def default_state(x: Ptr[u32], n: N) -> None:

    def out(i, s=[0]):
        st.global_.u32(x + s[0], i)
        s[0] += 1
    with for_range(n) as i:
        out(i)  # wrong


@wrong("in Python before this loop")
def global_state(x: Ptr[u32], n: N) -> None:
    gset()
    with for_range(n) as i:  # wrong
        gput(x, i)


@wrong("only binds the name `")
def cell(x: Ptr[u32], n: N) -> None:
    best = 0

    def out():
        st.global_.u32(x, best)
    with if_(n > 3):
        best = 1  # wrong
    out()


@right
def unique(x: Ptr[u32], n: N) -> None:
    k = 0

    def fresh():
        nonlocal k
        k += 1
        return k
    with for_range(n) as i:
        st.global_.u32(x + fresh(), i)
        st.global_.u32(x + fresh(), i)


@right
def ifcell_before(x: Ptr[u32], n: N) -> None:
    k = 0

    def out():
        st.global_.u32(x + k, n)
    with if_(n > 3):
        k = 1
        out()
    k = 2
    out()


@right
def if_unique(x: Ptr[u32], n: N) -> None:
    k = 0

    def fresh():
        nonlocal k
        k += 1
        return k
    with if_(n > 3):
        st.global_.u32(x + fresh(), n)
    with else_():
        st.global_.u32(x + fresh(), n)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
