"""What an elected lane does, and whether it shows which lane it was.

PTX leaves open which lane `elect.sync` chooses. It makes no difference where the lane uses only what all lanes have in common, and what it
has made of that. Two things tell lanes apart: registers in which the lanes of the warp differ, and what is made, by all of them, of the
election's results (the number of the elected lane, a ballot of the predicate).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .definite import bits
from .operand import Immediate, Register, SpecialRegister, SymbolValue
from .slices import Flow, Key, Nature, Reach, Seed, Slices, listed

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from .program import Op, Routine

ACROSS = ("vote", "redux", "shfl", "match")
"""Instructions that take other lanes' values and order no memory."""
SAME = ("bar", "barrier", "elect", "activemask")
"""Instructions of several lanes whose results are the same in all of them, or that have rules of their own."""
LANE_BITS = 5
LANES = (1 << LANE_BITS) - 1
"""The bits of a thread's number that tell the lanes of a warp apart, where a block is whole warps along x."""
WHOLE_CLAMP = 31
"""The `c` of a shuffle within the whole warp, from any lane."""


@dataclass(frozen=True, slots=True)
class Election:
    """An `elect.sync`: what lasts and depends on more than what the elected lane does; the blocks and the guarded instructions that only
    that lane executes, or the others, the blocks of functions that these call, and the blocks that end in the branch between the two; the
    registers (a bit set) that decide what it does; per routine the registers that the election reaches.
    """

    op: Op
    reach: Reach | None
    alone: frozenset[int]
    guarded: frozenset[int]
    inside: frozenset[int]
    ends: frozenset[int]
    needed: int
    touched: dict[str, int]

    def shows(self, slices: Slices, varying: int, parted: AbstractSet[int]) -> Reach | None:
        """What lasts and shows which lane it was. `varying`: the registers that were seen to differ between the lanes; `parted`: the
        blocks at whose end lanes of a warp were seen to part.
        """
        return self.reach or _Varying(slices, self, varying, parted).run()


def election(slices: Slices, op: Op) -> Election:
    """What one lane of a warp does, and what the number of the lane reaches."""
    flow = Flow(slices, Seed(op, bits(op.registers("p")), "election"))
    reach = flow.run()
    if reach is None and op.operand("d") is not None:
        reach = slices.lasting(Seed(op, bits(op.registers("d")), "order"))
    alone = frozenset(flow.controlled)
    done = [o for o in slices.program.ops if o.block in alone or o.block in flow.inside or o.index in flow.guarded]
    needed = _needed(slices, op, done)
    return Election(op, reach, alone, frozenset(flow.guarded), frozenset(flow.inside), frozenset(flow.parts),
                    needed & slices.live_at(op) & (1 << len(op.routine.widths)) - 1, flow.touched)


def _needed(slices: Slices, op: Op, done: list[Op]) -> int:
    """What decides whether these instructions are executed, and with which values: registers of the election's routine."""
    own = [o for o in slices.program.ops if o.routine is op.routine]
    ways = [(o, slices.after(o.block) if slices.nature(o).leaves else slices.region(o.block))
            for o in own if (slices.nature(o).branch or slices.nature(o).leaves) and o.reads()]
    needed, counted = bits(r for o in done for r in o.reads()), {o.block for o in done}
    before = -1
    while needed != before:
        before = needed
        for other in reversed(own):
            nature = slices.nature(other)
            if nature.writes & needed:
                needed |= nature.reads
                counted.add(other.block)
        for way, region in ways:
            if not counted.isdisjoint(region):
                needed |= slices.nature(way).reads
    return needed


class _Varying:
    """From an election on, the registers that tell which lane was elected: those in which lanes of a warp may differ, and what all lanes
    make of the election."""

    def __init__(self, slices: Slices, election: Election, varying: int, seen: AbstractSet[int]) -> None:
        self.slices, self.election, self.varying, self.seen = slices, election, varying, seen
        self.program = slices.program
        self.begin = {election.op.block: 0}
        self.todo = [election.op.block]
        self.parted: set[int] = set()
        """Blocks that some lanes come to and others not."""
        self.above = {election.op.routine.name}
        """The routine that elects and those that have called it: nobody has looked at what they had in registers and parameters."""
        self.symbols: set[Key] = set()
        """Parameters that tell lanes apart."""
        self.results: dict[str, int] = {}
        """Of functions, the registers that they return and that tell lanes apart."""
        self.local = self._keeps_locally()
        self.aligned = slices.block[0] % 32 == 0

    def run(self) -> Reach | None:
        while self.todo:
            reach = self._block(self.todo.pop())
            if reach is not None:
                return reach
        return None

    def _block(self, at: int) -> Reach | None:
        known = self.begin[at]
        fresh: dict[Key, tuple[int, bool]] = {}
        for op in self.program.blocks[at].ops:
            nature = self.slices.nature(op)
            alone = at in self.election.alone or at in self.election.inside or at in self.election.ends \
                or op.index in self.election.guarded
            if alone and nature.loads and not nature.private and nature.address & known:
                return Reach(op, "decides which lane's values are part of an address of")
            called = self.slices.called(op) if nature.call else []
            if alone and self._lasts(nature) and op.index not in self.slices.outside:
                if self._chooses(op, known) if called else nature.reads & known or nature.call:
                    return Reach(op, "decides which lane's values reach")
                if at in self.parted and not called:
                    return Reach(op, "decides whether its lane comes to")
            if nature.private and not nature.writes:
                self._puts(op, at in self.parted or bool(nature.reads & known), fresh)
            if nature.branch or nature.leaves:
                self._parts(op, nature, known, alone)
            if called:
                known = self._calls(op, called, known, fresh)
            elif self._guarded(op, known) or self._varies(op, nature, known, alone):
                known |= nature.writes
            elif op.guard is None:
                known &= ~nature.writes
            if op is self.election.op:
                known = (known | self.varying | 1 << len(op.routine.widths)) & ~nature.writes | bits(op.registers("d"))
        block = self.program.blocks[at]
        for successor in block.successors:
            self._reaches(successor, known)
        if not block.successors:
            self._returns(self.program.owner[at], known)
        return None

    def _reaches(self, block: int, known: int) -> None:
        if block not in self.begin or known & ~self.begin[block]:
            self.begin[block] = self.begin.get(block, 0) | known
            self.todo.append(block)

    def _guarded(self, op: Op, known: int) -> bool:
        return op.guard is not None and bool(known >> op.guard.index & 1)

    def _parts(self, op: Op, nature: Nature, known: int, alone: bool) -> None:
        """A branch or an exit: which blocks come to depend on the lane."""
        if not self._guarded(op, known) and not (op.tokens[0] == "brx" and nature.reads & known):
            return
        if nature.branch and not alone and op.block not in self.seen:
            return
        region = self.slices.after(op.block) if nature.leaves else self.slices.region(op.block)
        new = region - self.parted
        self.parted |= new
        self.todo += [block for block in new if block in self.begin]

    def _chooses(self, op: Op, known: int) -> bool:
        """Whether a call is made, or of what function, as what tells lanes apart decides."""
        pointer = op.operand("fptr")
        return self._guarded(op, known) or (isinstance(pointer, Register) and bool(known >> pointer.index & 1))

    def _puts(self, op: Op, tells: bool, fresh: dict[Key, tuple[int, bool]]) -> None:
        """A store to a parameter. `fresh`: how many bytes of it this block has stored, and whether they tell lanes apart."""
        key, size = self.slices.parameter(op), self.slices.stored(op)
        if key is not None:
            before, told = fresh.get(key, (0, False))
            fresh[key] = before + size * (op.guard is None), told or tells
            if tells:
                self._keep(key)

    def _tells(self, key: Key | None, fresh: dict[Key, tuple[int, bool]] | None = None) -> bool:
        """Whether a thread's own memory, or a parameter, tells lanes apart."""
        if key is None or key in self.slices.escaped:
            return self.local
        if fresh and key in fresh and fresh[key][0] >= key[1].size:
            return fresh[key][1]
        return key in self.symbols or key[0] in self.above

    def _keep(self, key: Key) -> None:
        if key in self.slices.escaped and not self.local:
            self.local = True
        elif key in self.slices.escaped or key in self.symbols:
            return
        self.symbols.add(key)
        self.todo += self.begin

    def _calls(self, op: Op, called: list[Routine], known: int, fresh: dict[Key, tuple[int, bool]]) -> int:
        """What a function is given, and what it gives back: the registers that tell lanes apart then."""
        every = op.block in self.parted or self._guarded(op, known)
        caller, left = op.routine.name, 0
        for routine in called:
            own = {i for i, owner in enumerate(self.program.owner) if owner is routine} if every else set()
            self.todo += [i for i in own - self.parted if i in self.begin]
            self.parted |= own
            given = 0
            for symbol, argument in zip(routine.parameters, listed(op.operand("param_list")), strict=False):
                if self._tells((caller, argument.symbol), fresh) if isinstance(argument, SymbolValue) else \
                        isinstance(argument, SpecialRegister) or bits(argument.registers()) & known:
                    if symbol.region == "reg":
                        given |= 1 << routine.names.index(symbol.name)
                    else:
                        self._keep((routine.name, symbol))
            self._reaches(routine.entry, given)
            for symbol, target in zip(routine.returns, listed(op.operand("ret_param")), strict=False):
                tells = self.results.get(routine.name, 0) >> routine.names.index(symbol.name) & 1 if symbol.region == "reg" \
                    else self._tells((routine.name, symbol))
                if every or tells:
                    left |= bits(target.registers())
                    if isinstance(target, SymbolValue):
                        self._keep((caller, target.symbol))
        return (known if op.guard is not None else known & ~self.slices.nature(op).writes) | left

    def _returns(self, routine: Routine, known: int) -> None:
        """From a function: of who has called the routine that elects, all registers may differ."""
        calls = self.slices.calls(routine)
        if routine.name in self.above:
            for op in calls:
                self.above.add(op.routine.name)
                self._reaches(op.block + 1, (1 << len(op.routine.widths)) - 1)
        back = known & bits(routine.names.index(s.name) for s in routine.returns if s.region == "reg")
        if back & ~self.results.get(routine.name, 0):
            self.results[routine.name] = self.results.get(routine.name, 0) | back
            self.todo += [op.block for op in calls if op.block in self.begin]

    def _lasts(self, nature: Nature) -> bool:
        return not (nature.branch or nature.leaves or nature.quiet or nature.loads or nature.private or nature.wait)

    def _varies(self, op: Op, nature: Nature, known: int, alone: bool) -> bool:
        """Whether an instruction's results tell lanes apart."""
        opcode = op.tokens[0]
        if op.block in self.parted or nature.call or (nature.local and nature.loads and self._tells(self.slices.parameter(op))):
            return True
        if op is self.election.op or opcode in SAME:
            return opcode == "elect" and op is not self.election.op
        if opcode in ACROSS:
            touched = self.election.touched.get(op.routine.name, 0)
            return (bool(nature.reads & known) and not self._one_for_all(op, known, alone)) \
                or (not alone and bool(nature.reads & touched)) or self._by_place(op, known, alone)
        if op.signature.form.effects.convergence != "none" and not nature.wait:
            return True
        if self.aligned and self._of_warp(op):
            return False
        for operand in op.operands:
            if isinstance(operand, SpecialRegister) and ("%lane" in operand.name or operand.name in ("%tid", "%tid.x")
                                                         or ("%tid" in operand.name and not self.aligned)):
                return True
        if nature.reads & known:
            return True
        return not alone and opcode in ("atom", "ld", "ldu", "mbarrier") and not nature.loads and not nature.wait

    def _one_for_all(self, op: Op, known: int, alone: bool) -> bool:
        """Whether an instruction makes of values that differ one value for all lanes."""
        members = op.operand("membermask")
        if alone or (isinstance(members, Register) and known >> members.index & 1):
            return False
        return op.tokens[0] in ("vote", "redux") or (op.tokens[0] == "shfl" and op.has("idx") and self._from_one(op))

    def _from_one(self, op: Op) -> bool:
        """Whether all lanes read one lane: an index for all, in one segment."""
        source, clamp = op.operand("b"), op.operand("c")
        return isinstance(source, Immediate) and isinstance(clamp, Immediate) and clamp.value & 0x1F1F == WHOLE_CLAMP

    def _by_place(self, op: Op, known: int, alone: bool) -> bool:
        """Whether a result goes by where the lane is."""
        if op.tokens[0] == "match":
            return op.has("any")
        members = op.operand("membermask")
        if op.tokens[0] == "vote" and op.has("ballot"):
            return isinstance(members, Register) and bool(known >> members.index & 1)
        return op.tokens[0] == "shfl" and op.operand("p") is not None and (alone or not (op.has("idx") and self._from_one(op)))

    def _of_warp(self, op: Op) -> bool:
        """Whether the instruction makes of the thread's number what its whole warp has: the warp's number, or on which side of a warp's
        border it lies.
        """
        source, other = op.operand("a"), op.operand("b")
        if not isinstance(other, Immediate) or not isinstance(source, Register | SpecialRegister) or not self._is_thread(op, source, 4):
            return False
        match op.tokens[0]:
            case "shr":
                return other.value >= LANE_BITS
            case "and":
                return not other.value & LANES
            case "setp":
                below = op.has("lt") or op.has("ge") or op.has("lo") or op.has("hs")
                upto = op.has("le") or op.has("gt") or op.has("ls") or op.has("hi")
                return len(op.tokens) == 3 and ((below and not other.value & LANES) or (upto and other.value & LANES == LANES))
        return False

    def _is_thread(self, op: Op, source: Register | SpecialRegister, depth: int) -> bool:
        """Whether it holds %tid.x, perhaps without some bits above those of the lane."""
        if isinstance(source, SpecialRegister):
            return source.name == "%tid.x"
        if op.routine.names[source.index] in [symbol.name for symbol in op.routine.parameters if symbol.region == "reg"]:
            return False
        writers = self.slices.writers(op.routine.name, source.index)
        return bool(writers) and depth > 0 and all(self._hands_on(o, depth) for o in writers)

    def _hands_on(self, op: Op, depth: int) -> bool:
        source, other = op.operand("sreg") or op.operand("a"), op.operand("b")
        if not isinstance(source, Register | SpecialRegister):
            return False
        whole = op.tokens[0] == "mov" or (op.tokens[0] == "and" and isinstance(other, Immediate) and other.value & LANES == LANES)
        return whole and self._is_thread(op, source, depth - 1)

    def _keeps_locally(self) -> bool:
        """Whether a thread may have something in memory of its own, apart from parameters."""
        return any(op.tokens[0] == "st" and (nature.private or op.index in self.slices.to_local) and self.slices.parameter(op) is None
                   for op in self.program.ops for nature in (self.slices.nature(op),))
