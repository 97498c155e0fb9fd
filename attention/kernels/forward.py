"""Attention forward: O = softmax(scale Q K^T) V."""

from __future__ import annotations

from typing import Any

from ptxkit import Ptr, Reg, Ring, TensorMap, Vec, if_, kernel, role, smem, span, tid
from ptxkit.gemm.collective.atoms import WARPGROUP, Mma
from ptxkit.gemm.collective.epilogue import allocate_staging
from ptxkit.gemm.collective.ordered_barrier import Stagger
from ptxkit.gemm.collective.pipeline import ConsumerSide, Pipeline
from ptxkit.gemm.collective.tiled import Multicast, TiledCopy, TiledMma
from ptxkit.gemm.collective.warpgroups import mma_threads, producer_warpgroup, start
from ptxkit.gemm.config.parts import Cooperative, Staged
from ptxkit.idioms import elect, prefetch_tensormaps
from ptxkit.layout import Layout
from ptxkit.ptx import mov, shfl
from ptxkit.smem import Tile
from ptxkit.types import Scalar, bf16, f32

from ..collective.mainloop import Mainloop, Mask, Operand, Tail
from ..collective.producer import Loads, Producer
from ..collective.softmax import LazySoftmax, OnlineSoftmax
from ..collective.store import HeadStore, Normalised, PackedStore, store_lse
from ..collective.work import Packed, Shape, tile_scheduler


@kernel(target="sm_90a", block=lambda config: 2 * config["BM"] + WARPGROUP)
def forward(q: TensorMap, k: TensorMap, v: TensorMap, o: TensorMap, sums: Ptr[f32], shape: Shape, scale: Reg[f32], sequences: Packed, *,
            head: int = 128, BM: int = 128, BN: int = 128, stages: int = 4, type: type[Scalar] = bf16, causal: bool = False,
            packed: bool = False, lse: bool = False, overlap: bool = True, pingpong: bool = True, buffers: int = 2,
            together: bool = True, slack: bool = False) -> None:
    """O = softmax(scale Q K^T) V for q and o [B, H, Sq, head], k and v [B, H / group, Sk, head]; `scale` has the factor log2 e in it.

    Roles. Warpgroup 0 is the producer: one lane of its first warp issues every load. Each mma warpgroup has 64 of a tile's BM queries: it
    computes scores, softmax and outputs in registers, and stores the outputs.

    Arrivals of a phase. Queries have a ring of 1 stage, blocks of keys and of values share one of `stages`. full[stage]: 1, the producer's
    arrive.expect_tx of the whole stage. empty[stage]: one thread of every mma warpgroup. See also `Stagger`.

    Stages and parities continue from tile to tile: the producer loads the next tile's queries and keys while the mma warpgroups store.
    """
    warpgroups = BM // 64
    q_tile = smem.tile(type, (1, BM, head), name="Q")
    k_tile = smem.tile(type, (stages, BN, head), name="K or V")
    v_tile: Tile[Any] = Tile(Layout.of(type, head, BN, major="mn"), k_tile.offset, stages)  # B of the second product: keys are its depth
    staging = allocate_staging(Staged(buffers), warpgroups, head, type, name="O staging")
    assert staging is not None
    queries, blocks = Pipeline(1, warpgroups, name="Q "), Pipeline(stages, warpgroups, name="KV ")

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 5, 0, 31, 0xFFFFFFFF) >> 2          # uniform across the warp, and ptxas can see it
    with if_(thread == 0):
        prefetch_tensormaps(q, k, v, o)
        queries.init(*blocks.counts)
    tiles = tile_scheduler(shape, BM, causal, sequences if packed else None)
    start(cluster=False)

    with producer_warpgroup(thread, warpgroups), if_(thread < 32):
        role("producer")
        loads = thread == 0 if packed else elect()      # packed: all lanes look for the sequence, and this one's place is certain
        position = Ring(stages)
        to_q, to_k, to_v = (Loads(ring, TiledCopy(tensor, tile, Multicast()), place) for ring, place, tensor, tile in (
            (queries, Ring(1), q, q_tile), (blocks, position, k, k_tile), (blocks, position, v, v_tile)))
        producer = Producer(to_q, to_k, to_v, mov.u32(0), overlap)
        with tiles.work() as work, if_(loads):
            producer.load(work, work.blocks(BM, BN, causal), shape.group)
        with if_(loads):
            producer.tail()

    with mma_threads(thread, warpgroup, warpgroups, 1, Cooperative(2 if warpgroups == 2 else 3)) as here:
        scores_mma, output_mma = TiledMma(Mma(type, type, BN), 1, here.first_row), TiledMma(Mma(type, type, head), 1)
        (scores,), (output,) = scores_mma.fragments(), output_mma.fragments()
        weights = [Vec([mov.b32(0) for _ in range(4)]) for _ in range(BN // 16)]   # as operand A of the second product
        position = Ring(stages)
        of_q, of_k, of_v = (Operand(ConsumerSide(ring, here.thread), place, tile, mov.u32(0)) for ring, place, tile in (
            (queries, Ring(1), q_tile), (blocks, position, k_tile), (blocks, position, v_tile)))
        turns = Stagger(here.warpgroup, warpgroups) if pingpong else None
        softmax = LazySoftmax(scale) if slack else OnlineSoftmax(scale)
        mainloop = Mainloop(scores_mma, output_mma, scores, output, weights, softmax, Mask(here, BN, causal), of_q, of_k, of_v, turns,
                            overlap, type, Tail(here, warpgroups) if packed else None)
        normalised = Normalised(output_mma.atom, [])
        staged = HeadStore(staging, o, here.warpgroup, here.thread, normalised, buffers=buffers, together=together)
        store = PackedStore(staged, sequences.out.of(type), normalised) if packed else staged
        with tiles.work() as work, span("tile"):
            mainloop.run(work, work.blocks(BM, BN, causal))
            normalised.factors, logarithms = mainloop.softmax.finish()
            with span("store"):
                store.rows(output, work, here, head)
                if lse:
                    store_lse(sums, logarithms, work, here, shape)
        store.tail()
        if turns is not None:
            turns.tail()


__all__ = ["forward"]
