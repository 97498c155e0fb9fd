"""Quotients: rounded up, and by numbers that the device alone knows, whose inverses lie in shared memory if they are small."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptxkit import Reg, if_, smem
from ptxkit.flow import else_
from ptxkit.idioms import inverse, quotient
from ptxkit.ptx import ld, mov, st
from ptxkit.smem import Shared
from ptxkit.types import u32


def rounded_up(n: Reg[u32], by: Reg[u32] | int, inverse_of_by: Reg[u32] | None = None) -> Reg[u32]:
    """n / by, rounded up; see `ptxkit.idioms.quotient`."""
    return n if isinstance(by, int) and by == 1 else quotient(n + (by - 1), by, inverse_of_by)


@dataclass(frozen=True, slots=True)
class SmallInverses:
    """Those of 1 to 32 (`ptxkit.idioms.inverse`). The lanes of a warp make one each, behind which a barrier stands; whoever divides by such
    a number then waits for a load from shared memory, instead of a reciprocal of its own."""

    words: Shared[u32] = field(init=False)

    MOST = 32
    BYTES = 4 * MOST                            # of shared memory

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", smem.array(u32, self.MOST, name="inverses"))

    def make(self, lane: Reg[u32]) -> None:
        """By one warp."""
        st.shared__cta.u32(self.words.at(lane), inverse(lane + 1))

    def of(self, by: Reg[u32]) -> Reg[u32]:
        """The inverse of 1 to 32."""
        return ld.shared__cta.u32(self.words.at(by - 1))

    def of_any(self, by: Reg[u32]) -> Reg[u32]:
        """The inverse of a number from 1 on; of more than 32 by a division."""
        known = mov.u32(0)
        with if_(by <= self.MOST):
            mov.u32(known, self.of(by))
        with else_():
            mov.u32(known, inverse(by))
        return known


__all__ = ["SmallInverses", "rounded_up"]
