"""A tree made ready to run: registers by index, variables placed, instructions bound to the table, basic blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..check.graph import liveness, post_dominators
from ..grammar import forms, tree
from ..grammar.authors import Authors
from ..grammar.errors import OpcodeError, Position
from ..grammar.match import Mismatch, bind, lone
from ..grammar.operands import width
from .errors import SimulationError, UnsupportedError
from .limits import CONST_LIMIT, LOCAL_LIMIT, PARAMETER_LIMIT, Limits
from .names import Names, Scope
from .operand import Address, Indexed, Operand, Register, Symbol, Vector, Word
from .symbols import Layout, round_up


@cache
def _tokens(opcode: str) -> list[str]:
    return opcode.split(".")


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
        """The parts of the opcode; one list for all instructions that share it."""
        return _tokens(self.opcode)

    @property
    def where(self) -> str:
        """How a sentence about it begins: the author's line, else that of the PTX."""
        place = self.python or self.position
        return f"{place}: " if place else ""

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
    begins: bool = True
    """False: a block of a program in single steps, which continues a basic block."""


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
    undefined: set[int] = field(default_factory=set)
    """The instructions (by index) that have given a lane an undefined value in some run."""


@dataclass(slots=True, eq=False)
class _Pending:
    """An instruction before its block is known, with the scope that its labels are looked up in."""

    op: Op
    scope: Scope


class Decoder:
    """Decodes the routines of a program one after the other into one list of blocks; `stepwise` makes each instruction a block."""

    def __init__(self, module: tree.Module, blocking: Any, limits: Limits, stepwise: bool = False) -> None:
        self.module = module
        self.limits = limits
        self.layout = Layout(module)
        self.names = Names(self.layout)
        self.blocking = blocking
        self.stepwise = stepwise
        self.blocks: list[Block] = []
        self.owner: list[Routine] = []
        self.ops: list[Op] = []
        self.routines: dict[str, Routine] = {}
        self.authors = Authors(module)
        self.functions = {f.name: f for f in module.functions if f.body is not None}
        self.functions.update({item.name: self.functions[item.target] for item in module.items
                               if isinstance(item, tree.Alias) and item.target in self.functions})

    def program(self, entry: tree.Function) -> Program:
        routine = self.routines[entry.name] = Routine(entry, self.layout)
        todo = [routine]
        for name in self._in_initialisers():
            todo += self._new_routine(name)
            self.layout.find(name)
        while todo:
            for op in self._body(todo.pop()):
                for name in _called(op):
                    todo += self._new_routine(name)
        self._fit(routine)
        return Program(self.module, routine, self.routines, self.blocks, self.owner, self.ops, self.layout)

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

    def _fit(self, entry: Routine) -> None:
        """Sizes that no GPU has."""
        parameters = max((symbol.address + symbol.size for symbol in entry.parameters), default=0)
        frames = ((f"the .local variables of `{routine.name}`", routine.frame, LOCAL_LIMIT) for routine in self.routines.values())
        for what, size, most in (("the .const variables", self.layout.sizes["const"], CONST_LIMIT),
                                 (f"the parameters of `{entry.name}`", parameters, PARAMETER_LIMIT), *frames):
            if size > most:
                raise SimulationError(f"{what} take {size:,} bytes: at most {most:,}")

    def _new_routine(self, name: str) -> list[Routine]:
        """The routine of that name or alias, if it is not known yet."""
        function = self.functions.get(name)
        if function is None or name in self.routines:
            return []
        known = self.routines.get(function.name)
        made = self.routines[name] = self.routines[function.name] = known or Routine(function, self.layout)
        return [] if known else [made]

    # ------------------------------------------------------------------------------------------- one routine

    def _body(self, routine: Routine) -> list[Op]:
        function = routine.function
        scope = Scope(None)
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
        routine.frame = round_up(frame.size, 16)      # a callee's frame comes behind it
        self._split(routine, items)
        return [item.op for item in items if isinstance(item, _Pending)]

    def _flatten(self, routine: Routine, body: tuple[tree.Statement, ...], scope: Scope, items: list[Any], frame: Any) -> None:
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
                python = self.authors.of(statement)
            elif isinstance(statement, tree.Block):
                self._flatten(routine, statement.body, Scope(scope), items, frame)

    def _declare(self, routine: Routine, scope: Scope, variable: tree.Variable, frame: Any) -> None:
        if variable.space != "reg":
            scope.names[variable.name] = frame.variable(variable)
            return
        bits = 1 if variable.type == "pred" else width(variable.type)
        if len(routine.widths) + (variable.count or 1) * variable.vector > self.limits.registers:
            raise SimulationError(f"`{routine.name}` declares {variable.count or 1:,} registers {variable.name}: a function may have "
                                  f"{self.limits.says('registers')}")
        names = [variable.name] if variable.count is None else [f"{variable.name}{i}" for i in range(variable.count)]
        for name in names:
            made = [Register(len(routine.widths) + lane, bits, variable.type) for lane in range(variable.vector)]
            routine.widths += [bits] * variable.vector
            routine.names += [name] if variable.vector == 1 else [f"{name}.{axis}" for axis in "xyzw"[:variable.vector]]
            scope.names[name] = made[0] if variable.vector == 1 else Vector(tuple(made))

    # ------------------------------------------------------------------------------------------- one instruction

    def _bind(self, routine: Routine, instruction: tree.Instruction, scope: Scope, python: Position | None) -> Op:
        def types(name: str) -> str | None:
            found = self.names.find(scope, name)
            if isinstance(found, Register):
                return found.type
            if isinstance(found, Vector) and isinstance(found.elements[0], Register):
                return f"v{len(found.elements)}.{found.elements[0].type}"
            return f".{found.space}" if isinstance(found, Symbol) else None

        listed = _signatures(instruction)
        failures: list[Mismatch] = []
        for signature, executed in listed:
            values = bind(signature, instruction.operands, types)
            if isinstance(values, Mismatch):
                failures.append(values)
                continue
            if not executed:
                raise UnsupportedError(f"{_where(instruction)}the simulator does not execute `{instruction.opcode}` with such operands: "
                                       "ptxas takes it, the manual does not have it")
            if any(lone(signature, parameter) for parameter in signature.parameters):
                raise UnsupportedError(f"{_where(instruction)}`{instruction.opcode}` of one value for a whole vector is not executed: "
                                       "write a value for each lane in braces")
            guard = instruction.guard
            try:
                predicate = None if guard is None else self.names.predicate(scope, guard.predicate)
                operands = tuple(None if value is None else self.names.operand(parameter, value, scope)
                                 for parameter, value in zip(signature.parameters, values, strict=True))
            except (SimulationError, UnsupportedError) as error:
                raise type(error)(f"{_where(instruction)}`{instruction.opcode}`: {error}") from None
            return Op(instruction.opcode, signature, operands, predicate, guard is not None and guard.negated, instruction.position, python,
                      routine)
        nearest = max(failures, key=lambda failure: failure.depth)
        raise SimulationError(f"{_where(instruction)}`{instruction.opcode}`: {nearest.sentence}")

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
            if content and ((begins := self.blocking(item.op)) or self.stepwise):
                close()
                block.begins = begins
            content.append(item)
            if item.op.signature.form.effects.control or (item.op.guard is not None and item.op.operand("membermask") is not None):
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

    def _targets(self, routine: Routine, op: Op, scope: Scope, starts: dict[int, int]) -> list[int]:
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


def _signatures(instruction: tree.Instruction) -> list[tuple[forms.Signature, bool]]:
    """The signatures of an opcode, and whether it is executed with them: of forms that only ptxas has, not all are."""
    opcode = instruction.opcode
    try:
        listed = forms.lookup(opcode)
    except OpcodeError as error:
        ordered = forms.canonical(opcode)
        listed = () if ordered is None else forms.lookup(ordered)
        if not forms.accepted(opcode):
            raise SimulationError(f"{_where(instruction)}{error}") from None
    tokens = opcode.split(".")
    executed = tokens[0] == "call" or tokens[:2] in (["mov", "v2"], ["mov", "v4"]) or (tokens[0] == "cvt" and "ftz" in tokens)
    return [*((each, True) for each in listed), *((each, executed) for each in forms.accepted(opcode) if each not in listed)]


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
