"""Block scales of fp8 operands through shared memory: those of a stage come with its operands, by the producer's copies where they can."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any

from ptxkit import MBarrier, Ptr, Reg, TensorMap, Vec, smem
from ptxkit.ptx import add, cp, ld, mov, mul
from ptxkit.ptx import min as min_
from ptxkit.smem import Shared, Tile
from ptxkit.types import f32, u32

from ..config.parts import BlockScaled, Sums
from ..config.parts import Tile as TileShape
from .atoms import tensor_copy
from .thread_scales import BLOCK, ScaleArray

WARP = 32
ALIGNED = 4                 # floats at which a copy may begin, and the fewest of a bulk copy
BOX = 256                   # lines of one tensor copy at most


@dataclass(slots=True)
class ScaleLines:
    """The scales of one operand: one for each `block` lines of its tile (1, or 128 of which a tile may straddle several).

    With a tensor map, over scales that are contiguous along the lines, the producer copies them as it does the operands; and in `bulk`,
    where those of a line's blocks are contiguous along K, four of them for every block that a tile may have columns of. Else a warp beside
    the producer copies them: on an H200 14 % of a large product for scales of rows, and 4 % for those of blocks (docs/performance.md).

    A copy begins at a multiple of 16 bytes. Where a tile may begin at any line, its lines come in `parts`, one or two copies that begin
    at the last multiple of ALIGNED lines: `shift` lines before their first one.
    """

    array: ScaleArray
    lines: int                                  # of the tile
    block: int
    ring: Shared[f32]                           # `count` a stage
    tile: Tile[f32] | None = None
    tensormap: TensorMap | None = None
    parts: int = 0                              # 0: tiles begin where a copy may
    bulk: bool = False
    halves: int = 1                             # 2: of the tile's lines, whose scales follow each other at the distance of a projection
    _at: list[Reg[u32]] = field(default_factory=list)
    _first: Any = 0
    _sources: list[Ptr[f32]] = field(default_factory=list)

    @classmethod
    def allocate(cls, array: ScaleArray, lines: int, block: int, stages: int, name: str, tensormap: TensorMap | None = None,
                 anywhere: bool = False, bulk: bool = False, halves: int = 1) -> ScaleLines:
        if bulk:
            ring = smem.array(f32, stages * bulk_count(lines, halves), align=16, name=name)
            return cls(array, lines, block, ring, bulk=True, halves=halves)
        if tensormap is None:
            return cls(array, lines, block, smem.array(f32, stages * scale_count(lines, block), align=16, name=name))
        parts = parts_of(lines) if anywhere else 0
        of_copy = lines // parts + ALIGNED if parts else lines
        tile = smem.tile(f32, (stages * max(1, parts), 1, of_copy), swizzle=0, name=name)
        return cls(array, lines, block, Shared(f32, tile.offset, count=len(tile) * tile.stage_bytes // 4), tile, tensormap, parts)

    @property
    def bytes(self) -> int:
        """What the producer adds to a stage."""
        if self.bulk:
            return 4 * self.of_part
        return (self.lines + self.parts * ALIGNED) * 4 if self.tensormap is not None else 0

    @property
    def copied(self) -> bool:
        """Whether a warp beside the producer copies them."""
        return self.tensormap is None and not self.bulk

    @property
    def of_part(self) -> int:
        """Places in shared memory of what one copy brings."""
        return bulk_count(self.lines, self.halves) if self.bulk else self.tile.stage_bytes // 4 if self.tile is not None else self.count

    @property
    def of_stage(self) -> int:
        """Places in shared memory of a stage."""
        return self.of_part * max(1, self.parts)

    def place(self, line: Reg[u32]) -> Reg[u32]:
        """Where in a stage a line of the tile is, `shift` apart."""
        if self.parts < 2:
            return line
        each = self.lines // self.parts
        return line + line // each * (self.of_part - each)

    def shift(self, line: Reg[u32]) -> Reg[u32] | int:
        """Lines that a tile which begins at `line` has before its own."""
        return line & (ALIGNED - 1) if self.parts else 0

    def aim(self, line: Reg[u32], lines: Reg[u32]) -> None:
        """A new tile of the producer, from `line` of `lines`, of a half: where its scales are. Blocks past the last have the last one's."""
        if self.bulk:
            first, last = line // self.block, (lines - 1) // self.block
            blocks = [min_.u32(first + i if i else first, last) for i in range(blocks_of(self.lines // self.halves))]
            blocks += [block + (last + 1) for block in blocks] if self.halves == 2 else []
            self._sources = [self.array.pointer.at(mul.wide.u32(block, self.array.mn_stride)) for block in blocks]

    def load(self, stage: Reg[u32], line: Reg[u32], k: Reg[u32], barrier: MBarrier) -> None:
        """By the producer: the scales of lines `line`.. in stage `k` of the depth."""
        if self.bulk:
            copy = cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes
            places = self.ring.at(stage * self.of_stage)
            for i, source in enumerate(self._sources):
                copy(places + i * ALIGNED, source.at(k - (k & (ALIGNED - 1))), 4 * ALIGNED, barrier)
            return
        if self.tile is None or self.tensormap is None:
            return
        if not self.parts:
            tensor_copy(self.tile[stage], self.tensormap, (line, k), barrier)
            return
        first = line - self.shift(line)
        for part in range(self.parts):
            tensor_copy(self.tile[stage * self.parts + part], self.tensormap, (first + part * (self.lines // self.parts), k), barrier)

    @property
    def count(self) -> int:
        return self.halves * scale_count(self.lines // self.halves, self.block)

    @property
    def group(self) -> int:
        """Lines of a tile that certainly have one scale."""
        return 1 if self.block == 1 else gcd(self.lines // self.halves, self.block)

    def begin(self, line: Reg[u32], lines: Reg[u32], lane: Reg[u32], first: Any) -> None:
        """A new tile of the producer's warp: which scales are each lane's. Lines past the last have the last one's."""
        self._at, self._first = [], first
        if not self.copied:
            return
        for i in range(0, self.count, WARP):
            at = line + (lane + i if self.group == 1 else (lane + i) * self.group)
            at = min_.u32(at, lines - 1)
            self._at.append(at if self.block == 1 else at // self.block)

    def copy(self, stage: Reg[u32], k: Reg[u32], lane: Reg[u32]) -> None:
        """Begin to copy the scales of stage `k` of the tile."""
        slot = self.ring.at(stage * self.count + lane)
        if not isinstance(self._first, int) or self._first:
            k = k + self._first
        here = self.array.pointer.at(mul.wide.u32(k, self.array.k_stride))
        for number, at in enumerate(self._at):                  # addresses are made here: a warp of the producer's has few registers
            left = self.count - number * WARP
            place = here.at(mul.wide.u32(at, self.array.mn_stride))
            cp.async_.ca.shared.global_(slot + number * WARP, place, 4, pred=None if left >= WARP else lane < left)


def blocks_of(lines: int, block: int = BLOCK) -> int:
    """Blocks that a tile of so many lines may have some of."""
    return (lines + block - gcd(lines, block) + block - 1) // block


def bulk_count(lines: int, halves: int = 1) -> int:
    """Scales that bulk copies bring for a tile's lines, or for its halves, in one stage: four stages' of every block."""
    return ALIGNED * halves * blocks_of(lines // halves)


def parts_of(lines: int) -> int:
    """Copies that bring the scales of a tile's lines and of those before: a box has 256 at most."""
    return 1 if lines + ALIGNED <= BOX else 2


def scale_count(lines: int, block: int) -> int:
    """Scales of a tile's lines in one stage."""
    return lines if block == 1 else lines // gcd(lines, block)


@dataclass(slots=True)
class Factors:
    """One thread's scales of one stage, in registers of their own: of its rows and of its columns, and their products."""

    rows: list[Reg[f32]]
    columns: list[Reg[f32]]
    group: int                                  # columns with one scale; 1: each its own
    _products: dict[tuple[int, int], Reg[f32]] = field(default_factory=dict)

    def forget(self) -> None:
        """The registers have the scales of another stage: the products are not theirs."""
        self._products = {}

    def factor(self, m64: int, index: int) -> Reg[f32]:
        """What accumulator `index` of an m64 block is multiplied by."""
        row = 2 * m64 + index % 4 // 2
        column = index // 4 * 2 + index % 2 if self.group == 1 else index // 4 * 8 // self.group
        key = row, column
        if key not in self._products:
            self._products[key] = mul.rn.f32(self.rows[row], self.columns[column])
        return self._products[key]


@dataclass(frozen=True, slots=True)
class ScaleRing:
    """Scales of both operands of every stage.

    Where a warp copies, each of its lanes arrives on full[stage] when its copies have landed (cp.async.mbarrier.arrive.noinc): 32 arrivals
    more a phase. Every consumer warp reads the scales it needs before its products, and arrives on empty[stage] itself.
    """

    m: ScaleLines
    n: ScaleLines

    @classmethod
    def allocate(cls, sums: Sums, sfa: ScaleArray, sfb: ScaleArray, sfa_map: TensorMap, tile: TileShape, stages: int) -> ScaleRing | None:
        """The ring of a dense product whose sums are block scaled; None for others."""
        if not isinstance(sums, BlockScaled):
            return None
        return cls(ScaleLines.allocate(sfa, tile.BM, 1, stages, "scales of A", sfa_map if sums.load != "warp" else None),
                   ScaleLines.allocate(sfb, tile.BN, BLOCK, stages, "scales of B", bulk=sums.load == "bulk"))

    @classmethod
    def of_groups(cls, sums: Sums, x: ScaleArray, w: ScaleArray, x_map: TensorMap, tile: TileShape, stages: int,
                  gated: bool) -> ScaleRing | None:
        """The ring of a grouped product, whose tiles begin at any row; with a gate, the columns are those of two projections."""
        if not isinstance(sums, BlockScaled):
            return None
        by_map = sums.load != "warp"
        return cls(ScaleLines.allocate(x, tile.BM, 1, stages, "scales of X", x_map if by_map else None, anywhere=by_map),
                   ScaleLines.allocate(w, tile.BN, BLOCK, stages, "scales of W", bulk=sums.load == "bulk", halves=1 + gated))

    @property
    def copied(self) -> bool:
        """Whether a warp beside the producer copies some of them."""
        return self.m.copied or self.n.copied

    @property
    def copying_lanes(self) -> int:
        """Lanes that arrive at a stage when their copies have landed."""
        return WARP if self.copied else 0

    def copy(self, stage: Reg[u32], k: Reg[u32], lane: Reg[u32], full: MBarrier) -> None:
        """Copy a stage's scales, in all lanes of one warp."""
        self.m.copy(stage, k, lane)
        self.n.copy(stage, k, lane)
        cp.async_.mbarrier.arrive.noinc.shared__cta.b64(full)

    def factors(self, m64_blocks: int) -> Factors:
        """Registers for a thread's scales of one stage."""
        columns = 2 * (self.n.lines // 8) if self.n.block == 1 else self.n.count
        return Factors([mov.f32(0.0) for _ in range(2 * m64_blocks)], [mov.f32(0.0) for _ in range(columns)], self.n.group)

    def read(self, factors: Factors, stage: Reg[u32] | int, row: Reg[u32], column: Reg[u32], places: list[Reg[u32]],
             k: Reg[u32] | int) -> None:
        """In a consumer thread: the scales of its rows (from `row` of the stage on) and columns (from `column` of 8, or `places` of bulk
        copies) in this stage, number `k` of the depth."""
        factors.forget()
        at = self.m.ring.at(stage * self.m.of_stage)
        mine = at.at(row if self.m.block == 1 else row // self.m.group)
        for i, register in enumerate(factors.rows):
            offset = i // 2 * 64 + (8 if i % 2 else 0)
            ld.shared__cta.f32(register, mine + (offset if self.m.block == 1 else i // 2 * 64 // self.m.group))
        if self.n.bulk:
            at = self.n.ring.at(stage * self.n.of_stage + (k & (ALIGNED - 1)))
            for place, register in zip(places, factors.columns, strict=True):
                ld.shared__cta.f32(register, at.at(place) if self.n.of_stage > ALIGNED else at)
            return
        at = self.n.ring.at(stage * self.n.count)
        if self.n.block == 1:
            mine = at.at(column)
            for block in range(self.n.lines // 8):
                ld.shared__cta.v2.f32(Vec((factors.columns[2 * block], factors.columns[2 * block + 1])), mine + 8 * block)
        else:
            for i, register in enumerate(factors.columns):
                ld.shared__cta.f32(register, at + i)


@dataclass(frozen=True, slots=True)
class Reader:
    """One consumer thread's view of the ring: where its first row's scale is in a stage, and its column in every 8; of bulk copies, the
    `places` of the tile's columns, and the number `k` of the stage that is read next.

    Without a ring all factors are 1.
    """

    ring: ScaleRing | None
    m64_blocks: int
    row: Reg[u32]
    column: Reg[u32]
    k: Reg[u32]
    places: list[Reg[u32]]
    whole: bool                                 # a ring has the stages of a bulk copy, and tiles take whole ones

    @classmethod
    def of(cls, ring: ScaleRing | None, m64_blocks: int, row: Reg[u32], column: Reg[u32], stages: int, parts: bool = False) -> Reader:
        """For a ring of so many `stages`, and tiles whose depth is worked on whole or in `parts`."""
        count = ring.n.count if ring is not None and ring.n.bulk else 0
        whole = bool(count) and stages == ALIGNED and not parts
        return cls(ring, m64_blocks, row, column, mov.u32(0), [mov.u32(0) for _ in range(count)], whole)

    def begin(self, column: Reg[u32], first: Reg[u32] | int) -> None:
        """A new tile, which begins in `column` and with stage `first` of the depth."""
        if self.ring is not None and self.ring.n.bulk:
            lines = self.ring.n
            mov.u32(self.k, first)
            within, each = column & (lines.block - 1), lines.count // lines.halves
            for i, place in enumerate(self.places):
                here = (within + i % each * lines.group) // lines.block * ALIGNED
                mov.u32(place, here + lines.of_stage // 2 if i >= each else here)

    def factors(self) -> Factors | None:
        """Registers for the factors of one stage."""
        return None if self.ring is None else self.ring.factors(self.m64_blocks)

    def read(self, factors: Factors | None, stage: Reg[u32] | int) -> None:
        """The factors of a stage that has landed."""
        if self.ring is not None and factors is not None:
            constant = isinstance(stage, int) and self.whole
            self.ring.read(factors, stage, self.row, self.column, self.places, stage if constant else self.k)
            if self.places and not constant:
                add.u32(self.k, self.k, 1)


__all__ = ["ALIGNED", "Factors", "Reader", "ScaleLines", "ScaleRing", "bulk_count", "parts_of", "scale_count"]
