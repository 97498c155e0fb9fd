"""The producer of steps 3 to 6: tiles in shared memory, a ring for keys and one for values, and the thread that fills them."""

from __future__ import annotations

from ptxkit import Pipeline, Reg, TensorMap, ring, smem, span
from ptxkit.gemm.collective.tiled import Multicast, TiledCopy
from ptxkit.idioms import wait
from ptxkit.ptx import mbarrier, mov
from ptxkit.types import bf16, u32

STAGES = 2


class Operands:
    """Q, and K and V in a ring of stages each: keys can be multiplied before the values have landed, and be released before them.

    landed: 1 arrival, the producer's arrive.expect_tx of Q; all mma threads wait. full[stage] of each ring: 1, the producer's
    arrive.expect_tx of the block; all mma threads wait. empty[stage]: one thread of each of the `warpgroups`, when the products of its
    warpgroup have read the stage; the producer waits.
    """

    def __init__(self, BM: int, HEAD: int, BN: int, warpgroups: int) -> None:
        self.BN = BN
        self.q, self.k = smem.tile(bf16, (BM, HEAD), name="Q"), smem.tile(bf16, (STAGES, BN, HEAD), name="K")
        self.v = smem.tile(bf16, (STAGES, HEAD, BN), major="mn", name="V")
        self.landed = smem.mbarrier(1, name="landed")
        self.keys = Pipeline(STAGES, consumers=warpgroups, bytes=self.k.layout.bytes, name="K ")
        self.values = Pipeline(STAGES, consumers=warpgroups, bytes=self.v.layout.bytes, name="V ")

    def init(self) -> None:
        """In one thread, before a barrier of the block."""
        self.keys.init(*self.values.counts, (self.landed, 1))

    def produce(self, q: TensorMap, k: TensorMap, v: TensorMap, first: Reg[u32], head: Reg[u32], blocks: Reg[u32]) -> None:
        """In one thread: load the queries from `first` on, and the keys and values of all blocks, as fast as stages become empty."""
        zero = mov.u32(0)
        to_q, to_k, to_v = (TiledCopy(tensor, tile, Multicast()) for tensor, tile in ((q, self.q), (k, self.k), (v, self.v)))
        mbarrier.arrive.expect_tx.shared__cta.b64(self.landed[0], to_q.bytes())
        to_q.load(zero, first, zero, self.landed[0], head)
        with ring(STAGES, blocks) as (block, stage, parity):
            row = block * self.BN
            with span("wait"):
                full = self.keys.producer_acquire(stage, parity)            # does not wait in the first round
            with span("load"):
                to_k.load(stage, row, zero, full, head)
            with span("wait"):
                full = self.values.producer_acquire(stage, parity)
            with span("load"):
                to_v.load(stage, zero, row, full, head)

    def wait_for_queries(self) -> None:
        """In all mma threads: wait until Q has landed."""
        with span("wait"):
            wait(self.landed[0], 0)


__all__ = ["Operands"]
