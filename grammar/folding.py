"""Constant expressions by precedence: the number that a right one is, as the grammar has it. All others are left to the grammar."""

from __future__ import annotations

import re
from typing import NamedTuple

from . import constant
from .blanks import SIGNS

NUMBER = r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)U?"
W = r"[ \t\r\n]*+"
STOP = r"(?![A-Za-z0-9_$.])"
BEFORE = re.compile(
    rf"{W}(?:({NUMBER}{STOP})|([-+~!])|\({W}(\.[us]64){W}\)|(\()|(WARP_SZ{STOP})|(0[dD][0-9a-fA-F]{{16}}{STOP})"
    rf"|((?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?{STOP}|[0-9]+[eE][+-]?[0-9]+{STOP}))")
BEHIND = re.compile(rf"{W}(<<|>>|[<>=!]=|&&|\|\||[-+*/%&|^<>?:)]|\Z)")
NESTED = 8
"""How deep parentheses are nested here: whether they are too deep depends on what is around."""
ORDER = {sign: order for order, signs in enumerate(
    (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%")), 1)
    for sign in signs}
TIGHTEST = 11


class Waiting(NamedTuple):
    """What waits for its right side: a sign and how tight it binds; 0 for `(`, `?` and `:`."""

    order: int
    sign: str


def folded(text: str) -> constant.Number:
    """The number that an expression is; `ValueError` if it is none, or one that is left to the grammar."""
    if len(text) > SIGNS:
        raise ValueError(text)
    waiting: list[Waiting] = []
    values: list[constant.Number] = []
    at = nested = 0
    while True:
        match = BEFORE.match(text, at)
        if match is None:
            raise ValueError(text)
        at, kind = match.end(), match.lastindex
        if kind == 2 or kind == 3:
            waiting.append(Waiting(TIGHTEST, match[kind]))
            continue
        if kind == 4:
            nested += 1
            if nested > NESTED:
                raise ValueError(text)
            waiting.append(Waiting(0, "("))
            continue
        if kind == 1:
            values.append(constant.integer(match[1]))
        elif kind == 5:
            values.append(constant.WARP_SIZE)
        else:
            values.append(constant.double(match[6]) if kind == 6 else constant.decimal(match[7]))
        while True:
            match = BEHIND.match(text, at)
            if match is None:
                raise ValueError(text)
            at, sign = match.end(), match[1]
            _reduce(waiting, values, ORDER.get(sign, 1), closing=sign in (")", ":", ""))
            if sign == "":
                if waiting:
                    raise ValueError(text)
                return values[0]
            if sign == ")" or sign == ":":
                if not waiting or waiting.pop().sign != ("(" if sign == ")" else "?"):
                    raise ValueError(text)
                if sign == ")":
                    nested -= 1
                    continue
            waiting.append(Waiting(ORDER.get(sign, 0), sign))
            break


def _reduce(waiting: list[Waiting], values: list[constant.Number], order: int, *, closing: bool) -> None:
    """Takes what binds at least as tight as the order; `closing`: whole conditions, too."""
    while waiting:
        top, sign = waiting[-1]
        if top < order and not (closing and sign == ":"):
            return
        waiting.pop()
        right = values.pop()
        if top == TIGHTEST:
            values.append(constant.cast(sign, right) if sign[0] == "." else constant.unary(sign, right))
        elif top:
            values.append(constant.binary(sign, values.pop(), right))
        else:
            yes = values.pop()
            values.append(constant.conditional(values.pop(), yes, right))
