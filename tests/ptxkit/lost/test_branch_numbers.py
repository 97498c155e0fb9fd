"""Python's own numbers, flags and functions that an `if_` or `else_` body binds: it does so once, while tracing, and not on the GPU."""

# ruff: noqa: E731

from __future__ import annotations

from enum import Enum

import pytest

from ptxkit import Ptr, else_, for_range, if_
from ptxkit.ptx import add, mul, st
from ptxkit.types import f32, u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


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


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
