"""Comments as blanks, how deep brackets may be nested, and how long an expression may be."""

from __future__ import annotations

import re
from itertools import islice

from .errors import ParseError, Position

COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|/\*', re.DOTALL)
INK = re.compile(r"[^\n]")
BRACKET = re.compile(r'"[^"\n]*"|[(){}]')
DEPTH = 64
"""How deep brackets may be nested: a tree of blocks is compared, printed and checked by recursion."""
SIGN = re.compile(r"[-+*/%&|^~!?<>=(]")
APART = re.compile(r'"[^"\n]*"|[,;{}\[\]]|(?<!\()\.(?=[a-z])|\Z')
SIGNS = 4096
"""How many signs an expression may have: the grammar takes some hundred bytes for each, and a millisecond for a hundred."""


def without_comments(text: str) -> str:
    """The text with blanks and line breaks for its comments, so that places stay."""
    return COMMENT.sub(_blanked, text) if "/" in text else text


def _blanked(match: re.Match[str]) -> str:
    found = match[0]
    if found[0] == '"':
        return found
    if found == "/*":
        before = match.string[: match.start()]
        place = Position(None, before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise ParseError("the comment that opens here has no end", place, ("'*/'",))
    return INK.sub(" ", found) if "\n" in found else " " * len(found)


def check_size(text: str, place: Position) -> None:
    """Raises `ParseError` where brackets are nested too deep for a tree, or an expression is too long; the text has no comments and begins
    at the place."""
    depth = at = 0
    for match in BRACKET.finditer(text) if text.count("{") + text.count("(") > DEPTH else ():
        sign = match[0]
        if sign in ("(", "{"):
            depth += 1
            if depth > DEPTH:
                raise too_deep(_behind(text, match.start(), place))
        elif sign in (")", "}"):
            depth -= 1
    for match in APART.finditer(text):
        if match.start() - at > SIGNS and any(True for _ in islice(SIGN.finditer(text, at, match.start()), SIGNS, None)):
            raise ParseError(f"an expression has more than {SIGNS} signs", _behind(text, at, place))
        at = match.end()


def _behind(text: str, offset: int, place: Position) -> Position:
    """The place of an offset in a text that begins at a place."""
    line = text.count("\n", 0, offset)
    column = offset - text.rfind("\n", 0, offset) + (0 if line else place.column - 1)
    return Position(None, place.line + line, column)


def too_deep(place: Position) -> ParseError:
    return ParseError(f"brackets are nested more than {DEPTH} deep", place)
