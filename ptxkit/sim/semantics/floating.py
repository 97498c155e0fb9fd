"""f32 and f64 arithmetic.

Exactly rounded in every mode, as IEEE 754 says: add, sub, mul, fma, mad, and div, rcp, sqrt with a rounding mode. A NaN result of
f32 is 0x7FFFFFFF. `.ftz` flushes subnormal operands and results to zeros of their sign, `.sat` clamps to 0 .. 1 (a NaN is 0).

The approximate ones give the exact result rounded to nearest, which is inside every bound of the ISA: rcp.approx 1 ulp, rsqrt.approx
2**-22.9, sqrt.approx 2**-23, div.approx and div.full 2 ulp, ex2.approx 2**-22, lg2.approx 2**-22.6 absolute, sin and cos 2**-20.5
absolute, tanh 2**-11. div.approx is 0 for divisors above 2**126, as the ISA says. The f64 ones (rcp.approx.ftz, rsqrt.approx) read and
write the upper 32 bits only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import exact
from ..program import Op
from ..rounding import (
    FORMATS,
    add_odd,
    canonical,
    decode,
    divide,
    encode,
    flush,
    is_nan,
    multiply_add,
    parts,
    quiet,
    root,
    saturate,
    whole,
)
from ..values import DTYPES, Array
from .registry import Run, pure

Compute = Callable[..., Array]


def finished(op: Op, type: str, compute: Compute) -> Run:
    """An f32 operation on bits, with `.ftz`, `.sat` and the canonical NaN."""
    ftz, sat = op.has("ftz"), op.has("sat")

    @quiet
    def run(*sources: Any) -> Any:
        values = [parts(source, type) for source in sources]
        if ftz:
            values = [flush(value, type) for value in values]
        found = canonical(compute(*values), type)
        if ftz:
            found = flush(found, type)
        return whole(saturate(found, type) if sat else found)

    return run


def lanewise(one: Callable[..., int]) -> Run:
    """A function of ints, lane by lane, for f64."""

    def run(*sources: Any) -> Any:
        if all(isinstance(source, int) for source in sources):
            return one(*sources)
        values = np.broadcast_arrays(*(parts(source, "f64") for source in sources))
        return np.array([one(*lane) for lane in zip(*(v.tolist() for v in values), strict=True)], np.uint64)

    return run


def _native(function: Callable[..., Any]) -> Run:
    """An f64 operation that NumPy rounds as wanted."""

    @quiet
    def run(*sources: Any) -> Any:
        return whole(function(*(parts(source, "f64").view(np.float64) for source in sources)).view(np.uint64))

    return run


_EXACT: dict[str, Compute] = {
    "add": lambda mode, a, b: add_odd(a, b, mode), "sub": lambda mode, a, b: add_odd(a, -b, mode), "mul": lambda mode, a, b: a * b}
_UFUNCS: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt}


@pure("add", "sub", "mul", types="f32")
def arithmetic(op: Op) -> Run:
    name, mode = op.tokens[0], op.bindings.get("rnd", "rn")
    ufunc = _UFUNCS[name]
    if mode == "rn":
        return finished(op, "f32", lambda a, b: ufunc(a.view(np.float32), b.view(np.float32)).view(np.uint32))
    return finished(op, "f32", lambda a, b: encode(_EXACT[name](mode, decode(a, "f32"), decode(b, "f32")), "f32", mode))


@pure("fma", "mad", types="f32")
def fma(op: Op) -> Run:
    mode = op.bindings.get("rnd", "rn")
    return finished(op, "f32", lambda a, b, c: encode(
        multiply_add(decode(a, "f32"), decode(b, "f32"), decode(c, "f32"), mode), "f32", mode))


@pure("div", types="f32")
def div(op: Op) -> Run:
    mode = op.bindings.get("rnd", "rn")

    def approximate(a: Array, b: Array) -> Array:
        x, y = decode(a, "f32"), decode(b, "f32")
        far = (np.abs(y) > 2.0**126) & np.isfinite(y)
        found = encode(x / y, "f32")
        return np.where(far & ~is_nan(found, "f32"), np.where(np.isinf(x), np.uint32(0x7FFFFFFF), (a ^ b) & np.uint32(1 << 31)), found)

    if op.has("approx"):
        return finished(op, "f32", approximate)
    return finished(op, "f32", lambda a, b: encode(divide(decode(a, "f32"), decode(b, "f32")), "f32", mode))


@pure("rcp", types="f32")
def rcp(op: Op) -> Run:
    mode = op.bindings.get("rnd", "rn")
    return finished(op, "f32", lambda a: encode(divide(np.ones_like(a, np.float64), decode(a, "f32")), "f32", mode))


@pure("sqrt", types="f32")
def sqrt(op: Op) -> Run:
    mode = op.bindings.get("rnd", "rn")
    return finished(op, "f32", lambda a: encode(root(decode(a, "f32")), "f32", mode))


@pure("add", "sub", "mul", "div", types="f64")
def arithmetic64(op: Op) -> Run:
    name, mode = op.tokens[0], op.bindings.get("rnd", "rn")
    if mode == "rn":
        return _native(_UFUNCS[name])
    if name == "sub":
        return lanewise(lambda a, b: exact.add(a, b if b & (1 << 63) - 1 > 0x7FF << 52 else b ^ 1 << 63, mode))
    one = {"add": exact.add, "mul": exact.multiply, "div": exact.divide}[name]
    return lanewise(lambda a, b: one(a, b, mode))


@pure("fma", "mad", types="f64")
def fma64(op: Op) -> Run:
    mode = op.bindings["rnd"]
    return lanewise(lambda a, b, c: exact.multiply_add(a, b, c, mode))


@pure("rcp", types="f64")
def rcp64(op: Op) -> Run:
    if op.has("approx"):
        return _upper(lambda x: 1 / x, flushes=True)
    mode = op.bindings["rnd"]
    return lanewise(lambda a: exact.divide(0x3FF0000000000000, a, mode))


@pure("sqrt", types="f64")
def sqrt64(op: Op) -> Run:
    mode = op.bindings["rnd"]
    return _native(np.sqrt) if mode == "rn" else lanewise(lambda a: exact.root(a, mode))


def _upper(function: Callable[[Array], Array], flushes: bool) -> Run:
    """An approximation that reads and writes the upper words of f64."""

    @quiet
    def run(a: Any) -> Any:
        bits = parts(a, "f64")
        bits = flush(bits, "f64") if flushes else bits
        read = np.where(is_nan(bits, "f64"), np.uint64(FORMATS["f64"].nan), bits) & np.uint64(0xFFFFFFFF00000000)
        found = function(read.view(np.float64)).view(np.uint64)
        found = flush(found, "f64") if flushes else found
        rounded = np.where((found & np.uint64(0x7FF << 52)) == np.uint64(0x7FF << 52), found, found + np.uint64(0x80000000))
        return whole(canonical(rounded, "f64") & np.uint64(0xFFFFFFFF00000000))

    return run


@pure("rsqrt.approx", types="f64")
def rsqrt64(op: Op) -> Run:
    return _upper(lambda x: 1 / np.sqrt(x), flushes=op.has("ftz"))


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "lg2": np.log2, "ex2": np.exp2, "tanh": np.tanh}


@pure("rsqrt.approx", "sin.approx", "cos.approx", "lg2.approx", "ex2.approx", "tanh.approx", types="f32")
def approximation(op: Op) -> Run:
    function = _FUNCTIONS[op.tokens[0]]
    return finished(op, "f32", lambda a: encode(function(decode(a, "f32")), "f32"))


# ------------------------------------------------------------------------------------------------ signs


@pure("abs", "neg", types="f32 f64 f16 f16x2 bf16 bf16x2")
def sign(op: Op) -> Run:
    """Of a NaN, the canonical NaN (f64 keeps its payload)."""
    type = op.bindings["type"]
    of = type.removesuffix("x2")
    format = FORMATS[of]
    dtype = DTYPES[format.bits]
    negate, ftz = op.tokens[0] == "neg", op.has("ftz")

    @quiet
    def run(a: Any) -> Any:
        bits = parts(a, type)
        bits = flush(bits, of) if ftz else bits
        found = bits ^ dtype(format.sign) if negate else bits & dtype(format.sign - 1)
        return whole(found if of == "f64" else canonical(found, of))

    return run


@pure("copysign")
def copysign(op: Op) -> Run:
    type = op.bindings["type"]
    format = FORMATS[type]
    dtype = DTYPES[format.bits]

    def run(a: Any, b: Any) -> Any:
        x, y = parts(a, type), parts(b, type)
        return whole(y & dtype(format.sign - 1) | x & dtype(format.sign))

    return run


@pure("min", "max", types="f32 f64 f16 f16x2 bf16 bf16x2")
def extremum(op: Op) -> Run:
    """-0 is less than +0. The other operand of a NaN, with `.NaN` the canonical NaN. `.xorsign.abs`: of the magnitudes, with the
    sign that a product would have."""
    type, name = op.bindings["type"], op.tokens[0]
    of = type.removesuffix("x2")
    ftz = op.has("ftz")

    @quiet
    def run(a: Any, b: Any) -> Any:
        x, y = parts(a, type), parts(b, type)
        if ftz:
            x, y = flush(x, of), flush(y, of)
        return whole(choose(name, x, y, of, propagate=op.has("NaN"), magnitudes=op.has("xorsign")))

    return run


def choose(name: str, a: Array, b: Array, type: str, *, propagate: bool = False, magnitudes: bool = False) -> Array:
    """min or max on bits."""
    format = FORMATS[type]
    top, rest = DTYPES[format.bits](format.sign), DTYPES[format.bits](format.sign - 1)
    crossed = (a ^ b) & top
    if magnitudes:
        a, b = a & rest, b & rest
    ordered_a, ordered_b = np.where(a & top, ~a, a | top), np.where(b & top, ~b, b | top)
    found = np.where(ordered_a < ordered_b if name == "min" else ordered_a > ordered_b, a, b)
    wrong_a, wrong_b = is_nan(a, type), is_nan(b, type)
    if wrong_a.any() or wrong_b.any():
        nan = DTYPES[format.bits](format.nan)
        found = np.where(wrong_a, nan if propagate else b, np.where(wrong_b, nan if propagate else a, found))
        found = canonical(found, type)
    return np.where(is_nan(found, type), found, found | crossed) if magnitudes else found


@pure("testp")
def testp(op: Op) -> Run:
    type, what = op.bindings["type"], op.bindings["op"]
    format = FORMATS[type]
    dtype = DTYPES[format.bits]

    def run(a: Any) -> Any:
        bits = parts(a, type) & dtype(format.sign - 1)
        exponent = bits & dtype(format.infinity)
        match what:
            case "finite":
                found = bits < dtype(format.infinity)
            case "infinite":
                found = bits == dtype(format.infinity)
            case "number":
                found = bits <= dtype(format.infinity)
            case "notanumber":
                found = bits > dtype(format.infinity)
            case "normal":
                found = ((exponent != 0) | (bits == 0)) & (exponent != dtype(format.infinity))
            case _:
                found = (exponent == 0) & (bits != 0)
        return predicate(found)

    return run


def predicate(found: Array) -> Any:
    """A register of booleans."""
    return bool(found[0]) if found.size == 1 else found
