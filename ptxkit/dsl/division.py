"""Division of u32 by multiplication. It needs the inverse of the divisor, which the host or an earlier instruction computes."""

from __future__ import annotations

from typing import overload

from .. import ptx
from ..errors import TraceError
from ..types import u32
from .reg import Reg


@overload
def inverse(by: int) -> int: ...
@overload
def inverse(by: Reg[u32]) -> Reg[u32]: ...
def inverse(by: int | Reg[u32]) -> int | Reg[u32]:
    """What `quotient` multiplies by: (2^32 - 1) / `by`, rounded down. For an int the host computes it; for a register it is one div.u32."""
    if isinstance(by, Reg):
        return ptx.div.u32(0xFFFF_FFFF, by)
    if not 1 <= by < 1 << 32:
        raise TraceError(f"{by} has no inverse: quotients are of u32, by 1 to 2^32 - 1")
    return ((1 << 32) - 1) // by


def fast_div(n: Reg[u32], by: Reg[u32] | int, inverse_of_by: Reg[u32] | int | None = None) -> Reg[u32]:
    """n // by for any n. By a power of two it is one shr; else mul.hi, mul.lo, sub, setp.ge, add.

    ptxas makes 14 to 19 instructions of a div, which wait for a reciprocal. When `by` is a register, `inverse_of_by` is its `inverse`;
    without it the quotient is a div.u32.
    """
    if isinstance(by, int) and by & (by - 1):
        inverse_of_by = inverse(by)
    if inverse_of_by is None:
        return n // by
    found = ptx.mul.hi.u32(n, inverse_of_by)                    # the quotient, or one less
    rest = ptx.sub.u32(n, ptx.mul.lo.u32(found, by))
    return ptx.add.u32(found, found, 1, pred=rest >= by)
