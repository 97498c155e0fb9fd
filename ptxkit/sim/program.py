"""A tree made ready to run: registers by index, variables placed, instructions bound to the table, basic blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..check.graph import liveness, post_dominators
from ..grammar import forms, tree
from ..grammar.errors import OpcodeError, Position
from ..grammar.match import Mismatch, bind
from ..grammar.operands import width
from ..grammar.special import SPECIAL
from .errors import SimulationError
from .operand import Address, Immediate, Indexed, Negated, Operand, Register, Sink, SpecialRegister, Symbol, SymbolValue, Vector, Word
from .symbols import Layout

_AXES = {axis: lane for axes in ("xyzw", "rgba") for lane, axis in enumerate(axes)}


@dataclass(slots=True, eq=False)
class Op:
    """One instruction, bound: its signature in the table and an operand per parameter (None: left out).

    It is also the *site* in findings and events: `position` is the PTX line, `python` the author's line where `.loc` gives one.
    """

    opcode: str
    signature: forms.Signature
    operands: tuple[Operand | None, ...]
    guard: Register | None
    negated: bool
    position: Position | None
    python: Position | None
    routine: Routine
    index: int = -1
    block: int = -1

    @property
    def tokens(self) -> list[str]:
        return self.opcode.split(".")

    @property
    def bindings(self) -> Mapping[str, str]:
        return self.signature.bindings

    def has(self, token: str) -> bool:
        """Whether the modifier is in the opcode."""
        return token in self.tokens

    def parameters(self) -> Iterator[tuple[forms.Parameter, Operand | None]]:
        return zip(self.signature.parameters, self.operands, strict=True)

    def operand(self, name: str) -> Operand | None:
        """The operand of that name in the table."""
        return next((o for p, o in self.parameters() if p.name == name), None)

    def space(self, name: str) -> str:
        """The state space of an address operand, "" for generic."""
        return next(str(p.operand.space) for p, _ in self.parameters() if p.name == name)

    def registers(self, name: str) -> tuple[int, ...]:
        """The registers of a vector operand; a sink or an immediate lane is -1."""
        operand = self.operand(name)
        parts = operand.elements if isinstance(operand, Vector) else (operand,)
        return tuple(part.index if isinstance(part, Register) else -1 for part in parts)

    def reads(self) -> set[int]:
        found = {self.guard.index} if self.guard else set()
        for parameter, operand in self.parameters():
            if operand is not None and (parameter.operand.access != "w" or isinstance(operand, (Address, Indexed))):
                found.update(operand.registers())
        return found

    def writes(self) -> set[int]:
        return {index for parameter, operand in self.parameters() if operand is not None and parameter.operand.access != "r"
                for index in operand.registers()}

    def __str__(self) -> str:
        return self.opcode


@dataclass(slots=True, eq=False)
class Block:
    """A basic block. `join` is where the threads that part at its end come together again (None: at exit or return)."""

    index: int
    ops: list[Op] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    join: int | None = None
    live: int = 0
    """The registers that are live at its begin, as a bit set."""


@dataclass(eq=False)
class Routine:
    """An entry or a device function."""

    function: tree.Function
    layout: Layout
    widths: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    entry: int = 0
    frame: int = 0
    """Bytes of local memory that one activation takes: local variables, parameters of device functions, call parameters."""
    parameters: tuple[Symbol, ...] = ()
    returns: tuple[Symbol, ...] = ()
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The names listed by `.branchtargets`, `.calltargets`."""

    @property
    def name(self) -> str:
        return self.function.name


@dataclass(eq=False)
class Program:
    """An entry with the device functions that it can reach."""

    module: tree.Module
    entry: Routine
    routines: dict[str, Routine]
    blocks: list[Block]
    owner: list[Routine]
    """The routine of each block."""
    ops: list[Op]
    layout: Layout
    files: Mapping[int, str]


class _Scope:
    """The names of one `{}`; inner ones hide outer ones."""

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.names: dict[str, Any] = {}
        self.labels: dict[str, object] = {}

    def find(self, name: str) -> Any:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def label(self, name: str) -> object | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.outer
        return None


@dataclass(slots=True, eq=False)
class _Pending:
    """An instruction before its block is known, with the scope that its labels are looked up in."""

    op: Op
    scope: _Scope


class Decoder:
    """Decodes the routines of a program one after the other into one list of blocks."""

    def __init__(self, module: tree.Module, blocking: Any) -> None:
        self.module = module
        self.layout = Layout(module)
        self.blocking = blocking
        self.blocks: list[Block] = []
        self.owner: list[Routine] = []
        self.ops: list[Op] = []
        self.routines: dict[str, Routine] = {}
        self.files = {d.arguments[0]: d.arguments[1].value for d in module.items
                      if isinstance(d, tree.Directive) and d.name == "file" and isinstance(d.arguments[1], tree.Text)}
        self.functions = {f.name: f for f in module.functions if f.body is not None}
        self.functions.update({item.name: self.functions[item.target] for item in module.items
                               if isinstance(item, tree.Alias) and item.target in self.functions})

    def program(self, entry: tree.Function) -> Program:
        routine = self.routine(entry)
        todo = [routine]
        for name in self._in_initialisers():
            if name in self.functions and name not in self.routines:
                todo.append(self.routine(self.functions[name]))
        while todo:
            for op in self._body(todo.pop()):
                for name in _called(op):
                    if name in self.functions and name not in self.routines:
                        todo.append(self.routine(self.functions[name]))
        return Program(self.module, routine, self.routines, self.blocks, self.owner, self.ops, self.layout, self.files)  # type: ignore[arg-type]

    def _in_initialisers(self) -> Iterator[str]:
        """The names in initialisers: tables of functions."""
        todo: list[Any] = [item.initializer for item in self.module.items if isinstance(item, tree.Variable)]
        while todo:
            value = todo.pop()
            if isinstance(value, tree.Name):
                yield value.name
            elif isinstance(value, tree.Aggregate):
                todo += value.elements
            elif isinstance(value, tree.Expression):
                todo += value.operands

    def routine(self, function: tree.Function) -> Routine:
        routine = Routine(function, self.layout)
        self.routines[function.name] = routine
        return routine

    # ------------------------------------------------------------------------------------------- one routine

    def _body(self, routine: Routine) -> list[Op]:
        function = routine.function
        scope = _Scope(None)
        frame = self.layout.frame(function)
        routine.parameters = tuple(frame.parameter(v) for v in function.parameters)
        routine.returns = tuple(frame.parameter(v) for v in function.returns)
        for symbol in (*routine.parameters, *routine.returns):
            scope.names[symbol.name] = symbol
        for variable in (*function.parameters, *function.returns):
            if variable.space == "reg":
                self._declare(routine, scope, variable, frame)
        items: list[Any] = []
        self._flatten(routine, function.body or (), scope, items, frame)
        routine.frame = frame.size
        self._split(routine, items)
        return [item.op for item in items if isinstance(item, _Pending)]

    def _flatten(self, routine: Routine, body: tuple[tree.Statement, ...], scope: _Scope, items: list[Any], frame: Any) -> None:
        for statement in body:
            if isinstance(statement, tree.Label):
                scope.labels[statement.name] = statement
            elif isinstance(statement, tree.Targets):
                routine.tables[statement.label] = statement.names
        python: Position | None = None
        for statement in body:
            if isinstance(statement, tree.Instruction):
                items.append(_Pending(self._bind(routine, statement, scope, python), scope))
            elif isinstance(statement, tree.Label):
                items.append(statement)
            elif isinstance(statement, tree.Variable):
                self._declare(routine, scope, statement, frame)
            elif isinstance(statement, tree.Loc):
                python = Position(self.files.get(statement.file), statement.line, statement.column)
            elif isinstance(statement, tree.Block):
                self._flatten(routine, statement.body, _Scope(scope), items, frame)

    def _declare(self, routine: Routine, scope: _Scope, variable: tree.Variable, frame: Any) -> None:
        if variable.space != "reg":
            scope.names[variable.name] = frame.variable(variable)
            return
        bits = 1 if variable.type == "pred" else width(variable.type)
        names = [variable.name] if variable.count is None else [f"{variable.name}{i}" for i in range(variable.count)]
        for name in names:
            made = [Register(len(routine.widths) + lane, bits, variable.type) for lane in range(variable.vector)]
            routine.widths += [bits] * variable.vector
            routine.names += [name] if variable.vector == 1 else [f"{name}.{axis}" for axis in "xyzw"[:variable.vector]]
            scope.names[name] = made[0] if variable.vector == 1 else Vector(tuple(made))

    # ------------------------------------------------------------------------------------------- one instruction

    def _bind(self, routine: Routine, instruction: tree.Instruction, scope: _Scope, python: Position | None) -> Op:
        def types(name: str) -> str | None:
            found = self._find(scope, name)
            if isinstance(found, Register):
                return found.type
            if isinstance(found, Vector) and isinstance(found.elements[0], Register):
                return f"v{len(found.elements)}.{found.elements[0].type}"
            return f".{found.space}" if isinstance(found, Symbol) else None

        try:
            signatures = forms.lookup(instruction.opcode)
        except OpcodeError as error:
            ordered = forms.canonical(instruction.opcode)
            if ordered is None:
                raise SimulationError(f"{_where(instruction)}{error}") from None
            signatures = forms.lookup(ordered)
        failures: list[Mismatch] = []
        for signature in signatures:
            values = bind(signature, instruction.operands, types)
            if isinstance(values, Mismatch):
                failures.append(values)
                continue
            guard = instruction.guard
            predicate = None if guard is None else self._find(scope, guard.predicate)
            operands = tuple(None if value is None else self._operand(parameter, value, scope)
                             for parameter, value in zip(signature.parameters, values, strict=True))
            return Op(instruction.opcode, signature, operands, predicate, guard is not None and guard.negated, instruction.position, python,
                      routine)
        nearest = max(failures, key=lambda failure: failure.depth)
        raise SimulationError(f"{_where(instruction)}`{instruction.opcode}`: {nearest.sentence}")

    def _find(self, scope: _Scope, name: str) -> Any:
        found = scope.find(name)
        if found is None:
            found = self.layout.symbols.get(name)
        if found is None and "." in name:
            vector, _, axis = name.rpartition(".")
            of = scope.find(vector)
            if isinstance(of, Vector) and axis in _AXES:
                return of.elements[_AXES[axis]]
        return found

    def _operand(self, parameter: forms.Parameter, value: tree.Operand, scope: _Scope) -> Operand:
        operand = parameter.operand
        if isinstance(value, tree.Name):
            return self._name(operand.kind, value.name, scope)
        if isinstance(value, tree.Integer):
            return Immediate(value.value)
        if isinstance(value, tree.Float):
            return Immediate(value.bits, value.width)
        if isinstance(value, (tree.Vector, tree.Arguments)):
            return Vector(tuple(self._operand(parameter, element, scope) for element in value.elements))
        if isinstance(value, tree.Not):
            return Negated(self._operand(parameter, value.operand, scope))
        if isinstance(value, tree.Address):
            if isinstance(value.base, tree.Integer):
                return Address(Immediate(value.base.value), value.offset)
            base = self._find(scope, value.base.name)
            return Address(SymbolValue(base) if isinstance(base, Symbol) else base, value.offset)
        if isinstance(value, tree.Offset):
            return SymbolValue(self._find(scope, value.base.name), value.offset)
        if isinstance(value, tree.Element):
            symbol = self._find(scope, value.base.name)
            size = symbol.element
            if isinstance(value.index, tree.Integer):
                return Address(SymbolValue(symbol), (value.index.value + value.offset) * size)
            return Indexed(SymbolValue(symbol, value.offset * size), self._find(scope, value.index.name), size)
        raise SimulationError(f"an operand {value!r} is not supported by the simulator")

    def _name(self, kind: str, name: str, scope: _Scope) -> Operand:
        if name == "_":
            return Sink()
        found = self._find(scope, name)
        if found is not None:
            return SymbolValue(found) if isinstance(found, Symbol) else found
        if name == "WARP_SZ":
            return Immediate(32)
        return SpecialRegister(name) if name in SPECIAL else Word(name)

    # ------------------------------------------------------------------------------------------- blocks

    def _split(self, routine: Routine, items: list[Any]) -> None:
        first = len(self.blocks)
        starts: dict[int, int] = {}
        block = self._new(routine)
        routine.entry = block.index
        closed: list[tuple[Block, list[_Pending]]] = []
        content: list[_Pending] = []

        def close() -> None:
            nonlocal block, content
            closed.append((block, content))
            block, content = self._new(routine), []

        for item in items:
            if isinstance(item, tree.Label):
                if content:
                    close()
                starts[id(item)] = block.index
                continue
            if content and self.blocking(item.op):
                close()
            content.append(item)
            if item.op.signature.form.effects.control:
                close()
        if content:
            close()
        closed.append((block, content))
        last = block
        for made, pendings in closed:
            self._close(routine, made, pendings, starts, last.index)
        last.successors = []
        blocks = self.blocks[first:]
        graph = {b.index: b.successors for b in blocks}
        joins = post_dominators(graph)
        effects = {b.index: _effects(b) for b in blocks}
        read, written = effects[last.index]
        for symbol in routine.returns:
            if symbol.region == "reg":
                read |= 1 << routine.names.index(symbol.name)
        effects[last.index] = read, written
        live = liveness(graph, effects)
        for b in blocks:
            b.join, b.live = joins[b.index], live[b.index]

    def _new(self, routine: Routine) -> Block:
        block = Block(len(self.blocks))
        self.blocks.append(block)
        self.owner.append(routine)
        return block

    def _close(self, routine: Routine, block: Block, pendings: list[_Pending], starts: dict[int, int],
               last: int) -> None:
        following = block.index + 1
        block.successors = [following]
        for pending in pendings:
            op = pending.op
            op.index, op.block = len(self.ops), block.index
            self.ops.append(op)
            block.ops.append(op)
            control = op.signature.form.effects.control
            if control == "branch":
                targets = self._targets(routine, op, pending.scope, starts)
                indexed = op.signature.form.mnemonic == "brx"
                op.operands = tuple(Word(",".join(map(str, targets))) if isinstance(o, Word) else o for o in op.operands)
                block.successors = targets if op.guard is None or indexed else [*targets, following]
                if indexed and op.guard is not None:
                    block.successors = [*targets, following]
            elif control in ("return", "exit", "trap"):
                leaves = [last] if control == "return" else []
                block.successors = leaves if op.guard is None else [*leaves, following]

    def _targets(self, routine: Routine, op: Op, scope: _Scope, starts: dict[int, int]) -> list[int]:
        word = next(o for o in op.operands if isinstance(o, Word)).text
        names = routine.tables.get(word, (word,))
        found = []
        for name in names:
            label = scope.label(name)
            if label is None:
                raise SimulationError(f"{_place(op)}there is no label `{name}`")
            found.append(starts[id(label)])
        return found


def _effects(block: Block) -> tuple[int, int]:
    """(registers read before they are written, registers surely written) as bit sets."""
    read = written = 0
    for op in block.ops:
        for index in op.reads():
            if not written >> index & 1:
                read |= 1 << index
        for index in op.writes():
            rw = any(p.operand.access == "rw" for p, o in op.parameters() if o is not None and index in o.registers())
            if rw and not written >> index & 1:
                read |= 1 << index
            if op.guard is None:
                written |= 1 << index
            elif not written >> index & 1:
                read |= 1 << index
    return read, written


def _called(op: Op) -> tuple[str, ...]:
    """The device functions that an instruction names: by a call, or by taking an address."""
    found = [o.text for o in op.operands if isinstance(o, Word)]
    return tuple(name for word in found for name in op.routine.tables.get(word, (word,)))


def _where(instruction: tree.Instruction) -> str:
    return f"{instruction.position}: " if instruction.position else ""


def _place(op: Op) -> str:
    return f"{op.position}: " if op.position else ""


def entry_of(module: tree.Module, name: str | None) -> tree.Function:
    """The entry of that name, or the only one."""
    entries = [f for f in module.functions if f.kind == "entry" and f.body is not None]
    names = ", ".join(f.name for f in entries) or "none"
    if name is None:
        if len(entries) != 1:
            raise SimulationError(f"the module has {len(entries)} entries ({names}): name one")
        return entries[0]
    for function in entries:
        if function.name == name:
            return function
    raise SimulationError(f"the module has no entry `{name}`; it has {names}")
