"""Language rules of what declares nothing: debug sections and pragmas."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..grammar import tree
from ..grammar.errors import Finding
from ..grammar.features import NEWEST
from ..grammar.operands import width
from ..grammar.walk import statements
from .declarations import Given
from .places import NOWHERE, Place, finding

DATA = ("b8", "b16", "b32", "b64")
PRAGMAS = ("nounroll",)
"""The pragmas that may stand outside of functions."""
IN_BODIES = ("frequency", "used_bytes_mask", "enable_smem_spilling")
"""How the pragmas begin that ptxas takes in bodies only."""
NUMBER = re.compile(r"\s+[-+]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")


def section(section: tree.Section) -> Iterator[Finding]:
    """A label that is there twice, data of another type than bits, and numbers that the type does not hold."""
    labels = set[str]()
    for row in section.rows:
        if isinstance(row, tree.Label):
            if row.name in labels:
                yield finding("duplicate-name", f"`{row.name}` is declared twice in this section", "rename one of them", NOWHERE, "error",
                              "language", row.name)
            labels.add(row.name)
            continue
        numbers = [value.value for value in row.values if isinstance(value, tree.Integer)]
        if row.type not in DATA:
            yield finding("declaration", f"`{section.name}` has .{row.type} data, which no section has", "write .b8, .b16, .b32 or .b64",
                          NOWHERE, "error", "language", f".{row.type}")
        elif numbers and not -(1 << width(row.type) - 1) <= min(numbers) <= max(numbers) < 1 << width(row.type):
            cut = row.type == "b32" and min(numbers) >= -(1 << 31)  # ptxas takes the lowest bits
            yield finding("declaration", f"`{section.name}` has {min(numbers)} to {max(numbers)} as .{row.type}, which does not hold them",
                          "take a wider type", NOWHERE, "review" if cut else "error", "language", section.name)


def pragma(pragma: tree.Directive, place: Place, given: Given) -> Iterator[Finding]:
    """A pragma outside of functions."""
    for argument in pragma.arguments:
        if isinstance(argument, tree.Text) and argument.value not in PRAGMAS:
            yield finding("declaration", f'.pragma "{argument.value}" is none that may stand outside of functions', "leave it out", place,
                          "error" if given.version <= NEWEST else "review", "language")


def pragmas(module: tree.Module) -> Iterator[Finding]:
    """The pragmas of functions that stand in a wrong place or lack their number."""
    for function in module.functions:
        found = [(each, "head") for each in function.directives if each.name == "pragma"]
        found += [(each, function.kind) for each in statements(function.body or ()) if isinstance(each, tree.Directive)]
        for directive, where in found:
            for argument in directive.arguments:
                if isinstance(argument, tree.Text) and (said := _misplaced(argument.value, where)):
                    yield finding("declaration", f'.pragma "{argument.value}" of `{function.name}` {said}', "correct it, or leave it out",
                                  NOWHERE, "error", "language")


def _misplaced(text: str, where: str) -> str:
    word = next((word for word in IN_BODIES if text.startswith(word)), "")
    if not word:
        return ""
    if where == "head" or (where == "func" and word == "enable_smem_spilling"):
        return f"stands in {'its head' if where == 'head' else 'a function'}, and is for the body of a kernel"
    number = NUMBER.fullmatch(text[len(word):])
    if word == "enable_smem_spilling" or (where == "func" and word == "used_bytes_mask"):
        return ""
    if number is None or (word == "frequency" and int(number[0], 0) < 1):
        return "has no number" if number is None else "has a number below 1"
    return ""
