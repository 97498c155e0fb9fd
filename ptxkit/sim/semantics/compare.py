"""set, setp of floating types, slct. The integer setp is in `logic`, selp in `move`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...grammar.operands import width
from ..program import Op
from ..rounding import FORMATS, decode, flush, parts, quiet, whole
from ..values import DTYPES, SIGNED, Array, array_of, spread, truth, uniform
from .registry import Run, pure

_ORDER: dict[str, Any] = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
                          "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
_BOOLEAN: dict[str, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_FLOATS = "f32 f64 f16 f16x2 bf16 bf16x2"
_ONE = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}


def comparison(op: Op, type: str) -> Callable[[Any, Any], Array]:
    """The comparison on registers, as booleans: (lanes,), of a packed type (lanes, 2)."""
    name, of = op.bindings["CmpOp"], type.removesuffix("x2")
    bits = width(type)
    if of not in FORMATS:
        ufunc = _ORDER[name]

        def integers(a: Any, b: Any) -> Array:
            x, y = array_of(a, bits), array_of(b, bits)
            found: Array = ufunc(x.view(SIGNED[bits]), y.view(SIGNED[bits])) if type[0] == "s" else ufunc(x, y)
            return found

        return integers
    ftz = op.has("ftz")

    @quiet
    def floats(a: Any, b: Any) -> Array:
        x, y = parts(a, type), parts(b, type)
        if ftz:
            x, y = flush(x, of), flush(y, of)
        p, q = (x.view(np.float32), y.view(np.float32)) if of == "f32" else (decode(x, of), decode(y, of))
        unordered: Array = (p != p) | (q != q)
        if name in ("num", "nan"):
            return np.logical_not(unordered) if name == "num" else unordered
        if len(name) == 3:
            return np.asarray(_ORDER[name[:2]](p, q) | unordered)
        found: Array = _ORDER[name](p, q)
        return np.logical_and(found, ~unordered) if name == "ne" else found

    return floats


def _register(found: Array) -> Any:
    return bool(found[0]) if found.size == 1 else truth(found)


def _combined(op: Op, found: Array, c: Any) -> Array:
    boolean = op.bindings.get("BoolOp")
    if boolean is None:
        return found
    other = np.asarray(c)
    return _BOOLEAN[boolean](found, other[:, None] if found.ndim == 2 and other.ndim else other)  # type: ignore[no-any-return]


@pure("setp", types=_FLOATS)
def setp(op: Op) -> Run:
    type = op.bindings["type"]
    compare = comparison(op, type)
    both = op.operand("q") is not None

    def run(a: Any, b: Any, c: Any = None) -> Any:
        found = compare(a, b)
        if type.endswith("x2"):
            halves = _combined(op, found, c)
            return [_register(np.ascontiguousarray(halves[:, i])) for i in range(2)]
        first = _register(_combined(op, found, c))
        return [first, _register(_combined(op, ~found, c))] if both else first

    return run


@pure("set")
def set_(op: Op) -> Run:
    """1.0 or all ones where the comparison holds; of a packed source, in each half."""
    to, type = op.bindings["dtype"], op.bindings["stype"]
    compare = comparison(op, type)
    packed = type.endswith("x2")
    bits = 16 if packed else width(to)
    one = DTYPES[bits](_ONE.get(to.removesuffix("x2"), (1 << bits) - 1))

    def run(a: Any, b: Any, c: Any = None) -> Any:
        return whole(np.where(_combined(op, compare(a, b), c), one, DTYPES[bits](0)))

    return run


@pure("slct")
def slct(op: Op) -> Run:
    """`a` where `c` is not negative, `b` elsewhere and for a NaN."""
    bits = width(op.bindings["type"])
    floating, ftz = op.tokens[-1] == "f32", op.has("ftz")

    def run(a: Any, b: Any, c: Any) -> Any:
        x = array_of(c, 32)
        if floating:
            chosen = (flush(x, "f32") if ftz else x).view(np.float32) >= 0
        else:
            chosen = x.view(np.int32) >= 0
        if chosen.size == 1:
            return a if chosen[0] else b
        return uniform(np.where(chosen, spread(a, bits), spread(b, bits)))

    return run
