"""Directives that compilers write: `.loc`, `.pragma`, `.file`, and those of a function such as `.maxntid`."""

from __future__ import annotations

import re

from ..tree import Directive, Loc, Text
from .operands import integer
from .source import Source
from .tokens import BLANKS, GAP, IDENT, NAME_END, NUMBER, NeedsReference

LOC = re.compile(rf"\.loc[ \t]+([0-9]{{1,18}})[ \t]+([0-9]{{1,18}})[ \t]+([0-9]{{1,18}})(?:[ \t]*,[ \t]*function_name[ \t]+({IDENT})[ \t]*"
                 r"(?:\+[ \t]*([0-9]{1,18})[ \t]*)?,[ \t]*inlined_at[ \t]+([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]+([0-9]{1,18}))?"
                 r"(?=[ \t\r]*+(?:\n(?:[ \t\r\n]++|//[^\n]*+)*+(?!,)|\Z))")
COUNT = "(?:0|[1-9][0-9]{0,17})"
PLACE = rf"{COUNT}[ \t]+{COUNT}[ \t]+{COUNT}"
LOCATIONS = re.compile(rf"(?:[ \t]*+\.loc[ \t]+{PLACE}(?:[ \t]*,[ \t]*function_name[ \t]+{IDENT}[ \t]*(?:\+[ \t]*{COUNT}[ \t]*)?,"
                       rf"[ \t]*inlined_at[ \t]+{PLACE})?[ \t\r]*+(?:\n|\Z))*")
"""Lines that are all `.loc`. The outer group is not possessive: Python 3.11.2 would then match the beginning of a line as the whole."""
PRAGMA = re.compile(rf'\.pragma{GAP}("[^"\n]*"){GAP};')
DIRECTIVES = ("maxntid|reqntid|minnctapersm|maxnctapersm|maxnreg|noreturn|reqnctapercluster|explicitcluster|maxclusterrank"
              "|blocksareclusters|abi_preserve_control|abi_preserve")
DIRECTIVE = re.compile(rf"{GAP}(\.(?:{DIRECTIVES})){NAME_END}(?:{GAP}({NUMBER}(?:{GAP},{GAP}{NUMBER})*))?{GAP}")
FILE = re.compile(rf"\.file[ \t]+([0-9]+)[ \t]+(\"[^\"\n]*\")(?:[ \t]*,[ \t]*([0-9]+)(?:[ \t]*,[ \t]*([0-9]+))?)?(?={GAP}(?:[.]|//|\Z))")


def loc(match: re.Match[str]) -> Loc:
    """The `.loc` that `LOC` matched."""
    file, line, column, name, offset, *inlined = match.groups()
    if any(len(number) > 1 and number[0] == "0" for number in (file, line, column, offset or "", *inlined) if number):
        raise NeedsReference
    if name is None:
        return Loc(int(file), int(line), int(column))
    by = [int(number) for number in inlined]
    return Loc(int(file), int(line), int(column), (name, int(offset or 0), by[0], by[1], by[2]))


def pragma(source: Source, offset: int) -> Directive:
    """The first pragma after the offset."""
    match = PRAGMA.search(source.text, offset)
    assert match is not None
    return Directive("pragma", (Text(source.original[match.start(1) + 1:match.end(1) - 1]),), source.position(match.start()))


def file(match: re.Match[str], source: Source) -> Directive:
    """The `.file` that `FILE` matched."""
    index, quoted, *numbers = match.groups()
    start = match.start(2)
    name = Text(source.original[start + 1:start + len(quoted) - 1])
    rest = [integer(word).value for word in numbers if word is not None]
    return Directive("file", (integer(index).value, name, *rest), source.position(match.start()))


def function_directives(text: str, offset: int, source: Source) -> tuple[Directive, ...]:
    """The directives of a function's head. `text` begins at the offset of the source."""
    found = []
    end = 0
    while end < len(text):
        match = DIRECTIVE.match(text, end)
        if match is None:
            raise NeedsReference
        numbers = () if match[2] is None else tuple([integer(word.strip(BLANKS)).value for word in match[2].split(",")])
        found.append(Directive(match[1][1:], numbers, source.position(offset + match.start(1))))
        end = match.end()
    return tuple(found)
