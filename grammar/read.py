"""Text to tree by lines: what compilers write is read here, line by line, and all else is handed to the grammar.

A body of lines that are one plain statement each is read by their templates, which are few (`templates`), and its nodes are made when
somebody asks for them (`bodies`). Statements of other shapes go through one pattern, and those that it does not know through
`grammar/ptx.lark`, statement by statement. The tree is the one that the grammar alone makes; so are the errors, since nothing is
refused here but nesting, and all of them are told at once.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import accumulate, count
from operator import add
from typing import Any, Protocol

from . import heads, listing
from .blanks import without_comments
from .bodies import Body
from .columns import Columns
from .errors import ParseError, Position
from .making import Maker
from .resting import resting
from .templates import Plain, Templates
from .tree import Aggregate, Data, Function, Initializer, Module, Section, Variable
from .words import BLANKS, Odd, Words, setter, spot

BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*+")
STRANGE = re.compile(r"[\x0b\x0c\x1c-\x1f]|[^\x00-\x7f]")

MOST = 100
"""Errors of one text that `parse_all` tells."""

LARGEST = 1 << 20
"""How many signs may be given to the grammar at once: it takes 15 seconds and 250 MB for as many."""

set_initializer = setter(Variable, "initializer")


class TooLarge(ParseError):
    """A statement or item that is not plain and has more than `LARGEST` signs. `stop`: the offset behind it."""

    def __init__(self, place: Position, stop: int) -> None:
        super().__init__(f"what begins here has more than {LARGEST} signs: so many may only be plain operands, constants or debug data",
                         place)
        self.stop = stop


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
    try:
        with resting():
            blank = text = without_comments(text) if "/*" in text else text
            if not blank.isascii() or any(sign in blank for sign in "\x0b\x0c\x1c\x1d\x1e\x1f"):
                blank = STRANGE.sub("\x01", blank)  # `str.split` takes some of them for blanks; none of them is PTX
            lines = Lines(blank, text, errors)
            try:
                return lines.module(), errors or []
            except Odd:
                return lines.whole(), []
    except ParseError as error:
        return None, [*(errors or ()), error]


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
        self.known = 0, 1  # an offset and its line
        self.words = Words()
        self.listed = 0
        self.rows: dict[str, Data] = {}
        self.values = heads.Values(self.words)
        self.parameters: dict[str, heads.Parameter] = {}
        self.templates = Templates(text)
        self.last: Plain | None = None  # the plain body that was read last
        self.odd = 0  # the offset up to which no plain body is looked for

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def starts(self) -> list[int]:
        """Where each line begins, and one more number."""
        return [0, *map(add, accumulate(map(len, self.lines)), count(1))]

    @cached_property
    def columns(self) -> Columns:
        """The text's lines, for when nodes are made of them."""
        return Columns(self.text, self.lines, self.starts, self.words)

    @cached_property
    def maker(self) -> Maker:
        """What makes the nodes of plain bodies."""
        return Maker(self.text)

    # ------------------------------------------------------------------------------------------------ places

    def place(self, offset: int) -> Position:
        """The line and column of an offset, which is near the one before."""
        at, line = self.known
        line += self.text.count("\n", at, offset) if offset > at else -self.text.count("\n", offset, at)
        self.known = offset, line
        return spot(line, offset - self.text.rfind("\n", 0, offset))

    def skip(self, offset: int) -> int:
        """The next offset that is neither blank nor comment."""
        match = BLANK.match(self.text, offset)
        assert match is not None
        return match.end()

    def wrong(self, offset: int, depth: int = 0, stopped: tuple[int, listing.Stopped] | None = None) -> Exception:
        """What the grammar says about the item at the offset, or the statement within so many braces; `Odd` if it finds no fault.

        `stopped`: where its initialiser begins, and where that is wrong.
        """
        place = self.place(offset)
        opening = f".func f() {'{' * depth}" if depth else ""
        stub = f".version 9.0 .target sm_90a .address_size 64 {opening}\n{' ' * (place.column - 1)}"
        begin = offset
        if stopped is not None and stopped[0] < stopped[1].sign:
            stub, begin = stub + self.original[offset:stopped[0] + 1] + self.shortened(*stopped), stopped[1].sign
        return self.first_error(stub, begin, place, 2 - place.line)

    def first_error(self, stub: str, begin: int, place: Position, lines: int) -> Exception:
        """The first error of the text from the offset on, behind a stub that makes it so many lines longer; `Odd` if there is none.

        No more is given to the grammar than it needs: an error near the end of a part of the text may be none of all of it.
        """
        stop = end = len(self.original)
        for size in (LARGEST // 64, LARGEST):
            if begin + size < end:
                stop = self.original.rfind("\n", begin + size // 2, begin + size)
                stop = stop if stop >= 0 else begin + size
            else:
                stop = end
            try:
                _grammar().parse(stub + self.original[begin:stop])
            except ParseError as error:
                found = error.position
                told = ParseError(error.message, Position(None, found.line - lines, found.column), error.expected)
                if stop == end or self.offset(told.position) < stop - size // 4:
                    return told
            else:
                if stop == end:
                    return Odd()
        return TooLarge(place, max(stop, self.text.find(";", stop)))

    def shortened(self, brace: int, stopped: listing.Stopped) -> str:
        """What may stand between the first brace of an initialiser and the sign behind which it is wrong, in as many lines and columns."""
        text, sign = self.original, stopped.sign
        before = {"{": "{" * (stopped.depth - 2), ",": "{" * (stopped.depth - 1) + "0", "}": "{" * stopped.depth}[text[sign]]
        lines = text.count("\n", brace, sign)
        blanks = sign - text.rfind("\n", brace, sign) - 1 if lines else sign - brace - 1 - len(before)
        return before + "\n" * lines + " " * blanks

    def offset(self, place: Position) -> int:
        """The offset of a place."""
        return min(self.starts[place.line - 1] + place.column - 1, len(self.text))

    def behind(self, error: ParseError, at: int) -> int:
        """Where reading goes on behind an error of what began at the offset: the end of its line or statement. Raises it if it may not."""
        if self.errors is None or len(self.errors) == MOST:
            raise error
        self.errors.append(error)
        found = max(at, error.stop if isinstance(error, TooLarge) else self.offset(error.position))
        stops = [stop for stop in (self.text.find("\n", found), self.text.find(";", found)) if stop >= 0]
        return min(stops, default=len(self.text) - 1) + 1

    def grammar(self, start: str, offset: int, stop: int, behind: str = "") -> list[Any]:
        """The nodes that the grammar makes of a part of the text with something behind it; `Odd` if it is none by itself or too much."""
        if stop - offset > LARGEST:
            raise Odd
        return _grammar().fragment(self.original[offset:stop] + behind, start, self.place(offset))

    def initialised(self, start: str, at: int, depth: int) -> tuple[list[Any], int] | None:
        """The nodes of a declaration at the offset, within so many braces, that has an initialiser in braces, and the offset behind it.

        None if it is no such declaration; raises a `ParseError` if it is wrong.
        """
        match = heads.LISTED.match(self.text, at)
        if match is None:
            return None
        brace = match.end() - 1
        try:
            found = self.grammar(start, at, brace, "{};")
            initializer, stop = listing.aggregate(self.text, brace, depth, self.element)
        except listing.Stopped as stopped:
            raise self.wrong(at, depth, (brace, stopped)) from None
        stop = self.skip(stop)
        if self.text[stop:stop + 1] != ";":
            return None
        set_initializer(found[-1], initializer)
        return found, stop + 1

    def element(self, text: str, depth: int) -> Initializer:
        """An element of an initialiser within so many braces; `Odd` if it is none by itself."""
        bare = text.strip(BLANKS)
        if not bare:
            raise Odd
        try:
            return heads.constant_of(bare, self.words)
        except Odd:
            stub = f".global .b32 x = {'{' * depth}{text}{'}' * depth};"
            found: Initializer = _grammar().fragment(stub, "items", Position(None, 1, 1))[0].initializer
        for _ in range(depth):
            assert type(found) is Aggregate
            found, = found.elements
        return found

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
        self.last = None  # from here on bodies hold on to their text, and nothing else does
        return Module(version, target, address_size, tuple(items))

    def whole(self) -> Module:
        """The module by the grammar alone: its head is odd."""
        if len(self.text) <= LARGEST:
            return _grammar().parse(self.original)
        start = Position(None, 1, 1)
        error = self.first_error("", 0, start, 0)
        raise TooLarge(start, len(self.text)) if isinstance(error, Odd) else error

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
            if section is None and (listed := self.initialised("items", at, 0)) is not None:
                items += listed[0]
                return listed[1]
            if stop == 0:
                raise Odd
            if section is None and match is not None and match["head"] is not None:
                return self.function(self.grammar("items", at, stop, "}")[0], stop, items)
            items += self.grammar("items", at, stop)
        except Odd:
            if not items:
                raise  # the head of the module may still go on there
            raise self.wrong(at) from None
        return stop

    def function(self, function: Function, at: int, items: list[Any]) -> int:
        """The body of a function whose opening brace ends before the offset; the offset behind its closing one."""
        plain = self.plain(at, f"{function.name}_param_")
        found: Any = plain
        if plain is not None:
            at = plain.stop + 2
        else:
            body = Body(self, at, self.odd)
            at = body.read(at)
            found = body.made
        heads.set_body(function, found)
        items.append(function)
        return at

    def plain(self, at: int, parameters: str) -> Plain | None:
        """The body behind an opening brace, if it has its lines for itself and all of them are plain.

        `parameters`: how the names of the function's own begin."""
        begin = self.text.find("\n", at) + 1
        if at < self.odd or not begin or self.text[at:begin - 1].partition("//")[0].strip(BLANKS):
            return None
        stop = self.closing(begin - 1)
        found = self.templates.body(self.text[begin:stop], parameters) if stop >= 0 else None
        if found is None:
            self.odd = stop if stop >= 0 else len(self.text)
            return None
        if self.last is not None:
            self.last.following = found
        self.last = found
        return found.within(self, at, stop)

    def closing(self, at: int) -> int:
        """The line break before a closing brace behind as many others as opening ones, from the line break at the offset on; or -1."""
        text, depth = self.text, 0
        while (stop := text.find("\n}", at)) >= 0:
            if text.find("{", at, stop) >= 0 or text.find("}", at, stop) >= 0:  # most bodies have none, which is told faster
                depth += text.count("{", at, stop) - text.count("}", at, stop)
            if depth <= 0:
                break
            at = stop + 1
        return stop if depth == 0 else -1


def _grammar() -> Grammar:
    """The grammar's own reader; lark is imported only when something needs it."""
    from . import reference

    return reference

