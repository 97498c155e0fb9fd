"""`x += y` and its like, of each value of a trace: the name would silently stand for another one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from ptxkit import Ptr, Reg, for_range, kernel, smem, tid
from ptxkit.ptx import ld, mov, st
from ptxkit.types import bf16, u32
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
SIGNS = ("iadd", "isub", "imul", "ifloordiv", "imod", "iand", "ior", "ixor", "ilshift", "irshift", "itruediv", "ipow", "imatmul")
VALUES: dict[str, Callable[[Ptr[u32], Reg[u32]], Any]] = {
    "register": lambda x, n: n, "signed": lambda x, n: mov.s32(n), "float": lambda x, n: mov.f32(1.0), "wide": lambda x, n: mov.u64(1),
    "predicate": lambda x, n: n < 3, "negated": lambda x, n: ~(n < 3), "special": lambda x, n: tid.x, "pointer": lambda x, n: x,
    "Vec": lambda x, n: ld.global_.v2.u32(x), "array": lambda x, n: smem.array(u32, 8), "element": lambda x, n: smem.array(u32, 8)[1],
    "tile": lambda x, n: smem.tile(bf16, (64, 64)), "view": lambda x, n: smem.tile(bf16, (64, 64))[0],
    "barrier": lambda x, n: smem.mbarrier(2)[0],
}


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("name", VALUES)
def test_nothing_is_bound_in_silence(name: str, sign: str) -> None:
    def wrong(x: Ptr[u32], n: Reg[u32]) -> None:
        getattr(operator, sign)(VALUES[name](x, n), n < 2 if name in ("predicate", "negated") else 2)

    refused(wrong)


def negated(x: Ptr[u32], n: Reg[u32]) -> None:
    q = ~(n < 3)
    q &= n > 1                                                                   # wrong


def pointer(x: Ptr[u32], n: Reg[u32]) -> None:
    with for_range(n):
        x += 1                                                                   # wrong


def element(x: Ptr[u32], n: Reg[u32]) -> None:
    place = smem.array(u32, 8)[1]
    place += 1                                                                   # wrong


@pytest.mark.parametrize(("function", "words"), [
    (negated, ("write `z = x & y`", "begin with a register, `x = not_.pred(p)`, and then `and_.pred(x, x, y)`")),
    (pointer, ("write `z = x + y`", "`with for_range(n, p=p) as loop:` and `loop.p = loop.p + 1`")),
    (element, ("write `z = x + y`", "index it by a register, `a.at(i)`")),
])
def test_the_way_out_is_said(function: Callable[..., None], words: tuple[str, ...]) -> None:
    refused(function, *words)


def test_the_ways_out_are_right() -> None:
    from ptxkit.ptx import and_, not_

    def right(x: Ptr[u32], n: Reg[u32]) -> None:
        q = not_.pred(n < 3)
        and_.pred(q, q, n > 1)
        z = ~(n < 3) & (n > 1)
        with for_range(n, p=x) as loop:
            st.global_.u32(loop.p, n, pred=q)
            loop.p = loop.p + 1
        st.global_.u32(loop.p, n, pred=z)

    trace(right)
    assert kernel(block=32)(right).ptx().count("and.pred") == 2
