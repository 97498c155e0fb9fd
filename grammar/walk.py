"""Through a body in the order of its text, braces and what is in them included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .tree import Block, Instruction, Statement


def statements(body: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement; a block stands before what is in it."""
    for statement in body:
        yield statement
        if isinstance(statement, Block):
            yield from statements(statement.body)


def instructions(body: Iterable[Statement]) -> Iterator[Instruction]:
    """Every instruction."""
    return (statement for statement in statements(body) if isinstance(statement, Instruction))
