"""`check` and ptxas agree on lines near the table's own: what one takes, the other takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ptxkit.check import kinds, language
from ptxkit.grammar import match
from tests.grammar import certify, near

pytestmark = [pytest.mark.ptxas, pytest.mark.skipif(certify.ptxas() is None, reason="no ptxas")]


def disagreements(judged: list[near.Verdict]) -> list[str]:
    return [f"{v.line.text} | ptxas: {v.ptxas} | check: {v.check}" for v in judged if not v.agrees and not v.stricter]


def test_a_sample_agrees() -> None:
    judged = near.verdicts(16, seed=7)
    found = near.figures(judged)
    assert found["legal"] > 500
    assert found["illegal"] > 1000
    assert found["recall"] >= 0.99, disagreements(judged)
    assert found["specificity"] >= 0.99, disagreements(judged)


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_a_sweep_agrees() -> None:
    judged = near.verdicts(300, seed=8)
    found = near.figures(judged)
    assert found["recall"] >= 0.999, disagreements(judged)
    assert found["specificity"] >= 0.995, disagreements(judged)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """No verdict of one matcher is remembered under another."""
    kinds.forget()
    language._verdicts.clear()
    yield
    kinds.forget()
    language._verdicts.clear()


def test_a_lax_matcher_is_caught(monkeypatch: pytest.MonkeyPatch, forgotten: None) -> None:
    monkeypatch.setattr(match, "accepts", lambda operand, type: True)
    assert near.figures(near.verdicts(40, 2, ("add", "ld", "mma", "cvt")))["specificity"] < 0.95


def test_a_strict_matcher_is_caught(monkeypatch: pytest.MonkeyPatch, forgotten: None) -> None:
    monkeypatch.setattr(match, "accepts", lambda operand, type: operand.type == type)
    assert near.figures(near.verdicts(40, 2, ("add", "ld", "mma", "cvt")))["recall"] < 0.95


RULES = {
    "a number leads a list: registers of any width may follow": """
        st.v2.u32 [%b64_4], {0, %u64_5};
        st.v4.u32 [%b64_4], {0, 1, %u16_7, %b128_5};
        st.v2.u32 [%b64_4], {%u16_5, 0};
        st.v2.u32 [%b64_4], {0, %f32_5};
        tex.2d.v4.f32.f32 {%f32_1, %f32_2, %f32_3, %f32_4}, [%b64_7, {0f3F800000, %b128_5}];
        st.v2.f32 [%b64_4], {0f3F800000, %u32_5};
        mov.b64 %b64_2, {0, %u64_5, 2, 3};
        mov.b64 %b64_2, {%u64_5, 1};
        mov.b32 %b32_2, {0, _, 2, 3};
        tex.2d.v4.f32.s32 {%f32_1, %f32_2, %f32_3, %f32_4}, [%b64_7, {0, %b128_5}];
        cp.async.bulk.prefetch.tensor.2d.L2.global [%b64_3, {0, %u64_5}];""",
    "an element of a surface in parts": """
        suld.b.1d.b64.zero {%b16_1, %b16_2, %b16_3, %b16_4}, [%b64_7, {%s32_8}];
        suld.b.1d.b64.zero {%b16_1, %b16_2}, [%b64_7, {%s32_8}];
        sust.b.1d.b32.zero [%b64_7, {%s32_8}], {%b16_1, %b16_2};
        sust.b.1d.b32.zero [%b64_7, {%s32_8}], {%b8_1, %b8_2};
        sust.p.1d.wb.b32.zero [%b64_7, {%s32_8}], {%b8_1, %b8_2, %b8_3, %b8_4};""",
    "a vector as a whole": """
        mov.v2.u32 {%u32_1, %b32_2}, {%s32_3, 5};
        mov.v2.u32 {%u32_1, _}, {%u32_3, %tid.x};
        mov.v2.f32 {%f32_1, %f32_2}, {0f3F800000, %f32_3};
        mov.v2.f64 {%f64_1, %f64_2}, {%f64_3, %f64_4};
        mov.v4.b16 {%b16_1, %b16_2, %b16_3, %b16_4}, {%b16_5, %b16_6, %b16_7, 1};
        mov.v2.u32 {%u32_1, %u32_2}, {%u32_3, %u64_4};
        mov.v2.f32 {%f32_1, %f32_2}, {1, %f32_3};
        mov.v2.b32 {%b32_1, %b32_2}, {%u32_3, %f32_4};
        mov.v2.u32 {%u32_1, %u32_2}, {%u32_3};
        mov.v2.u32 {%u32_1, %u32_2}, %u64_3;
        mov.v4.b64 {%b64_1, %b64_2, %b64_3, %b64_4}, {%b64_5, %b64_6, %b64_7, %b64_8};
        mov.v2.pred {%pred_1, %pred_2}, {%pred_3, %pred_4};
        mov.v2.b8 {%b8_1, %b8_2}, {%b8_3, %b8_4};""",
    "types behind those of a product": """
        mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32.bf16 {%s32_19, %s32_20}, {%b32_21}, {%b32_22}, {%s32_23, %s32_24};
        mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32.f32 {%s32_19, %s32_20}, {%b32_21}, {%b32_22}, {%s32_23, %s32_24};
        mma.sync.aligned.m8n8k16.row.col.u4.s32.u8.u8.s32 {%s32_19, %s32_20}, {%b32_21}, {%b32_22}, {%s32_23, %s32_24};
        wmma.load.c.sync.aligned.col.m8n8k32.s32.u4 {%s32_3, %s32_4}, [%b64_5];
        wmma.load.c.sync.aligned.col.m8n8k32.s32.u8 {%s32_3, %s32_4}, [%b64_5];""",
    "roundings, addresses, lists of calls, and one operand more": """
        fma.rz.oob.bf16x2 %b32_1, %b32_2, %b32_3, %b32_4;
        fma.rz.oob.f16x2 %b32_1, %b32_2, %b32_3, %b32_4;
        fence.proxy.tensormap::generic.acquire.cluster [const_data], 128;
        cp.async.mbarrier.arrive.b64 [global_data];
        cp.async.mbarrier.arrive.b64 [const_data];
        cp.async.mbarrier.arrive.shared.b64 [global_data];
        st.async.weak.mbarrier::complete_tx::bytes.b32 [local_data], %b32_5, [%b64_3];
        st.async.weak.mbarrier::complete_tx::bytes.b32 [const_data], %b32_5, [%b64_3];
        call (), callee;
        call %b32_5, (), prototype;
        call %b16_5, (), prototype;
        bra %f16_5.h32;
        mov.pred %pred_17, callee;
        mov.pred %pred_17, global_data;
        atom.exch.b32 %b32_19, [%b64_21], %u32_5, %b32_22;
        atom.exch.b64 %b64_19, [%b64_21], %u64_5, %b64_22;
        multimem.ld_reduce.weak.global.add.bf16x2 %u32_13, [%b64_14];
        multimem.ld_reduce.weak.global.add.f16x2 %u32_13, [%b64_14];
        tld4.g.cube.v4.f32.f32 {%f32_1, %f32_2, %f32_3, %f32_4}, [%b64_6, %s64_5], %f32_12;
        tld4.g.cube.v4.f32.f32 {%f32_1, %f32_2, %f32_3, %f32_4}, [%b64_6, %s64_5];""",
    "results of textures with a predicate, calls and their words": """
        tex.2d.v4.f32.f32 {%f32_1, %f32_2, %f32_3, %f32_4}|%pred_1, [texture, {%f32_5, %f32_6}];
        tex.2d.v4.f32.f32 {%f32_1, %f32_2, %f32_3, %f32_4} | %pred_1, [%b64_1, {%f32_5, %f32_6}];
        tex.2d.v4.f32.f32 {%f32_1, %f32_2, %f32_3, %f32_4}|%f32_7, [texture, {%f32_5, %f32_6}];
        call.uni.uni callee, ();
        call.uni.rank (passed), giver, (passed);
        call.uni.cc callee, ();""",
    "addresses of 32 bits that are extended": """
        cp.async.mbarrier.arrive.noinc.b64 [%b32_1];
        ldmatrix.sync.aligned.m8n8.x1.b16 {%b32_1}, [%u32_2];
        stmatrix.sync.aligned.m8n8.x1.b16 [%s32_2+16], {%b32_1};
        wmma.load.a.sync.aligned.col.m8n8k4.f64 {%f64_5}, [%b32_5];
        cp.async.bulk.prefetch.L2.global [%b32_1], 16;
        createpolicy.range.L2::evict_last.b64 %b64_1, [%b32_1], 16, 16;
        ldmatrix.sync.aligned.m8n8.x1.b16 {%b32_1}, [%f32_2];
        cp.async.bulk.prefetch.L2.global [%pred_1], 16;""",
    "labels, lists and prototypes": """
        bra somewhere;
        bra targets;
        bra prototype;
        brx.idx %u32_1, targets;
        brx.idx %u32_1, somewhere;
        call %u64_2, (), prototype;
        call %u64_2, (), somewhere;""",
    "addresses of arguments and textures": """
        mov.u64 %u64_1, texture;
        mov.b64 %b64_1, texture;
        mov.b16 {%b8_1, %b8_2}, texture;
        mov.u64 %u64_1, parameter;
        mov.u64 %u64_1, argument;
        cvta.param.u64 %u64_1, argument;
        mov.b128 %b128_5, global_data+4;
        mov.b32 {%b16_1, %b16_2}, 0f3F800000;
        mov.b64 {%b16_1, %b16_2, %b16_3, %b16_4}, 0d3FF0000000000000;
        mov.b64 {%b16_1, %b16_2, %b16_3, %b16_4}, 0f3F800000;""",
    "an address as an array's element, and unified": """
        ld.global.u32 %u32_1, global_data[4];
        multimem.red.add.u32 global_data[4], 1;
        red.global.add.u32 global_data[4], 1;
        mbarrier.init.shared.b64 shared_data[8], 1;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%b32_1}, shared_data[16];
        cp.async.bulk.prefetch.L2.global global_data[4], 16;
        ld.global.L2::cache_hint.f32 %f32_1, [%b64_1+4] .unified, %b64_2;
        atom.add.u32 %u32_1, [%b64_1].unified, %u32_2;
        ld.global.f32 %f32_1, [global_data].unified;
        ld.shared.f32 %f32_1, [%b64_1].unified;
        st.global.f32 [%b64_1].unified, %f32_1;
        txq.width.b32 %b32_1, [%b64_1];
        txq.width.b32 %b32_1, [%b64_1+8];
        suq.width.b32 %b32_1, [surface+8];""",
    "numbers at the limits": """
        createpolicy.fractional.L2::evict_last.b64 %b64_4, 0d3FF0000000000000;
        createpolicy.fractional.L2::evict_last.b64 %b64_4, 0f00000000;
        createpolicy.fractional.L2::evict_last.b64 %b64_4, 2.0;
        createpolicy.range.L2::evict_normal.b64 %b64_8, [%b64_9], -2, -1;
        createpolicy.range.L2::evict_normal.b64 %b64_8, [%b64_9], -1, 2;
        shl.b32 %b32_1, %b32_2, -1;
        shf.l.clamp.b32 %b32_27, %b32_28, %b32_29, -1;
        bar.sync 0, 0;
        barrier.red.popc.u32 %u32_1, 0, 0, %pred_1;
        bar.arrive 0, 0;
        mbarrier.try_wait.parity.b64 %pred_1, [%b64_1], 1, 0xFFFFFFFF;
        wgmma.wait_group.sync.aligned ~0;
        st.v2.b32 [%b64_1], {0d3FF0000000000000, 0f3F800000};
        st.v2.b32 [%b64_1], {0f3F800000, 0d3FF0000000000000};
        multimem.st.v2.bf16x2 [%b64_1], {0d3FF0000000000000, 0f3F800000};
        multimem.st.v2.bf16x2 [%b64_1], {0f3F800000, 0d3FF0000000000000};
        multimem.st.v2.f32 [%b64_1], {1.0, 1.0};
        multimem.red.add.v2.f32 [%b64_1], {1.0, 1.0};
        mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%f32_1,%f32_2,%f32_3,%f32_4}, {%b32_1,%b32_2}, {%b32_3}, {1.0,1.0,1.0,1.0};
        mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%f32_1,%f32_2,%f32_3,%f32_4}, {%b32_1,%b32_2}, {%b32_3}, {1.0,%f32_5,.5,1.};""",
    "results that are left out": """
        mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {_,%f32_2,_,%f32_4}, {%b32_1,%b32_2}, {%b32_3}, {%f32_5,%f32_6,%f32_7,1.0};
        mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32 {_,%f32_2,%f32_3,%f32_4}, {%b32_1,%b32_2}, {%b32_3}, {1.0,1.0,1.0,1.0};
        wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {_, %s32_9}, {%u32_1}, {%u32_2}, {2, 3};
        ld.global.v2.f32 {_, %s32_1}, [global_data];
        ld.global.v2.f32 {%f32_1, %s32_1}, [global_data];
        ld.global.v4.f32 {_, %s32_1, %f32_1, %f32_2}, [global_data];
        atom.global.add.v2.f32 {_, %s32_1}, [global_data], {%f32_1, %f32_2};
        atom.global.add.v2.f32 {_, _}, [global_data], {%f32_1, %f32_2};
        setp.geu.or.f16 %pred_1|_, %f16_1, %f16_2, %pred_2;
        setp.geu.or.f16 _|%pred_1, %f16_1, %f16_2, %pred_2;
        match.any.sync.b64 %b32_1|_, %u64_1, %b32_2;
        add.u32 %u32_1|_, %u32_2, %u32_3;
        add.u32 %u32_1|%pred_1, %u32_2, %u32_3;
        add.u32 %u32_1, %u32_2|_, %u32_3;
        nanosleep.u32 %u32_1|_;
        st.v2.b32 [%b64_1], {%tid.x, %b32_1};
        cp.async.bulk.prefetch.tensor.3d.L2.global [%b64_25, {%tid.x, 1, 2}];
        mov.b64 %b64_1, {%tid.x, %clock64};
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {_}, [%b64_1];
        cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%b64_3, {0, 1, 2}], {%f16_5};
        txq.width.b32 %b32_1, [texture];
        txq.force_unnormalized_coords.b32 %b32_28, [texture];
        cvt.rna.tf32.f32 %b32_13, 0f3F800000;
        barrier.rank.sync 0;
        barrier.rank.cta.sync 0;
        bar.rank.arrive 0, 32;
        match.any.sync.b64 %b32_1|%pred_1, %u64_1, %b32_2;""",
    "types and words that are not looked at": """
        mma.sync.aligned.m8n8k4.row.col.f64.u4.f64.f64.f64 {%f64_1, %f64_2}, {%f64_3}, {%f64_4}, {%f64_5, %f64_6};
        mma.sync.aligned.m8n8k16.row.col.s32.u8.b1.u8.s32 {%s32_1, %s32_2}, {%b32_1}, {%b32_2}, {%s32_3, %s32_4};
        movmatrix.sync.u2.aligned.m8n8.trans.b16 %b32_1, %b32_2;
        wmma.load.c.sync.aligned.row.m8n8k128.s32.s4 {%s32_1, %s32_2}, [%b64_1], 0;
        wmma.load.c.sync.aligned.row.m8n8k128.s4.s32 {%s32_1, %s32_2}, [%b64_1], 0;
        fence.proxy.sync_restrict::shared::cta.alias;
        fence.proxy.global.alias;
        fence.proxy.global.tensormap::generic.release.gpu;
        fence.proxy.global.tensormap::generic.acquire.gpu [%b64_1], 128;
        add.finite.f32 %f32_1, %f32_2, %f32_3;
        add.finite.normal.f32 %f32_1, %f32_2, %f32_3;
        multimem.st.acc::f32.release.cluster.v2.f32 [%b64_8], {%f32_9, %f32_10};
        pmevent.mask.rank 1;
        pmevent.rank.mask 1;
        bar.cta.finite.sync 0;
        bar.finite.cta.sync 0;
        barrier.cta.aligned.sync 0;
        barrier.aligned.cta.sync 0;
        fma.sat.rn.oob.f16 %f16_1, %f16_2, %f16_3, %f16_4;
        cvt.rn.f16x2.f32 %b64_1, %f32_1, %f32_2;
        cvt.rn.f16x2.f32 %u64_1, %f32_1, %f32_2;
        sust.b.1d.v2.b32.trap [surface, {%s32_1}], {%b32_1};
        st.async.shared.mbarrier::complete_tx::bytes.v2.f32 [%b64_1], {%u32_1, %u32_2}, [%b64_2];
        st.async.shared.mbarrier::complete_tx::bytes.v2.f32 [%b64_1], {%u32_1, %f32_2}, [%b64_2];""",
}


@pytest.mark.skipif(certify.version() != "13.0", reason="what ptxas 13.0 takes")
@pytest.mark.parametrize("rule", RULES)
def test_what_ptxas_takes_beyond_the_manual(rule: str) -> None:
    """Each line for itself, since ptxas says some things only once."""
    lines = [line.strip() for line in RULES[rule].strip().splitlines()]
    refused = certify.judge(lines, chunk=1)
    assert 0 < len(refused) < len(lines)
    found = {i: sentence for i, sentence in enumerate(near.said(lines)) if sentence}
    assert found.keys() == refused.keys(), [(lines[i], refused.get(i), found.get(i)) for i in found.keys() ^ refused.keys()]
