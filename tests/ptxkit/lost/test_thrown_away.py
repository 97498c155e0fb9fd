"""Results that only a tuple, a comprehension or a lambda takes, guarded ones that are used everywhere, and methods without a call."""

# ruff: noqa: B018, C417, E731

from __future__ import annotations

import pytest

from ptxkit import NamedBarrier, Pipeline, Ptr, Ring, for_range, if_, loop
from ptxkit.ptx import add, ld, mov, selp, st
from ptxkit.types import f32, u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("result-dropped")
def drop_tuple(x: Ptr[u32], n: N) -> None:
    (add.u32(n, 1), add.u32(n, 2))  # wrong


@wrong("result-dropped")
def drop_list(x: Ptr[u32], n: N) -> None:
    [add.u32(n, 1)]  # wrong


@wrong("result-dropped")
def drop_lambda(x: Ptr[u32], n: N) -> None:
    f = lambda: add.u32(n, 1)  # wrong
    f()


@wrong("result-dropped")
def drop_comp(x: Ptr[u32], n: N) -> None:
    v = [mov.u32(0), mov.u32(1)]
    [add.u32(e, 1) for e in v]  # wrong


@wrong("result-dropped")
def drop_cond(x: Ptr[u32], n: N, *, A: bool = True) -> None:
    add.u32(n, 1) if A else None  # wrong


@wrong("result-dropped")
def drop_and(x: Ptr[u32], n: N, *, A: bool = True) -> None:
    A and add.u32(n, 1)  # wrong


@wrong("result-dropped")
def drop_op_tuple(x: Ptr[u32], n: N) -> None:
    n + 1, n + 2  # wrong


@wrong("result-dropped")
def drop_dict(x: Ptr[u32], n: N) -> None:
    {"a": add.u32(n, 1)}  # wrong


@wrong("result-dropped")
def drop_nested(x: Ptr[u32], n: N) -> None:
    ((add.u32(n, 1), 3), 4)  # wrong


@wrong("result-dropped")
def drop_any(x: Ptr[u32], n: N) -> None:
    list(map(lambda i: add.u32(n, i), range(2)))  # wrong


@wrong("result-guarded")
def guardcarry(x: Ptr[f32], n: N) -> None:
    with for_range(n, t=mov.f32(0.0)) as rounds:
        rounds.t = add.rn.f32(rounds.t, 1.0, pred=rounds.index > 3)  # wrong
    st.global_.f32(x, rounds.t)


@wrong("result-guarded")
def guardcarry2(x: Ptr[f32], n: N) -> None:
    t = mov.f32(0.0)
    with for_range(n) as i:
        add.rn.f32(t, t, ld.global_.f32(x.at(i), pred=i < 8))  # wrong
    st.global_.f32(x, t)


@wrong("stands here without a call")
def uncalled_sync(x: Ptr[u32], n: N) -> None:
    b = NamedBarrier(128)
    b.sync  # wrong


@wrong("stands here without a call")
def uncalled_advance(x: Ptr[u32], n: N) -> None:
    r = Ring(2)
    r.advance  # wrong


@wrong("stands here without a call")
def uncalled_break(x: Ptr[u32], n: N) -> None:
    with loop() as rounds:
        with if_(n == 0):
            rounds.break_  # wrong
        rounds.break_if(n == 3)


@wrong("stands here without a call")
def uncalled_pipe(x: Ptr[u32], n: N) -> None:
    p = Pipeline(2, consumers=128, bytes=16)
    p.init  # wrong


@right
def drop_kept(x: Ptr[u32], n: N) -> None:
    a, b = add.u32(n, 1), add.u32(n, 2)
    st.global_.v2.u32(x, (a, b))


@right
def drop_arg(x: Ptr[u32], n: N) -> None:
    f = lambda v: st.global_.u32(x, v)
    f(add.u32(n, 1))


@right
def drop_lambda_kept(x: Ptr[u32], n: N) -> None:
    f = lambda k: add.u32(n, k)
    st.global_.u32(x, f(1))


@right
def drop_sort(x: Ptr[u32], n: N) -> None:
    kept = []
    kept.extend(add.u32(n, i) for i in range(2))
    kept.extend(map(lambda i: n + i, range(2)))
    st.global_.v4.u32(x, tuple(kept))


@right
def drop_helper_opt(x: Ptr[u32], n: N) -> None:
    def put(v):
        st.global_.u32(x, v)
        return v + 1

    st.global_.u32(x, put(put(n)))
    put(n)


@right
def stmts_tuple(x: Ptr[u32], n: N) -> None:
    st.global_.u32(x, n), st.global_.u32(x + 1, n)
    [st.global_.u32(x + i, n) for i in range(3)]


@right
def in_place_tuple(x: Ptr[u32], n: N) -> None:
    add.u32(n, n, 1), add.u32(n, n, 2)


@right
def called_methods(x: Ptr[u32], n: N) -> None:
    b = NamedBarrier(128)
    sync = b.sync
    sync()
    b.sync()


@right
def guarded_in_place(x: Ptr[f32], n: N) -> None:
    with for_range(n, t=mov.f32(0.0)) as rounds:
        add.rn.f32(rounds.t, rounds.t, 1.0, pred=rounds.index > 3)
    st.global_.f32(x, rounds.t)


@right
def guarded_both(x: Ptr[f32], n: N) -> None:
    t = mov.f32(0.0)
    with for_range(n) as i:
        p = i < 8
        v = ld.global_.f32(x.at(i), pred=p)
        mov.f32(v, 0.0, pred=~p)
        add.rn.f32(t, t, v)
    st.global_.f32(x, t)


@right
def guarded_same(x: Ptr[f32], n: N) -> None:
    t = mov.f32(0.0)
    with for_range(n) as i:
        p = i < 8
        v = ld.global_.f32(x.at(i), pred=p)
        add.rn.f32(t, t, v, pred=p)
    st.global_.f32(x, t)


@right
def guarded_selp(x: Ptr[f32], n: N) -> None:
    t = mov.f32(0.0)
    with for_range(n) as i:
        p = i < 8
        v = selp.f32(ld.global_.f32(x.at(i), pred=p), 0.0, p)
        add.rn.f32(t, t, v)
    st.global_.f32(x, t)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
