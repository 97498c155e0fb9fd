"""Sections of debug data, which compilers write as one row a line."""

from __future__ import annotations

import re
from itertools import accumulate, count
from operator import add

from ..tree import Constant, Data, Expression, Integer, Label, Name, Section
from .operands import Operands, integer
from .source import Source
from .tokens import BLANKS, GAP, IDENT, TYPES, NeedsReference

SECTION = re.compile(rf"\.section[ \t]+(\.[A-Za-z_][A-Za-z0-9_$]*){GAP}\{{")
ROW = re.compile(rf"\.({TYPES})[ \t]+([^\n]*)")
DATUM = re.compile(rf"(-?[0-9]+)|((?:{IDENT})|\.[A-Za-z_][A-Za-z0-9_$]*)(?:\+([0-9]+)|-({IDENT}|\.[A-Za-z_][A-Za-z0-9_$]*))?")
ONE_LABEL = re.compile(rf"({IDENT}):")


class SectionReader:
    """Reads the sections of a text. Equal rows are one object."""

    def __init__(self, source: Source, operands: Operands) -> None:
        self.source = source
        self.values = Values(operands)
        self.known: dict[str, Data] = {}

    def section(self, match: re.Match[str], stop: int) -> Section:
        """The section whose head `SECTION` matched. Its closing brace is at the offset `stop`."""
        return Section(match[1], self._rows(match.end(), stop))

    def _rows(self, at: int, stop: int) -> tuple[Label | Data, ...]:
        known, lines = self.known, self.source.text[at:stop].split("\n")
        found: list[Label | Data | None] = list(map(known.get, lines))
        starts: list[int] = []
        for number in [number for number, row in enumerate(found) if row is None]:
            line = lines[number]
            bare = line.partition("//")[0].strip(BLANKS)
            label = ONE_LABEL.fullmatch(bare)
            if label is not None:
                starts = starts or list(map(add, accumulate(map(len, lines), initial=at), count()))
                found[number] = Label(label[1], self.source.position(starts[number] + len(line) - len(line.lstrip(BLANKS))))
            elif bare:
                if line not in known:
                    known[line] = self._row(bare)
                found[number] = known[line]
        return tuple(filter(None, found))

    def _row(self, text: str) -> Data:
        match = ROW.fullmatch(text)
        if match is None:
            raise NeedsReference
        return Data(match[1], tuple([self.values[word.strip(BLANKS)] for word in match[2].split(",")]))


class Values(dict[str, Constant]):
    """The value for each word in a row of a section."""

    def __init__(self, operands: Operands) -> None:
        self.operands = operands

    def __missing__(self, word: str) -> Constant:
        found = self[word] = self._value(word)
        return found

    def _value(self, text: str) -> Constant:
        match = DATUM.fullmatch(text)
        if match is None:
            raise NeedsReference
        number, place, plus, minus = match.groups()
        if number is not None:
            value = self.operands[number]
            if type(value) is not Integer:
                raise NeedsReference
            return value
        name = self._name(place)
        if plus is not None:
            return Expression("+", (name, Integer(integer(plus).value)))
        return name if minus is None else Expression("-", (name, self._name(minus)))

    def _name(self, text: str) -> Constant:
        return Name(text) if text[0] == "." else self.operands.name(text)
