"""A dense product of operands that tensor copies cannot load: their lines do not begin at multiples of 16 bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxkit import Ptr, Reg, Ring, TensorMap, if_, kernel, role, span, tid
from ptxkit.idioms import prefetch_tensormaps
from ptxkit.ptx import mov, shfl
from ptxkit.smem import Tile as SharedTile
from ptxkit.types import f32, u32

from ..collective.atoms import ROWS, Mma
from ..collective.cluster import Cluster
from ..collective.copies import CopyProducer, LineCopy
from ..collective.epilogue import DirectStore, Edges, Fused, allocate_staging, elements_of, tile_store
from ..collective.epilogue_ops import PLAIN_SUM, Fusion, FusionArguments, FusionOperands, Strided
from ..collective.mainloop_promoted import MmaMainloop
from ..collective.ordered_barrier import OrderedSequence
from ..collective.pipeline import Pipeline
from ..collective.shifted_copies import ShiftedCopy
from ..collective.source import Source
from ..collective.split_k import ClusterReduction, SplitKStore
from ..collective.stream_k import RunReduction, StreamKStore
from ..collective.tiled import Multicast, TiledCopy, TiledMma
from ..collective.vector_scales import ScaledMma, VectorScales
from ..collective.warpgroups import loaded, mma_threads, producer_warpgroup, start
from ..config import budget
from ..config.dense import Operands
from ..config.parts import (
    Cooperative,
    CopiedLoads,
    Direct,
    Pingpong,
    ShiftedCopies,
    SplitK,
    Staged,
    Static,
    Store,
    StreamK,
    TensorCopies,
    Tile,
)
from ..scheduler.dense import tile_scheduler
from ..scheduler.work import TileDivmod
from .shape import Shape, stage_tiles


def _cluster(scheduler: Static | SplitK | StreamK) -> int:
    return scheduler.together if isinstance(scheduler, SplitK) else scheduler.cluster.size


@kernel(target="sm_90a", block=lambda config: budget.threads(config["schedule"]), cluster=lambda config: _cluster(config["scheduler"]))
def gemm_copied(a: TensorMap, b: TensorMap, d: TensorMap, shape: Shape, k: Reg[u32], a_source: Source, b_source: Source, out: Strided,
                workspace: Ptr[f32], counters: Ptr[u32], fused: FusionArguments, curve: Ptr[u32], divmod: TileDivmod, *,
                operands: Operands = Operands(), tile: Tile = Tile(128, 128, 64), stages: int = 4,
                schedule: Cooperative | Pingpong = Cooperative(2), scheduler: Static | SplitK | StreamK = Static(),
                store: Store = Direct(1), loads: CopiedLoads = CopiedLoads(), fusion: Fusion = PLAIN_SUM) -> None:
    """D[M, N] = fusion(A[M, K] B[K, N]) in tiles of BM x BN, stages of BK.

    Roles. Warpgroup 0 is the producer: all its threads copy A, B or both. If only one of them has to be copied, its first thread loads the
    other one by tensor copies, which CTAs of a cluster may share. The mma warpgroups multiply and store, as in `gemm` and `gemm_split_k`.
    All threads keep the registers that they have at entry, since the producer needs as many as the others.

    Arrivals of a phase. full[stage]: 1, arrive.expect_tx, if an operand has tensor copies; 128, each thread's once its cp.async have
    landed; 4, each warp's once its stores are made. empty[stage]: one thread of every warpgroup that reads the stage, in every CTA that
    this CTA's tensor copies reach. An mma warpgroup executes a proxy fence between the wait for a stage and its products. See also
    `OrderedSequence`, `ClusterReduction`, `WorkspaceReduction` and `RunReduction`.

    Order with other kernels: as in `gemm`.
    """
    pingpong, mma_warpgroups = isinstance(schedule, Pingpong), budget.warpgroups_of(schedule)
    cluster, splits = Cluster.of(scheduler), scheduler.splits if isinstance(scheduler, SplitK) and scheduler.reduce == "cluster" else 1
    atom = Mma(operands.a, operands.b, tile.BN, operands.accumulator)
    a_tile, b_tile = stage_tiles(operands, tile, stages)
    staging = allocate_staging(store, mma_warpgroups, tile.BN, operands.out)
    landing = ClusterReduction.allocate(splits, tile.BM, tile.BN) if splits > 1 else None
    maps = [tensormap for tensormap, copies in ((a, loads.a), (b, loads.b)) if isinstance(copies, TensorCopies)]
    pipeline = Pipeline(stages, 1 if pingpong else mma_warpgroups, cluster, by_threads=True, tensor_copies=bool(maps),
                        copying_lanes=budget.copying_arrivals(loads.a, loads.b, size=operands.a.bits // 8))
    turns = OrderedSequence.allocate() if pingpong else None

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 5, 0, 31, 0xFFFFFFFF) >> 2      # uniform across the warp, and ptxas can see it
    with if_(thread == 0):
        prefetch_tensormaps(*maps, *([d] if isinstance(store, Staged) else []))
        pipeline.init(*([(turns, OrderedSequence.ARRIVALS)] if turns is not None else []),
                      *([(landing.landed, 1)] if landing is not None else []))
    tiles = tile_scheduler(scheduler, shape.extents(divmod, operands.batched), curve)
    start(cluster.size > 1 or splits > 1, scheduler.overlap)

    with producer_warpgroup(thread, mma_warpgroups, keep=True):
        role("producer")
        def copy(tensormap: TensorMap, smem: SharedTile[Any], copies: Any, source: Source, extent: Reg[u32],
                 shared: Callable[[], Multicast], name: str) -> TiledCopy | LineCopy | ShiftedCopy:
            if isinstance(copies, TensorCopies):
                return TiledCopy(tensormap, smem, shared())
            lines, inner = (extent, k) if smem.layout.major == "k" else (k, extent)
            if isinstance(copies, ShiftedCopies):
                return ShiftedCopy(copies, smem, source, lines, inner, thread, name)
            return LineCopy(copies, smem, source, lines, inner, thread)

        producer = CopyProducer(pipeline, copy(a, a_tile, loads.a, a_source, shape.m, cluster.of_a, "a"),
                                copy(b, b_tile, loads.b, b_source, shape.n, cluster.of_b, "b"), thread, Ring(stages))
        with tiles.work() as work:
            producer.load(work, work.m * tile.BM, work.n * tile.BN)
        loaded(scheduler.overlap)
        producer.tail()

    with mma_threads(thread, warpgroup, mma_warpgroups, budget.m64_blocks(tile, schedule), schedule, keep=True) as mma_thread:
        mma = TiledMma(atom, mma_thread.m64_blocks, mma_thread.first_row)
        scales_when = budget.when_scales_are_read(tile, schedule, operands.accumulator, copying=True, split=isinstance(scheduler, SplitK))
        vectors = VectorScales.of(fusion, fused, mma_thread, tile.BN, shape.m, shape.n, scales_when)
        epilogue = Fused(ScaledMma.of(atom, vectors), fusion, FusionOperands.of(fusion, fused), Edges(shape.m, shape.n), mma_thread.row,
                         mma_thread.column, elements_of(store))
        to_d = tile_store(store, staging, d, out.of(operands.out), mma_thread, epilogue, together=not pingpong)
        mainloop = MmaMainloop(budget.sums_of(schedule), pipeline, mma, a_tile, b_tile, mma_thread, mma_warpgroups=mma_warpgroups,
                               in_parts=not isinstance(scheduler, Static))
        order = OrderedSequence(turns, mma_thread.warpgroup, mma_thread.lane) if turns is not None else None
        parts: SplitKStore | StreamKStore | None = None
        if isinstance(scheduler, StreamK):
            runs = RunReduction(workspace, counters, tile.BM // ROWS, tile.BN // 8, 1 if pingpong else mma_warpgroups, cluster.size)
            parts = StreamKStore(runs, to_d, mma_thread, tile.BN)
        elif isinstance(scheduler, SplitK):
            assert isinstance(to_d, DirectStore)
            parts = SplitKStore(scheduler, atom, to_d, epilogue.edges, vectors, mma_thread, tile.BM, tile.BN, mma_warpgroups, landing,
                                workspace, counters, budget.mma_registers(schedule, copying=True))
            parts.begin()
        turn, turns_of = (mma_thread.warpgroup, 2) if pingpong else (0, 1)
        if pingpong and parts is None:
            mainloop.position.skip(mma_thread.warpgroup * shape.k_tiles)
        with tiles.work(turn=turn, turns=turns_of, skip=mainloop.position.skip) as work, span("tile"):
            row, column = work.m * tile.BM, work.n * tile.BN
            row = mma_thread.tile_row(row)
            with vectors.read(row, column):
                mainloop.run(work, column, order)
            if pingpong and parts is None:
                mainloop.position.skip(shape.k_tiles)
            if parts is None:
                with span("store"):
                    to_d.tile(mainloop.total, row, column, tile.BN, work.batch)
            else:
                parts.tile(mainloop.total, work, row, column)
        to_d.tail() if parts is None else parts.tail()
        mainloop.tail()


__all__ = ["gemm_copied"]
