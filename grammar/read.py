"""Text to tree by lines: what compilers write is read here, line by line, and all else is handed to the grammar.

A line that is one plain statement is read by its words, each of which is read once (`words`). Statements of other shapes go
through one pattern, and those that it does not know through `grammar/ptx.lark`, statement by statement. The tree is the one
that the grammar alone makes; so are the errors, since nothing is refused here but nesting.
"""

from __future__ import annotations

import gc
import re
from bisect import bisect_left, bisect_right
from itertools import accumulate, count
from operator import add
from typing import Any, Protocol

from . import heads
from .blanks import DEPTH, too_deep, without_comments
from .columns import CALLS, LOC, Columns, loc, made
from .errors import ParseError, Position
from .tree import Block, Data, Directive, Function, Instruction, Label, Module, Section, Targets, Text
from .words import IDENT, NAME, OPCODE, Odd, Words

W = r"[ \t\r\n]*+"
BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*+")
LABEL = re.compile(rf"({IDENT}){W}:(?!:)")
LISTING = re.compile(r"\.(?:branchtargets|calltargets|callprototype)\b")
STATEMENT = re.compile(rf"(?:@{W}(!?){W}({NAME})[ \t\r\n]+)?({OPCODE})(?![A-Za-z0-9_$.:])([^;\"/@]*+);")
END = re.compile(r'"[^"\n]*"|//[^\n]*|;')
INK = re.compile(r"[^ \t\r]")
PRAGMA = re.compile(rf'\.pragma{W}("[^"\n]*"){W};')
STRANGE = re.compile(r"[\x0b\x0c\x1c-\x1f]|[^\x00-\x7f]")

MOST = 100
"""Errors of one text that `parse_all` tells."""


def parse(text: str) -> Module:
    """The module that a PTX text is; `ParseError` says where it is not PTX and what was expected there."""
    module, errors = _parse(text, None)
    if module is None:
        raise errors[0]
    return module


def parse_all(text: str) -> tuple[Module | None, list[ParseError]]:
    """What of a text is PTX, and every place where it is not (`MOST` at most): reading goes on behind the statement or item that is wrong.

    The module is None when the text does not even begin as one.
    """
    return _parse(text, [])


def _parse(text: str, errors: list[ParseError] | None) -> tuple[Module | None, list[ParseError]]:
    """`errors`: where they go; None ends at the first."""
    collecting = gc.isenabled()
    gc.disable()  # a tree has no cycles, and looking for some takes a third of the time
    try:
        blank = without_comments(text) if "/*" in text else text
        if not blank.isascii() or any(sign in blank for sign in "\x0b\x0c\x1c\x1d\x1e\x1f"):
            blank = STRANGE.sub("\x01", blank)  # `str.split` takes some of them for blanks; none of them is PTX
        try:
            return Lines(blank, text, errors).module(), errors or []
        except Odd:
            return _grammar().parse(text), []
    except ParseError as error:
        return None, [*(errors or ()), error]
    finally:
        if collecting:
            gc.enable()


class Grammar(Protocol):
    """What is used of the module `reference`."""

    def parse(self, text: str) -> Module: ...

    def fragment(self, text: str, start: str, place: Position) -> list[Any]: ...


class Lines:
    """One reading of a text."""

    def __init__(self, text: str, original: str, errors: list[ParseError] | None = None) -> None:
        self.errors = errors
        self.text = text
        self.original = original
        self.lines = text.split("\n")
        self.starts: list[int] = [0, *map(add, accumulate(map(len, self.lines)), count(1))]
        self.words = Words()
        self.words.add_ranges(text)
        self.columns = Columns(text, self.lines, self.starts, self.words)
        self.lists, self.guards = self.columns.lists, self.columns.guards
        self.listed = 0
        self.rows: dict[str, Data] = {}
        self.stack: list[list[Any]] = []
        self.body: list[Any] = []

    # ------------------------------------------------------------------------------------------------ places

    def place(self, offset: int) -> Position:
        line = bisect_right(self.starts, offset)
        return Position(None, line, offset - self.starts[line - 1] + 1)

    def skip(self, offset: int) -> int:
        """The next offset that is neither blank nor comment."""
        match = BLANK.match(self.text, offset)
        assert match is not None
        return match.end()

    def wrong(self, offset: int, *, body: bool) -> Exception:
        """What the grammar says about the statement or item at the offset; `Odd` if it finds no fault."""
        place = self.place(offset)
        opening = f".func f() {'{' * (len(self.stack) + 1)}" if body else ""
        stub = f".version 9.0 .target sm_90a .address_size 64 {opening}\n{' ' * (place.column - 1)}{self.original[offset:]}"
        try:
            _grammar().parse(stub)
        except ParseError as error:
            found = error.position
            return ParseError(error.message, Position(None, found.line - 2 + place.line, found.column), error.expected)
        return Odd()

    def behind(self, error: ParseError, at: int) -> int:
        """Where reading goes on behind an error of what began at the offset: the end of its line or statement. Raises it if it may not."""
        if self.errors is None or len(self.errors) == MOST:
            raise error
        self.errors.append(error)
        place = error.position
        found = max(at, min(self.starts[place.line - 1] + place.column - 1, len(self.text)))
        stops = [stop for stop in (self.text.find("\n", found), self.text.find(";", found)) if stop >= 0]
        return min(stops, default=len(self.text) - 1) + 1

    def grammar(self, start: str, offset: int, stop: int) -> list[Any]:
        """The nodes that the grammar makes of a part of the text."""
        return _grammar().fragment(self.original[offset:stop], start, self.place(offset))

    # --------------------------------------------------------------------------------------------- the module

    def module(self) -> Module:
        head = heads.HEADER.match(self.text, self.skip(0))
        if head is None:
            raise Odd
        version, target, address_size = heads.header(head)
        items: list[Any] = []
        at, end = self.skip(head.end()), len(self.text)
        while at < end:
            try:
                at = self.item(at, items)
            except ParseError as error:
                match = heads.BEGINNING.search(self.text, self.behind(error, at))
                at = end if match is None else match.start()
            at = self.skip(at)
        return Module(version, target, address_size, tuple(items))

    def item(self, at: int, items: list[Any]) -> int:
        """Reads the item that begins at the offset; the offset behind it."""
        text = self.text
        try:
            if (match := heads.FUNCTION.match(text, at)) is not None:
                function = heads.function(match, self)
                if match["end"] == "{":
                    return self.function(function, match.end(), items)
                items.append(function)
                return match.end()
            if (match := heads.VARIABLES.match(text, at)) is not None:
                found = heads.variables(match, self.words, public=True)
                items += [heads.moved(variable, self.place(at + offset)) for variable, offset in found]
                return match.end()
            if (match := heads.SECTION.match(text, at)) is not None and (stop := text.find("}", match.end())) >= 0:
                items.append(Section(match[1], heads.rows(self, match.end(), stop)))
                return stop + 1
            if (match := heads.FILE.match(text, at)) is not None:
                items.append(heads.file(match, self))
                return match.end()
        except Odd:
            pass
        return self.odd_item(at, items)

    def odd_item(self, at: int, items: list[Any]) -> int:
        """An item that is left to the grammar."""
        section = heads.SECTION.match(self.text, at)
        match = heads.EXTENT.match(self.text, at)
        stop = self.text.find("}", at) + 1 if section is not None else match.end() if match is not None else 0
        try:
            if stop == 0:
                raise Odd
            if section is None and match is not None and match["head"] is not None:
                found = _grammar().fragment(self.original[at:stop] + "}", "items", self.place(at))
                return self.function(found[0], stop, items)
            items += self.grammar("items", at, stop)
        except Odd:
            if not items:
                raise  # the head of the module may still go on there
            raise self.wrong(at, body=False) from None
        return stop

    def function(self, function: Function, at: int, items: list[Any]) -> int:
        """The statements of a function whose opening brace ends before the offset; the offset behind its closing one."""
        self.body, self.stack = [], []
        started = True
        while True:
            try:
                stop = self.statements(at, started=started)
            except ParseError as error:
                at, started = self.behind(error, at), False
                if at >= len(self.text):
                    stop = at
                    break
                continue
            if stop >= 0:
                break
            at, started = self.run(-1 - stop), False
        body = self.body if not self.stack else self.stack[0]
        items.append(Function(function.kind, function.name, function.parameters, function.returns, function.directives, tuple(body),
                              function.linkage, function.attributes, function.position))
        return stop

    # --------------------------------------------------------------------------------------------- statements

    def run(self, at: int) -> int:
        """Reads lines from number `at` on, as long as they hold nothing but plain statements; the offset where something else begins."""
        columns, end = self.columns, len(self.lines)
        while at < end:
            if not columns.first <= at < columns.last:
                columns.read(at)
            nodes, events = columns.nodes, columns.events
            done = columns.before(at)
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
                    self.push(self.starts[line] + self.lines[line].index("{"))
                for part in parts:
                    self.body.append(made(part, line + 1))
                if signs[-1:] == "}":
                    if not self.stack:
                        return self.starts[line] + self.lines[line].partition("//")[0].rindex("}")
                    self.pop()
            self.body += nodes[done:]
            at = columns.last
        return len(self.text)

    def line(self, number: int) -> int:
        """Reads a line of statements; -1, or the number of its signs that were read before something else begins."""
        line = self.lines[number].partition("//")[0]
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
        try:
            operands = self.lists.callees(rest) if opcode in CALLS else self.lists.operands(rest)
            guard = None if predicate is None else self.guards[f"@{negated}{predicate}"]
        except Odd:
            return False
        self.body.append(Instruction(opcode, operands, guard, place))
        return True

    def declared(self, match: re.Match[str], start: int = 0) -> bool:
        """Adds the variables of a declaration that was matched in the text or in a line of it that begins at `start`."""
        begin = start + match.start()
        try:
            self.body += [heads.moved(variable, self.place(begin + offset)) for variable, offset in self.columns.declarations[match[0]]]
        except Odd:
            return False
        return True

    def push(self, offset: int) -> None:
        if len(self.stack) + 2 > DEPTH:
            raise too_deep(self.place(offset))
        self.stack.append(self.body)
        self.body = []

    def pop(self) -> None:
        block = Block(tuple(self.body))
        self.body = self.stack.pop()
        self.body.append(block)

    def statements(self, at: int, *, started: bool = False) -> int:
        """Reads statements from the offset on, until one begins a line: -1 - its number. At the function's end: the offset behind it.

        `started`: what stands before the offset was read already, so that the very next statement may begin a line.
        """
        text, end = self.text, len(self.text)
        while True:
            stop = self.skip(at)
            if started and stop < end and "\n" in text[at:stop]:
                return -bisect_right(self.starts, stop)
            at, started = stop, True
            if at == end:
                raise self.wrong(at, body=True)
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
                said = Text(self.original[match.start(1) + 1:match.end(1) - 1])
                self.body.append(Directive("pragma", (said,), self.place(at)))
                return match.end()
            if LISTING.match(text, at) and self.body and type(self.body[-1]) is Label:
                label = self.body.pop().position
                at = self.starts[label.line - 1] + label.column - 1
            return self.odd_statement(at)
        if (match := LABEL.match(text, at)) is not None:
            if LISTING.match(text, self.skip(match.end())):
                return self.odd_statement(at)
            self.body.append(Label(match[1], self.place(at)))
            return match.end()
        match = STATEMENT.match(text, at)
        if match is None or not self.instruction(match, self.place(match.start(3))):
            return self.odd_statement(at)
        return match.end()

    def odd_statement(self, at: int) -> int:
        """A statement that is left to the grammar: up to its semicolon."""
        for match in END.finditer(self.text, at):
            if match[0] == ";":
                try:
                    found = self.grammar("statements", at, match.end())
                except Odd:
                    break
                self.body += found
                self.listed += sum(len(node.names) for node in found if type(node) is Targets)
                if self.listed > len(self.text):
                    raise ParseError("more labels are listed than a text of this size can have", self.place(at))
                return match.end()
        raise self.wrong(at, body=True)


def _grammar() -> Grammar:
    """The grammar's own reader; lark is imported only when something needs it."""
    from . import reference

    return reference

