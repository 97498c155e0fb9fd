"""PTX's constants: literals become tree nodes, and constant expressions are folded to one number of 64 bits as ptxas folds them.

An integer is signed unless it has the suffix `U`, is the result of an unsigned operation or does not fit 63 bits. This module follows
ptxas where the manual says something else: `&`, `|` and `^` convert as `+` does, `%` is unsigned, a shift count is taken modulo 64, and
`c ? a : b` has the type of the chosen arm. A fault raises `ValueError` with a sentence.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from ..tree import Float, Integer

Number = Integer | Float

WARP_SIZE = Integer(32)
SIGN = 1 << 63
MASK = (1 << 64) - 1
MAX_DIGITS = 200
"""How many digits of a literal are read at once."""


def integer(text: str) -> Integer:
    """The literal `12`, `0x1F`, `017`, `0b101`, each with an optional `U`."""
    unsigned = text[-1] == "U"
    digits, base = text[:-1] if unsigned else text, 10
    if len(digits) > 1 and digits[0] == "0":
        base = {"x": 16, "b": 2}.get(digits[1].lower(), 8)
        digits = digits[2 if base != 8 else 1:]
    if len(digits) <= MAX_DIGITS and (value := int(digits, base)) <= MASK:
        return Integer(value, unsigned)
    return Integer(_wrapped(digits, base), unsigned)


def _wrapped(digits: str, base: int) -> int:
    """The lowest 64 bits of a number, as ptxas takes it: one is too large only where the digits before the next one have 64 bits."""
    value = 0
    for digit in digits:
        if value >= SIGN:
            shown = digits if len(digits) <= 40 else f"{digits[:40]}..."
            raise ValueError(f"the number with the digits {shown} does not fit 64 bits")
        value = (value * base + int(digit, base)) & MASK
    return value


def single(text: str) -> Float:
    """The literal `0f3F800000`."""
    return Float(int(text[2:], 16), 32)


def double(text: str) -> Float:
    """The literal `0d3FF0000000000000`."""
    return Float(int(text[2:], 16))


def decimal(text: str) -> Float:
    """The literal `1.5`, `.5` or `1e3`, a double."""
    if len(text) > 4 * MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits is too long")
    value = float(text)
    if math.isinf(value) or (value == 0 and text.lower().partition("e")[0].strip("0.")):
        raise ValueError(f"{text} does not fit a double")
    return Float.of(value)


def is_unsigned(value: Integer) -> bool:
    return value.unsigned or value.value >= SIGN


def unary(symbol: str, value: Number) -> Number:
    if isinstance(value, Float):
        if symbol == "+":
            return value
        if symbol == "-" and value.width == 64:
            return Float(value.bits ^ SIGN)
        raise ValueError(f"{symbol} needs an integer")
    if symbol == "+":
        return value
    if symbol == "-":
        return wrap(-value.value, is_unsigned(value))
    if symbol == "~":
        return wrap(~value.value, True)
    return Integer(int(value.value == 0))


def cast(kind: str, value: Number) -> Integer:
    """`(.s64)value` or `(.u64)value`."""
    if kind not in (".s64", ".u64"):
        raise ValueError(f"a constant is cast to .s64 or .u64, not to {kind}")
    if isinstance(value, Float):
        raise ValueError(f"({kind}) needs an integer")
    return wrap(value.value, kind == ".u64")


def binary(symbol: str, left: Number, right: Number) -> Number:
    if isinstance(left, Integer) and isinstance(right, Integer):
        return _integers(symbol, left, right)
    if isinstance(left, Float) and isinstance(right, Float):
        return _floats(symbol, left, right)
    raise ValueError(f"{symbol} has an integer on one side and a floating-point number on the other")


def conditional(condition: Number, yes: Number, no: Number) -> Integer:
    """`condition ? yes : no`; ptxas takes integers only."""
    if isinstance(condition, Float) or isinstance(yes, Float) or isinstance(no, Float):
        raise ValueError("?: needs integers")
    return yes if condition.value else no


COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}
BITWISE: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_, "^": operator.xor,
}


def _integers(symbol: str, left: Integer, right: Integer) -> Integer:
    a, b = left.value, right.value
    if symbol in ("<<", ">>"):
        count = b & 63
        a = a if is_unsigned(left) else _signed(a)
        return wrap(a << count if symbol == "<<" else a >> count, is_unsigned(left))
    if symbol == "&&":
        return Integer(int(a != 0 and b != 0))
    if symbol == "||":
        return Integer(int(a != 0 or b != 0))
    unsigned = is_unsigned(left) or is_unsigned(right)
    if unsigned or symbol == "%":
        a, b = a & MASK, b & MASK
    if symbol in COMPARE:
        return Integer(int(COMPARE[symbol](a, b)))
    if symbol in BITWISE:
        return wrap(BITWISE[symbol](a, b), unsigned)
    if b == 0:
        raise ValueError(f"{symbol} divides by zero")
    if symbol == "%":
        return wrap(a % b, True)
    quotient = abs(a) // abs(b)
    return wrap(-quotient if (a < 0) != (b < 0) else quotient, unsigned)


def _floats(symbol: str, left: Float, right: Float) -> Number:
    a, b = left.value, right.value
    if symbol in COMPARE:
        return Integer(int(COMPARE[symbol](a, b)))
    if symbol == "+":
        return Float.of(a + b)
    if symbol == "-":
        return Float.of(a - b)
    if symbol == "*":
        return Float.of(a * b)
    if symbol != "/":
        raise ValueError(f"{symbol} needs integers")
    if b == 0:
        raise ValueError("/ divides by zero")
    return Float.of(a / b)


def wrap(value: int, unsigned: bool = False) -> Integer:
    """The 64 bits of a number as a signed or an unsigned integer."""
    value &= MASK
    return Integer(value, True) if unsigned else Integer(_signed(value))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= SIGN else value
