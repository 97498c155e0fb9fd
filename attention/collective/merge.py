"""Softmax over parts of the keys, put together: each part has a maximum, and a sum of weights and of weighted values relative to it."""

from __future__ import annotations

from collections.abc import Sequence

from ptxkit import Ptr, Reg
from ptxkit.ptx import add, ex2, fma, lg2, mov, mul, opcode, rcp, selp, setp, st, sub
from ptxkit.ptx import max as max_
from ptxkit.types import Scalar, b8, b16, f32, u32

from .softmax import LEAST, LN2


class Merge:
    """The parts of one row so far. Maxima are exponents of 2; parts are added in the order of the calls."""

    def __init__(self) -> None:
        self.top, self.total, self.value = mov.f32(LEAST), mov.f32(0.0), mov.f32(0.0)

    def raise_to(self, top: Reg[f32]) -> None:
        """See a part's maximum. All are seen before the first is added."""
        max_.f32(self.top, self.top, top)

    def add(self, top: Reg[f32], total: Reg[f32], value: Reg[f32]) -> None:
        """Add a part. One without keys has a factor of 0."""
        factor = ex2.approx.ftz.f32(sub.rn.f32(top, self.top))
        fma.rn.f32(self.total, total, factor, self.total)
        fma.rn.f32(self.value, value, factor, self.value)

    def join(self, parts: Sequence[tuple[Reg[f32], Reg[f32], Reg[f32]]]) -> None:
        """Add some more parts. What was added before is scaled down to their maximum."""
        before = mov.f32(self.top)
        for top, _, _ in parts:
            self.raise_to(top)
        factor = ex2.approx.ftz.f32(sub.rn.f32(before, self.top))
        mul.rn.f32(self.total, self.total, factor)
        mul.rn.f32(self.value, self.value, factor)
        for part in parts:
            self.add(*part)

    def store(self, type: type[Scalar], out: Ptr[b8], column: Reg[u32], lse: Ptr[f32] | None) -> None:
        """Store an output, and from column 0 the log-sum-exp: 0 and -inf where there is no key."""
        share = selp.f32(0.0, rcp.approx.ftz.f32(self.total), setp.le.f32(self.top, LEAST))
        value = mul.rn.f32(self.value, share)
        word: Reg[b16] = mov.b16(opcode(f"cvt.rn.{type.__name__}.f32")(value))
        st.global_.b16(out.cast(b16).at(column), word)
        if lse is not None:
            logarithm = mul.rn.f32(add.rn.f32(self.top, lg2.approx.ftz.f32(self.total)), LN2)
            st.global_.f32(lse, logarithm, pred=column == 0)


__all__ = ["Merge"]
