"""The control bits of machine code since sm_70: what the assembler tells the warp scheduler about each instruction.

An instruction has 16 bytes. Of its upper 8 bytes, bits 41 to 44 say how many cycles the warp waits before it issues the next instruction,
bit 45 that the scheduler should stay with the warp, bits 46 to 48 which of six scoreboards is released when the result is written, bits 49
to 51 which one is released when the operands are read (7: none), bits 52 to 57 for which scoreboards the instruction itself waits, and bits
58 to 61 which operands stay in the reuse cache.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .listing import MachineLine

SIZE = 16
"""Bytes of an instruction."""
SCOREBOARDS = 6
NONE = 7
_BY_TABLE = re.compile(r"(?:@!?U?P\w+ )?(?:BRX|BRXU|JMX|JMXU)\b")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_LEAVES = re.compile(r"(?:@!?U?P\w+ )?(?:BRA|BRX|BRXU|JMP|JMX|JMXU|RET|EXIT|CALL|BREAK|BSYNC|WARPSYNC|KILL)\b")


@dataclass(frozen=True, slots=True)
class Control:
    """The bits of one instruction. `stall` is in cycles; a scoreboard is 0 to 5, None for none."""

    stall: int
    yields: bool
    writes: int | None
    reads: int | None
    waits: tuple[int, ...]
    reuse: int

    @property
    def words(self) -> str:
        """What the bits say, as a sentence."""
        found = [f"the next instruction issues {self.stall} cycle{'s' * (self.stall != 1)} later at the earliest"]
        if self.yields:
            found.append("another warp may come first")
        if self.waits:
            found.append(f"waits for scoreboard{'s' * (len(self.waits) > 1)} {', '.join(map(str, self.waits))}")
        if self.writes is not None:
            found.append(f"its result releases scoreboard {self.writes}")
        if self.reads is not None:
            found.append(f"the read of its operands releases scoreboard {self.reads}")
        return "; ".join(found)


@dataclass(frozen=True, slots=True)
class Issue:
    """When an instruction issues: its control bits, and its slot, which counts cycles from the first instruction of its basic block.

    The slot is a lower bound. It adds up the stalls and leaves out what scoreboards, barriers and other warps cost.
    """

    control: Control
    slot: int


def decode(upper: int) -> Control:
    """The control bits in the upper 8 bytes of an instruction."""
    writes, reads, waits = upper >> 46 & 7, upper >> 49 & 7, upper >> 52 & 0x3F
    return Control(upper >> 41 & 15, not upper >> 45 & 1, None if writes == NONE else writes, None if reads == NONE else reads,
                   tuple(board for board in range(SCOREBOARDS) if waits >> board & 1), upper >> 58 & 15)


def issues(machine: Sequence[MachineLine], texts: Mapping[str, bytes]) -> tuple[Issue | None, ...]:
    """For each line its bits and slot, None for a label. `texts` is the machine code by section."""
    return tuple(_issues(machine, texts))


def _issues(machine: Sequence[MachineLine], texts: Mapping[str, bytes]) -> Iterator[Issue | None]:
    entered = {(line.function, label) for line in machine for label in _TARGET.findall(line.text)}
    by_table = {line.function for line in machine if _BY_TABLE.match(line.text)}
    slot, function = 0, ""
    for line in machine:
        code = texts.get(f".text.{line.function}", b"")
        begins = line.offset is None and (line.function in by_table or (line.function, line.text.rstrip(":")) in entered)
        if begins or line.function != function:
            slot, function = 0, line.function
        if line.offset is None or line.offset + SIZE > len(code):
            yield None
            continue
        control = decode(struct.unpack_from("<Q", code, line.offset + 8)[0])
        yield Issue(control, slot)
        slot = 0 if _LEAVES.match(line.text) else slot + max(control.stall, 1)


__all__ = ["Control", "Issue", "decode", "issues"]
