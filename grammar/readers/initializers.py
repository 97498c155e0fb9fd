"""Initialisers in braces of any length: split at their commas, and each different element is read once."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..tree import Aggregate, Initializer
from .comments import without_comments
from .limits import MAX_DEPTH
from .tokens import BLANKS, NeedsReference

STOP = re.compile(r'[{};"]|//[^\n]*+|\Z')
MAX_GROUP = 1000
"""How many characters a list in braces may have to be looked up as a whole."""

Element = Callable[[str, int], Initializer]
"""Reads an element from its text, with blanks around it, within so many braces of the initialiser. May raise `NeedsReference`."""


class Stopped(Exception):
    """The initialiser is right up to the brace or comma at `offset`, and wrong after it. `depth` braces are open there."""

    def __init__(self, offset: int, depth: int) -> None:
        super().__init__(offset, depth)
        self.offset, self.depth = offset, depth


def aggregate(text: str, at: int, outer: int, element: Element) -> tuple[Aggregate, int]:
    """The initialiser whose first brace is at the offset, and the offset after it. `outer`: how many braces are open before it."""
    known: dict[str, Initializer] = {}
    groups: dict[str, Aggregate] = {}
    stack: list[list[Initializer]] = []
    found: list[Initializer] = []
    begin, closed, commented = at + 1, False, False  # `closed`: the brace before `begin` is a closing one
    for match in STOP.finditer(text, begin):
        stop, at = match[0], match.start()
        if stop[:1] == "/":
            commented = True
            continue
        chunk, depth = text[begin:at], len(stack) + 1
        if commented:
            chunk, commented = without_comments(chunk), False
        group = groups.get(chunk) if stop == "}" and not closed and stack else None
        if group is None:
            _add(found, chunk, begin - 1, closed, stop, depth, element, known)
        if stop == "{":
            if depth + 1 + outer > MAX_DEPTH:
                raise Stopped(at, depth + 1)
            stack.append(found)
            found, closed = [], False
        else:
            if group is None:
                group = Aggregate(tuple(found))
                if not closed and len(chunk) < MAX_GROUP:
                    groups[chunk] = group
            if not stack:
                return group, at + 1
            found = stack.pop()
            found.append(group)
            closed = True
        begin = at + 1
    raise AssertionError("STOP also matches the end of the text")


def _add(found: list[Initializer], chunk: str, last: int, closed: bool, stop: str, depth: int, element: Element,
         known: dict[str, Initializer]) -> None:
    """Adds the elements between two braces. `last`: where the first brace stands; `closed`: it is a closing one. `stop`: what ends them."""
    parts = chunk.split(",")
    if closed:
        between = parts.pop(0)
        if between.strip(BLANKS) or (not parts and stop != "}"):
            raise Stopped(last, depth)
        last += len(between) + 1
    elif stop == "}" and not chunk.strip(BLANKS):
        return
    ended = stop == "}" or (stop == "{" and not parts[-1].strip(BLANKS))
    listed = parts if stop == "}" else parts[:-1]
    for part in dict.fromkeys(listed):
        if part not in known:
            try:
                known[part] = element(part, depth)
            except NeedsReference:
                raise Stopped(_before(listed, listed.index(part), last), depth) from None
    if not ended:
        raise Stopped(_before(parts, len(parts) - 1, last), depth)
    found.extend(map(known.__getitem__, listed))


def _before(parts: list[str], number: int, last: int) -> int:
    """Where the brace or comma before a part stands, if the one before the first part is at `last`."""
    return last + sum(map(len, parts[:number])) + number
