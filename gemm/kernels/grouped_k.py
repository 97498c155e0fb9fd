"""A grouped product with groups along K: D[group] = A[start:end]^T B[start:end] for every group, the gradient of grouped weights."""

from __future__ import annotations

from contextlib import nullcontext

from ptxkit import Ptr, Ring, TensorMap, if_, kernel, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.idioms import cluster_start, elect, prefetch_tensormaps
from ptxkit.ptx import bar, griddepcontrol, mov, shfl
from ptxkit.types import u32

from ..collective.atoms import Mma
from ..collective.cluster import Cluster
from ..collective.depth_producer import DepthProducer
from ..collective.epilogue import PlainSums, allocate_staging, sums_store
from ..collective.mainloop_promoted import MmaMainloop
from ..collective.ordered_barrier import OrderedSequence
from ..collective.part_sums import PartSums
from ..collective.pipeline import Pipeline
from ..collective.tiled import TiledCopy, TiledMma
from ..collective.warpgroups import loaded, mma_threads, producer_warpgroup
from ..config import budget
from ..config.grouped_k import DynamicDepths, OperandsAlongK, StaticDepths
from ..config.parts import Cooperative, Pingpong, Staged, Tile
from ..scheduler.dynamic import ClusterDynamicScheduler, DynamicScheduler
from ..scheduler.group_table import GroupTable
from ..scheduler.grouped_k import DepthScheduler, GroupsAlongK
from ..scheduler.persistent import PersistentLoop
from ..scheduler.tile_order import TileOrder

TABLE_WARP = 1


@kernel(target="sm_90a", block=lambda config: budget.threads(config["schedule"]),
        cluster=lambda config: config["scheduler"].cluster.size)
def group_gemm_k(a: TensorMap, b: TensorMap, d: TensorMap, groups: GroupsAlongK, workspace: Ptr[u32], *,
                 operands: OperandsAlongK = OperandsAlongK(), tile: Tile = Tile(128, 256, 64), stages: int = 3,
                 schedule: Cooperative | Pingpong = Cooperative(2), scheduler: StaticDepths | DynamicDepths = StaticDepths(),
                 store: Staged = Staged(2), share: bool = False) -> None:
    """D [groups, M, N] in tiles of BM x BN, stages of BK rows of A [rows, M] and B [rows, N].

    Roles. Warpgroup 0 is the producer: one thread fills the ring with tensor copies. Its warp 1 reads the lengths first. Cooperative: the
    mma warpgroups share a tile, multiply and store. Pingpong: they take turns, and each has a whole tile; both see every tile, since each
    has a number of stages of its own, by which the other warpgroup moves on in the ring. `DepthScheduler` describes how every role finds
    its work tiles, `DepthProducer` how a group's last stage ends.

    Arrivals of a phase. full[stage]: 1, the producer's arrive.expect_tx. empty[stage]: one thread of each mma warpgroup that reads the
    stage (of one with pingpong), in every CTA that shares an operand with this one. See also `OrderedSequence` and `DynamicScheduler`.

    If CTAs `share` tiles, those of long groups have parts, and `PartSums` adds them up in the workspace, which begins with the counters of
    a dynamic scheduler and those of shared tiles.

    With `operands.accumulate` the tensor copies that store a tile add it to D. Each element gets one addition, so the bits do not depend
    on the order of tiles. Tiles of empty groups are skipped then.
    """
    pingpong, mma_warpgroups = isinstance(schedule, Pingpong), budget.warpgroups_of(schedule)
    cluster = Cluster(scheduler.cluster.m, scheduler.cluster.n)
    atom = Mma(operands.source, operands.source, tile.BN)
    a_tile, b_tile = (smem.tile(operands.source, (stages, lines, tile.BK), major="mn", name=name)
                      for lines, name in ((tile.BM, "A"), (tile.BN, "B")))
    staging = allocate_staging(store, mma_warpgroups, tile.BN, operands.out)
    pipeline = Pipeline(stages, 1 if pingpong else mma_warpgroups, cluster)
    turns = OrderedSequence.allocate() if pingpong else None
    dynamic = None
    if isinstance(scheduler, DynamicDepths):
        dynamic = DynamicScheduler(workspace, 4 * mma_warpgroups) if cluster.size == 1 else \
            ClusterDynamicScheduler(workspace, 4 * mma_warpgroups, size=cluster.size)
    tiles = DepthScheduler(groups, GroupTable(operands.max_groups, longest_first=True), TileOrder(scheduler.order, scheduler.cluster),
                           PersistentLoop(cluster.size > 1, dynamic), tile.BK, operands.accumulate,
                           DepthScheduler.allocate_shared() if share else None)

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)           # uniform across the warp, and ptxas can see it
    with if_(thread == 0):
        prefetch_tensormaps(a, b, d)
        pipeline.init(*([(turns, OrderedSequence.ARRIVALS)] if turns is not None else []), *(dynamic.counts if dynamic is not None else ()))
    griddepcontrol.wait()
    if scheduler.overlap == "start":
        griddepcontrol.launch_dependents()
    with if_((thread >> 5) == TABLE_WARP):
        tiles.read()
    if cluster.size > 1:
        cluster_start(own=True)
    else:
        bar.sync(0)

    with producer_warpgroup(thread, mma_warpgroups), if_(thread < 32), if_(elect()):
        role("producer")
        producer = DepthProducer(pipeline, TiledCopy(a, a_tile, cluster.of_a()), TiledCopy(b, b_tile, cluster.of_b()), Ring(stages))
        with tiles.work(draws=True) as work:
            producer.load_group(work, work.m * tile.BM, work.n * tile.BN)
        loaded(scheduler.overlap)
        producer.tail()

    with mma_threads(thread, warpgroup, mma_warpgroups, budget.m64_blocks(tile, schedule), schedule) as mma_thread:
        mma = TiledMma(atom, mma_thread.m64_blocks, mma_thread.first_row)
        to_d = sums_store(staging, d, mma_thread, PlainSums(atom), store.buffers, adds=operands.accumulate, together=not pingpong)
        mainloop = MmaMainloop(budget.sums_of(schedule), pipeline, mma, a_tile, b_tile, mma_thread, mma_warpgroups=mma_warpgroups)
        order = OrderedSequence(turns, mma_thread.warpgroup, mma_thread.lane) if turns is not None else None
        turn = mov.u32(0) if pingpong else None
        parts = PartSums.of(workspace, tile, cluster.size, 1 if pingpong else mma_warpgroups) if share else None
        with tiles.work() as work, span("tile"):
            with if_(turn == mma_thread.warpgroup) if turn is not None else nullcontext():
                row, column = mma_thread.tile_row(work.m * tile.BM), work.n * tile.BN
                mainloop.run(work, column, order)
                with span("store"), if_(parts.whole(tiles, work, mainloop.total, mma_thread)) if parts is not None else nullcontext():
                    to_d.tile(mainloop.total, row, column, tile.BN, work.group)
            if turn is not None:
                with else_():
                    mainloop.position.skip(work.stages)
                mov.u32(turn, turn ^ 1)
        to_d.tail()
        mainloop.tail()


__all__ = ["group_gemm_k"]
