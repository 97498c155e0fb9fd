"""What PTX leaves undefined about memory: each mistake beside its right twin."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import sim

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
SCHEDULES = [("fifo", 0), ("random", 1)]

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.const .align 4 .b32 table[4] = {{1, 2, 3, 4}};
.visible .entry k(.param .u64 src, .param .u64 out) .reqntid {threads} {{
.reg .pred %p<10>; .reg .b16 %h<8>; .reg .b32 %r<48>; .reg .b64 %rd<16>; .reg .f32 %f<32>;
.shared .align 1024 .b8 data[4096]; .shared .align 8 .b64 bars[4];
ld.param.u64 %rd2, [src]; ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x; mov.u32 %r1, data; mad.lo.u32 %r2, %r0, 16, %r1; mad.wide.u32 %rd1, %r0, 4, %rd0; mad.wide.u32 %rd3, %r0, 4, %rd2;
and.b32 %r3, %r0, 31; setp.eq.u32 %p0, %r0, 0; mov.u32 %r10, bars; mov.u32 %r11, %cluster_ctarank; xor.b32 %r12, %r11, 1;
setp.lt.u32 %p1, %r3, 16;
"""


def run(body: str, schedule: str = "fifo", seed: int = 0, threads: int = 32, grid: int = 1, cluster: int | None = None) -> sim.Report:
    arrays = [np.arange(1024, dtype=np.uint32), np.zeros(1024, np.uint32)]
    text = HEAD.format(threads=threads) + body + "\nret;\n}"
    return sim.run(text, args=arrays, grid=grid, cluster=cluster, schedule=schedule, seed=seed, max_steps=100_000)


def rules(body: str, **launch: int) -> set[str]:
    """The rules broken, the same in every schedule."""
    found = [{f.rule for f in run(body, *how, **launch).findings if f.severity != "info"} for how in SCHEDULES]
    assert all(f == found[0] for f in found), found
    return found[0]


# --------------------------------------------------------------------------------------------------- memory that must be constant

NC = "ld.global.nc.u32 %r5, [%rd3]; "


@pytest.mark.parametrize("write", [
    "st.global.u32 [%rd3], %r5;", "st.u32 [%rd3], %r5;", "red.global.add.u32 [%rd3], 1;", "atom.global.exch.b32 %r6, [%rd3], 1;",
    "st.global.v4.u32 [%rd2], {%r5, %r5, %r5, %r5};",
    "st.shared.v4.u32 [%r2], {%r5, %r5, %r5, %r5}; fence.proxy.async; bar.warp.sync -1; "
    "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 128; @%p0 cp.async.bulk.commit_group; "
    "@%p0 cp.async.bulk.wait_group 0;",
])
def test_a_constant_load_and_a_write_of_the_same_grid(write: str) -> None:
    if "v4.u32 [%rd2]" in write:
        write = "@%p0 " + write
    for load in (NC, "ldu.global.u32 %r5, [%rd3]; ", "ld.global.nc.v2.u32 {%r5, %r6}, [%rd2]; "):
        assert "nc-load" in rules(load + "bar.sync 0; " + write)
        assert "nc-load" not in rules(load + "bar.sync 0; " + write.replace("%rd3", "%rd1").replace("%rd2", "%rd0"))
    assert "nc-load" not in rules("ld.global.u32 %r5, [%rd3]; bar.sync 0; " + write)


def test_a_constant_load_after_the_write() -> None:
    assert "nc-load" in rules("st.global.u32 [%rd3], 5; bar.sync 0; " + NC)
    assert "nc-load" not in rules("st.global.u32 [%rd3+256], 5; bar.sync 0; " + NC)


# --------------------------------------------------------------------------------------------------- other CTAs' shared memory

SYNC = "barrier.cluster.arrive; barrier.cluster.wait; "
FILL = "st.shared.v4.u32 [%r2], {%r3, %r3, %r3, %r3}; @%p0 mbarrier.init.shared.b64 [%r10], 1; " + SYNC


def reach(rank: str, op: str, space: str) -> str:
    """`op` at the place %r6 and the mbarrier %r13 of a CTA of the cluster."""
    maps = f"mapa.shared::cluster.u32 %r6, %r2, {rank}; mapa.shared::cluster.u32 %r13, %r10, {rank}; "
    return FILL + maps + op.replace("SPACE", space) + SYNC


@pytest.mark.parametrize("op", [
    "ldSPACE.u32 %r7, [%r6];", "ldSPACE.v2.u32 {%r7, %r8}, [%r6];", "ld.volatileSPACE.u32 %r7, [%r6];",
    "ld.relaxed.clusterSPACE.u32 %r7, [%r6];", "stSPACE.u32 [%r6+4], %r3;", "atomSPACE.add.u32 %r7, [%r6+8], 1;",
    "redSPACE.add.u32 [%r6+8], 1;", "atomSPACE.cas.b32 %r7, [%r6+8], 1, 2;", "@%p0 mbarrier.arriveSPACE.b64 _, [%r13];",
    "@%p0 mbarrier.arrive.expect_txSPACE.b64 _, [%r13], 0;", "@%p0 mbarrier.expect_tx.relaxed.clusterSPACE.b64 [%r13], 16;",
])
def test_an_address_of_another_cta_is_none_of_ones_own(op: str) -> None:
    for space in (".shared", ".shared::cta"):
        assert rules(reach("%r12", op, space), grid=2, cluster=2) == {"out-of-bounds"}
        assert not rules(reach("%r11", op, space), grid=2, cluster=2)
    assert not rules(reach("%r12", op, ".shared::cluster"), grid=2, cluster=2)


@pytest.mark.parametrize("op", [
    "ldmatrix.sync.aligned.m8n8.x1SPACE.b16 {%r7}, [%r6];", "stmatrix.sync.aligned.m8n8.x1SPACE.b16 [%r6], {%r3};",
    "cp.async.caSPACE.global [%r6], [%rd3], 4; cp.async.wait_all;",
    "@%p0 mbarrier.test_wait.paritySPACE.b64 %p3, [%r13], 0; @%p3 st.global.u32 [%rd0], 1;",
])
def test_instructions_for_ones_own_shared_memory_alone(op: str) -> None:
    assert rules(reach("%r12", op, ".shared"), grid=2, cluster=2) == {"out-of-bounds"}
    assert "out-of-bounds" not in rules(reach("%r11", op, ".shared"), grid=2, cluster=2)


def test_generic_addresses_reach_other_ctas_but_not_their_mbarriers() -> None:
    def generic(of: str, rank: str, op: str) -> str:
        return FILL + f"cvt.u64.u32 %rd4, {of}; cvta.shared.u64 %rd4, %rd4; mapa.u64 %rd4, %rd4, {rank}; " + op + SYNC

    assert not rules(generic("%r2", "%r12", "ld.u32 %r7, [%rd4];"), grid=2, cluster=2)
    assert rules(generic("%r10", "%r12", "@%p0 mbarrier.arrive.b64 _, [%rd4];"), grid=2, cluster=2) == {"out-of-bounds"}
    assert not rules(generic("%r10", "%r11", "@%p0 mbarrier.arrive.b64 _, [%rd4];"), grid=2, cluster=2)
    assert rules("@%p0 mbarrier.init.b64 [%rd0], 1;") == {"out-of-bounds"}


# --------------------------------------------------------------------------------------------------- tokens of mbarriers

TOKEN = "@%p0 mbarrier.init.shared.b64 [%r10], 32; @%p0 mbarrier.init.shared.b64 [%r10+8], 32; bar.sync 0; "
ARRIVE = "mbarrier.arrive.shared.b64 %rd{}, [%r10]; "
WAIT = "W{0}: mbarrier.try_wait.shared.b64 %p3, [%r10], %rd{0}; @!%p3 bra W{0}; "


def test_a_token_is_good_for_two_phases() -> None:
    phases = TOKEN + ARRIVE.format(5) + WAIT.format(5) + "bar.sync 0; " + ARRIVE.format(6) + WAIT.format(6) + "bar.sync 0; "
    assert not rules(phases + WAIT.format(6).replace("W6", "V6"))
    assert "mbarrier-state" in rules(phases + WAIT.format(5).replace("W5", "V5"))
    assert "mbarrier-state" in rules(phases + WAIT.format(6).replace("W6", "V6").replace("[%r10]", "[%r10+8]"))
    assert "mbarrier-state" in rules(TOKEN + ARRIVE.format(5) + "mov.u64 %rd7, 0; mbarrier.test_wait.shared.b64 %p3, [%r10+8], %rd7; "
                                     "selp.u32 %r5, 1, 0, %p3; st.global.u32 [%rd1], %r5;")


def test_the_pending_count_of_a_token() -> None:
    body = TOKEN + "@%p0 mbarrier.arrive.shared.b64 %rd5, [%r10]; mbarrier.pending_count.b64 %r5, %rd5; @%p0 st.global.u32 [%rd0], %r5;"
    arrays = [np.zeros(32, np.uint32), np.zeros(32, np.uint32)]
    sim.run(HEAD.format(threads=32) + body + " ret; }", args=arrays, grid=1)
    assert arrays[1][0] == 32


# --------------------------------------------------------------------------------------------------- sizes, discarded lines

@pytest.mark.parametrize(("one", "other", "wrong"), [
    ("atom.global.add.u32 %r5, [%rd0], 1;", "ld.relaxed.gpu.global.u64 %rd5, [%rd0]; cvt.u32.u64 %r5, %rd5;", True),
    ("red.relaxed.gpu.global.add.u64 [%rd0], 1;", "st.volatile.global.u32 [%rd0+4], 1;", True),
    ("atom.global.cas.b16 %h1, [%rd0+2], %h0, %h0;", "red.global.add.u32 [%rd0], 1;", True),
    ("red.shared.add.u32 [%r1], 1;", "atom.shared.exch.b64 %rd5, [%r1], 1;", True),
    ("red.global.add.noftz.f16x2 [%rd0], %r20;", "red.global.add.noftz.f16 [%rd0+2], %h0;", False),
    ("atom.global.add.u32 %r5, [%rd0], 1;", "ld.relaxed.gpu.global.u64 %rd5, [%rd0+8];", False),
    ("atom.global.add.u32 %r5, [%rd0], 1;", "ld.relaxed.gpu.global.u32 %r6, [%rd0];", False),
])
def test_strong_accesses_of_different_sizes(one: str, other: str, wrong: bool) -> None:
    start = "mov.u32 %r20, 0; mov.u16 %h0, 0; @%p0 st.shared.v2.u64 [%r1], {0, 0}; bar.sync 0; setp.eq.u32 %p4, %r0, 32; "
    start = start.replace("{0, 0}", "{%rd6, %rd6}").replace("mov.u32 %r20", "mov.u64 %rd6, 0; mov.u32 %r20")
    apart = f"@%p0 {one} {{}} @%p4 {other}"
    assert ("mixed-size" in rules(start + apart.format(""), threads=64)) == wrong
    assert "mixed-size" not in rules(start + apart.format("bar.sync 0;"), threads=64)


def test_discarded_lines() -> None:
    discard = "@%p0 discard.global.L2 [%rd2], 128; "
    assert rules(discard + "bar.sync 0; ld.global.u32 %r5, [%rd3]; st.global.u32 [%rd1], %r5;") == {"discarded"}
    assert not rules(discard + "bar.sync 0; st.global.u32 [%rd3], 7; ld.global.u32 %r5, [%rd3]; st.global.u32 [%rd1], %r5;")
    assert rules(discard + "bar.sync 0; ld.global.u32 %r5, [%rd3+128]; st.global.u32 [%rd1], %r5;") == {"order-dependence"}
    assert "global-race" in rules("ld.global.u32 %r5, [%rd3]; " + discard + "st.global.u32 [%rd1], %r5;")
    assert not rules("@%p0 applypriority.global.L2::evict_normal [%rd2], 128; ld.global.u32 %r5, [%rd3]; st.global.u32 [%rd1], %r5;")


# --------------------------------------------------------------------------------------------------- lanes of one instruction

@pytest.mark.parametrize("store", [
    "st.global.u32 [%rd0], V;", "st.shared.u32 [%r1], V;", "and.b32 %r5, %r2, 0xffffffdf; st.shared.u32 [%r5], V;",
    "st.relaxed.gpu.global.u32 [%rd0], V;", "st.global.v2.u32 [%rd0], {V, V};",
    "and.b32 %r5, %r2, 0xffffffdf; stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {V, V, V, V};",
])
def test_lanes_of_one_instruction_write_one_address(store: str) -> None:
    report = run(store.replace("V", "%r3"))
    assert {f.rule for f in report.findings if f.severity != "info"} == {"lane-conflict"}
    assert report.verdict == "incomplete"
    assert not report.every_schedule
    assert not rules("mov.u32 %r7, 5; " + store.replace("V", "%r7"))
    assert not rules(store.replace("V", "%r3").replace("0xffffffdf", "0xffffffff").replace("[%rd0]", "[%rd9]").replace("[%r1]", "[%r2]")
                     .join(["mad.wide.u32 %rd9, %r0, 16, %rd0; ", ""]))


def test_asynchronous_copies_of_lanes_to_one_address() -> None:
    copy = "cp.async.ca.shared.global [{}], [{}], 4; cp.async.wait_all;"
    assert rules(copy.format("%r1", "%rd3")) == {"lane-conflict"}
    assert not rules(copy.format("%r1", "%rd2"))
    assert not rules(copy.format("%r2", "%rd3"))


# --------------------------------------------------------------------------------------------------- memory that cannot be written

def test_constant_memory_and_parameters_cannot_be_written() -> None:
    address = "mov.u64 %rd5, table; cvta.const.u64 %rd5, %rd5; "
    assert rules(address + "st.u32 [%rd5], 5;") == {"read-only"}
    assert rules(address + "atom.add.u32 %r5, [%rd5], 5;") == {"read-only"}
    assert not rules(address + "ld.u32 %r5, [%rd5]; st.global.u32 [%rd1], %r5;")


# --------------------------------------------------------------------------------------------------- copies by threads, local memory

COPY = "setp.eq.u32 %p4, %r0, 1; @%p4 cp.async.ca.shared.global [%r2], [%rd2+4], 4; "
STORE = "@%p0 st.global.u32 [%rd2+4], 7; "


@pytest.mark.parametrize(("body", "wrong"), [
    (STORE + COPY + "cp.async.wait_all;", True), (STORE + "bar.sync 0; " + COPY + "cp.async.wait_all;", False),
    (COPY + STORE + "cp.async.wait_all;", True), (COPY + "bar.sync 0; " + STORE + "cp.async.wait_all;", True),
    (COPY + "cp.async.wait_all; " + STORE, True), (COPY + "cp.async.wait_all; bar.sync 0; " + STORE, False),
    (COPY + "cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; " + STORE, False),
    (COPY + "cp.async.commit_group; cp.async.wait_group 1; bar.sync 0; " + STORE, True),
    (COPY + "@%p4 st.global.u32 [%rd2+4], 7; cp.async.wait_all;", True),
    (COPY + "cp.async.wait_all; @%p4 st.global.u32 [%rd2+4], 7;", False),
    (COPY + STORE.replace("+4", "+8"), False), (COPY + "@%p0 atom.global.add.u32 %r5, [%rd2+4], 7; cp.async.wait_all;", True),
    (COPY.replace("], 4;", "], 4, 0;") + STORE + "cp.async.wait_all;", False),
])
def test_what_copies_of_threads_read(body: str, wrong: bool) -> None:
    assert rules(body) - {"bulk-exit"} == ({"global-race"} if wrong else set())


def test_a_copy_that_reads_and_a_bulk_store() -> None:
    store = "st.shared.u32 [%r2], 5; fence.proxy.async; bar.sync 0; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 128; " \
        "@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;"
    copy = "add.u32 %r13, %r2, 1024; cp.async.ca.shared.global [%r13], [%rd3], 4; cp.async.wait_all; "
    fill = "st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0}; "
    assert rules(fill + copy + "fence.proxy.async; bar.sync 0; " + store) == set()
    assert rules(fill + copy + store.replace("fence.proxy.async; ", "fence.proxy.async.shared::cta; ")) == {"proxy-fence"}


LOCAL = ".local .align 8 .b8 own[16]; "


@pytest.mark.parametrize(("body", "wrong"), [
    ("ld.local.u32 %r5, [own]; st.global.u32 [%rd1], %r5;", True),
    ("mov.u64 %rd5, own; cvta.local.u64 %rd5, %rd5; ld.u32 %r5, [%rd5]; st.global.u32 [%rd1], %r5;", True),
    ("st.local.u32 [own], 5; ld.local.u32 %r5, [own]; st.global.u32 [%rd1], %r5;", False),
    ("@%p1 st.local.u32 [own], 5; ld.local.u32 %r5, [own]; st.global.u32 [%rd1], %r5;", True),
    ("@%p1 st.local.u32 [own], 5; ld.local.u32 %r5, [own]; @%p1 st.global.u32 [%rd1], %r5;", False),
    ("st.local.u32 [own], 5; ld.local.v2.u32 {%r5, %r6}, [own]; st.global.u32 [%rd1], %r5;", False),
    ("st.local.u32 [own], 5; ld.local.v2.u32 {%r5, %r6}, [own]; st.global.u32 [%rd1], %r6;", True),
    ("ld.local.u32 %r5, [own]; st.local.u32 [own+4], %r5; add.u32 %r5, %r5, 1;", False),
])
def test_local_memory_that_nothing_has_written(body: str, wrong: bool) -> None:
    assert rules(LOCAL + body) == ({"undefined-value"} if wrong else set())


def test_local_memory_of_which_some_bytes_are_written() -> None:
    """Which bits of the value are used is not followed: no mistake, but no certificate, unless all of it ends here."""
    body = LOCAL + "st.local.u32 [own], 5; ld.local.u64 %rd5, [own]; cvt.u32.u64 %r5, %rd5; "
    assert rules(body + "st.global.u32 [%rd1], %r5;") == {"order-dependence"}
    assert not rules(body + "add.u32 %r5, %r5, 1;")
