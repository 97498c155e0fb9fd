"""CuTe DSL kernels, compiled ahead: a sum of vectors, a copy by TMA, threads that hand rows on, a persistent product by wgmma."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor
from cutlass.utils import LayoutEnum, hopper_helpers

M, N = 64, 64


@cute.kernel
def _add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * 256 + thread
    if at < count:
        c[at] = a[at] + b[at]


@cute.jit
def _launch_add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    count = cute.size(a)
    _add(a, b, c, count).launch(grid=[(count + 255) // 256, 1, 1], block=[256, 1, 1])


@cute.kernel
def _copy(load: cute.CopyAtom, source: cute.Tensor, store: cute.CopyAtom, target: cute.Tensor, layout: cute.Layout):
    thread, _, _ = cute.arch.thread_idx()
    column, row, _ = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator()
    tile = memory.allocate_tensor(cutlass.Float32, layout, 128)
    full = memory.allocate_array(cutlass.Int64, 1)
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.barrier()
    one = cute.make_layout(1)
    near, far = cpasync.tma_partition(load, 0, one, cute.group_modes(tile, 0, 2),
                                      cute.group_modes(cute.local_tile(source, (M, N), (row, column)), 0, 2))
    made, out = cpasync.tma_partition(store, 0, one, cute.group_modes(tile, 0, 2),
                                      cute.group_modes(cute.local_tile(target, (M, N), (row, column)), 0, 2))
    if thread < 32:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, M * N * 4)
        cute.copy(load, far, near, tma_bar_ptr=full)
    cute.arch.mbarrier_wait(full, 0)
    cute.arch.barrier()
    if thread == 0:
        cute.copy(store, made, out)
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def _launch_copy(source: cute.Tensor, target: cute.Tensor):
    layout = cute.make_layout((M, N), stride=(N, 1))
    load, far = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), source, layout, (M, N))
    store, out = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), target, layout, (M, N))
    grid = [cute.ceil_div(source.shape[1], N), cute.ceil_div(source.shape[0], M), 1]
    _copy(load, far, store, out, layout).launch(grid=grid, block=[64, 1, 1])


@cute.kernel
def _scale(a: cute.Tensor, factor: cutlass.Float32):
    at = cute.arch.thread_idx()[0]
    a[at] = a[at] * factor


@cute.jit
def scale_in_place(a: cute.Tensor, factor: cutlass.Float32):
    """A vector of 64 by a factor."""
    _scale(a, factor).launch(grid=[1, 1, 1], block=[64, 1, 1])


ROWS, PAIR = 8, 2


@cute.kernel
def _reverse(source: cute.Tensor, target: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    warp, lane = cute.arch.make_warp_uniform(cute.arch.warp_idx()), thread % 32
    memory = cutlass.memory.SmemAllocator()
    barriers = memory.allocate_array(cutlass.Int64, 2 * PAIR)
    rows = memory.allocate_tensor(cutlass.Float32, cute.make_layout((32, PAIR)), 128)
    group = pipeline.CooperativeGroup(pipeline.Agent.Thread, 32)
    ring = pipeline.PipelineAsync.create(barrier_storage=barriers, num_stages=PAIR, producer_group=group, consumer_group=group)
    if warp == 0:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, PAIR)
        for row in cutlass.range(ROWS, unroll=1):
            ring.producer_acquire(state)
            rows[lane, state.index] = source[row, lane]
            ring.producer_commit(state)
            state.advance()
        ring.producer_tail(state)
    if warp == 1:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, PAIR)
        for row in cutlass.range(ROWS, unroll=1):
            ring.consumer_wait(state)
            target[row, lane] = rows[31 - lane, state.index]
            ring.consumer_release(state)
            state.advance()


@cute.jit
def _launch_reverse(source: cute.Tensor, target: cute.Tensor):
    _reverse(source, target).launch(grid=[1, 1, 1], block=[64, 1, 1])


BM, BN, BK, STAGES, CTAS = 64, 64, 64, 3, 3


@cute.kernel
def _product(load_a: cute.CopyAtom, a: cute.Tensor, load_b: cute.CopyAtom, b: cute.Tensor, c: cute.Tensor, mma: cute.TiledMma,
             of_a: cute.ComposedLayout, of_b: cute.ComposedLayout):
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tile, _, _ = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator()
    barriers = memory.allocate_array(cutlass.Int64, 2 * STAGES)
    near_a = memory.allocate_tensor(cutlass.BFloat16, of_a.outer, 1024, swizzle=of_a.inner)
    near_b = memory.allocate_tensor(cutlass.BFloat16, of_b.outer, 1024, swizzle=of_b.inner)
    ring = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers, num_stages=STAGES, producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4), tx_count=(BM + BN) * BK * 2,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)))
    far_a, far_b = cute.local_tile(a, (BM, BK), (None, None)), cute.local_tile(b, (BN, BK), (None, None))
    made = cute.local_tile(c, (BM, BN), (None, None))
    one = cute.make_layout(1)
    to_a, from_a = cpasync.tma_partition(load_a, 0, one, cute.group_modes(near_a, 0, 2), cute.group_modes(far_a, 0, 2))
    to_b, from_b = cpasync.tma_partition(load_b, 0, one, cute.group_modes(near_b, 0, 2), cute.group_modes(far_b, 0, 2))
    steps, across = cute.size(far_a, mode=[3]), cute.size(made, mode=[3])
    tiles = cute.size(made, mode=[2]) * across
    if warp >= 4:
        cute.arch.setmaxregister_decrease(40)
        if warp == 4:
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            while tile < tiles:
                for step in cutlass.range(steps, unroll=1):
                    ring.producer_acquire(state)
                    full = ring.producer_get_barrier(state)
                    cute.copy(load_a, from_a[(None, tile // across, step)], to_a[(None, state.index)], tma_bar_ptr=full)
                    cute.copy(load_b, from_b[(None, tile % across, step)], to_b[(None, state.index)], tma_bar_ptr=full)
                    ring.producer_commit(state)
                    state.advance()
                tile += CTAS
            ring.producer_tail(state)
    else:
        cute.arch.setmaxregister_increase(232)
        whole, own = mma.get_slice(0), mma.get_slice(thread)
        left, right = mma.make_fragment_A(whole.partition_A(near_a)), mma.make_fragment_B(whole.partition_B(near_b))
        acc = cute.make_rmem_tensor(own.partition_C(made[None, None, 0, 0]).shape, cutlass.Float32)
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        while tile < tiles:
            mma.set(warpgroup.Field.ACCUMULATE, False)
            for _ in cutlass.range(steps, unroll=1):
                ring.consumer_wait(state)
                warpgroup.fence()
                for part in cutlass.range(cute.size(left, mode=[2]), unroll_full=True):
                    cute.gemm(mma, acc, left[None, None, part, state.index], right[None, None, part, state.index], acc)
                    mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                ring.consumer_release(state)
                state.advance()
            cute.autovec_copy(acc, own.partition_C(made[None, None, tile // across, tile % across]))
            tile += CTAS


@cute.jit
def _launch_product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    inner = OperandMajorMode.K
    mma = hopper_helpers.make_trivial_tiled_mma(cutlass.BFloat16, cutlass.BFloat16, inner, inner, cutlass.Float32, (1, 1, 1), (64, BN))
    of_a = hopper_helpers.make_smem_layout_a(LayoutEnum.ROW_MAJOR, (BM, BN, BK), cutlass.BFloat16, STAGES)
    of_b = hopper_helpers.make_smem_layout_b(LayoutEnum.ROW_MAJOR, (BM, BN, BK), cutlass.BFloat16, STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp()
    load_a, far_a = cpasync.make_tiled_tma_atom(load, a, cute.slice_(of_a, (None, None, 0)), (BM, BK))
    load_b, far_b = cpasync.make_tiled_tma_atom(load, b, cute.slice_(of_b, (None, None, 0)), (BN, BK))
    _product(load_a, far_a, load_b, far_b, c, mma, of_a, of_b).launch(grid=[CTAS, 1, 1], block=[256, 1, 1])


def add() -> Any:
    """The compiled sum of vectors."""
    return cute.compile(_launch_add, *(make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),)) for _ in range(3)))


def tma_copy() -> Any:
    """The compiled copy of a matrix."""
    extents = cute.sym_int(), cute.sym_int(divisibility=4)
    return cute.compile(_launch_copy, *(make_fake_compact_tensor(cutlass.Float32, extents, stride_order=(1, 0), assumed_align=16)
                                        for _ in range(2)))


def reverse_rows() -> Any:
    """The compiled pipeline of threads: a warp stores rows, another one turns them round."""
    return cute.compile(_launch_reverse, *(make_fake_compact_tensor(cutlass.Float32, (ROWS, 32), stride_order=(1, 0)) for _ in range(2)))


def product() -> Any:
    """The compiled product of row-major A and column-major B, extents that are multiples of 64."""
    extents = cute.sym_int(divisibility=64), cute.sym_int(divisibility=64)
    return cute.compile(_launch_product, *(make_fake_compact_tensor(element, extents, stride_order=(1, 0), assumed_align=128)
                                           for element in (cutlass.BFloat16, cutlass.BFloat16, cutlass.Float32)))
