"""The author's positions that `.file` and `.loc` give."""

from __future__ import annotations

from . import tree
from .errors import Position
from .walk import statements


class Authors:
    """The source files of a module, and the position of each `.loc`. Inlined code has the position of the call, of several the outermost:
    that is the line that its author can change.
    """

    def __init__(self, module: tree.Module) -> None:
        self.module = module
        self.files = {item.arguments[0]: item.arguments[1].value for item in module.items
                      if isinstance(item, tree.Directive) and item.name == "file" and len(item.arguments) > 1
                      and isinstance(item.arguments[1], tree.Text)}
        self._callers: dict[tuple[int, int, int], tuple[int, int, int]] | None = None

    def of(self, loc: tree.Loc | None) -> Position | None:
        """None where there is no `.loc`, or its file is not named."""
        if loc is None:
            return None
        file, line, column = self._outermost(loc.inlined[2:]) if loc.inlined else (loc.file, loc.line, loc.column)
        return Position(self.files[file], line, column) if file in self.files and line else None

    def _outermost(self, call: tuple[int, int, int]) -> tuple[int, int, int]:
        """Follow a call to the one that it was inlined at: a `.loc` of the call says so itself."""
        if self._callers is None:
            self._callers = {}
            for function in self.module.items:
                if isinstance(function, tree.Function) and function.body is not None:
                    for found in statements(function.body):
                        if isinstance(found, tree.Loc) and found.inlined:
                            self._callers.setdefault((found.file, found.line, found.column), found.inlined[2:])
        seen = {call}
        while (outer := self._callers.get(call)) is not None and outer not in seen:
            call = outer
            seen.add(call)
        return call
