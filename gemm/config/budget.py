"""The shared memory and registers that a configuration needs, for dense and grouped products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import Scalar, f32

from ..collective.atoms import ROWS, WARPGROUP
from ..collective.epilogue import BUFFERS, span_bytes, transposed_rows
from ..collective.mainloop import REGISTERS
from ..collective.mainloop_promoted import part_shape
from ..collective.scale_factors import bulk_count, flat_floats, scale_count
from ..collective.thread_scales import BLOCK
from ..collective.vector_scales import When, held
from .parts import (
    MAX_STAGES,
    AsyncCopies,
    BlockScaled,
    Cooperative,
    ElementCopies,
    OperandCopies,
    Pingpong,
    Promoted,
    Schedule,
    Share,
    ShiftedCopies,
    Sums,
    TensorCopies,
    TensorCoreSums,
    ThreadScaled,
    Tile,
    shares_columns,
)

STAGE_BYTES = 128           # bytes of K in the narrowest stage
SPAN = 64                   # 16-bit elements of a copied line of an operand that is not contiguous along K
BARRIER_BYTES = 16          # the full and the empty mbarrier of a stage
SPARE_REGISTERS = {1: 40, 2: 40, 3: 32}     # registers of an mma thread besides its accumulators, by the number of mma warpgroups
MAX_FRAGMENT_OF_512 = 96    # accumulators of one wgmma with 512 threads: ptxas limits it to the 128 registers at entry, despite setmaxnreg
COPIED_WORD = 4             # bytes that a thread stores at once, or copies by one cp.async, where elements are copied one by one
MAX_REGISTERS = 255         # of a thread with one mma warpgroup, which needs no setmaxnreg


def warpgroups_of(schedule: Schedule) -> int:
    """The number of mma warpgroups."""
    return 2 if isinstance(schedule, Pingpong) else schedule.warpgroups


def sums_of(schedule: Schedule) -> Sums:
    """Where the sums along K are accumulated."""
    return schedule.sums if isinstance(schedule, Cooperative) else TensorCoreSums()


def promoted(sums: Sums) -> bool:
    """Whether sums are promoted after every 128 bytes of K."""
    return isinstance(sums, Promoted | ThreadScaled)


def m64_blocks(tile: Tile, schedule: Schedule) -> int:
    """The m64 blocks of a tile that one mma warpgroup multiplies."""
    return tile.BM // ROWS // (1 if isinstance(schedule, Pingpong) or shares_columns(schedule) else schedule.warpgroups)


def column_unit(b_major: str) -> int:
    """What the columns of each of two warpgroups that share them are a multiple of."""
    return 8 if b_major == "k" else SPAN


def own_columns(tile: Tile, schedule: Schedule) -> int:
    """The columns of a tile that one mma warpgroup multiplies."""
    return tile.BN // warpgroups_of(schedule) if shares_columns(schedule) else tile.BN


def threads(schedule: Schedule) -> int:
    """The threads of a CTA: the producer warpgroup and the mma warpgroups."""
    return WARPGROUP * (1 + warpgroups_of(schedule))


def copied_lines(copies: OperandCopies) -> int:
    """The lines of a tile that the producer warpgroup copies at a time; 1 with tensor copies."""
    if isinstance(copies, TensorCopies):
        return 1
    if isinstance(copies, ElementCopies):
        return 32 if copies.across else 4
    if isinstance(copies, ShiftedCopies):
        return 16
    return copies.bytes


def copying_arrivals(*copies: OperandCopies, size: int) -> int:
    """The arrivals on full[stage] besides arrive.expect_tx: every thread's after its cp.async, every warp's after its stores. An element
    of `size` 4 is copied by cp.async too."""
    threads = [one for one in copies if not isinstance(one, TensorCopies)]
    shifted = any(isinstance(one, ShiftedCopies) for one in threads)
    stores = shifted or any(isinstance(one, ElementCopies) and size != COPIED_WORD for one in threads)
    asynchronous = not shifted and any(isinstance(one, AsyncCopies) or size == COPIED_WORD for one in threads)
    return WARPGROUP * asynchronous + WARPGROUP // 32 * stores


def raw_bytes(copies: OperandCopies, tile_bytes: int) -> int:
    """The bytes in which threads keep what they have copied of an operand, and not yet shifted into its tile of so many bytes."""
    return copies.ahead * (tile_bytes // STAGE_BYTES) * (STAGE_BYTES + 16) if isinstance(copies, ShiftedCopies) else 0


def mma_registers(schedule: Schedule, copying: bool = False) -> int:
    """The registers of an mma thread. Where the producer warpgroup is `copying`, all threads keep what they have at entry."""
    count = warpgroups_of(schedule)
    if copying and count in REGISTERS:
        return min(MAX_REGISTERS, (1 << 16) // threads(schedule) // 8 * 8)
    return REGISTERS[count][1] if count in REGISTERS else MAX_REGISTERS


def accumulator_registers(tile: Tile, schedule: Schedule, accumulator: type[Scalar] = f32) -> int:
    """The 32-bit registers of an mma thread for its sums."""
    sums, blocks = sums_of(schedule), m64_blocks(tile, schedule)
    registers = blocks * own_columns(tile, schedule) // (2 if accumulator is f32 else 4)
    if not promoted(sums):
        return registers
    if isinstance(sums, Promoted) and sums.how == "overlap":
        return 3 * registers
    rows, columns = part_shape(blocks, tile.BN)
    return registers + rows * columns // 2


def promoted_by_halves(tile: Tile, schedule: Schedule) -> bool:
    """Whether the columns of an m64 block are promoted in two halves."""
    sums = sums_of(schedule)
    overlaps = isinstance(sums, Promoted) and sums.how == "overlap"
    return promoted(sums) and not overlaps and part_shape(m64_blocks(tile, schedule), tile.BN)[1] < tile.BN


def register_problem(tile: Tile, schedule: Schedule, accumulator: type[Scalar] = f32, copying: bool = False) -> str | None:
    """The reason if an mma thread cannot hold its sums, else None."""
    count = warpgroups_of(schedule)
    if count == 3 and tile.BN * accumulator.bits // 64 > MAX_FRAGMENT_OF_512:
        return (f"the sums of {tile.BN} columns take more registers than a thread of 512 has at entry: take BN=192, or two warpgroups with "
                "share=\"columns\"")
    has, needs = mma_registers(schedule, copying), accumulator_registers(tile, schedule, accumulator)
    if needs > has - SPARE_REGISTERS[count]:
        return (f"the sums of {tile.BM}x{tile.BN} take {needs} registers of an mma thread, which has {has} and can keep "
                f"{has - SPARE_REGISTERS[count]} for them: take a smaller tile or more warpgroups")
    return None


def when_scales_are_read(tile: Tile, schedule: Schedule, accumulator: type[Scalar] = f32, *, copying: bool = False, split: bool = False,
                         parts: int = 1) -> When:
    """When the scales of a tile's rows and columns are read: before its products where an mma thread has registers for both. `split`: CTAs
    share the K of a tile. `parts`: the projections of which its columns have features."""
    if split:
        return "parts"
    needs = accumulator_registers(tile, schedule, accumulator) + held(m64_blocks(tile, schedule), own_columns(tile, schedule), parts)
    return "before" if needs <= mma_registers(schedule, copying) - SPARE_REGISTERS[warpgroups_of(schedule)] else "after"


def spanned(tile: Tile, b_major: str) -> Tile:
    """What a stage holds of a tile's operands: of a B that is contiguous along N whole spans of 64 columns, as copies bring it."""
    return tile if b_major == "k" else replace(tile, BN=-(-tile.BN // SPAN) * SPAN)


def stage_bytes(tile: Tile, a: type[Scalar], b: type[Scalar]) -> int:
    """The bytes of one stage of A and B."""
    return (tile.BM * a.bits + tile.BN * b.bits) // 8 * tile.BK


def ring_bytes(stages: int, tile: Tile, sums: Sums, a: type[Scalar], b: type[Scalar]) -> int:
    """The bytes of the stages, their mbarriers and their scale factors."""
    bytes = stages * (stage_bytes(tile, a, b) + BARRIER_BYTES)
    if isinstance(sums, BlockScaled):
        bytes += -(-stages * tile.BM // 4) * 16 if sums.load == "warp" else stages * -(-tile.BM // 32) * 128
        bytes += stages * 4 * bulk_count(tile.BN) if sums.load == "bulk" else stages * 4 * flat_floats(tile.BN) if sums.load == "lines" \
            else -(-stages * scale_count(tile.BN, BLOCK) // 2) * 8
    return bytes


def deepest_ring(tile: Tile, a: type[Scalar], b: type[Scalar], fixed: int, bytes: Callable[[int], int]) -> int:
    """The most stages that fit into shared memory; 0 if none do. `bytes(stages)` is a CTA's total, of which `fixed` are not stages."""
    most = min(MAX_STAGES, max(0, SHARED_LIMIT - fixed) // (stage_bytes(tile, a, b) + BARRIER_BYTES))
    return next((stages for stages in range(most, 0, -1) if bytes(stages) <= SHARED_LIMIT), 0)


def staging_bytes(buffers: int, BN: int, out: type[Scalar], schedule: Schedule, transposed: bool = False) -> int:
    """The bytes of the staging buffers of all mma warpgroups, with `buffers` each."""
    each = transposed_rows(BN) * out.bits // 8 if transposed else span_bytes(BN, out)
    return buffers * warpgroups_of(schedule) * ROWS * each


def store_boxes(tile: Tile, columns: int, out: type[Scalar], schedule: Schedule, transposed: bool = False) -> int:
    """The boxes of a tile that one warpgroup stores."""
    each = transposed_rows(columns) if transposed else span_bytes(columns, out) * 8 // out.bits
    return m64_blocks(tile, schedule) * columns // each


def buffers_problem(buffers: int, schedule: Schedule) -> str | None:
    """The reason if a warpgroup cannot work with this number of staging buffers, else None."""
    if buffers < 1 or (isinstance(schedule, Pingpong) and buffers < BUFFERS):
        return (f"a warpgroup has {BUFFERS} staging buffers or more, or 1 where warpgroups share a tile, not {buffers}: one is written "
                "while a copy reads another")
    return None


def default_warpgroups(BM: int, share: Share = "rows") -> Literal[1, 2, 3]:
    """One mma warpgroup for each m64 block, but two for four blocks and where they share columns."""
    if share == "columns":
        return 2
    return 2 if BM == 4 * ROWS else 1 if BM == ROWS else 3 if BM >= 3 * ROWS else 2


__all__ = ["BARRIER_BYTES", "SPAN", "STAGE_BYTES", "accumulator_registers", "buffers_problem", "column_unit", "copied_lines",
           "copying_arrivals", "deepest_ring", "default_warpgroups", "m64_blocks", "mma_registers", "own_columns", "promoted",
           "promoted_by_halves", "raw_bytes", "register_problem", "ring_bytes", "spanned", "stage_bytes", "staging_bytes", "store_boxes",
           "sums_of", "threads", "warpgroups_of", "when_scales_are_read"]
