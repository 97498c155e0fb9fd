"""Initialisers in braces, of any length: split at their commas, each different element read once."""

from __future__ import annotations

import re
from collections.abc import Callable

from .blanks import DEPTH, without_comments
from .tree import Aggregate, Initializer
from .words import BLANKS, Odd

SIGN = re.compile(r'[{};"]|//[^\n]*+|\Z')
SHORT = 1000
"""Signs of a list in braces that is looked up as a whole."""

Element = Callable[[str, int], Initializer]
"""Reads an element from its text, with blanks around it, within so many braces of the initialiser; or `Odd`."""


class Stopped(Exception):
    """What stands behind a sign, a brace or a comma with so many braces open behind it, is wrong there; all before is right."""

    def __init__(self, sign: int, depth: int) -> None:
        super().__init__(sign, depth)
        self.sign, self.depth = sign, depth


def aggregate(text: str, at: int, outer: int, element: Element) -> tuple[Aggregate, int]:
    """The initialiser whose brace is at the offset, within so many others, and the offset behind it."""
    known: dict[str, Initializer] = {}
    groups: dict[str, Aggregate] = {}
    stack: list[list[Initializer]] = []
    found: list[Initializer] = []
    begin, behind, commented = at + 1, False, False  # behind: whether a closing brace stands before, and not the opening one
    for match in SIGN.finditer(text, begin):
        sign, stop = match[0], match.start()
        if sign[:1] == "/":
            commented = True
            continue
        chunk, depth = text[begin:stop], len(stack) + 1
        if commented:
            chunk, commented = without_comments(chunk), False
        group = groups.get(chunk) if sign == "}" and not behind and stack else None
        if group is None:
            _add(found, chunk, begin - 1, behind, sign, depth, element, known)
        if sign == "{":
            if depth + 1 + outer > DEPTH:
                raise Stopped(stop, depth + 1)
            stack.append(found)
            found, behind = [], False
        else:
            if group is None:
                group = Aggregate(tuple(found))
                if not behind and len(chunk) < SHORT:
                    groups[chunk] = group
            if not stack:
                return group, stop + 1
            found = stack.pop()
            found.append(group)
            behind = True
        begin = stop + 1
    raise AssertionError("the end of the text is a sign, too")


def _add(found: list[Initializer], chunk: str, last: int, behind: bool, sign: str, depth: int, element: Element,
         known: dict[str, Initializer]) -> None:
    """Adds the elements between two signs. `last`: where the brace before them stands; `behind`: it is a closing one."""
    parts = chunk.split(",")
    if behind:
        between = parts.pop(0)
        if between.strip(BLANKS) or (not parts and sign != "}"):
            raise Stopped(last, depth)
        last += len(between) + 1
    elif sign == "}" and not chunk.strip(BLANKS):
        return
    ended = sign == "}" or (sign == "{" and not parts[-1].strip(BLANKS))
    listed = parts if sign == "}" else parts[:-1]
    for part in dict.fromkeys(listed):
        if part not in known:
            try:
                known[part] = element(part, depth)
            except Odd:
                raise Stopped(_before(listed, listed.index(part), last), depth) from None
    if not ended:
        raise Stopped(_before(parts, len(parts) - 1, last), depth)
    found.extend(map(known.__getitem__, listed))


def _before(parts: list[str], number: int, last: int) -> int:
    """Where the sign before a part stands, if that before the first one is at `last`."""
    return last + sum(map(len, parts[:number])) + number
