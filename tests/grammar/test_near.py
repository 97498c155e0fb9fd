"""`check` and ptxas agree on lines near the table's own: what one takes, the other takes."""

from __future__ import annotations

import pytest

from grammar import match, parse, tree
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


def test_a_lax_matcher_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "accepts", lambda operand, type: True)
    assert near.figures(near.verdicts(40, 2, ("add", "ld", "mma", "cvt")))["specificity"] < 0.95


def test_a_strict_matcher_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
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
}


@pytest.mark.skipif(certify.version() != "13.0", reason="what ptxas 13.0 takes")
@pytest.mark.parametrize("rule", RULES)
def test_what_ptxas_takes_beyond_the_manual(rule: str) -> None:
    """Each line for itself, since ptxas says some things only once."""
    lines = [line.strip() for line in RULES[rule].strip().splitlines()]
    module = parse("\n".join((certify.module_head("9.0", "sm_90a"), *lines, "}")))
    body = next(item.body for item in module.items if isinstance(item, tree.Function) and item.name == "kernel")
    read = [statement for statement in body or () if isinstance(statement, tree.Instruction)]
    assert len(read) == len(lines)
    refused = certify.judge(lines, chunk=1)
    assert 0 < len(refused) < len(lines)
    found = {i: said for i, instruction in enumerate(read) if (said := near.said(instruction))}
    assert found.keys() == refused.keys(), [(lines[i], refused.get(i), found.get(i)) for i in found.keys() ^ refused.keys()]
