"""The statements of a body in the order of the text, with those inside braces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .tree import Block, Instruction, Statement


def statements(body: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement. A block comes before its own statements."""
    for statement in body:
        yield statement
        if isinstance(statement, Block):
            yield from statements(statement.body)


def instructions(body: Iterable[Statement]) -> Iterator[Instruction]:
    """Every instruction."""
    return (statement for statement in statements(body) if isinstance(statement, Instruction))
