"""Fences have operands: which memory, which map, which scope. Each mistake stands beside its right twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxkit
from ptxkit import sim

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
SCHEDULES = [("fifo", 0), ("random", 1), ("adversarial", 3)]

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 work, .param .align 64 .b8 map[128]) .reqntid 64 {
.reg .pred %p<10>; .reg .b32 %r<24>; .reg .b64 %rd<24>;
.shared .align 128 .b8 data[4096]; .shared .align 128 .b8 edited[256]; .shared .align 8 .b64 bars[2];
ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [work];
mov.u32 %r0, %tid.x; mov.u32 %r1, data; mad.lo.u32 %r2, %r0, 4, %r1; mov.u32 %r3, bars; setp.eq.u32 %p0, %r0, 0; mov.u32 %r4, 0;
mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1; mapa.shared::cluster.u32 %r7, %r2, %r6; mov.u32 %r9, edited;
setp.lt.u32 %p1, %r0, 32; setp.eq.u32 %p2, %r0, 32; setp.eq.u32 %p4, %r5, 0; mov.u64 %rd5, map; cvta.param.u64 %rd5, %rd5;
mad.wide.u32 %rd6, %r5, 4096, %rd0;
"""
SYNC = "barrier.cluster.arrive; barrier.cluster.wait; "
STORE = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd6], [%r1], 256; @%p0 cp.async.bulk.commit_group; " \
        "@%p0 cp.async.bulk.wait_group 0; "


def run(body: str, schedule: str = "fifo", seed: int = 0, cluster: int = 2) -> sim.Report:
    out, work = np.zeros(4096, np.uint32), np.zeros(4096, np.uint32)
    map_ = ptxkit.TensorMap(out, box=(64,))
    return sim.run(HEAD + body + " ret; }", args=[out, work, map_], grid=cluster, cluster=cluster, schedule=schedule, seed=seed)


def rules(body: str, **launch: Any) -> set[str]:
    """The errors, the same in every schedule."""
    found = [{f.rule for f in run(body, *how, **launch).findings if f.severity == "error"} for how in SCHEDULES]
    assert all(f == found[0] for f in found), found
    return found[0]


# --------------------------------------------------------------------------------------------------- proxy fences and state spaces

@pytest.mark.parametrize(("fence", "own", "peer"), [
    ("fence.proxy.async.shared::cta;", True, False), ("fence.proxy.async.shared::cluster;", True, True),
    ("fence.proxy.async;", True, True), ("fence.proxy.async.global;", False, False), ("", False, False)])
def test_which_shared_memory_a_proxy_fence_covers(fence: str, own: bool, peer: bool) -> None:
    mine = "st.shared.u32 [%r2], %r0; " + fence + " bar.sync 0; " + STORE
    assert rules(mine, cluster=1) == (set() if own else {"proxy-fence"})
    theirs = SYNC + "st.shared::cluster.u32 [%r7], %r0; " + fence + SYNC + STORE + SYNC
    assert rules(theirs) == (set() if peer else {"proxy-fence"})
    receiver = SYNC + "st.shared::cluster.u32 [%r7], %r0; " + SYNC + fence + " bar.sync 0; " + STORE + SYNC
    assert rules(receiver) == (set() if own else {"proxy-fence"})


@pytest.mark.parametrize(("fence", "covers"), [("fence.proxy.async.shared::cta;", False), ("fence.proxy.async.shared::cluster;", True),
                                               ("fence.proxy.async;", True)])
def test_reads_of_a_peer_before_a_copy_overwrites_what_was_read(fence: str, covers: bool) -> None:
    init = "@%p0 mbarrier.init.shared.b64 [%r3], 1; st.shared.u32 [%r2], %r0; fence.proxy.async; "
    read = SYNC + "ld.shared::cluster.u32 %r8, [%r7]; st.global.u32 [%rd7], %r8; " + fence + SYNC
    place = "mad.lo.u32 %r10, %r5, 64, %r0; mad.wide.u32 %rd7, %r10, 4, %rd1; "
    load = "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 256; " \
           "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 256, [%r3]; " \
           "W: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0; @!%p3 bra W; "
    assert rules(place + init + read + load + SYNC) == (set() if covers else {"proxy-fence"})


@pytest.mark.parametrize(("fence", "covers"), [("fence.proxy.async.global;", True), ("fence.proxy.async;", True),
                                               ("fence.proxy.async.shared::cluster;", False)])
def test_global_memory(fence: str, covers: bool) -> None:
    body = "@%p0 mbarrier.init.shared.b64 [%r3], 1; mad.wide.u32 %rd7, %r0, 4, %rd1; st.global.u32 [%rd7], %r0; " + fence + \
        " bar.sync 0; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 256; " \
        "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 256, [%r3]; " \
        "W: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0; @!%p3 bra W; "
    assert rules(body, cluster=1) == (set() if covers else {"proxy-fence"})


# --------------------------------------------------------------------------------------------------- tensor maps

COPY = "@!%p1 bra {n}; mad.lo.u32 %r11, %r0, 4, %r9; mad.wide.u32 %rd8, %r0, 4, %rd5; ld.param.u32 %r12, [map]; ld.u32 %r12, [%rd8]; " \
       "st.shared.u32 [%r11], %r12; bar.warp.sync -1; " \
       "@%p0 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r9], 0, 64; bar.warp.sync -1; " \
       "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd{to}], [%r9], 128; {n}: "
MAPS = "mov.u64 %rd10, %rd1; add.u64 %rd11, %rd1, 128; "
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%rd{}], 128; "
USE = "@{p} cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd{m}, {{%r4}}], [%r1]; @{p} cp.async.bulk.commit_group; " \
      "@{p} cp.async.bulk.wait_group 0; "
FILL = "st.shared.u32 [%r2], %r0; fence.proxy.async; "


def copy(to: int) -> str:
    return COPY.format(n=f"N{to}", to=to)


def use(map_: int, who: str = "%p0") -> str:
    return USE.format(m=map_, p=who)


def test_an_acquire_covers_the_map_at_its_address() -> None:
    body = MAPS + FILL + copy(10) + copy(11) + "bar.sync 0; "
    assert not rules(body + ACQUIRE.format(10) + use(10), cluster=1)
    assert rules(body + use(10), cluster=1) == {"tensormap-fence"}
    assert rules(body + ACQUIRE.format(11) + use(10), cluster=1) == {"tensormap-fence"}
    assert rules(body + ACQUIRE.format(10) + use(10) + use(11), cluster=1) == {"tensormap-fence"}
    assert not rules(body + ACQUIRE.format(10) + ACQUIRE.format(11) + use(10) + use(11), cluster=1)
    assert rules(body + "@%p0 " + ACQUIRE.format(10) + use(10, "%p2"), cluster=1) == {"tensormap-fence"}
    assert not rules(body + "@%p0 " + ACQUIRE.format(10) + "bar.sync 0; " + use(10, "%p2"), cluster=1)
    assert rules(MAPS + FILL + ACQUIRE.format(10) + copy(10) + "bar.sync 0; " + use(10), cluster=1) == {"tensormap-fence"}


def test_a_copy_publishes_its_own_destination() -> None:
    """The other map was written by stores: it takes a release fence of the tensormap proxy."""
    stores = "@!%p1 bra S; mad.wide.u32 %rd8, %r0, 4, %rd5; ld.u32 %r12, [%rd8]; mad.wide.u32 %rd9, %r0, 4, %rd11; " \
             "st.global.u32 [%rd9], %r12; {} S: bar.sync 0; "
    both = MAPS + FILL + stores + copy(10) + "bar.sync 0; " + ACQUIRE.format(10) + ACQUIRE.format(11)
    release = "fence.proxy.tensormap::generic.release.gpu;"
    assert rules(both.replace("{}", "") + use(11), cluster=1) == {"tensormap-fence"}
    assert not rules(both.replace("{}", "") + use(10), cluster=1)
    assert not rules(both.replace("{}", release) + use(11), cluster=1)


# --------------------------------------------------------------------------------------------------- scopes

@pytest.mark.thinned(3)
@pytest.mark.parametrize(("fence", "clusters", "ctas"), [
    ("fence.acq_rel.cta;", False, False), ("fence.acq_rel.cluster;", True, False), ("fence.acq_rel.gpu;", True, True),
    ("fence.sc.cta;", False, False), ("fence.sc.gpu;", True, True), ("membar.cta;", False, False), ("membar.gl;", True, True),
    ("membar.sys;", True, True)])
def test_the_scope_of_a_fence(fence: str, clusters: bool, ctas: bool) -> None:
    """A flag between two CTAs: of one cluster, of two."""
    body = "mov.u32 %r13, %ctaid.x; setp.eq.u32 %p5, %r13, 0; @!%p0 bra E; @!%p5 bra C; st.global.u32 [%rd1], 7; " + fence + \
        " st.relaxed.gpu.global.u32 [%rd1+128], 1; bra E; C: ld.relaxed.gpu.global.u32 %r14, [%rd1+128]; setp.ne.u32 %p6, %r14, 1; " \
        "@%p6 bra C; " + fence + " ld.global.u32 %r15, [%rd1]; st.global.u32 [%rd1+256], %r15; E:"
    assert rules(body) == (set() if clusters else {"global-race"})
    out, work = np.zeros(4096, np.uint32), np.zeros(4096, np.uint32)
    apart = sim.run(HEAD + body + " ret; }", args=[out, work, ptxkit.TensorMap(out, box=(64,))], grid=2, cluster=1)
    assert {f.rule for f in apart.findings if f.severity == "error"} == (set() if ctas else {"global-race"})


def test_a_map_that_another_cluster_publishes() -> None:
    """By a flag: a release behind the copy, an acquire before the fence of the tensormap proxy."""
    body = MAPS + FILL + "mov.u32 %r13, %ctaid.x; setp.eq.u32 %p5, %r13, 0; bar.sync 0; @!%p5 bra C; " + copy(10) + \
        "bar.sync 0; @%p0 st.release.gpu.global.u32 [%rd1+1024], 1; bra E; C: @!%p0 bra E; " \
        "P: ld.acquire.gpu.global.u32 %r14, [%rd1+1024]; setp.ne.u32 %p6, %r14, 1; @%p6 bra P; {} " + use(10) + "E:"
    for fence, wrong in ((ACQUIRE.format(10), set()), (ACQUIRE.format(11), {"tensormap-fence"}), ("", {"tensormap-fence"})):
        for schedule, seed in SCHEDULES:
            out = np.zeros(4096, np.uint32)
            args = [out, np.zeros(4096, np.uint32), ptxkit.TensorMap(out, box=(64,))]
            report = sim.run(HEAD + body.replace("{}", fence) + " ret; }", args=args, grid=2, cluster=1, schedule=schedule, seed=seed)
            assert {f.rule for f in report.findings if f.severity == "error"} == wrong, str(report)
