"""The kernel: Y[start:end] = X[start:end] W[group]^T for every group, out of the same layers as the dense product."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ptxkit import Ptr, Reg, Ring, TensorMap, if_, kernel, laneid, smem, tid
from ptxkit.flow import else_
from ptxkit.idioms import cluster_start, elect, prefetch_tensormaps
from ptxkit.ptx import add, bar, createpolicy, griddepcontrol, ld, mov, mul, ret, setmaxnreg, shfl
from ptxkit.ptx import min as min_
from ptxkit.types import Scalar, b8, bf16, f32, u32, u64

from ..collective.atoms import ROWS, WARPGROUP, Mma
from ..collective.epilogue import DirectStore, Edges, Fused, StagedStore, span_bytes
from ..collective.epilogue_groups import RaggedStore, UpdatedStore, WholeOrPart
from ..collective.epilogue_ops import Fusion, Matrix, Operands
from ..collective.epilogue_quantize import QuantisedStore, passes
from ..collective.epilogue_swap_ab import TokenScales, TransposedStore
from ..collective.gated import GatedCopy, GatedMma, GatedScales, GatedTokenScales, GatedTransposedStore
from ..collective.mainloop import Cluster, Consumer, Pipeline, Producer, Stagger, Turn, parts_of_sums, sums_of, yields
from ..collective.scale_factors import Reader, ScaleLines, ScaleRing
from ..collective.tensormaps import COUNTER_WORDS, TICKET_WORDS, acquire, map_of, maps_of
from ..collective.thread_scales import BLOCK, ScaleArray, Scales
from ..collective.tiled import Pieces, Shares, TiledCopy, TiledMma
from ..scheduler.dynamic import ClusterTickets, Tickets
from ..scheduler.fast_divmod import SmallInverses
from ..scheduler.group_table import GroupTable
from ..scheduler.grouped import GroupSchedule, Layout, Order, Tails
from ..scheduler.static import Raster, Schedule
from ..scheduler.two_kernels import Choice
from .dense import REGISTERS


@kernel(target="sm_90a", block=lambda config: WARPGROUP * (1 + config["CONSUMERS"]),
        cluster=lambda config: config["CLUSTER_M"] * config["CLUSTER_N"], directives=yields)
def group_gemm(x: TensorMap, w: TensorMap, y: TensorMap, s: TensorMap, x_rest: TensorMap, lengths: Ptr[u32], groups: Reg[u32],
               rows: Reg[u32], pitch: Reg[u32], n: Reg[u32], weight_tiles: Reg[u32], k_tiles: Reg[u32], out: Ptr[b8], out_row: Reg[u32],
               out_batch: Reg[u64],
               x_scale: Ptr[f32], x_scale_m: Reg[u32], x_scale_k: Reg[u32], w_scale: Ptr[f32], w_scale_group: Reg[u32],
               w_scale_n: Reg[u32], w_scale_k: Reg[u32], out_scale: Ptr[f32], out_scale_m: Reg[u32], out_scale_n: Reg[u32],
               of_weights: Reg[u32], workspace: Ptr[u32], *,
               X: type[Scalar] = bf16, W: type[Scalar] = bf16, OUT: type[Scalar] = bf16, BM: int = 128, BN: int = 256, BK: int = 64,
               STAGES: int = 4, CONSUMERS: int = 2, PINGPONG: bool = False, CLUSTER_M: int = 1, CLUSTER_N: int = 1, GROUP: int = 8,
               RASTER: Raster = "along_m", SERPENTINE: bool = False, STORE: str = "staged", BUFFERS: int = 2, PROMOTE: bool = False,
               BLOCK_SCALES: bool = False, SCALED: bool = False, TRANSPOSED: bool = False, GATED: bool = False, GROUPS: int = 128,
               LAYOUT: Layout = "offsets", ORDER: Order = "linear", STREAM_W: bool = False, TAILS: Tails = "ragged", RING: bool = False,
               SCALE_MAP: bool = False, SCALE_BULK: bool = False, OVERLAP: bool = False, STAGGER: bool = False,
               EVEN: int = 0, PIECE: int = 0, REST: int = 0, KEPT: int = 0, STEP: int = 0, LONGEST_FIRST: bool = False,
               FROM_END: int = 0, AHEAD: int = 0, CHOICE: Choice | None = None) -> None:
    """Y [M, N] in tiles of BM x BN (TRANSPOSED: Y^T, the tokens being columns), stages of BK.

    Warpgroup 0 is the producer: one thread fills the ring with tensor copies. The others multiply and store, each its own slabs of a
    tile or (PINGPONG) each its own tile. Before that warp 1 reads the groups' lengths and leaves the table of tiles in shared memory,
    from which every role finds its work by itself; what it divides by has its inverse from warp 3, or from the host (`of_weights`, see
    `GroupSchedule`).

    full[stage]: 1, the producer's arrive.expect_tx. empty[stage]: one thread of each warpgroup that reads the stage, in every CTA
    that shares an operand with this one. order[w] (PINGPONG): 4, see `Turn`.

    A tile reads the rows that follow its group's last one, and drops them: stores end with the group (TAILS), and a warpgroup that has no
    row of the group releases the stages without multiplying, nor are rows loaded for it (PIECE: the rows of each copy; REST: those of each
    copy, by the map `x_rest`, of a warpgroup's rows that are not all there, see `Pieces`). EVEN: a group's tiles share its rows evenly, by
    so many. STEP (TRANSPOSED): of a tile's columns those are multiplied that are tokens, rounded up
    to it. LONGEST_FIRST: the order of the groups is that of their lengths. FROM_END: so many CTAs draw their tickets from the last unit on.
    STREAM_W: weights of groups that have one tile of tokens are evict-first. AHEAD: before it knows the lengths a CTA brings so many stages
    of the weights into the L2 that are its first ones if every group has one tile of tokens.
    OUT of 8 bits is quantised: every 128 columns of a row get a scale of their own in `out_scale`, and a CTA works on as many tiles next
    to each other as make up 128 columns; KEPT are bytes of shared memory for what it keeps of one until it has the next.

    Of groups with matrices of their own (LAYOUT "pointers") the maps lie in `workspace`; where tiles are stored without one, `out` [groups]
    are the addresses of Y, and `lengths` has their columns.

    With a CHOICE some groups, or all, are those of another kernel with another tile.

    griddepcontrol.wait stands before the first access to global memory, as in the dense kernel; AHEAD brings lines into the L2 before it,
    which nobody has read then. Only the second kernel of a choice has it at its end: the first one has waited for whoever wrote what both
    read before it let this one begin, and they write rows of different groups. So its CTAs begin where those of the first have none left,
    and whoever waits for the second has waited for both.
    """
    is_second = CHOICE is not None and not CHOICE.is_first
    cluster = Cluster(CLUSTER_M, CLUSTER_N)
    tokens_of_unit = BN * CLUSTER_N if TRANSPOSED else BM * CLUSTER_M
    slabs = BM // ROWS if PINGPONG else BM // ROWS // CONSUMERS
    mma_atom = Mma(W, X, BN) if TRANSPOSED else Mma(X, W, BN)
    a_tile = smem.tile(mma_atom.a, (STAGES, BM, BK), name="A")
    b_tile = smem.tile(mma_atom.b, (STAGES, BN, BK), name="B")
    stored_columns = BN // 2 if GATED and not TRANSPOSED else BN
    tiles_in_turn = passes(stored_columns) if OUT.bits == 8 else 1
    features = (BM // 2 if GATED else BM) if TRANSPOSED else stored_columns * tiles_in_turn
    staging = None
    if STORE == "staged":
        span = span_bytes(stored_columns, OUT)
        staging = smem.tile(OUT, (CONSUMERS * BUFFERS, ROWS, span * 8 // OUT.bits), swizzle=span, name="Y staging")
    kept = smem.array(f32, KEPT // 4, name="kept for the next tile") if KEPT else None
    x_scales, w_scales = ScaleArray(x_scale, x_scale_m, x_scale_k), ScaleArray(w_scale, w_scale_n, w_scale_k)
    ring = None
    if RING:
        ring = ScaleRing(ScaleLines.allocate(x_scales, BM, 1, STAGES, "scales of X", s if SCALE_MAP else None, anywhere=SCALE_MAP),
                         ScaleLines.allocate(w_scales, BN, BLOCK, STAGES, "scales of W", bulk=SCALE_BULK, halves=1 + GATED))
    pipeline = Pipeline(STAGES, 1 if PINGPONG else CONSUMERS, cluster, scales=ring)
    order = smem.mbarrier(2, name="order") if PINGPONG else None
    table = GroupTable(GROUPS, LAYOUT, LONGEST_FIRST) if LAYOUT != "rows" else None
    tickets = None
    if ORDER == "ticket":
        readers = CONSUMERS * 4 + pipeline.copied
        counter = workspace + COUNTER_WORDS if is_second else workspace
        tickets = Tickets(counter, readers, FROM_END) if cluster.size == 1 else \
            ClusterTickets(counter, readers, FROM_END, size=cluster.size)

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)   # the same in all lanes, and ptxas can see it
    with if_(thread == 0):
        if LAYOUT != "pointers":
            prefetch_tensormaps(x, w, *([y] if staging is not None and TAILS != "updated" else []))
        pipeline.init(*([(order, Turn.ARRIVALS)] if order is not None else []), *(tickets.counts if tickets is not None else ()))
    inverses = SmallInverses()
    schedule = GroupSchedule(Schedule(GROUP, RASTER, SERPENTINE, CLUSTER_M, CLUSTER_N, tickets=tickets), ORDER, BN if TRANSPOSED else BM,
                             inverses, of_weights, TRANSPOSED, EVEN)
    with if_((thread >> 5) == 3):
        inverses.make(thread & 31)
    if AHEAD:
        with if_(thread == 2 * 32):
            group, of_group = schedule.expected(groups, weight_tiles)
            ahead, line = _copy_of_weights(w, a_tile if TRANSPOSED else b_tile, Shares(), TRANSPOSED, GATED), of_group * features
            for stage in range(AHEAD):
                ahead.prefetch(line, stage * BK, group)
    if not is_second:
        griddepcontrol.wait()
        griddepcontrol.launch_dependents()
    if table is not None:
        with if_((thread >> 5) == 1):
            if TAILS == "updated":
                table.load(workspace + TICKET_WORDS, thread & 31)
            else:
                table.scan(lengths, groups, rows, tokens_of_unit, LAYOUT, pitch, choice=CHOICE, n=n)
    if is_second:
        griddepcontrol.launch_dependents()
    if cluster.size > 1:
        cluster_start(own=True)
    else:
        bar.sync(0)
    if table is not None and CHOICE is not None:
        nothing = ld.shared__cta.u32(table.before.at(GROUPS)) == 0
        if is_second:
            with if_(nothing):
                griddepcontrol.wait()
        ret(pred=nothing)

    def pieces(**role: Any) -> Any:
        """The loop over this CTA's work in one role."""
        if table is None:
            return schedule.work_of_rows(lengths, rows, weight_tiles, k_tiles, **role)
        return schedule.work(table, weight_tiles, k_tiles, **role)

    with if_(thread < WARPGROUP):
        if CONSUMERS in REGISTERS:
            setmaxnreg.dec.sync.aligned.u32(REGISTERS[CONSUMERS][0])
        with if_(thread < 32), if_(elect()):
            policy = createpolicy.fractional.L2__evict_first.b64() if STREAM_W else None
            streams = mov.pred(False) if STREAM_W else None
            tiles, shares = (a_tile, b_tile), (cluster.a_shares(), cluster.b_shares())
            of_w = 0 if TRANSPOSED else 1
            x_map: Any = Ptr(mov.u64(0), u32) if LAYOUT == "pointers" else x
            w_map: Any = Ptr(mov.u64(0), u32) if LAYOUT == "pointers" else w
            wanted = Pieces(mov.u32(0), PIECE, REST, x_rest) if PIECE else None
            tokens = TiledCopy(x_map, tiles[1 - of_w], shares[1 - of_w], pieces=wanted)
            weights = _copy_of_weights(w_map, tiles[of_w], shares[of_w], TRANSPOSED, GATED, policy, streams)
            producer = Producer(pipeline, *((weights, tokens) if TRANSPOSED else (tokens, weights)), Ring(STAGES))
            last = mov.u32(0xFFFF_FFFF)
            with pieces(draws=True) as work:
                if streams is not None:                         # what another tile of tokens needs too is kept
                    mov.pred(streams, work.end - work.start <= tokens_of_unit)
                if wanted is not None:
                    mov.u32(wanted.count, work.until - min_.u32(work.row, work.until))
                if LAYOUT == "pointers":
                    for which, map_ in enumerate((x_map, w_map)):
                        place = map_of(workspace, GROUPS, LAYOUT, work.group, which)
                        acquire(place, pred=work.group != last)
                        mov.u64(map_.reg, add.u64(place.reg, place.offset))
                    mov.u32(last, work.group)
                    producer.load(work, *((work.m * features, work.row) if TRANSPOSED else (work.row, work.n * BN)))
                elif TRANSPOSED:
                    producer.load(work, work.m * features, work.row, a_outer=(work.group,))
                else:
                    if ring is not None:
                        ring.n.array = w_scales.at(mul.wide.u32(work.group, w_scale_group))
                    for which in range(tiles_in_turn):
                        column = work.n * features
                        producer.load(work, work.row, column + which * stored_columns if which else column, b_outer=(work.group,),
                                      scales=ring, columns=n)
            producer.drain()
            if is_second:
                griddepcontrol.wait()
        if ring is not None and pipeline.copied:
            with if_(mov.u32(tid.x) >> 5 == 1):
                lane = mov.u32(laneid)
                copier = Producer(pipeline, TiledCopy(x, a_tile, Shares()), TiledCopy(w, b_tile, Shares()), Ring(STAGES))
                with pieces() as work:
                    ring.m.begin(work.row, work.until, lane, 0)
                    ring.n.array = w_scales.at(mul.wide.u32(work.group, w_scale_group))
                    ring.n.begin(work.n * BN, n, lane, 0)
                    copier.copy_scales(ring, work, lane)

    with else_():
        if CONSUMERS in REGISTERS:
            setmaxnreg.inc.sync.aligned.u32(REGISTERS[CONSUMERS][1])
        index = warpgroup - 1
        thread = thread & (WARPGROUP - 1)
        lane, warp = mov.u32(laneid), thread >> 5
        lane_row, lane_column = warp * 16 + (lane >> 2), (lane & 3) * 2
        first_slab: Reg[u32] | int = 0 if PINGPONG or CONSUMERS == 1 else index * slabs
        mma = TiledMma(mma_atom, slabs, 0 if isinstance(first_slab, int) else first_slab * ROWS)
        end, factor = mov.u32(0), mov.f32(1.0)
        gates = GatedMma(mma_atom.a, mma_atom.b, BN, factor=factor if SCALED else None) if GATED and not TRANSPOSED else mma_atom
        fusion = Fusion(alpha=SCALED and not GATED)
        operands = Operands(factor, factor)
        operands.read_scales(fusion)
        at_addresses = LAYOUT == "pointers" and staging is None     # Y of each group, without a map
        columns = mov.u32(0) if at_addresses else n
        fused = Fused(gates, fusion, operands, Edges(columns, end) if TRANSPOSED else Edges(end, columns), lane_row, lane_column)
        matrix = Matrix(Ptr(mov.u64(0), b8), OUT, columns, out_batch) if at_addresses else Matrix(out, OUT, out_row, out_batch)
        store: Any
        if TRANSPOSED:
            store = (GatedTransposedStore if GATED else TransposedStore)(matrix, fused, lane, warp, STEP)
            if GATED and SCALED:
                store.factor = factor
        else:
            if OUT.bits > 8:
                store = DirectStore(matrix, fused)
            else:
                scales_of_y = ScaleArray(out_scale, out_scale_m, out_scale_n)
                store = QuantisedStore(matrix, scales_of_y, fused, kept, index * WARPGROUP + thread, CONSUMERS * WARPGROUP)
            if staging is not None:
                staged: dict[str, Any] = {"buffers": BUFFERS, "together": not PINGPONG}
                if TAILS == "updated":
                    store = UpdatedStore(staging, y, index, thread, fused, **staged)
                elif TAILS == "ragged":
                    store = RaggedStore(staging, y, index, thread, fused, end, **staged)
                else:
                    store = WholeOrPart(StagedStore(staging, y, index, thread, fused, **staged), store, end, slabs)
        consumer = Consumer(pipeline, mma, a_tile, b_tile, Ring(STAGES), thread)
        acc, total = sums_of(mma, PROMOTE)
        in_stage = lane_row if isinstance(first_slab, int) else first_slab * ROWS + lane_row
        if ring is not None:
            in_stage = ring.m.place(in_stage)
        reader = Reader.of(ring, slabs, mov.u32(in_stage), lane_column, STAGES)
        second = mma.fragments() if OVERLAP else None
        stagger = Stagger(index, CONSUMERS) if STAGGER else None
        turn = Turn(order, index, lane) if order is not None else None
        whole = ld.global_.f32(x_scale) if SCALED else factor
        in_turn: dict[str, Any] = {"turn": index, "turns": 2} if PINGPONG else {}
        if PINGPONG and LAYOUT == "pointers":
            in_turn["skip"] = consumer.position.skip
        elif PINGPONG:
            consumer.position.skip(index * k_tiles)
        alone = not TRANSPOSED and not isinstance(first_slab, int)  # a warpgroup may have no rows of a group's last tile
        with pieces(**in_turn) as work:
            mov.u32(end, work.until)
            if at_addresses:
                ld.global_.u32(columns, lengths.at(work.group * 3 + 1))
                ld.global_.u64(matrix.pointer.reg, out.cast(u64).at(work.group))
            row, column = (work.m * BM, work.row) if TRANSPOSED else (work.row, work.n * (BN * tiles_in_turn))
            if not isinstance(first_slab, int):
                row = row + first_slab * ROWS
            if SCALED:
                mul.rn.f32(factor, whole, ld.global_.f32(w_scale.at(mul.wide.u32(work.group, w_scale_group))))
            if GATED:
                row, column = (row // 2, column) if TRANSPOSED else (row, column // 2)
            if SCALE_MAP and ring is not None:
                mov.u32(reader.row, in_stage + ring.m.shift(work.start))
            with if_(row < end) if alone else nullcontext():
                for which in range(tiles_in_turn):
                    column = column + stored_columns if which else column
                    reader.begin(column, 0)
                    if second is not None:
                        consumer.multiply_overlapped((acc, second), total, work.stages, reader)
                    elif PROMOTE and (ring is not None or not BLOCK_SCALES):
                        consumer.multiply_promoted(acc, total, work.stages, reader, stagger)
                    elif PROMOTE:
                        scales = _scales(x_scales, w_scales.at(mul.wide.u32(work.group, w_scale_group)), slabs, BN, TRANSPOSED, GATED)
                        if TRANSPOSED:
                            scales.begin(row, column + lane_column, n, end)
                        else:
                            scales.begin(row + lane_row, column, end, n)
                        consumer.multiply_promoted(acc, total, work.stages, scales, stagger)
                    elif STEP:
                        consumer.multiply_fitted(acc, work.stages, work.until - work.row, STEP)
                    else:
                        consumer.multiply(acc, work.stages, turn)
                    if PINGPONG and LAYOUT != "pointers":
                        consumer.position.skip(k_tiles)
                    if TAILS == "updated" and staging is not None:
                        store.turn_to(work.group, map_of(workspace, GROUPS, LAYOUT, work.group, maps_of(LAYOUT) - 1), work.start)
                    store.tile(total, row, column, stored_columns)
            if alone:
                with else_():
                    for _ in range(tiles_in_turn):
                        consumer.pass_by(work.stages, index + 1, stagger, len(parts_of_sums(acc, total)))
        store.drain()
        if stagger is not None:
            stagger.end()


def _copy_of_weights(w: Any, tile: Any, shares: Shares, transposed: bool, gated: bool, policy: Any = None,
                     streams: Any = None) -> TiledCopy:
    if not gated:
        return TiledCopy(w, tile, shares, policy, streams)
    return GatedCopy(w, tile, shares, policy, streams, piece=ROWS if transposed else tile.layout.rows // 2)


def _scales(x: ScaleArray, w: ScaleArray, slabs: int, BN: int, transposed: bool, gated: bool) -> Any:
    """The block scales of one tile, read by each thread."""
    kind: Any = (GatedTokenScales if gated else TokenScales) if transposed else GatedScales if gated else Scales
    return kind(x, w, slabs, BN)


def records_of_templates(config: Any) -> Any:
    """The boxes of the maps that this configuration's kernel reads from global memory, where no parameter records them: those of the same
    tile with maps of the host."""
    return group_gemm.trace(**{**config.parameters, "TAILS": "predicated", "LAYOUT": "offsets", "ORDER": "linear"}).copies.records


__all__ = ["group_gemm", "records_of_templates"]
