"""The line reader: some thousands of lines at a time, one column of all lines after the other.

A compiler mostly writes lines that are one simple instruction each. A line that was read once is known when it comes again, and so is a
word. Work on every line and word is done by loops of the interpreter (`split`, `map`). Other work is done once for each shape of a line:
what is left of it without letters and digits. So a node takes half of the time of its `__init__`. This reader refuses nothing: it leaves
lines of other shapes to the statement reader.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_left
from itertools import accumulate, compress, repeat
from operator import add, itemgetter, sub
from typing import Any, NamedTuple

from ..tree import Guard, Instruction, Operand
from .declarations import Declarations
from .directives import LOC, loc
from .operands import Guards, OperandLists, Operands, register_ranges
from .slots import Draft, InstructionFields, instructions, names
from .source import Source
from .tokens import BLANKS, IDENT, NAME, NOT_BLANK, OPCODE, NeedsReference

SHAPE = str.maketrans("", "", string.ascii_letters + string.digits + "_+-|!")
OPERAND, FIRST = r"\[?[%$.]*\]?", r"\[?[%$][%$.]*\]?"
SIMPLE = re.compile(
    rf"([ \t]*)(@%?[ \t]+)?(?:([.:]+)([ \t]+{OPERAND}(?:,[ \t]?{OPERAND})*)|([ \t]+{FIRST}(?:,[ \t]?{OPERAND})*));[ \t\r]*")
LABEL = re.compile(r"[ \t]*\$*:[ \t\r]*")
LOCATION = re.compile(r"[ \t]*\.[ \t][ \t\r,$]*")

INSTRUCTION = re.compile(rf"(?:(@!?+{NAME})[ \t]++)?+([a-z][A-Za-z0-9_.:]*+)(?:[ \t]++([^;\"/@]*+))?+;[ \t\r]*+")
COMMENT = re.compile(r'//[^"\n]*$', re.MULTILINE)  # a comment with quotes stays: it may be in a string
ONE_OPCODE = re.compile(OPCODE)
ONE_LABEL = re.compile(rf"({IDENT}):")
SECTION = re.compile(r"^[ \t]*+\.section\b", re.MULTILINE)
CALLS = ("call", "call.uni")
MAX_LINES = 4096
"""How many lines are read at once, so that intermediate lists stay small beside the tree."""
MAX_SHAPE = 10_000
"""How many characters of a shape are matched: the pattern takes 200 bytes for each operand."""
MAX_STATEMENTS = 16
"""How many statements of one line are kept for when the line comes again."""

NEXT_CHARACTER = re.compile(NOT_BLANK)
LAST = itemgetter(-1)


class Entry(NamedTuple):
    """A line that is not one simple instruction: its statements, and the braces before and after them."""

    braces: str
    drafts: list[Draft]


BLANK = Entry("", [])


class OtherLine(NamedTuple):
    """A line that is not a simple instruction. Without an entry the line reader does not know it.

    `line` is its number from 0; `after` is how many simple instructions of the block stand before it.
    """

    line: int
    after: int
    entry: Entry | None


class Shape(NamedTuple):
    """What lines of one shape are.

    `kind`: "instruction" (one simple instruction), "statements", "label", "loc", or "" for any other. For a simple instruction: `words` is
    how many words it has, `operands` how many of them are operands, and `column` where it stands (0 if the shape does not tell).
    """

    kind: str
    words: int = 0
    operands: int = 0
    column: int = 0


def shape(text: str) -> Shape:
    if len(text) > MAX_SHAPE:
        return Shape("statements" if ";" in text else "")
    simple = SIMPLE.fullmatch(text)
    if simple is not None:
        before, guard, modifiers, some, few = simple.groups()
        count = (some or few).count(",") + 1
        return Shape("instruction", count + 1 + (guard is not None), count, len(before) + 1 if guard is None and modifiers else 0)
    if ";" in text:
        return Shape("statements")
    return Shape("label" if LABEL.fullmatch(text) is not None else "loc" if LOCATION.fullmatch(text) is not None else "")


class Meanings(dict[str, "Operand | Guard | str | None"]):
    """What each word of an instruction is: an operand with its comma or semicolon, a guard, or an opcode. None is none of them."""

    def __init__(self, operands: Operands, guards: Guards) -> None:
        self.operands, self.guards = operands, guards

    def __missing__(self, word: str) -> Operand | Guard | str | None:
        found: Operand | Guard | str | None = None
        try:
            if word[-1] in ",;":
                found = self.operands[word[:-1]]
            elif word[0] == "@":
                found = self.guards[word]
            elif word not in CALLS and ONE_OPCODE.fullmatch(word) is not None:
                found = word
        except NeedsReference:
            pass
        self[word] = found
        return found


class LineBlock(NamedTuple):
    """The lines `first` to `last` of a text: the simple instructions are in `nodes`, the other lines in `others`."""

    first: int
    last: int
    nodes: list[Instruction]
    other_numbers: list[int]  # which lines are not simple instructions, counted from `first`; blank ones included
    others: list[OtherLine]

    def before(self, line: int) -> int:
        """How many simple instructions stand before a line (its number from 0)."""
        return line - self.first - bisect_left(self.other_numbers, line - self.first)


class LineReader:
    """Reads lines of a text, and remembers what they are."""

    def __init__(self, source: Source, operands: Operands) -> None:
        self.text, self.lines, self.starts = source.text, source.lines, source.starts
        self.operands, self.lists, self.guards = operands, OperandLists(operands), Guards()
        self.meanings = Meanings(operands, self.guards)
        self.declarations = Declarations(operands)
        self.shapes: dict[str, Shape] = {}
        self.plans: dict[str, tuple[int, int, int] | None] = {}
        self.rows: dict[str, InstructionFields | None] = {}  # by a line without its comment; None if it is in `entries`
        self.entries: dict[str, Entry | None] = {}
        self.known_ranges: dict[str, int] = {}
        self.comma_first = False  # whether a line begins with a comma: it may continue a `.loc`

    def add_ranges(self, text: str) -> None:
        """Adds the registers that a part of the text declares in ranges: most of them will be met."""
        for _, words in register_ranges(text, self.known_ranges):
            registers = names(words)
            self.operands.update(zip(words, registers, strict=True))
            for end in (",", ";"):
                self.meanings.update(zip(map(add, words, repeat(end)), registers, strict=True))

    def read(self, first: int, limit: int) -> LineBlock:
        """Reads lines from the number `first` on, to `limit` at most."""
        last = min(first + MAX_LINES, limit)
        text = self.text[self.starts[first]:self.starts[last] - 1]
        if ".section" in text and (section := SECTION.search(text, 1)) is not None:
            text = text[:section.start() - 1]
            last = first + 1 + text.count("\n")
        lines = COMMENT.sub("", text).split("\n") if "//" in text else self.lines[first:last]
        fresh = set(lines).difference(self.rows)
        if fresh:
            self.learn(list(fresh))
        rows = list(map(self.rows.__getitem__, lines))
        simple = list(filter(None, rows))
        nodes: list[Instruction] = []
        if simple:
            opcodes, operands, guards, columns = zip(*simple, strict=True)
            nodes = instructions(opcodes, operands, guards, columns, compress(range(first + 1, last + 1), rows))
        other_numbers = [number for number, row in enumerate(rows) if row is None]
        others = []
        for before, number in enumerate(other_numbers):
            entry = self.entries[lines[number]]
            if entry is None or (entry.drafts and len(entry.drafts[0]) == 1 and self._goes_on(number, first, lines)):
                others.append(OtherLine(first + number, number - before, None))
            elif entry is not BLANK:
                others.append(OtherLine(first + number, number - before, entry))
        return LineBlock(first, last, nodes, other_numbers, others)

    def _goes_on(self, number: int, first: int, lines: list[str]) -> bool:
        """Whether the next line that is not blank begins with a comma, so that the `.loc` of this line goes on there."""
        if not self.comma_first and number + 1 < len(lines) and lines[number + 1].lstrip(BLANKS)[:2] not in ("", "//"):
            return False
        for following in range(first + number + 1, len(self.lines)):
            begin = self.lines[following].lstrip(BLANKS)[:2]
            if begin not in ("", "//"):
                return begin[0] == ","
        return False

    # ------------------------------------------------------------------------------------------------- new lines

    def learn(self, lines: list[str]) -> None:
        """Reads lines that have not been met in this text."""
        shapes = "\n".join(lines).replace(".reg", "=").translate(SHAPE).split("\n")
        for met in set(shapes).difference(self.shapes):
            found = self.shapes[met] = shape(met)
            self.plans[met] = (found.words, found.operands, found.column) if found.words else None
            self.comma_first = self.comma_first or met.lstrip(BLANKS)[:1] == ","
        plans = list(map(self.plans.__getitem__, shapes))
        simple = list(compress(lines, plans))
        if simple:
            self.rows.update(zip(simple, self._simple(simple, list(filter(None, plans))), strict=True))
        for line, met, plan in zip(lines, shapes, plans, strict=True):
            if plan is None or self.rows[line] is None:
                entry = self._entry(line, self.shapes[met].kind)
                alone = entry.drafts[0] if entry is not None and len(entry.drafts) == 1 and not entry.braces else ()
                if len(alone) == 4:
                    self.rows[line] = alone
                else:
                    self.rows[line], self.entries[line] = None, entry

    # ------------------------------------------------------------------------------------------------ statements

    def _simple(self, lines: list[str], plans: list[Any]) -> list[InstructionFields | None]:
        """The instructions of lines whose shape is a guard, an opcode and operands, or some of them. None: the line is not that simple."""
        sizes, counts, columns = zip(*plans, strict=True)
        words = " ".join(lines).replace(",", ", ").split()
        stops = list(accumulate(sizes))
        # Each line has one semicolon, at its end. If the last word of every line ends with it, every word is in its place.
        if len(words) != stops[-1] or set(map(LAST, map(["", *words].__getitem__, stops))) != {";"}:
            parts = [line.replace(",", ", ").split() for line in lines]
            fit = [len(part) == size and part[-1][-1] == ";" for part, size in zip(parts, sizes, strict=True)]
            fitting = iter(self._simple(list(compress(lines, fit)), list(compress(plans, fit))) if any(fit) else ())
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

    def _entry(self, line: str, kind: str) -> Entry | None:
        """The statements of a line of this kind that is not a simple instruction. None: the line reader does not know it."""
        bare = line.strip(BLANKS)
        if kind in ("instruction", "statements"):
            return self._statements(line)
        if kind == "label" and ONE_LABEL.fullmatch(bare) is not None:
            return Entry("", [(bare[:-1], line.index(bare) + 1)])
        if kind == "loc" and (match := LOC.fullmatch(bare)) is not None:
            try:
                return Entry("", [(loc(match),)])
            except NeedsReference:
                return None
        return Entry(bare, []) if bare in ("{", "}") else None if bare else BLANK

    def _statements(self, text: str) -> Entry | None:
        """The statements of one line, with the braces before and after them. None: the line reader does not know one of them."""
        drafts: list[Draft] = []
        at = _skip(text, 0)
        opening = text[at] == "{"
        if opening:
            at = _skip(text, at + 1)
        try:
            while at < len(text) and text[at] != "}":
                if len(drafts) > MAX_STATEMENTS:
                    return None
                match = INSTRUCTION.match(text, at)
                if match is not None:
                    guard, name, rest = match.groups()
                    operands = () if rest is None else self.lists.of_call(rest) if name in CALLS else self.lists.of_instruction(rest)
                    opcode = name if name in CALLS else self.meanings[name]
                    if type(opcode) is not str:
                        return None
                    drafts.append((opcode, operands, None if guard is None else self.guards[guard], match.start(2) + 1))
                    at = match.end()
                else:
                    stop = text.find(";", at) + 1
                    drafts += [(variable, at + column + 1) for variable, column in self.declarations[text[at:stop]]]
                    at = _skip(text, stop)
        except NeedsReference:
            return None
        closing = at < len(text)
        return None if closing and _skip(text, at + 1) < len(text) else Entry("{" * opening + "}" * closing, drafts)


def _skip(text: str, at: int) -> int:
    """The next offset that is not blank."""
    match = NEXT_CHARACTER.search(text, at)
    return len(text) if match is None else match.start()
