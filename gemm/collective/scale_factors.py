"""Block scales of fp8 operands in shared memory: a stage's scales come with its operands, by the producer's copies if possible."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any

from ptxkit import MBarrier, Reg, TensorMap, Vec, smem
from ptxkit.ptx import add, cp, ld, mov, mul
from ptxkit.ptx import min as min_
from ptxkit.smem import Shared, Tile
from ptxkit.types import f32, u32

from ..config.grouped_parts import GroupOperands
from ..config.parts import BlockScaled, Sums
from ..config.parts import Tile as TileShape
from .atoms import MAX_BOX, tensor_copy
from .thread_scales import BLOCK, ScaleArray

WARP = 32
ALIGNED = 4                 # a copy begins at a multiple of 4 floats; a bulk copy has at least 4
WHOLE = 0x1_0000_0000 - ALIGNED             # mask of a multiple of ALIGNED
LINE = 32                   # floats of shared memory from one small tensor copy to the next: 128 bytes


@dataclass(slots=True)
class ScaleLines:
    """The scales of one operand: one for each `block` lines (1 or 128) of its tile. A tile may touch several blocks of 128.

    There are four ways to load them. With a tensor map the producer's tensor copies load scales that are contiguous along the lines. In
    `bulk` its bulk copies load scales that are contiguous along K: four stages' scales of every block that the tile may touch. With `flat`
    the tensor map has one dimension, all of the array: its copies load the 16 bytes around one scale of every such block, whatever the
    strides. Otherwise another warp of the producer warpgroup copies them. On an H200 this costs 14 % of a large product for scales of
    rows, and 4 % for scales of blocks (docs/experiments.md).

    A copy begins at a multiple of 16 bytes. If tiles may begin at any line, a tile's lines come in `parts`: one or two copies, which begin
    `shift` lines before the tile, at a multiple of ALIGNED lines.

    The scales of groups that lie `apart` have a map with the group as its last dimension. Their lines count from the group's first one, and
    tiles begin at multiples of 64.
    """

    array: ScaleArray
    lines: int                                  # of the tile
    block: int
    ring: Shared[f32]                           # `stage_floats` for each stage
    tile: Tile[f32] | None = None
    tensormap: TensorMap | None = None
    parts: int = 0                              # 0: every tile begins where a copy may begin
    bulk: bool = False
    flat: bool = False
    halves: int = 1                             # 2: the tile's lines are halves of two projections, the second after the first
    step: int = BLOCK                           # the second projection begins at a multiple of it, in lines
    apart: bool = False
    origin: Any = 0                             # flat: the place of the group's first scale
    extent: Any = 0                             # the lines of a projection, where a thread has to know them
    _group: tuple[Reg[u32], ...] = ()           # of scales that lie apart
    _start: Reg[u32] | int = 0                  # its first line
    _at: list[Reg[u32]] = field(default_factory=list)
    _first: Any = 0
    _sources: list[Any] = field(default_factory=list)

    @classmethod
    def allocate(cls, array: ScaleArray, lines: int, block: int, stages: int, name: str, tensormap: TensorMap | None = None,
                 anywhere: bool = False, bulk: bool = False, halves: int = 1, apart: bool = False, flat: bool = False,
                 step: int = BLOCK) -> ScaleLines:
        if bulk:
            ring = smem.array(f32, stages * bulk_count(lines, halves, step), align=16, name=name)
            return cls(array, lines, block, ring, bulk=True, halves=halves, step=step)
        if flat:
            tile = smem.tile(f32, (stages * halves * blocks_of(lines // halves, step=step), 1, ALIGNED), swizzle=0, name=name)
            ring = Shared(f32, tile.offset, count=len(tile) * LINE)
            return cls(array, lines, block, ring, tile, tensormap, flat=True, halves=halves, step=step)
        if tensormap is None:
            return cls(array, lines, block, smem.array(f32, stages * scale_count(lines, block), align=16, name=name))
        parts = copies_per_tile(lines) if anywhere else 0
        copy_lines = lines // parts + ALIGNED if parts else lines
        tile = smem.tile(f32, (stages * max(1, parts), 1, copy_lines), swizzle=0, name=name)
        return cls(array, lines, block, Shared(f32, tile.offset, count=len(tile) * tile.stage_bytes // 4), tile, tensormap, parts,
                   apart=apart)

    @property
    def bytes(self) -> int:
        """The bytes that the producer's copies add to a stage."""
        if self.bulk or self.flat:
            return 4 * ALIGNED * self.blocks
        return (self.lines + self.parts * ALIGNED) * 4 if self.tensormap is not None else 0

    @property
    def copied(self) -> bool:
        """Whether another warp of the producer warpgroup copies them."""
        return self.tensormap is None and not self.bulk

    @property
    def blocks(self) -> int:
        """The blocks whose scales are copied one by one."""
        return self.halves * blocks_of(self.lines // self.halves, step=self.step)

    @property
    def part_floats(self) -> int:
        """The floats of one part in shared memory."""
        if self.bulk or self.flat:
            return self.blocks * (LINE if self.flat else ALIGNED)
        return self.tile.stage_bytes // 4 if self.tile is not None else self.count

    @property
    def stage_floats(self) -> int:
        """The floats of one stage in shared memory."""
        return self.part_floats * max(1, self.parts)

    def place(self, line: Reg[u32]) -> Reg[u32]:
        """The place of a line of the tile in a stage, without `shift`."""
        if self.parts < 2:
            return line
        each = self.lines // self.parts
        return line + line // each * (self.part_floats - each)

    def shift(self, line: Reg[u32]) -> Reg[u32] | int:
        """The number of lines that are loaded before the first line of a tile at `line`."""
        return line & (ALIGNED - 1) if self.parts else 0

    def turn_to(self, group: Reg[u32], start: Reg[u32]) -> None:
        """In the producer: begin a tile of a group, whose first line is `start`."""
        if self.apart:
            self._group, self._start = (group,), start

    def turn_to_group(self, group: Reg[u32], stride: Reg[u32], lines: Reg[u32]) -> None:
        """In the producer and the mma threads: begin a tile of a group. Groups are `stride` scales apart, projections have `lines`."""
        self.extent = lines
        if self.flat:
            self.origin = group * stride

    def aim(self, line: Reg[u32], lines: Reg[u32]) -> None:
        """In the producer: begin a tile at `line` of `lines` (of a half). Blocks past the last one use the last block's scales."""
        if not self.bulk and not self.flat:
            return
        count = self.blocks // self.halves
        first, last = line // self.block, (lines - 1) // self.block
        blocks = [min_.u32(first + i if i else first, last) for i in range(count)]
        if self.halves == 2 and self.step == self.block:
            blocks += [block + (last + 1) for block in blocks]
        elif self.halves == 2:
            first, last = (line + lines) // self.block, (lines + lines - 1) // self.block
            blocks += [min_.u32(first + i if i else first, last) for i in range(count)]
        if self.flat:
            self._sources = [block * self.array.mn_stride + self.origin for block in blocks]
        else:
            self._sources = [self.array.pointer.at(mul.wide.u32(block, self.array.mn_stride)) for block in blocks]

    def load(self, stage: Reg[u32], line: Reg[u32], k: Reg[u32], barrier: MBarrier) -> None:
        """In the producer: copy the scales of stage `k` along K, for a tile that begins at `line`."""
        if self.bulk:
            copy = cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes
            places = self.ring.at(stage * self.stage_floats)
            for i, source in enumerate(self._sources):
                copy(places + i * ALIGNED, source.at(k - (k & (ALIGNED - 1))), 4 * ALIGNED, barrier)
            return
        if self.tile is None or self.tensormap is None:
            return
        if self.flat:
            for i, source in enumerate(self._sources):
                at = (source + k * self.array.k_stride) & WHOLE
                tensor_copy(self.tile[stage * self.blocks + i], self.tensormap, (at,), barrier)
            return
        if not self.parts:
            tensor_copy(self.tile[stage], self.tensormap, (line - self._start if self.apart else line, k, *self._group), barrier)
            return
        first = line - self.shift(line)
        for part in range(self.parts):
            tensor_copy(self.tile[stage * self.parts + part], self.tensormap, (first + part * (self.lines // self.parts), k), barrier)

    @property
    def count(self) -> int:
        return self.lines // self.group

    @property
    def group(self) -> int:
        """The number of adjacent lines of a tile that always share a scale."""
        return 1 if self.block == 1 else gcd(self.lines // self.halves, self.step)

    def begin(self, line: Reg[u32], lines: Reg[u32], lane: Reg[u32], first: Any) -> None:
        """In the copying warp: begin a tile, and compute the scales that each lane copies. Lines past the last use its scales."""
        self._at, self._first = [], first
        if not self.copied:
            return
        for i in range(0, self.count, WARP):
            at = line + (lane + i if self.group == 1 else (lane + i) * self.group)
            at = min_.u32(at, lines - 1)
            self._at.append(at if self.block == 1 else at // self.block)

    def copy(self, stage: Reg[u32], k: Reg[u32], lane: Reg[u32]) -> None:
        """In the copying warp: begin to copy the scales of stage `k` of the tile."""
        slot = self.ring.at(stage * self.count + lane)
        if not isinstance(self._first, int) or self._first:
            k = k + self._first
        column = self.array.pointer.at(mul.wide.u32(k, self.array.k_stride))
        for number, at in enumerate(self._at):                  # the addresses are not kept: the producer warpgroup has few registers
            left = self.count - number * WARP
            place = column.at(mul.wide.u32(at, self.array.mn_stride))
            cp.async_.ca.shared.global_(slot + number * WARP, place, 4, pred=None if left >= WARP else lane < left)


def blocks_of(lines: int, block: int = BLOCK, step: int = BLOCK) -> int:
    """The largest number of blocks that a tile of `lines` lines may touch. Tiles begin at multiples of them, after a multiple of `step`."""
    return (lines + block - gcd(lines, step) + block - 1) // block


def bulk_count(lines: int, halves: int = 1, step: int = BLOCK) -> int:
    """The scales that bulk copies load in one stage: four stages' scales of every block that the tile (or each half) may touch."""
    return ALIGNED * halves * blocks_of(lines // halves, step=step)


def flat_floats(lines: int, halves: int = 1, step: int = BLOCK) -> int:
    """The floats of one stage in shared memory for scales of blocks that are copied one by one by a flat tensor map."""
    return LINE * halves * blocks_of(lines // halves, step=step)


def groups_of(lines: int, halves: int, step: int) -> int:
    """The scales of columns that a thread has in registers for a tile of `lines` columns."""
    return lines // gcd(lines // halves, step)


def copies_per_tile(lines: int) -> int:
    """The tensor copies that load the scales of a tile's lines and of up to ALIGNED lines before them."""
    return 1 if lines + ALIGNED <= MAX_BOX else 2


def scale_count(lines: int, block: int) -> int:
    """The number of scales of a tile's lines in one stage."""
    return lines if block == 1 else lines // gcd(lines, block)


@dataclass(slots=True)
class Factors:
    """One thread's scales of one stage, in registers: the scales of its rows and of its columns, and products of the two."""

    rows: list[Reg[f32]]
    columns: list[Reg[f32]]
    group: int                                  # adjacent columns that share a scale
    _products: dict[tuple[int, int], Reg[f32]] = field(default_factory=dict)

    def forget(self) -> None:
        """Forget the products: the registers get the scales of another stage."""
        self._products = {}

    def factor(self, m64: int, index: int) -> Reg[f32]:
        """The factor of accumulator `index` of an m64 block."""
        row = 2 * m64 + index % 4 // 2
        column = index // 4 * 2 + index % 2 if self.group == 1 else index // 4 * 8 // self.group
        key = row, column
        if key not in self._products:
            self._products[key] = mul.rn.f32(self.rows[row], self.columns[column])
        return self._products[key]


@dataclass(frozen=True, slots=True)
class ScaleRing:
    """The scales of both operands, for every stage.

    If a warp copies scales, each of its lanes arrives on full[stage] after its copies have landed (cp.async.mbarrier.arrive.noinc). That
    makes 32 more arrivals per phase. Every mma warp reads the scales that it needs before its products, and arrives on empty[stage] itself.
    """

    m: ScaleLines
    n: ScaleLines

    @classmethod
    def allocate(cls, sums: Sums, sfa: ScaleArray, sfb: ScaleArray, sfa_map: TensorMap, tile: TileShape, stages: int) -> ScaleRing | None:
        """The ring of a dense product with block-scaled sums; None for others."""
        if not isinstance(sums, BlockScaled):
            return None
        return cls(ScaleLines.allocate(sfa, tile.BM, 1, stages, "scales of A", sfa_map if sums.load != "warp" else None),
                   ScaleLines.allocate(sfb, tile.BN, BLOCK, stages, "scales of B", bulk=sums.load == "bulk"))

    @classmethod
    def of_groups(cls, sums: Sums, x: ScaleArray, w: ScaleArray, x_map: TensorMap, w_map: TensorMap, tile: TileShape, stages: int,
                  operands: GroupOperands) -> ScaleRing | None:
        """The ring of a grouped product, whose tiles may begin at any row. With a gate, a tile has columns of two projections."""
        if not isinstance(sums, BlockScaled):
            return None
        by_map, apart = sums.load != "warp", operands.scales_apart
        return cls(ScaleLines.allocate(x, tile.BM, 1, stages, "scales of X", x_map if by_map else None, anywhere=by_map and not apart,
                                       apart=by_map and apart),
                   ScaleLines.allocate(w, tile.BN, BLOCK, stages, "scales of W", w_map if sums.load == "lines" else None,
                                       bulk=sums.load == "bulk", flat=sums.load == "lines", halves=1 + operands.gated,
                                       step=operands.gate_step))

    @property
    def copied(self) -> bool:
        """Whether another warp of the producer warpgroup copies some of them."""
        return self.m.copied or self.n.copied

    @property
    def copying_lanes(self) -> int:
        """The number of lanes that arrive on full[stage] after their copies have landed."""
        return WARP if self.copied else 0

    def copy(self, stage: Reg[u32], k: Reg[u32], lane: Reg[u32], full: MBarrier) -> None:
        """In all lanes of the copying warp: copy a stage's scales."""
        self.m.copy(stage, k, lane)
        self.n.copy(stage, k, lane)
        cp.async_.mbarrier.arrive.noinc.shared__cta.b64(full)

    def factors(self, m64_blocks: int) -> Factors:
        """Registers for a thread's scales of one stage."""
        columns = 2 * (self.n.lines // 8) if self.n.block == 1 else self.n.count
        return Factors([mov.f32(0.0) for _ in range(2 * m64_blocks)], [mov.f32(0.0) for _ in range(columns)], self.n.group)

    def read(self, factors: Factors, stage: Reg[u32] | int, row: Reg[u32], column: Reg[u32], places: list[Reg[u32]],
             k: Reg[u32] | int) -> None:
        """In an mma thread: read the scales of stage `k`. Its rows begin at `row` of the stage. Its columns begin at `column` of each
        8; with bulk or flat copies they are at `places`."""
        factors.forget()
        at = self.m.ring.at(stage * self.m.stage_floats)
        mine = at.at(row if self.m.block == 1 else row // self.m.group)
        for i, register in enumerate(factors.rows):
            offset = i // 2 * 64 + (8 if i % 2 else 0)
            ld.shared__cta.f32(register, mine + (offset if self.m.block == 1 else i // 2 * 64 // self.m.group))
        if self.n.flat:
            at, stride = self.n.ring.at(stage * self.n.stage_floats), self.n.array.k_stride
            for place, register in zip(places, factors.columns, strict=True):
                ld.shared__cta.f32(register, at.at(place))
                mov.u32(place, (place & WHOLE) | ((place + stride) & (ALIGNED - 1)))
            return
        if self.n.bulk:
            at = self.n.ring.at(stage * self.n.stage_floats + (k & (ALIGNED - 1)))
            for place, register in zip(places, factors.columns, strict=True):
                ld.shared__cta.f32(register, at.at(place) if self.n.stage_floats > ALIGNED else at)
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
    """An mma thread's reader of the ring. `row` is the place of its first row's scale in a stage, `column` its column in every 8. With bulk
    or flat copies, `places` are the places of its columns' scales and `k` is the number of the next stage along K.

    Without a ring all factors are 1.
    """

    ring: ScaleRing | None
    m64_blocks: int
    row: Reg[u32]
    column: Reg[u32]
    k: Reg[u32]
    places: list[Reg[u32]]
    whole: bool                                 # the ring has ALIGNED stages, as a bulk copy, and tiles consist of whole rings

    @classmethod
    def of(cls, ring: ScaleRing | None, m64_blocks: int, row: Reg[u32], column: Reg[u32], stages: int, parts: bool = False) -> Reader:
        """For a ring of `stages` stages. `parts`: work tiles may have only a part of K."""
        count = ring.n.count if ring is not None and (ring.n.bulk or ring.n.flat) else 0
        whole = ring is not None and ring.n.bulk and stages == ALIGNED and not parts
        return cls(ring, m64_blocks, row, column, mov.u32(0), [mov.u32(0) for _ in range(count)], whole)

    def begin(self, column: Reg[u32], first: Reg[u32] | int) -> None:
        """Begin a tile at `column` and at stage `first` along K."""
        if self.ring is not None and self.ring.n.bulk:
            lines = self.ring.n
            mov.u32(self.k, first)
            within, each = column & (lines.block - 1), lines.count // lines.halves
            for i, place in enumerate(self.places):
                if i == each and lines.step != lines.block:
                    within = (column + lines.extent) & (lines.block - 1)
                offset = (within + i % each * lines.group) // lines.block * ALIGNED
                mov.u32(place, offset + lines.stage_floats // 2 if i >= each else offset)
        elif self.ring is not None and self.ring.n.flat:
            self._begin_flat(self.ring.n, column, first)

    def _begin_flat(self, lines: ScaleLines, column: Reg[u32], first: Reg[u32] | int) -> None:
        """Each place is that of a block's 16 bytes in a stage, and the number of its scale among the four."""
        each, stride = lines.count // lines.halves, lines.array.k_stride
        begins = lines.origin if isinstance(first, int) and not first else lines.origin + stride * first
        for half in range(lines.halves):
            line, end = (column + lines.extent, lines.extent + lines.extent) if half else (column, lines.extent)
            first_block, last = line // lines.block, (end - 1) // lines.block
            for i in range(each):
                block = (line + i * lines.group) // lines.block
                place = (block - first_block) * LINE + half * lines.stage_floats // 2
                scale = min_.u32(block, last) * lines.array.mn_stride + begins
                mov.u32(self.places[half * each + i], place + (scale & (ALIGNED - 1)))

    def factors(self) -> Factors | None:
        """Registers for the factors of one stage; None without a ring."""
        return None if self.ring is None else self.ring.factors(self.m64_blocks)

    def read(self, factors: Factors | None, stage: Reg[u32] | int) -> None:
        """Read the factors of a stage that has landed."""
        if self.ring is not None and factors is not None:
            constant = isinstance(stage, int) and self.whole
            self.ring.read(factors, stage, self.row, self.column, self.places, stage if constant else self.k)
            if self.places and not constant:
                add.u32(self.k, self.k, 1)


__all__ = ["ALIGNED", "Factors", "Reader", "ScaleLines", "ScaleRing", "bulk_count", "copies_per_tile", "flat_floats", "groups_of",
           "scale_count"]
