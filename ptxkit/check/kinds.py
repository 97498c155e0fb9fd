"""The kind of an operand: what of it decides whether an instruction is legal, so that equal kinds need one look at the table.

A kind is a number for a register's type, a variable's space, an immediate's place among the limits that the table knows, and so
on through lists and addresses. It says everything that `grammar.match` asks of an operand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from functools import cache, lru_cache
from itertools import chain, islice, repeat
from typing import Any

from ..grammar import forms, tree
from ..grammar.schema import Per, Range
from ..grammar.special import SPECIAL, VECTORS
from .names import Scope

UNKNOWN = "?"
_codes: dict[Hashable, int] = {}
MOST = 100_000
"""How many kinds and verdicts are kept in one process before they are forgotten: a file may be made to have any number."""


class Known:
    """What the functions of a module have in common: the kinds of numbers, and the names of the registers of ranges."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}  # by the identity of the node
        self.names: dict[str, list[str]] = {}

    def registers(self, stem: str, count: int) -> list[str]:
        """The names of the first registers of a range, so many or more."""
        names = self.names.setdefault(stem, [])
        if len(names) < count:
            names += map(stem.__add__, map(str, range(len(names), count)))
        return names


class Kinds:
    """The kinds of the operands that a scope has met, by the identity of the node: a parser gives equal words one node."""

    def __init__(self, scope: Scope, functions: dict[str, bool], formal: tuple[tree.Variable, ...], known: Known | None = None,
                 outer: Kinds | None = None, *, entry: bool = False, inputs: tuple[tree.Variable, ...] = ()) -> None:
        """`formal`: those of the function, an `entry` or not. `outer`: what is around a block, for the registers that it does not hide."""
        self.scope = scope
        self.functions = functions
        self.formal = set(map(id, formal))
        self.inputs = set(map(id, inputs))
        self.entry = entry
        self.known = known or Known()
        self.codes: dict[int, int] = {}
        self.guards: set[int] = set()
        self.registers: dict[str, int] = {}  # of the ranges: the kind of one by its name
        self.addresses: dict[int, tuple[str, int, int, int]] = {}  # by that kind: its type, and addresses at it, displaced, and far
        self.blocks: dict[tuple[tree.Variable, ...], Kinds] = {}
        if outer is not None and not scope.ranges and not scope.labels and outer.registers.keys().isdisjoint(scope.names):
            self.registers, self.addresses = outer.registers, outer.addresses

    def add_ranges(self, most: int) -> None:
        """The registers of the scope's ranges, `most` of each and four times as many at most; others are looked up when they are met."""
        spare = 4 * most
        for stem, type in self.scope.types.items():
            if not stem[-1].isdigit():
                self.addresses[code(type)] = type, *self._places(type)
                count = min(self.scope.ranges[stem].count or 0, most, spare)
                spare -= count
                self.registers.update(dict.fromkeys(islice(self.known.registers(stem, count), count), code(type)))
        for name in self.registers.keys() & self.scope.names.keys():
            del self.registers[name]

    def _places(self, type: Hashable) -> tuple[int, int, int]:
        """The kinds of the addresses at a register."""
        at, beside, far = (code(("[]", type, reach, False)) for reach in range(3))
        return at, beside, far

    def keys(self, instructions: list[tree.Instruction]) -> list[tuple[Any, ...]]:
        """The opcode of each instruction with the kinds of its operands."""
        codes, numbers, register, kind = self.codes, self.known.numbers, self.registers.get, tree.Name
        lists = [instruction.operands for instruction in instructions]
        operands = list(chain.from_iterable(lists))
        found = [register(operand.name) if type(operand) is kind else None for operand in operands]
        for place, operand in enumerate(operands):
            if found[place] is None:
                number = id(operand)
                known = codes.get(number)
                if known is None and (known := numbers.get(number)) is None:
                    known = codes[number] = self._code(operand)
                found[place] = known
        listed = iter(found)
        return list(zip([instruction.opcode for instruction in instructions], map(tuple, map(islice, repeat(listed), map(len, lists))),
                        strict=True))

    def _code(self, operand: tree.Operand) -> int:
        kind = type(operand)
        if kind is tree.Address and type(operand.base) is tree.Name and not operand.unified:  # type: ignore[union-attr]
            register = self.registers.get(operand.base.name)  # type: ignore[union-attr]
            if register is not None:
                return self.addresses[register][reach(operand.offset) + 1]  # type: ignore[union-attr,return-value]
        found = code(self.kind(operand))
        if kind is tree.Integer or kind is tree.Float:
            self.known.numbers[id(operand)] = found
        return found

    def alone(self) -> None:
        """After a declaration names may stand for something else: all is met again."""
        self.codes, self.registers, self.addresses = {}, {}, {}
        self.guards.clear()
        self.blocks.clear()

    def guarded(self, guard: tree.Guard) -> bool:
        """Whether a guard is a predicate's; one that is will be found in `guards` from now on."""
        good = self.name(guard.predicate) == "pred"
        if good:
            self.guards.add(id(guard))
        return good

    def kind(self, operand: tree.Operand) -> Hashable:
        if isinstance(operand, tree.Name):
            return self.name(operand.name)
        if isinstance(operand, tree.Integer):
            return integer(operand.value)
        if isinstance(operand, tree.Address):
            return "[]", self.kind(operand.base), reach(operand.offset), operand.unified
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
            known = self.scope.find(operand.base.name)
            return "a[]", self.name(operand.base.name), self.kind(operand.index), known is not None and known.variable.shape != ()
        return ("()", *[self.kind(element) for element in operand.elements])

    def name(self, name: str) -> Hashable:
        register = self.registers.get(name)
        if register is not None:
            return self.addresses[register][0]
        scope = self.scope
        found = scope.type(name)
        if found is not None:
            return self._variable(name) if found[0] == "." else found
        if name == "_" or ((name in SPECIAL or name in VECTORS) and scope.label(name) is None):
            return name
        part = scope.part(name) if "." in name else None
        if part is not None:
            return ".", part.type, name.rpartition(".")[2]
        if scope.label(name) is not None:
            kind = "list" if scope.table(name) is not None else "prototype" if scope.prototype(name) is not None else "label"
            if kind == "list" and scope.calls(name):
                kind = "list of functions"
            return kind if kind == "label" or scope.is_listed(name) else f"later {kind}"
        return "function" if name in self.functions else UNKNOWN

    def _variable(self, name: str) -> Hashable:
        """A variable's space; textures are no memory, a kernel's own parameter is not written, and that of a call has no address."""
        known = self.scope.find(name)
        assert known is not None
        variable = known.variable
        reference = variable.type if variable.type.endswith("ref") else ""
        own = variable.space == "param" and id(variable) in self.formal
        return known.type, reference, own and ("entry" if self.entry else "input" if id(variable) in self.inputs else "func")


def near(offset: int) -> bool:
    """Whether an address's displacement fits 32 bits. A longer one ptxas adds in 64 bits, or cuts off where addresses have 32."""
    return -(1 << 31) <= offset < 1 << 32


def reach(offset: int) -> int:
    """0 at the place itself (a texture is only used as it is), 1 beside it, 2 beyond what 32 bits hold."""
    return (1 if near(offset) else 2) if offset else 0


def code(kind: Hashable) -> int:
    """A small number for a kind, the same one each time."""
    return _codes.setdefault(kind, len(_codes))


def crowded() -> bool:
    return len(_codes) > MOST


def forget() -> None:
    _codes.clear()


@lru_cache(1 << 16)
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
