"""Opcodes as values: what completion offers, how they are spelled, the immediates and the fragments that they know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, ptx, smem
from ptxkit.errors import OpcodeError
from ptxkit.grammar import forms
from ptxkit.grammar.spelling import opcode_tokens
from ptxkit.ptx import bar, cp, ld, mbarrier, opcode, shfl, wgmma
from ptxkit.ptx import st as store
from ptxkit.types import TYPES, Scalar, b32, bf16, f32, u32, u64
from tests.ptxkit.machine import lines, opcodes, run, stored, trace

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]


def test_an_opcode_is_a_value() -> None:
    load = ld.global_.v2.f32
    assert str(load) == "ld.global.v2.f32"
    assert load == opcode("ld.global.v2.f32") == ptx.ld.global_.v2.f32
    assert {load: 1}[opcode("ld.global.v2.f32")] == 1
    assert load != ld.global_.v4.f32
    assert repr(cp.async_.bulk) == "<opcode cp.async.bulk>"


def test_completion_offers_exactly_the_legal_continuations() -> None:
    assert set(dir(ptx.mbarrier)) == {"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "test_wait", "try_wait",
                                      "pending_count", "coordinates", "fragment"}
    assert "tensor_2d" in dir(cp.async_.bulk)
    assert {"async_", "reduce"} >= set(dir(cp)) - {"coordinates", "fragment"}
    assert {name.rstrip("_") for name in dir(ptx) if "_" not in name[:-1]} == set(forms.mnemonics())
    assert {name for name in dir(ptx) if "_" in name[:-1]} == {"tex_1d", "tex_2d", "tex_2dms", "tex_3d"}
    for name in dir(ptx):
        assert isinstance(getattr(ptx, name), ptx.Opcode)
    for name in dir(wgmma.mma_async.sync.aligned.m64n8k16):
        assert getattr(wgmma.mma_async.sync.aligned.m64n8k16, name)


def test_python_reaches_every_opcode_of_the_table() -> None:
    """As many chains of names complete an opcode as chains of modifiers; no two of names spell one, since each reads back."""
    named, written = Counter[str](), Counter[str]()
    known: dict[Hashable, int] = {}
    for name, state in forms.names().items():
        assert str(getattr(ptx, name)) == state.prefix == ".".join(opcode_tokens([name]))
        named[state.prefix.partition(".")[0]] += _opcodes(state, forms.State.attributes, known)
    known = {}
    for mnemonic in forms.mnemonics():
        written[mnemonic] = _opcodes(forms.start(mnemonic), forms.State.next, known)
    assert named == written
    assert written.total() > 90_000


def _opcodes(state: forms.State, following: Callable[[forms.State], dict[str, forms.State]], known: dict[Hashable, int]) -> int:
    """How many complete opcodes begin so."""
    if state.key not in known:
        known[state.key] = bool(state.signatures()) + sum(_opcodes(after, following, known) for after in following(state).values())
    return known[state.key]


def test_a_digit_behind_the_mnemonic_joins_it() -> None:
    assert str(ptx.tex_1d.v4.f32.s32) == "tex.1d.v4.f32.s32"
    assert opcode("tex.2dms.v4.s32.s32") == ptx.tex_2dms.v4.s32.s32
    with pytest.raises(ptx.UnknownModifier, match=r"`tex\.9d`: `\.9d` is not a modifier of `tex`"):
        getattr(ptx, "tex_9d")  # noqa: B009


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_every_walk_through_the_namespace_spells_an_opcode(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(dir(ptx))))
    at, spelled = getattr(ptx, name), [name]
    while True:
        following = [n for n in dir(at) if n not in ("coordinates", "fragment")]
        try:
            assert forms.lookup(str(at))
            complete = True
        except OpcodeError:
            complete = False
        assert complete or following, at
        if not following or (complete and data.draw(st.booleans())):
            break
        spelled.append(data.draw(st.sampled_from(following)))
        at = getattr(at, spelled[-1])
    assert str(at) == ".".join(opcode_tokens(spelled))
    assert opcode(str(at)) == at


def test_optional_operands_are_keywords_under_the_manuals_names() -> None:
    def kernel(p: Ptr[u32], policy: Reg[u64], x: Reg[u32]) -> None:
        barrier = smem.mbarrier(1, check=False)
        mbarrier.try_wait.parity.shared__cta.b64(barrier[0], 0)
        mbarrier.try_wait.parity.shared__cta.b64(barrier[0], 0, suspendTimeHint=100)
        bar.sync(1, b=64)
        mbarrier.arrive.shared__cta.b64(barrier[0], count=3)
        shfl.sync.idx.b32(x, 0, 31, 0xFFFFFFFF)

    found = lines(trace(kernel))
    assert found[0].endswith("[kernel_smem], 0;")
    assert found[1].endswith("[kernel_smem], 0, 100;")
    assert found[2:4] == ["bar.sync 1, 64;", "mbarrier.arrive.shared::cta.b64 _, [kernel_smem], 3;"]


@pytest.mark.parametrize("a_major", ["k", "mn"])
@pytest.mark.parametrize("b_major", ["k", "mn"])
def test_wgmma_takes_its_immediates_from_the_descriptors(a_major: Any, b_major: Any) -> None:
    def kernel(x: Reg[u32]) -> None:
        a, b = smem.tile(bf16, (64, 64), major=a_major), smem.tile(bf16, (64, 64), major=b_major)
        mma = wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
        acc = mma.fragment(zero=False)
        mma(acc, a[0].desc(), b[0].desc(), True)
        mma(acc, a[0].desc(), b[0].desc(), x == 0, imm_scale_b=-1)
        mma(acc, (x, x, x, x), b[0].desc(), False)

    first, second, third = (line.split("}, ", 1)[1] for line in lines(trace(kernel)) if line.startswith("wgmma"))
    transposed = {"k": 0, "mn": 1}
    assert first.split(", ")[2:] == ["1", "1", "1", str(transposed[a_major]), f"{transposed[b_major]};"]
    assert second.split(", ")[2:] == ["%p0", "1", "-1", str(transposed[a_major]), f"{transposed[b_major]};"]
    assert third.split(", ")[-4:] == ["0", "1", "1", f"{transposed[b_major]};"]


@pytest.mark.parametrize(("text", "count", "element"), [
    ("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", 128, f32), ("wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16", 2, b32),
    ("wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8", 4, TYPES["s32"])])
def test_an_opcode_knows_its_fragment(text: str, count: int, element: type[Scalar]) -> None:
    made: list[Any] = []
    traced = trace(lambda: made.append(opcode(text).fragment()))
    assert len(made[0]) == count
    assert made[0][0].type.bits == element.bits
    assert len(opcodes(traced)) == count
    assert len(opcodes(trace(lambda: made.append(opcode(text).fragment(zero=False))))) == 0


def test_a_zeroed_fragment_is_zero() -> None:
    def kernel(out: Ptr[f32]) -> None:
        for element in wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16.fragment():
            store.global_.f32(out, element)

    assert stored(run(trace(kernel), {"out": 0})) == [0.0] * 4
