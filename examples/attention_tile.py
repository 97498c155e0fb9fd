"""O = softmax(Q Kᵀ / √d) V in bf16, of the pieces that GEMMs are made of: rings of stages, tensor copies, wgmma, staged stores.

Each CTA has one tile of queries and goes over all keys. The softmax is online: when a tile of keys raises a row's maximum, the sums so far
are scaled down. Two CTAs are a cluster. Each copies half of every tile of keys and values to both. Runs on the CPU device without a GPU.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxkit import Reg, Ring, TensorMap, Vec, ctaid, device_array, if_, kernel, ring, smem, tid
from ptxkit.fragments import operands_a, rows_of
from ptxkit.gemm.collective.atoms import Mma
from ptxkit.gemm.collective.cluster import Cluster
from ptxkit.gemm.collective.epilogue import StagedStore, allocate_staging
from ptxkit.gemm.collective.pipeline import ConsumerSide, Pipeline
from ptxkit.gemm.collective.tiled import Multicast, TiledCopy, TiledMma
from ptxkit.gemm.collective.warpgroups import mma_threads, producer_warpgroup, start
from ptxkit.gemm.config.parts import Cooperative, Staged
from ptxkit.idioms import elect, prefetch_tensormaps, wait
from ptxkit.ptx import add, ex2, fma, mbarrier, mov, mul, rcp, shfl, sub, wgmma
from ptxkit.ptx import max as max_
from ptxkit.reductions import warp_reduce
from ptxkit.runtime import driver
from ptxkit.types import bf16, f32, u32

QUERIES, KEYS, HEAD = 128, 128, 128                  # queries of a CTA, keys of a stage, elements of a head
WARPGROUPS, STAGES, CLUSTER = 2, 2, 2                # a warpgroup has 64 queries
SCALE = math.log2(math.e) / math.sqrt(HEAD)          # exp(x / √d) = exp2(x SCALE)


def over_row(operation: Any, value: Reg[f32]) -> Reg[f32]:
    """Reduce over the four lanes that hold a row of the accumulators."""
    return warp_reduce(operation, value, lanes=4)


class OnlineSoftmax:
    """The maximum and the sum of a thread's two rows, r and r + 8, over the keys so far. The sum is over the thread's own columns."""

    def __init__(self) -> None:
        self.top, self.total = [mov.f32(-math.inf) for _ in range(2)], [mov.f32(0.0) for _ in range(2)]

    def weigh(self, scores: Vec[f32, Any], output: Vec[f32, Any]) -> list[Vec[Any, Any]]:
        """Turn scores into weights, packed as the A fragments of P V. Scale the output and the sums to the new maxima."""
        for own, held, top, total in zip(rows_of(scores), rows_of(output), self.top, self.total, strict=True):
            highest = own[0]
            for score in own[1:]:
                highest = max_.f32(highest, score)
            highest = max_.f32(top, over_row(max_.f32, highest))
            minus = mul.rn.f32(highest, -SCALE)
            # 0 for the first keys, where top is -inf; exactly 1 where the maximum stays, since both products are rounded.
            rescale = ex2.approx.ftz.f32(sub.rn.f32(minus, mul.rn.f32(top, -SCALE)))
            mov.f32(top, highest)
            mul.rn.f32(total, total, rescale)
            for score in own:
                ex2.approx.ftz.f32(score, fma.rn.f32(score, SCALE, minus))
                add.rn.f32(total, total, score)
            for value in held:
                mul.rn.f32(value, value, rescale)
        return operands_a(bf16, scores)


@dataclass(frozen=True, slots=True)
class Normalised:
    """The visitor of the epilogue: multiplies each of a thread's two rows by its factor."""

    mma: Mma
    factors: list[Reg[f32]]

    def block(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None) -> list[Reg[f32]]:
        """The first two values are of row r, the others of row r + 8."""
        return [mul.rn.f32(value, self.factors[i // 2]) for i, value in enumerate(values)]


@kernel(target="sm_90a", block=128 * (1 + WARPGROUPS), cluster=CLUSTER)
def attention_tile(q: TensorMap, k: TensorMap, v: TensorMap, o: TensorMap, key_tiles: Reg[u32]) -> None:
    """q and o are [queries, HEAD], k and v are [keys, HEAD]. The keys are whole tiles.

    Warpgroup 0: one lane loads. Warpgroups 1 and 2 have 64 queries each: S = Q Kᵀ, the softmax in registers, O += P V.

    Keys and values have a ring each, so that S begins before the values land. full[stage]: 1 arrival, the producer's arrive.expect_tx of
    the tile that both CTAs copy. empty[stage]: 4, one thread of each mma warpgroup of both CTAs. landed: 1, the arrive.expect_tx of Q.
    """
    cluster = Cluster(CLUSTER)
    q_tile = smem.tile(bf16, (QUERIES, HEAD), name="Q")
    k_tile = smem.tile(bf16, (STAGES, KEYS, HEAD), name="K")
    v_tile = smem.tile(bf16, (STAGES, HEAD, KEYS), major="mn", name="V")         # B of P V: the keys are the depth
    staging = allocate_staging(Staged(2), WARPGROUPS, HEAD, bf16, name="O staging")
    assert staging is not None
    keys = Pipeline(STAGES, WARPGROUPS, cluster, name="K ")
    values = Pipeline(STAGES, WARPGROUPS, cluster, name="V ")
    landed = smem.mbarrier(1, name="Q landed")
    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 5, 0, 31, 0xFFFFFFFF) >> 2           # the same in all lanes, and ptxas can see it
    first_query = ctaid.x * QUERIES
    with if_(thread == 0):
        prefetch_tensormaps(q, k, v, o)
        keys.init(*values.counts, (landed, 1))
    start(cluster=True)

    with producer_warpgroup(thread, WARPGROUPS), if_(thread < 32), if_(elect()):
        to_q, zero = TiledCopy(q, q_tile, Multicast()), mov.u32(0)
        mbarrier.arrive.expect_tx.shared__cta.b64(landed[0], to_q.bytes())
        to_q.load(zero, first_query, zero, landed[0])
        to_k, to_v = TiledCopy(k, k_tile, cluster.of_b()), TiledCopy(v, v_tile, cluster.of_b())
        k_position, v_position = Ring(STAGES), Ring(STAGES)                      # the same until each tail goes on from its own
        with ring(k_position, key_tiles) as (i, stage, parity):
            keys.acquire(stage, parity)
            to_k.load(stage, i * KEYS, zero, keys.expect(stage, to_k.bytes()))
            values.acquire(stage, parity)
            to_v.load(stage, zero, i * KEYS, values.expect(stage, to_v.bytes()))
            v_position.advance()
        keys.producer_tail(k_position)
        values.producer_tail(v_position)

    with mma_threads(thread, warpgroup, WARPGROUPS, 1, Cooperative()) as here:
        scores_mma, output_mma = TiledMma(Mma(bf16, bf16, KEYS), 1, here.first_row), TiledMma(Mma(bf16, bf16, HEAD), 1)
        scores, output = scores_mma.fragments(), output_mma.fragments()
        for accumulator in output[0]:
            mov.f32(accumulator, 0.0)
        softmax, previous = OnlineSoftmax(), mov.u32(0)
        of_k, of_v = ConsumerSide(keys, here.thread), ConsumerSide(values, here.thread)
        wait(landed[0], 0)
        with ring(STAGES, key_tiles) as (i, stage, parity):
            of_k.wait(stage, parity)
            wgmma.fence.sync.aligned()
            scores_mma.issue(scores, q_tile[0], k_tile[stage], False)
            wgmma.commit_group.sync.aligned()
            wgmma.wait_group.sync.aligned(0)                                     # S, and P V of the tile before
            of_k.release(stage)
            of_v.release(previous, of_v.releases & (i != 0))
            weights = softmax.weigh(scores[0], output[0])
            of_v.wait(stage, parity)
            wgmma.fence.sync.aligned()
            output_mma.issue_from_registers(output, [weights], v_tile[stage], True)
            wgmma.commit_group.sync.aligned()                                    # runs on while the next S is issued
            mov.u32(previous, stage)
        wgmma.wait_group.sync.aligned(0)
        of_v.release(previous)
        normalised = Normalised(output_mma.atom, [rcp.approx.ftz.f32(over_row(add.rn.f32, total)) for total in softmax.total])
        store = StagedStore(staging, o, here.warpgroup, here.thread, normalised)
        store.tile(output, here.tile_row(first_query), mov.u32(0), HEAD)
        store.tail()


def exact(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """The result in double precision, and the same with the magnitudes of the values."""
    scores = q @ k.T / math.sqrt(HEAD)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return weights @ v, weights @ np.abs(v)


def share_of_bound(operands: list[Any], found: Any) -> float:
    """The largest error, as a share of its bound. All arrays hold the bits of bf16, the upper half of a float32's."""
    *wide, result = ((bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for bits in (*operands, found))
    right, magnitude = exact(*wide)
    # P and O are rounded to bf16, by 2^-8 each at most. The sums and exp2 in f32 add little to that.
    return float((np.abs(result - right) / (2.0**-7 * magnitude)).max())


def ctas(queries: int) -> int:
    """Whole clusters. Copies clip the queries that are not there."""
    return -(-queries // (QUERIES * CLUSTER)) * CLUSTER


def simulated(q: Any, k: Any, v: Any, **how: Any) -> Any:
    """O by the CPU device, whose checker vouches for every schedule."""
    o = np.full(q.shape, 0x7FC0, np.uint16)                                      # NaN
    report = attention_tile.simulate(ctas(len(q)), q, k, v, o, len(k) // KEYS, **how)
    assert report.verdict == "clean", report
    assert report.every_schedule, report
    return o


def on_gpu(q: Any, k: Any, v: Any) -> Any:
    """O by the GPU."""
    o = device_array(np.full(q.shape, 0x7FC0, np.uint16), "bf16")
    attention_tile.launch(ctas(len(q)), *(device_array(bits, "bf16") for bits in (q, k, v)), o, len(k) // KEYS)
    return o.numpy().view(np.uint16)


def check() -> str:
    """Run it and compare with double precision."""
    gpu = driver.available("sm_90a")
    queries, keys = (5_000, 4_096) if gpu else (200, 3 * KEYS)
    generator = np.random.default_rng(0)
    operands = [(generator.standard_normal((rows, HEAD), dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
                for rows in (queries, keys, keys)]
    share = share_of_bound(operands, (on_gpu if gpu else simulated)(*operands))
    assert share <= 1, share
    where = "" if gpu else ", on the CPU device: there is no Hopper GPU"
    return f"{queries} queries, {keys} keys, a head of {HEAD} in bf16, within {share:.1g} of the bound for two roundings{where}"


if __name__ == "__main__":
    print("attention_tile:", check())
