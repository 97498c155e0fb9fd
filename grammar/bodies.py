"""The statements of one body, made as they are read: lines of plain statements by `columns`, the others one by one."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from . import heads
from .blanks import DEPTH, too_deep
from .columns import CALLS, LOC, Run, loc, made
from .errors import ParseError, Position
from .tree import Block, Directive, Instruction, Label, Statement, Targets, Text
from .words import IDENT, NAME, OPCODE, Odd

if TYPE_CHECKING:
    from .read import Lines

W = r"[ \t\r\n]*+"
LABEL = re.compile(rf"({IDENT}){W}:(?!:)")
LISTING = re.compile(r"\.(?:branchtargets|calltargets|callprototype)\b")
STATEMENT = re.compile(rf"(?:@{W}(!?){W}({NAME})[ \t\r\n]+)?({OPCODE})(?![A-Za-z0-9_$.:])([^;\"/@]*+);")
END = re.compile(r'"[^"\n]*"|//[^\n]*|;')
INK = re.compile(r"[^ \t\r]")
PRAGMA = re.compile(rf'\.pragma{W}("[^"\n]*"){W};')


class Body:
    """One reading of a body."""

    def __init__(self, whole: Lines, at: int, stop: int) -> None:
        """The body begins at one offset and will hardly go on behind the line of the other."""
        self.whole, self.text, self.starts = whole, whole.text, whole.starts
        self.limit = min(bisect_right(self.starts, stop) + 1, len(self.starts) - 1)
        self.columns = whole.columns
        self.columns.add_ranges(self.text[at:stop])
        self.lines = Run(0, 0, [], [], [])
        self.stack: list[list[Any]] = []
        self.body: list[Any] = []

    def read(self, at: int) -> int:
        """Reads from behind the opening brace on; the offset behind the closing one."""
        started = True
        while True:
            try:
                stop = self.statements(at, started=started)
            except ParseError as error:
                at, started = self.whole.behind(error, at), False
                if at >= len(self.text):
                    return at
                continue
            if stop >= 0:
                return stop
            at, started = self.run(-1 - stop), False

    @property
    def made(self) -> tuple[Statement, ...]:
        """What was read: at the end of a text that ends too soon, without the blocks that are open there."""
        return tuple(self.stack[0] if self.stack else self.body)

    # ------------------------------------------------------------------------------------------ plain statements

    def run(self, at: int) -> int:
        """Reads lines from number `at` on, as long as they hold nothing but plain statements; the offset where something else begins."""
        end = len(self.whole.lines)
        while at < end:
            if not self.lines.first <= at < self.lines.last:
                self.lines = self.columns.read(at, self.limit if at < self.limit else end)
            _, last, nodes, _, events = self.lines
            done = self.lines.before(at)
            for number in range(bisect_left(events, (at,)), len(events)):
                line, stop, entry = events[number]
                if stop > done:
                    self.body += nodes[done:stop]
                    done = stop
                if entry is None:
                    column = self.line(line)
                    if column >= 0:
                        return self.starts[line] + column
                    continue
                signs, parts = entry
                if signs[:1] == "{":
                    self.push(self.starts[line] + self.whole.lines[line].index("{"))
                for part in parts:
                    self.body.append(made(part, line + 1))
                if signs[-1:] == "}":
                    if not self.stack:
                        return self.starts[line] + self.whole.lines[line].partition("//")[0].rindex("}")
                    self.pop()
            self.body += nodes[done:]
            at = last
        return len(self.text)

    def line(self, number: int) -> int:
        """Reads a line of statements; -1, or the number of its signs that were read before something else begins."""
        line = self.whole.lines[number].partition("//")[0]
        at, start = 0, self.starts[number]
        while match := INK.search(line, at):
            at, sign = match.start(), match[0]
            if sign == "{":
                self.push(start + at)
                at += 1
            elif sign == "}" and self.stack:
                self.pop()
                at += 1
            elif sign == "." and (match := heads.VARIABLES.match(line, at)) is not None:
                if not self.declared(match, start):
                    return at
                at = match.end()
            else:
                match = STATEMENT.match(line, at)
                if match is None or not self.instruction(match, Position(None, number + 1, match.start(3) + 1)):
                    return at
                at = match.end()
        return -1

    def instruction(self, match: re.Match[str], place: Position) -> bool:
        negated, predicate, opcode, rest = match.groups()
        lists = self.columns.lists
        try:
            operands = lists.callees(rest) if opcode in CALLS else lists.operands(rest)
            guard = None if predicate is None else self.columns.guards[f"@{negated}{predicate}"]
        except Odd:
            return False
        self.body.append(Instruction(opcode, operands, guard, place))
        return True

    def declared(self, match: re.Match[str], start: int = 0) -> bool:
        """Adds the variables of a declaration that was matched in the text or in a line of it that begins at `start`."""
        begin = start + match.start()
        try:
            self.body += [heads.moved(variable, self.whole.place(begin + offset))
                          for variable, offset in self.columns.declarations[match[0]]]
        except Odd:
            return False
        return True

    def push(self, offset: int) -> None:
        if len(self.stack) + 2 > DEPTH:
            raise too_deep(self.whole.place(offset))
        self.stack.append(self.body)
        self.body = []

    def pop(self) -> None:
        block = Block(tuple(self.body))
        self.body = self.stack.pop()
        self.body.append(block)

    # ------------------------------------------------------------------------------------------ other statements

    def statements(self, at: int, *, started: bool = False) -> int:
        """Reads statements from the offset on, until one begins a line: -1 - its number. At the body's end: the offset behind it.

        `started`: what stands before the offset was read already, so that the very next statement may begin a line.
        """
        text, end = self.text, len(self.text)
        while True:
            stop = self.whole.skip(at)
            if started and stop < end and "\n" in text[at:stop]:
                return -bisect_right(self.starts, stop)
            at, started = stop, True
            if at == end:
                raise self.whole.wrong(at, len(self.stack) + 1)
            sign = text[at]
            if sign == "}":
                if not self.stack:
                    return at + 1
                self.pop()
                at += 1
            elif sign == "{":
                self.push(at)
                at += 1
            else:
                at = self.statement(at, sign)

    def statement(self, at: int, sign: str) -> int:
        """Reads one statement that is no block; the offset behind it."""
        text = self.text
        if sign == ".":
            if (match := heads.VARIABLES.match(text, at)) is not None and self.declared(match):
                return match.end()
            if (match := LOC.match(text, at)) is not None:
                self.body.append(loc(match))
                return match.end()
            if (match := PRAGMA.match(text, at)) is not None:
                self.body.append(pragma(self.whole, at))
                return match.end()
            if LISTING.match(text, at) and self.body and type(self.body[-1]) is Label:
                label = self.body.pop().position
                at = self.starts[label.line - 1] + label.column - 1
            return self.odd(at)
        if (match := LABEL.match(text, at)) is not None:
            if LISTING.match(text, self.whole.skip(match.end())):
                return self.odd(at)
            self.body.append(Label(match[1], self.whole.place(at)))
            return match.end()
        match = STATEMENT.match(text, at)
        if match is None or not self.instruction(match, self.whole.place(match.start(3))):
            return self.odd(at)
        return match.end()

    def odd(self, at: int) -> int:
        """A statement that is left to the grammar: up to its semicolon."""
        try:
            listed = self.whole.initialised("statements", at, len(self.stack) + 1)
        except Odd:
            listed = None
        if listed is not None:
            self.body += listed[0]
            return listed[1]
        for match in END.finditer(self.text, at):
            if match[0] == ";":
                try:
                    found = self.whole.grammar("statements", at, match.end())
                except Odd:
                    break
                self.body += found
                self.whole.listed += sum(len(node.names) for node in found if type(node) is Targets)
                if self.whole.listed > len(self.text):
                    raise ParseError("more labels are listed than a text of this size can have", self.whole.place(at))
                return match.end()
        raise self.whole.wrong(at, len(self.stack) + 1)


def pragma(whole: Lines, at: int) -> Directive:
    """The first pragma behind the offset."""
    match = PRAGMA.search(whole.text, at)
    assert match is not None
    return Directive("pragma", (Text(whole.original[match.start(1) + 1:match.end(1) - 1]),), whole.place(match.start()))
