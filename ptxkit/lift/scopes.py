"""A body with every register and label under one name of its own, and the braces gone that only scope registers and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache

from grammar import tree
from grammar.forms import canonical as in_order
from grammar.operands import width

Rename = Callable[[str], str]
_AXES = frozenset("xyzwrgba")


@dataclass
class Body:
    """A function's statements after that: `registers` gives each register's declared type, `functions` names what it mentions."""

    statements: list[tree.Statement]
    registers: dict[str, str] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)


def flattened(function: tree.Function) -> Body:
    """The body of a function, its register parameters included."""
    made = Body([])
    outer = {v.name: v.name for v in (*function.returns, *function.parameters) if v.space == "reg"}
    made.registers.update({v.name: v.type for v in (*function.returns, *function.parameters) if v.space == "reg"})
    made.statements = _scope(made, tuple(function.body or ()), outer, {}, {}, set(outer))
    return made


def _scope(made: Body, body: tuple[tree.Statement, ...], registers: dict[str, str], vectors: dict[str, str], labels: dict[str, str],
           taken: set[str]) -> list[tree.Statement]:
    registers, vectors, labels = dict(registers), dict(vectors), dict(labels)
    for statement in body:
        if isinstance(statement, tree.Variable):
            if statement.space == "reg" and statement.vector == 1:
                for name in declared(statement):
                    registers[name] = _unique(name, taken)
                    made.registers[registers[name]] = statement.type
            elif statement.space != "reg":
                registers.pop(statement.name, None)
        elif isinstance(statement, tree.Label):
            labels[statement.name] = _unique(statement.name, taken)
            made.labels.add(labels[statement.name])
    out: list[tree.Statement] = []
    for statement in body:
        if isinstance(statement, tree.Block):
            inner = _scope(made, statement.body, registers, vectors, labels, taken)
            if all(isinstance(s, tree.Instruction | tree.Label | tree.Loc) for s in inner):
                out += inner
            else:
                out.append(tree.Block(tuple(inner)))
        elif isinstance(statement, tree.Variable) and statement.space == "reg" and statement.vector == 1:
            continue
        else:
            out.append(_renamed(statement, registers, labels))
    return out


def _unique(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found


def declared(variable: tree.Variable) -> Iterator[str]:
    """The names that a declaration declares: `%r<3>` is %r0, %r1, %r2."""
    if variable.count is None:
        yield variable.name
    else:
        yield from (f"{variable.name}{i}" for i in range(variable.count))


def _renamed(statement: tree.Statement, registers: dict[str, str], labels: dict[str, str]) -> tree.Statement:
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
    return tree.Instruction(statement.opcode, tuple(mapped(o, rename) for o in statement.operands), guard, statement.position)


def mapped(operand: tree.Operand, rename: Rename) -> tree.Operand:
    """The operand with every name replaced."""
    if isinstance(operand, tree.Name):
        return tree.Name(rename(operand.name))
    if isinstance(operand, tree.Integer | tree.Float):
        return operand
    if isinstance(operand, tree.Vector | tree.Arguments):
        return type(operand)(tuple(mapped(e, rename) for e in operand.elements))
    if isinstance(operand, tree.Address):
        if isinstance(operand.base, tree.Integer):
            return operand
        return tree.Address(tree.Name(rename(operand.base.name)), operand.offset, unified=operand.unified)
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
    found: list[str] = []

    def note(name: str) -> str:
        found.append(name)
        return name

    mapped(operand, note)
    return found


def instructions(statements: list[tree.Statement] | tuple[tree.Statement, ...]) -> Iterator[tree.Instruction]:
    """Every instruction, those in braces included."""
    for statement in statements:
        if isinstance(statement, tree.Block):
            yield from instructions(statement.body)
        elif isinstance(statement, tree.Instruction):
            yield statement


def canonical(function: tree.Function) -> list[str]:
    """The body as lines in which names of registers and labels say nothing: equal lists are the same program.

    What makes no difference has one spelling: the order of modifiers, `5U` and 5, `{%r1}` and `%r1`, `bra.uni` without a guard and `bra`,
    an mbarrier's state that nobody reads and `_`, a last `ret` said and not; an 8-bit register is one of 16 bits.
    """
    from grammar.write import write_instruction

    body = flattened(function)
    read = {name for i in instructions(body.statements) for name in read_names(i)}
    numbers: dict[str, str] = {}
    lines: list[str] = []
    places: dict[str, int] = {}
    _places(body.statements, places, [0])

    def rename(name: str) -> str:
        if name in body.registers:
            bits = width(body.registers[name])
            return numbers.setdefault(name, f"%{16 if bits == 8 else bits}_{len(numbers)}")
        base, dot, axis = name.rpartition(".")
        if dot and base in body.registers:
            return f"{rename(base)}.{axis}"
        return f"@{places[name]}" if name in places else name

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
                lines.append(write_instruction(tree.Instruction(opcode, tuple(_bare(mapped(o, rename)) for o in operands), guard)))
            elif isinstance(statement, tree.Targets):
                lines.append(f"{statement.label} {statement.kind} {' '.join(map(rename, statement.names))}")
            elif not isinstance(statement, tree.Label | tree.Loc):
                lines.append(repr(statement))

    walk(body.statements)
    return [*lines, "ret;"] if function.body is not None and lines[-1:] != ["ret;"] else lines


@cache
def _ordered(opcode: str) -> str:
    return in_order(opcode) or opcode


def _bare(operand: tree.Operand) -> tree.Operand:
    """One spelling of what makes no difference."""
    if isinstance(operand, tree.Integer):
        return tree.Integer(operand.value)
    if isinstance(operand, tree.Vector):
        return operand.elements[0] if len(operand.elements) == 1 else tree.Vector(tuple(_bare(e) for e in operand.elements))
    if isinstance(operand, tree.Arguments):
        return tree.Arguments(tuple(_bare(e) for e in operand.elements))
    if isinstance(operand, tree.TensorAddress) and isinstance(operand.coordinates, tree.Vector):
        return tree.TensorAddress(operand.tensormap, tree.Vector(tuple(_bare(e) for e in operand.coordinates.elements)), operand.sampler)
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
