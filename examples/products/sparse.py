"""D = A B^T in bf16, where two of every four neighbours along K of A are zero (2:4): A [M, K], B [N, K] and D [M, N], row-major.

`wgmma.mma_async.sp` multiplies only what is kept. A has K / 2 values a row and, for each four neighbours, the places of the two in four
bits. One instruction covers 32 of K, and occupies the tensor cores as long as a dense one of 16. `compress` prepares values and metadata
once, on the host.

What bounds it. A product of 64 x 256 x 32 occupies the tensor cores for 128 clocks. It reads 16 KB of B and 2 KB of A from shared memory,
which delivers 128 bytes a clock: 144 clocks. Two dense products of depth 16 take 256, so the gain is 256 / 144 = 1.78 at most, not 2.

- Tile: 128 x 256 of D, 64 rows a warpgroup. The widest instruction reads the fewest bytes of A for each product.
- Cluster: 32 of the 41 KB of a stage are B. Two CTAs with vertically adjacent tiles load half of it each, for both.
- Metadata: wgmma takes it from a register. With selector 0 it reads that of lanes 0 and 1 of every four, with selector 1 that of lanes 2
  and 3. So a word of each thread serves two instructions, 64 of K. `compress` lays the words out in the order of the threads: one bulk
  copy brings the 1 KB of a stage, and the load from shared memory has no bank conflict.

    python -m examples.products.sparse
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Array, Problem, Step, apart, extents, normal, poison, report, taken, wide
from ptxkit import NamedBarriers, Pipeline, Ptr, Reg, Ring, TensorMap, cluster_ctarank, else_, if_, kernel, ring, smem, tid
from ptxkit.cards import H200
from ptxkit.fragments import store_fragment
from ptxkit.gemm.ladder.order import grouped
from ptxkit.gemm.tools.reference import tolerance
from ptxkit.idioms import cluster_sync, multicast_mask, remote
from ptxkit.ptx import bar, cp, fence, ld, mbarrier, mov, setmaxnreg, wgmma
from ptxkit.runtime import driver
from ptxkit.types import bf16, u32

BM, BN, BK, STAGES, WARPGROUPS, STAGED = 128, 256, 64, 4, 2, 128
CLUSTER = 2
SHARE = BN // CLUSTER                                                # rows of B that a CTA loads for both
GROUP = 8                                                            # clusters along M whose tiles come one after another
WORDS = BM * BK // 32                                                # of metadata a stage: one for each mma thread
load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
multicast = load.multicast__cluster
copy = cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes
store = cp.async_.bulk.tensor_2d.global_.shared__cta.tile.bulk_group
mma = wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.bf16.bf16


def prune(a: Array) -> Array:
    """a [M, K], bits of bf16, with the two smaller of every four neighbours along K set to zero. K is a multiple of 16."""
    fours = _fours(a)
    smaller = np.argsort(fours & 0x7FFF, axis=-1, kind="stable")[..., :2]
    found = fours.copy()
    np.put_along_axis(found, smaller, 0, axis=-1)
    return found.reshape(a.shape)


def compress(a: Array) -> tuple[Array, Array]:
    """a [M, K], bits of bf16 (`tensor.view(torch.uint16).cpu().numpy()`), as (kept, metadata). K is a multiple of 16.

    kept [M, K / 2]: two values of every four. metadata [M / 128, K / 64, 256], u32, M and K rounded up to 256 and 64: a word for each
    thread of the two warpgroups that multiply. Raises ValueError if more than two of four are not zero.

    A chunk of four is four bits: the place of the first value in bits 0 and 1, that of the second in 2 and 3. Thread 32 w + 4 r + 2 s + h
    of a warpgroup has for the instruction with selector s the chunks 4 h to 4 h + 3 of rows 16 w + r (bits 0 to 15) and 16 w + r + 8 (bits
    16 to 31).
    """
    fours = _fours(a)
    m, k = a.shape
    there = fours & 0x7FFF != 0
    if (many := np.argwhere(there.sum(-1) > 2)).size:
        row, chunk = many[0]
        raise ValueError(f"row {row} has {there[row, chunk].sum()} values that are not zero in columns {4 * chunk} to {4 * chunk + 3}, and "
                         "two of four are kept: `prune` drops the smaller ones")
    places = np.sort(np.argsort(~there, axis=-1, kind="stable")[..., :2], axis=-1)      # values first, then zeros to fill up
    kept = np.take_along_axis(fours, places, axis=-1).reshape(m, k // 2)
    chunks = np.full((-(-m // (BM * CLUSTER)) * BM * CLUSTER, -(-k // BK) * BK // 4), 0b0100, np.uint32)
    chunks[:m, :k // 4] = places[..., 0] | places[..., 1] << 2
    parts = chunks.reshape(-1, 2, 4, 2, 8, chunks.shape[1] // 16, 2, 2, 4)              # tile, group, w, half, r, stage, s, h, chunk
    parts = parts.transpose(0, 5, 1, 2, 4, 6, 7, 3, 8).reshape(-1, chunks.shape[1] // 16, WORDS, 8)
    return kept, (parts << 4 * np.arange(8, dtype=np.uint32)).sum(-1, dtype=np.uint32)


def _fours(a: Array) -> Array:
    """a [M, K / 4, 4]."""
    m, k = extents("a [M, K]", a)
    if a.dtype != np.uint16:
        raise ValueError(f"a has the bits of bf16 in uint16, not {a.dtype}: `narrow` makes them")
    if k % 16:
        raise ValueError(f"K is a multiple of 16, as lines of a tensor map are of 16 bytes, not {k}: pad it with zeros")
    return a.reshape(m, k // 4, 4)


@kernel(target="sm_90a", block=128 * (1 + WARPGROUPS), cluster=CLUSTER)
def sparse_gemm(a: TensorMap, metadata: Ptr[u32], b: TensorMap, d: TensorMap, rows: Reg[u32], columns: Reg[u32], k_tiles: Reg[u32]) -> None:
    """rows x columns tiles of 128 x 256, in a persistent grid of clusters; `rows` is even.

    Warpgroup 0: one thread loads. Warpgroups 1 and 2 have 64 rows each.
    full[stage]: 1 arrival, the arrive.expect_tx of the whole stage; the half of B that the other CTA sends counts too.
    empty[stage]: 16, one thread of each mma warp of both CTAs, since both write into the stage. Lane c of a warp arrives in CTA c. One
    arrival a warpgroup would do for what wgmma reads, but each warp has read its own metadata.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK // 2), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    words = smem.array(u32, STAGES * WORDS, align=128, name="metadata")
    staging = smem.tile(bf16, (WARPGROUPS, 64, STAGED), name="D")
    stages = Pipeline(STAGES, consumers=4 * WARPGROUPS * CLUSTER, bytes=a_tile.layout.bytes + b_tile.layout.bytes + 4 * WORDS)
    writers = NamedBarriers(WARPGROUPS, 128)
    thread, position = mov.u32(tid.x), Ring(STAGES)
    with if_(thread == 0):
        stages.init()
    cluster_sync()                                                   # all mbarriers are initialised before any arrival
    with if_(thread < 128):
        setmaxnreg.dec.sync.aligned.u32(40)
        with if_(thread == 0):
            start = mov.u32(cluster_ctarank) * SHARE
            with grouped(rows, columns, GROUP=GROUP, CLUSTER=CLUSTER) as (row, column):
                of_tile = row * k_tiles
                with ring(position, k_tiles) as (k, stage, parity):
                    full = stages.producer_acquire(stage, parity)
                    fence.proxy.async_.shared__cta()                 # the threads' loads of metadata, before the copy over it
                    load(a_tile[stage], a, (k * (BK // 2), row * BM), full)
                    copy(words.at(stage * WORDS), metadata.at((of_tile + k) * WORDS), 4 * WORDS, full)
                    multicast(b_tile[stage].lines(start, SHARE), b, (k * BK, column * BN + start), full, multicast_mask(CLUSTER))
            stages.producer_tail(position)
    with else_():
        setmaxnreg.inc.sync.aligned.u32(232)
        group, within = (thread >> 7) - 1, thread & 127
        lane = thread & 31
        released, writer = remote(stages.empty, lane), writers[group]
        sums = mma.fragment(zero=False)
        with grouped(rows, columns, GROUP=GROUP, CLUSTER=CLUSTER) as (row, column):
            for register in sums:
                mov.f32(register, 0.0)
            with ring(position, k_tiles) as (_, stage, parity):
                stages.consumer_wait(stage, parity)
                word = ld.shared__cta.u32(words.at(stage * WORDS + group * 128 + within))
                wgmma.fence.sync.aligned()
                for selector in range(2):                            # whose lanes hold the metadata
                    mma(sums, a_tile[stage].desc(16 * selector, group * 64), b_tile[stage].desc(32 * selector), word, selector, True)
                wgmma.commit_group.sync.aligned()
                wgmma.wait_group.sync.aligned(0)
                bar.warp.sync(0xFFFFFFFF)                            # all lanes have read their words
                mbarrier.arrive.shared__cluster.b64(released[stage], pred=lane < CLUSTER)
            for half in range(BN // STAGED):
                store_fragment(staging[group], list(sums)[half * STAGED // 2:(half + 1) * STAGED // 2], within)
                fence.proxy.async_.shared__cta()
                writer.sync()
                with if_(within == 0):
                    for span in range(STAGED // 64):
                        store(d, (column * BN + (half * STAGED + 64 * span), row * BM + group * 64), staging[group].span(span))
                    cp.async_.bulk.commit_group()
                    cp.async_.bulk.wait_group.read(0)
                writer.sync()                                        # the staging is free again


def steps(kept: Any, metadata: Any, b: Any, d: Any, sms: int | None = None) -> list[Step]:
    """The launch for what `compress` makes of a [M, K], b [N, K] and d [M, N] of bf16. `sms` None asks the card."""
    (m, half), (n, depth) = extents("kept [M, K / 2]", kept), extents("b [N, K]", b)
    k = 2 * half
    if k % 16 or n % 8:
        raise ValueError(f"K is a multiple of 16 and N of 8, as lines of a tensor map are of 16 bytes, not {k} and {n}")
    rows, columns, k_tiles = -(-m // (BM * CLUSTER)) * CLUSTER, -(-n // BN), -(-k // BK)
    of_d, words = extents("d [M, N]", d), extents("metadata [M / 128, K / 64, 256]", metadata)
    if depth != k or of_d != (m, n) or words != (rows, k_tiles, WORDS):
        raise ValueError(f"kept {m} x {k // 2} goes with b [N, {k}], d [{m}, N] and metadata [{rows}, {k_tiles}, {WORDS}], not with "
                         f"{list(b.shape)}, {list(d.shape)} and {list(metadata.shape)}: `compress` makes kept and metadata")
    taken(metadata=(metadata, words))
    apart("d", kept=kept, metadata=metadata, b=b, d=d)
    if not (sms is None or (isinstance(sms, int) and sms >= CLUSTER)):
        raise ValueError(f"sms is {sms!r}: a cluster has an SM for each of {CLUSTER} CTAs, so there are {CLUSTER} at least")
    sms = sms or (driver.device(driver.current_device()).multiprocessors if driver.available() else H200.sms)
    grid = min(rows * columns, sms // CLUSTER * CLUSTER)
    return [Step(sparse_gemm, grid, (kept, metadata, b, d, rows, columns, k_tiles))]


def problem(m: int, n: int, k: int, sms: int | None = None, seed: int = 0) -> Problem:
    """Normal values, of which A keeps the larger two of four."""
    a, b = prune(normal(seed, m, k)), normal(seed + 1, n, k)
    kept, metadata = compress(a)
    values = wide("bf16", a), wide("bf16", b).T
    exact, magnitude = values[0] @ values[1], np.abs(values[0]) @ np.abs(values[1])
    operands = {"kept": ("bf16", kept), "metadata": ("u32", metadata), "b": ("bf16", b), "d": ("bf16", poison("bf16", m, n))}
    return Problem(operands, lambda given: steps(*(given[name] for name in operands), sms=sms),
                   {"d": (exact, tolerance(exact, magnitude, k, "bf16"))}, bytes=m * k + m * k // 8 + 2 * n * k + 2 * m * n,
                   operations=2 * m * n * k, library=lambda torch, given: _library(torch, given, a), library_name="ptxkit.gemm (dense)")


def _library(torch: Any, given: Mapping[str, Any], a: Array) -> Any:
    from ptxkit import gemm

    dense, turned = torch.from_numpy(a.view(np.int16)).cuda().view(torch.bfloat16), given["b"].T
    return lambda: gemm.gemm(dense, turned, given["d"])


if __name__ == "__main__":
    print(report("sparse", problem(4096, 4096, 4096), problem(72, 136, 144)))
