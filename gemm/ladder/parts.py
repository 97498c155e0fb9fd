"""Parts that several steps share: the clocks of a profiled kernel, and the direct store of a wgmma fragment."""

from __future__ import annotations

from typing import Any

from ptxkit import Ptr, Reg, Vec, clock64, if_
from ptxkit.ptx import add, cvt, mov, st
from ptxkit.types import b64, bf16, pred, u32, u64

PHASES = ("load", "mma", "store")
MARKS = len(PHASES) + 1     # 64-bit words per CTA in the buffer of marks: the clocks of each phase, then the number of tiles


class Clocks:
    """Clocks of load, mma and store, summed over a CTA's tiles. Without `PROFILE` no method emits anything.

    `lap(phase)` adds the clocks since the previous lap to a phase. `load` is the time that the mma threads wait for operands.
    """

    def __init__(self, PROFILE: bool) -> None:
        self.enabled = PROFILE
        if PROFILE:
            self.last: Reg[u64] = mov.u64(clock64)
            self.sums: list[Reg[u64]] = [mov.u64(0) for _ in PHASES]
            self.tiles: Reg[u64] = mov.u64(0)

    def lap(self, phase: str) -> None:
        """Add the clocks since the previous lap to this phase. A store ends a tile."""
        if self.enabled:
            now = mov.u64(clock64)
            total = self.sums[PHASES.index(phase)]
            add.u64(total, total, now - self.last)
            mov.u64(self.last, now)
            if phase == "store":
                add.u64(self.tiles, self.tiles, 1)

    def write(self, marks: Ptr[b64], cta: Reg[u32], writer: Reg[pred]) -> None:
        """Write this CTA's sums, in the thread where `writer` holds."""
        if self.enabled:
            with if_(writer):
                place = marks.at(cta * MARKS)
                for i, value in enumerate((*self.sums, self.tiles)):
                    st.global_.b64(place + i, value)


def store_fragment(acc: Vec[Any, Any], d: Ptr[bf16], row: Reg[u32], column: Reg[u32], n: Reg[u32], lane: Reg[u32]) -> None:
    """Store a warpgroup's m64 fragment at (row, column) of D, in the order of its registers.

    For every 8 columns a thread holds columns 2 * (lane % 4) and the next one, of rows r and r + 8 with r = 16 * warp + lane / 4. Each
    store of a warp writes 16 bytes of eight rows.
    """
    first = row + (lane >> 5) * 16 + ((lane & 31) >> 2)
    upper = d.at(first * n + column + (lane & 3) * 2)
    lower = upper.at(n * 8)
    for i in range(0, len(acc), 4):
        st.global_.b32(upper + 2 * i, cvt.rn.bf16x2.f32(acc[i + 1], acc[i]))
        st.global_.b32(lower + 2 * i, cvt.rn.bf16x2.f32(acc[i + 3], acc[i + 2]))
