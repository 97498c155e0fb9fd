"""Softmax over parts of the keys, put together: each part has a maximum, and a sum of weights and of weighted values relative to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptxkit import Ptr, Reg
from ptxkit.fragments import pack
from ptxkit.ptx import add, ex2, fma, lg2, mov, mul, rcp, selp, setp, st, sub
from ptxkit.ptx import max as max_
from ptxkit.types import Scalar, b8, b16, b32, f32, u32

from .softmax import LEAST, LN2

QUAD = 4                                # neighbouring elements of a row that a thread puts together


class Merge:
    """The parts of some elements of one row so far. Maxima are exponents of 2; parts are added in the order of the calls."""

    def __init__(self) -> None:
        self.top, self.total = mov.f32(LEAST), mov.f32(0.0)
        self.values = [mov.f32(0.0) for _ in range(QUAD)]

    def raise_to(self, top: Reg[f32]) -> None:
        """See a part's maximum. All are seen before the first is added."""
        max_.f32(self.top, self.top, top)

    def add(self, top: Reg[f32], total: Reg[f32], values: Iterable[Reg[f32]]) -> None:
        """Add a part. One without keys has a factor of 0."""
        factor = ex2.approx.ftz.f32(sub.rn.f32(top, self.top))
        fma.rn.f32(self.total, total, factor, self.total)
        for value, more in zip(self.values, values, strict=True):
            fma.rn.f32(value, more, factor, value)

    def join(self, parts: Sequence[tuple[Reg[f32], Reg[f32], Iterable[Reg[f32]]]]) -> None:
        """Add some more parts. What was added before is scaled down to their maximum."""
        before = mov.f32(self.top)
        for top, _, _ in parts:
            self.raise_to(top)
        factor = ex2.approx.ftz.f32(sub.rn.f32(before, self.top))
        for value in (self.total, *self.values):
            mul.rn.f32(value, value, factor)
        for part in parts:
            self.add(*part)

    def store(self, type: type[Scalar], out: Ptr[b8], column: Reg[u32], lse: Ptr[f32] | None) -> None:
        """Store outputs, and from column 0 the log-sum-exp: 0 and -inf where there is no key."""
        share = selp.f32(0.0, rcp.approx.ftz.f32(self.total), setp.le.f32(self.top, LEAST))
        low, high = (pack(type, *(mul.rn.f32(value, share) for value in self.values[first:first + 2])) for first in (0, 2))
        st.global_.v2.b32(out.cast(b16).at(column).cast(b32), (low, high))
        if lse is not None:
            logarithm = mul.rn.f32(add.rn.f32(self.top, lg2.approx.ftz.f32(self.total)), LN2)
            st.global_.f32(lse, logarithm, pred=column == 0)


__all__ = ["QUAD", "Merge"]
