"""D = (A B^T) of s8 with s32 sums, scaled by row and column to bf16: A [M, K], B [N, K], as int8 inference has them.

A producer warp brings stages of 128 bytes along K; two warpgroups multiply 64 x 256 each with wgmma, 128 accumulators a thread. The sums
are exact. A result has a rounding to f32, one for each scale, and one to bf16. Row and column scales are applied in registers; a tile of
bf16 goes through shared memory to a tensor copy, 128 columns at a time, because the four stages leave 32 KB.

    python -m examples.products.int8
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Problem, Step, apart, extents, poison, report, taken, ulps
from ptxkit import NamedBarriers, Pipeline, Ptr, Reg, TensorMap, ctaid, else_, if_, kernel, ring, smem, tid
from ptxkit.fragments import store_fragment
from ptxkit.ptx import bar, cp, cvt, fence, ld, mov, mul, setmaxnreg, wgmma
from ptxkit.types import bf16, f32, s8, u32

BM, BN, BK, STAGES, WARPGROUPS, STAGED = 128, 256, 128, 4, 2, 128
MOST = (1 << 31) // 128**2                                           # products of -128 and -128 in an s32
load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
store = cp.async_.bulk.tensor_2d.global_.shared__cta.tile.bulk_group
mma = wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8


@kernel(target="sm_90a", block=128 * (1 + WARPGROUPS))
def int8_gemm(a: TensorMap, b: TensorMap, row_scale: Ptr[f32], column_scale: Ptr[f32], d: TensorMap, m: Reg[u32], n: Reg[u32],
              k_tiles: Reg[u32]) -> None:
    """One tile of 128 x 256 a CTA; ctaid.x counts along M, so that neighbours read the same B.

    Warpgroup 0: one thread loads. Warpgroups 1 and 2 have 64 rows each. full[stage]: 1 arrival, the arrive.expect_tx. empty[stage]: 256,
    every mma thread.
    """
    a_tile, b_tile = smem.tile(s8, (STAGES, BM, BK), name="A"), smem.tile(s8, (STAGES, BN, BK), name="B")
    staging = smem.tile(bf16, (WARPGROUPS, 64, STAGED), name="D")
    stages = Pipeline(STAGES, consumers=128 * WARPGROUPS, bytes=a_tile.layout.bytes + b_tile.layout.bytes)
    writers = NamedBarriers(WARPGROUPS, 128)
    thread = mov.u32(tid.x)
    first_row, first_column = mov.u32(ctaid.x) * BM, mov.u32(ctaid.y) * BN
    with if_(thread == 0):
        stages.init()
    bar.sync(0)
    with if_(thread < 128):
        setmaxnreg.dec.sync.aligned.u32(40)
        with if_(thread == 0), ring(STAGES, k_tiles) as (k, stage, parity):
            full = stages.producer_acquire(stage, parity)
            load(a_tile[stage], a, (k * BK, first_row), full)
            load(b_tile[stage], b, (k * BK, first_column), full)
    with else_():
        setmaxnreg.inc.sync.aligned.u32(232)
        group, within = (thread >> 7) - 1, thread & 127
        sums = mma.fragment()
        with ring(STAGES, k_tiles) as (_, stage, parity):
            stages.consumer_wait(stage, parity)
            wgmma.fence.sync.aligned()
            for k in range(0, BK, 32):
                mma(sums, a_tile[stage].desc(k, group * 64), b_tile[stage].desc(k), True)
            wgmma.commit_group.sync.aligned()
            wgmma.wait_group.sync.aligned(0)
            stages.consumer_release(stage)
        row = first_row + group * 64 + (within >> 5) * 16 + ((within & 31) >> 2)
        column = first_column + (within & 3) * 2
        scales = [mov.f32(0.0), mov.f32(0.0)]
        for r, scale in enumerate(scales):
            ld.global_.nc.f32(scale, row_scale.at(row) + 8 * r, pred=row + 8 * r < m)
        writer = writers[group]
        for half in range(BN // STAGED):
            values = []
            for j in range(half * STAGED // 8, (half + 1) * STAGED // 8):
                pair = [mov.f32(0.0), mov.f32(0.0)]
                ld.global_.nc.v2.f32(pair, column_scale.at(column) + 8 * j, pred=column + 8 * j < n)
                for i in range(4):                                   # rows r, r, r + 8, r + 8
                    values.append(mul.rn.f32(mul.rn.f32(cvt.rn.f32.s32(sums[4 * j + i]), scales[i // 2]), pair[i % 2]))
            store_fragment(staging[group], values, within)
            fence.proxy.async_.shared__cta()
            writer.sync()
            with if_(within == 0):
                for span in range(STAGED // 64):
                    store(d, (first_column + (half * STAGED + 64 * span), first_row + group * 64), staging[group].span(span))
                cp.async_.bulk.commit_group()
                cp.async_.bulk.wait_group.read(0)
            writer.sync()                                            # the staging is free again


def steps(a: Any, b: Any, row_scale: Any, column_scale: Any, d: Any) -> list[Step]:
    """The launch for a [M, K] and b [N, K] of s8, the scales [M] and [N] of f32, and d [M, N] of bf16."""
    (m, k), (n, depth) = extents("a [M, K]", a), extents("b [N, K]", b)
    if k % 16 or n % 8:
        raise ValueError(f"K is a multiple of 16 and N of 8, as lines of a tensor map are of 16 bytes, not {k} and {n}")
    if k >= MOST:
        raise ValueError(f"K is below {MOST:,}, so that no sum of products passes the end of s32, not {k:,}: split K, and add the results")
    if depth != k or extents("d [M, N]", d) != (m, n):
        raise ValueError(f"a is [{m}, {k}], so b is [N, {k}] and d [{m}, N], not {list(b.shape)} and {list(d.shape)}")
    taken(row_scale=(row_scale, (m,)), column_scale=(column_scale, (n,)))
    apart("d", a=a, b=b, row_scale=row_scale, column_scale=column_scale, d=d)
    return [Step(int8_gemm, (-(-m // BM), -(-n // BN)), (a, b, row_scale, column_scale, d, m, n, -(-k // BK)))]


def problem(m: int, n: int, k: int, seed: int = 0) -> Problem:
    """Random numbers of all 256 values."""
    generator = np.random.default_rng(seed)
    a, b = (generator.integers(-128, 128, shape, np.int8) for shape in ((m, k), (n, k)))
    rows, columns = (generator.uniform(0.5, 1.5, count).astype(np.float32) / 64 for count in (m, n))
    exact = (a.astype(np.float64) @ b.astype(np.float64).T) * rows[:, None].astype(np.float64) * columns.astype(np.float64)
    operands = {"a": ("s8", a), "b": ("s8", b), "row_scale": ("f32", rows), "column_scale": ("f32", columns),
                "d": ("bf16", poison("bf16", m, n))}
    return Problem(operands, lambda given: steps(*(given[name] for name in operands)),
                   {"d": (exact, 1.01 * ulps(exact) + 2.0**-22 * np.abs(exact))}, bytes=m * k + n * k + 2 * m * n,
                   operations=2 * m * n * k, library=_library, library_name="torch._int_mm (s32 out)")


def _library(torch: Any, a: Mapping[str, Any]) -> Any:
    turned = a["b"].T
    return lambda: torch._int_mm(a["a"], turned)


if __name__ == "__main__":
    print(report("int8", problem(4096, 4096, 4096), problem(72, 136, 144)))
