"""A body with every register and label under one name of its own, and the braces gone that only scope registers and labels."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cache

from ..check.names import match_type
from ..dsl.raw import held
from ..grammar import tree
from ..grammar.forms import canonical as in_order
from ..grammar.operands import width
from ..grammar.walk import instructions, statements
from ..grammar.write import write_instruction

Rename = Callable[[str], str]
DIGITS = 10
"""So many digits has the number of a register at most."""


@dataclass
class Body:
    """A function's statements after that: `registers` gives the declared type of each that is `held`, `others` that of the rest."""

    statements: list[tree.Statement]
    registers: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)


def flattened(function: tree.Function, *, exact: bool = False) -> Body:
    """The body of a function, its register parameters included. `exact` keeps `[r+0]`, where ptxas -O0 adds, apart from `[r]`."""
    made = Body([])
    outer = {v.name: v.name for v in (*function.returns, *function.parameters) if held(v)}
    for variable in (*function.returns, *function.parameters):
        if held(variable):
            made.registers[variable.name] = variable.type
        elif variable.space == "reg":
            made.others[variable.name] = match_type(variable)
    body = tuple(function.body or ())
    made.statements = _scope(made, body, outer, {}, Names(body, outer, exact))
    return made


class Names:
    """The names that a body mentions, and those that were given away: `x`, or `x_2` when that is taken."""

    def __init__(self, body: tuple[tree.Statement, ...], taken: Iterable[str], exact: bool) -> None:
        self.exact = exact
        self.taken = set(taken)
        self.numbers: dict[str, int] = {}
        self.numbered: dict[str, list[tuple[int, str]]] = {}
        mentioned: dict[str, None] = {}
        for instruction in instructions(body):
            for operand in instruction.operands:
                mentioned.update(dict.fromkeys(names(operand)))
            if instruction.guard is not None:
                mentioned[instruction.guard.predicate] = None
        mentioned.update(dict.fromkeys([name.rpartition(".")[0] for name in mentioned if "." in name]))
        for name in mentioned:
            for cut in range(max(len(name.rstrip("0123456789")), len(name) - DIGITS), len(name)):
                if cut == len(name) - 1 or name[cut] != "0":
                    self.numbered.setdefault(name[:cut], []).append((int(name[cut:]), name))
        for statement in statements(body):
            if isinstance(statement, tree.Variable) and not held(statement):
                self.taken.update(self.declared(statement))

    def declared(self, variable: tree.Variable) -> list[str]:
        """The names that a declaration declares, of a range `%r<2000000>` those that the body mentions."""
        if variable.count is None:
            return [variable.name]
        return [name for number, name in self.numbered.get(variable.name, ()) if number < variable.count]

    def unique(self, name: str) -> str:
        if name not in self.taken:
            self.taken.add(name)
            return name
        number = self.numbers.get(name, 2)
        while f"{name}_{number}" in self.taken:
            number += 1
        self.numbers[name] = number + 1
        self.taken.add(f"{name}_{number}")
        return f"{name}_{number}"


def _scope(made: Body, body: tuple[tree.Statement, ...], registers: MutableMapping[str, str], labels: MutableMapping[str, str],
           known: Names) -> list[tree.Statement]:
    if any(isinstance(s, tree.Variable | tree.Label) for s in body):
        registers, labels = _extended(made, body, _inner(registers), _inner(labels), known)
    out: list[tree.Statement] = []
    for statement in body:
        if isinstance(statement, tree.Block):
            inner = _scope(made, statement.body, registers, labels, known)
            if all(isinstance(s, tree.Instruction | tree.Label | tree.Loc) for s in inner):
                out += inner
            else:
                out.append(tree.Block(tuple(inner)))
        elif isinstance(statement, tree.Variable) and held(statement):
            continue
        else:
            out.append(_renamed(statement, registers, labels, known.exact))
    return out


def _inner(names: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """What may be added to without a copy of all that is outside."""
    return ChainMap({}, *names.maps) if isinstance(names, ChainMap) else ChainMap({}, names) if names else {}


def _extended(made: Body, body: tuple[tree.Statement, ...], registers: MutableMapping[str, str], labels: MutableMapping[str, str],
              known: Names) -> tuple[MutableMapping[str, str], MutableMapping[str, str]]:
    """With the registers and labels of one scope's own statements."""
    for statement in body:
        if isinstance(statement, tree.Variable):
            for name in known.declared(statement):
                if held(statement):
                    registers[name] = known.unique(name)
                    made.registers[registers[name]] = statement.type
                    continue
                if statement.space == "reg":
                    made.others[name] = match_type(statement)
                if name in registers:
                    registers[name] = name
        elif isinstance(statement, tree.Label):
            labels[statement.name] = known.unique(statement.name)
            made.labels.add(labels[statement.name])
    return registers, labels


def _renamed(statement: tree.Statement, registers: Mapping[str, str], labels: Mapping[str, str], exact: bool) -> tree.Statement:
    if isinstance(statement, tree.Label):
        return replace(statement, name=labels[statement.name])
    if isinstance(statement, tree.Targets):
        return replace(statement, names=tuple(labels.get(name, name) for name in statement.names))
    if not isinstance(statement, tree.Instruction):
        return statement
    branches = statement.mnemonic in ("bra", "brx", "call")

    def rename(name: str) -> str:
        if name in registers:
            return registers[name]
        if branches and name in labels:
            return labels[name]
        base, dot, axis = name.rpartition(".")
        return f"{registers[base]}.{axis}" if dot and base in registers else name

    guard = statement.guard and tree.Guard(rename(statement.guard.predicate), statement.guard.negated)
    operands = tuple(mapped(o, rename) for o in statement.operands)
    if not exact:
        operands = tuple(replace(o, displaced=False) if type(o) is tree.Address and o.displaced else o for o in operands)
    return tree.Instruction(statement.opcode, operands, guard, statement.position)


def mapped(operand: tree.Operand, rename: Rename) -> tree.Operand:
    """The operand with every name replaced."""
    if isinstance(operand, tree.Name):
        name = rename(operand.name)
        return operand if name == operand.name else tree.Name(name)
    if isinstance(operand, tree.Integer | tree.Float):
        return operand
    if isinstance(operand, tree.Vector | tree.Arguments):
        return type(operand)(tuple(mapped(e, rename) for e in operand.elements))
    if isinstance(operand, tree.Address):
        if isinstance(operand.base, tree.Integer):
            return operand
        return tree.Address(tree.Name(rename(operand.base.name)), operand.offset, operand.displaced, operand.unified)
    if isinstance(operand, tree.Offset):
        return tree.Offset(tree.Name(rename(operand.base.name)), operand.offset)
    if isinstance(operand, tree.Element):
        index = tree.Name(rename(operand.index.name)) if isinstance(operand.index, tree.Name) else operand.index
        return tree.Element(tree.Name(rename(operand.base.name)), index, operand.offset)
    if isinstance(operand, tree.TensorAddress):
        coordinates = mapped(operand.coordinates, rename)
        assert isinstance(coordinates, tree.Vector | tree.Name)
        sampler = operand.sampler and tree.Name(rename(operand.sampler.name))
        return tree.TensorAddress(tree.Name(rename(operand.tensormap.name)), coordinates, sampler)
    if isinstance(operand, tree.Pair):
        return tree.Pair(mapped(operand.first, rename), mapped(operand.second, rename))
    return type(operand)(mapped(operand.operand, rename))


def names(operand: tree.Operand) -> list[str]:
    """The names in an operand, in the order in which it is written."""
    if type(operand) is tree.Name:
        return [operand.name]
    if type(operand) is tree.Integer:
        return []
    found: list[str] = []

    def note(name: str) -> str:
        found.append(name)
        return name

    mapped(operand, note)
    return found


def value_names(value: tree.Initializer | None) -> Iterator[str]:
    """The names in what a variable or a datum begins as."""
    if isinstance(value, tree.Name):
        yield value.name
    elif isinstance(value, tree.Aggregate):
        for element in value.elements:
            yield from value_names(element)
    elif isinstance(value, tree.Expression):
        for operand in value.operands:
            yield from value_names(operand)


def canonical(function: tree.Function, kept: Collection[str] | None = None) -> list[str]:
    """The body as lines in which names of registers and labels say nothing: equal lists are the same program.

    For a debugger, labels have their places and names, and so have the registers in `kept`.

    What makes no difference has one spelling: the order of modifiers, `5U` and 5, `{%r1}` and `%r1`, `bra.uni` without a guard and `bra`,
    an mbarrier's state that nobody reads and `_`, a last `ret` said and not.
    """
    body = flattened(function, exact=kept is not None)
    read = {name for i in instructions(body.statements) for name in read_names(i)}
    numbers: dict[str, str] = {}
    lines: list[str] = []
    places: dict[str, int] = {}
    _places(body.statements, places, [0])

    def rename(name: str) -> str:
        if name in body.registers:
            if kept and name in kept:
                return name
            return numbers.setdefault(name, f"%{width(body.registers[name])}_{len(numbers)}")
        base, dot, axis = name.rpartition(".")
        if dot and base in body.registers:
            return f"{rename(base)}.{axis}"
        return f"@{places[name]}" if name in places and kept is None else name

    def walk(statements: tuple[tree.Statement, ...] | list[tree.Statement]) -> None:
        for statement in statements:
            if isinstance(statement, tree.Block):
                lines.append("{")
                walk(statement.body)
                lines.append("}")
            elif isinstance(statement, tree.Instruction):
                operands = statement.operands
                if statement.opcode.startswith("mbarrier.arrive") and isinstance(operands[0], tree.Name) and operands[0].name not in read:
                    operands = (tree.Name("_"), *operands[1:])
                opcode = "bra" if statement.opcode == "bra.uni" and statement.guard is None else _ordered(statement.opcode)
                guard = statement.guard and tree.Guard(rename(statement.guard.predicate), statement.guard.negated)
                plain = tuple(_bare(mapped(o, rename), kept is not None) for o in operands)
                lines.append(write_instruction(tree.Instruction(opcode, plain, guard)))
            elif isinstance(statement, tree.Targets):
                lines.append(f"{statement.label} {statement.kind} {' '.join(map(rename, statement.names))}")
            elif isinstance(statement, tree.Label):
                lines.extend([f"{statement.name}:"] if kept is not None else [])
            elif not isinstance(statement, tree.Loc):
                lines.append(repr(statement))

    walk(body.statements)
    return [*lines, "ret;"] if function.body is not None and lines[-1:] != ["ret;"] else lines


def labels(function: tree.Function) -> list[int]:
    """How many labels stand at each place of a body that has some, and how many instructions stand before it."""
    found: list[int] = []
    before = here = 0
    for statement in statements(flattened(function).statements):
        here += isinstance(statement, tree.Label)
        if isinstance(statement, tree.Instruction):
            found += [before, here] if here else []
            before, here = before + 1, 0
    return [*found, before, here] if here and before else found


@cache
def _ordered(opcode: str) -> str:
    return in_order(opcode) or opcode


def _bare(operand: tree.Operand, exact: bool) -> tree.Operand:
    """One spelling of what makes no difference: `{%r1}` is `%r1` unless ptxas -O0 is to make the same of it."""
    if isinstance(operand, tree.Integer):
        return tree.Integer(operand.value)
    if isinstance(operand, tree.Vector):
        lanes = tuple(_bare(e, exact) for e in operand.elements)
        return lanes[0] if len(lanes) == 1 and not exact else tree.Vector(lanes)
    if isinstance(operand, tree.Arguments):
        return tree.Arguments(tuple(_bare(e, exact) for e in operand.elements))
    if isinstance(operand, tree.TensorAddress) and isinstance(operand.coordinates, tree.Vector):
        coordinates = tree.Vector(tuple(_bare(e, exact) for e in operand.coordinates.elements))
        return tree.TensorAddress(operand.tensormap, coordinates, operand.sampler)
    return operand


def read_names(instruction: tree.Instruction) -> Iterator[str]:
    """Every name but that of a plain first operand, which is written."""
    operands = instruction.operands
    for operand in operands[1:] if operands and isinstance(operands[0], tree.Name) else operands:
        yield from names(operand)
    if instruction.guard:
        yield instruction.guard.predicate


def _places(statements: tuple[tree.Statement, ...] | list[tree.Statement], places: dict[str, int], count: list[int]) -> None:
    """How many lines stand before each label."""
    for statement in statements:
        if isinstance(statement, tree.Label):
            places[statement.name] = count[0]
        elif isinstance(statement, tree.Block):
            count[0] += 1
            _places(statement.body, places, count)
            count[0] += 1
        elif not isinstance(statement, tree.Loc):
            count[0] += 1
