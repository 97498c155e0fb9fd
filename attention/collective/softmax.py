"""The online softmax of a warpgroup's 64 rows of scores, in registers."""

from __future__ import annotations

import math
from typing import Any

from ptxkit import Reg, Vec, if_
from ptxkit.fragments import rows_of
from ptxkit.ptx import add, ex2, fma, lg2, mov, mul, opcode, rcp, selp, setp, sub, vote
from ptxkit.ptx import max as max_
from ptxkit.reductions import warp_reduce
from ptxkit.types import Scalar, f32, pred, s32

ALL = 0xFFFFFFFF
LN2 = math.log(2)
LEAST = -3.4028234663852886e38           # the least finite f32
FLOOR = -2.0**126            # a maximum of no keys, and that times the scale, are finite: -inf - -inf is NaN
CHAINS = 2                  # independent chains of maxima and of sums for each row: they hide the latency of max and add


def over_row(operation: Any, value: Reg[f32]) -> Reg[f32]:
    """Reduce over the four lanes that hold a row of the accumulators."""
    return warp_reduce(operation, value, lanes=4)


class OnlineSoftmax:
    """The maximum and the sum of a thread's two rows, r and r + 8, over the keys so far. The sum is over the thread's own columns.

    `scale` is that of the scores times log2 e, positive: exp(x) = exp2(x log2 e), and the scale costs nothing in the fma that subtracts the
    maximum.
    """

    def __init__(self, scale: Reg[f32]) -> None:
        self.scale = scale
        self.negated = mul.rn.f32(scale, -1.0)
        self.top, self.total = [self._floor() for _ in range(2)], [mov.f32(0.0) for _ in range(2)]

    def reset(self) -> None:
        """Begin with other rows."""
        for top, total in zip(self.top, self.total, strict=True):
            mov.f32(top, self._floor())
            mov.f32(total, 0.0)

    def _floor(self) -> Reg[f32]:
        """The maximum of no keys."""
        return mul.rn.f32(rcp.approx.ftz.f32(max_.f32(self.scale, 1.0)), FLOOR)

    def weigh(self, scores: Vec[f32, Any]) -> list[Reg[f32]]:
        """Turn scores into weights, in place. Returns a factor for each of the two rows: earlier outputs are multiplied by it.

        It rescales them from the old maximum to the new one. At the first keys it is 0. A score of -inf, masked or computed, has the weight
        0, also where the row has no other one yet.
        """
        factors = []
        for own, top, total in zip(rows_of(scores), self.top, self.total, strict=True):
            highest = max_.f32(top, over_row(max_.f32, _chained(max_.f32, list(own))))
            minus = mul.rn.f32(highest, self.negated)
            factor = ex2.approx.ftz.f32(self._fall(top, minus))
            mov.f32(top, highest)
            for score in own:
                ex2.approx.ftz.f32(score, fma.rn.f32(score, self.scale, minus))
            fma.rn.f32(total, total, factor, _chained(add.rn.f32, list(own)))
            factors.append(factor)
        return factors

    def _fall(self, top: Reg[f32], minus: Reg[f32]) -> Reg[f32]:
        """The exponent of the factor from an old maximum to the new one, whose product with the negated scale is `minus`.

        The difference of two rounded products, for the weights have one of them in their exponents. So the factor is 1 where the maximum
        stays. An fma would leave the rounding of one product, which grows with the maximum, and is 2^102 at that of no keys.
        """
        return sub.rn.f32(minus, mul.rn.f32(top, self.negated))

    def rescale(self, output: Vec[f32, Any], factors: list[Reg[f32]]) -> None:
        """Scale a thread's two rows of the output, in place."""
        rescale(output, factors)

    def exponents(self) -> list[Reg[f32]]:
        """The maxima of the two rows times the scale; `LEAST` for a row of no keys."""
        return [selp.f32(LEAST, mul.rn.f32(top, self.scale), setp.le.f32(top, self._floor())) for top in self.top]

    def finish(self) -> tuple[list[Reg[f32]], list[Reg[f32]]]:
        """The factors that normalise the two rows, and the natural logarithms of their sums of exponentials; 0 and -inf for a row whose
        scores are all -inf."""
        factors, logarithms = [], []
        for top, total in zip(self.top, self.total, strict=True):
            whole = over_row(add.rn.f32, total)
            factors.append(selp.f32(0.0, rcp.approx.ftz.f32(whole), setp.le.f32(top, self._floor())))
            logarithms.append(mul.rn.f32(fma.rn.f32(top, self.scale, lg2.approx.ftz.f32(whole)), LN2))
        return factors, logarithms


class LazySoftmax(OnlineSoftmax):
    """A row keeps its maximum until a score is more than `SLACK` above it, in powers of two: then outputs are seldom rescaled.

    Weights are at most 2^SLACK, which f32, bf16 and f16 hold as precisely as smaller ones. A warp without a row that takes a new maximum
    skips the rescaling; what a row gets does not depend on other rows.
    """

    SLACK = 8.0
    takes: Reg[pred]                            # whether a row of this warp has taken a new maximum

    def weigh(self, scores: Vec[f32, Any]) -> list[Reg[f32]]:
        """As without slack; a row that keeps its maximum has the factor 1."""
        factors, takes = [], []
        for own, top, total in zip(rows_of(scores), self.top, self.total, strict=True):
            highest = max_.f32(top, over_row(max_.f32, _chained(max_.f32, list(own))))
            fall = self._fall(top, mul.rn.f32(highest, self.negated))
            taken = setp.lt.f32(fall, -self.SLACK)
            factor = selp.f32(ex2.approx.ftz.f32(fall), 1.0, taken)
            selp.f32(top, highest, top, taken)
            minus = mul.rn.f32(top, self.negated)
            for score in own:
                ex2.approx.ftz.f32(score, fma.rn.f32(score, self.scale, minus))
            fma.rn.f32(total, total, factor, _chained(add.rn.f32, list(own)))
            factors.append(factor)
            takes.append(taken)
        self.takes = vote.sync.any.pred(takes[0] | takes[1], ALL)
        return factors

    def rescale(self, output: Vec[f32, Any], factors: list[Reg[f32]]) -> None:
        """Scale a thread's two rows of the output, if a row of the warp has taken a new maximum."""
        with if_(self.takes):
            rescale(output, factors)


def rescale(output: Vec[f32, Any], factors: list[Reg[f32]]) -> None:
    """Scale a thread's two rows of the output, in place."""
    for held, factor in zip(rows_of(output), factors, strict=True):
        for value in held:
            mul.rn.f32(value, value, factor)


def pack_weights(type: type[Scalar], scores: Vec[f32, Any], weights: list[Vec[Any, Any]]) -> None:
    """The weights as operand A of the second product, in place: registers in the order of `ptxkit.fragments.operands_a`."""
    pack = opcode(f"cvt.rn.{type.__name__}x2.f32")
    values = list(scores)
    for number, word in enumerate(word for fragment in weights for word in fragment):
        pack(word, values[2 * number + 1], values[2 * number])


def mask_columns(scores: Vec[f32, Any], limits: list[Reg[s32]]) -> None:
    """Set to -inf the scores of columns at or past each row's limit, counted from the thread's first column of the tile."""
    for own, limit in zip(rows_of(scores), limits, strict=True):
        for number, score in enumerate(own):
            column = number // 2 * 8 + number % 2
            selp.f32(score, score, -math.inf, setp.gt.s32(limit, column))


def _chained(operation: Any, values: list[Reg[f32]]) -> Reg[f32]:
    """The reduction of values in `CHAINS` interleaved chains."""
    chains = values[:CHAINS]
    for number, value in enumerate(values[CHAINS:]):
        chains[number % CHAINS] = operation(chains[number % CHAINS], value)
    found = chains[0]
    for other in chains[1:]:
        found = operation(found, other)
    return found


__all__ = ["LEAST", "LazySoftmax", "OnlineSoftmax", "mask_columns", "pack_weights", "rescale"]
