"""FastDivmod on the device: division by multiplication, with a table in shared memory for small divisors known only at run time."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptxkit import Reg, if_, smem
from ptxkit.flow import else_
from ptxkit.idioms import fast_div, inverse
from ptxkit.ptx import ld, mov, st
from ptxkit.smem import Shared
from ptxkit.types import u32


def ceil_div(n: Reg[u32], by: Reg[u32] | int, inverse_of_by: Reg[u32] | None = None) -> Reg[u32]:
    """n / by, rounded up. See `ptxkit.idioms.fast_div`."""
    return n if isinstance(by, int) and by == 1 else fast_div(n + (by - 1), by, inverse_of_by)


@dataclass(frozen=True, slots=True)
class DivmodTable:
    """The inverses (`ptxkit.idioms.inverse`) of the divisors 1 to 32, in shared memory.

    Each lane of one warp computes one of them; a barrier must follow. A division then waits for a load from shared memory instead of a
    reciprocal.
    """

    words: Shared[u32] = field(init=False)

    MAX_DIVISOR = 32
    BYTES = 4 * MAX_DIVISOR                     # of shared memory

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", smem.array(u32, self.MAX_DIVISOR, name="inverses"))

    def make(self, lane: Reg[u32]) -> None:
        """Fill the table; executed by one warp."""
        st.shared__cta.u32(self.words.at(lane), inverse(lane + 1))

    def of(self, by: Reg[u32]) -> Reg[u32]:
        """The inverse of a divisor from 1 to 32."""
        return ld.shared__cta.u32(self.words.at(by - 1))

    def of_any(self, by: Reg[u32]) -> Reg[u32]:
        """The inverse of any divisor from 1. Above 32 it takes a division."""
        known = mov.u32(0)
        with if_(by <= self.MAX_DIVISOR):
            mov.u32(known, self.of(by))
        with else_():
            mov.u32(known, inverse(by))
        return known


__all__ = ["DivmodTable", "ceil_div"]
