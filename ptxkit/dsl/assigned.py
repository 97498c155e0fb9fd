"""What the author's source assigns at a line, for messages."""

from __future__ import annotations

import ast
import linecache
from typing import NamedTuple

from ..grammar.errors import Position

_SEVERAL = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
"""What is no register."""


class Assigned(NamedTuple):
    """An assignment: its one target as it is written, and its lines."""

    target: str
    lines: range


def assigned(place: Position) -> Assigned | None:
    """The assignment that stands at a line: the innermost statement there. None if that is another one, or gives several values."""
    try:
        module = ast.parse("".join(linecache.getlines(place.file or "")))
    except (SyntaxError, ValueError, RecursionError):
        return None
    there = [each for each in ast.walk(module) if isinstance(each, ast.stmt) and each.lineno <= place.line <= (each.end_lineno or 0)]
    found = min(there, key=_lines, default=None)
    targets = found.targets if isinstance(found, ast.Assign) else [found.target] if isinstance(found, ast.AnnAssign) else []
    if not isinstance(found, ast.Assign | ast.AnnAssign) or len(targets) != 1 or isinstance(found.value, _SEVERAL) \
            or not isinstance(targets[0], ast.Name | ast.Attribute | ast.Subscript):
        return None
    return Assigned(ast.unparse(targets[0]), range(found.lineno, (found.end_lineno or found.lineno) + 1))


def _lines(statement: ast.stmt) -> int:
    return (statement.end_lineno or statement.lineno) - statement.lineno


__all__ = ["Assigned", "assigned"]
