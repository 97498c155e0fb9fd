"""Limits of every reader: how deep brackets may be nested, and how many operators an expression may have."""

from __future__ import annotations

import re
from itertools import islice

from ..errors import ParseError, Position

MAX_DEPTH = 64
"""How deep brackets may be nested: a tree of blocks is compared, printed and checked by recursion."""
MAX_OPERATORS = 4096
"""How many operator characters an expression may have: the reference reader takes some hundred bytes for each, and a millisecond for a
hundred."""
BRACKET = re.compile(r'"[^"\n]*"|[(){}]')
OPERATOR = re.compile(r"[-+*/%&|^~!?<>=(]")
SEPARATOR = re.compile(r'"[^"\n]*"|[,;{}\[\]]|(?<!\()\.(?=[a-z])|\Z')


def check_size(text: str, place: Position) -> None:
    """Raises `ParseError` if brackets are nested too deep or an expression is too long.

    The text has no comments. `place` is the position of its first character.
    """
    depth = at = 0
    for match in BRACKET.finditer(text) if text.count("{") + text.count("(") > MAX_DEPTH else ():
        bracket = match[0]
        if bracket in ("(", "{"):
            depth += 1
            if depth > MAX_DEPTH:
                raise too_deep(_position(text, match.start(), place))
        elif bracket in (")", "}"):
            depth -= 1
    for match in SEPARATOR.finditer(text):
        stop = match.start()
        if stop - at > MAX_OPERATORS and any(True for _ in islice(OPERATOR.finditer(text, at, stop), MAX_OPERATORS, None)):
            raise ParseError(f"an expression has more than {MAX_OPERATORS} operator characters", _position(text, at, place))
        at = match.end()


def _position(text: str, offset: int, start: Position) -> Position:
    """The position of an offset in a text that begins at `start`."""
    line = text.count("\n", 0, offset)
    column = offset - text.rfind("\n", 0, offset) + (0 if line else start.column - 1)
    return Position(None, start.line + line, column)


def too_deep(place: Position) -> ParseError:
    return ParseError(f"brackets are nested more than {MAX_DEPTH} deep", place)
