"""Parts of a text that the fast readers leave to the reference reader: what they are, or what is wrong with them."""

from __future__ import annotations

from typing import Any, Protocol

from ..errors import ParseError, Position
from ..tree import Aggregate, Initializer, Module, Targets, Variable
from . import initializers
from .declarations import LISTED, constant_of
from .operands import Operands
from .slots import setter
from .source import Source
from .tokens import BLANKS, LONG, NeedsReference

MAX_ERRORS = 100
"""How many errors of one text `parse_all` gives."""
MAX_CHARACTERS = 1 << 20
"""How many characters may be given to the reference reader at once: it takes 15 seconds and 250 MB for as many."""

set_initializer = setter(Variable, "initializer")


class TooLarge(ParseError):
    """A statement or item that only the reference reader knows, with more than `MAX_CHARACTERS`. `stop` is the offset after it."""

    def __init__(self, place: Position, stop: int) -> None:
        super().__init__(f"what begins here has more than {MAX_CHARACTERS} characters: only plain operands, constants and debug data may "
                         "be as long", place)
        self.stop = stop


class Reference(Protocol):
    """The functions of the module `reference` that are used here."""

    def parse(self, text: str) -> Module: ...

    def fragment(self, text: str, start: str, place: Position) -> list[Any]: ...


def reference_reader() -> Reference:
    """The reference reader. It imports lark, which many texts do not need."""
    from . import reference

    return reference


class Fallback:
    """Gives parts of a source to the reference reader, and collects the errors of the source."""

    def __init__(self, source: Source, operands: Operands, errors: list[ParseError] | None) -> None:
        """`errors`: the list for errors. None: the first one is raised."""
        self.source, self.operands, self.errors = source, operands, errors
        self.listed_labels = 0

    # ------------------------------------------------------------------------------------------- parts of the text

    def fragment(self, start: str, offset: int, stop: int, suffix: str = "") -> list[Any]:
        """The nodes of a part of the text, read by the grammar's rule `start`. `suffix`: what is put after it.

        Raises `NeedsReference` if it is wrong, if it is right only with the text around it, or if it is too long.
        """
        if stop - offset > MAX_CHARACTERS:
            raise NeedsReference
        return reference_reader().fragment(self.source.original[offset:stop] + suffix, start, self.source.position(offset))

    def count_labels(self, nodes: list[Any], offset: int) -> None:
        """Raises `ParseError` at the offset if all lists of labels together are too long: `L<1000>` lists a thousand."""
        self.listed_labels += sum(len(node.names) for node in nodes if type(node) is Targets)
        if self.listed_labels > len(self.source.text):
            raise ParseError("more labels are listed than a text of this size can have", self.source.position(offset))

    def initialized(self, start: str, offset: int, depth: int) -> tuple[list[Any], int] | None:
        """The nodes of a declaration with an initialiser in braces, and the offset after it. None if there is no such declaration.

        `depth`: within how many braces it stands. The reference reader reads what is before the initialiser, so that this may have any
        length. Raises `ParseError` if the declaration is wrong.
        """
        match = LISTED.match(self.source.text, offset)
        if match is None:
            return None
        brace = match.end() - 1
        try:
            found = self.fragment(start, offset, brace, "{};")
            initializer, stop = initializers.aggregate(self.source.text, brace, depth, self.element)
        except initializers.Stopped as stopped:
            raise self.error(offset, depth, (brace, stopped)) from None
        stop = self.source.skip(stop)
        if self.source.text[stop:stop + 1] != ";":
            return None
        set_initializer(found[-1], initializer)
        return found, stop + 1

    def element(self, text: str, depth: int) -> Initializer:
        """An element of an initialiser, within so many of its braces."""
        bare = text.strip(BLANKS)
        if not bare:
            raise NeedsReference
        try:
            return constant_of(bare, self.operands)
        except NeedsReference:
            stub = f".global .b32 x = {'{' * depth}{text}{'}' * depth};"
            found: Initializer = reference_reader().fragment(stub, "items", Position(None, 1, 1))[0].initializer
        for _ in range(depth):
            assert type(found) is Aggregate
            found, = found.elements
        return found

    def whole(self) -> Module:
        """The module, read by the reference reader alone. If it finds nothing wrong, there are no errors."""
        original = self.source.original
        if len(original) <= MAX_CHARACTERS:
            module = reference_reader().parse(original)
            if self.errors is not None:
                self.errors.clear()
            return module
        start = Position(None, 1, 1)
        error = self._first_error("", 0, start, 0)
        raise TooLarge(start, len(original)) if isinstance(error, NeedsReference) else error

    # -------------------------------------------------------------------------------------------------- errors

    def error(self, offset: int, depth: int = 0, stopped: tuple[int, initializers.Stopped] | None = None, *,
              soon: bool = False) -> Exception:
        """What is wrong with the item or the statement at the offset. `NeedsReference` if the reference reader finds nothing wrong.

        `depth`: within how many braces it stands. `stopped`: where its initialiser begins, and where that is wrong. `soon`: nothing is
        looked for but what is wrong in the first characters.
        """
        place = self.source.position(offset)
        opening = f".func f() {'{' * depth}" if depth else ""
        stub = f".version 9.0 .target sm_90a .address_size 64 {opening}\n{' ' * (place.column - 1)}"
        begin = offset
        if stopped is not None and stopped[0] < stopped[1].offset:
            stub, begin = stub + self.source.original[offset:stopped[0] + 1] + self._shortened(*stopped), stopped[1].offset
        return self._first_error(stub, begin, place, 2 - place.line, soon=soon)

    def _first_error(self, stub: str, begin: int, place: Position, lines: int, *, soon: bool = False) -> Exception:
        """The first error of a text: a stub, and the source from the offset `begin` on. `NeedsReference` if there is none.

        Lines of that text have a number higher by `lines` than in the source. The reference reader is first given a short part, then a
        longer one. An error near the end of a part may be none in the whole text.
        """
        original = self.source.original
        stop = end = len(original)
        for size in (LONG,) if soon else (LONG, MAX_CHARACTERS):
            if begin + size < end:
                stop = original.rfind("\n", begin + size // 2, begin + size)
                stop = stop if stop >= 0 else begin + size
            else:
                stop = end
            try:
                reference_reader().parse(stub + original[begin:stop])
            except ParseError as error:
                found = error.position
                moved = ParseError(error.message, Position(None, found.line - lines, found.column), error.expected)
                if stop == end or self.source.offset(moved.position) < stop - size // 4:
                    return moved
            else:
                if stop == end:
                    return NeedsReference()
        return NeedsReference() if soon else TooLarge(place, max(stop, self.source.text.find(";", stop)))

    def _shortened(self, brace: int, stopped: initializers.Stopped) -> str:
        """A short text in place of the right part of an initialiser, after its first brace, with as many lines and columns."""
        text, offset = self.source.original, stopped.offset
        before = {"{": "{" * (stopped.depth - 2), ",": "{" * (stopped.depth - 1) + "0", "}": "{" * stopped.depth}[text[offset]]
        lines = text.count("\n", brace, offset)
        blanks = offset - text.rfind("\n", brace, offset) - 1 if lines else offset - brace - 1 - len(before)
        return before + "\n" * lines + " " * blanks

    def resume(self, error: ParseError, offset: int) -> int:
        """Keeps an error of what began at the offset; the offset where reading goes on: after the line or the statement of the error.

        Raises the error if the caller wants only the first one, or if there are too many.
        """
        if self.errors is None or len(self.errors) == MAX_ERRORS:
            raise error
        self.errors.append(error)
        text = self.source.text
        found = max(offset, error.stop if isinstance(error, TooLarge) else self.source.offset(error.position))
        stops = [stop for stop in (text.find("\n", found), text.find(";", found)) if stop >= 0]
        return min(stops, default=len(text) - 1) + 1
