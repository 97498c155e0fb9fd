"""Comments as blanks, and how deep brackets may be nested."""

from __future__ import annotations

import re

from .errors import ParseError, Position

COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|/\*', re.DOTALL)
INK = re.compile(r"[^\n]")
BRACKET = re.compile(r'"[^"\n]*"|[(){}]')
DEPTH = 64
"""How deep brackets may be nested: a tree of blocks is compared, printed and checked by recursion."""


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


def check_nesting(text: str, place: Position) -> None:
    """Raises `ParseError` where brackets are nested too deep for a tree; the text has no comments and begins at the place."""
    if text.count("{") + text.count("(") <= DEPTH:
        return
    depth = 0
    for match in BRACKET.finditer(text):
        sign = match[0]
        if sign in ("(", "{"):
            depth += 1
            if depth > DEPTH:
                before = text[: match.start()]
                line = before.count("\n")
                column = len(before) - before.rfind("\n") + (0 if line else place.column - 1)
                raise too_deep(Position(None, place.line + line, column))
        elif sign in (")", "}"):
            depth -= 1


def too_deep(place: Position) -> ParseError:
    return ParseError(f"brackets are nested more than {DEPTH} deep", place)
