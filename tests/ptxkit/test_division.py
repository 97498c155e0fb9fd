"""Divisions: by operators, whose shifts and masks ptxas does not make by itself, and by products with an inverse."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, kernel, ptx
from ptxkit.errors import TraceError
from ptxkit.idioms import fast_div, inverse
from ptxkit.ptx import ld
from ptxkit.ptx import st as store
from ptxkit.types import u32
from tests.ptxkit.machine import kernel_of, lines, run, stored

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]


@pytest.mark.parametrize(("type_name", "by", "quotient_", "remainder"), [
    ("u32", 64, "shr.u32 %r2, %r0, 6;", "and.b32 %r2, %r0, 63;"), ("u32", 1, "shr.u32 %r2, %r0, 0;", "and.b32 %r2, %r0, 0;"),
    ("u64", 1 << 63, "shr.u64 %rd4, %rd2, 63;", "and.b64 %rd4, %rd2, 9223372036854775807;"),
    ("b32", 2, "shr.u32 %r2, %r0, 1;", "and.b32 %r2, %r0, 1;"),
    ("u32", 192, "div.u32 %r2, %r0, 192;", "rem.u32 %r2, %r0, 192;"), ("s32", 64, "div.s32 %r2, %r0, 64;", "rem.s32 %r2, %r0, 64;"),
])
def test_unsigned_division_by_a_power_of_two_shifts(type_name: str, by: int, quotient_: str, remainder: str) -> None:
    assert lines(kernel_of(type_name, lambda out, x, y: x // by))[0] == quotient_
    assert lines(kernel_of(type_name, lambda out, x, y: x % by))[0] == remainder


def test_division_by_0_is_refused() -> None:
    for divide in (operator.floordiv, operator.mod):
        with pytest.raises(TraceError, match="divided by 0"):
            kernel_of("u32", lambda out, x, y, divide=divide: divide(x, 0))


@pytest.mark.ptxas
def test_ptxas_makes_no_shift_of_a_division() -> None:
    """Else the operator would not have to."""
    def size(divide: Callable[[Any], Any]) -> int:
        @kernel(target="sm_90a", block=32)
        def divided(out: Ptr[u32]) -> None:
            store.global_.u32(out, divide(ld.global_.u32(out)))

        return len(divided.assemble().cubin)

    assert size(lambda x: x // 64) == size(lambda x: ptx.shr.u32(x, 6)) < size(lambda x: ptx.div.u32(x, 64))


EDGES = st.sampled_from([1, 2, 3, 64, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFE, 0xFFFF_FFFF])


@given(st.integers(0, 0xFFFF_FFFF) | EDGES, st.integers(1, 0xFFFF_FFFF) | st.integers(1, 300) | EDGES, st.integers(-2, 2),
       st.sampled_from(["constant", "from the host", "from the device", "none"]))
@settings(deadline=None, max_examples=400)
def test_a_quotient_is_exact_for_any_two_numbers(n: int, by: int, beside: int, how: str) -> None:
    """Also beside multiples, where the product with the inverse is one too low."""
    n = min(max(n // by * by + beside, 0), 0xFFFF_FFFF) if beside else n

    def body(out: Any, x: Any, y: Any) -> None:
        of_y = inverse(by) if how == "from the host" else inverse(y) if how == "from the device" else None
        store.global_.u32(out, fast_div(x, by) if how == "constant" else fast_div(x, y, of_y))

    assert stored(run(kernel_of("u32", body), {"out": 0, "x": n, "y": by})) == [n // by]


def test_an_inverse_of_nothing_is_refused() -> None:
    for by in (0, -1, 1 << 32):
        with pytest.raises(TraceError, match="no inverse"):
            inverse(by)
