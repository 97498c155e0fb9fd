"""Attention forward: O = softmax(scale Q K^T) V."""

from __future__ import annotations

from ptxkit import Ptr, Reg, Ring, TensorMap, Vec, if_, kernel, role, smem, span, tid
from ptxkit.gemm.collective.atoms import WARPGROUP, Mma
from ptxkit.gemm.collective.epilogue import allocate_staging
from ptxkit.gemm.collective.ordered_barrier import Stagger
from ptxkit.gemm.collective.pipeline import ConsumerSide, Pipeline
from ptxkit.gemm.collective.tiled import Multicast, TiledCopy, TiledMma
from ptxkit.gemm.collective.warpgroups import mma_threads, producer_warpgroup, start
from ptxkit.gemm.config.parts import Cooperative, Staged
from ptxkit.idioms import elect, prefetch_tensormaps
from ptxkit.ptx import mov, shfl
from ptxkit.types import Scalar, bf16, f32

from ..collective.mainloop import Mainloop, Mask, Operand, Tail
from ..collective.producer import Loads, Producer
from ..collective.softmax import OnlineSoftmax
from ..collective.store import HeadStore, Normalised, PackedStore, store_lse
from ..collective.work import Packed, Shape, tile_scheduler


@kernel(target="sm_90a", block=lambda config: 2 * config["BM"] + WARPGROUP)
def forward(q: TensorMap, k: TensorMap, v: TensorMap, o: TensorMap, sums: Ptr[f32], shape: Shape, scale: Reg[f32], sequences: Packed, *,
            head: int = 128, BM: int = 128, BN: int = 128, stages: int = 2, type: type[Scalar] = bf16, causal: bool = False,
            packed: bool = False, lse: bool = False, overlap: bool = True, pingpong: bool = True, buffers: int = 2,
            together: bool = True) -> None:
    """O = softmax(scale Q K^T) V for q and o [B, H, Sq, head], k and v [B, H / group, Sk, head]; `scale` has the factor log2 e in it.

    Roles. Warpgroup 0 is the producer: one lane of its first warp issues every load. Each mma warpgroup has 64 of a tile's BM queries: it
    computes scores, softmax and outputs in registers, and stores the outputs.

    Arrivals of a phase. Queries, keys and values have a ring each, of 1, `stages` and `stages` stages. full[stage]: 1, the producer's
    arrive.expect_tx of the whole stage. empty[stage]: one thread of every mma warpgroup. See also `Stagger`.

    Stages and parities continue from tile to tile: the producer loads the next tile's queries and keys while the mma warpgroups store.
    """
    warpgroups = BM // 64
    q_tile = smem.tile(type, (1, BM, head), name="Q")
    k_tile = smem.tile(type, (stages, BN, head), name="K")
    v_tile = smem.tile(type, (stages, head, BN), major="mn", name="V")          # B of the second product: the keys are its depth
    staging = allocate_staging(Staged(buffers), warpgroups, head, type, name="O staging")
    assert staging is not None
    queries, keys, values = (Pipeline(count, warpgroups, name=name) for count, name in ((1, "Q "), (stages, "K "), (stages, "V ")))

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 5, 0, 31, 0xFFFFFFFF) >> 2          # uniform across the warp, and ptxas can see it
    with if_(thread == 0):
        prefetch_tensormaps(q, k, v, o)
        queries.init(*keys.counts, *values.counts)
    tiles = tile_scheduler(shape, BM, causal, sequences if packed else None)
    start(cluster=False)

    with producer_warpgroup(thread, warpgroups), if_(thread < 32):
        role("producer")
        loads = thread == 0 if packed else elect()      # packed: all lanes look for the sequence, and this one's place is certain
        to_q, to_k, to_v = (Loads(ring, TiledCopy(tensor, tile, Multicast()), Ring(ring.stages))
                            for ring, tensor, tile in ((queries, q, q_tile), (keys, k, k_tile), (values, v, v_tile)))
        producer = Producer(to_q, to_k, to_v, mov.u32(0))
        with tiles.work() as work, if_(loads):
            producer.load(work, work.blocks(BM, BN, causal), shape.group)
        with if_(loads):
            producer.tail()

    with mma_threads(thread, warpgroup, warpgroups, 1, Cooperative(2 if warpgroups == 2 else 3)) as here:
        scores_mma, output_mma = TiledMma(Mma(type, type, BN), 1, here.first_row), TiledMma(Mma(type, type, head), 1)
        (scores,), (output,) = scores_mma.fragments(), output_mma.fragments()
        weights = [Vec([mov.b32(0) for _ in range(4)]) for _ in range(BN // 16)]   # as operand A of the second product
        of_q, of_k, of_v = (Operand(ConsumerSide(ring, here.thread), tile, Ring(ring.stages))
                            for ring, tile in ((queries, q_tile), (keys, k_tile), (values, v_tile)))
        turns = Stagger(here.warpgroup, warpgroups) if pingpong else None
        mainloop = Mainloop(scores_mma, output_mma, scores, output, weights, OnlineSoftmax(scale), Mask(here, BN, causal), of_q, of_k, of_v,
                            turns, overlap, type, Tail(here, warpgroups) if packed else None)
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
