"""Registers that some path reads before it writes them: what a checker must follow while a program runs.

Most programs have none but the accumulators of wgmma, which the first wgmma may overwrite (scale-d 0). Values that are computed from
such a register are followed too, so that one that is copied, or computed ahead and then not chosen, is no mistake until it matters.
So are the results of instructions that gave some lane an undefined value in a run: the run begins again when one does so first.
"""

from __future__ import annotations

from collections.abc import Iterable

from .operand import Immediate, Register
from .program import Op, Program
from .semantics import find


def bits(registers: Iterable[int]) -> int:
    """Registers as a bit set; -1 stands for none."""
    found = 0
    for index in registers:
        if index >= 0:
            found |= 1 << index
    return found


def carries(op: Op) -> bool:
    """Whether what an instruction reads only matters through what it writes."""
    if op.signature.form.effects.control:
        return False
    known = find(op)
    return op.tokens[0] in ("shfl", "cvta") or (known is not None and known.kind == "pure")


def unwritten(program: Program) -> dict[str, int]:
    """Per routine the registers that may be read before anything has written them, as a bit set."""
    found = {}
    for routine in program.routines.values():
        given = bits(routine.names.index(symbol.name) for symbol in routine.parameters if symbol.region == "reg")
        found[routine.name] = program.blocks[routine.entry].live & ~given if routine.widths else 0
    return found


def divides(op: Op) -> bool:
    """Whether the result is undefined where the divisor is 0: it is, or only the run knows."""
    if op.tokens[0] not in ("div", "rem") or op.bindings["type"][0] not in "us":
        return False
    divisor = op.operand("b")
    return isinstance(divisor, Register) or (isinstance(divisor, Immediate) and divisor.value == 0)


def followed(program: Program) -> frozenset[int]:
    """The instructions (by index) that name a register of `unwritten`, of `program.undefined`, one computed from it, or one of a wgmma."""
    chosen = unwritten(program)
    ops: dict[str, list[tuple[Op, int, int]]] = {routine.name: [] for routine in program.routines.values()}
    for op in program.ops:
        reads, writes = bits(op.reads()), bits(op.writes())
        ops[op.routine.name].append((op, reads, writes))
        if op.index in program.undefined:
            chosen[op.routine.name] |= writes
        if op.tokens[:2] == ["wgmma", "mma_async"]:
            chosen[op.routine.name] |= bits(index for name in ("d", "a", "sp_meta") if op.operand(name) is not None
                                            for index in op.registers(name))
    found: set[int] = set()
    for name, listed in ops.items():
        known, before = chosen[name], -1
        while known != before:
            before = known
            for op, reads, writes in listed:
                if reads & known and carries(op):
                    known |= writes
        found.update(op.index for op, reads, writes in listed if (reads | writes) & known or divides(op))
    return frozenset(found)
