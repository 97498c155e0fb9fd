"""The configuration of a dense kernel: its compile-time parameters, checked when they are written."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from ptxkit.layout import Major
from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import Scalar, bf16, f16, f32

from ..collective.atoms import ROWS
from ..collective.epilogue import BUFFERS
from ..collective.epilogue_ops import ACTIVATIONS, PLAIN_SUM, Fusion
from ..collective.mainloop_promoted import MIN_UNROLLED_STAGES
from ..collective.split_k import columns_per_split
from ..scheduler.dynamic import DynamicScheduler
from . import budget
from .parts import (
    L2_FETCH,
    MAX_STAGES,
    AsyncCopies,
    BlockScaled,
    ClusterShape,
    ConfigError,
    Cooperative,
    CopiedLoads,
    Direct,
    DirectTransposed,
    Dynamic,
    ElementCopies,
    Hilbert,
    Loads,
    Pingpong,
    Promoted,
    Rows,
    Schedule,
    Scheduler,
    ShiftedCopies,
    SplitK,
    Staged,
    Static,
    Store,
    StreamK,
    TensorCopies,
    ThreadScaled,
    Tile,
    Transposed,
    shares_columns,
)
from .tiled import TiledConfig

OPERANDS = {"f16": ("f16",), "bf16": ("bf16",), "f32": ("f32",), "e4m3": ("e4m3", "e5m2"), "e5m2": ("e4m3", "e5m2")}
RESULTS = ("f16", "bf16", "f32", "e4m3", "e5m2")
STREAM_K_SUMS = 168         # registers of promoted sums that stream-K holds in one warpgroup with a short ring; 180 spill (ptxas 13.0)


@dataclass(frozen=True, slots=True)
class Operands:
    """What the problem decides: the element types of A, B, D and the sums, the majors of A and B, and whether the product is batched."""

    a: type[Scalar] = bf16
    b: type[Scalar] = bf16
    out: type[Scalar] = bf16
    accumulator: type[Scalar] = f32
    a_major: Major = "k"
    b_major: Major = "k"
    batched: bool = False

    def __post_init__(self) -> None:
        a, b, out = self.a.__name__, self.b.__name__, self.out.__name__
        if a not in OPERANDS or b not in OPERANDS[a]:
            raise ConfigError(f"{a} times {b} is not multiplied: take f16, bf16, f32 (as tf32), or e4m3 or e5m2 with either")
        if out not in RESULTS:
            raise ConfigError(f"the result is {', '.join(RESULTS)}, not {out}")
        if self.accumulator not in (f32, f16) or (self.accumulator is f16 and self.a is not f16):
            raise ConfigError(f"sums are f32, or f16 of f16 operands, not {self.accumulator.__name__} of {a}")
        if self.a.bits != 16 and "mn" in (self.a_major, self.b_major):
            raise ConfigError(f"operands of {a} are K-major, since wgmma transposes 16-bit types only: pass contiguous K")

    @property
    def swapped(self) -> Operands:
        """Those of D^T = B^T A^T."""
        return replace(self, a=self.b, b=self.a, a_major=self.b_major, b_major=self.a_major)


@dataclass(frozen=True, slots=True)
class DenseConfig(TiledConfig):
    """One specialisation of a dense kernel (`gemm.kernels`).

    Some fields are derived if they are left out: `tile.BK` 0, `stages` 0 (the deepest ring that shared memory holds), the warpgroups of
    `Cooperative(0)`, `store` None (staged if a tile's row consists of whole 32-byte spans), and the buffers of `Staged(0)`.

    `swap_ab`: the kernel multiplies D^T = B^T A^T and stores D^T transposed. A tile is then BM columns of D by BN rows, and the m and n of
    its cluster, its order and its copies are those of D^T. `operands`, `fusion` and `loads` are those of D all the same.
    """

    operands: Operands = Operands()
    tile: Tile = Tile()
    stages: int = 0
    schedule: Cooperative | Pingpong = Cooperative()
    scheduler: Static | Dynamic | StreamK | SplitK = Static()
    store: Staged | Direct | Rows | None = None
    loads: Loads | CopiedLoads = Loads()
    fusion: Fusion = PLAIN_SUM
    swap_ab: bool = False

    def __post_init__(self) -> None:
        self._derive_tile(self.operands.a)
        whole_spans = (self.swap_ab or self.own_columns * self.operands.out.bits % 256 == 0) and self.operands.out.bits > 8
        if self.store is None:
            self._derive(store=Staged() if whole_spans and not isinstance(self.scheduler, SplitK) else Direct())
        problem = (self._swapped_problem() if self.swap_ab else None) or self._tile_problem() or self._scheduler_problem() \
            or self._copies_problem() or self._epilogue_problem(whole_spans)
        if problem:
            raise ConfigError(problem)
        auto = isinstance(self.store, Staged) and not self.store.buffers
        if auto:
            self._derive(store=Staged(BUFFERS))
        if not self.stages:
            self._derive(stages=self.stages_that_fit)
        if auto and (self.swap_ab or budget.promoted(self.sums)):
            self._derive(store=Staged(max(BUFFERS, min(self.boxes, self.buffers_that_fit))))
        problem = self._budget_problem()
        if problem:
            raise ConfigError(problem)

    # ------------------------------------------------------------------------------------------- what follows from the fields

    @property
    def multicast(self) -> ClusterShape:
        """The CTAs that share operands."""
        return ClusterShape() if isinstance(self.scheduler, Dynamic) else self.scheduler.cluster

    @property
    def splits(self) -> int:
        """The number of CTAs that share the K of a tile."""
        return self.scheduler.splits if isinstance(self.scheduler, SplitK) else 1

    @property
    def splits_in_cluster(self) -> bool:
        """Whether the CTAs that share the K of a tile are a cluster."""
        return isinstance(self.scheduler, SplitK) and self.scheduler.reduce == "cluster"

    @property
    def splits_in_workspace(self) -> bool:
        """Whether the CTAs that share the K of a tile add up their sums through a workspace."""
        return isinstance(self.scheduler, SplitK) and self.scheduler.reduce == "workspace"

    @property
    def cluster(self) -> int:
        """The number of CTAs of a cluster."""
        return self.splits if self.splits_in_cluster else self.multicast.size

    @property
    def threads(self) -> int:
        """The number of threads of a CTA."""
        return budget.threads(self.schedule)

    @property
    def staged(self) -> bool:
        """Whether tiles are stored through shared memory."""
        return isinstance(self.store, Staged)

    @property
    def buffers(self) -> int:
        """The number of staging buffers of a warpgroup."""
        return self.store.buffers if isinstance(self.store, Staged) else int(isinstance(self.store, Rows))

    @property
    def boxes(self) -> int:
        """The boxes of a tile that one warpgroup stores."""
        return budget.store_boxes(self.tile, self.own_columns, self.operands.out, self.schedule, self.swap_ab)

    @property
    def buffers_that_fit(self) -> int:
        """The staging buffers per warpgroup that fit into shared memory next to the ring."""
        one = budget.staging_bytes(1, self.own_columns, self.operands.out, self.schedule, self.swap_ab)
        return self.buffers + (SHARED_LIMIT - self.smem_bytes) // one

    @property
    def by_threads(self) -> bool:
        """Whether the producer warpgroup's threads copy an operand."""
        return isinstance(self.loads, CopiedLoads)

    @property
    def stage_bytes(self) -> int:
        """The bytes of one stage of A and B."""
        return budget.stage_bytes(self.spanned, self.operands.a, self.operands.b)

    @property
    def spanned(self) -> Tile:
        """What a stage holds of a tile's operands."""
        return budget.spanned(self.tile, self.multiplied.b_major)

    @property
    def fixed_bytes(self) -> int:
        """Shared memory besides the ring: staging, partial sums and mbarriers, with the largest alignment between them."""
        bytes = self._staging_bytes(self.buffers, self.operands.out, self.swap_ab)
        if self.splits_in_cluster:
            bytes += self.splits * columns_per_split(self.tile.BN, self.splits) * 8 * self.tile.BM * 4 + 8
        dynamic = DynamicScheduler.BYTES if isinstance(self.scheduler, Dynamic) else 0
        depth = self.tile.BK * self.operands.a.bits // 8
        return bytes + dynamic + budget.raw_bytes(self.loads.a, self.tile.BM * depth) + budget.raw_bytes(self.loads.b, self.tile.BN * depth)

    @property
    def smem_bytes(self) -> int:
        """Shared memory of one CTA."""
        return self._bytes(self.stages)

    def _bytes(self, stages: int) -> int:
        return budget.ring_bytes(stages, self.spanned, self.sums, self.operands.a, self.operands.b) + self.fixed_bytes

    @property
    def stages_that_fit(self) -> int:
        """The deepest ring that shared memory holds next to the rest."""
        return budget.deepest_ring(self.spanned, self.operands.a, self.operands.b, self.fixed_bytes, self._bytes)

    @property
    def readers(self) -> int:
        """The arrivals of a phase of empty[stage]."""
        sharing = 1 if isinstance(self.schedule, Pingpong) else self.warpgroups
        return sharing * (self.multicast.m + self.multicast.n - 1)

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """The tiles of an M x N product along BM and along BN."""
        m, n = (n, m) if self.swap_ab else (m, n)
        return -(-m // self.tile.BM), -(-n // self.tile.BN)

    @property
    def multiplied(self) -> Operands:
        """The operands as the kernel multiplies them."""
        return self.operands.swapped if self.swap_ab else self.operands

    @property
    def parameters(self) -> dict[str, Any]:
        """The kernel's compile-time parameters."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "swap_ab"}
        if self.swap_ab:
            store = Transposed(self.buffers) if self.staged else DirectTransposed()
            found |= {"operands": self.multiplied, "store": store, "fusion": self.fusion.swapped}
        return found

    # ------------------------------------------------------------------------------------------- in words

    def __str__(self) -> str:
        """One line: tile, ring, schedule."""
        tile, loads, sums, order = self.tile, self.loads, self.sums, self.scheduler.order
        words = [f"{tile.BM}x{tile.BN}x{tile.BK}" + (f" of {loads.a_rows} rows" if loads.a_rows else ""),
                 *["A and B swapped"] * self.swap_ab, f"{self.stages} stages",
                 "pingpong" if isinstance(self.schedule, Pingpong) else
                 f"{self.warpgroups} mma warpgroup{'s' if self.warpgroups > 1 else ''}" + " by columns" * shares_columns(self.schedule)]
        if self.multicast.size > 1:
            words.append(f"cluster {self.multicast.m}x{self.multicast.n}")
        if isinstance(self.scheduler, SplitK):
            words.append(f"split-K {self.splits} through the {self.scheduler.reduce}")
        if isinstance(order, Hilbert):
            words.append("along a Hilbert curve")
        else:
            words.append(f"{order.raster.replace('_', ' ')} by {order.size}" + (" serpentine" if order.serpentine else ""))
        if isinstance(sums, Promoted) and sums.how != "plain":
            words.append("overlapped promotion" if sums.how == "overlap" else "staggered promotion")
        words += ["dynamic"] * isinstance(self.scheduler, Dynamic) + ["stream-K"] * isinstance(self.scheduler, StreamK)
        words += [f"next kernel after the {self.scheduler.overlap}"] * (self.scheduler.overlap != "start")
        words += [f"{loads.l2_prefetch_stages} stages prefetched"] * (loads.l2_prefetch_stages > 0)
        words += [f"L2 by {loads.l2_fetch} bytes"] * (loads.l2_fetch != L2_FETCH)
        words += [f"{' and '.join(loads.align.upper())} copied before"] * (loads.align != "")
        words += [f"{name} by {_copies(copies)}" for name, copies in (("A", loads.a), ("B", loads.b))
                  if not isinstance(copies, TensorCopies)]
        single = isinstance(self.store, Direct) and self.store.elements == 1
        return ", ".join(words + ["stores by element" if single else "stores by row" if isinstance(self.store, Rows) else "direct stores"] *
                         (not self.staged))

    def describe(self) -> str:
        """The budget: stages, bytes, registers, barriers."""
        accumulators = budget.accumulator_registers(self.tile, self.schedule, self.operands.accumulator)
        arrivals = 1
        if self.by_threads:
            arrivals = budget.copying_arrivals(self.loads.a, self.loads.b, size=self.operands.a.bits // 8) \
                + (TensorCopies() in (self.loads.a, self.loads.b))
        barriers = f"full {self.stages} x {arrivals} arrival{'s' * (arrivals > 1)}, empty {self.stages} x {self.readers} arrivals"
        registers = budget.mma_registers(self.schedule, self.by_threads)
        return "\n".join([str(self), f"threads             {self.threads}", f"stage               {self.stage_bytes:,} bytes",
                          f"shared memory       {self.smem_bytes:,} of {SHARED_LIMIT:,} bytes",
                          f"accumulators        {accumulators} of {registers} registers an mma thread",
                          f"mbarriers           {barriers}"])

    # ------------------------------------------------------------------------------------------- what is refused

    def _swapped_problem(self) -> str | None:
        """The reason if the kernel cannot multiply B^T by A^T and store D^T transposed."""
        loads, otherwise = self.loads, "; take swap_ab=False"
        stored = Direct if isinstance(self.scheduler, SplitK) else Staged
        if not isinstance(self.store, stored) or self.operands.out.bits == 8:
            return f"with swap_ab tiles of 16- or 32-bit results are stored transposed, by {stored.__name__}()" + otherwise
        if budget.promoted(self.sums):
            return "with swap_ab sums are not promoted: take TensorCoreSums()" + otherwise
        if self.fusion.c is not None or self.fusion.residual is not None:
            return "with swap_ab no C and no residual is added" + otherwise
        if not isinstance(loads, Loads) or loads.a_rows or loads.b_evict_first or loads.l2_prefetch_stages:
            return "with swap_ab operands are loaded by tensor copies, without a_rows, b_evict_first and l2_prefetch_stages: take Loads()"
        return None

    def _tile_problem(self) -> str | None:
        """The reason if the tile does not fit the operands, the schedule or the loads."""
        operands, tile, loads, sums = self.multiplied, self.tile, self.loads, self.sums
        if self.by_threads and operands.b_major == "mn" and tile.BN % budget.SPAN:
            return f"BN is a multiple of {budget.SPAN} for an operand that threads copy and that is contiguous along N, not {tile.BN}"
        by_columns = shares_columns(self.schedule)
        if (tile.wide or by_columns) and (budget.promoted(sums) or isinstance(self.scheduler, SplitK | StreamK) or self.by_threads):
            what = "warpgroups that share columns" if by_columns else f"tiles of {tile.BN} columns"
            otherwise = "share=\"rows\"" if by_columns else "BN up to 256"
            return f"{what} need TensorCoreSums(), tensor copies and Static() or Dynamic(): take {otherwise}"
        unit = 2 * budget.column_unit(operands.b_major)
        if by_columns and tile.BN % unit:
            return f"two warpgroups cannot share {tile.BN} columns: take a multiple of {unit} for such an operand, or share=\"rows\""
        if tile.BK * operands.a.bits // 8 % budget.STAGE_BYTES:
            return f"BK is a multiple of {budget.STAGE_BYTES * 8 // operands.a.bits} for {operands.a.__name__}, not {tile.BK}"
        if loads.a_rows and (tile.BM != ROWS or operands.a_major != "k" or self.warpgroups != 1 or self.multicast.n > 1):
            return (f"a_rows={loads.a_rows} needs a K-major A, tiles of 64 rows, one mma warpgroup and CTAs that do not share A: take "
                    "a_rows=0")
        if isinstance(self.schedule, Pingpong) and tile.BM > 128:
            return f"pingpong warpgroups have a tile of 64 or 128 rows each, not {tile.BM}"
        if isinstance(self.schedule, Cooperative) and not by_columns and tile.BM % (ROWS * self.warpgroups):
            return (f"{self.warpgroups} mma warpgroups cannot share {tile.BM} rows in m64 blocks: take "
                    f"{budget.default_warpgroups(tile.BM)}, or another BM")
        if isinstance(sums, ThreadScaled):
            return "a dense product loads block scales through shared memory: take BlockScaled"
        if isinstance(sums, Promoted) and (tile.BK * operands.a.bits // 8 != budget.STAGE_BYTES or operands.accumulator is not f32):
            return "promotion needs stages of 128 bytes and f32 sums: take BK=0 and f32 sums"
        if isinstance(sums, Promoted) and sums.how == "stagger" and self.warpgroups < 2:
            return "staggered promotion needs warpgroups that share a tile: take two warpgroups, or how=\"plain\""
        if isinstance(sums, BlockScaled) and operands.a.bits != 8:
            return f"block scales need fp8 operands, not {operands.a.__name__}: take TensorCoreSums or Promoted"
        return None

    def _scheduler_problem(self) -> str | None:
        """The reason if the scheduler does not fit the rest."""
        scheduler, operands = self.scheduler, self.multiplied
        if isinstance(scheduler, SplitK) and isinstance(self.schedule, Pingpong):
            return "pingpong warpgroups work on whole tiles: take Cooperative, or another scheduler than SplitK"
        if isinstance(scheduler, StreamK) and operands.accumulator is not f32:
            return "stream-K adds up f32 sums: take accumulate=\"f32\", or Static"
        if self.loads.l2_prefetch_stages and (isinstance(scheduler, StreamK) or isinstance(scheduler.order, Hilbert)):
            return "with StreamK or Hilbert a CTA does not know its first tile in advance: take l2_prefetch_stages=0"
        return None

    def _copies_problem(self) -> str | None:
        """The reason if threads cannot copy the operands in the way that `loads` says."""
        loads, operands, tile = self.loads, self.operands, self.tile
        if isinstance(loads, Loads):
            return None
        if isinstance(self.scheduler, Dynamic):
            return "the threads that copy operands must know their tiles in advance: take Static(), SplitK() or StreamK()"
        if isinstance(self.sums, BlockScaled):
            return "block scales need operands with tensor copies: take lines that begin at multiples of 16 bytes"
        for name, copies, major, extent in (("A", loads.a, operands.a_major, tile.BM), ("B", loads.b, operands.b_major, tile.BN)):
            lines = budget.copied_lines(copies)
            if major == "k" and extent % lines:
                return f"{copies} copies {lines} lines of {name} at a time, and a tile has {extent}: take a multiple"
        return None

    def _epilogue_problem(self, whole_spans: bool) -> str | None:
        if isinstance(self.store, Staged | Rows) and (not whole_spans or isinstance(self.scheduler, SplitK)):
            return "staged stores need rows of whole 32-byte spans, 16- or 32-bit results and a K that is not split: take Direct"
        activation = self.fusion.activation
        if isinstance(activation, str) and activation not in ACTIVATIONS:
            return f"activation is {', '.join(ACTIVATIONS)} or a function, not {activation!r}"
        return None

    def _budget_problem(self) -> str | None:
        """The reason if an SM does not have enough shared memory or registers."""
        if self.staged and (problem := budget.buffers_problem(self.buffers, self.schedule)):
            return problem
        if self.stages < 2 or self.stages > MAX_STAGES:
            fit = max(self.stages_that_fit, 0)
            return (f"a ring has 2 to {MAX_STAGES} stages, not {self.stages}" +
                    (f": {fit} of {self.stage_bytes:,} bytes fit, take a smaller tile" if fit < 2 else ""))
        if problem := self._promotion_problem():
            return problem
        sums = budget.accumulator_registers(self.tile, self.schedule, self.operands.accumulator)
        if (isinstance(self.scheduler, StreamK) and budget.promoted(self.sums) and self.warpgroups == 1
                and self.stages < MIN_UNROLLED_STAGES and sums > STREAM_K_SUMS):
            return (f"stream-K with {sums} registers of promoted sums in one mma warpgroup spills in a ring of {self.stages} stages: take "
                    f"{MIN_UNROLLED_STAGES}, or two warpgroups")
        if self.smem_bytes > SHARED_LIMIT:
            return (f"{self.stages} stages of {self.stage_bytes:,} bytes take {self.smem_bytes:,} of {SHARED_LIMIT:,} bytes; "
                    f"{self.stages_that_fit} fit")
        return budget.register_problem(self.tile, self.schedule, self.operands.accumulator, self.by_threads)


def _copies(copies: AsyncCopies | ElementCopies | ShiftedCopies) -> str:
    """In words."""
    if isinstance(copies, AsyncCopies):
        return f"cp.async of {copies.bytes} bytes"
    if isinstance(copies, ShiftedCopies):
        return f"shifts, {copies.ahead} stages held"
    return "elements across lines" if copies.across else "elements"


__all__ = ["OPERANDS", "RESULTS", "DenseConfig", "Operands", "Schedule", "Scheduler", "Store"]
