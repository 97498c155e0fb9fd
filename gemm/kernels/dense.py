"""Layer 4, the kernel: D = A B, one persistent, warp-specialised kernel out of a mainloop, an epilogue, a scheduler and warp roles."""

from __future__ import annotations

from typing import Any, Literal

from ptxkit import Ptr, Reg, Ring, TensorMap, if_, kernel, laneid, smem, tid
from ptxkit.flow import else_
from ptxkit.idioms import cluster_start, elect, prefetch_tensormaps
from ptxkit.layout import Major
from ptxkit.ptx import bar, createpolicy, griddepcontrol, mov, setmaxnreg, shfl
from ptxkit.types import Scalar, b8, bf16, f32, u32, u64

from ..collective.atoms import ROWS, WARPGROUP, Mma
from ..collective.epilogue import DirectStore, Edges, Fused, StagedStore, span_bytes
from ..collective.epilogue_ops import PLAIN_SUM, Fusion, Matrix, Operands
from ..collective.mainloop import Cluster, Consumer, Pipeline, Producer, Stagger, Turn, clear_lines, sums_of, yields
from ..collective.registers import RegisterConsumer, Rows
from ..collective.scale_factors import Reader, ScaleLines, ScaleRing
from ..collective.split_k import ClusterReduction, WorkspaceReduction
from ..collective.stream_k import RunReduction
from ..collective.thread_scales import BLOCK, ScaleArray
from ..collective.tiled import Shares, TiledCopy, TiledMma
from ..scheduler.dynamic import Tickets
from ..scheduler.static import Extents, Inverses, Raster, Schedule

# Registers a thread of the producer and of the consumers, by consumer warpgroups: 128 * (p + consumers * c) fits what the CTA has at
# entry. One consumer needs no setmaxnreg: 256 threads have 255 each.
REGISTERS = {2: (40, 232), 3: (32, 160)}


def _cluster(config: Any) -> int:
    return int(config["CLUSTER_M"] * config["CLUSTER_N"]) * (config["SPLITS"] if config["REDUCE"] == "cluster" else 1)


@kernel(target="sm_90a", block=lambda config: WARPGROUP * (1 + config["CONSUMERS"]), cluster=_cluster, directives=yields)
def gemm(a: TensorMap, b: TensorMap, d: TensorMap, s: TensorMap, m: Reg[u32], n: Reg[u32], m_tiles: Reg[u32], n_tiles: Reg[u32],
         k_tiles: Reg[u32], batches: Reg[u32], out: Ptr[b8], out_row: Reg[u32], out_batch: Reg[u64], workspace: Ptr[f32],
         counters: Ptr[u32], alpha: Reg[f32], beta: Reg[f32], c: Ptr[b8], c_row: Reg[u32], c_batch: Reg[u64], bias: Ptr[b8],
         residual: Ptr[b8], residual_row: Reg[u32], residual_batch: Reg[u64], a_scale: Ptr[f32], a_scale_m: Reg[u32],
         a_scale_k: Reg[u32], b_scale: Ptr[f32], b_scale_n: Reg[u32], b_scale_k: Reg[u32], curve: Ptr[u32], of_line: Reg[u32],
         of_panel: Reg[u32], of_batch: Reg[u32], *,
         A: type[Scalar] = bf16, B: type[Scalar] = bf16, OUT: type[Scalar] = bf16, ACCUMULATOR: type[Scalar] = f32,
         A_MAJOR: Major = "k", B_MAJOR: Major = "k", BM: int = 128, BN: int = 256, BK: int = 64, A_ROWS: int = 0, STAGES: int = 4,
         CONSUMERS: int = 2, PINGPONG: bool = False, CLUSTER_M: int = 2, CLUSTER_N: int = 1,
         MULTICAST: Literal["split", "leader"] = "split", SPLITS: int = 1, REDUCE: Literal["cluster", "workspace"] = "cluster",
         GROUP: int = 8, RASTER: Raster = "along_m", SERPENTINE: bool = False, TICKET: bool = False, STREAM_K: bool = False,
         A_REGISTERS: bool = False, STORE: Literal["staged", "direct"] = "staged", BUFFERS: int = 2, PROMOTE: bool = False,
         OVERLAP: bool = False, STAGGER: bool = False, BLOCK_SCALES: bool = False, SCALE_MAP: bool = False, SCALE_BULK: bool = False,
         BATCHED: bool = False, STREAM_B: bool = False, AHEAD: int = 0, FUSION: Fusion = PLAIN_SUM) -> None:
    """D[M, N] = A[M, K] B[K, N] in tiles of BM x BN, stages of BK.

    Roles. Warpgroup 0 is the producer: one lane of its first warp issues every load. Each further warpgroup consumes: together they
    multiply one tile, BM / CONSUMERS rows each (cooperative), or each a tile of its own, taking turns (pingpong).

    Arrivals a phase. full[stage]: 1, the producer's arrive.expect_tx of the whole stage. empty[stage]: one thread of every warpgroup
    that reads the stage (one when they take turns), in every CTA that this CTA's copies reach. See also `Turn`, `ClusterReduction`,
    `RunReduction`, `Tickets`.

    of_line, of_panel and of_batch are `Inverses`, from which every role finds its tiles.

    Ring. Stage and parity run on from tile to tile, so that the producer loads the next tile while the consumers store this one.

    Order with other kernels: nothing is read or written before griddepcontrol.wait, so that a launch with programmatic stream
    serialization may begin while the kernel before it ends. Of B each CTA brings its first AHEAD stages into the L2 before that: what is
    written to them afterwards is written there.
    """
    cluster = Cluster(CLUSTER_M, CLUSTER_N, MULTICAST == "leader")
    in_cluster = SPLITS > 1 and REDUCE == "cluster"
    slabs = BM // ROWS if PINGPONG else BM // ROWS // CONSUMERS
    mma_atom = Mma(A, B, BN, ACCUMULATOR)
    a_tile = smem.tile(A, (STAGES, BM, BK), major=A_MAJOR, name="A")
    b_tile = smem.tile(B, (STAGES, BN, BK), major=B_MAJOR, name="B")
    staging = None
    if STORE == "staged":
        span = span_bytes(BN, OUT)
        shape = (CONSUMERS * BUFFERS, ROWS, span * 8 // OUT.bits)
        staging = smem.tile(OUT, shape, swizzle=span, name="D staging")
    reduction = ClusterReduction.allocate(SPLITS, BM, BN) if in_cluster else None
    ring = None
    if BLOCK_SCALES:
        a_scales = ScaleArray(a_scale, a_scale_m, a_scale_k)
        ring = ScaleRing(ScaleLines.allocate(a_scales, BM, 1, STAGES, "scales of A", s if SCALE_MAP else None),
                         ScaleLines.allocate(ScaleArray(b_scale, b_scale_n, b_scale_k), BN, BLOCK, STAGES, "scales of B", bulk=SCALE_BULK))
    pipeline = Pipeline(STAGES, 1 if PINGPONG else CONSUMERS, cluster, scales=ring, loads=A_REGISTERS)
    order = smem.mbarrier(2, name="order") if PINGPONG else None
    tickets = Tickets(counters, 4 * CONSUMERS + pipeline.copied) if TICKET else None

    thread = mov.u32(tid.x)
    warp = shfl.sync.idx.b32(thread >> 5, 0, 31, 0xFFFFFFFF)        # the same in all lanes, and ptxas can see it
    warpgroup = warp >> 2
    with if_(thread == 0):
        prefetch_tensormaps(a, b, *([d] if staging is not None else []), *([s] if SCALE_MAP else []))
        pipeline.init(*([(order, Turn.ARRIVALS)] if order is not None else []), *([(reduction.landed, 1)] if reduction is not None else []),
                      *(tickets.counts if tickets is not None else ()))
    schedule = Schedule(GROUP, RASTER, SERPENTINE, CLUSTER_M, CLUSTER_N, SPLITS, in_cluster, curve if RASTER == "hilbert" else None,
                        tickets, STREAM_K)
    extents = Extents(m_tiles, n_tiles, k_tiles, Inverses(of_line, of_panel, of_batch), batches if BATCHED else None)
    begins_at = None
    if AHEAD:
        first, begins_at = schedule.begins_at(extents)
        with if_(thread == 2 * 32):
            ahead = TiledCopy(b, b_tile, cluster.b_shares())
            for stage in range(AHEAD):
                ahead.prefetch(first.n * BN, (first.first + stage) * BK, *([first.batch] if BATCHED else []))
    if cluster.size > 1 or in_cluster:
        cluster_start()
    else:
        bar.sync(0)
    griddepcontrol.wait()
    griddepcontrol.launch_dependents()

    with if_(thread < WARPGROUP):
        if CONSUMERS in REGISTERS:
            setmaxnreg.dec.sync.aligned.u32(REGISTERS[CONSUMERS][0])
        with if_(thread < 32), if_(elect()):
            policy = createpolicy.fractional.L2__evict_first.b64() if STREAM_B else None
            producer = Producer(pipeline, TiledCopy(a, a_tile, cluster.a_shares(), lines=A_ROWS),
                                TiledCopy(b, b_tile, cluster.b_shares(), policy), Ring(STAGES))
            with schedule.work(extents, draws=True, first=begins_at) as work:
                producer.load(work, work.m * BM, work.n * BN, *([work.batch] if BATCHED else []), scales=ring, columns=n)
            producer.drain()
        if ring is not None and pipeline.copied:
            with if_(warp == 1):
                lane = mov.u32(laneid)
                copier = Producer(pipeline, TiledCopy(a, a_tile, Shares()), TiledCopy(b, b_tile, Shares()), Ring(STAGES))
                with schedule.work(extents) as work:
                    ring.m.begin(work.m * BM, m, lane, work.first)
                    ring.n.begin(work.n * BN, n, lane, work.first)
                    copier.copy_scales(ring, work, lane)

    with else_():
        if CONSUMERS in REGISTERS:
            setmaxnreg.inc.sync.aligned.u32(REGISTERS[CONSUMERS][1])
        index = warpgroup - 1
        thread = thread & (WARPGROUP - 1)
        lane = mov.u32(laneid)
        lane_row, lane_column = (thread >> 5) * 16 + (lane >> 2), (lane & 3) * 2
        first_slab: Reg[u32] | int = 0 if PINGPONG or CONSUMERS == 1 else index * slabs
        mma = TiledMma(mma_atom, slabs, 0 if isinstance(first_slab, int) else first_slab * ROWS)
        operands = Operands(alpha, beta, Matrix(c, FUSION.c, c_row, c_batch) if FUSION.c else None, bias if FUSION.bias else None,
                            Matrix(residual, FUSION.residual, residual_row, residual_batch) if FUSION.residual else None,
                            (a_scale, b_scale) if FUSION.scale else None)
        operands.read_scales(FUSION)
        fused = Fused(mma_atom, FUSION, operands, Edges(m, n), lane_row, lane_column)
        direct = DirectStore(Matrix(out, OUT, out_row, out_batch), fused)
        store = StagedStore(staging, d, index, thread, fused, buffers=BUFFERS, together=not PINGPONG) if staging is not None else direct
        if A_REGISTERS:
            consumer: Consumer = RegisterConsumer(pipeline, mma, a_tile, b_tile, Ring(STAGES), thread, Rows(a_tile, mma.rows, thread))
        else:
            consumer = Consumer(pipeline, mma, a_tile, b_tile, Ring(STAGES), thread)
        if A_ROWS:
            clear_lines(a_tile, A_ROWS, thread)
        acc, total = sums_of(mma, PROMOTE)
        in_tile = lane_row if isinstance(first_slab, int) else first_slab * ROWS + lane_row
        reader = Reader.of(ring, slabs, in_tile, lane_column, STAGES, SPLITS > 1 or STREAM_K)
        second = mma.fragments() if OVERLAP else None
        stagger = Stagger(index, CONSUMERS) if STAGGER else None
        turn = Turn(order, index, lane) if order is not None else None
        if reduction is not None:
            reduction.expect((thread == 0) & (index == 0), BN)
        if PINGPONG and not STREAM_K:
            consumer.position.skip(index * k_tiles)
        runs = RunReduction(workspace, counters, BM // ROWS, BN // 8, 1 if PINGPONG else CONSUMERS, cluster.size)
        with schedule.work(extents, turn=index if PINGPONG else 0, turns=2 if PINGPONG else 1, skip=consumer.position.skip) as work:
            row, column = work.m * BM, work.n * BN
            if not isinstance(first_slab, int):
                row = row + first_slab * ROWS
            if PROMOTE:
                reader.begin(column, work.first)
                if second is not None:
                    consumer.multiply_overlapped((acc, second), total, work.stages, reader)
                else:
                    consumer.multiply_promoted(acc, total, work.stages, reader, stagger)
            else:
                consumer.multiply(acc, work.stages, turn)
            if PINGPONG and not STREAM_K:
                consumer.position.skip(k_tiles)
            slab = mov.u32(0) if isinstance(first_slab, int) else first_slab
            if reduction is not None:
                reduction.store(mma_atom, total, slab, thread, direct, row, column, BN)
            elif SPLITS > 1:
                assert work.split is not None
                shared = WorkspaceReduction(workspace, counters, SPLITS, BM // ROWS, CONSUMERS)
                shared.store(mma_atom, total, slab, thread, direct, row, column, BN, tile=work.tile, split=work.split, consumer=index,
                             batch=work.batch)
            elif work.part is not None:
                with if_(work.part.first != 0):
                    runs.hand_over(work.part, total, slab, thread, index)
                with else_():
                    with if_(work.part.rest != 0):
                        runs.collect(work.part, work.tile, total, slab, thread, index)
                    store.tile(total, row, column, BN, work.batch)
            else:
                store.tile(total, row, column, BN, work.batch)
        store.drain()
        if stagger is not None:
            stagger.end()


__all__ = ["REGISTERS", "gemm"]
