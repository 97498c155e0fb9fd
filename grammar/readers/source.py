"""The text that is read: its lines, and positions for its offsets."""

from __future__ import annotations

import re
from functools import cached_property
from itertools import accumulate, count
from operator import add

from ..errors import Position
from .comments import without_comments
from .slots import position_at

GAP = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*+")
STRANGE = re.compile(r"[\x0b\x1c-\x1f]|[^\x00-\x7f]")


class Source:
    """A PTX text. A character has the same offset in `text` and in `original`.

    `text` is for the fast readers: no character that is not PTX looks like a blank in it. `original` has these characters, which a string
    may hold. Neither has a comment of the kind `/* */`.
    """

    def __init__(self, given: str) -> None:
        self.original = self.text = without_comments(given) if "/*" in given else given
        self.text = self.text.replace("\f", " ")
        if not self.text.isascii() or any(character in self.text for character in "\x0b\x1c\x1d\x1e\x1f"):
            self.text = STRANGE.sub("\x01", self.text)  # `str.split` takes some of them for blanks
        self._known = 0, 1, 0  # an offset, its line, and where that begins

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def starts(self) -> list[int]:
        """The offset of each line, and one number more."""
        return [0, *map(add, accumulate(map(len, self.lines)), count(1))]

    def position(self, offset: int) -> Position:
        """The line and column of an offset. It takes the less time the nearer the offset is to that of the call before."""
        at, line, start = self._known
        if offset >= at:  # a line may be as long as the text
            passed = self.text.count("\n", at, offset)
            start = self.text.rfind("\n", at, offset) + 1 if passed else start
            line += passed
        else:
            line -= self.text.count("\n", offset, at)
            start = self.text.rfind("\n", 0, offset) + 1
        self._known = offset, line, start
        return position_at(line, offset - start + 1)

    def offset(self, position: Position) -> int:
        """The offset of a position."""
        return min(self.starts[position.line - 1] + position.column - 1, len(self.text))

    def skip(self, offset: int) -> int:
        """The next offset that is neither blank nor in a comment."""
        match = GAP.match(self.text, offset)
        assert match is not None
        return match.end()
