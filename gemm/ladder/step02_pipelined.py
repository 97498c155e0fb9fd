"""Step 2: load the next tile and read the next registers while the current ones are multiplied."""

from __future__ import annotations

from ptxkit import Ptr, Reg, ctaid, for_range, if_, kernel, smem, span, tid
from ptxkit.ptx import bar, cp, mov
from ptxkit.types import b32, bf16, pred, u32

from .rung import Rung
from .thread_tile import BK, BM, BN, CHUNK, ROW, THREADS, TILE, ThreadTile

STAGES = 2
CHUNKS = BK // CHUNK


@kernel(block=THREADS)
def pipelined(a: Ptr[bf16], b: Ptr[bf16], d: Ptr[bf16], m: Reg[u32], n: Reg[u32], k: Reg[u32]) -> None:
    """Two buffers in shared memory and two in registers. cp.async fills one while the other is read.

    Within a tile, chunk c is multiplied while the registers of chunk c + 1 are read. Before the last chunk, the next tile must have landed
    (wait_group 0) and all threads must have read the current tile (the barrier). Then the first registers of the next tile are read, and
    the current buffer is free for the tile after it.
    """
    a_tile, b_tile = ([smem.array(b32, TILE, name=f"{name}{stage}") for stage in range(STAGES)] for name in "AB")
    thread = mov.u32(tid.x)
    row, column = ctaid.y * BM, ctaid.x * BN
    line, half = thread >> 1, thread & 1
    a_from, b_from = a.at((row + line) * k + half * 8), b.at((column + line) * k + half * 8)
    place = line * ROW + half * 4
    steps = k // BK

    def load(step: Reg[u32] | int, stage: int, wanted: Reg[pred] | None = None) -> None:
        """This thread's copies as one group: 16 bytes of A and 16 of B, or none past the end."""
        for source, target in ((a_from, a_tile), (b_from, b_tile)):
            cp.async_.cg.shared__cta.global_(target[stage].at(place), source.at(step * BK), 16, pred=wanted)
        cp.async_.commit_group()

    tile = ThreadTile()
    with span("load"):
        for stage in range(STAGES):
            load(stage, stage)
        cp.async_.wait_group(STAGES - 1)
        bar.sync(0)
        first = tile.read(a_tile[0], b_tile[0], 0)          # chunk 0 of a tile is read at the end of the previous tile
    with for_range(steps, step=STAGES) as step:
        for stage in range(STAGES):                     # unrolled by Python, so each buffer has constant addresses
            with span("mma"):
                following = (stage + 1) % STAGES
                words = first
                for chunk in range(CHUNKS - 1):
                    prefetched = tile.read(a_tile[stage], b_tile[stage], chunk + 1)
                    tile.multiply(words)
                    words = prefetched
            with span("load"):
                cp.async_.wait_group(0)
                bar.sync(0)
                load(step + stage + STAGES, stage, step + stage + STAGES < steps)
            with span("mma"):
                with if_(step + stage + 1 < steps):
                    for register, value in zip(flat(first), flat(tile.read(a_tile[following], b_tile[following], 0)), strict=True):
                        mov.b32(register, value)
                tile.multiply(words)
    with span("store"):
        tile.store(d, row, column, n)


def flat(words: tuple[list[tuple[Reg[b32], Reg[b32]]], list[tuple[Reg[b32], Reg[b32]]]]) -> list[Reg[b32]]:
    return [word for side in words for pair in side for word in pair]


RUNG = Rung(2, pipelined, (BM, BN, STAGES * BK), "cp.async into two buffers of shared memory, and two of registers")
