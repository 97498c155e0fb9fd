"""What the copies of threads have in common: where an operand lies, and what one instruction of a thread copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg
from ptxkit.ptx import max as max_
from ptxkit.types import b8, u32, u64

SPAN = 128                  # bytes of a line of a span: eight chunks of 16, which the swizzle permutes


@dataclass(frozen=True, slots=True)
class Source:
    """An operand as kernel parameters: its address, and its strides in elements from line to line of a tile, along a line, and from batch
    to batch."""

    pointer: Ptr[b8]
    line: Reg[u32]
    inner: Reg[u32]
    batch: Reg[u64]


@dataclass(frozen=True, slots=True)
class Step:
    """What one instruction of a thread copies: `lines` after the thread's own line, `inner` elements after its own place, to `offset` bytes
    after its own address, whose bits of `flip` are flipped: the swizzle of those lines and places."""

    lines: int
    inner: int
    offset: int
    flip: int


def left(extent: Reg[u32], at: Reg[u32]) -> Reg[u32]:
    """How many there are from `at` on, not below 0."""
    there: Any = max_.s32(extent - at, 0)
    return there  # type: ignore[no-any-return]


__all__ = ["SPAN", "Source", "Step", "left"]
