"""Descriptors found in PTX against the layouts that the kernels were traced with; known bits against numbers."""

from __future__ import annotations

import itertools
import random

import pytest

from ptxkit import Reg, TensorMap, kernel, smem
from ptxkit.check.analysis import Analysis
from ptxkit.check.places import Places
from ptxkit.dsl import descriptor
from ptxkit.flow import for_range
from ptxkit.grammar import parse
from ptxkit.inspect.descriptors import ALL, Descriptors, Word
from ptxkit.inspect.entry import descriptors
from ptxkit.inspect.facts import DescriptorFact
from ptxkit.layout import Layout
from ptxkit.ptx import wgmma
from ptxkit.types import bf16, f16, u32

pytestmark = pytest.mark.pure

CASES = [(type, a, b, span) for type, a, b, span in itertools.product((bf16, f16), ("k", "mn"), ("k", "mn"), (128, 64, 32, 16))]


def facts(made: object) -> tuple[DescriptorFact, ...]:
    traced = made.trace()  # type: ignore[attr-defined]
    module = parse(traced.ptx(locs=True))
    return descriptors(Analysis(module, module.entries[0], Places(module, traced.positions()), traced))


def product(type: object, a: str, b: str, span: int, stages: int) -> object:
    opcode = wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 if type is bf16 else wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16

    @kernel(block=128)
    def multiply(source: TensorMap, rounds: Reg[u32]) -> None:
        left = smem.tile(type, (stages, 64, 64), major=a, swizzle=span, name="left")  # type: ignore[call-overload]
        right = smem.tile(type, (stages, 64, 64), major=b, swizzle=span, name="right")  # type: ignore[call-overload]
        acc = opcode.fragment()
        wgmma.fence.sync.aligned()
        with for_range(rounds) as i:
            stage = i & (stages - 1) if stages > 1 else 0
            for k in range(0, 64, 16):
                opcode(acc, left[stage].desc(k), right[stage].desc(k), True)
        wgmma.commit_group.sync.aligned()
        wgmma.wait_group.sync.aligned(0)

    return multiply


@pytest.mark.parametrize(("type", "a", "b", "span"), CASES)
def test_the_fields_are_those_of_the_layout(type: object, a: str, b: str, span: int) -> None:
    for stages in (1, 4):
        found = facts(product(type, a, b, span, stages))
        assert len(found) == 8
        for fact in found:
            major, name = (a, "left") if fact.operand == "a" else (b, "right")
            layout = Layout.of(type, 64, 64, major=major, swizzle=span)  # type: ignore[arg-type]
            bits = descriptor.template(layout)
            step = descriptor.step(layout, 0, [0, 16, 32, 48][[f for f in found if f.operand == fact.operand].index(fact)])
            assert fact.derived
            assert (fact.leading, fact.stride) == ((bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4)
            assert fact.swizzle == (span if span > 16 else 0)
            assert fact.base_offset == 0
            assert fact.major == major
            place = f"{name}+{step:,}" if step else name
            assert fact.address.partition(" + ")[0] == place
            assert ("*" in fact.address) == (stages > 1), fact.address


# ------------------------------------------------------------------------------------------------ known bits


def program(generator: random.Random) -> tuple[str, int]:
    """Instructions that make %rd9 from constants and one unknown parameter, and its value when the parameter is 0x5A5A5A5A."""
    lines, values = ["ld.param.u32 %r0, [p];"], {"%r0": 0x5A5A5A5A}
    for number in range(1, 6):
        source = generator.choice(list(values))
        value, register = values[source], f"%r{number}"
        constant = generator.choice([0xFF, 0x3FFFF, 0x3FFF, 0xF0F0, 0x10000, 3])
        opcode = generator.choice(["and", "or", "shl", "shr", "bfe", "mov"])
        if opcode == "bfe":
            first, count = generator.randrange(20), generator.randrange(1, 32)
            lines.append(f"bfe.u32 {register}, {source}, {first}, {count};")
            values[register] = value >> first & (1 << count) - 1
        elif opcode in ("shl", "shr"):
            by = generator.randrange(20)
            lines.append(f"{opcode}.{'b32' if opcode == 'shl' else 'u32'} {register}, {source}, {by};")
            values[register] = value << by & 0xFFFFFFFF if opcode == "shl" else value >> by
        elif opcode == "mov":
            lines.append(f"mov.u32 {register}, {constant};")
            values[register] = constant
        else:
            lines.append(f"{opcode}.b32 {register}, {source}, {constant};")
            values[register] = value & constant if opcode == "and" else value | constant
    low, high = generator.choice(list(values)), generator.choice(list(values))
    lines.append(f"mov.b64 %rd1, {{{low}, {high}}};")
    wide = values[low] | values[high] << 32
    lines.append(f"cvt.u64.u32 %rd2, {low};")
    constant = generator.choice([0x4000004000010000, 1 << 62, 0x8000])
    first, value = generator.choice([("%rd1", wide), ("%rd2", values[low])])
    lines.append(f"or.b64 %rd9, {first}, {constant};")
    return "\n".join(lines), value | constant


@pytest.mark.parametrize("seed", range(150))
def test_known_bits_are_true(seed: int) -> None:
    body, value = program(random.Random(seed))
    word, _ = known(body)
    assert (word.bits ^ value) & word.known == 0


def known(body: str, align: int = 1024) -> tuple[Word, Analysis]:
    """What is known of %rd9 at the end."""
    module = parse(f"""
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align {align} .b8 tile[];
.visible .entry k(.param .u32 p)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<20>;
{body}
    st.global.u64 [%rd0], %rd9;
    ret;
}}
""")
    analysis = Analysis(module, module.entries[0], Places(module, None))
    site = next(site for site in analysis.sites if site.mnemonic == "st")
    return Descriptors(analysis.values).word(analysis.values.register(site, "%rd9")), analysis


@pytest.mark.parametrize(("body", "bits", "address"), [
    ("mov.u64 %rd9, 0x4000004000010040;", 0x4000004000010040, None),
    ("mov.u32 %r1, tile; bfe.u32 %r2, %r1, 4, 14; cvt.u64.u32 %rd1, %r2; add.u64 %rd9, %rd1, 0x4000004000010002;", None, 32),
    ("mov.u32 %r1, tile+1024; and.b32 %r2, %r1, 0x3FFFF; shr.u32 %r3, %r2, 4; cvt.u64.u32 %rd1, %r3;"
     "or.b64 %rd9, %rd1, 0x4000004000010000;", None, 1024),
    ("mov.u32 %r1, tile; bfe.u32 %r2, %r1, 4, 14; or.b32 %r3, %r2, 0x10000; mov.b64 %rd9, {%r3, 0x40000040};", None, 0),
    ("mov.u32 %r1, tile; shr.u32 %r2, %r1, 4; and.b32 %r3, %r2, 0x3FFF; or.b32 %r3, %r3, 0x10000; mov.b64 %rd9, {%r3, 0x40000040};",
     None, 0),
])
def test_ways_of_making_one(body: str, bits: int | None, address: int | None) -> None:
    word, _ = known(body)
    if bits is not None:
        assert (word.known, word.bits) == (ALL, bits)
    else:
        assert (word.field(16, 14), word.field(32, 14), word.field(62, 2)) == (1, 0x40, 1)
        assert word.address is not None
        assert (word.address.symbol, word.address.offset, word.address.terms) == ("tile", address, frozenset())


@pytest.mark.parametrize(("align", "offset", "mask", "after"), [
    (1024, 0, 0x3FC00, False), (1024, 4096, 0x3FC0, True), (256, 256, 0x3FF00, False), (16, 0, 0x3FFFF, False), (16, 0, 0x3FFF, True)])
def test_masks_that_a_compiler_narrows(align: int, offset: int, mask: int, after: bool) -> None:
    """nvcc leaves bits out of a mask that are zero by the alignment of the variable; of others nothing is known."""
    steps = (f"shr.u32 %r2, %r1, 4; and.b32 %r3, %r2, {mask};" if after else f"and.b32 %r2, %r1, {mask}; shr.u32 %r3, %r2, 4;")
    body = f"mov.u32 %r1, tile+{offset}; {steps} cvt.u64.u32 %rd1, %r3; or.b64 %rd9, %rd1, 0x4000004000010000;"
    word, _ = known(body, align)
    assert (word.field(16, 14), word.field(32, 14), word.field(62, 2)) == (1, 0x40, 1)
    assert word.address is not None
    assert (word.address.symbol, word.address.offset) == ("tile", offset)
    if align > 16:
        word, _ = known(body, align // 2)
        assert word.address is None


def test_a_loop_that_steps_keeps_the_fields_and_one_that_changes_them_does_not() -> None:
    start = "mov.u32 %r1, tile; bfe.u32 %r2, %r1, 4, 14; cvt.u64.u32 %rd1, %r2; or.b64 %rd9, %rd1, 0x4000004000010000; mov.u32 %r5, 0;\n"
    again = "add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 9; @%p1 bra again;"
    word, _ = known(f"{start}again: add.u64 %rd9, %rd9, 64; {again}")
    assert (word.field(16, 14), word.field(32, 14), word.field(62, 2), word.field(0, 14)) == (1, 0x40, 1, None)
    assert word.address is not None
    assert word.address.symbol == "tile"
    assert word.address.terms
    word, _ = known(f"{start}again: add.u64 %rd9, %rd9, 0x100000000; {again}")
    assert (word.field(16, 14), word.field(32, 14), word.field(62, 2)) == (1, None, 1)
    word, _ = known(f"{start}again: or.b64 %rd9, %rd9, 0x8000000000000000; {again}")
    assert word.field(62, 2) == 3
    word, _ = known(f"{start}again: mov.b64 %rd4, %rd9; or.b64 %rd9, %rd9, 0x8000000000000000; {again} mov.b64 %rd9, %rd4;")
    assert word.field(62, 2) is None


def test_what_is_loaded_is_not_known() -> None:
    word, _ = known("ld.param.u32 %r1, [p]; mov.b64 %rd9, {%r1, 0x40000040};")
    assert (word.field(0, 14), word.field(16, 14), word.field(32, 14), word.field(62, 2)) == (None, None, 0x40, 1)
    assert word.address is None
