"""Loops and ifs of a list of statements, found again from its labels and branches; nothing is moved.

An `If` is a guarded branch over what follows it, an `else` an unconditional one at the end of that; a `Loop` goes from a label to the
last branch back to it. A region is one only if nobody jumps into it. Every other branch stays one, to a label. A label that nobody
needs stays as well: ptxas ends a basic block there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..grammar import tree
from ..grammar.walk import instructions

DEPTH = 14
"""How deep regions may nest: Python takes 20 blocks in one function, and deeper ones are hard to read."""


@dataclass(eq=False)
class Loop:
    """`top`, `end` and `after`, the place behind it, are indices of statements. `repeat` is the guard of the branch back at the
    bottom, if it has one."""

    top: int
    end: int
    repeat: tree.Guard | None
    after: int
    body: list[Node] = field(default_factory=list)
    used: bool = False


@dataclass(eq=False)
class If:
    """The body runs where the guard of the branch over it does not hold."""

    guard: tree.Guard
    body: list[Node]
    orelse: list[Node] | None = None


@dataclass(eq=False)
class Jump:
    """A branch that leaves a loop or starts its next round."""

    loop: Loop
    how: str
    guard: tree.Guard | None


@dataclass(eq=False)
class Place:
    """A label; it is written only if a branch needs it."""

    name: str


@dataclass(eq=False)
class Scope:
    """Braces that stay."""

    body: list[Node]


Node = Loop | If | Jump | Place | Scope | tree.Statement


class Structure:
    """The regions of one list of statements. `needed` are the labels that branches still name, `bare` those that nobody names."""

    def __init__(self, statements: Sequence[tree.Statement], needed: set[str], bare: set[str], depth: int = 0) -> None:
        self.statements = statements
        self.needed = needed
        self.bare = bare
        self.covered: set[int] = set()
        self.depth = depth
        self.place = {s.name: i for i, s in enumerate(statements) if isinstance(s, tree.Label)}
        self.first = self._firsts()
        self.sources: dict[int, list[int]] = {}
        for index, statement in enumerate(statements):
            for name in _mentioned(statement):
                if name in self.place:
                    self.sources.setdefault(self.first[self.place[name]], []).append(index)
        self.spans = Spans(self.sources)

    def nodes(self) -> list[Node]:
        made = self._region(0, len(self.statements), [], self.depth)
        groups: dict[int, list[int]] = {}
        for index, first in self.first.items():
            groups.setdefault(first, []).append(index)
        for first, group in groups.items():
            names = [s.name for s in (self.statements[i] for i in group) if isinstance(s, tree.Label)]
            if first not in self.covered and not self.needed.intersection(names):
                self.bare.add(names[0])
        return made

    def _firsts(self) -> dict[int, int]:
        """The first of the labels that stand at one place, by the index of each."""
        firsts: dict[int, int] = {}
        current: int | None = None
        for index, statement in enumerate(self.statements):
            if isinstance(statement, tree.Label):
                current = index if current is None else current
                firsts[index] = current
            elif not isinstance(statement, tree.Loc):
                current = None
        return firsts

    def _target(self, index: int) -> int | None:
        """The place that a `bra` goes to, None for another instruction or a label that is elsewhere."""
        statement = self.statements[index]
        if not isinstance(statement, tree.Instruction) or statement.mnemonic != "bra" or len(statement.operands) != 1:
            return None
        if statement.guard is not None and statement.opcode != "bra":
            return None
        operand = statement.operands[0]
        at = self.place.get(operand.name) if isinstance(operand, tree.Name) else None
        return None if at is None else self.first[at]

    def _closed(self, low: int, high: int) -> bool:
        """Whether nobody outside jumps to a place strictly inside."""
        least, most = self.spans.within(low, high)
        return low <= least and most < high

    def _after(self, index: int) -> int:
        """The place right after a statement: the first label there, or the next statement."""
        index += 1
        while index < len(self.statements) and isinstance(self.statements[index], tree.Loc):
            index += 1
        return self.first.get(index, index)

    def _before(self, low: int, index: int) -> int | None:
        """The last statement before `index` that is not a `.loc` or a label."""
        index -= 1
        while index >= low and isinstance(self.statements[index], tree.Loc):
            index -= 1
        return index if index >= low else None

    def _region(self, low: int, high: int, loops: list[Loop], depth: int) -> list[Node]:
        made: list[Node] = []
        index = low
        while index < high:
            statement = self.statements[index]
            if isinstance(statement, tree.Block):
                inner = Structure(statement.body, self.needed, self.bare, depth + 1)
                made.append(Scope(inner.nodes()))
            elif isinstance(statement, tree.Label):
                made.append(Place(statement.name))
                if self.first[index] == index and (found := self._loop(index, high, loops, depth)) is not None:
                    made.append(found)
                    index = found.end - 1
            elif isinstance(statement, tree.Instruction):
                index = self._instruction(made, statement, index, high, loops, depth)
            else:
                self.needed.update(_mentioned(statement))
                made.append(statement)
            index += 1
        return made

    def _loop(self, top: int, high: int, loops: list[Loop], depth: int) -> Loop | None:
        backs = sorted((i for i in self.sources.get(top, ()) if top < i < high and self._target(i) == top), reverse=True)
        if depth >= DEPTH:
            return None
        for bottom in backs:
            if self._closed(top, bottom + 1):
                last = self.statements[bottom]
                assert isinstance(last, tree.Instruction)
                loop = Loop(top, bottom + 1, last.guard, self._after(bottom))
                start = top + 1
                while start < bottom and isinstance(self.statements[start], tree.Label | tree.Loc):
                    start += 1
                loop.body = [Place(s.name) if isinstance(s, tree.Label) else s for s in self.statements[top + 1:start]]
                loop.body += self._region(start, bottom, [*loops, loop], depth + 1)
                loop.used |= last.guard is not None
                self.covered |= {top, loop.after}
                return loop
        return None

    def _instruction(self, made: list[Node], statement: tree.Instruction, index: int, high: int, loops: list[Loop], depth: int) -> int:
        target = self._target(index)
        if target is None:
            self.needed.update(_mentioned(statement))
            made.append(statement)
            return index
        jump = self._jump(target, statement.guard, loops)
        if jump is not None:
            made.append(jump)
            return index
        if statement.guard is not None and index < target <= high and depth < DEPTH and self._closed(index, target):
            return self._if(made, statement.guard, index, target, high, loops, depth)
        self.needed.update(_mentioned(statement))
        made.append(statement)
        return index

    def _jump(self, target: int, guard: tree.Guard | None, loops: list[Loop]) -> Jump | None:
        for loop in reversed(loops):
            how = "continue" if target == loop.top else "break" if target == loop.after else ""
            if how:
                loop.used = True
                return Jump(loop, how, guard)
        return None

    def _if(self, made: list[Node], guard: tree.Guard, index: int, target: int, high: int, loops: list[Loop], depth: int) -> int:
        self.covered.add(target)
        last = self._before(index + 1, target)
        over = None if last is None else self._target(last)
        statement = None if last is None else self.statements[last]
        if (last is not None and over is not None and isinstance(statement, tree.Instruction) and statement.guard is None
                and target < over <= high and self._jump_free(over, loops) and self._closed(target, over)):
            self.covered.add(over)
            body = self._region(index + 1, last, loops, depth + 1)
            made.append(If(guard, body, self._region(target, over, loops, depth + 1)))
            return over - 1
        made.append(If(guard, self._region(index + 1, target, loops, depth + 1)))
        return target - 1

    def _jump_free(self, target: int, loops: list[Loop]) -> bool:
        """Whether a branch to there is no break or continue of a loop around it."""
        return all(target not in (loop.top, loop.after) for loop in loops)


class Spans:
    """From where places are jumped to: the first and last source of all places in a range, in logarithmic time."""

    def __init__(self, sources: Mapping[int, Sequence[int]]) -> None:
        self.places = sorted(sources)
        self.size = len(self.places)
        self.least = [0] * self.size + [min(sources[place]) for place in self.places]
        self.most = [0] * self.size + [max(sources[place]) for place in self.places]
        for at in range(self.size - 1, 0, -1):  # a node's two halves are 2 * at and 2 * at + 1
            self.least[at] = min(self.least[2 * at], self.least[2 * at + 1])
            self.most[at] = max(self.most[2 * at], self.most[2 * at + 1])

    def within(self, low: int, high: int) -> tuple[int, int]:
        """The first and last source of the places strictly between; `low` and `low` if there are none."""
        first, end = bisect_right(self.places, low) + self.size, bisect_left(self.places, high) + self.size
        found: list[int] = []
        while first < end:
            if first % 2:
                found += [self.least[first], self.most[first]]
                first += 1
            if end % 2:
                end -= 1
                found += [self.least[end], self.most[end]]
            first, end = first // 2, end // 2
        return min(found, default=low), max(found, default=low)


def _mentioned(statement: tree.Statement) -> list[str]:
    """The names that may be labels which a statement jumps to."""
    if isinstance(statement, tree.Block):
        inner = [name for s in statement.body if isinstance(s, tree.Block | tree.Targets) for name in _mentioned(s)]
        return inner + [n for i in instructions(statement.body) for n in _mentioned(i)]
    if isinstance(statement, tree.Targets):
        return list(statement.names)
    if isinstance(statement, tree.Instruction) and statement.mnemonic == "bra":
        return [operand.name for operand in statement.operands if isinstance(operand, tree.Name)]
    return []
