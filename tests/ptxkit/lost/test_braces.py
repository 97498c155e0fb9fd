"""Branches and loops within `raw.scope`, and `raw.scope` within these: what holds elsewhere holds there."""

# ruff: noqa: E741, F841, RUF059

from __future__ import annotations

import pytest

from ptxkit import Ptr, Ring, else_, for_range, if_, loop, ring, smem
from ptxkit.dsl import raw
from ptxkit.ptx import add, mov, st
from ptxkit.types import bf16, u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("first written in this `with if_` body")
def read_after_branch(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with if_(n > 3):
            v = mov.u32(5)  # wrong
        st.global_.u32(x, v)


@wrong("first written in this `with if_` body")
def read_after_scope(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with if_(n > 3):
            v = mov.u32(5)  # wrong
    st.global_.u32(x, v)


@wrong("first written in this `with else_` body")
def read_after_else(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with if_(n > 3):
            pass
        with else_():
            v = mov.u32(5)  # wrong
        st.global_.u32(x, v)


@wrong("first written in this loop's body")
def read_after_loop(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with for_range(n) as i:
            v = i + 1  # wrong
        st.global_.u32(x, v)


@wrong("counts to 2")
def stages_over3(x: Ptr[u32], n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with raw.scope():
        with ring(3, n) as (k, s, p):
            st.shared__cta.b16(tile[s].at(0, 0), 1)  # wrong


@wrong("only binds the name `")
def name_in_if(x: Ptr[u32], n: N) -> None:
    best = mov.u32(0)
    v = mov.u32(1)
    with raw.scope():
        with if_(n > 3):
            best = v  # wrong
    st.global_.u32(x, best)


@wrong("only binds the name `")
def slot_in_if2(x: Ptr[u32], n: N) -> None:
    best = [mov.u32(0)]
    v = mov.u32(1)
    with raw.scope():
        with if_(n > 3):
            best[0] = v  # wrong
        st.global_.u32(x, best[0])


@wrong("the loop loses `")
def lost_in_scope3(x: Ptr[u32], n: N) -> None:
    t = mov.u32(0)
    with for_range(n) as i:
        with raw.scope():
            st.global_.u32(x.at(i), t)
        t = i + 1  # wrong


@wrong("the loop loses `")
def lost_scope4(x: Ptr[u32], n: N) -> None:
    t = mov.u32(0)
    with raw.scope():
        with for_range(n) as i:
            st.global_.u32(x.at(i), t)
            t = i + 1  # wrong


@wrong("and not `loop.total`")
def namesake(x: Ptr[u32], n: N) -> None:
    total = mov.u32(0)
    with raw.scope():
        with for_range(n, total=total) as r:
            r.total = r.total + 1
        st.global_.u32(x, total)  # wrong


@wrong("and not `loop.total`")
def namesake2(x: Ptr[u32], n: N) -> None:
    total = mov.u32(0)
    with raw.scope():
        with for_range(n, total=total) as r:
            r.total = r.total + 1
    st.global_.u32(x, total)  # wrong


@wrong("and not `loop.total`")
def namesake3(x: Ptr[u32], n: N) -> None:
    total = mov.u32(0)
    with for_range(n, total=total) as r:
        r.total = r.total + 1
    with raw.scope():
        st.global_.u32(x, total)  # wrong


@wrong("this loop never ends")
def endless(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with loop():  # wrong
            st.global_.u32(x, n)


@wrong("in Python before this loop")
def parity(x: Ptr[u32], n: N) -> None:
    par = 0
    with raw.scope():
        with for_range(n) as i:
            st.global_.u32(x, par)
            par ^= 1  # wrong


@wrong("must stand directly after")
def else_across(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with if_(n > 3):
            st.global_.u32(x, n)
    with else_():  # wrong
        st.global_.u32(x, 1)


@wrong("stands here without `with`")
def without_with(x: Ptr[u32], n: N) -> None:
    raw.scope()  # wrong
    st.global_.u32(x, n)


@wrong("first written in this `with if_` body")
def memo_after(x: Ptr[u32], n: N) -> None:
    with if_(n > 3):
        with raw.scope():
            st.global_.u32(x.at(n), n)
    v = x.at(n)
    with raw.scope():
        with if_(n > 4):
            w = n + 3  # wrong
    with raw.scope():
        st.global_.u32(v, w)


@wrong("first written in this `with if_` body")
def ring_in_branch(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with if_(n > 3):
            position = Ring(2)  # wrong
        with ring(position, n) as (k, s, p):
            st.global_.u32(x.at(k), s)


@wrong("first written in this `with if_` body")
def nested_scopes(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with raw.scope():
            with if_(n > 3):
                v = n + 1  # wrong
        st.global_.u32(x, v)


@wrong("the loop loses `")
def pointer_in_loop(x: Ptr[u32], n: N) -> None:
    with for_range(n) as i:
        with raw.scope():
            st.global_.u32(x, i)
        x = x + 4  # wrong


@wrong("the loop loses `")
def pointer_in_loop2(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with for_range(n) as i:
            st.global_.u32(x, i)
            x = x + 4  # wrong


@right
def pointer_before(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        y = x + 4
        st.global_.u32(y, n)
        for k in range(9):
            st.global_.u32(y, k)
    with for_range(n) as i:
        y = x + 8
        st.global_.u32(x, i)


@right
def python_leaves(x: Ptr[u32], n: N) -> None:
    for k in range(3):
        with raw.scope():
            st.global_.u32(x, n)
            if k == 1:
                break
            st.global_.u32(x, 1)
    st.global_.u32(x + 1, n)


@right
def slot_unread(x: Ptr[u32], n: N) -> None:
    best = [mov.u32(0)]
    v = mov.u32(1)
    with raw.scope():
        st.global_.u32(x, v)
        with if_(n > 3):
            best[0] = v


@right
def both(x: Ptr[u32], n: N) -> None:
    v = mov.u32(0)
    with raw.scope():
        with if_(n > 3):
            mov.u32(v, 5)
        with else_():
            mov.u32(v, 6)
        st.global_.u32(x, v)


@right
def both_fresh(x: Ptr[u32], n: N) -> None:
    v = raw.register(u32)
    with raw.scope():
        with if_(n > 3):
            mov.u32(v, 5)
        with else_():
            mov.u32(v, 6)
    st.global_.u32(x, v)


@right
def scope_plain(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        v = n + 1
    st.global_.u32(x, v)


@right
def scope_in_if(x: Ptr[u32], n: N) -> None:
    with if_(n > 3):
        with raw.scope():
            v = n + 1
        st.global_.u32(x, v)


@right
def scope_in_loop(x: Ptr[u32], n: N) -> None:
    with for_range(n, t=mov.u32(0)) as l:
        with raw.scope():
            l.t = l.t + 1
    st.global_.u32(x, l.t)


@right
def ring_scope(x: Ptr[u32], n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with raw.scope():
        with ring(2, n) as (k, s, p):
            st.shared__cta.b16(tile[s].at(0, 0), 1)


@right
def bounded_if_scope(x: Ptr[u32], n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with for_range(8) as i:
        with raw.scope():
            with if_(i < 2):
                st.shared__cta.b16(tile[i].at(0, 0), 1)


@right
def bounded_if_scope2(x: Ptr[u32], n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with raw.scope():
        with for_range(8) as i:
            with if_(i < 2):
                st.shared__cta.b16(tile[i].at(0, 0), 1)


@right
def bounded_if_scope3(x: Ptr[u32], n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with for_range(8) as i:
        with if_(i < 2):
            with raw.scope():
                st.shared__cta.b16(tile[i].at(0, 0), 1)


@right
def break_(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with loop() as l:
            v = n + 1
            l.break_if(v > 3)
            add.u32(n, n, 1)
    st.global_.u32(x, v)


@right
def break_bounds(x: Ptr[u32], n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with raw.scope():
        with for_range(8) as i, loop() as inner:
            inner.break_if(i >= 2)
            st.shared__cta.b16(tile[i].at(0, 0), 1)


@right
def samecond(x: Ptr[u32], n: N) -> None:
    p = n > 3
    with raw.scope():
        with if_(p):
            v = n + 1
        with if_(p):
            st.global_.u32(x, v)


@right
def scope_loop_break(x: Ptr[u32], n: N) -> None:
    with loop() as l:
        with raw.scope():
            l.break_if(n == 0)
        add.u32(n, n, -1)


@right
def unused_after(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with if_(n > 3):
            v = n + 1
            st.global_.u32(x, v)


@right
def else_in_scope(x: Ptr[u32], n: N) -> None:
    with raw.scope():
        with if_(n > 3):
            st.global_.u32(x, n)
        with else_():
            st.global_.u32(x, 1)


@right
def both_made(x: Ptr[u32], n: N) -> None:
    with if_(n > 3):
        v = raw.register(u32)
    with raw.scope():
        mov.u32(v, 4)
        st.global_.u32(x, v)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
