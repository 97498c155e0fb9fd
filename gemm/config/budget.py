"""What a configuration takes of an SM: shared memory and registers. The same for dense and grouped products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import Scalar, f32

from ..collective.atoms import ROWS, WARPGROUP
from ..collective.epilogue import BUFFERS, span_bytes
from ..collective.mainloop import REGISTERS
from ..collective.mainloop_promoted import at_once
from ..collective.scale_factors import bulk_count, scale_count
from ..collective.thread_scales import BLOCK
from .parts import MAX_STAGES, BlockScaled, Cooperative, Pingpong, Promoted, Schedule, Sums, TensorCoreSums, ThreadScaled, Tile

STAGE_BYTES = 128           # of K in the narrowest stage
BARRIER_BYTES = 16          # a full and an empty mbarrier a stage
SPARE_REGISTERS = {1: 40, 2: 40, 3: 32}     # of an mma thread, next to its accumulators, by mma warpgroups
ONE_OF_THREE = 96           # ptxas holds one wgmma to the 128 registers that 512 threads have at entry, whatever setmaxnreg asks for
AT_ENTRY_ALONE = 255        # registers of a thread with one mma warpgroup, which needs no setmaxnreg


def warpgroups_of(schedule: Schedule) -> int:
    """The mma warpgroups."""
    return 2 if isinstance(schedule, Pingpong) else schedule.warpgroups


def sums_of(schedule: Schedule) -> Sums:
    """Where the sums along K are accumulated."""
    return schedule.sums if isinstance(schedule, Cooperative) else TensorCoreSums()


def promoted(sums: Sums) -> bool:
    """Whether sums leave the tensor cores every 128 bytes of K."""
    return isinstance(sums, Promoted | ThreadScaled)


def m64_blocks(tile: Tile, schedule: Schedule) -> int:
    """m64 blocks of the tile that one mma warpgroup multiplies."""
    return tile.BM // ROWS if isinstance(schedule, Pingpong) else tile.BM // ROWS // schedule.warpgroups


def threads(schedule: Schedule) -> int:
    """Threads of a CTA: the producer's warpgroup and the mma warpgroups."""
    return WARPGROUP * (1 + warpgroups_of(schedule))


def mma_registers(schedule: Schedule) -> int:
    """Registers that an mma thread has."""
    count = warpgroups_of(schedule)
    return REGISTERS[count][1] if count in REGISTERS else AT_ENTRY_ALONE


def accumulator_registers(tile: Tile, schedule: Schedule, accumulator: type[Scalar] = f32) -> int:
    """32-bit registers of an mma thread for its sums."""
    sums, blocks = sums_of(schedule), m64_blocks(tile, schedule)
    registers = blocks * tile.BN // (2 if accumulator is f32 else 4)
    if not promoted(sums):
        return registers
    if isinstance(sums, Promoted) and sums.how == "overlap":
        return 3 * registers
    rows, columns = at_once(blocks, tile.BN)
    return registers + rows * columns // 2


def promoted_by_halves(tile: Tile, schedule: Schedule) -> bool:
    """Whether the columns of an m64 block are promoted in two halves."""
    sums = sums_of(schedule)
    overlaps = isinstance(sums, Promoted) and sums.how == "overlap"
    return promoted(sums) and not overlaps and at_once(m64_blocks(tile, schedule), tile.BN)[1] < tile.BN


def register_problem(tile: Tile, schedule: Schedule, accumulator: type[Scalar] = f32) -> str | None:
    """A sentence when an mma thread cannot hold its sums."""
    count = warpgroups_of(schedule)
    if count == 3 and tile.BN * accumulator.bits // 64 > ONE_OF_THREE:
        return f"one wgmma of {tile.BN} columns takes more registers than a thread of 512 has at entry: take BN=192 or fewer warpgroups"
    has, needs = mma_registers(schedule), accumulator_registers(tile, schedule, accumulator)
    if needs > has - SPARE_REGISTERS[count]:
        return (f"the sums of {tile.BM}x{tile.BN} take {needs} registers of an mma thread, which has {has} and can keep "
                f"{has - SPARE_REGISTERS[count]} for them: take a smaller tile or more warpgroups")
    return None


def stage_bytes(tile: Tile, a: type[Scalar], b: type[Scalar]) -> int:
    """One stage of A and B."""
    return (tile.BM * a.bits + tile.BN * b.bits) // 8 * tile.BK


def ring_bytes(stages: int, tile: Tile, sums: Sums, a: type[Scalar], b: type[Scalar]) -> int:
    """The stages, their barriers, and the scale factors that come with them."""
    bytes = stages * (stage_bytes(tile, a, b) + BARRIER_BYTES)
    if isinstance(sums, BlockScaled):
        bytes += -(-stages * tile.BM // 4) * 16 if sums.load == "warp" else stages * -(-tile.BM // 32) * 128
        bytes += stages * 4 * bulk_count(tile.BN) if sums.load == "bulk" else -(-stages * scale_count(tile.BN, BLOCK) // 2) * 8
    return bytes


def deepest_ring(tile: Tile, a: type[Scalar], b: type[Scalar], fixed: int, bytes: Callable[[int], int]) -> int:
    """The most stages that fit next to `fixed` bytes, where `bytes` says what a CTA takes in all with so many; 0 if none do."""
    most = min(MAX_STAGES, max(0, SHARED_LIMIT - fixed) // (stage_bytes(tile, a, b) + BARRIER_BYTES))
    return next((stages for stages in range(most, 0, -1) if bytes(stages) <= SHARED_LIMIT), 0)


def staging_bytes(buffers: int, BN: int, out: type[Scalar], schedule: Schedule) -> int:
    """The staging buffers of all mma warpgroups, `buffers` each."""
    return buffers * warpgroups_of(schedule) * ROWS * span_bytes(BN, out)


def store_boxes(tile: Tile, columns: int, out: type[Scalar], schedule: Schedule) -> int:
    """Boxes of a tile that a warpgroup stores."""
    return m64_blocks(tile, schedule) * columns * out.bits // 8 // span_bytes(columns, out)


def buffers_problem(buffers: int, schedule: Schedule) -> str | None:
    """A sentence when a warpgroup cannot work with so many staging buffers."""
    if buffers < 1 or (isinstance(schedule, Pingpong) and buffers < BUFFERS):
        return (f"a warpgroup has {BUFFERS} staging buffers or more, or 1 where warpgroups share a tile, not {buffers}: one is written "
                "while a copy reads another")
    return None


def default_warpgroups(BM: int) -> Literal[1, 2, 3]:
    """One for each m64 block up to three, and two for four blocks."""
    return 2 if BM == 4 * ROWS else 1 if BM == ROWS else 3 if BM >= 3 * ROWS else 2


__all__ = ["BARRIER_BYTES", "STAGE_BYTES", "accumulator_registers", "buffers_problem", "deepest_ring", "default_warpgroups", "m64_blocks",
           "mma_registers", "promoted", "promoted_by_halves", "register_problem", "ring_bytes", "stage_bytes", "staging_bytes",
           "store_boxes", "sums_of", "threads", "warpgroups_of"]
