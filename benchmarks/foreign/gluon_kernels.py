"""Gluon kernels: a product by wgmma, one tile a program, and a persistent one whose loads run ahead by two stages."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait


@gluon.jit
def blocked(a, b, c, K, num_warps: gl.constexpr):
    """One tile: load, wait, multiply; one stage."""
    BM: gl.constexpr = c.block_type.shape[0]
    BN: gl.constexpr = c.block_type.shape[1]
    BK: gl.constexpr = a.block_type.shape[1]
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    left = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, layout)
    phase = 0
    for start in range(0, K, BK):
        mbarrier.expect(full, a.block_type.nbytes + b.block_type.nbytes)
        tma.async_load(a, [row, start], full, left)
        tma.async_load(b, [start, column], full, right)
        mbarrier.wait(full, phase)
        phase ^= 1
        acc = warpgroup_mma(left, right, acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    mbarrier.invalidate(full)
    made = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    made.store(acc.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], made)
    tma.store_wait(pendings=0)


@gluon.jit
def persistent(a, b, c, M, N, K, STAGES: gl.constexpr, num_warps: gl.constexpr):
    """Each program takes tiles in turn; the loads of a tile run STAGES - 1 steps ahead."""
    BM: gl.constexpr = c.block_type.shape[0]
    BN: gl.constexpr = c.block_type.shape[1]
    BK: gl.constexpr = a.block_type.shape[1]
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005  # Gluon has no `*`
    right = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for each in gl.static_range(STAGES):
        mbarrier.init(full.index(each), count=1)
    made = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, BN, 16])
    steps = gl.cdiv(K, BK)
    across = gl.cdiv(N, BN)
    loaded = 0
    used = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BM) * across, gl.num_programs(0)):
        row, column = tile // across * BM, tile % across * BN
        for step in gl.static_range(STAGES - 1):
            stage = loaded % STAGES
            mbarrier.expect(full.index(stage), a.block_type.nbytes + b.block_type.nbytes, pred=step < steps)
            tma.async_load(a, [row, step * BK], full.index(stage), left.index(stage), pred=step < steps)
            tma.async_load(b, [step * BK, column], full.index(stage), right.index(stage), pred=step < steps)
            loaded += (step < steps).to(gl.int32)
        acc = gl.zeros((BM, BN), gl.float32, layout)
        for step in range(steps):
            stage = used % STAGES
            mbarrier.wait(full.index(stage), used // STAGES & 1)
            acc = warpgroup_mma(left.index(stage), right.index(stage), acc, is_async=True)
            acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
            used += 1
            ahead = step + STAGES - 1
            stage = loaded % STAGES
            mbarrier.expect(full.index(stage), a.block_type.nbytes + b.block_type.nbytes, pred=ahead < steps)
            tma.async_load(a, [row, ahead * BK], full.index(stage), left.index(stage), pred=ahead < steps)
            tma.async_load(b, [ahead * BK, column], full.index(stage), right.index(stage), pred=ahead < steps)
            loaded += (ahead < steps).to(gl.int32)
        tma.store_wait(pendings=0)
        made.store(acc.to(c.dtype))
        fence_async_shared()
        tma.async_store(c, [row, column], made)
    tma.store_wait(pendings=0)


@gluon.jit
def _load(a, b, left, right, full, empty, row, column, K, STAGES: gl.constexpr):
    BK: gl.constexpr = a.block_type.shape[1]
    for step in range(gl.cdiv(K, BK)):
        stage = step % STAGES
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(stage), a.block_type.nbytes + b.block_type.nbytes)
        tma.async_load(a, [row, step * BK], full.index(stage), left.index(stage))
        tma.async_load(b, [step * BK, column], full.index(stage), right.index(stage))


@gluon.jit
def _multiply(c, left, right, full, empty, row, column, K, BK: gl.constexpr, STAGES: gl.constexpr, num_warps: gl.constexpr):
    BM: gl.constexpr = c.block_type.shape[0]
    BN: gl.constexpr = c.block_type.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, layout)
    for step in range(gl.cdiv(K, BK)):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        acc = warpgroup_mma(left.index(stage), right.index(stage), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(empty.index(stage), count=1)
    made = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    made.store(acc.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], made)
    tma.store_wait(pendings=0)


@gluon.jit
def specialized(a, b, c, K, STAGES: gl.constexpr, num_warps: gl.constexpr):
    """One warp loads, a warpgroup multiplies."""
    row, column = gl.program_id(0) * c.block_type.shape[0], gl.program_id(1) * c.block_type.shape[1]
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    right = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for each in gl.static_range(STAGES):
        mbarrier.init(full.index(each), count=1)
        mbarrier.init(empty.index(each), count=1)
    gl.warp_specialize([(_multiply, (c, left, right, full, empty, row, column, K, a.block_type.shape[1], STAGES, num_warps)),
                        (_load, (a, b, left, right, full, empty, row, column, K, STAGES))], [1], [24])
