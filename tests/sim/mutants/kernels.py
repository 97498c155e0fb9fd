"""Known-good kernels for what hgemm and the examples do not do: they must earn no finding, and the catalogue breaks them."""

from __future__ import annotations

from ptxkit import Ptr, Reg, TensorMap, cluster_ctarank, ctaid, for_range, if_, kernel, laneid, smem, tid
from ptxkit.flow import else_, ring
from ptxkit.idioms import cluster_sync, elect, init_barriers, remote, wait
from ptxkit.ptx import bar, cp, fence, ld, mad, mapa, mbarrier, mov, setmaxnreg, st, tensormap, wgmma
from ptxkit.types import bf16, f32, u32

BM, BN, BK = 64, 64, 64


@kernel(target="sm_90a", block=128)
def staged_mma(a: Ptr[bf16], b: Ptr[bf16], c: Ptr[f32], rounds: Reg[u32]) -> None:
    """C[64, 64] = A[64, K] B[64, K]ᵀ, one warpgroup: cp.async into swizzled tiles, half of the products take A from registers.

    Every thread copies, waits for its own copies, fences them for the async proxy and meets the others; when the products have been
    waited for, and all have met again, the next round overwrites the tiles.
    """
    a_tile = smem.tile(bf16, (1, BM, BK), name="A")
    b_tile = smem.tile(bf16, (1, BN, BK), name="B")
    thread = mov.u32(tid.x)
    warp, lane = thread >> 5, thread & 31
    mma = wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
    acc = mma.fragment()
    line, chunk = thread >> 3, thread & 7
    width = rounds * BK
    with for_range(rounds) as k:
        for tile, source in ((a_tile, a), (b_tile, b)):
            for i in range(4):
                row = line + 16 * i
                place = tile[0].register() + row * 128 + (((row & 7) ^ chunk) << 4)
                cp.async_.cg.shared__cta.global_(smem.SharedAddress(0, place), source.at(row * width + k * BK + chunk * 8), 16)
        cp.async_.commit_group()
        row = warp * 16 + (lane >> 2)
        pair = a.at(row * width + k * BK + (lane & 3) * 2)
        low = [ld.global_.u32(pair + kk) for kk in range(0, BK, 8)]
        pair = a.at((row + 8) * width + k * BK + (lane & 3) * 2)
        high = [ld.global_.u32(pair + kk) for kk in range(0, BK, 8)]
        cp.async_.wait_group(0)
        fence.proxy.async_.shared__cta()
        bar.sync(0)
        wgmma.fence.sync.aligned()
        for i in range(4):
            if i < 2:
                mma(acc, a_tile[0].desc(16 * i), b_tile[0].desc(16 * i), True)
            else:
                mma(acc, [low[2 * i], high[2 * i], low[2 * i + 1], high[2 * i + 1]], b_tile[0].desc(16 * i), True)
        wgmma.commit_group.sync.aligned()
        wgmma.wait_group.sync.aligned(0)
        bar.sync(0)
    out = c.at((warp * 16 + (lane >> 2)) * BN + (lane & 3) * 2)
    for j in range(0, 32, 4):
        st.global_.v2.f32(out + 2 * j, acc[j:j + 2])
        st.global_.v2.f32(out + 2 * j + 8 * BN, acc[j + 2:j + 4])


@kernel(target="sm_90a", block=32, cluster=2)
def exchange(source: Ptr[u32], target: Ptr[u32]) -> None:
    """Two CTAs pass a block of 32 words back and forth through each other's shared memory, three times.

    ready: 32 arrivals, every thread of the peer after its store (release.cluster publishes it). taken: 32 arrivals of the peer, after
    it has read the block.
    """
    block = smem.array(u32, 32, name="block")
    ready, taken = smem.mbarrier(1, name="ready"), smem.mbarrier(1, name="taken")
    thread = mov.u32(tid.x)
    with if_(thread == 0):
        init_barriers((ready, 32), (taken, 32))
    cluster_sync()
    peer = mov.u32(cluster_ctarank) ^ 1
    theirs = mapa.shared__cluster.u32(block.at(thread).register(), peer)
    their_ready, their_taken = remote(ready, peer), remote(taken, peer)
    index = mad.lo.u32(mov.u32(ctaid.x), 32, thread)
    value = ld.global_.u32(source.at(index))
    with ring(1, 3) as (_, _stage, parity):
        with_peer = mbarrier.try_wait.parity.acquire.cluster.shared__cta.b64
        _wait(with_peer, taken[0], parity ^ 1)
        st.shared__cluster.u32(smem.SharedAddress(0, theirs), value)
        mbarrier.arrive.release.cluster.shared__cluster.b64(their_ready[0])
        _wait(with_peer, ready[0], parity)
        mov.u32(value, ld.shared__cta.u32(block.at(thread)) + 1)
        mbarrier.arrive.release.cluster.shared__cluster.b64(their_taken[0])
    st.global_.u32(target.at(index), value)
    cluster_sync()


def _wait(opcode, barrier, parity) -> None:
    from ptxkit.flow import loop

    with loop() as spin:
        spin.break_if(opcode(barrier, parity))


@kernel(block=128)
def named(source: Ptr[u32], target: Ptr[u32], rounds: Reg[u32]) -> None:
    """Warps 0 and 1 fill a buffer of 64 words, warps 2 and 3 empty it: barriers 1 (full) and 2 (empty), 128 threads each."""
    buffer = smem.array(u32, 64, name="buffer")
    thread = mov.u32(tid.x)
    with if_(thread < 64):
        with for_range(rounds) as i:
            value = ld.global_.u32(source.at(i * 64 + thread))
            with if_(i != 0):
                bar.sync(2, b=128)
            st.shared__cta.u32(buffer.at(thread), value)
            bar.arrive(1, 128)
    with else_():
        mine = thread - 64
        with for_range(rounds) as i:
            bar.sync(1, b=128)
            value = ld.shared__cta.u32(buffer.at(63 - mine))
            with if_(i + 1 != rounds):
                bar.arrive(2, 128)
            st.global_.u32(target.at(i * 64 + mine), value)


@kernel(block=64)
def publish(source: Ptr[u32], target: Ptr[u32], rounds: Reg[u32]) -> None:
    """Warp 0 writes 32 words and one elected lane arrives for all of them; warp 1 reads them and one elected lane hands them back.

    full, empty: 1 arrival, of the elected lane, after bar.warp.sync.
    """
    buffer = smem.array(u32, 64, name="buffer")
    full, empty = smem.mbarrier(2, name="full"), smem.mbarrier(2, name="empty")
    thread, lane = mov.u32(tid.x), mov.u32(laneid)
    with if_(thread == 0):
        init_barriers((full, 1), (empty, 1))
    bar.sync(0)
    with if_(thread < 32):
        with ring(2, rounds) as (i, stage, parity):
            wait(empty[stage], parity ^ 1)
            st.shared__cta.u32(buffer.at(stage * 32 + lane), ld.global_.u32(source.at(i * 32 + lane)))
            bar.warp.sync(0xFFFFFFFF)
            with if_(elect()):
                mbarrier.arrive.shared__cta.b64(full[stage])
    with else_():
        with ring(2, rounds) as (i, stage, parity):
            wait(full[stage], parity)
            value = ld.shared__cta.u32(buffer.at(stage * 32 + (lane ^ 1)))
            bar.warp.sync(0xFFFFFFFF)
            with if_(elect()):
                mbarrier.arrive.shared__cta.b64(empty[stage])
            st.global_.u32(target.at(i * 32 + lane), value)


@kernel(target="sm_90a", block=32)
def retarget(source: TensorMap, template: Ptr[u32], maps: Ptr[u32], other: Ptr[f32], target: Ptr[f32], rounds: Reg[u32]) -> None:
    """A tensor map is edited on the device: round i copies 32 rows of 32 floats from row 32 i of `other`.

    The edit is made in shared memory, copied to `maps` with a release, acquired, used; the copy has landed before the next edit.
    """
    box = smem.tile(f32, (1, 32, 32), swizzle=0, name="box")
    edited = smem.array(u32, 32, align=128, name="map")
    full = smem.mbarrier(1, name="full")
    lane = mov.u32(tid.x)
    load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
    st.shared__cta.u32(edited.at(lane), ld.global_.u32(template.at(lane)))
    with if_(lane == 0):
        init_barriers((full, 1))
    bar.warp.sync(0xFFFFFFFF)
    with ring(1, rounds) as (i, _, parity):
        with if_(lane == 0):
            address = other.at(i * 1024)
            tensormap.replace.tile.global_address.shared__cta.b1024.b64(edited.at(0), address)
        bar.warp.sync(0xFFFFFFFF)
        tensormap.cp_fenceproxy.global_.shared__cta.tensormap__generic.release.gpu.sync.aligned(maps.at(0), edited.at(0))
        fence.proxy.tensormap__generic.acquire.gpu(maps.at(0))
        with if_(lane == 0):
            mbarrier.arrive.expect_tx.shared__cta.b64(full[0], box.layout.bytes)
            load(box[0], source, (0, 0), full[0])
        wait(full[0], parity)
        for r in range(32):
            word = box[0].register() + (r * 128 + (lane << 2))
            st.global_.f32(target.at(i * 1024 + r * 32 + lane), ld.shared__cta.f32(smem.SharedAddress(0, word)))
        fence.proxy.async_.shared__cta()             # the next copy overwrites what has been read here
        bar.warp.sync(0xFFFFFFFF)


@kernel(target="sm_90a", block=384)
def pool(target: Ptr[u32]) -> None:
    """Registers go from one warpgroup to two others: 128 * 40 + 256 * 232 <= 384 * 168."""
    thread = mov.u32(tid.x)
    with if_(thread < 128):
        setmaxnreg.dec.sync.aligned.u32(40)
    with else_():
        setmaxnreg.inc.sync.aligned.u32(232)
        st.global_.u32(target.at(thread - 128), thread)


@kernel(block=32)
def transpose(source: Ptr[u32], target: Ptr[u32]) -> None:
    """One warp transposes 32 x 32 words through shared memory, rows of 33 words apart so that columns lie in different banks."""
    block = smem.array(u32, 32 * 33, name="block")
    lane = mov.u32(tid.x)
    across, down = block.at(lane).register(), mad.lo.u32(lane, 132, block.at(0).register())
    for r in range(32):
        st.shared__cta.u32(smem.SharedAddress(132 * r, across), ld.global_.u32(source.at(lane + 32 * r)))
    bar.warp.sync(0xFFFFFFFF)
    for c in range(32):
        st.global_.u32(target.at(lane + 32 * c), ld.shared__cta.u32(smem.SharedAddress(4 * c, down)))


__all__ = ["exchange", "named", "pool", "publish", "retarget", "staged_mma", "transpose"]
