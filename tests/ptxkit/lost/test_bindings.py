"""Names, slots and other holders that a loop's body binds to another register, in every form that Python has for it."""

# ruff: noqa: B010, B020, RUF059

from __future__ import annotations

import contextlib
import functools
import operator
from collections import UserDict, UserList, defaultdict, namedtuple

import numpy as np
import pytest

from ptxkit import Ptr, Ring, Vec, for_range, if_, loop, ring, smem
from ptxkit.ptx import add, ld, mov, setp, st
from ptxkit.types import f32, u32
from tests.ptxkit.lost.kernels import Holder, Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("the loop loses `")
def walrus(x: Ptr[u32], n: N) -> None:
    total = mov.u32(0)
    with for_range(n) as i:
        st.global_.u32(x, (total := total + i))  # wrong


@wrong("the loop loses `")
def swap(x: Ptr[u32], n: N) -> None:
    a, b = mov.u32(0), mov.u32(1)
    with for_range(n):
        st.global_.u32(x, a)
        a, b = b, a  # wrong


@wrong("the loop loses `")
def fib(x: Ptr[u32], n: N) -> None:
    a, b = mov.u32(0), mov.u32(1)
    with for_range(n):
        a, b = b, a + b  # wrong


@wrong("the loop loses `")
def star(x: Ptr[u32], n: N) -> None:
    first, *rest = mov.u32(0), mov.u32(1), mov.u32(2)
    with for_range(n):
        st.global_.u32(x, first)
        first, *rest = *rest, first  # wrong


@wrong("the loop loses `")
def forname(x: Ptr[u32], n: N) -> None:
    total = mov.u32(0)
    with for_range(n):
        for total in [total + 1]:  # wrong
            st.global_.u32(x, total)


@wrong("the loop loses `")
def matchname(x: Ptr[u32], n: N) -> None:
    total = mov.u32(0)
    with for_range(n):
        match (total + 1,):
            case (total,):  # wrong
                st.global_.u32(x, total)


@wrong("the loop loses `")
def withname(x: Ptr[u32], n: N) -> None:
    total = mov.u32(0)
    with for_range(n):
        with contextlib.nullcontext(total + 1) as total:  # wrong
            st.global_.u32(x, total)


@wrong("the loop loses `")
def dictupdate(x: Ptr[u32], n: N) -> None:
    s = {"a": mov.u32(0)}
    with for_range(n):
        s.update(a=s["a"] + 1)  # wrong


@wrong("the loop loses `")
def setattr_(x: Ptr[u32], n: N) -> None:
    class S:
        pass

    s = S()
    s.t = mov.u32(0)
    with for_range(n):
        setattr(s, "t", s.t + 1)  # wrong


@wrong("the loop loses `")
def append(x: Ptr[u32], n: N) -> None:
    s = [mov.u32(0)]
    with for_range(n) as i:
        st.global_.u32(x, s[-1])
        s.append(i + 1)  # wrong


@wrong("the loop loses `")
def pop(x: Ptr[u32], n: N) -> None:
    s = [mov.u32(0), mov.u32(1), mov.u32(2)]
    with for_range(n):  # wrong
        st.global_.u32(x, s.pop())


@wrong("the loop loses `")
def classattr(x: Ptr[u32], n: N) -> None:
    class S:
        total = mov.u32(0)

    with for_range(n) as i:
        S.total = S.total + i  # wrong


@wrong("the loop loses `")
def funcattr(x: Ptr[u32], n: N) -> None:
    def f():
        pass

    f.total = mov.u32(0)
    with for_range(n) as i:
        f.total = f.total + i  # wrong


@wrong("the loop loses `")
def nparray(x: Ptr[u32], n: N) -> None:
    s = np.empty(2, dtype=object)
    s[0] = mov.u32(0)
    with for_range(n) as i:
        s[0] = s[0] + i  # wrong


@wrong("the loop loses `")
def userlist(x: Ptr[u32], n: N) -> None:
    s = UserList([mov.u32(0)])
    with for_range(n) as i:
        s[0] = s[0] + i  # wrong


@wrong("the loop loses `")
def userdict(x: Ptr[u32], n: N) -> None:
    s = UserDict(a=mov.u32(0))
    with for_range(n) as i:
        s["a"] = s["a"] + i  # wrong


@wrong("the loop loses `")
def ddict(x: Ptr[u32], n: N) -> None:
    s = defaultdict(lambda: mov.u32(0))
    s[0]
    with for_range(n) as i:
        s[0] = s[0] + i  # wrong


@wrong("the loop loses `")
def ntuple(x: Ptr[u32], n: N) -> None:
    P = namedtuple("P", "a b")
    s = P(mov.u32(0), mov.u32(1))
    with for_range(n) as i:
        s = s._replace(a=s.a + i)  # wrong


@wrong("the loop loses `")
def dcin(x: Ptr[u32], n: N) -> None:
    s = Holder(None, Holder(mov.u32(0)))
    with for_range(n) as i:
        s.inner.t = s.inner.t + i  # wrong


@wrong("the loop loses `")
def deep(x: Ptr[u32], n: N) -> None:
    s = Holder(0, Holder(0, Holder(0, Holder(mov.u32(0)))))
    with for_range(n) as i:
        s.inner.inner.inner.t = s.inner.inner.inner.t + i  # wrong


@wrong("the loop loses `")
def predcarry(x: Ptr[u32], n: N) -> None:
    p = n == 0
    with for_range(n) as i:
        p = p | (i == 3)  # wrong


@wrong("the loop loses `")
def whole_vec(x: Ptr[f32], n: N) -> None:
    v = ld.global_.v4.f32(x)
    with for_range(n):
        v = Vec([add.rn.f32(e, 1.0) for e in v])  # wrong


@wrong("the loop loses `")
def listcomp(x: Ptr[f32], n: N) -> None:
    v = [mov.f32(0.0) for _ in range(4)]
    with for_range(n):
        v = [add.rn.f32(e, 1.0) for e in v]  # wrong


@wrong("the loop loses `")
def dictcomp(x: Ptr[f32], n: N) -> None:
    v = {k: mov.f32(0.0) for k in "ab"}
    with for_range(n):
        v = {k: add.rn.f32(e, 1.0) for k, e in v.items()}  # wrong


@wrong("the loop loses `")
def reduce_(x: Ptr[u32], n: N) -> None:
    t = mov.u32(0)
    with for_range(n):
        t = functools.reduce(operator.add, [t, n, n])  # wrong


@wrong("the loop loses `")
def tile_rot(x: Ptr[u32], n: N) -> None:
    a, b = smem.array(u32, 64), smem.array(u32, 64)
    with for_range(n) as i:
        st.shared__cta.u32(a.at(i), i)
        a, b = b, a  # wrong


@wrong("the loop loses `")
def ringpos(x: Ptr[u32], n: N) -> None:
    pos = Ring(2)
    stage = pos.stage
    with for_range(n) as i:
        st.global_.u32(x.at(stage), i)
        stage = stage + 1  # wrong


@wrong()
def helper_returns(x: Ptr[u32], n: N) -> None:
    def step(t, i):
        return t + i

    t = mov.u32(0)
    with for_range(n) as i:
        t = step(t, i)  # wrong


@wrong("the loop loses `")
def loopform(x: Ptr[u32], n: N) -> None:
    k = mov.u32(0)
    with loop() as rounds:
        rounds.break_if(k >= n)
        k = k + 1  # wrong


@wrong("the loop loses `")
def loop_repeat(x: Ptr[u32], n: N) -> None:
    k = mov.u32(0)
    with loop() as rounds:
        k = k + 1  # wrong
        rounds.repeat_if(k < n)


@wrong("the loop loses `")
def ringform(x: Ptr[u32], n: N) -> None:
    t = mov.u32(0)
    with ring(2, n) as (k, s, p):
        t = t + s  # wrong


@wrong("the loop loses `")
def shiftleft(x: Ptr[u32], n: N) -> None:
    t = mov.u32(1)
    with for_range(n):
        t = t << 1  # wrong


@wrong("give it a register, as `t=mov.u32(0)`")
def wrong_type_carry(x: Ptr[u32], n: N) -> None:
    with for_range(n, t=0) as rounds:  # wrong
        rounds.t = rounds.t + 1


@right
def temp(x: Ptr[u32], n: N) -> None:
    with for_range(n) as i:
        v = ld.global_.u32(x.at(i))
        v = v + 1
        v = v * 2
        st.global_.u32(x.at(i), v)


@right
def unrolled_rebind(x: Ptr[u32], n: N) -> None:
    total = mov.u32(0)
    for i in range(4):
        total = total + i
    st.global_.u32(x, total)


@right
def carried_swap(x: Ptr[u32], n: N) -> None:
    with for_range(n, a=mov.u32(0), b=mov.u32(1)) as rounds:
        a = mov.u32(rounds.a)
        rounds.a = rounds.b
        rounds.b = a
    st.global_.u32(x, rounds.a)


@right
def carried_if(x: Ptr[u32], n: N) -> None:
    with for_range(n, best=mov.u32(0)) as rounds:
        v = ld.global_.u32(x.at(rounds.index))
        with if_(v > rounds.best):
            rounds.best = v
    st.global_.u32(x, rounds.best)


@right
def carried_vec(x: Ptr[f32], n: N) -> None:
    zero = mov.f32(0.0)
    with for_range(n, v=Vec([zero, zero])) as rounds:
        rounds.v = Vec([add.rn.f32(e, 1.0) for e in rounds.v])
    st.global_.v2.f32(x, rounds.v)


@right
def carried_pred(x: Ptr[u32], n: N) -> None:
    with for_range(n, seen=n == 0) as rounds:
        rounds.seen = rounds.seen | (rounds.index == 3)
    st.global_.u32(x, 1, pred=rounds.seen)


@right
def in_place_list(x: Ptr[f32], n: N) -> None:
    v = [mov.f32(0.0) for _ in range(4)]
    with for_range(n):
        for e in v:
            add.rn.f32(e, e, 1.0)
    st.global_.v4.f32(x, tuple(v))


@right
def append_all(x: Ptr[u32], n: N) -> None:
    values = [n]
    with for_range(n) as i:
        values.append(i + 1)
        for v in values:
            st.global_.u32(x, v)


@right
def append_results(x: Ptr[u32], n: N) -> None:
    values = []
    with for_range(n) as i:
        for k in range(3):
            values.append(i + k)
        for v in values:
            st.global_.u32(x, v)


@right
def stack_back(x: Ptr[u32], n: N) -> None:
    free = [mov.u32(0), mov.u32(0)]
    with for_range(n) as i:
        r = free.pop()
        mov.u32(r, i)
        st.global_.u32(x, r)
        free.append(r)


@right
def pool_taken(x: Ptr[u32], n: N) -> None:
    free = [mov.u32(0), mov.u32(0)]
    with for_range(n) as i:
        r = free.pop()
        mov.u32(r, i)
        st.global_.u32(x, r)


@right
def classattr_in_place(x: Ptr[u32], n: N) -> None:
    class S:
        total = mov.u32(0)

    with for_range(n) as i:
        add.u32(S.total, S.total, i)
    st.global_.u32(x, S.total)


@right
def nparray_in_place(x: Ptr[u32], n: N) -> None:
    s = np.empty(2, object)
    s[0] = mov.u32(0)
    s[1] = mov.u32(1)
    with for_range(n) as i:
        for e in s:
            add.u32(e, e, i)
    more = s + 1
    st.global_.u32(x, more[0])
    st.global_.u32(x, more[1] + s[0])


@right
def ringpos_(x: Ptr[u32], n: N) -> None:
    pos = Ring(2)
    with ring(pos, n) as (k, s, p):
        st.global_.u32(x.at(s), p)
    with ring(pos, n) as (k, s, p):
        st.global_.u32(x.at(s), k)


@right
def zero_rounds(x: Ptr[u32], n: N) -> None:
    with for_range(4, start=8) as i:
        st.global_.u32(x, i)
    with for_range(0) as i:
        st.global_.u32(x, i)


@right
def break_fresh(x: Ptr[u32], n: N) -> None:
    k = mov.u32(0)
    p = k >= n
    with loop() as rounds:
        add.u32(k, k, 1)
        setp.ge.u32(p, k, n)
        rounds.break_if(p)


@right
def break_two(x: Ptr[u32], n: N) -> None:
    k = mov.u32(0)
    once = n == 1
    with loop() as rounds:
        add.u32(k, k, 1)
        rounds.break_if(once)
        rounds.break_if(k > n)


@right
def exit_in_if(x: Ptr[u32], n: N) -> None:
    once = n == 1
    with loop() as rounds:
        v = ld.volatile.global_.u32(x)
        with if_(v == 0):
            rounds.break_()
        rounds.continue_if(once)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
