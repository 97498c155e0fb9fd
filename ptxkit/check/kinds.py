"""The kind of an operand: what of it decides whether an instruction is legal, so that equal kinds need one look at the table.

A kind is a number for a register's type, a variable's space, an immediate's place among the limits that the table knows, and so
on through lists and addresses. It says everything that `grammar.match` asks of an operand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from functools import cache
from typing import Any

from grammar import forms, tree
from grammar.schema import Per, Range
from grammar.special import SPECIAL

from .names import Scope

UNKNOWN = "?"
_codes: dict[Hashable, int] = {}
MOST = 100_000
"""How many kinds and verdicts are kept in one process before they are forgotten: a file may be made to have any number."""


class Shared:
    """The kinds of operands in functions that declare their ranges of registers alike, such as `%r<9>` and `%r<70>`, both .b32.

    `needs`: the range and the number of the register that an operand names; `most`: the highest number of each range.
    """

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.needs: dict[int, tuple[str, int]] = {}
        self.most: dict[str, int] = {}

    def covers(self, function: tree.Function, scope: Scope) -> bool:
        """Whether every register of the function that was met elsewhere is declared in this scope, too."""
        short = {stem for stem, most in self.most.items() if most >= (scope.ranges[stem].count or 0)}
        if not short:
            return True
        needs = self.needs
        for number in set(map(id, _operands(function.body or ()))) & needs.keys():
            stem, index = needs[number]
            if stem in short and index >= (scope.ranges[stem].count or 0):
                return False
        return True


def _operands(body: tuple[tree.Statement, ...]) -> Iterator[tree.Operand]:
    for statement in body:
        if type(statement) is tree.Instruction:
            yield from statement.operands
        elif type(statement) is tree.Block:
            yield from _operands(statement.body)


class Kinds:
    """The kinds of the operands that a scope has met, by the identity of the node: a parser gives equal words one node.

    What depends on nothing but the ranges of registers stays in `shared` for other functions; the rest goes when the scope does.
    """

    def __init__(self, scope: Scope, functions: dict[str, bool], given: tuple[tree.Variable, ...], shared: Shared | None = None) -> None:
        """`given`: a kernel's own parameters."""
        self.scope = scope
        self.functions = functions
        self.codes: dict[int, int] = {}
        self.stems: dict[str, tuple[int, int, int, int]] = {}
        if shared is not None:
            self.codes, self.needs, self.most = shared.codes, shared.needs, shared.most
            for stem, type in scope.types.items():  # how many there are, and the kinds of one, of an address by it, and of one far away
                count = scope.ranges[stem].count or 0
                self.stems[stem] = count, code(type), code(("[]", type, True)), code(("[]", type, False))
                self.most.setdefault(stem, -1)
        self.given = given
        self.own: list[int] = []
        self.guards: set[int] = set()

    def meet(self, instruction: tree.Instruction) -> tuple[Any, ...]:
        """The opcode with the kinds of the operands, of which one at least is new."""
        codes, stems = self.codes, self.stems
        for operand in instruction.operands:
            number = id(operand)
            if number in codes:
                continue
            kind = type(operand)
            base = operand if kind is tree.Name else operand.base if kind is tree.Address else None  # type: ignore[union-attr]
            if stems and type(base) is tree.Name:
                name = base.name
                stem = name.rstrip("0123456789")
                known = stems.get(stem)
                if known is not None and 0 < len(name) - len(stem) < 11 and name not in self.scope.names:
                    index = int(name[len(stem):])
                    if index < known[0]:
                        codes[number] = known[1] if kind is tree.Name else known[2] if near(operand.offset) else known[3]  # type: ignore[union-attr]
                        self.needs[number] = stem, index
                        if index > self.most[stem]:
                            self.most[stem] = index
                        continue
            codes[number] = code(self.kind(operand))
            if kind is not tree.Integer:
                self.own.append(number)
        return (instruction.opcode, *map(codes.__getitem__, map(id, instruction.operands)))

    def leave(self) -> None:
        """The scope ends: what was of it alone is forgotten."""
        for number in self.own:
            del self.codes[number]
        self.own.clear()

    def alone(self) -> None:
        """After a declaration names may stand for something else: all is met again, and nothing is shared any more."""
        self.leave()
        self.stems, self.codes = {}, {}
        self.guards.clear()

    def guarded(self, guard: tree.Guard) -> bool:
        """Whether a guard is a predicate's; one that is will be found in `guards` from now on."""
        good = self.scope.type(guard.predicate) == "pred"
        if good:
            self.guards.add(id(guard))
        return good

    def kind(self, operand: tree.Operand) -> Hashable:
        if isinstance(operand, tree.Name):
            return self.name(operand.name)
        if isinstance(operand, tree.Integer):
            return integer(operand.value)
        if isinstance(operand, tree.Address):
            return "[]", self.kind(operand.base), near(operand.offset)
        if isinstance(operand, tree.Float):
            return "0f", operand.width
        if isinstance(operand, tree.Vector):
            return ("{}", *[self.kind(element) for element in operand.elements])
        if isinstance(operand, tree.Pair):
            return "|", self.kind(operand.first), self.kind(operand.second)
        if isinstance(operand, (tree.Not, tree.Minus)):  # a union would be made each time
            return type(operand).__name__, self.kind(operand.operand)
        if isinstance(operand, tree.TensorAddress):
            sampler = "" if operand.sampler is None else self.name(operand.sampler.name)
            return "[,]", self.name(operand.tensormap.name), self.kind(operand.coordinates), sampler
        if isinstance(operand, tree.Offset):
            return "+", self.name(operand.base.name)
        if isinstance(operand, tree.Element):
            return "a[]", self.name(operand.base.name), self.kind(operand.index)
        return ("()", *[self.kind(element) for element in operand.elements])

    def name(self, name: str) -> Hashable:
        scope = self.scope
        found = scope.type(name)
        if found is not None:
            return self._variable(name) if found[0] == "." else found
        if name == "_" or name in SPECIAL:
            return name
        part = scope.part(name)
        if part is not None:
            return ".", part.type, name.rpartition(".")[2]
        if scope.label(name) is not None:
            return "label"
        return "function" if name in self.functions else UNKNOWN


    def _variable(self, name: str) -> Hashable:
        """A variable's space; textures are no memory, and what is a kernel's own parameter is not written."""
        known = self.scope.find(name)
        assert known is not None
        variable = known.variable
        reference = variable.type if variable.type.endswith("ref") else ""
        return known.type, reference, variable.space == "param" and variable in self.given


def near(offset: int) -> bool:
    """Whether an address's displacement fits 32 bits, beyond which ptxas takes it and adds another one."""
    return -(1 << 31) <= offset < 1 << 32


def code(kind: Hashable) -> int:
    """A small number for a kind, the same one each time."""
    return _codes.setdefault(kind, len(_codes))


def crowded() -> bool:
    return len(_codes) > MOST


def forget() -> None:
    _codes.clear()


def integer(value: int) -> Hashable:
    """Where an integer stands among all the limits of the table: no range holds one integer of a kind and not another."""
    limits, steps = _limits()
    place = bisect_left(limits, value)
    exact = place < len(limits) and limits[place] == value
    return "0", place, exact, tuple([(value - low) % multiple == 0 for low, multiple in steps])


@cache
def _limits() -> tuple[list[int], list[tuple[int, int]]]:
    limits = {bound for bits in (1, 8, 16, 32, 64) for bound in (-(1 << (bits - 1)), (1 << bits) - 1, (1 << 64) - (1 << (bits - 1)))}
    steps: set[tuple[int, int]] = set()
    for form in forms.forms():
        for operand in form.operands.values():
            given = operand.immediate
            for allowed in (*given.values.values(), given.default) if isinstance(given, Per) else (given,):
                if isinstance(allowed, Range):
                    limits |= {bound for bound in (allowed.low, allowed.high, *allowed.choices) if bound is not None}
                    if allowed.multiple != 1:
                        steps.add((allowed.low or 0, allowed.multiple))
    return sorted(limits), sorted(steps)
