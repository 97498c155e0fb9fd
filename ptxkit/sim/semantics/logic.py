"""Logic, shifts and comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...grammar.operands import width
from ..program import Op
from ..values import DTYPES, SIGNED, array_of, invert, signed, truth, uniform
from .registry import Inline, Run, pure

_OPERATORS = {"and": "&", "or": "|", "xor": "^"}
_UFUNCS: dict[str, Any] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@pure("and", "or", "xor")
def logic(op: Op) -> Inline:
    name = op.tokens[0]
    ufunc = _UFUNCS[name]
    if op.tokens[-1] == "pred":
        return Inline(lambda a, b: truth(np.asarray(ufunc(a, b))), f"{{0}} {_OPERATORS[name]} {{1}}")
    if name == "and":
        return Inline(lambda a, b: uniform(a & b), "{0} & {1}")
    return Inline(ufunc, f"{{0}} {_OPERATORS[name]} {{1}}")


@pure("not")
def not_(op: Op) -> Run:
    if op.tokens[-1] == "pred":
        return invert
    mask = (1 << width(op.bindings["type"])) - 1
    return Inline(lambda a: ~a, f"{{0}} ^ {mask}")  # type: ignore[return-value]


@pure("shl", "shr")
def shift(op: Op) -> Run | Inline:
    """Shifts of the width or more give 0, or the sign."""
    type = op.bindings["type"]
    bits = width(type)
    mask = (1 << bits) - 1
    left, arithmetic = op.tokens[0] == "shl", type[0] == "s"

    def one(a: int, b: int) -> int:
        if arithmetic:
            return signed(a, bits) >> min(b, bits - 1) & mask
        return (a << b & mask if left else a >> b) if b < bits else 0

    def run(a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            return one(a, b)
        x = array_of(a, bits)
        amount = np.minimum(array_of(b, 32), bits - 1).astype(x.dtype)
        if arithmetic:
            return uniform(np.broadcast_to(x.view(SIGNED[bits]) >> amount.view(SIGNED[bits]), 32).view(DTYPES[bits]))
        found = x << amount if left else x >> amount
        if not isinstance(b, int):
            found = np.where(b < bits, found, DTYPES[bits](0))
        elif b >= bits:
            return 0
        return found if left else uniform(found)

    return run


_COMPARE: dict[str, tuple[str, Any]] = {
    "eq": ("==", np.equal), "ne": ("!=", np.not_equal), "lt": ("<", np.less), "le": ("<=", np.less_equal), "gt": (">", np.greater),
    "ge": (">=", np.greater_equal), "lo": ("<", np.less), "ls": ("<=", np.less_equal), "hi": (">", np.greater),
    "hs": (">=", np.greater_equal)}


@pure("setp", types="b16 b32 b64 u16 u32 u64 s16 s32 s64")
def setp(op: Op) -> Run | Inline:
    type = op.bindings["type"]
    bits = width(type)
    operator, ufunc = _COMPARE[op.bindings["CmpOp"]]
    boolean = _UFUNCS.get(op.bindings.get("BoolOp", ""))
    both = op.operand("q") is not None
    is_signed = type[0] == "s"

    def compare(a: Any, b: Any) -> Any:
        x, y = array_of(a, bits), array_of(b, bits)
        if is_signed:
            x, y = x.view(SIGNED[bits]), y.view(SIGNED[bits])
        found = ufunc(x, y)
        return bool(found[0]) if found.size == 1 else truth(found)

    if boolean is None and not both:
        return compare if is_signed else Inline(compare, f"{{0}} {operator} {{1}}")

    def run(a: Any, b: Any, c: Any = None) -> Any:
        found = compare(a, b)
        results = [found, invert(found)] if both else [found]
        if boolean is not None:
            results = [_combine(boolean, r, c) for r in results]
        return results if both else results[0]

    return run


def _combine(ufunc: Any, a: Any, b: Any) -> Any:
    found = np.asarray(ufunc(a, b))
    return bool(found) if found.ndim == 0 else truth(found)
