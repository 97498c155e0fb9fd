"""Constant expressions folded by operator precedence, with the precedence of the grammar. Wrong expressions go to the reference reader."""

from __future__ import annotations

import re
from typing import NamedTuple

from . import constant
from .limits import MAX_OPERATORS
from .tokens import GAP, NUMBER, NUMBER_END

OPERAND = re.compile(
    rf"{GAP}(?:({NUMBER}{NUMBER_END})|([-+~!])|\({GAP}(\.[us]64){GAP}\)|(\()|(WARP_SZ{NUMBER_END})|(0[dD][0-9a-fA-F]{{16}}{NUMBER_END})"
    rf"|((?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?{NUMBER_END}|[0-9]+[eE][+-]?[0-9]+{NUMBER_END}))")
OPERATOR = re.compile(rf"{GAP}(<<|>>|[<>=!]=|&&|\|\||[-+*/&|^<>?:)]|%(?![A-Za-z0-9_$])|\Z)")
MAX_PARENTHESES = 8
"""How deep parentheses may be nested here. Whether deeper ones are too deep depends on the brackets around the expression."""
PRECEDENCE = {symbol: precedence for precedence, symbols in enumerate(
    (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%")), 1)
    for symbol in symbols}
UNARY = 11
"""The precedence of unary operators and casts: the highest."""


class Pending(NamedTuple):
    """An operator that waits for its right operand. `(`, `?` and `:` have precedence 0."""

    precedence: int
    symbol: str


def folded(text: str) -> constant.Number:
    """The value of an expression. Raises `ValueError` if it is wrong, or if only the reference reader can tell."""
    if len(text) > MAX_OPERATORS:
        raise ValueError(text)
    pending: list[Pending] = []
    values: list[constant.Number] = []
    at = nested = 0
    while True:
        match = OPERAND.match(text, at)
        if match is None:
            raise ValueError(text)
        at, kind = match.end(), match.lastindex
        if kind == 2 or kind == 3:
            pending.append(Pending(UNARY, match[kind]))
            continue
        if kind == 4:
            nested += 1
            if nested > MAX_PARENTHESES:
                raise ValueError(text)
            pending.append(Pending(0, "("))
            continue
        if kind == 1:
            values.append(constant.integer(match[1]))
        elif kind == 5:
            values.append(constant.WARP_SIZE)
        else:
            values.append(constant.double(match[6]) if kind == 6 else constant.decimal(match[7]))
        while True:
            match = OPERATOR.match(text, at)
            if match is None:
                raise ValueError(text)
            at, symbol = match.end(), match[1]
            _reduce(pending, values, PRECEDENCE.get(symbol, 1), closing=symbol in (")", ":", ""))
            if symbol == "":
                if pending:
                    raise ValueError(text)
                return values[0]
            if symbol == ")" or symbol == ":":
                if not pending or pending.pop().symbol != ("(" if symbol == ")" else "?"):
                    raise ValueError(text)
                if symbol == ")":
                    nested -= 1
                    continue
            pending.append(Pending(PRECEDENCE.get(symbol, 0), symbol))
            break


def _reduce(pending: list[Pending], values: list[constant.Number], precedence: int, *, closing: bool) -> None:
    """Applies the pending operators of this precedence or a higher one. `closing`: also whole conditions `c ? a : b`."""
    while pending:
        top, symbol = pending[-1]
        if top < precedence and not (closing and symbol == ":"):
            return
        pending.pop()
        right = values.pop()
        if top == UNARY:
            values.append(constant.cast(symbol, right) if symbol[0] == "." else constant.unary(symbol, right))
        elif top:
            values.append(constant.binary(symbol, values.pop(), right))
        else:
            yes = values.pop()
            values.append(constant.conditional(values.pop(), yes, right))
