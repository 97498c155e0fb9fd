"""Language rules of the text itself, which the tree does not keep: its characters, and the source locations that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..grammar import tree
from ..grammar.errors import Finding
from ..grammar.numbers import cut_numbers
from .places import Place, finding
from .sections import IN_BODIES, pragmas

STRANGE = re.compile(r"[^\x01-\x7f]")
LOCATION = re.compile(r"\.loc[ \t]+([0-9]+)[ \t]+([0-9]+)[ \t]+([0-9]+)")
INLINED = re.compile(r"\.loc[ \t]+([0-9]+)[ \t]+([0-9]+)[ \t]+([0-9]+)[ \t]*,[ \t]*function_name[ \t]+([\w$%]+)[^\n]*?"
                     r"inlined_at[ \t]+([0-9]+)[ \t]+([0-9]+)[ \t]+([0-9]+)")
HEADER = re.compile(r"\.version(?:[ \t]+[0-9]|([^ \t]|[ \t]+[^ \t0-9]))")
FILE = re.compile(r"^[ \t]*\.file[ \t]+([0-9]+)\b", re.MULTILINE)
LARGE = re.compile(r"\.loc[ \t]+(?:[0-9]+[ \t]+){0,2}([0-9]{10,})")


def findings(text: str, module: tree.Module | None) -> Iterator[Finding]:
    """`module`: what the text says, without what is wrong."""
    if not text.isascii() or "\0" in text:
        match = STRANGE.search(text)
        assert match is not None
        said = f"U+{ord(match[0]):04X}" if not "\udc80" <= match[0] <= "\udcff" else f"the byte {ord(match[0]) - 0xDC00:#04x}"
        yield finding("characters", f"{said} is not ASCII, which all of a text is, comments and strings too" if match[0] != "\0" else
                      "a text ends at the character 0", "write it in ASCII", _place(text, match.start()), "error", "language")
    first = HEADER.search(text)
    if first is not None and first[1] is not None and not _commented(text, first.start()) and "/*" not in text[:first.start()]:
        yield _wrong(text, first.start(), "the number of .version stands apart from it, and ptxas looks for both in one line",
                     "write .version 9.0 in one line, without a comment in it", "version")
    if module is not None and any(word in text for word in IN_BODIES):
        yield from pragmas(module)
    if "/*" in text:
        return  # a location or a number may stand in a comment
    for at, word, left in cut_numbers(text):
        line = text[text.rfind("\n", 0, at) + 1:at]
        if "//" not in line and '"' not in line:
            shown = word if len(word) <= 40 else f"{word[:40]}..."
            yield finding("number", f"{shown} does not fit 64 bits, and ptxas takes it for {left}", f"write {left} if that is meant",
                          _place(text, at), "review", "language", word)
    yield from _files(text)
    yield from _locations(text, module)


def _place(text: str, offset: int) -> Place:
    return Place(text.count("\n", 0, offset) + 1, None, offset - text.rfind("\n", 0, offset))


def _files(text: str) -> Iterator[Finding]:
    known = set[int]()
    for match in FILE.finditer(text) if ".file" in text else ():
        number = int(match[1]) if len(match[1]) < 20 else -1
        if number in known:
            yield _wrong(text, match.start(1), f".file {match[1]} is there already", "give each file its own number")
            return
        known.add(number)


def _locations(text: str, module: tree.Module | None) -> Iterator[Finding]:
    large = LARGE.search(text) if ".loc" in text else None
    if large is not None and int(large[1][:20]) >= 1 << 32 and not _commented(text, large.start()):
        yield _wrong(text, large.start(1), f".loc with {large[1][:40]}, which 32 bits do not hold", "give a smaller number")
    if "inlined_at" not in text:
        return
    labels = None if module is None else {row.name for item in module.items if isinstance(item, tree.Section) for row in item.rows
                                          if isinstance(row, tree.Label)}
    first: dict[tuple[str, ...], int] = {}
    for match in LOCATION.finditer(text):
        first.setdefault(match.groups(), match.start())
    for match in INLINED.finditer(text):
        *_, name, file, line, column = match.groups()
        if _commented(text, match.start()):
            continue
        if first.get((file, line, column), len(text)) >= match.start():
            yield _wrong(text, match.start(5), f"inlined_at {file} {line} {column} names a place that no .loc before has",
                         "write that .loc first")
            return
        if labels is not None and name not in labels:
            yield _wrong(text, match.start(4), f"function_name `{name}` is no label of a section", "place it in .section .debug_str")
            return


def _commented(text: str, offset: int) -> bool:
    return "//" in text[text.rfind("\n", 0, offset) + 1:offset]


def _wrong(text: str, offset: int, sentence: str, fix: str, rule: str = "location") -> Finding:
    return finding(rule, sentence, fix, _place(text, offset), "error", "language")
