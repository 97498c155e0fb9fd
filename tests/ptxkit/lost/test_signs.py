"""Comparisons, quotients and constants whose two sides have different signs."""

from __future__ import annotations

import pytest

from ptxkit import Reg, for_range, tid
from ptxkit.dsl.raw import raw
from ptxkit.ptx import div, max, mov, setp, sub
from ptxkit.types import b32, s32, u32, u64
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]


def test_comparisons_of_unsigned_registers() -> None:
    def below_zero(n: Numbers) -> None:
        _ = n < 0

    def at_least_zero(n: Reg[u64]) -> None:
        _ = n >= 0

    def negative(n: Numbers) -> None:
        _ = n > -1

    def equal(n: Numbers) -> None:
        _ = n == -1

    def bits(n: Reg[b32]) -> None:
        _ = n < -1

    def mixed(n: Numbers, m: Reg[s32]) -> None:
        _ = n < m

    def special(m: Reg[s32]) -> None:
        _ = m == tid.x

    def large(m: Reg[s32]) -> None:
        _ = m < 0xFFFFFFFF

    def quotient(n: Numbers) -> None:
        _ = n // -2

    def rest(n: Numbers, m: Reg[s32]) -> None:
        _ = m % n

    def rounds(m: Reg[s32]) -> None:
        with for_range(m):                                                       # wrong
            pass

    for wrong, words in ((below_zero, "is always False"), (at_least_zero, "is always True"), (negative, "`mov.s32(x) > -1`"),
                         (equal, "for these bits 4294967295"), (bits, "`mov.s32(x) < -1`"), (mixed, "`mov.s32(x) < mov.s32(y)`"),
                         (special, "`mov.u32(x) == mov.u32(y)`"), (large, "write -1, or `mov.u32(x) < 4294967295`"),
                         (quotient, "`mov.s32(x) // -2`"), (rest, "`mov.s32(x) % mov.s32(y)`"), (rounds, "`mov.u32(max.s32(n, 0))`")):
        refused(wrong, words)

    def right(n: Numbers, m: Reg[s32], b: Reg[b32]) -> None:
        n > 0, n <= 0, n == 0, n < 0xFFFFFFFF, m < 0, m >= -1, m == -1, b == -1, b == m, mov.s32(n) < 0, mov.s32(n) > -1
        _ = mov.s32(n) < mov.s32(tid.x)

    trace(right)


def test_constants_of_opcodes() -> None:
    def below_zero(n: Numbers) -> None:
        setp.lt.u32(n, 0)

    def at_least_zero(n: Reg[u64]) -> None:
        setp.ge.u64(n, 0)

    def negative(n: Numbers) -> None:
        setp.hi.u32(n, -2)

    def combined(n: Numbers) -> None:
        setp.le.and_.u32(n, -2, n == 0)

    def large(m: Reg[s32]) -> None:
        setp.lt.s32(m, 0xFFFFFFFE)

    def clamp(n: Numbers) -> None:
        max.u32(n, 0)

    def quotient(n: Numbers) -> None:
        div.u32(n, -2)

    def left(n: Numbers) -> None:
        setp.le.u32(0, n)

    def left_below(n: Numbers) -> None:
        setp.hi.u32(0, n)

    def left_negative(n: Numbers) -> None:
        max.u32(-1, n)

    for wrong, words in ((below_zero, "always False: a .u32"), (at_least_zero, "`setp.ge.s64`"),
                         (negative, "`setp.gt.s32`, for these bits 4294967294"),
                         (combined, "`setp.le.and.s32`"), (large, "write -2, or `setp.lt.u32`"), (clamp, "is the other operand"),
                         (quotient, "write `div.s32`"), (left, "`setp.le.u32(0, x)` is `setp.ge.u32(x, 0)`: `setp.ge.u32` with 0 is"),
                         (left_below, "always False"), (left_negative, "`max.s32`")):
        refused(wrong, words)

    def right(n: Numbers, m: Reg[s32]) -> None:
        setp.eq.u32(n, -1), setp.lt.s32(m, -1), setp.gt.u32(n, 0), setp.lt.s32(m, 0), setp.lt.u32(n, 0xFFFFFFFE), max.s32(m, 0)
        setp.lt.u32(0, n), setp.ge.u32(0, n), setp.eq.u32(-1, n), div.u32(0, n), sub.u32(0, n)
        setp.gt.u32(n, raw("-2147483648"))                                       # as compilers write 2^31

    trace(right)
