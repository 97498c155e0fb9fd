"""What the names of a PTX function stand for: registers, variables, labels and functions, by scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ..grammar import forms, tree
from ..grammar.match import Mismatch, bind

DIGITS = 10
"""How many a number of a register of a range has at most."""
_AXES = ("x", "y", "z", "w", "r", "g", "b", "a")


@dataclass(frozen=True, slots=True)
class Declared:
    """What a name stands for. `type` is as `grammar.match` wants it: "u32", "v4.f32", or "." and a variable's space."""

    type: str
    unique: str
    variable: tree.Variable


@dataclass(eq=False)
class Scope:
    """The names of one `{}`; inner ones hide outer ones. `prefix` makes the names of inlined and nested scopes unique."""

    outer: Scope | None = None
    prefix: str = ""
    names: dict[str, Declared] = field(default_factory=dict)
    ranges: dict[str, tree.Variable] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prototypes: dict[str, tree.Prototype] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)  # the tables that are `.calltargets`
    listed: set[str] = field(default_factory=set)  # the tables and prototypes that the reading of the statements has come to

    def declare(self, variable: tree.Variable) -> Iterator[str]:
        """Add the variable; yields names that this scope had already. A range `%r<9>` stays one: its names are made when asked for."""
        name = variable.name
        if variable.count is None:
            if self.own(name) is not None:
                yield name
            self.names[name] = Declared(match_type(variable), self.prefix + name, variable)
            return
        before = self.ranges.get(name)
        if before is not None:
            yield f"{name}<{variable.count}>"
            self.names = {known: declared for known, declared in self.names.items() if declared.variable is not before}
        within = [known for known in self._like(variable) if known in self.names]
        yield from [known for known in within if self.names[known].variable.count is None]
        for known in within:
            del self.names[known]
        self.ranges[name] = variable
        self.types[name] = match_type(variable)

    def _like(self, variable: tree.Variable) -> Iterable[str]:
        """The names that a range makes, or those of this scope that it does."""
        name, count = variable.name, variable.count or 0
        if name[-1:].isdigit():
            return ()
        if DIGITS * count < len(self.names):
            return [f"{name}{number:0{digits}}" for number in range(count) for digits in range(len(str(number)), DIGITS + 1)]
        return [known for known in self.names if known.startswith(name) and _within(variable, known)]

    def own(self, name: str) -> Declared | None:
        """What this very scope declares under the name; of the ranges `%r<20>` and `%r1<5>`, `%r11` is of the first (as ptxas has it)."""
        found = self.names.get(name)
        if found is None and self.ranges and name[-1:].isdigit():
            variable = self.ranges.get(name.rstrip("0123456789"))
            if variable is not None and _within(variable, name):
                found = self.names[name] = Declared(match_type(variable), self.prefix + name, variable)
        return found

    def find(self, name: str) -> Declared | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.own(name)
            if found is not None:
                return found
            scope = scope.outer
        return None

    def lane(self, name: str) -> Declared | None:
        """The vector register of which `v.x` is a lane."""
        vector, dot, axis = name.rpartition(".")
        found = self.find(vector) if dot and axis in _AXES else None
        return found if found is not None and found.type[:1] == "v" else None

    def part(self, name: str) -> Declared | None:
        """The register of which `r.b0`, `r.h10` are bytes and halves, or `v.x` a lane."""
        register, dot, word = name.rpartition(".")
        return self.find(register) if dot and word[0] in "bh" and word[1:].isdigit() else self.lane(name)

    def label(self, name: str) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.outer
        return None

    def table(self, name: str) -> tuple[str, ...] | None:
        """The names that a `.branchtargets` or `.calltargets` lists."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.tables:
                return scope.tables[name]
            scope = scope.outer
        return None

    def calls(self, name: str) -> bool:
        """Whether a table lists functions."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.tables:
                return name in scope.functions
            scope = scope.outer
        return False

    def is_listed(self, name: str) -> bool:
        """Whether a table or prototype of that name stands before."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.tables or name in scope.prototypes:
                return name in scope.listed
            scope = scope.outer
        return False

    def stands(self, name: str) -> str:
        """What a label stands before."""
        if self.table(name) is not None:
            return "a list of functions" if self.calls(name) else "a list of labels"
        return "a prototype" if self.prototype(name) is not None else "a label"

    def prototype(self, name: str) -> tree.Prototype | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.prototypes:
                return scope.prototypes[name]
            scope = scope.outer
        return None

    def type(self, name: str) -> str | None:
        """The type that `find` would tell, without making anything."""
        scope: Scope | None = self
        while scope is not None:
            known = scope.names.get(name)
            if known is not None:
                return known.type
            if scope.ranges:
                stem = name.rstrip("0123456789")
                variable = scope.ranges.get(stem)
                digits = name[len(stem):]
                if variable is not None and digits and len(digits) <= DIGITS and int(digits) < (variable.count or 0):
                    return scope.types[stem]
                found = scope.own(name)
                if found is not None:
                    return found.type
            scope = scope.outer
        return None

    def take_labels(self, body: tuple[tree.Statement, ...]) -> Iterator[tuple[str, tree.Statement]]:
        """Add the labels of this scope's own statements, which are visible everywhere in it; yields those it had already."""
        for statement in body:
            kind = type(statement)
            if kind is tree.Instruction or kind is tree.Loc or kind is tree.Variable:
                continue
            if isinstance(statement, tree.Label):
                name = statement.name
            elif isinstance(statement, tree.Prototype | tree.Targets):
                name = statement.label
            else:
                continue
            if name in self.labels:
                yield name, statement
            self.labels[name] = self.prefix + name
            if isinstance(statement, tree.Targets):
                self.tables[name] = statement.names
                if statement.kind == "calltargets":
                    self.functions.add(name)
            elif isinstance(statement, tree.Prototype):
                self.prototypes[name] = statement


def _within(variable: tree.Variable, name: str) -> bool:
    """Whether the name is one of a range's. All digits at its end are its number, so that `%p1<4>` has no name that can be written."""
    digits = name.removeprefix(variable.name)
    return (variable.count is not None and not variable.name[-1:].isdigit() and digits != name and digits.isascii() and digits.isdigit()
            and len(digits) <= DIGITS and int(digits) < variable.count)


def match_type(variable: tree.Variable) -> str:
    """The type of a register, or "." and the space of a variable."""
    if variable.space != "reg":
        return f".{variable.space}"
    return f"v{variable.vector}.{variable.type}" if variable.vector > 1 else variable.type


def signatures(opcode: str) -> tuple[forms.Signature, ...]:
    """The signatures of an opcode in PTX's order of modifiers or another; () when the table does not know it."""
    return forms.accepted(opcode)


Bound = tuple[forms.Signature, tuple["tree.Operand | None", ...]]


def bound(instruction: tree.Instruction, types: Callable[[str], str | None]) -> Bound | None:
    """The signature that the operands fit, that of the lowest version if several do, with one value per parameter."""
    found: Bound | None = None
    for signature in signatures(instruction.opcode):
        values = bind(signature, instruction.operands, types)
        if not isinstance(values, Mismatch) and (found is None or signature.since < found[0].since):
            found = signature, values
    return found


def names_in(operand: tree.Operand | None) -> Iterator[str]:
    """Every name that an operand holds, in order."""
    if isinstance(operand, tree.Name):
        yield operand.name
    elif isinstance(operand, tree.Vector | tree.Arguments):
        for element in operand.elements:
            yield from names_in(element)
    elif isinstance(operand, tree.Address | tree.Offset):
        yield from names_in(operand.base)
    elif isinstance(operand, tree.Element):
        yield from names_in(operand.base)
        yield from names_in(operand.index)
    elif isinstance(operand, tree.TensorAddress):
        yield operand.tensormap.name
        yield from names_in(operand.coordinates)
        if operand.sampler is not None:
            yield operand.sampler.name
    elif isinstance(operand, tree.Pair):
        yield from names_in(operand.first)
        yield from names_in(operand.second)
    elif isinstance(operand, tree.Not | tree.Minus):
        yield from names_in(operand.operand)


def renamed(operand: tree.Operand, rename: Callable[[str], str]) -> tree.Operand:
    """The operand with every name replaced."""

    def name(of: tree.Name) -> tree.Name:
        return tree.Name(rename(of.name))

    if isinstance(operand, tree.Name):
        return name(operand)
    if isinstance(operand, tree.Vector):
        return tree.Vector(tuple(renamed(element, rename) for element in operand.elements))
    if isinstance(operand, tree.Arguments):
        return tree.Arguments(tuple(renamed(element, rename) for element in operand.elements))
    if isinstance(operand, tree.Address):
        return replace(operand, base=name(operand.base)) if isinstance(operand.base, tree.Name) else operand
    if isinstance(operand, tree.Offset):
        return tree.Offset(name(operand.base), operand.offset)
    if isinstance(operand, tree.Element):
        index = name(operand.index) if isinstance(operand.index, tree.Name) else operand.index
        return tree.Element(name(operand.base), index, operand.offset)
    if isinstance(operand, tree.TensorAddress):
        coordinates = renamed(operand.coordinates, rename)
        assert isinstance(coordinates, tree.Vector | tree.Name)
        return tree.TensorAddress(name(operand.tensormap), coordinates, name(operand.sampler) if operand.sampler else None)
    if isinstance(operand, tree.Pair):
        return tree.Pair(renamed(operand.first, rename), renamed(operand.second, rename))
    if isinstance(operand, tree.Not):
        return tree.Not(renamed(operand.operand, rename))
    if isinstance(operand, tree.Minus):
        return tree.Minus(renamed(operand.operand, rename))
    return operand
