"""Legal code: mypy and basedpyright report nothing here, the types asserted are those inferred, and the kernel traces."""

from __future__ import annotations

from typing import Any, Literal, assert_type

from ptxkit import MBarrier, MBarriers, Ptr, Reg, Shared, TensorMap, Tile, Vec, for_range, func, if_, kernel, label, loop, ring, smem, tid
from ptxkit.dsl.special import Dim3
from ptxkit.flow import else_
from ptxkit.idioms import elect, init_barriers, prefetch_tensormaps, remote, wait
from ptxkit.ptx import (
    add,
    atom,
    bar,
    bfe,
    bra,
    cp,
    cvt,
    fence,
    fma,
    ld,
    ldmatrix,
    mapa,
    mbarrier,
    mov,
    opcode,
    prmt,
    selp,
    setp,
    shfl,
    st,
    stmatrix,
    sub,
    wgmma,
    xor,
)
from ptxkit.ptx import (
    elect as elect_sync,
)
from ptxkit.smem import TileView
from ptxkit.types import Scalar, bf16, bits32, bits64, f16x2, f32, integer32, pred, s32, u16, u32, u64

STAGES = 4
load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
mma = wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16


@func
def twice(x: Reg[u32]) -> Reg[u32]:
    return add.u32(x, x)


def integers(x: Reg[u32], wide: Reg[u64]) -> Reg[u32]:
    """Signs interchange, bits are anything of their width, a result may be given first."""
    signed = mov.s32(x)
    bits = xor.b32(x, signed)
    assert_type(signed, Reg[s32])
    assert_type(bits, Reg[bits32])
    assert_type(add.u32(signed, bits), Reg[u32])
    assert_type(add.u32(x, signed, 1), Reg[u32])
    assert_type(fma.rn.f32(bits, bits, 0.5), Reg[f32])
    assert_type(x + signed, Reg[u32])
    assert_type(signed - 1, Reg[s32])
    assert_type(2 * x, Reg[u32])
    assert_type(~x, Reg[u32])
    assert_type(-signed, Reg[s32])
    assert_type(x << signed, Reg[u32])
    assert_type(wide >> x, Reg[u64])
    assert_type(x % tid.x, Reg[u32])
    assert_type(bits & 31, Reg[bits32])
    assert_type(cvt.u64.u32(x), Reg[u64])
    assert_type(mov.b64((bits, x)), Reg[bits64])
    low, high = mov.b64((bits, x), wide)
    unpacked: Vec[bits32, Literal[2]] = mov.b64((bits, x), wide)
    annotated: Reg[u32] = bfe.u32(bits, 4, 14)
    add.u32(low, high, unpacked[0])
    return twice(annotated)


def floats(x: Reg[u32], a: Reg[f32]) -> None:
    product = fma.rn.f32(a, 2.0, 1.0)
    fma.rn.f32(product, product, a, a)
    packed = cvt.rn.bf16x2.f32(a, product)
    half: Reg[f16x2] = mov.b32(packed)
    prmt.b32(packed, half, 0x5410)
    assert_type(cvt.rni.s32.f32(a), Reg[s32])
    assert_type(selp.f32(a, 0.0, x < 3), Reg[f32])
    assert_type(setp.gt.f32(a, product), Reg[pred])
    assert_type(setp.lt.and_.u32(x, 3, x != 0), Reg[pred])
    add.u32(x, x, 1, pred=~(x == 3))


def threads(x: Reg[u32], where: Dim3) -> Reg[pred]:
    lane, elected = elect_sync.sync(0xFFFFFFFF)
    assert_type(elected, Reg[pred])
    found = mov.pred(0)
    shfl.sync.idx.b32(lane, 0, 31, 0xFFFFFFFF, p=found)
    assert_type(shfl.sync.bfly.b32(x, 1, 31, 0xFFFFFFFF), Reg[bits32])
    bar.sync(x, b=128)
    assert_type(mov.u32(where.x), Reg[u32])
    return found & elected


def memory(out: Ptr[f32], numbers: Shared[u32], x: Reg[u32], a: Reg[f32], wide: Reg[u64]) -> None:
    pair, single = ld.global_.v2.f32(out), ld.global_.f32(out + 4)
    assert_type(pair, Vec[f32, Literal[2]])
    st.global_.v2.f32(out.at(x), Vec([a, single]))
    st.global_.v2.f32(out + wide, (a, pair[0]))
    st.global_.v2.f32(out, pair)
    st.global_.f32(wide, a)
    st.global_.L2__cache_hint.f32(out, a, wide)
    st.shared__cta.u32(numbers[x], 3)
    st.shared__cta.u32(numbers.register(), x)
    ld.global_.u16(x, out.cast(u16))
    four = ldmatrix.sync.aligned.m8n8.x4.shared__cta.b16(numbers)
    assert_type(four, Vec[bits32, Literal[4]])
    stmatrix.sync.aligned.m8n8.x4.shared__cta.b16(numbers, four)
    stmatrix.sync.aligned.m8n8.x2.shared__cta.b16(numbers + 8, four[:2])
    assert_type(atom.global_.add.u32(wide, 1), Reg[u32])
    mapa.shared__cluster.u32(numbers, 0)


def copies(a: TensorMap, b: TensorMap, tile: Tile[bf16], full: MBarriers, x: Reg[u32]) -> None:
    prefetch_tensormaps(a, b)
    copy = load
    copy(tile[0], a, (x, 0), full[0], pred=elect())
    load.multicast__cluster(tile[x].lines(0, 8), b, (0, x), full[x], 0b11)
    state = mbarrier.arrive.shared__cta.b64(full[0])
    mbarrier.test_wait.shared__cta.b64(full[0], state)
    mbarrier.arrive.expect_tx.shared__cta.b64(full[x], tile.stage_bytes)
    mbarrier.try_wait.parity.shared__cta.b64(full[0], x & 1, suspendTimeHint=100)
    arrive = mbarrier.arrive.shared__cluster.b64 if full.count > 1 else mbarrier.arrive.shared__cta.b64
    arrive(remote(full[0], 1), pred=x == 0)
    view: TileView[bf16] = tile[0]
    one: MBarrier = full[0]
    wait(one, x & 1)
    cp.async_.bulk.tensor_2d.global_.shared__cta.tile.bulk_group(a, (x, x), view)


def multiply(tile: Tile[bf16], accumulate: Reg[pred]) -> Vec[f32, Literal[128]]:
    acc = mma.fragment()
    assert_type(acc, Vec[f32, Literal[128]])
    wgmma.fence.sync.aligned()
    mma(acc, tile[0].desc(0), tile[1].desc(16), True)
    mma(acc, tile[0].desc(0), tile[1].desc(16), accumulate, imm_scale_a=-1)
    mma(acc, tile[0].desc(0), tile[1].desc(16), ~accumulate)
    from_registers: Vec[bits32, Any] = Vec([mov.b32(0) for _ in range(4)])
    mma(acc, from_registers, tile[1].desc(), 1)
    return acc


def chosen(type: type[Scalar], tile: Tile[Any], x: Reg[integer32]) -> None:
    """An opcode spelled at trace time takes anything; a parameter may ask for any 32-bit integer."""
    multiply = opcode(f"wgmma.mma_async.sync.aligned.m64n64k16.f32.{type.__name__}.{type.__name__}")
    multiply(multiply.fragment(zero=False), tile[0].desc(), tile[1].desc(), True)
    sub.s32(x, 1)


@kernel(block=128, cluster=2)
def legal(a: TensorMap, b: TensorMap, out: Ptr[f32], n: Reg[u32], wide: Reg[u64], alpha: Reg[f32], *, TYPE: type[Scalar] = bf16) -> None:
    tile = smem.tile(bf16, (STAGES, 256, 64))
    numbers = smem.array(u32, 128)
    full = smem.mbarrier(STAGES, check=False)
    init_barriers((full, 1))
    fence.mbarrier_init.release.cluster()
    again = label()
    again.place()
    integers(n, wide)
    floats(n, alpha)
    memory(out, numbers, n, alpha, wide)
    with if_(threads(n, tid)):
        copies(a, b, tile, full, n)
    with else_(), loop() as forever:
        forever.break_if(~(n == 0))
    with for_range(n) as i, ring(STAGES, i) as (_, stage, parity):
        wait(full[stage], parity)
    bra(again, pred=n == 1)
    st.global_.f32(out, multiply(tile, n > 0)[0])
    chosen(TYPE, tile, n)
