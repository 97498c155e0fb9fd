"""Asynchronous copies of every kind, tensor maps edited on the device, mbarriers in every form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxkit import TensorMap, sim

from .kernels import OUT, run

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
TWO = ".param .u64 source, .param .u64 out"
SHARED = ".shared .align 128 .b8 tile[4096];\n.shared .align 8 .b64 bar;\n"
SETUP = """ld.param.u64 %rd20, [source];
mov.u32 %r30, tile;
mov.u32 %r31, bar;
setp.eq.u32 %p5, %r0, 0;
@%p5 mbarrier.init.shared.b64 [bar], 1;
bar.sync 0;
"""
WAIT = "W{n}:\nmbarrier.try_wait.parity.shared.b64 %p1, [bar], {parity};\n@!%p1 bra W{n};\n"
schedules = pytest.mark.parametrize(("schedule", "seed"), [("fifo", 0), ("lazy", 0), ("adversarial", 1),
                                                           *(("random", seed) for seed in range(4))])


def go(body: str, *args: Any, **options: Any) -> sim.Report:
    report = run(OUT + SETUP + body, *args, parameters=options.pop("parameters", TWO), before=SHARED, **options)
    assert not report.findings, report
    return report


@schedules
def test_cp_async(schedule: str, seed: int) -> None:
    """4 bytes of each word's 8 come from memory, the rest are zero; the last group is waited for last."""
    source = np.arange(64, dtype=np.uint32)
    out = np.full(64, 9, np.uint32)
    body = """shl.b32 %r1, %r0, 3;
cvt.u64.u32 %rd2, %r1;
add.u64 %rd3, %rd20, %rd2;
add.u32 %r2, %r30, %r1;
mov.u32 %r3, 4;
cp.async.ca.shared.global [%r2], [%rd3], 8, %r3;
cp.async.commit_group;
cp.async.ca.shared.global [%r2+256], [%rd3], 8;
cp.async.commit_group;
cp.async.wait_group 1;
ld.shared.v2.u32 {%r4, %r5}, [%r2];
cp.async.wait_all;
ld.shared.v2.u32 {%r6, %r7}, [%r2+256];
add.u64 %rd4, %rd0, %rd2;
add.u32 %r4, %r4, %r6;
add.u32 %r5, %r5, %r7;
st.global.v2.u32 [%rd4], {%r4, %r5};"""
    go(body, source, out, schedule=schedule, seed=seed)
    assert out.tolist() == [2 * i if i % 2 == 0 else i for i in range(64)]


def test_cp_async_reads_no_more_than_its_src_size() -> None:
    """Memory may end within the unit; a byte more is a finding."""
    source, out = np.arange(9, dtype=np.uint32), np.zeros(4, np.uint32)
    body = """mov.u32 %r3, {size};
setp.eq.u32 %p2, %r0, 0;
@%p2 cp.async.ca.shared.global [%r30], [%rd20+32], 16, %r3;
cp.async.wait_all;
@%p2 ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r30];
@%p2 st.global.v4.u32 [%rd0], {{%r4, %r5, %r6, %r7}};"""
    go(body.format(size=4), source, out)
    assert out.tolist() == [8, 0, 0, 0]
    report = run(OUT + SETUP + body.format(size=5), source, out, parameters=TWO, before=SHARED)
    assert [finding.rule for finding in report.findings] == ["out-of-bounds"]


def test_cp_async_ignores_the_source() -> None:
    out = np.full(32, 9, np.uint32)
    body = """shl.b32 %r1, %r0, 2;
cvt.u64.u32 %rd2, %r1;
add.u64 %rd3, %rd20, %rd2;
add.u32 %r2, %r30, %r1;
setp.lt.u32 %p2, %r0, 16;
cp.async.ca.shared.global [%r2], [%rd3], 4, %p2;
cp.async.wait_all;
ld.shared.u32 %r4, [%r2];
st.global.u32 [%rd1], %r4;"""
    go(body, np.arange(16, 48, dtype=np.uint32), out)
    assert out.tolist() == [0] * 16 + list(range(32, 48))


@schedules
@pytest.mark.parametrize("noinc", ["", ".noinc"])
def test_cp_async_arrives_on_a_barrier(schedule: str, seed: int, noinc: str) -> None:
    out = np.zeros(32, np.uint32)
    count = 32 if noinc else 1
    body = f"""@%p5 mbarrier.init.shared.b64 [bar], {count};
bar.warp.sync 0xffffffff;
shl.b32 %r1, %r0, 2;
cvt.u64.u32 %rd2, %r1;
add.u64 %rd3, %rd20, %rd2;
add.u32 %r2, %r30, %r1;
cp.async.ca.shared.global [%r2], [%rd3], 4;
cp.async.mbarrier.arrive{noinc}.shared.b64 [bar];
bar.warp.sync 0xffffffff;
{'' if noinc else '@%p5 mbarrier.arrive.shared.b64 _, [bar];'}
{WAIT.format(n=0, parity=0)}xor.b32 %r1, %r1, 4;
add.u32 %r2, %r30, %r1;
ld.shared.u32 %r4, [%r2];
st.global.u32 [%rd1], %r4;"""
    go(body, np.arange(32, dtype=np.uint32), out, schedule=schedule, seed=seed)
    assert out.tolist() == [i ^ 1 for i in range(32)]


@schedules
def test_bulk_copies_there_and_back(schedule: str, seed: int) -> None:
    source = np.arange(256, dtype=np.uint32)
    out = np.zeros(256, np.uint32)
    body = f"""@!%p5 bra E;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r30], [%rd20], 1024, [%r31];
{WAIT.format(n=0, parity=0)}cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r30], 1024;
cp.async.bulk.commit_group;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [%r30], 512;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
cp.async.bulk.wait_group 0;
E:"""
    if schedule == "random":
        body = body.replace("cp.reduce", "cp.async.bulk.wait_group 0;\ncp.reduce")
    go(body, source, out, schedule="fifo" if schedule in ("lazy", "adversarial") else schedule, seed=seed)
    assert out.tolist() == [2 * i if i < 128 else i for i in range(256)]


@schedules
def test_multicast_and_peer_copies(schedule: str, seed: int) -> None:
    """CTA 0 loads for both; each sends its half to the other, which adds it."""
    source = np.arange(64, dtype=np.uint32)
    out = np.zeros(128, np.uint32)
    body = f"""mov.u32 %r20, %cluster_ctarank;
barrier.cluster.arrive;
barrier.cluster.wait;
@!%p5 bra E0;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
setp.ne.u32 %p6, %r20, 0;
mov.u16 %h1, 3;
@!%p6 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r30], [%rd20], 256, [%r31], %h1;
E0:
{WAIT.format(n=0, parity=0)}@%p5 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
barrier.cluster.arrive;
barrier.cluster.wait;
@!%p5 bra E;
xor.b32 %r21, %r20, 1;
mapa.shared::cluster.u32 %r22, %r30, %r21;
mapa.shared::cluster.u32 %r23, %r31, %r21;
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r22+1024], [%r30+128], 128, [%r23];
cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r22], [%r30+128], 128, [%r23];
{WAIT.format(n=1, parity=1)}E:
barrier.cluster.arrive;
barrier.cluster.wait;
shl.b32 %r1, %r0, 2;
add.u32 %r2, %r30, %r1;
ld.shared.u32 %r4, [%r2];
ld.shared.u32 %r5, [%r2+1024];
shl.b32 %r6, %r20, 8;
cvt.u64.u32 %rd5, %r6;
add.u64 %rd1, %rd1, %rd5;
st.global.u32 [%rd1], %r4;
st.global.u32 [%rd1+128], %r5;"""
    go(body, source, out, grid=2, cluster=2, schedule=schedule, seed=seed)
    first = out[:32] - np.arange(32, 64, dtype=np.uint32)
    assert first.tolist() == list(range(32))
    assert out[32:64].tolist() == list(range(32, 64))
    assert out[64:].tolist() == out[:64].tolist()


@schedules
def test_st_async_and_red_async(schedule: str, seed: int) -> None:
    out = np.zeros(64, np.uint32)
    body = f"""mov.u32 %r20, %cluster_ctarank;
xor.b32 %r21, %r20, 1;
shl.b32 %r1, %r0, 2;
add.u32 %r2, %r30, %r1;
st.shared.u32 [%r2+512], 1000;
@%p5 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
bar.sync 0;
barrier.cluster.arrive;
barrier.cluster.wait;
mapa.shared::cluster.u32 %r22, %r2, %r21;
mapa.shared::cluster.u32 %r23, %r31, %r21;
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r22], %r0, [%r23];
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r22+512], %r0, [%r23];
{WAIT.format(n=0, parity=0)}ld.shared.u32 %r4, [%r2];
ld.shared.u32 %r5, [%r2+512];
add.u32 %r4, %r4, %r5;
shl.b32 %r6, %r20, 7;
cvt.u64.u32 %rd5, %r6;
add.u64 %rd1, %rd1, %rd5;
st.global.u32 [%rd1], %r4;
barrier.cluster.arrive;
barrier.cluster.wait;"""
    go(body, np.zeros(1, np.uint32), out, grid=2, cluster=2, schedule=schedule, seed=seed)
    assert out.tolist() == [1000 + 2 * i for i in range(32)] * 2


MAPS = ".param .align 64 .b8 map[128], .param .u64 out"


def tensor(body: str, given: Any, *args: Any, **options: Any) -> sim.Report:
    prefix = SETUP.replace("ld.param.u64 %rd20, [source];", "mov.b64 %rd20, map;\ncvta.param.u64 %rd20, %rd20;")
    report = run(OUT + prefix + body, given, *args, parameters=MAPS, before=SHARED, **options)
    assert not report.findings, report
    return report


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@schedules
def test_a_box_half_outside_is_filled_and_clipped(swizzle: int, schedule: str, seed: int) -> None:
    source = np.arange(6 * 20, dtype=np.uint32).reshape(6, 20)
    target = np.full((6, 20), 7, np.uint32)
    inner = (swizzle or 64) // 4
    given = TensorMap(source, box=(4, inner), swizzle=swizzle)
    into = TensorMap(target, box=(4, inner), swizzle=swizzle)
    body = f"""mov.b64 %rd21, to;
cvta.param.u64 %rd21, %rd21;
@!%p5 bra E;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], {16 * inner};
mov.u32 %r1, 12;
mov.u32 %r2, -1;
mov.u32 %r3, 3;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r30], [%rd20, {{%r1, %r2}}], [%r31];
{WAIT.format(n=0, parity=0)}cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd21, {{%r1, %r3}}], [%r30];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd21, {{%r1, %r3}}], [%r30];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
E:"""
    prefix = SETUP.replace("ld.param.u64 %rd20, [source];", "mov.b64 %rd20, map;\ncvta.param.u64 %rd20, %rd20;")
    report = run(OUT.replace("[out]", "[to]").replace("ld.param.u64 %rd0, [to];", "mov.u64 %rd0, 0;") + prefix + body, given, into,
                 parameters=".param .align 64 .b8 map[128], .param .align 64 .b8 to[128]", before=SHARED, schedule=schedule, seed=seed)
    assert not report.findings, report
    expected = np.full((6, 20), 7, np.uint32)
    stop = min(20, 12 + inner)
    expected[3, 12:stop] = 0
    expected[4:, 12:stop] = 2 * source[:2, 12:stop]
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize(("dtype", "operation"), [*((dtype, operation) for dtype in ("float16", "bfloat16", "int32")
                                                    for operation in ("add", "min", "max")), ("float32", "add"), ("tf32", "add")])
def test_tensor_reductions(dtype: str, operation: str) -> None:
    elements, dtype = (dtype, "float32") if dtype == "tf32" else (None, dtype)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    inner = 64 // np.dtype(kind).itemsize
    target = np.arange(inner * 2).reshape(2, inner).astype(kind)
    body = f"""shl.b32 %r1, %r0, 2;
add.u32 %r2, %r30, %r1;
st.shared.u32 [%r2], {0x40400000 if dtype == "float32" else 3 if dtype == "int32" else 0x42004200 if dtype == "float16" else 0x40404040};
fence.proxy.async;
bar.warp.sync 0xffffffff;
@!%p5 bra E;
mov.u32 %r1, 0;
cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group [%rd20, {{%r1, %r1}}], [%r30];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
E:"""
    before = target.astype(np.float32)
    tensor(body, TensorMap(target, box=(2, inner), dtype=elements), np.zeros(32, np.uint32))
    function: Any = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation]
    np.testing.assert_array_equal(target.astype(np.float32), function(before, 3).astype(kind).astype(np.float32))


def test_a_tensor_map_edited_on_the_device() -> None:
    """The map is copied to shared memory, told another address and extent, and used from global memory."""
    arrays = np.arange(2 * 8 * 16, dtype=np.uint32).reshape(2, 8, 16)
    scratch = np.zeros(64, np.uint32)
    out = np.zeros(128, np.uint32)
    parameters = ".param .align 64 .b8 map[128], .param .u64 scratch, .param .u64 other, .param .u64 out"
    body = OUT + SETUP.replace("ld.param.u64 %rd20, [source];", "mov.b64 %rd20, map;\ncvta.param.u64 %rd20, %rd20;") + f"""
ld.param.u64 %rd10, [scratch];
ld.param.u64 %rd11, [other];
add.u64 %rd11, %rd11, 512;
shl.b32 %r1, %r0, 2;
cvt.u64.u32 %rd2, %r1;
add.u64 %rd3, %rd20, %rd2;
ld.u32 %r2, [%rd3];
add.u32 %r3, %r30, %r1;
st.shared.u32 [%r3], %r2;
bar.warp.sync 0xffffffff;
cvt.u64.u32 %rd12, %r30;
@%p5 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd12], %rd11;
mov.u32 %r4, 3;
@%p5 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd12], 1, %r4;
bar.warp.sync 0xffffffff;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd10], [%rd12], 128;
fence.proxy.tensormap::generic.acquire.gpu [%rd10], 128;
@!%p5 bra E;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
mov.u32 %r5, 0;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r30+1024], [%rd10, {{%r5, %r5}}], [%r31];
E:
{WAIT.format(n=0, parity=0)}ld.shared.u32 %r6, [%r3+1024];
st.global.u32 [%rd1], %r6;
ld.shared.u32 %r6, [%r3+1408];
st.global.u32 [%rd1+384], %r6;"""
    report = run(body, TensorMap(arrays[0], box=(8, 16)), scratch, arrays, out, parameters=parameters, before=SHARED)
    assert not report.findings, report
    assert out[:32].tolist() == list(range(128, 160))
    assert out[96:].tolist() == [0] * 32


FIELDS = ("global_address .b64 %rd11", "rank .b32 1", "global_dim .b32 0, 16", "global_dim .b32 1, 8", "global_stride .b64 0, 64",
          "box_dim .b32 0, 16", "box_dim .b32 1, 8", "element_stride .b32 0, 1", "element_stride .b32 1, 1", "elemtype .b32 2",
          "interleave_layout .b32 0", "swizzle_mode .b32 0", "fill_mode .b32 0")


@pytest.mark.parametrize("missing", [None, 3, 6, 8])
def test_a_tensor_map_made_of_zeros(missing: int | None) -> None:
    """As Triton makes its descriptors: 128 zeros, of which the kernel replaces every field. A map that lacks one is judged by it."""
    array, scratch, out = np.arange(128, dtype=np.uint32).reshape(8, 16), np.zeros(64, np.uint32), np.zeros(32, np.uint32)
    replaced = ""
    for number, (field, type, value) in enumerate(line.split(" ", 2) for line in FIELDS):
        if number != missing:
            *ordinal, given = value.split(", ")
            register = given if given[0] == "%" else "%rd13" if type == ".b64" else "%r4"
            move = "" if given[0] == "%" else f"mov{type.replace('b', 'u')} {register}, {given};\n"
            given = given if field in ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode") else register
            replaced += f"{move}@%p5 tensormap.replace.tile.{field}.shared::cta.b1024{type} [%rd12], {', '.join([*ordinal, given])};\n"
    body = OUT + SETUP + f"""ld.param.u64 %rd10, [scratch];
ld.param.u64 %rd11, [source];
shl.b32 %r1, %r0, 2;
add.u32 %r3, %r30, %r1;
mov.u32 %r2, 0;
st.shared.u32 [%r3], %r2;
bar.warp.sync 0xffffffff;
cvt.u64.u32 %rd12, %r30;
{replaced}bar.warp.sync 0xffffffff;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd10], [%rd12], 128;
fence.proxy.tensormap::generic.acquire.gpu [%rd10], 128;
@!%p5 bra E;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
mov.u32 %r5, 0;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r30+1024], [%rd10, {{%r5, %r5}}], [%r31];
E:
{WAIT.format(n=0, parity=0)}ld.shared.u32 %r6, [%r3+1024];
st.global.u32 [%rd1], %r6;"""
    report = run(body, array, scratch, out, parameters=".param .u64 source, .param .u64 scratch, .param .u64 out", before=SHARED)
    assert [finding.rule for finding in report.findings] == ([] if missing is None else ["bad-tensormap"]), report
    assert out.tolist() == (list(range(32)) if missing is None else [0] * 32)


def test_mbarrier_tokens_counts_and_drops() -> None:
    out = np.zeros(8, np.uint32)
    body = """@!%p5 bra E;
mbarrier.inval.shared.b64 [bar];
mbarrier.init.shared.b64 [bar], 4;
mbarrier.arrive.shared.b64 %rd2, [bar];
mbarrier.pending_count.b64 %r1, %rd2;
st.global.u32 [%rd0], %r1;
mbarrier.arrive.noComplete.shared.b64 %rd3, [bar], 2;
mbarrier.test_wait.shared.b64 %p1, [bar], %rd3;
selp.u32 %r2, 1, 0, %p1;
st.global.u32 [%rd0+4], %r2;
mbarrier.arrive_drop.shared.b64 %rd4, [bar];
mbarrier.test_wait.shared.b64 %p1, [bar], %rd3;
selp.u32 %r2, 1, 0, %p1;
st.global.u32 [%rd0+8], %r2;
mbarrier.arrive.shared.b64 %rd5, [bar], 3;
mbarrier.try_wait.shared.b64 %p1, [bar], %rd5, 100;
selp.u32 %r2, 1, 0, %p1;
st.global.u32 [%rd0+12], %r2;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 64;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 32;
mbarrier.arrive.shared.b64 _, [bar], 3;
mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;
selp.u32 %r2, 1, 0, %p1;
st.global.u32 [%rd0+16], %r2;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 32;
mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;
selp.u32 %r2, 1, 0, %p1;
st.global.u32 [%rd0+20], %r2;
E:"""
    go(body, np.zeros(1, np.uint32), out)
    assert out[:6].tolist() == [4, 0, 1, 1, 0, 1]


@pytest.mark.parametrize(("body", "rule"), [
    ("mov.u32 %r1, 24;\ncp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r30], %r1;", "misaligned"),
    ("cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r30], 4096;", "out-of-bounds"),
    ("add.u64 %rd0, %rd0, 4;\ncp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r30], 16;", "misaligned"),
    ("mov.u32 %r1, 9;\ncp.async.ca.shared.global [%r30], [%rd20], 8, %r1;", "cp-async-size"),
    ("mov.u32 %r1, 0;\ncp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd0, {%r1}], [%r30];", "bad-tensormap"),
    ("cvt.u64.u32 %rd2, %r30;\nmov.u64 %rd3, 0;\nst.shared.u64 [%r30], 5;\n"
     "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd2], %rd3;",
     "bad-tensormap"),
    ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1048000;\nmbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1000;",
     "mbarrier-tx-overflow"),
    ("mov.u32 %r1, 0;\nmbarrier.init.shared.b64 [bar], %r1;", "mbarrier-count")])
def test_faults(body: str, rule: str) -> None:
    report = run(OUT + SETUP + body, np.zeros(64, np.uint32), np.zeros(256, np.uint32), parameters=TWO, before=SHARED)
    assert [finding.rule for finding in report.findings] == [rule]


def test_im2col_is_not_supported() -> None:
    body = ("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
            "[%r30], [%rd0, {%r1, %r1, %r1}], [%r31], {%h1};")
    with pytest.raises(sim.UnsupportedError, match="im2col"):
        run(OUT + SETUP + body, np.zeros(64, np.uint32), np.zeros(256, np.uint32), parameters=TWO, before=SHARED)
