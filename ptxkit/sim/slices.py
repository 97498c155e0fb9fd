"""Where a register's value goes: forward slices over a program, from instructions that another schedule may answer otherwise to what lasts.

What lasts is what other threads or the end of the run can see: memory that is not a thread's own, synchronisation, output, the end of a
thread. A value goes through registers, through local memory and calls, and through control: what is executed, or written, on one way of a
branch depends on the branch's predicate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..grammar.operands import width
from .definite import bits
from .operand import Address, Indexed, Register, Symbol, SymbolValue, Vector, Word
from .semantics import find

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .operand import Operand
    from .program import Op, Program, Routine

PRIVATE = ("local", "param", "param::func", "param::entry", "const")
"""Spaces of a thread's own, or that nobody writes."""
FREE = frozenset({"sleep", "prefetch", "pmevent", "cache.priority", "query"})
"""Words of `sync` that nobody can tell from nothing."""


Key = tuple[str, Symbol]
"""A variable of a function: its name, the variable."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What lasts and depends: the instruction, and how it depends."""

    op: Op
    how: str


@dataclass(slots=True)
class Seed:
    """What is followed: registers (a bit set) from behind an instruction on. `kind`: a key of `schema.DEPENDS`. `passed`: branches whose
    predicate is known not to matter.
    """

    op: Op
    registers: int
    kind: str
    passed: frozenset[int] = frozenset()
    waits: set[int] = field(default_factory=set)
    """Waits for mbarriers that the value decides about, where that is no harm ("phase")."""
    again: bool = False
    """Whether the value decides how often its own instruction is executed."""


class Nature:
    """What an instruction is to a slice."""

    __slots__ = ("address", "branch", "call", "leaves", "loads", "local", "private", "quiet", "reads", "state", "together", "wait",
                 "writes")

    def __init__(self, op: Op) -> None:
        effects = op.signature.form.effects
        known = find(op)
        self.reads, self.writes = bits(op.reads()), bits(op.writes())
        carry = 1 << len(op.routine.widths)                      # the carry flag, as a register behind the others
        self.reads |= carry if "r" in effects.carry else 0
        self.writes |= carry if "w" in effects.carry else 0
        self.branch = effects.control == "branch"
        self.call = effects.control == "call"
        self.leaves = effects.control in ("exit", "return")
        self.wait = "mbarrier.test" in effects.sync
        opcode = op.tokens[0]
        addresses = [(str(p.operand.space), o) for p, o in op.parameters() if isinstance(o, Address | Indexed)]
        moves = opcode in ("ld", "ldu", "st") and bool(addresses)
        self.private = moves and all(space in PRIVATE for space, _ in addresses)
        self.local = moves and any(space in ("", "local", "param", "param::func") and not _of_the_launch(o) for space, o in addresses)
        self.loads = effects.dependence == "never" and not effects.sync and bool(effects.memory) \
            and all(access.mode == "r" for access in effects.memory)
        self.together = effects.convergence != "none" and not effects.sync and (self.loads or not effects.memory)
        pure = known is not None and known.kind == "pure"
        self.quiet = pure or opcode in ("cvta", "isspacep", "activemask") or (bool(effects.sync) and FREE.issuperset(effects.sync)) \
            or (not effects.memory and not effects.sync and not effects.control and effects.convergence == "none")
        self.state = bits(r for p, o in op.parameters() if o is not None and p.operand.tag == "state" and p.operand.access == "r"
                          for r in o.registers()) if self.wait else 0
        self.address = bits(r for _, o in addresses for r in o.registers())


def _taken(operand: Operand | None) -> Iterable[Symbol]:
    """The variables whose addresses an operand gives away."""
    if isinstance(operand, SymbolValue):
        return (operand.symbol,)
    if isinstance(operand, Indexed):
        return (operand.base.symbol,)
    return (symbol for element in operand.elements for symbol in _taken(element)) if isinstance(operand, Vector) else ()


def _of_the_launch(operand: Address | Indexed) -> bool:
    """Whether an address is in a parameter of the entry."""
    return isinstance(operand.base, SymbolValue) and operand.base.symbol.region == "param"


class Slices:
    """The slices of one program. `block`: the threads of a CTA, for what lanes of a warp have in common."""

    def __init__(self, program: Program, block: tuple[int, int, int]) -> None:
        self.program = program
        self.block = block
        self.outside: frozenset[int] = frozenset()
        """Instructions (by index) whose writes are no result of the program."""
        self.to_local: set[int] = set()
        """Stores to generic addresses (by index) that were seen to go to local memory."""
        self._escaped: set[Key] | None = None
        self._natures: dict[int, Nature] = {}
        self._regions: dict[int, frozenset[int]] = {}
        self._writers: dict[tuple[str, int], list[Op]] | None = None

    def nature(self, op: Op) -> Nature:
        found = self._natures.get(op.index)
        if found is None:
            found = self._natures[op.index] = Nature(op)
        return found

    @property
    def escaped(self) -> set[Key]:
        """Variables of functions whose addresses are taken."""
        if self._escaped is None:
            self._escaped = {(op.routine.name, symbol) for op in self.program.ops if not self.nature(op).call
                             for operand in op.operands for symbol in _taken(operand)}
        return self._escaped

    def parameter(self, op: Op) -> Key | None:
        """The parameter of a call or function that a load or store accesses, if all that access it name it."""
        found = next((o.base for o in op.operands if isinstance(o, Address)), None)
        if not isinstance(found, SymbolValue) or found.symbol.space != "param" or found.symbol.region != "frame":
            return None
        key = op.routine.name, found.symbol
        return None if key in self.escaped else key

    def stored(self, op: Op) -> int:
        """The bytes that a store to a parameter writes."""
        values = op.operand("b") if op.operand("b") is not None else op.operand("a")
        return width(str(op.bindings["type"])) // 8 * (len(values.elements) if isinstance(values, Vector) else 1)

    def called(self, op: Op) -> list[Routine]:
        """The functions that a call may be of; none that is only declared."""
        target, routines = op.operand("func"), self.program.routines
        if isinstance(target, Word):
            return [routines[target.text]] if target.text in routines else []
        return [r for r in {id(r): r for r in routines.values()}.values() if r is not self.program.entry]

    def calls(self, routine: Routine) -> list[Op]:
        """The calls that may be of a function."""
        return [op for op in self.program.ops if self.nature(op).call and routine in self.called(op)]

    def writers(self, routine: str, register: int) -> list[Op]:
        """The instructions of a routine that write one of its registers."""
        if self._writers is None:
            self._writers = {}
            for op in self.program.ops:
                for index in op.writes():
                    self._writers.setdefault((op.routine.name, index), []).append(op)
        return self._writers.get((routine, register), [])

    def region(self, block: int) -> frozenset[int]:
        """The blocks that are executed or not, or how often, as the end of this block decides."""
        found = self._regions.get(block)
        if found is None:
            blocks = self.program.blocks
            join, seen = blocks[block].join, set[int]()
            todo = [s for s in blocks[block].successors if s != join]
            while todo:
                at = todo.pop()
                if at not in seen:
                    seen.add(at)
                    todo += [s for s in blocks[at].successors if s != join]
            found = self._regions[block] = frozenset(seen)
        return found

    def after(self, block: int) -> frozenset[int]:
        """The blocks that may follow this one."""
        seen = set[int]()
        todo = list(self.program.blocks[block].successors)
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += self.program.blocks[at].successors
        return frozenset(seen)

    def live_at(self, op: Op) -> int:
        """The registers that are live before an instruction, as a bit set."""
        block = self.program.blocks[op.block]
        live = 0
        for successor in block.successors:
            live |= self.program.blocks[successor].live
        for other in reversed(block.ops):
            nature = self.nature(other)
            if other.guard is None:
                live &= ~nature.writes
            live |= nature.reads
            if other is op:
                break
        return live

    def lasting(self, seed: Seed) -> Reach | None:
        """The first thing that lasts and depends on the seed."""
        return Flow(self, seed).run()


class Flow:
    """One slice: the registers that depend at the begin of each block, and the blocks whose execution depends."""

    def __init__(self, slices: Slices, seed: Seed) -> None:
        self.slices, self.seed = slices, seed
        self.program = slices.program
        self.begin = [0] * len(self.program.blocks)
        self.controlled: set[int] = set()
        self.parts: set[int] = set()
        """Blocks that end in a branch on a value that depends."""
        self.guarded: set[int] = set()
        """Instructions with a guard that depends."""
        self.touched: dict[str, int] = {}
        """Per routine, the registers that depend anywhere."""
        self.local = False
        self.symbols: set[Key] = set()
        """Parameters of calls and functions that depend."""
        self.inside: set[int] = set()
        """Blocks of functions that an elected lane calls alone, or the others without it."""
        self.reach: Reach | None = None
        self.todo: list[int] = [seed.op.block]
        self.waiting = {seed.op.block}

    def again(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if block not in self.waiting:
                self.waiting.add(block)
                self.todo.append(block)

    def control(self, blocks: Iterable[int]) -> None:
        new = set(blocks) - self.controlled
        if new:
            self.controlled |= new
            self.again(new)

    def run(self) -> Reach | None:
        while self.todo and self.reach is None:
            block = self.todo.pop()
            self.waiting.discard(block)
            self._block(block)
        return self.reach

    def _block(self, index: int) -> None:
        taken = self.begin[index]
        block = self.program.blocks[index]
        name = self.program.owner[index].name
        touched = self.touched.get(name, 0)
        for op in block.ops:
            taken = self._step(op, taken)
            touched |= taken
            if self.reach is not None:
                return
        self.touched[name] = touched
        for successor in block.successors:
            if taken & ~self.begin[successor]:
                self.begin[successor] |= taken
                self.again((successor,))
        if taken:
            self._return(name, index, taken)

    def _step(self, op: Op, taken: int) -> int:
        seed = self.seed
        nature = self.slices.nature(op)
        guarded = op.guard is not None and bool(taken >> op.guard.index & 1)
        controlled = op.block in self.controlled
        if guarded:
            self.guarded.add(op.index)
        read = nature.reads & taken & ~nature.state
        if read or guarded or controlled:
            self._meets(op, nature, read, guarded, controlled)
            taken |= nature.writes
        elif op.guard is None:
            taken &= ~nature.writes
        if nature.local and nature.loads and self._kept(op):
            taken |= nature.writes
        if nature.call and not (seed.kind == "election" and (guarded or controlled)):
            taken |= self._hands(op)
        if op is seed.op:
            taken |= seed.registers
        return taken

    def _meets(self, op: Op, nature: Nature, read: int, guarded: bool, controlled: bool) -> None:
        """An instruction that depends."""
        if op.index in self.slices.outside:
            return
        seed = self.seed
        if nature.branch or nature.leaves:
            if op.index in seed.passed:
                return
            if (read or guarded) and (op.guard is not None or op.tokens[0] == "brx"):
                self._parts(op, nature)
            elif controlled and nature.leaves and op.routine.function.kind == "entry" and op.guard is not None:
                self.control(self.slices.after(op.block))
            return
        if nature.call:
            pointer = op.operand("fptr")
            if isinstance(pointer, Register) and read >> pointer.index & 1:
                self.guarded.add(op.index)
            self._calls(op, read, guarded or controlled or op.index in self.guarded)
            return
        if nature.private or op.index in self.slices.to_local:
            if not nature.writes:
                self._keeps(self.slices.parameter(op))
            return
        if nature.quiet or (seed.kind == "election" and (guarded or controlled)):
            return
        if nature.together if not guarded and not controlled else nature.loads and not nature.together:
            return
        if nature.loads and not guarded and not controlled and not (nature.address & read and seed.kind in ("time", "machine", "election")):
            return
        if op is seed.op and not guarded and seed.kind in ("phase", "time"):
            seed.again = True
            return
        if nature.wait and seed.kind == "phase":
            seed.waits.add(op.index)
            return
        if nature.address & read:
            how = "is part of an address of"
        elif read and not guarded:
            how = "reaches"
        else:
            how = "decides whether the thread comes to"
        self.reach = Reach(op, how)

    def _parts(self, op: Op, nature: Nature) -> None:
        """A branch, or a guarded exit, on a value that depends."""
        self.parts.add(op.block)
        region = self.slices.region(op.block)
        if nature.leaves and op.routine.function.kind == "entry":
            region = self.slices.after(op.block)
        elif op.signature.form.effects.control == "exit":
            region = frozenset(range(len(self.program.blocks)))
        if op.block in region:
            inside = self.seed.op.block in region and self.seed.op.routine is op.routine
            self.seed.again |= inside
            if not inside if self.seed.kind in ("phase", "time") else self.seed.kind != "election":
                self.reach = Reach(op, "decides when a loop ends, at")
                return
        self.control(region)

    def _kept(self, op: Op) -> bool:
        """Whether a load may read what depends in the thread's own memory."""
        return self._depends(self.slices.parameter(op))

    def _depends(self, key: Key | None) -> bool:
        return self.local if key is None or key in self.slices.escaped else key in self.symbols

    def _keeps(self, key: Key | None) -> None:
        """A thread's own memory, or a parameter, depends."""
        if self._depends(key):
            return
        if key is None:
            self.local = True
        else:
            self.symbols.add(key)
        self.again(range(len(self.program.blocks)))

    def _calls(self, op: Op, read: int, controlled: bool) -> None:
        called = self.slices.called(op)
        if not called:
            self.reach = Reach(op, "reaches")
            return
        for target in listed(op.operand("ret_param")) if controlled else ():
            if isinstance(target, SymbolValue):
                self._keeps(self._key(op, target))
        if controlled and self.seed.kind == "election":
            self._enter(called)
            return
        for routine in called:
            own = [i for i, owner in enumerate(self.program.owner) if owner is routine]
            if controlled:
                self.control(own)
                continue
            for symbol, argument in zip(routine.parameters, listed(op.operand("param_list")), strict=False):
                if isinstance(argument, Register) and read >> argument.index & 1:
                    self._given(routine, symbol)
            self.again(own)

    def _key(self, op: Op, variable: SymbolValue) -> Key | None:
        key = op.routine.name, variable.symbol
        return None if key in self.slices.escaped else key

    def _hands(self, op: Op) -> int:
        """What a call hands to a function, and gets from it, in parameters that depend: the registers that do then."""
        taken = 0
        for routine in self.slices.called(op):
            for symbol, argument in zip(routine.parameters, listed(op.operand("param_list")), strict=False):
                if isinstance(argument, SymbolValue) and self._depends(self._key(op, argument)):
                    self._given(routine, symbol)
            for symbol, target in zip(routine.returns, listed(op.operand("ret_param")), strict=False):
                if symbol.region != "reg" and self._depends((routine.name, symbol)):
                    taken |= bits(target.registers())
                    if isinstance(target, SymbolValue):
                        self._keeps(self._key(op, target))
        return taken

    def _given(self, routine: Routine, symbol: Symbol) -> None:
        """A function's parameter depends."""
        if symbol.region == "reg":
            self.begin[routine.entry] |= 1 << routine.names.index(symbol.name)
        else:
            key = routine.name, symbol
            self._keeps(None if key in self.slices.escaped else key)

    def _enter(self, called: list[Routine]) -> None:
        """Functions that an elected lane calls alone: what they do is done by that lane."""
        todo = list(called)
        while todo:
            routine = todo.pop()
            own = {i for i, owner in enumerate(self.program.owner) if owner is routine} - self.inside
            self.inside |= own
            for op in (op for i in own for op in self.program.blocks[i].ops):
                nature = self.slices.nature(op)
                if nature.call:
                    todo += self.slices.called(op)
                elif (nature.private or op.index in self.slices.to_local) and not nature.writes and self.slices.parameter(op) is None:
                    self._keeps(None)

    def _return(self, name: str, block: int, taken: int) -> None:
        """Results in registers, at the calls of a function."""
        routine = self.program.routines[name]
        if self.program.blocks[block].successors:
            return
        results = [i for i, s in enumerate(routine.returns) if s.region == "reg" and taken >> routine.names.index(s.name) & 1]
        if not results:
            return
        for op in self.slices.calls(routine):
            given = listed(op.operand("ret_param"))
            written = bits(r for i in results if i < len(given) for r in given[i].registers())
            if written & ~self.begin[op.block + 1]:
                self.begin[op.block + 1] |= written
                self.again((op.block + 1,))


def listed(operand: Operand | None) -> tuple[Operand, ...]:
    """What a call is given, or gives."""
    return operand.elements if isinstance(operand, Vector) else ()
