"""Edits of a kernel's tree: instructions are found by a pattern over their text and deleted, moved, repeated or changed.

An edit that finds nothing to change raises, so that a mutant never silently is the original.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from ptxkit import grammar
from ptxkit.grammar import tree
from ptxkit.grammar.write import write_instruction

Match = str | Callable[[tree.Statement], bool]
Which = int | Container[int] | None
FIRST, LAST = 0, -1


class Edit:
    """The body of one entry, changed in place. `which` selects among the matches, in order: all, the n-th, or a set of them."""

    def __init__(self, source: Any, entry: str | None = None) -> None:
        self.source = source
        module = source if isinstance(source, tree.Module) else source.module
        self.module: tree.Module = module
        self.name = entry or module.entries[0].name
        function = next(f for f in module.entries if f.name == self.name)
        assert function.body is not None
        self.body: tuple[tree.Statement, ...] = function.body

    def done(self) -> Any:
        """The source with the changed body: a tree, or a trace that keeps its records."""
        items = tuple(dataclasses.replace(item, body=self.body) if isinstance(item, tree.Function) and item.name == self.name else item
                      for item in self.module.items)
        module = dataclasses.replace(self.module, items=items)
        return module if isinstance(self.source, tree.Module) else dataclasses.replace(self.source, module=module, _text={})

    # ------------------------------------------------------------------------------------------ finding

    def find(self, match: Match) -> list[tree.Statement]:
        """All matches, in order, inside blocks too."""
        test = _test(match)
        return [s for s in _flat(self.body) if test(s)]

    # ------------------------------------------------------------------------------------------ changing

    def change(self, match: Match, to: Callable[[Any], Sequence[tree.Statement]], which: Which = None) -> Edit:
        """Replace the selected matches by what `to` makes of them."""
        test = _test(match)
        total = len(self.find(match))
        if not total:
            raise LookupError(f"nothing in `{self.name}` matches {match!r}")
        chosen = _chosen(which, total)
        seen = -1

        def over(body: Sequence[tree.Statement]) -> tuple[tree.Statement, ...]:
            nonlocal seen
            made: list[tree.Statement] = []
            for statement in body:
                if isinstance(statement, tree.Block):
                    made.append(tree.Block(over(statement.body)))
                    continue
                if test(statement):
                    seen += 1
                    if seen in chosen:
                        made += to(statement)
                        continue
                made.append(statement)
            return tuple(made)

        before, self.body = self.body, over(self.body)
        if before == self.body:
            raise LookupError(f"the edit of {match!r} in `{self.name}` changes nothing")
        return self

    def delete(self, match: Match, which: Which = None) -> Edit:
        return self.change(match, lambda s: (), which)

    def twice(self, match: Match, which: Which = None) -> Edit:
        return self.change(match, lambda s: (s, s), which)

    def before(self, match: Match, statements: Sequence[tree.Statement], which: Which = None) -> Edit:
        return self.change(match, lambda s: (*statements, s), which)

    def after(self, match: Match, statements: Sequence[tree.Statement], which: Which = None) -> Edit:
        return self.change(match, lambda s: (s, *statements), which)

    def take(self, match: Match, which: Which = None) -> list[tree.Statement]:
        """Delete the matches and return them."""
        found = self.find(match)
        chosen = _chosen(which, len(found))
        self.delete(match, which)
        return [s for i, s in enumerate(found) if i in chosen]

    def text(self, match: Match, old: str, new: Any, which: Which = None) -> Edit:
        """Change the instruction's text by a regular expression and read it again."""
        def to(statement: tree.Instruction) -> tuple[tree.Statement, ...]:
            text, changed = re.subn(old, new, written(statement))
            if not changed:
                raise LookupError(f"{old!r} is not in {written(statement)!r}")
            (made,) = ptx(text)
            assert isinstance(made, tree.Instruction)
            return (dataclasses.replace(made, position=statement.position),)

        return self.change(match, to, which)

    def guard(self, match: Match, predicate: str | None, which: Which = None, *, negated: bool = False) -> Edit:
        """Let the instruction run under a predicate, or under none."""
        made = None if predicate is None else tree.Guard(predicate, negated)
        return self.change(match, lambda s: (dataclasses.replace(s, guard=made),), which)

    def swap(self, first: Match, second: Match) -> Edit:
        """Exchange two instructions, each the only match."""
        (a,), (b,) = self.find(first), self.find(second)
        self.body = tuple(_swapped(self.body, a, b))
        return self

    def top(self, text: str) -> Edit:
        """Statements before all others: declarations, mostly."""
        self.body = (*ptx(text), *self.body)
        return self


def ptx(text: str) -> tuple[tree.Statement, ...]:
    """Statements from their text."""
    module = grammar.parse(f".version 8.6\n.target sm_90a\n.address_size 64\n.entry k() {{\n{text}\n}}\n")
    body = module.entries[0].body
    assert body is not None
    return body


def written(statement: tree.Instruction) -> str:
    """An instruction's text, its guard in front."""
    return write_instruction(statement)


def _flat(body: Sequence[tree.Statement]) -> Iterator[tree.Statement]:
    for statement in body:
        if isinstance(statement, tree.Block):
            yield from _flat(statement.body)
        else:
            yield statement


def _test(match: Match) -> Callable[[tree.Statement], bool]:
    if callable(match):
        return match
    pattern = re.compile(match)

    def test(statement: tree.Statement) -> bool:
        if isinstance(statement, tree.Label):
            return pattern.fullmatch(f"{statement.name}:") is not None
        return isinstance(statement, tree.Instruction) and pattern.search(written(statement)) is not None

    return test


def _chosen(which: Which, total: int) -> Container[int]:
    if which is None:
        return range(total)
    if isinstance(which, int):
        index = which + total if which < 0 else which
        if not 0 <= index < total:
            raise LookupError(f"match {which} of {total}")
        return (index,)
    return which


def _swapped(body: Sequence[tree.Statement], a: tree.Statement, b: tree.Statement) -> Iterator[tree.Statement]:
    for statement in body:
        if isinstance(statement, tree.Block):
            yield tree.Block(tuple(_swapped(statement.body, a, b)))
        else:
            yield b if statement is a else a if statement is b else statement


__all__ = ["FIRST", "LAST", "Edit", "ptx", "written"]
