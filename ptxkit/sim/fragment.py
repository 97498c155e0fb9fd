"""A fragment: the lanes of a warp that are at one place, with their registers. Warps part and join again as fragments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import Fault
from .externals import EXTERNALS
from .operand import SymbolValue, Vector, Word
from .values import lane_list, lane_of, mask_of, merge, signed

if TYPE_CHECKING:
    from .cta import Warp
    from .machine import Machine
    from .program import Op


@dataclass(slots=True, eq=False)
class Join:
    """Where parted lanes meet: at `block`, in the activation of depth `depth`, once all lanes of `expected` are there."""

    block: int
    depth: int
    expected: int
    parent: Join | None
    arrived: list[Fragment] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Activation:
    """What a call leaves behind: where to go on, the caller's registers and frame, and the call's operands."""

    back: int
    registers: list[Any]
    frame: int
    op: Op
    below: Activation | None
    depth: int


@dataclass(slots=True, eq=False)
class Wait:
    """What a sleeping fragment waits for: `kind` "mbarrier", "barrier", "cluster", "bulk", "copies", "wgmma", "registers", "warp" or
    "aligned" (lanes of its warp).

    `on` is the object of that kind, `phase` the phase, generation or group. `times_out`: a try_wait, which may say no and go on.
    """

    kind: str
    op: Op
    on: Any
    phase: int = 0
    times_out: bool = False


class Fragment:
    """`R` are the register values by index, `mask` the lanes, `lane` the only lane or None.

    `window` is the shared address of offset 0 of its CTA, `frame` its activation's offset in local memory. `token` belongs to the
    blocking instruction that the fragment is at (None before its first call), `wait` says what it sleeps on, `shadow` is the
    checker's.
    """

    __slots__ = ("R", "block", "carry", "cta", "frame", "join", "lane", "machine", "mask", "shadow", "stack", "stalled_at", "timed_out",
                 "token", "wait", "warp", "window")

    def __init__(self, machine: Machine, warp: Warp, registers: list[Any], mask: int, block: int) -> None:
        self.machine = machine
        self.warp = warp
        self.cta = warp.cta
        self.window = warp.cta.window
        self.R = registers
        self.mask = mask
        self.lane = mask.bit_length() - 1 if mask & mask - 1 == 0 else None
        self.block = block
        self.join: Join | None = None
        self.stack: Activation | None = None
        self.frame = 0
        self.carry: Any = 0
        self.token: Any = None
        self.wait: Wait | None = None
        self.timed_out = False
        self.stalled_at = -1
        self.shadow: Any = None

    # ------------------------------------------------------------------------------------------- parting and joining

    def fork(self, mask: int, block: int) -> Fragment:
        """A new fragment of some of these lanes, which leave this one."""
        other = Fragment(self.machine, self.warp, self.R.copy(), mask, block)
        other.join, other.stack, other.frame, other.carry = self.join, self.stack, self.frame, self.carry
        self._keep(self.mask & ~mask)
        if self.machine.watch is not None:
            self.machine.watch.part(self, other)
        return other

    def _keep(self, mask: int) -> None:
        self.mask = mask
        self.lane = mask.bit_length() - 1 if mask & mask - 1 == 0 else None

    def branch(self, p: Any, yes: int, no: int, join: int | None) -> int:
        """The block to go on in where lanes may disagree: those that part become a fragment of their own."""
        mask = mask_of(p) & self.mask
        if mask == self.mask or yes == no:
            return yes
        if not mask:
            return no
        return self.part([(mask, yes), (self.mask & ~mask, no)], join)

    def switch(self, index: Any, targets: tuple[int, ...], join: int | None) -> int:
        if type(index) is int:
            return targets[index]
        ways = [(mask_of(index == i) & self.mask, target) for i, target in enumerate(targets)]
        ways = [(mask, target) for mask, target in ways if mask]
        return ways[0][1] if len(ways) == 1 else self.part(ways, join)

    def part(self, ways: list[tuple[int, int]], join: int | None) -> int:
        """Go `ways` (mask, block), this fragment the last one that does not lead to the join at once."""
        depth = 0 if self.stack is None else self.stack.depth
        meeting = self.join
        if join is not None and not (meeting is not None and meeting.block == join and meeting.depth == depth):
            self.join = meeting = Join(join, depth, self.mask, meeting)
        own = max(range(len(ways)), key=lambda i: (ways[i][1] != join, -i))
        for i, (mask, block) in enumerate(ways):
            if i == own:
                continue
            other = self.fork(mask, block)
            other.narrow(block)
            if block == join and meeting is not None:
                meeting.arrived.append(other)
            else:
                self.machine.ready.append(other)
        self.narrow(ways[own][1])
        return ways[own][1]

    def leave_behind(self, mask: int, block: int, join: int | None) -> None:
        """Keep only the lanes of `mask`; the others go on at `block`."""
        self.part([(mask, -1), (self.mask & ~mask, block)], join)

    def narrow(self, block: int) -> None:
        """A single lane computes with Python ints: make its live registers so."""
        lane = self.lane
        if lane is None:
            return
        registers = self.R
        for index in self.machine.live(block):
            value = registers[index]
            if type(value) is not int and type(value) is not bool:
                registers[index] = lane_of(value, lane)
        if type(self.carry) is not int:
            self.carry = lane_of(self.carry, lane)

    def arrive(self, block: int) -> Fragment | None:
        """Reach the join at `block`; the whole fragment if all others are there, None if this one must wait."""
        join = self.join
        assert join is not None
        self.block = block
        join.arrived.append(self)
        return self.machine.complete(join)

    def exit(self, mask: int) -> None:
        """Some of the lanes end."""
        self._keep(self.mask & ~mask)
        self.machine.exited(self, mask)

    # ------------------------------------------------------------------------------------------------- calls

    def call(self, op: Op, pointer: Any, back: int, join: int | None) -> int:
        machine = self.machine
        name = self._callee(op, pointer, back, join)
        routine = machine.program.routines.get(name)
        if routine is None:
            external = EXTERNALS.get(name)
            if external is None:
                raise Fault("bad-call", f"a call through a pointer to `{name}`, which is declared but not defined", "", op)
            external(self, op)
            return back
        depth = 1 if self.stack is None else self.stack.depth + 1
        if depth > 256 or self.frame + machine.program.owner[back].frame + routine.frame > machine.local_bytes:
            raise Fault("stack-overflow", f"calls are nested {depth} deep in `{name}`, with {self.frame:,} bytes of stack", "", op)
        caller = self.R
        self.stack = Activation(back, caller, self.frame, op, self.stack, depth)
        above = self.frame + machine.program.owner[back].frame
        arguments = op.operand("param_list")
        formal = routine.parameters
        registers = machine.blank(routine)
        for symbol, argument in zip(formal, arguments.elements if isinstance(arguments, Vector) else (), strict=False):
            if symbol.region == "reg":
                registers[routine.names.index(symbol.name)] = machine.read(self, argument, caller)
            elif isinstance(argument, SymbolValue):
                self.warp.copy_local(self.mask, above + symbol.address, self.frame + argument.symbol.address, symbol.size)
            else:
                bits = 8 * symbol.size
                self.warp.store_local(self.mask, above + symbol.address, machine.read(self, argument, caller), bits)
        self.frame = above
        self.R = registers
        return routine.entry

    def _callee(self, op: Op, pointer: Any, back: int, join: int | None) -> str:
        if pointer is None:
            word = op.operand("func")
            assert isinstance(word, Word)
            return word.text
        if type(pointer) is not int:
            first = lane_of(pointer, lane_list(self.mask)[0])
            same = mask_of(pointer == first) & self.mask
            if same != self.mask:
                self.leave_behind(same, op.block, join)
            pointer = first
        name: str | None = self.machine.function_at(pointer)
        if name is None:
            raise Fault("bad-call", f"a call through {pointer:#x}, which is no function's address", "", op)
        return name

    def ret(self) -> int:
        """Back to the caller, with the results."""
        activation = self.stack
        if activation is None:
            return -2
        machine = self.machine
        op = activation.op
        routine = machine.program.owner[self.block]
        callee, frame = self.R, self.frame
        self.R, self.frame, self.stack = activation.registers.copy(), activation.frame, activation.below
        results = op.operand("ret_param")
        for symbol, target in zip(routine.returns, results.elements if isinstance(results, Vector) else (), strict=False):
            if symbol.region == "reg":
                value = callee[routine.names.index(symbol.name)]
                for index in target.registers():
                    self.R[index] = value
            elif isinstance(target, SymbolValue):
                self.warp.copy_local(self.mask, self.frame + target.symbol.address, frame + symbol.address, symbol.size)
            else:
                for index in target.registers():
                    self.R[index] = self.warp.load_local(self.mask, frame + symbol.address, 8 * symbol.size)
        return activation.back

    # ------------------------------------------------------------------------------------------------ reading

    def special(self, name: str, behind: int = 0) -> Any:
        """A special register. `behind`: the instructions that `Machine.steps` counts and that are still to be executed."""
        value = self.warp.special(name)
        if value is None:
            value = self.machine.special(name, behind)
        if self.lane is not None and type(value) is not int and type(value) is not bool:
            return lane_of(value, self.lane)
        return value

    def element(self, base: int, index: Any, scale: int) -> Any:
        """The address of an array's element."""
        if type(index) is int:
            return base + signed(index, 64) * scale
        return (index.view("int64") * scale + base).view("uint64")

    def first(self) -> int:
        """The lowest active lane."""
        return (self.mask & -self.mask).bit_length() - 1

    def __repr__(self) -> str:
        return f"<{self.warp!r} lanes {self.mask:#010x} block {self.block}>"


def merged(fragments: list[Fragment], live: tuple[int, ...], widths: list[int]) -> Fragment:
    """One fragment of all the lanes: the registers that live on are merged."""
    whole = max(fragments, key=lambda f: f.mask.bit_count())
    registers = whole.R
    mask = whole.mask
    for other in fragments:
        if other is whole:
            continue
        theirs = other.R
        for index in live:
            if registers[index] is not theirs[index]:
                registers[index] = merge(other.mask, theirs[index], registers[index], widths[index])
        if whole.carry is not other.carry:
            whole.carry = merge(other.mask, other.carry, whole.carry, 8)
        mask |= other.mask
    whole.mask = mask
    whole.lane = mask.bit_length() - 1 if mask & mask - 1 == 0 else None
    return whole


