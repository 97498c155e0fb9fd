"""More known-good kernels: consumers in turn, bulk reductions from two buffers, st.async, maps edited for stores, copies between CTAs."""

from __future__ import annotations

from ptxkit import Ptr, Reg, TensorMap, cluster_ctarank, ctaid, for_range, if_, kernel, smem, tid
from ptxkit.flow import else_, ring
from ptxkit.idioms import cluster_sync, fast_div, init_barriers, remote, wait
from ptxkit.ptx import bar, barrier, cp, fence, ld, mad, mapa, mbarrier, mov, opcode, st, stmatrix, tensormap, wgmma
from ptxkit.types import bf16, f32, u32

BM, BN, BK, STAGES = 64, 64, 64, 3


@kernel(target="sm_90a", block=384)
def pingpong(a: TensorMap, b: TensorMap, d: TensorMap, tiles: Reg[u32], k_tiles: Reg[u32]) -> None:
    """Two consumer warpgroups take tiles (64 rows of A) in turn: while one multiplies, the other stores.

    full[stage]: 1, the producer's arrive.expect_tx. empty[stage]: 1, one thread of the warpgroup that read it. Barrier 2 + w (256
    threads): warpgroup w may multiply; the other one arrives when it has issued its products. Barrier 4 + w (128): its staging.
    """
    a_tile = smem.tile(bf16, (STAGES, BM, BK), name="A")
    b_tile = smem.tile(bf16, (STAGES, BN, BK), name="B")
    staging = smem.tile(bf16, (2, BM, BN), name="staging")
    full, empty = smem.mbarrier(STAGES, name="full"), smem.mbarrier(STAGES, name="empty")
    thread = mov.u32(tid.x)
    with if_(thread == 0):
        init_barriers((full, 1), (empty, 1))
    bar.sync(0)
    load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
    with if_(thread < 128):
        with if_(thread == 0), ring(STAGES, tiles * k_tiles) as (i, stage, parity):
            wait(empty[stage], parity ^ 1)
            mbarrier.arrive.expect_tx.shared__cta.b64(full[stage], a_tile.layout.bytes + b_tile.layout.bytes)
            tile = i // k_tiles
            k = i - tile * k_tiles
            load(a_tile[stage], a, (k * BK, tile * BM), full[stage])
            load(b_tile[stage], b, (k * BK, 0), full[stage])
    with else_():
        mine = (thread >> 7) - 1
        other = mine ^ 1
        lane = thread & 127
        mma = opcode("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16")
        acc = mma.fragment()
        view = staging[mine]
        row, chunk = (thread & 127) >> 5, (thread & 31) >> 4
        line = row * 16 + (thread & 15)
        base = view.register() + line * 128
        with if_(mine == 1):
            bar.arrive(mov.u32(2), 256)                # the first turn is warpgroup 0's
        with for_range(tiles) as t:
            with if_((t & 1) == mine):
                bar.sync(mine + 2, b=256)
                with for_range(k_tiles) as k:
                    i = t * k_tiles + k
                    turns = fast_div(i, STAGES)
                    stage, parity = i - turns * STAGES, turns & 1
                    wait(full[stage], parity)
                    wgmma.fence.sync.aligned()
                    for kk in range(0, BK, 16):
                        mma(acc, a_tile[stage].desc(kk), b_tile[stage].desc(kk), (k != 0) if kk == 0 else True)
                    wgmma.commit_group.sync.aligned()
                    wgmma.wait_group.sync.aligned(0)
                    with if_(lane == 0):
                        mbarrier.arrive.shared__cta.b64(empty[stage])
                with if_(t + 1 != tiles):
                    bar.arrive(other + 2, 256)
                with if_(lane == 0):
                    cp.async_.bulk.wait_group.read(0)
                bar.sync(mine + 4, b=128)
                pack = opcode("cvt.rn.bf16x2.f32")
                for j in range(4):
                    eight = acc[8 * j:8 * j + 8]
                    packed = [pack(eight[2 * q + 1], eight[2 * q]) for q in range(4)]
                    place = base + (((line & 7) ^ (chunk + 2 * j)) << 4)
                    stmatrix.sync.aligned.m8n8.x4.shared__cta.b16(smem.SharedAddress(0, place), packed)
                fence.proxy.async_.shared__cta()
                bar.sync(mine + 4, b=128)
                with if_(lane == 0):
                    cp.async_.bulk.tensor_2d.global_.shared__cta.tile.bulk_group(d, (0, t * BM), view)
                    cp.async_.bulk.commit_group()
        with if_(lane == 0):
            cp.async_.bulk.wait_group(0)


@kernel(target="sm_90a", block=128)
def bulk_sum(source: Ptr[u32], target: Ptr[u32], rounds: Reg[u32]) -> None:
    """Each round fills one of two buffers of 128 words and adds it to `target` by cp.reduce.async.bulk."""
    buffer = smem.array(u32, 256, align=128, name="buffer")
    thread = mov.u32(tid.x)
    reduce = opcode("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32")
    with for_range(rounds) as i:
        half = (i & 1) * 128
        with if_(thread == 0):
            cp.async_.bulk.wait_group.read(1)
        bar.sync(0)
        st.shared__cta.u32(buffer.at(half + thread), ld.global_.u32(source.at(i * 128 + thread)) + 1)
        fence.proxy.async_.shared__cta()
        bar.sync(0)
        with if_(thread == 0):
            reduce(target.at(0), buffer.at(half), 512)
            cp.async_.bulk.commit_group()
    with if_(thread == 0):
        cp.async_.bulk.wait_group(0)


@kernel(target="sm_90a", block=32, cluster=2)
def mail(source: Ptr[u32], target: Ptr[u32]) -> None:
    """Each CTA sends 32 words to its peer by st.async, three times; the peer's thread reads two of them and says that they are free.

    full: 1, the reader's own arrive.expect_tx of 128 bytes. free: 32 arrivals of the peer (release.cluster), after its reads.
    """
    box = smem.array(u32, 32, align=128, name="box")
    full, free = smem.mbarrier(1, name="full"), smem.mbarrier(1, name="free")
    lane = mov.u32(tid.x)
    with if_(lane == 0):
        init_barriers((full, 1), (free, 32))
    cluster_sync()
    peer = mov.u32(cluster_ctarank) ^ 1
    theirs = mapa.shared__cluster.u32(box.at(lane).register(), peer)
    their_full, their_free = remote(full, peer), remote(free, peer)
    index = mad.lo.u32(mov.u32(ctaid.x), 32, lane)
    value = ld.global_.u32(source.at(index))
    send = opcode("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32")
    test = mbarrier.try_wait.parity.acquire.cluster.shared__cta.b64
    with ring(1, 3) as (_, _stage, parity):
        _until(test, free[0], parity ^ 1)
        with if_(lane == 0):
            mbarrier.arrive.expect_tx.shared__cta.b64(full[0], 128)
        send(smem.SharedAddress(0, theirs), value, their_full[0])
        _until(test, full[0], parity)
        mov.u32(value, ld.shared__cta.u32(box.at(lane)) + ld.shared__cta.u32(box.at(lane ^ 1)))
        mbarrier.arrive.release.cluster.shared__cluster.b64(their_free[0])
    st.global_.u32(target.at(index), value)
    cluster_sync()


def _until(test, at, parity) -> None:
    from ptxkit.flow import loop

    with loop() as spin:
        spin.break_if(test(at, parity))


@kernel(target="sm_90a", block=64)
def outputs(target: TensorMap, template: Ptr[u32], maps: Ptr[u32], source: Ptr[f32], other: Ptr[f32], rounds: Reg[u32]) -> None:
    """A map for stores, edited by warp 0 for each round; warp 1 fills 32 rows of 32 floats and stores them through it.

    Warp 0 publishes the map; the CTA's barrier; the storing thread acquires it. The store has read map and box before the next edit.
    """
    box = smem.tile(f32, (1, 32, 32), swizzle=0, name="box")
    edited = smem.array(u32, 32, align=128, name="map")
    thread = mov.u32(tid.x)
    lane = thread & 31
    with if_(thread < 32):
        st.shared__cta.u32(edited.at(lane), ld.global_.u32(template.at(lane)))
        bar.warp.sync(0xFFFFFFFF)
    with for_range(rounds) as i:
        with if_(thread < 32):
            with if_(lane == 0):
                tensormap.replace.tile.global_address.shared__cta.b1024.b64(edited.at(0), other.at(i * 1024))
            bar.warp.sync(0xFFFFFFFF)
            tensormap.cp_fenceproxy.global_.shared__cta.tensormap__generic.release.gpu.sync.aligned(maps.at(0), edited.at(0))
        with else_():
            for r in range(32):
                word = box[0].register() + (r * 128 + (lane << 2))
                st.shared__cta.f32(smem.SharedAddress(0, word), ld.global_.f32(source.at(i * 1024 + r * 32 + lane)))
            fence.proxy.async_.shared__cta()
        bar.sync(0)
        with if_(thread == 32):
            fence.proxy.tensormap__generic.acquire.gpu(maps.at(0))
            cp.async_.bulk.tensor_2d.global_.shared__cta.tile.bulk_group(target, (0, 0), box[0])
            cp.async_.bulk.commit_group()
            cp.async_.bulk.wait_group.read(0)
        bar.sync(0)
    with if_(thread == 32):
        cp.async_.bulk.wait_group(0)


@kernel(target="sm_90a", block=64, cluster=2)
def gather(source: Ptr[u32], target: Ptr[u32]) -> None:
    """Each CTA fills 64 words; bulk copies between CTAs bring the peer's to a second buffer.

    full: 1, the receiver's arrive.expect_tx. Both CTAs have filled, and fenced for the async proxy, before the cluster barrier.
    """
    mine, theirs = smem.array(u32, 64, align=128, name="mine"), smem.array(u32, 64, align=128, name="theirs")
    full = smem.mbarrier(1, name="full")
    thread = mov.u32(tid.x)
    index = mad.lo.u32(mov.u32(ctaid.x), 64, thread)
    with if_(thread == 0):
        init_barriers((full, 1))
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], 256)
    st.shared__cta.u32(mine.at(thread), ld.global_.u32(source.at(index)))
    fence.proxy.async_.shared__cta()
    cluster_sync()
    peer = mov.u32(cluster_ctarank) ^ 1
    copy = opcode("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes")
    with if_(thread == 0):
        copy(smem.SharedAddress(0, mapa.shared__cluster.u32(theirs.at(0).register(), peer)), mine.at(0), 256, remote(full, peer)[0])
    wait(full[0], 0)
    st.global_.u32(target.at(index), ld.shared__cta.u32(mine.at(thread)) + ld.shared__cta.u32(theirs.at(63 - thread)))
    barrier.cluster.arrive.release.aligned()
    barrier.cluster.wait.acquire.aligned()


__all__ = ["bulk_sum", "gather", "mail", "outputs", "pingpong"]
