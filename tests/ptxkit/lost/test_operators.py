"""Python's operators, functions and statements on registers, pointers, vectors, tiles and predicates: each is an error at its line."""

# ruff: noqa: B007, C420, E711, E712, F841, UP031

from __future__ import annotations

import math

import numpy as np
import pytest

from ptxkit import Ptr, Reg, debug, for_range, if_, smem
from ptxkit.dsl.special import laneid
from ptxkit.ptx import add, exit, ld, mov, setp, shl, shr, st
from ptxkit.types import bf16, f32, s32, u32, u64
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong()
def hash_in_set(x: Ptr[u32], n: N) -> None:
    if n in {1, 2, 3}:  # wrong
        st.global_.u32(x, 1)


@wrong()
def in_list(x: Ptr[u32], n: N) -> None:
    if n in [1, 2]:  # wrong
        pass


@wrong()
def dictkey(x: Ptr[u32], n: N) -> None:
    m = mov.u32(n)
    d = {n: 1}
    if m in d:  # wrong
        pass


@wrong()
def fstring(x: Ptr[u32], n: N) -> None:
    debug.print(f"n is {n}")  # wrong


@wrong()
def ptr_eq(x: Ptr[u32], y: Ptr[u32], n: N) -> None:
    if x == y:  # wrong
        st.global_.u32(x, 1)


@wrong()
def ptr_null(x: Ptr[u32], n: N) -> None:
    if x == 0:  # wrong
        exit()


@wrong()
def ptr_ne(x: Ptr[u32], y: Ptr[u32], n: N) -> None:
    with if_(x != y):  # wrong
        st.global_.u32(x, 1)


@wrong()
def ptr_lt(x: Ptr[u32], y: Ptr[u32], n: N) -> None:
    with if_(x < y):  # wrong
        st.global_.u32(x, 1)


@wrong()
def vec_eq(x: Ptr[u32], n: N) -> None:
    v = ld.global_.v2.u32(x)
    if v == 0:  # wrong
        pass


@wrong()
def vec_add(x: Ptr[u32], n: N) -> None:
    v = ld.global_.v2.u32(x)
    v = v + v  # wrong


@wrong()
def vec_mul(x: Ptr[u32], n: N) -> None:
    v = ld.global_.v2.u32(x)
    v = v * 2  # wrong


@wrong()
def vec_iadd(x: Ptr[u32], n: N) -> None:
    v = ld.global_.v2.u32(x)
    v += v  # wrong


@wrong()
def vec_range(x: Ptr[u32], n: N) -> None:
    v = ld.global_.v2.u32(x)
    st.global_.u32(x, v[2])  # wrong


@wrong()
def vec_reg_index(x: Ptr[u32], n: N) -> None:
    v = ld.global_.v2.u32(x)
    st.global_.u32(x, v[n])  # wrong


@wrong()
def list_reg_index(x: Ptr[u32], n: N) -> None:
    v = [mov.u32(0), mov.u32(1)]
    st.global_.u32(x, v[n])  # wrong


@wrong()
def ptr_sub(x: Ptr[u32], y: Ptr[u32], n: N) -> None:
    d = x - y  # wrong


@wrong()
def ptr_and(x: Ptr[u32], n: N) -> None:
    d = x & 15  # wrong


@wrong()
def ptr_iadd(x: Ptr[u32], n: N) -> None:
    with for_range(n) as i:
        st.global_.u32(x, i)
        x += 1  # wrong


@wrong()
def ptr_bool_and(x: Ptr[u32], n: N) -> None:
    p = n > 3 and n < 5  # wrong


@wrong()
def chained(x: Ptr[u32], n: N) -> None:
    p = 3 < n < 5  # wrong


@wrong()
def notp(x: Ptr[u32], n: N) -> None:
    p = not (n > 3)  # wrong


@wrong()
def pmin(x: Ptr[u32], n: N) -> None:
    p = min(n, 3)  # wrong


@wrong()
def pmax_(x: Ptr[u32], n: N) -> None:
    p = max(n, n + 1)  # wrong


@wrong()
def pabs(x: Ptr[u32], n: Reg[s32]) -> None:
    p = abs(n)  # wrong


@wrong()
def pround(x: Ptr[u32], v: Reg[f32]) -> None:
    p = round(v)  # wrong


@wrong()
def pint(x: Ptr[u32], v: Reg[f32]) -> None:
    p = int(v)  # wrong


@wrong()
def pfloat(x: Ptr[u32], v: N) -> None:
    p = float(v)  # wrong


@wrong()
def pfloor(x: Ptr[u32], v: Reg[f32]) -> None:
    p = math.floor(v)  # wrong


@wrong()
def psqrt(x: Ptr[u32], v: Reg[f32]) -> None:
    p = math.sqrt(v)  # wrong


@wrong("write `shl.b32(1, x)`")
def shifted(x: Ptr[u32], v: N) -> None:
    p = 1 << v  # type: ignore[operator] # wrong


@wrong("write `shr.u32(256, x)`")
def shifted_back(x: Ptr[u32], v: N) -> None:
    p = 256 >> v  # type: ignore[operator] # wrong


@wrong("write `shl.b32(1, mov.u32(laneid))`")
def lane_mask(x: Ptr[u32], v: N) -> None:
    p = 1 << laneid  # type: ignore[operator] # wrong


@wrong("`shl.b32(1, cvt.u32.u64(x))`")
def shifted_wide(x: Ptr[u32], v: Reg[u64]) -> None:
    p = 1 << v  # type: ignore[operator] # wrong


@wrong("`x // y` and `x % y`")
def divided_both(x: Ptr[u32], v: N) -> None:
    p = divmod(7, v)  # type: ignore[operator] # wrong


@wrong("`@` is no instruction")
def product(x: Ptr[u32], v: N) -> None:
    p = 2 @ v  # type: ignore[operator] # wrong


@wrong("`<<` is no instruction on a Ptr")
def shifted_ptr(x: Ptr[u32], v: N) -> None:
    p = 1 << x  # type: ignore[operator] # wrong


@wrong("`>>` is no instruction on a Negated")
def shifted_negation(x: Ptr[u32], v: N) -> None:
    p = 1 >> ~(v == 1)  # type: ignore[operator] # wrong


@wrong("`div.u32(x, x, y)`")
def divided_in_place(x: Ptr[u32], v: N) -> None:
    v //= 2  # type: ignore[arg-type] # wrong


@wrong("`rem.u32(x, x, y)`")
def rest_in_place(x: Ptr[u32], v: N) -> None:
    v %= 2  # type: ignore[arg-type] # wrong


@wrong()
def psumf(x: Ptr[f32], n: N) -> None:
    p = sum(ld.global_.v2.f32(x))  # wrong


@wrong()
def pany(x: Ptr[u32], n: N) -> None:
    p = any(n == i for i in range(3))  # wrong


@wrong()
def pall(x: Ptr[u32], n: N) -> None:
    p = all([n > 1, n < 4])  # wrong


@wrong()
def psorted(x: Ptr[u32], n: N) -> None:
    p = sorted([n, n + 1])  # wrong


@wrong()
def pdivmod(x: Ptr[u32], n: N) -> None:
    p = divmod(n, 4)  # wrong


@wrong()
def ppos(x: Ptr[u32], n: N) -> None:
    p = +n  # wrong


@wrong()
def plen(x: Ptr[u32], n: N) -> None:
    p = len(n)  # wrong


@wrong()
def pmatmul(x: Ptr[u32], n: N) -> None:
    p = n @ n  # wrong


@wrong()
def prange(x: Ptr[u32], n: N) -> None:
    for i in range(n):  # wrong
        pass


@wrong()
def pslice(x: Ptr[u32], n: N) -> None:
    v = [1, 2, 3][:n]  # wrong


@wrong()
def pitem(x: Ptr[u32], n: N) -> None:
    v = n[0]  # wrong


@wrong()
def pitemset(x: Ptr[u32], n: N) -> None:
    n[0] = 3  # wrong


@wrong()
def passert(x: Ptr[u32], n: N) -> None:
    assert n < 5  # wrong


@wrong()
def pternary(x: Ptr[u32], n: N) -> None:
    v = 1 if n < 5 else 2  # wrong


@wrong()
def pwhile(x: Ptr[u32], n: N) -> None:
    while n < 5:  # wrong
        add.u32(n, n, 1)


@wrong()
def pmatch(x: Ptr[u32], n: N) -> None:
    match n:
        case 0:  # wrong
            st.global_.u32(x, 1)


@wrong()
def range2(x: Ptr[u32], n: N) -> None:
    with for_range(0, n) as i:  # wrong
        st.global_.u32(x, i)


@wrong()
def range_neg(x: Ptr[u32], n: N) -> None:
    with for_range(n, step=-1) as i:  # wrong
        st.global_.u32(x, i)


@wrong()
def range_float(x: Ptr[u32], n: N) -> None:
    with for_range(4.0) as i:  # wrong
        st.global_.u32(x, i)


@wrong()
def format_(x: Ptr[u32], n: N) -> None:
    s = f"{n:d}"  # wrong


@wrong()
def percent(x: Ptr[u32], n: N) -> None:
    s = "%d" % n  # wrong


@wrong()
def inverted_ptr(x: Ptr[u32], n: N) -> None:
    s = ~x  # wrong


@wrong()
def vec_neg(x: Ptr[u32], n: N) -> None:
    s = -ld.global_.v2.u32(x)  # wrong


@wrong()
def if_int(x: Ptr[u32], n: N) -> None:
    with if_(n):  # wrong
        pass


@wrong()
def if_and(x: Ptr[u32], n: N) -> None:
    with if_(n & 1):  # wrong
        pass


@wrong()
def if_ptr_(x: Ptr[u32], n: N) -> None:
    with if_(x):  # wrong
        pass


@wrong()
def pred_eq_true(x: Ptr[u32], n: N) -> None:
    with if_((n > 3) == True):  # wrong
        pass


@wrong()
def pred_ne(x: Ptr[u32], n: N) -> None:
    with if_((n > 3) != (n > 5)):  # wrong
        pass


@wrong()
def neg_eq(x: Ptr[u32], n: N) -> None:
    p = n > 3
    q = ~p == p  # wrong
    with if_(p):
        pass


@wrong()
def tile_eq(x: Ptr[u32], n: N) -> None:
    t = smem.tile(bf16, (2, 64, 64))
    if t[0] == t[1]:  # wrong
        pass


@wrong()
def place_lt(x: Ptr[u32], n: N) -> None:
    t = smem.array(u32, 4)
    with if_(t.at(0) < t.at(1)):  # wrong
        pass


@right
def reg_keys(x: Ptr[u32], n: N) -> None:
    names = {n: "n"}
    assert names[n] == "n"
    kept = {r: 1 for r in (n, n + 1)}
    for r in kept:
        st.global_.u32(x, r)


@right
def lists_by_name(x: Ptr[u32], n: N) -> None:
    names = {n.name}
    if n.name in names:
        st.global_.u32(x, n)


@right
def is_none(x: Ptr[u32], n: N) -> None:
    p = None
    if p is None and x is not None and x != None:
        st.global_.u32(x, n)


@right
def ptr_addr(x: Ptr[u32], y: Ptr[u32], n: N) -> None:
    with if_(mov.u64(x) == mov.u64(y)):
        exit()
    with if_((mov.u64(x) & 15) == 0):
        exit()
    d = (mov.u64(x) - mov.u64(y)) // 4
    st.global_.u64(x.cast(u64), d)


@right
def ints(x: Ptr[u32], n: N) -> None:
    k = int(np.int32(3))
    st.global_.u32(x, n + k)


@right
def shifts(x: Ptr[u32], n: N) -> None:
    st.global_.u32(x, shl.b32(1, mov.u32(laneid)) | shr.u32(256, n))


@right
def psum(x: Ptr[u32], n: N) -> None:
    st.global_.u32(x, sum(ld.global_.v4.u32(x)))


@right
def pred_ops(x: Ptr[u32], n: N) -> None:
    p = (n > 3) & (n < 5) | ~(n == 7)
    with if_(p ^ (n == 1)):
        st.global_.u32(x, n)


@right
def signed_right(x: Ptr[u32], n: N, m: Reg[s32]) -> None:
    with if_((m < 0) | (m > -5) | (mov.s32(n) < -1)):
        st.global_.u32(x, n)
    with if_(setp.lt.u32(m, n)):
        exit()


@right
def matched(x: Ptr[u32], n: N) -> None:
    match n:
        case Reg():
            st.global_.u32(x, n)


@right
def fmt(x: Ptr[u32], n: N) -> None:
    note = f"{n!r} {n}"
    st.global_.u32(x, len(note))


@right
def sliced(x: Ptr[u32], n: N) -> None:
    v = ld.global_.v4.u32(x)
    st.global_.v2.u32(x, v[1:3])
    st.global_.u32(x, v[-1])


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
