"""Chains of additions and products that hand on a carry: `.cc` writes it, `addc`, `subc`, `madc` read it.

The carry belongs to the fragment, one bit a lane. Of a subtraction it is the borrow's complement.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...grammar.operands import width
from ..program import Op
from ..values import DTYPES, Array, array_of, merge, signed
from .registry import Run, action


@action("add.cc", "addc", "sub.cc", "subc", "mad.lo.cc", "mad.hi.cc", "madc")
def chain(op: Op) -> Run:
    type, name = op.bindings["type"], op.tokens[0]
    bits = width(type)
    ones = (1 << bits) - 1
    reads, writes = name in ("addc", "subc", "madc"), op.has("cc")

    def one(carry: int, a: int, b: int, c: int) -> int:
        if name.startswith("sub"):
            return a + (b ^ ones) + (carry if reads else 1)
        if name.startswith("add"):
            return a + b + carry
        product = signed(a, bits) * signed(b, bits) if type[0] == "s" else a * b
        return (product >> bits if op.has("hi") else product) % (ones + 1) + c + carry

    def run(f: Any, mask: int, a: Any, b: Any, c: Any = 0) -> Any:
        carry = f.carry if reads else 0
        if all(isinstance(value, int) for value in (carry, a, b, c)):
            total = one(carry, a, b, c)
            if writes:
                f.carry = merge(mask, total >> bits, f.carry, 8)
            return total & ones
        values = np.broadcast_arrays(array_of(carry, 8), *(array_of(value, bits) for value in (a, b, c)))
        totals = [one(*lane) for lane in zip(*(v.tolist() for v in values), strict=True)]
        if writes:
            f.carry = merge(mask, _lanes([total >> bits for total in totals], 8), f.carry, 8)
        return _lanes([total & ones for total in totals], bits)

    return run


def _lanes(values: list[int], bits: int) -> Array:
    return np.array(values, DTYPES[bits])
