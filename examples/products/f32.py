"""C = alpha A B in f32 on the CUDA cores, no tf32: A [M, K], B [K, N] and C [M, N], row-major.

What bounds it. An SM issues four FFMA of a warp a clock and can do nothing better; everything else has to fit into the gaps.

- Block tile: 128 x 256 of C, in steps of 32 along K. A step moves 48 KB for 8,192 clocks of FFMA: 6 bytes a clock, which the L2 has.
- Warp tile: 32 x 128. Two warps share 64 rows, every second group of four each, so that a thread's rows have one place in the swizzle.
- Thread tile: 8 x 16. Four steps along K take 8 loads of 16 bytes of A, which lies along K, and 4 a step of B, which lies along N: 24 loads
  for 512 FFMA. A load of a warp occupies the shared memory for 1 to 4 clocks, so loads fit behind the FFMA.
- Shared memory: the eight lanes that read B together read 128 neighbouring bytes. Those of A read four rows, which the 128-byte swizzle
  puts into different banks. Neither has a conflict, and A needs no transposition.
- Registers: an FFMA reads three, and even and odd ones are in different banks. With two of one bank it takes a clock more, unless the FFMA
  before has left one in the reuse cache. So FFMA come in columns, eight that share an element of B, and the next column goes back up from
  the row where this one ended and shares its element of A. All elements of A of one step along K have registers of one parity, as loads of
  16 bytes set it, so ptxas has to keep the accumulators in the other, and writes them to where the next step wants them. It can do so
  because they belong to no vector: the product by alpha stands between them and the stores. On an H100 the columns give 3 % over rows,
  alpha 2 % and steps of 32 instead of 16 another 7 %.
- Pipeline: tensor copies bring four stages. One thread asks for step k + 2 when all warps have left step k - 2, which was long ago, so
  that nobody waits. Copies fill the edges with zeros.

    python -m examples.products.f32
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Problem, Step, apart, extents, normal, poison, report, taken
from ptxkit import Pipeline, Ptr, Reg, TensorMap, ctaid, if_, kernel, laneid, ring, smem, tid
from ptxkit.ptx import bar, cp, fence, fma, ld, mov, mul, st
from ptxkit.smem import SharedAddress
from ptxkit.types import f32, u32

BM, BN, BK, STAGES, THREADS, WARPS = 128, 256, 32, 4, 256, 8
VECTOR, ROWS = 4, 8                                                  # values of a load; rows of a thread, 8 apart
AHEAD = 2                                                            # steps from asking for a stage to reading it
load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes


@kernel(target="sm_90a", block=THREADS)
def f32_gemm(a: TensorMap, b: TensorMap, c: Ptr[f32], m: Reg[u32], n: Reg[u32], steps_of_k: Reg[u32], alpha: Reg[f32]) -> None:
    """One tile of C a CTA; ctaid.x counts along N, ctaid.y along M.

    full[stage]: 1 arrival, the arrive.expect_tx of both tiles. empty[stage]: 8, lane 0 of each warp, after its warp has read.
    """
    a_tile = smem.tile(f32, (STAGES, BM, BK), name="A")              # 128 bytes a row: the 128-byte swizzle
    b_tile = smem.tile(f32, (STAGES, BK, BN), swizzle=0, name="B")   # rows along N, as they lie in memory
    stages = Pipeline(STAGES, consumers=WARPS, bytes=a_tile.layout.bytes + b_tile.layout.bytes)
    thread, lane = mov.u32(tid.x), mov.u32(laneid)
    warp = thread >> 5
    first_row, first_column = mov.u32(ctaid.y) * BM, mov.u32(ctaid.x) * BN
    # Lanes are 4 along M and 8 along N; warps 4 along M and 2 along N. Warps 2 i and 2 i + 1 along M share 64 rows.
    along_m, along_n = warp & 3, warp >> 2
    row = (along_m >> 1) * 64 + (along_m & 1) * 4 + (lane >> 3)
    column = along_n * (BN // 2) + (lane & 7) * VECTOR
    vectors = BN // 2 // (8 * VECTOR)                                # of a thread, 32 columns apart

    def ask(step: Reg[u32] | int, stage: Reg[u32] | int, parity: Reg[u32] | int) -> None:
        full = stages.producer_acquire(stage, parity)
        fence.proxy.async_.shared__cta()                             # the warps' loads from the stage, before the copies into it
        load(a_tile[stage], a, (step * BK, first_row), full)
        load(b_tile[stage], b, (first_column, step * BK), full)

    with if_(thread == 0):
        stages.init()
        for step in range(AHEAD):
            with if_(step < steps_of_k):                             # who waits for no copy may leave its shared memory to the next CTA
                ask(step, step, 0)
    bar.sync(0)
    total = [[mov.f32(0.0) for _ in range(vectors * VECTOR)] for _ in range(ROWS)]
    ahead, turn = mov.u32(AHEAD), mov.u32(0)                         # the stage of step k + AHEAD, and its parity
    with ring(STAGES, steps_of_k) as (k, stage, parity):
        with if_((thread == 0) & (k + AHEAD < steps_of_k)):
            ask(k + AHEAD, ahead, turn)
        advance(ahead, turn, STAGES)
        stages.consumer_wait(stage, parity)
        for depth in range(0, BK, VECTOR):
            of_a = [ld.shared__cta.v4.f32(a_tile[stage].lines(8 * i, 8).at(row, depth)) for i in range(ROWS)]
            for d in range(VECTOR):
                place = b_tile[stage].at(depth + d, column)
                of_b = [value for v in range(vectors)
                        for value in ld.shared__cta.v4.f32(SharedAddress(place.offset + 128 * v, place.dynamic))]
                for j, value in enumerate(of_b):
                    for i in range(ROWS) if j % 2 == 0 else reversed(range(ROWS)):
                        fma.rn.f32(total[i][j], of_a[i][d], value, total[i][j])
        bar.warp.sync(0xFFFFFFFF)                                    # all lanes have read
        stages.consumer_release(stage, pred=lane == 0)
    start = c.at(mul.wide.u32(first_row + row, n)).at(first_column + column)
    for i, sums in enumerate(total):
        place = start.at(mul.wide.u32(n, 8 * i))
        for v in range(vectors):
            inside = (first_row + row + 8 * i < m) & (first_column + column + 32 * v < n)
            st.global_.v4.f32(place + 32 * v, [mul.rn.f32(sum, alpha) for sum in sums[VECTOR * v:VECTOR * (v + 1)]], pred=inside)


def advance(stage: Reg[u32], parity: Reg[u32], stages: int) -> None:
    """The next stage of a ring, and the parity of its round."""
    mov.u32(stage, stage + 1)
    wrapped = stage == stages
    mov.u32(stage, 0, pred=wrapped)
    mov.u32(parity, parity ^ 1, pred=wrapped)


def steps(a: Any, b: Any, c: Any, alpha: float = 1.0) -> list[Step]:
    """The launch for a [M, K], b [K, N] and c [M, N]."""
    (m, k), (depth, n) = extents("a [M, K]", a), extents("b [K, N]", b)
    if k % 4 or n % 4 or depth != k:
        raise ValueError(f"a is [M, K] and b [K, N], N and K multiples of 4, as lines of a tensor map are of 16 bytes, not {m} x {k} and "
                         f"{depth} x {n}")
    taken(c=(c, (m, n)))
    apart("c", a=a, b=b, c=c)
    return [Step(f32_gemm, (-(-n // BN), -(-m // BM)), (a, b, c, m, n, -(-k // BK), alpha))]


def problem(m: int, n: int, k: int, seed: int = 0) -> Problem:
    """Normal values."""
    a, b = normal(seed, m, k, kind="f32"), normal(seed + 1, k, n, kind="f32")
    wide = a.astype(np.float64), b.astype(np.float64)
    operands = {"a": ("f32", a), "b": ("f32", b), "c": ("f32", poison("f32", m, n))}
    return Problem(operands, lambda given: steps(given["a"], given["b"], given["c"]),
                   {"c": (wide[0] @ wide[1], k * 2.0**-24 * (np.abs(wide[0]) @ np.abs(wide[1])))}, bytes=4 * (m * k + k * n + m * n),
                   operations=2 * m * n * k, library=_library, library_name="cuBLAS (f32)")


def _library(torch: Any, a: Mapping[str, Any]) -> Any:
    torch.backends.cuda.matmul.allow_tf32 = False
    return lambda: torch.matmul(a["a"], a["b"], out=a["c"])


if __name__ == "__main__":
    print(report("f32", problem(4096, 4096, 4096), problem(8, 132, 36)))
