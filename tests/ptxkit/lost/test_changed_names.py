"""Names that a body binds again to other values of Python's: it does so once, while tracing."""

# ruff: noqa: F841

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest

from ptxkit import Ptr, for_range, if_
from ptxkit.ptx import add, mul, st
from ptxkit.types import f32, u32
from tests.ptxkit.lost.kernels import Kernels, N, Tiles

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("in Python before this loop")
def star(x: Ptr[u32], n: N) -> None:
    q = [1, 2, 3]
    with for_range(n) as i:
        k, *q = q  # wrong
        st.global_.u32(x.at(i), k)


@wrong("in Python before this loop")
def slice_(x: Ptr[u32], n: N) -> None:
    q = [1, 2, 3]
    with for_range(n) as i:
        st.global_.u32(x.at(i), q[0])
        q = q[1:]  # wrong


@wrong("in Python before this loop")
def cm_parity(x: Ptr[u32], n: N) -> None:
    parity = 0
    with Tiles(n) as i:
        st.global_.u32(x, parity)
        parity ^= 1  # wrong


@wrong("in Python before this loop")
def np_int2(x: Ptr[u32], n: N) -> None:
    a = np.array([0, 1])
    with for_range(n) as i:
        st.global_.u32(x.at(i), int(a[0]))
        a = np.roll(a, 1)  # wrong


@wrong("in Python before this loop")
def np_scalar(x: Ptr[u32], n: N) -> None:
    k = np.int64(0)
    with for_range(n) as i:
        st.global_.u32(x.at(i), int(k))
        k = k + 1  # wrong


@wrong("in Python before this loop")
def list_rebound(x: Ptr[u32], n: N) -> None:
    par = [0, 1]
    with for_range(n) as i:
        a, b = par
        st.global_.u32(x.at(i), a)
        par = [b, a]  # wrong


@wrong("in Python before this loop")
def range_(x: Ptr[u32], n: N) -> None:
    r = range(4)
    with for_range(n) as i:
        for k in r:
            st.global_.u32(x + k, i)
        r = range(4, 8)  # wrong


@wrong("in Python before this loop")
def slice__again(x: Ptr[u32], n: N) -> None:
    s = slice(0, 2)
    v = [1, 2, 3, 4]
    with for_range(n) as i:
        for k in v[s]:
            st.global_.u32(x + k, i)
        s = slice(2, 4)  # wrong


@wrong("in Python before this loop")
def frozen(x: Ptr[u32], n: N) -> None:

    @dataclass(frozen=True)
    class T:
        k: int
    s = T(0)
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.k)  # wrong
        s = replace(s, k=s.k + 1)


@wrong("in Python before this loop")
def nt(x: Ptr[u32], n: N) -> None:

    class T(NamedTuple):
        k: int
    s = T(0)
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.k)
        s = s._replace(k=1)  # wrong


@wrong("in Python before this loop")
def opswap(x: Ptr[u32], n: N) -> None:
    op, other = (add.u32, mul.lo.u32)
    with for_range(n) as i:
        st.global_.u32(x.at(i), op(i, 3))
        op, other = (other, op)  # wrong


@wrong("in Python before this loop")
def fnswap(x: Ptr[u32], n: N) -> None:
    f, g = (lambda v: v + 1, lambda v: v * 2)
    with for_range(n) as i:
        st.global_.u32(x.at(i), f(i))
        f, g = (g, f)  # wrong


@wrong("in Python before this loop")
def walrus(x: Ptr[u32], n: N) -> None:
    k = 0
    with for_range(n) as i:
        st.global_.u32(x + (k := (k + 1)), i)  # wrong


@wrong("in Python before this loop")
def str_(x: Ptr[u32], n: N) -> None:
    s = "ab"
    with for_range(n) as i:
        st.global_.u32(x + ord(s[0]), i)
        s = s[1:] + s[0]  # wrong


@wrong("only binds the name `")
def list_rebound_again(x: Ptr[u32], n: N) -> None:
    s = [0, 1]
    with if_(n > 3):  # wrong
        s = [2, 3]
    for k in s:
        st.global_.u32(x + k, n)


@wrong("only binds the name `")
def type_(x: Ptr[u32], n: N) -> None:
    t = u32
    with if_(n > 3):
        t = f32  # wrong
    st.global_.u32(x, t.bits + (1 if t is f32 else 0))


@wrong("only binds the name `")
def walrus_again(x: Ptr[u32], n: N) -> None:
    k = 0
    with if_(n > 3):
        st.global_.u32(x + (k := 5), n)  # wrong
    st.global_.u32(x + k, n)


@wrong("only binds the name `")
def frozen_again(x: Ptr[u32], n: N) -> None:

    @dataclass(frozen=True)
    class T:
        k: int
    s = T(0)
    with if_(n > 3):
        s = replace(s, k=1)  # wrong
    st.global_.u32(x, s.k)


@right
def same_op(x: Ptr[u32], n: N) -> None:
    op = add.u32
    with for_range(n) as i:
        st.global_.u32(x, op(i, 1))
        op = add.u32


@right
def redef(x: Ptr[u32], n: N) -> None:

    def step(i):
        st.global_.u32(x, i)
    step(n)
    with for_range(n) as i:

        def step(i):
            st.global_.u32(x + 1, i)
        step(i)


@right
def log_rebound(x: Ptr[u32], n: N) -> None:
    log = []
    with for_range(n) as i:
        st.global_.u32(x, i)
        log = [*log, "store"]


@right
def filter_(x: Ptr[u32], n: N) -> None:
    live = [1, 2, 3, 4]
    with for_range(n) as i:
        live = [k for k in live if k % 2 == 0]
        for k in live:
            st.global_.u32(x + k, i)


@right
def min_(x: Ptr[u32], n: N) -> None:
    rows = 64
    with for_range(n) as i:
        rows = min(rows, 64)
        st.global_.u32(x + rows, i)


@right
def dataclass_replace_outside(x: Ptr[u32], n: N) -> None:

    @dataclass(frozen=True)
    class C:
        k: int
    c = C(1)
    for _ in range(2):
        c = replace(c, k=c.k + 1)
        with for_range(n) as i:
            st.global_.u32(x + c.k, i)


@right
def match(x: Ptr[u32], n: N) -> None:
    mode = ("a", 1)
    with for_range(n) as i:
        match mode:
            case ["a", k]:
                st.global_.u32(x + k, i)
            case _:
                pass


@right
def sorted_(x: Ptr[u32], n: N) -> None:
    offsets = [3, 1, 2]
    with for_range(n) as i:
        offsets = sorted(offsets)
        for k in offsets:
            st.global_.u32(x + k, i)


@right
def listfresh(x: Ptr[u32], n: N) -> None:
    v = [1, 2]
    for k in v:
        st.global_.u32(x + k, 1)
    with for_range(n) as i:
        v = [3]
        for k in v:
            st.global_.u32(x + k, i)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
