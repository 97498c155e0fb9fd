"""Registers that hold nothing: per warp and activation, which lanes of a register have not been written.

Such a value may be copied, computed with and dropped: compilers compute ahead and choose later. It is a mistake where it decides
something: an address, a branch or guard, what is stored outside local memory, an operand of mma, atomics, barriers and copies.
So is a value that PTX leaves undefined: what a shuffle reads from a lane that does not take part, a quotient by zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..definite import bits, carries, divides, unwritten
from ..errors import Again
from ..operand import Address, Indexed, Register
from ..values import FULL, mask_of
from .order import OrderRules

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..program import Op

MIXING = {"prmt", "bfi", "lop3", "and", "or", "shf"}
"""Instructions whose result has bits of one source or another: it holds something when one of them does."""
LOCAL = ("local", "param", "param::func", "param::entry")


class Unwritten:
    """`lanes` per register that have not been written, and the registers for which there are any as a bit set. `why`: of registers whose
    value is undefined although written, where it comes from.
    """

    __slots__ = ("any", "lanes", "why")

    def __init__(self, registers: int) -> None:
        self.any = registers
        self.why: dict[int, str] = {}
        self.lanes = {i: FULL for i in range(registers.bit_length()) if registers >> i & 1}

    def set(self, register: int, mask: int, lanes: int) -> None:
        """After a write by `mask`: `lanes` of it hold nothing."""
        left = self.lanes.get(register, 0) & ~mask | lanes & mask
        self.lanes[register] = left
        if left:
            self.any |= 1 << register
        else:
            self.any &= ~(1 << register)

    def wrote(self, registers: int, mask: int) -> None:
        left = registers & self.any
        while left:
            lowest = left & -left
            self.set(lowest.bit_length() - 1, mask, 0)
            left ^= lowest


class Use:
    """What an instruction does with registers: `reads` that decide something, `through` that only reach what it writes."""

    __slots__ = ("divides", "divisor", "mixing", "named", "reads", "returned", "same", "shuffles", "through", "writes")

    def __init__(self, op: Op) -> None:
        reads, writes = op.reads(), op.writes()
        self.named = bits(reads | writes)
        self.writes = tuple(writes)
        results = {symbol.name for symbol in op.routine.returns if symbol.region == "reg"}
        self.returned = tuple(register for register in writes if name_of(op, register) in results)
        guard = {op.guard.index} if op.guard else set()
        opcode = op.tokens[0]
        decides = set(guard)
        through: list[int] = []
        for parameter, operand in op.parameters():
            if operand is None or (parameter.operand.access == "w" and not isinstance(operand, Address | Indexed)):
                continue
            if carries(op):
                through += operand.registers()
            elif opcode == "st" and parameter.name != "a" and not isinstance(operand, Address | Indexed) and _private(op):
                continue
            elif opcode != "call" or isinstance(operand, Register):
                decides.update(operand.registers())
        self.reads = tuple(decides)
        self.through = tuple(through)
        self.mixing = opcode in MIXING or (opcode == "mov" and len(through) > 1)
        self.shuffles = opcode == "shfl"
        self.divides = divides(op)
        divisor = op.operand("b") if self.divides else None
        self.divisor = divisor.index if isinstance(divisor, Register) else -1
        self.same = opcode in ("xor", "sub") and len(through) == 2 and through[0] == through[1]


def _private(op: Op) -> bool:
    return any(str(p.operand.space) in LOCAL for p, o in op.parameters() if isinstance(o, Address | Indexed))


class RegisterRules(OrderRules):
    def __init__(self) -> None:
        super().__init__()
        self._uses: dict[int, Use] = {}
        self._at_entry: dict[str, int] | None = None
        self.followed: frozenset[int] = frozenset()
        """The instructions (by index) of which `touch` is told."""

    def registers_of(self, f: Fragment, op: Op) -> Unwritten:
        """The state of the warp's registers in its activation."""
        known = self.lanes(f).warp.registers
        found: Unwritten | None = known.get(f.stack)
        if found is None:
            if self._at_entry is None:
                self._at_entry = unwritten(self.machine.program)
            found = known[f.stack] = Unwritten(self._at_entry[op.routine.name])
        return found

    def follow(self, f: Fragment, op: Op) -> None:
        """Before an instruction that names registers which may hold nothing."""
        use = self._uses.get(op.index)
        if use is None:
            use = self._uses[op.index] = Use(op)
        state = self.registers_of(f, op)
        if not use.named & state.any:
            if use.divides:
                self._quotient(f, op, use, state, f.mask)
            return
        mask = f.mask
        if op.guard is not None:
            self._decides(f, op, state, (op.guard.index,), mask)
            chosen = mask_of(f.R[op.guard.index])
            mask &= ~chosen if op.negated else chosen
            if not mask:
                return
        self._decides(f, op, state, use.reads, mask)
        if use.shuffles and self.follows(op):
            return
        lanes = self._through(f, op, use, state, mask)
        why = next((state.why[register] for register in use.through if register in state.why), "") if lanes and state.why else ""
        for register in use.writes:
            self._holds(state, register, mask, lanes, why)
        if lanes and use.returned:
            self._decides(f, op, state, use.returned, mask)
        if use.divides:
            self._quotient(f, op, use, state, mask)

    def _holds(self, state: Unwritten, register: int, mask: int, lanes: int, why: str) -> None:
        state.set(register, mask, lanes)
        if lanes and why:
            state.why[register] = why
        elif register in state.why and not state.lanes[register]:
            del state.why[register]

    def _undefined(self, op: Op) -> None:
        """The result of an instruction is undefined for some lanes: from the next run on, if not in this one, its values are followed."""
        undefined = self.machine.program.undefined
        if op.index not in undefined:
            undefined.add(op.index)
            raise Again

    def _quotient(self, f: Fragment, op: Op, use: Use, state: Unwritten, mask: int) -> None:
        """A quotient by zero is any number."""
        divisor = f.R[use.divisor] if use.divisor >= 0 else 0
        zero = mask & (mask_of(divisor == 0) if type(divisor) is not int else 0 if divisor else FULL)
        if op.guard is not None and zero:
            chosen = mask_of(f.R[op.guard.index])
            zero &= ~chosen if op.negated else chosen
        if zero:
            self._undefined(op)
            for register in use.writes:
                self._holds(state, register, zero, zero, f"{self.site(op.index)} has divided by zero")

    def follows(self, op: Op) -> bool:
        return op.index in self.followed

    def shuffled(self, parts: Sequence[tuple[Fragment, Op, int]], source: Any, absent: int) -> None:
        """A lane gets nothing that is defined where its source takes no part or holds nothing, or where it does not know its source."""
        if absent:
            for _, op, lanes in parts:
                if absent & lanes:
                    self._undefined(op)
        nothing = 0
        why = ""
        for f, op, lanes in parts:
            state = self.registers_of(f, op)
            for register in op.registers("a"):
                nothing |= state.lanes.get(register, 0) & lanes
                why = why or state.why.get(register, "")
        lost = absent | mask_of((np.uint32(nothing) >> source.astype(np.uint32) & 1).astype(bool))
        for f, op, lanes in parts:
            state = self.registers_of(f, op)
            unknown = 0
            for name in ("b", "c", "membermask"):
                for register in op.registers(name):
                    unknown |= state.lanes.get(register, 0)
            those = (lost | unknown) & lanes
            because = f"{self.site(op.index)} has read it from a lane that does not take part" if those & absent else why
            for register in op.registers("d"):
                if register >= 0:
                    self._holds(state, register, lanes, those, because)
            for register in op.registers("p") if op.operand("p") is not None else ():
                if register >= 0:
                    self._holds(state, register, lanes, unknown & lanes, why)

    def _through(self, f: Fragment, op: Op, use: Use, state: Unwritten, mask: int) -> int:
        """The lanes in which the result holds nothing."""
        given = [state.lanes.get(register, 0) & mask for register in use.through]
        if not any(given) or use.same:
            return 0
        if use.mixing:
            found = mask
            for lanes in given:
                found &= lanes
            return found
        if op.tokens[0] == "selp":
            return self._selected(f, op, state, mask)
        found = 0
        for lanes in given:
            found |= lanes
        return found

    def _selected(self, f: Fragment, op: Op, state: Unwritten, mask: int) -> int:
        *sources, predicate = (operand for parameter, operand in op.parameters() if parameter.operand.access == "r")
        a, b = (state.lanes.get(s.index, 0) & mask if isinstance(s, Register) else 0 for s in sources)
        if not isinstance(predicate, Register):
            return a | b
        chosen = mask_of(f.R[predicate.index])
        return a & chosen | b & ~chosen | state.lanes.get(predicate.index, 0) & mask

    def _decides(self, f: Fragment, op: Op, state: Unwritten, registers: tuple[int, ...], mask: int) -> None:
        for register in registers:
            lanes = state.lanes.get(register, 0) & mask
            if lanes:
                lane = (lanes & -lanes).bit_length() - 1
                why = state.why.pop(register, "")
                because = f"is undefined: {why}" if why else "holds nothing: the lane has not written it, or computed it from a " \
                    "register that it has not written"
                self.report("undefined-value" if why else "register-uninitialised", op, f"`{op.opcode}` of {f.warp!r} lane {lane} uses "
                            f"`{name_of(op, register)}`, which {because}", other=register)
                state.set(register, lanes, 0)


def name_of(op: Op, register: int) -> str:
    names = op.routine.names
    return names[register] if register < len(names) else f"register {register}"
