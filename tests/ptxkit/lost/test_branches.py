"""What an `if_` or `else_` body binds to a value of before: in a name, a slot, an attribute, a closure."""

from __future__ import annotations

import contextlib

import pytest

from ptxkit import Ptr, Vec, else_, for_range, if_
from ptxkit.ptx import ld, mov, selp, st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Holder, Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("only binds the name `")
def if_slot(x: Ptr[u32], n: N) -> None:
    best, v = [mov.u32(0)], ld.global_.u32(x)
    with if_(v > best[0]):
        best[0] = v  # wrong
    st.global_.u32(x, best[0])


@wrong("only binds the name `")
def if_dict(x: Ptr[u32], n: N) -> None:
    best, v = {"a": mov.u32(0)}, ld.global_.u32(x)
    with if_(v > 3):
        best["a"] = v  # wrong
    st.global_.u32(x, best["a"])


@wrong("only binds the name `")
def if_attr(x: Ptr[u32], n: N) -> None:
    best, v = Holder(mov.u32(0)), ld.global_.u32(x)
    with if_(v > 3):
        best.t = v  # wrong
    st.global_.u32(x, best.t)


@wrong("only binds the name `")
def if_vec(x: Ptr[u32], n: N) -> None:
    a, b = Vec([mov.u32(0), mov.u32(1)]), Vec([mov.u32(2), mov.u32(3)])
    with if_(n > 3):
        a = b  # wrong
    st.global_.v2.u32(x, a)


@wrong("only binds the name `")
def if_ptr(x: Ptr[u32], y: Ptr[u32], n: N) -> None:
    with if_(n > 3):
        x = y  # wrong
    st.global_.u32(x, n)


@wrong("only binds the name `")
def if_nonlocal(x: Ptr[u32], n: N) -> None:
    best, v = mov.u32(0), ld.global_.u32(x)

    def put():
        nonlocal best
        best = v  # wrong

    with if_(v > 3):
        put()
    st.global_.u32(x, best)


@wrong("only binds the name `")
def if_closure_read(x: Ptr[u32], n: N) -> None:
    best, v = mov.u32(0), ld.global_.u32(x)

    def out():
        st.global_.u32(x, best)

    with if_(v > 3):
        best = v  # wrong
    out()


@wrong("only binds the name `")
def if_ptr_offset(x: Ptr[u32], n: N) -> None:
    with if_(n > 3):
        x = x + 4  # wrong
    st.global_.u32(x, n)


@wrong("only binds the name `")
def if_negated(x: Ptr[u32], n: N) -> None:
    p = n > 3
    q = n > 4
    with if_(q):
        p = ~p  # wrong
    st.global_.u32(x, n, pred=p)


@wrong("only binds the name `")
def else_slot(x: Ptr[u32], n: N) -> None:
    best, v = [mov.u32(0)], ld.global_.u32(x)
    with if_(v > 3):
        pass
    with else_():
        best[0] = v  # wrong
    st.global_.u32(x, best[0])


@wrong()
def raised(x: Ptr[u32], n: N) -> None:
    try:
        with if_(n == 0):  # wrong
            raise KeyError
    except KeyError:
        pass
    st.global_.u32(x, 1)


@wrong()
def suppressed(x: Ptr[u32], n: N) -> None:
    with contextlib.suppress(KeyError):
        with for_range(n):  # wrong
            {}["a"]
    st.global_.u32(x, 1)


@wrong()
def entered(x: Ptr[u32], n: N) -> None:
    b = if_(n == 0)
    b.__enter__()  # wrong
    st.global_.u32(x, 1)


@wrong()
def exitstack_kept(x: Ptr[u32], n: N) -> None:
    s = contextlib.ExitStack()
    s.enter_context(if_(n == 0))  # wrong
    st.global_.u32(x, 1)


@wrong()
def generator_unfinished(x: Ptr[u32], n: N) -> None:
    def rows():
        with for_range(n) as i:  # wrong
            yield i

    for i in rows():
        st.global_.u32(x, i)
        break
    st.global_.u32(x, 1)


@right
def if_alias(x: Ptr[u32], y: Ptr[u32], n: N) -> None:
    with if_(n > 3):
        here = x
        st.global_.u32(here, n)
    with else_():
        here = y
        st.global_.u32(here, n)


@right
def if_place(x: Ptr[u32], n: N) -> None:
    place = x
    with if_(n > 3):
        place = x + 4
        st.global_.u32(place, n)


@right
def if_slot_in_place(x: Ptr[u32], n: N) -> None:
    best = [mov.u32(0)]
    with if_(n > 3):
        mov.u32(best[0], n)
    st.global_.u32(x, best[0])


@right
def if_slot_back(x: Ptr[u32], n: N) -> None:
    best, kept = [mov.u32(0)], n
    with if_(n > 3):
        old = best[0]
        best[0] = kept
        st.global_.u32(x, best[0])
        best[0] = old
    st.global_.u32(x, best[0])


@right
def if_slot_unread(x: Ptr[u32], n: N) -> None:
    state = Holder(mov.u32(0))
    with if_(n > 3):
        state.t = n
        st.global_.u32(x, state.t)


@right
def if_slot_set_again(x: Ptr[u32], n: N) -> None:
    state, a = Holder(mov.u32(0)), mov.u32(3)
    with if_(n > 3):
        state.t = a
        st.global_.u32(x, state.t)
    state.t = n
    st.global_.u32(x, state.t)


@right
def if_new_slot(x: Ptr[u32], n: N) -> None:
    memo = {}
    with if_(n > 3):
        memo["row"] = n
    st.global_.u32(x, memo["row"])


@right
def selected(x: Ptr[u32], n: N) -> None:
    best, v = mov.u32(0), ld.global_.u32(x)
    best = selp.u32(v, best, v > best)
    st.global_.u32(x, best)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
