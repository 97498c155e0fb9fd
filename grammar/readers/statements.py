"""The statement reader: reads a body, its lines by the line reader and the rest statement by statement.

It builds every node as it reads. A statement that its patterns do not know goes to the reference reader.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import Any

from ..errors import ParseError, Position
from ..tree import Block, Instruction, Label, Statement
from .declarations import VARIABLES
from .directives import LOC, PRAGMA, loc, pragma
from .fallback import Fallback
from .limits import MAX_DEPTH, too_deep
from .lines import CALLS, LineBlock, LineReader
from .slots import at_position, statement
from .source import Source
from .tokens import GAP, IDENT, LONG, NAME, NOT_BLANK, OPCODE, NeedsReference

LABEL = re.compile(rf"({IDENT}){GAP}:(?!:)")
LIST_OR_PROTOTYPE = re.compile(r"\.(?:branchtargets|calltargets|callprototype)\b")
STATEMENT = re.compile(rf"(?:@{GAP}(!?){GAP}({NAME})[ \t\r\n]+)?({OPCODE})(?![A-Za-z0-9_$.:])([^;\"/@]*+);")
END = re.compile(r'"[^"\n]*"|//[^\n]*|;')
NEXT_CHARACTER = re.compile(NOT_BLANK)


class StatementReader:
    """One reading of a body."""

    def __init__(self, source: Source, lines: LineReader, fallback: Fallback, start: int, stop: int) -> None:
        """`start`: the offset after the opening brace. `stop`: about where the body ends. The line reader reads no more at first."""
        self.source, self.lines, self.fallback = source, lines, fallback
        self.text, self.starts = source.text, source.starts
        self.start = start
        self.limit = min(bisect_right(self.starts, stop) + 1, len(self.starts) - 1)
        self.lines.add_ranges(self.text[start:stop])
        self.block = LineBlock(0, 0, [], [], [])
        self.stack: list[list[Any]] = []
        self.body: list[Any] = []

    def read(self) -> int:
        """Reads the body. The offset after its closing brace."""
        at, started = self.start, True
        while True:
            try:
                stop = self._statements(at, started=started)
            except ParseError as error:
                at, started = self.fallback.resume(error, at), False
                if at >= len(self.text):
                    return at
                continue
            if stop >= 0:
                return stop
            at, started = self._lines(-1 - stop), False

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements that were read. If the text ends too soon, the blocks that are open then are left out."""
        return tuple(self.stack[0] if self.stack else self.body)

    # --------------------------------------------------------------------------------------------- line by line

    def _lines(self, at: int) -> int:
        """Reads lines from number `at` on, as long as the line reader knows them; the offset where something else begins."""
        end = len(self.source.lines)
        while at < end:
            if not self.block.first <= at < self.block.last:
                self.block = self.lines.read(at, self.limit if at < self.limit else end)
            _, last, nodes, _, others = self.block
            done = self.block.before(at)
            for number in range(bisect_left(others, (at,)), len(others)):
                line, stop, entry = others[number]
                if stop > done:
                    self.body += nodes[done:stop]
                    done = stop
                if entry is None:
                    column = self._line(line)
                    if column >= 0:
                        return self.starts[line] + column
                    continue
                braces, drafts = entry
                if braces[:1] == "{":
                    self._open(self.starts[line] + self.source.lines[line].index("{"))
                for draft in drafts:
                    self.body.append(statement(draft, line + 1))
                if braces[-1:] == "}":
                    if not self.stack:
                        return self.starts[line] + self.source.lines[line].partition("//")[0].rindex("}")
                    self._close()
            self.body += nodes[done:]
            at = last
        return len(self.text)

    def _line(self, number: int) -> int:
        """Reads the statements of a line: -1, or the column (from 0) where something begins that it does not know."""
        line = self.source.lines[number].partition("//")[0]
        at, start = 0, self.starts[number]
        while match := NEXT_CHARACTER.search(line, at):
            at, first = match.start(), match[0]
            if first == "{":
                self._open(start + at)
                at += 1
            elif first == "}" and self.stack:
                self._close()
                at += 1
            elif first == "." and (match := VARIABLES.match(line, at)) is not None:
                if not self._declaration(match, start):
                    return at
                at = match.end()
            else:
                match = STATEMENT.match(line, at)
                if match is None or not self._instruction(match, Position(None, number + 1, match.start(3) + 1)):
                    return at
                at = match.end()
        return -1

    def _instruction(self, match: re.Match[str], place: Position) -> bool:
        negated, predicate, opcode, rest = match.groups()
        lists = self.lines.lists
        try:
            operands = lists.of_call(rest) if opcode in CALLS else lists.of_instruction(rest)
            guard = None if predicate is None else self.lines.guards[f"@{negated}{predicate}"]
        except NeedsReference:
            return False
        self.body.append(Instruction(opcode, operands, guard, place))
        return True

    def _declaration(self, match: re.Match[str], start: int = 0) -> bool:
        """Adds the variables of a declaration that was matched in the text, or in a line that begins at the offset `start`."""
        begin = start + match.start()
        try:
            self.body += [at_position(variable, self.source.position(begin + offset))
                          for variable, offset in self.lines.declarations[match[0]]]
        except NeedsReference:
            return False
        return True

    def _open(self, offset: int) -> None:
        if len(self.stack) + 2 > MAX_DEPTH:
            raise too_deep(self.source.position(offset))
        self.stack.append(self.body)
        self.body = []

    def _close(self) -> None:
        block = Block(tuple(self.body))
        self.body = self.stack.pop()
        self.body.append(block)

    # ---------------------------------------------------------------------------------------- statement by statement

    def _statements(self, at: int, *, started: bool = False) -> int:
        """Reads statements from the offset on, until one begins a line: -1 - its number. At the end of the body: the offset after it.

        `started`: what stands before the offset is read already, so that the very next statement may begin a line.
        """
        text, end = self.text, len(self.text)
        while True:
            stop = self.source.skip(at)
            if started and stop < end and "\n" in text[at:stop]:
                return -bisect_right(self.starts, stop)
            at, started = stop, True
            if at == end:
                raise self.fallback.error(at, len(self.stack) + 1)
            first = text[at]
            if first == "}":
                if not self.stack:
                    return at + 1
                self._close()
                at += 1
            elif first == "{":
                self._open(at)
                at += 1
            else:
                at = self._statement(at, first)

    def _statement(self, at: int, first: str) -> int:
        """Reads one statement that is not a block and begins with the character `first`; the offset after it."""
        text = self.text
        if first == ".":
            if (match := VARIABLES.match(text, at)) is not None and self._declaration(match):
                return match.end()
            if (match := LOC.match(text, at)) is not None:
                self.body.append(loc(match))
                return match.end()
            if (match := PRAGMA.match(text, at)) is not None:
                self.body.append(pragma(self.source, at))
                return match.end()
            if LIST_OR_PROTOTYPE.match(text, at) and self.body and type(self.body[-1]) is Label:
                label = self.body.pop().position
                at = self.starts[label.line - 1] + label.column - 1
            return self._other(at)
        if (match := LABEL.match(text, at)) is not None:
            if LIST_OR_PROTOTYPE.match(text, self.source.skip(match.end())):
                return self._other(at)
            self.body.append(Label(match[1], self.source.position(at)))
            return match.end()
        match = STATEMENT.match(text, at)
        if match is None or not self._instruction(match, self.source.position(match.start(3))):
            return self._other(at)
        return match.end()

    def _other(self, at: int) -> int:
        """Gives a statement up to its semicolon to the reference reader; the offset after it."""
        try:
            initialized = self.fallback.initialized("statements", at, len(self.stack) + 1)
        except NeedsReference:
            initialized = None
        if initialized is not None:
            self.body += initialized[0]
            return initialized[1]
        for match in END.finditer(self.text, at):
            if match[0] == ";":
                if match.end() - at > LONG:  # what has no semicolon of its own is not read up to that of another
                    error = self.fallback.error(at, len(self.stack) + 1, soon=True)
                    if isinstance(error, ParseError):
                        raise error
                try:
                    found = self.fallback.fragment("statements", at, match.end())
                except NeedsReference:
                    break
                self.body += found
                self.fallback.count_labels(found, at)
                return match.end()
        raise self.fallback.error(at, len(self.stack) + 1)
