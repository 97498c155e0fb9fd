"""A from registers: a warpgroup loads its rows of a stage with ldmatrix, and wgmma reads only B from shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ptxkit import Reg, Vec, for_range, if_, laneid, smem
from ptxkit.idioms import wait
from ptxkit.ptx import ldmatrix, mov, wgmma, xor
from ptxkit.smem import Tile, TileView
from ptxkit.types import pred, u32

from .atoms import ROWS
from .mainloop import Consumer, Turn
from .tiled import TiledMma

SETS = 2                    # of fragments: while wgmma reads one, the next stage is loaded into the other
WORDS = 4                   # registers a thread of one fragment, 64 x 16
DEPTH = 16                  # elements of a fragment along K


def fragment_registers(slabs: int, depth: int) -> int:
    """32-bit registers a consumer thread, of stages that are `depth` deep."""
    return SETS * slabs * (depth // DEPTH) * WORDS


Fragments = list[list[Vec[Any, Any]]]
"""By slab and 16 of depth."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Where this lane's share of a warp's 16 rows lies in a K-major tile of 16-bit elements: addresses for ldmatrix.

    Lane l has row l % 16 and the 16 bytes number l / 16 of 32; the swizzle XORs that number with the row's place in its pattern. The
    lines of a warp begin at multiples of 8, so the place is l % 8, and stepping along a span is an XOR by a constant.
    """

    tile: Tile[Any]
    first: Reg[u32] | int                       # of the warpgroup
    thread: Reg[u32]
    _lane: list[Reg[u32]] = field(default_factory=list)

    def __post_init__(self) -> None:
        layout = self.tile.layout
        lane = mov.u32(laneid)
        row = (self.thread >> 5) * 16 + (lane & 15)
        row = row if isinstance(self.first, int) and self.first == 0 else row + self.first
        at = row * layout.span_bytes + (((lane >> 4) ^ (lane & 7)) << 4)
        self._lane.extend(at if not k else xor.b32(at, k << 5) for k in range(layout.span // DEPTH))

    def load(self, fragments: Fragments, stage: Reg[u32]) -> None:
        """The warpgroup's rows of a stage, by all of its threads."""
        layout, start = self.tile.layout, self.tile[stage].register()
        per_span = len(self._lane)
        places = [start + at for at in self._lane]
        for slab, line in enumerate(fragments):
            for k, fragment in enumerate(line):
                offset = slab * ROWS * layout.span_bytes + k // per_span * layout.span_stride
                ldmatrix.sync.aligned.m8n8.x4.shared__cta.b16(fragment, smem.SharedAddress(offset, places[k % per_span]))


@dataclass(frozen=True, slots=True)
class RegisterConsumer(Consumer):
    """The same warpgroup with A in registers.

    The registers of a stage are read until its products are done, so the next stage has others; and ptxas wants what is under way
    from one round of a loop to the next to be the same instruction each time, so a round is one stage of each set.
    """

    rows: Rows

    def multiply(self, acc: list[Vec[Any, Any]], stages: Reg[u32], turn: Turn | None = None) -> None:
        """acc = A B over `stages` stages, one wgmma group in flight while the next one's A is loaded."""
        here, previous = self.position, mov.u32(0)
        depth = self.a.layout.columns // DEPTH
        sets: list[Fragments] = [[[Vec([mov.b32(0) for _ in range(WORDS)]) for _ in range(depth)] for _ in acc] for _ in range(SETS)]

        def stage(number: int, accumulate: Reg[pred] | None = None) -> None:
            wait(self.pipeline.full[here.stage], here.parity)
            self.rows.load(sets[number], here.stage)
            wgmma.fence.sync.aligned()
            issue(self.mma, acc, sets[number], self.b[here.stage], True if accumulate is None else accumulate)
            wgmma.commit_group.sync.aligned()
            self._have_read()
            wgmma.wait_group.sync.aligned(1)
            self._release(previous, self.releases if accumulate is None else self.releases & accumulate)
            mov.u32(previous, here.stage)
            here.advance()

        if turn is not None:
            turn.take()
        rounds = stages // SETS
        with for_range(rounds) as i:
            stage(0, i != 0)
            stage(1)
        with if_((stages & 1) != 0):
            stage(0, rounds != 0)
        if turn is not None:
            turn.pass_on()
        wgmma.wait_group.sync.aligned(0)
        self._release(previous, self.releases)


def issue(mma: TiledMma, acc: list[Vec[Any, Any]], fragments: Fragments, b: TileView[Any], accumulate: Reg[pred] | bool) -> None:
    """Multiply the whole depth of the stage; without `accumulate` the first instruction of a slab overwrites."""
    opcode = mma.atom.opcode()
    for sums, line in zip(acc, fragments, strict=True):
        for k, fragment in enumerate(line):
            opcode(sums, fragment, b.desc(k * DEPTH), accumulate if k == 0 else True)


__all__ = ["RegisterConsumer", "Rows", "fragment_registers"]
