"""Lines of PTX read some thousands at a time, column by column: a compiler writes mostly lines that are one plain statement each.

A line that was read once is known when it comes again; so is a word. What is done for each line and word is done by the interpreter's own
loops (`split`, `map`), what is done by hand is done once for each shape of a line: what is left of it without letters and digits. Nodes
are made so in half of the time that their `__init__` takes. Nothing is refused here: lines that are not plain are left.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress, repeat
from operator import add, itemgetter, sub
from typing import Any, NamedTuple

from .errors import Position
from .heads import Declarations, moved
from .tree import Directive, Guard, Instruction, Label, Loc, Operand, Statement, Variable
from .words import (
    BLANKS,
    IDENT,
    NAME,
    OPCODE,
    Guards,
    Lists,
    Odd,
    Words,
    exhaust,
    named,
    new,
    ranges,
    set_column,
    set_file,
    set_line,
    setter,
    spot,
)

SHAPE = str.maketrans("", "", string.ascii_letters + string.digits + "_+-|!")
OPERAND, FIRST = r"\[?[%$.]*\]?", r"\[?[%$][%$.]*\]?"
PLAIN = re.compile(
    rf"([ \t]*)(@%?[ \t]+)?(?:([.:]+)([ \t]+{OPERAND}(?:,[ \t]?{OPERAND})*)|([ \t]+{FIRST}(?:,[ \t]?{OPERAND})*));[ \t\r]*")
LABEL = re.compile(r"[ \t]*\$*:[ \t\r]*")
LOCATION = re.compile(r"[ \t]*\.[ \t][ \t\r,$]*")

INSTRUCTION = re.compile(rf"(?:(@!?+{NAME})[ \t]++)?+([a-z][A-Za-z0-9_.:]*+)(?:[ \t]++([^;\"/@]*+))?+;[ \t\r]*+")
COMMENT = re.compile(r'//[^"\n]*$', re.MULTILINE)  # one with quotes in it is left: it may be in a string
ONE_OPCODE = re.compile(OPCODE)
ONE_LABEL = re.compile(rf"({IDENT}):")
SECTION = re.compile(r"^[ \t]*+\.section\b", re.MULTILINE)
LOC = re.compile(rf"\.loc[ \t]+([0-9]{{1,18}})[ \t]+([0-9]{{1,18}})[ \t]+([0-9]{{1,18}})(?:[ \t]*,[ \t]*function_name[ \t]+({IDENT})[ \t]*"
                 r"(?:\+[ \t]*([0-9]{1,18})[ \t]*)?,[ \t]*inlined_at[ \t]+([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]+([0-9]{1,18}))?"
                 r"(?=[ \t\r]*+(?:\n(?:[ \t\r\n]++|//[^\n]*+)*+(?!,)|\Z))")
COUNT = "(?:0|[1-9][0-9]{0,17})"
PLACE = rf"{COUNT}[ \t]+{COUNT}[ \t]+{COUNT}"
LOCATIONS = re.compile(rf"(?:[ \t]*+\.loc[ \t]+{PLACE}(?:[ \t]*,[ \t]*function_name[ \t]+{IDENT}[ \t]*(?:\+[ \t]*{COUNT}[ \t]*)?,"
                       rf"[ \t]*inlined_at[ \t]+{PLACE})?[ \t\r]*+(?:\n|\Z))*")
"""Lines that are `.loc`. Not possessive as a whole: Python 3.11.2 then takes the beginning of a line for all of it."""
CALLS = ("call", "call.uni")
LINES = 4096
"""Lines that are read at once: what is made on the way stays small beside the tree."""
LONGEST = 10_000
"""Signs of a shape that is looked at: a pattern takes 200 bytes for each operand while it looks."""
STATEMENTS = 16
"""Statements of one line that are kept for when the line comes again."""

INK = re.compile(r"[^ \t\r]")
LAST = itemgetter(-1)
set_opcode, set_operands = setter(Instruction, "opcode"), setter(Instruction, "operands")
set_guard, set_place = setter(Instruction, "guard"), setter(Instruction, "position")

Row = tuple[str, tuple[Operand, ...], Guard | None, int]
"""The opcode, operands, guard and column of an instruction."""
Part = Row | tuple[Variable, int] | tuple[str, int] | tuple[Loc | Directive]
"""A statement of a line: an instruction, a variable or a label (its name) with its column, or a `.loc` or pragma alone."""


class Entry(NamedTuple):
    """A line of other statements than one plain instruction, and the braces around them."""

    signs: str
    parts: list[Part]


BLANK = Entry("", [])


class Event(NamedTuple):
    """A line (its number from 0) that is no plain instruction, behind so many that are; it is left if there is no entry."""

    line: int
    behind: int
    entry: Entry | None


class Shape(NamedTuple):
    """What lines of one shape are.

    `sort`: `i` a plain instruction, `s` other statements, `:` a label, `l` a `.loc`, or nothing of all that. `size`: the words of a plain
    instruction, `operands`: how many of them are its operands; `column`: where it stands, or 0 if the shape does not say.
    """

    sort: str
    size: int = 0
    operands: int = 0
    column: int = 0


def shape(text: str) -> Shape:
    if len(text) > LONGEST:
        return Shape("s" if ";" in text else "")
    plain = PLAIN.fullmatch(text)
    if plain is not None:
        before, guard, modifiers, some, few = plain.groups()
        count = (some or few).count(",") + 1
        return Shape("i", count + 1 + (guard is not None), count, len(before) + 1 if guard is None and modifiers else 0)
    if ";" in text:
        return Shape("s")
    return Shape(":" if LABEL.fullmatch(text) is not None else "l" if LOCATION.fullmatch(text) is not None else "")


class Meanings(dict[str, "Operand | Guard | str | None"]):
    """What a word of an instruction is: an operand with its comma or semicolon, a guard, or an opcode; None for none of them."""

    def __init__(self, words: Words, guards: Guards) -> None:
        self.words, self.guards = words, guards

    def __missing__(self, word: str) -> Operand | Guard | str | None:
        found: Operand | Guard | str | None = None
        try:
            if word[-1] in ",;":
                found = self.words[word[:-1]]
            elif word[0] == "@":
                found = self.guards[word]
            elif word not in CALLS and ONE_OPCODE.fullmatch(word) is not None:
                found = word
        except Odd:
            pass
        self[word] = found
        return found


class Run(NamedTuple):
    """The lines `first` to `last` of a text: the plain instructions among them in `nodes`, and all other lines in `events`."""

    first: int
    last: int
    nodes: list[Instruction]
    odd: list[int]  # the lines that are no plain instruction, from 0
    events: list[Event]

    def before(self, line: int) -> int:
        """How many plain instructions stand before a line (its number from 0)."""
        return line - self.first - bisect_left(self.odd, line - self.first)


class Columns:
    """The lines of a text, and what of them was read."""

    def __init__(self, text: str, lines: list[str], starts: list[int], words: Words) -> None:
        """`starts`: where each line begins, and one more number."""
        self.text, self.lines, self.starts = text, lines, starts
        self.words, self.lists, self.guards = words, Lists(words), Guards()
        self.meanings = Meanings(words, self.guards)
        self.declarations = Declarations(words)
        self.shapes: dict[str, Shape] = {}
        self.plans: dict[str, tuple[int, int, int] | None] = {}
        self.rows: dict[str, Row | None] = {}  # by a line without its comment; None if it is in `entries`
        self.entries: dict[str, Entry | None] = {}
        self.told: dict[str, int] = {}
        self.loose = False  # whether a line begins with a comma: it may go on a `.loc`

    def add_ranges(self, text: str) -> None:
        """The registers of the ranges in a part of the text, most of which will be met."""
        for _, words in ranges(text, self.told):
            names = named(words)
            self.words.update(zip(words, names, strict=True))
            for end in (",", ";"):
                self.meanings.update(zip(map(add, words, repeat(end)), names, strict=True))

    def read(self, first: int, limit: int) -> Run:
        """Reads the lines from this number on, up to a limit at most."""
        last = min(first + LINES, limit)
        text = self.text[self.starts[first]:self.starts[last] - 1]
        if ".section" in text and (section := SECTION.search(text, 1)) is not None:
            text = text[:section.start() - 1]
            last = first + 1 + text.count("\n")
        lines = COMMENT.sub("", text).split("\n") if "//" in text else self.lines[first:last]
        fresh = set(lines).difference(self.rows)
        if fresh:
            self.learn(list(fresh))
        rows = list(map(self.rows.__getitem__, lines))
        plain = list(filter(None, rows))
        nodes: list[Instruction] = []
        if plain:
            opcodes, operands, guards, columns = zip(*plain, strict=True)
            nodes = instructions(opcodes, operands, guards, columns, compress(range(first + 1, last + 1), rows))
        odd = [number for number, row in enumerate(rows) if row is None]
        events = []
        for before, number in enumerate(odd):
            entry = self.entries[lines[number]]
            if entry is None or (entry.parts and len(entry.parts[0]) == 1 and self._goes_on(number, first, lines)):
                events.append(Event(first + number, number - before, None))
            elif entry is not BLANK:
                events.append(Event(first + number, number - before, entry))
        return Run(first, last, nodes, odd, events)

    def _goes_on(self, number: int, first: int, lines: list[str]) -> bool:
        """Whether the statement behind a line begins with a comma, so that it is none."""
        if not self.loose and number + 1 < len(lines) and lines[number + 1].lstrip(BLANKS)[:2] not in ("", "//"):
            return False
        for following in range(first + number + 1, len(self.lines)):
            sign = self.lines[following].lstrip(BLANKS)[:2]
            if sign not in ("", "//"):
                return sign[0] == ","
        return False

    # ------------------------------------------------------------------------------------------------- new lines

    def learn(self, lines: list[str]) -> None:
        """Reads lines that have not been met in this text."""
        shapes = "\n".join(lines).replace(".reg", "=").translate(SHAPE).split("\n")
        for met in set(shapes).difference(self.shapes):
            found = self.shapes[met] = shape(met)
            self.plans[met] = (found.size, found.operands, found.column) if found.size else None
            self.loose = self.loose or met.lstrip(BLANKS)[:1] == ","
        plans = list(map(self.plans.__getitem__, shapes))
        plain = list(compress(lines, plans))
        if plain:
            self.rows.update(zip(plain, self._plain(plain, list(filter(None, plans))), strict=True))
        for line, met, plan in zip(lines, shapes, plans, strict=True):
            if plan is None or self.rows[line] is None:
                entry = self._entry(line, self.shapes[met].sort)
                alone = entry.parts[0] if entry is not None and len(entry.parts) == 1 and not entry.signs else ()
                if len(alone) == 4:
                    self.rows[line] = alone
                else:
                    self.rows[line], self.entries[line] = None, entry

    # ------------------------------------------------------------------------------------------------ statements

    def _plain(self, lines: list[str], plans: list[Any]) -> list[Row | None]:
        """The instructions of the lines that are a guard, an opcode and operands, or some of them; None for one that is not plain."""
        sizes, counts, columns = zip(*plans, strict=True)
        words = " ".join(lines).replace(",", ", ").split()
        stops = list(accumulate(sizes))
        # Each line has one semicolon, at its end. So the words are where they should be if each line's last one has it.
        if len(words) != stops[-1] or set(map(LAST, map(["", *words].__getitem__, stops))) != {";"}:
            parts = [line.replace(",", ", ").split() for line in lines]
            fit = [len(part) == size and part[-1][-1] == ";" for part, size in zip(parts, sizes, strict=True)]
            fitting = iter(self._plain(list(compress(lines, fit)), list(compress(plans, fit))) if any(fit) else ())
            return [next(fitting) if fits else None for fits in fit]
        begins = list(map(sub, stops, counts))
        meanings = (None, *map(self.meanings.__getitem__, words))
        opcodes = list(map(meanings.__getitem__, begins))
        lists = list(map(meanings[1:].__getitem__, map(slice, begins, stops)))
        guards: list[Any] = [None] * len(lines)
        places = list(columns)
        for number in [number for number, column in enumerate(columns) if not column]:
            line, begin, at = lines[number], begins[number], 0
            if sizes[number] - counts[number] > 1:
                guards[number], guard = meanings[begin - 1], words[begin - 2]
                at = line.index(guard) + len(guard)
            places[number] = line.index(words[begin - 1], at) + 1
        rows: list[Any] = list(zip(opcodes, lists, guards, places, strict=True))
        if not all(meanings[1:]):
            rows = [row if row[0] and all(row[1]) and (row[2] or size - count == 1) else None
                    for row, size, count in zip(rows, sizes, counts, strict=True)]
        return rows

    def _entry(self, line: str, sort: str) -> Entry | None:
        """What a line of a sort holds that is no plain instruction; None if it is left."""
        bare = line.strip(BLANKS)
        if sort in ("i", "s"):
            return self._statements(line)
        if sort == ":" and ONE_LABEL.fullmatch(bare) is not None:
            return Entry("", [(bare[:-1], line.index(bare) + 1)])
        if sort == "l" and (match := LOC.fullmatch(bare)) is not None:
            try:
                return Entry("", [(loc(match),)])
            except Odd:
                return None
        return Entry(bare, []) if bare in ("{", "}") else None if bare else BLANK

    def _statements(self, text: str) -> Entry | None:
        """Statements in one line, and the braces around them."""
        parts: list[Part] = []
        at = _skip(text, 0)
        opening = text[at] == "{"
        if opening:
            at = _skip(text, at + 1)
        try:
            while at < len(text) and text[at] != "}":
                if len(parts) > STATEMENTS:
                    return None
                match = INSTRUCTION.match(text, at)
                if match is not None:
                    guard, name, rest = match.groups()
                    operands = () if rest is None else self.lists.callees(rest) if name in CALLS else self.lists.operands(rest)
                    opcode = name if name in CALLS else self.meanings[name]
                    if type(opcode) is not str:
                        return None
                    parts.append((opcode, operands, None if guard is None else self.guards[guard], match.start(2) + 1))
                    at = match.end()
                else:
                    stop = text.find(";", at) + 1
                    parts += [(variable, at + column + 1) for variable, column in self.declarations[text[at:stop]]]
                    at = _skip(text, stop)
        except Odd:
            return None
        closing = at < len(text)
        return None if closing and _skip(text, at + 1) < len(text) else Entry("{" * opening + "}" * closing, parts)


def _skip(text: str, at: int) -> int:
    """The next place that is not blank."""
    match = INK.search(text, at)
    return len(text) if match is None else match.start()


def loc(match: re.Match[str]) -> Loc:
    file, line, column, name, offset, *inlined = match.groups()
    if any(len(number) > 1 and number[0] == "0" for number in (file, line, column, offset or "", *inlined) if number):
        raise Odd
    if name is None:
        return Loc(int(file), int(line), int(column))
    by = [int(number) for number in inlined]
    return Loc(int(file), int(line), int(column), (name, int(offset or 0), by[0], by[1], by[2]))


def made(part: Part, line: int) -> Statement:
    """The statement of a line of this number."""
    if len(part) == 1:
        return part[0]
    place = spot(line, part[-1])
    if len(part) == 2:
        return Label(part[0], place) if isinstance(part[0], str) else moved(part[0], place)
    node = new(Instruction)
    set_opcode(node, part[0])
    set_operands(node, part[1])
    set_guard(node, part[2])
    set_place(node, place)
    return node


def instructions(opcodes: Sequence[str], operands: Iterable[tuple[Operand, ...]], guards: Iterable[Guard | None], columns: Iterable[int],
                 lines: Iterable[int]) -> list[Instruction]:
    """Instructions in the lines and columns of these numbers."""
    count = len(opcodes)
    nodes, places = list(map(new, repeat(Instruction, count))), list(map(new, repeat(Position, count)))
    exhaust(map(set_opcode, nodes, opcodes))
    exhaust(map(set_operands, nodes, operands))
    exhaust(map(set_guard, nodes, guards))
    exhaust(map(set_place, nodes, places))
    exhaust(map(set_file, places, repeat(None)))
    exhaust(map(set_line, places, lines))
    exhaust(map(set_column, places, columns))
    return nodes
