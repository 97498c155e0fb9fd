"""Comments as blanks."""

from __future__ import annotations

import re

from ..errors import ParseError, Position

COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|/\*', re.DOTALL)
NOT_LINE_BREAK = re.compile(r"[^\n]")


def without_comments(text: str) -> str:
    """The text with blanks for its comments. Line breaks stay, so every other character keeps its position."""
    return COMMENT.sub(_blanked, text) if "/" in text else text


def _blanked(match: re.Match[str]) -> str:
    found = match[0]
    if found[0] == '"':
        return found
    if found == "/*":
        before = match.string[: match.start()]
        place = Position(None, before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise ParseError("the comment that opens here has no end", place, ("'*/'",))
    return NOT_LINE_BREAK.sub(" ", found) if "\n" in found else " " * len(found)
