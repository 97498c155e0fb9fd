"""Quotients by numbers that the device alone knows, without a div in the way: the inverses of small ones lie in shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptxkit import Reg, if_, smem
from ptxkit.flow import else_
from ptxkit.idioms import quotient
from ptxkit.ptx import div, ld, mov, st
from ptxkit.smem import Shared
from ptxkit.types import u32

ONES = 0xFFFF_FFFF
"""What is divided by a number for its inverse."""


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
        st.shared__cta.u32(self.words.at(lane), div.u32(ONES, lane + 1))

    def of(self, by: Reg[u32]) -> Reg[u32]:
        """The inverse of 1 to 32."""
        return ld.shared__cta.u32(self.words.at(by - 1))

    def quotient(self, n: Reg[u32], by: Reg[u32]) -> Reg[u32]:
        """n // by for any n, and `by` from 1 on; of more than 32 by a division."""
        known = mov.u32(0)
        with if_(by <= self.MOST):
            mov.u32(known, self.of(by))
        with else_():
            mov.u32(known, div.u32(ONES, by))
        return quotient(n, by, known)


__all__ = ["ONES", "SmallInverses"]
