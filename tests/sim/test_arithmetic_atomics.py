"""Every operation of atom and red on words that lanes share, against a loop over the lanes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ptxkit.grammar import forms
from ptxkit.grammar.isa import atomic
from ptxkit.grammar.operands import width
from ptxkit.sim import run

from .oracle import bits_of, flushed, number, signed
from .oracle import expected as result_of

SCALARS = sorted({(s.bindings["op"], s.bindings["type"], "noftz" in s.opcode) for form in atomic.FORMS for s in forms.variants(form)
                  if s.opcode.startswith("atom") and "vec" not in s.bindings and s.bindings["type"] != "b128"})
VECTORS = sorted({(s.bindings["op"], s.bindings["vec"], s.bindings["type"]) for form in atomic.FORMS for s in forms.variants(form)
                  if s.opcode.startswith("atom") and "vec" in s.bindings})
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def updated(op: str, type: str, old: int, new: int, c: int) -> int:
    bits = width(type)
    simple: dict[str, Callable[[], int]] = {
        "and": lambda: old & new, "or": lambda: old | new, "xor": lambda: old ^ new, "exch": lambda: new,
        "inc": lambda: 0 if old >= new else old + 1, "dec": lambda: new if not old or old > new else old - 1,
        "cas": lambda: c if old == new else old}
    if op in simple:
        return simple[op]()
    if type in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        if type == "f32":
            old, new = flushed(old, type), flushed(new, type)
        found = result_of(f"{op}.{type}", type, [old, new])
        assert found is not None
        return flushed(found[0], type) if type == "f32" else found[0]
    a, b = signed(old, type), signed(new, type)
    return (a + b if op == "add" else min(a, b) if op == "min" else max(a, b)) & (1 << bits) - 1


def values(rng: np.random.Generator, type: str, count: int) -> list[int]:
    if type.removesuffix("x2") in ("f16", "bf16", "f32", "f64"):
        single = [bits_of(number(0, "f16") if v == 0 else Fraction(float(v)), type.removesuffix("x2"))
                  for v in rng.normal(size=2 * count)]
        return [a | b << 16 for a, b in zip(single[::2], single[1::2], strict=True)] if type.endswith("x2") else single[:count]
    return [int(v) % (1 << width(type)) for v in rng.integers(0, 1 << 64 if width(type) == 64 else 40, count, np.uint64)]


@pytest.mark.parametrize(("op", "type", "noftz"), SCALARS)
@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize("mnemonic", ["atom", "red"])
def test_scalars(op: str, type: str, noftz: bool, space: str, mnemonic: str) -> None:
    if mnemonic == "red" and op in ("exch", "cas"):
        return
    bits = width(type)
    word = f"b{bits}"
    name = ".".join(filter(None, (mnemonic, space, op, "noftz" if noftz else "", type)))
    more, d = (", %c" if op == "cas" else ""), ("%d, " if mnemonic == "atom" else "")
    size = bits // 8
    ptx = f"""{HEAD}.shared .align 16 .b8 words[64];
.visible .entry k(.param .u64 input, .param .u64 memory, .param .u64 output) .reqntid 32 {{
.reg .b64 %in, %mem, %out, %at; .reg .b32 %i, %place, %s; .reg .{word} %b, %c, %d, %w; .reg .pred %p;
ld.param.u64 %in, [input]; ld.param.u64 %mem, [memory]; ld.param.u64 %out, [output];
mov.u32 %i, %tid.x; and.b32 %place, %i, 3; mul.lo.u32 %place, %place, {size};
mad.wide.u32 %in, %i, {size}, %in; mad.wide.u32 %out, %i, {size}, %out;
ld.global.{word} %b, [%in]; ld.global.{word} %c, [%in+{32 * size}];
cvt.u64.u32 %at, %place; add.u64 %mem, %mem, %at;
mov.u32 %s, words; add.u32 %s, %s, %place;
ld.global.{word} %w, [%mem]; st.shared.{word} [%s], %w; bar.warp.sync -1;
mov.{'b16' if bits == 16 else word} %d, %b;
{name} {d}[{'%s' if space == 'shared' else '%mem'}], %b{more};
st.global.{word} [%out], %d; bar.warp.sync -1;
{'ld.shared.' + word + ' %w, [%s]; st.global.' + word + ' [%mem], %w;' if space == 'shared' else ''}
ret; }}
"""
    rng = np.random.default_rng(len(name))
    start, operands = values(rng, type, 4), values(rng, type, 64)
    if op == "cas":
        operands[:8] = [*start, *operands[32:36]]
    dtype = f"u{size}"
    memory, out = np.array(start, dtype), np.zeros(32, dtype)
    report = run(ptx, grid=1, block=32, args=[np.array(operands, dtype), memory, out], check=False)
    assert not report.findings, report.findings
    state, seen = list(start), []
    for lane in range(32):
        seen.append(state[lane & 3])
        state[lane & 3] = updated(op, type, state[lane & 3], operands[lane], operands[32 + lane])
    assert memory.tolist() == state
    assert out.tolist() == (seen if mnemonic == "atom" else operands[:32])


@pytest.mark.parametrize(("op", "vec", "type"), VECTORS)
def test_vectors(op: str, vec: str, type: str) -> None:
    """One place a lane, in global memory."""
    count, bits = int(vec[1:]), width(type)
    size, word = bits // 8, f"b{bits}"
    lanes = ", ".join(f"%b{i}" for i in range(count)), ", ".join(f"%d{i}" for i in range(count))
    name = f"atom.global.{op}{'' if type == 'f32' else '.noftz'}.{vec}.{type}"
    ptx = f"""{HEAD}.visible .entry k(.param .u64 input, .param .u64 memory, .param .u64 output) .reqntid 32 {{
.reg .b64 %in, %mem, %out; .reg .b32 %i; .reg .{word} %b<8>, %d<8>;
ld.param.u64 %in, [input]; ld.param.u64 %mem, [memory]; ld.param.u64 %out, [output];
mov.u32 %i, %tid.x; mad.wide.u32 %in, %i, {size * count}, %in; mad.wide.u32 %out, %i, {size * count}, %out;
mad.wide.u32 %mem, %i, {size * count}, %mem;
{' '.join(f'ld.global.{word} %b{i}, [%in+{i * size}];' for i in range(count))}
{name} {{{lanes[1]}}}, [%mem], {{{lanes[0]}}};
{' '.join(f'st.global.{word} [%out+{i * size}], %d{i};' for i in range(count))}
ret; }}
"""
    rng = np.random.default_rng(count)
    start, operands = values(rng, type, 32 * count), values(rng, type, 32 * count)
    dtype: Any = f"u{size}"
    memory, out = np.array(start, dtype), np.zeros(32 * count, dtype)
    report = run(ptx, grid=1, block=32, args=[np.array(operands, dtype), memory, out], check=False)
    assert not report.findings, report.findings
    assert out.tolist() == start
    assert memory.tolist() == [updated(op, type, a, b, 0) for a, b in zip(start, operands, strict=True)]


def test_two_words_at_once() -> None:
    ptx = f"""{HEAD}.visible .entry k(.param .u64 memory) .reqntid 32 {{
.reg .b64 %mem, %x, %y; .reg .b128 %b, %d; .reg .b32 %i;
ld.param.u64 %mem, [memory]; mov.u32 %i, %tid.x; cvt.u64.u32 %x, %i; mov.b64 %y, 7; mov.b128 %b, {{%x, %y}};
mad.wide.u32 %mem, %i, 16, %mem; atom.global.exch.b128 %d, [%mem], %b; mov.b128 {{%x, %y}}, %d; st.global.b64 [%mem+512], %y;
ret; }}
"""
    memory = np.arange(128, dtype=np.uint64)
    before = memory.copy()
    report = run(ptx, grid=1, block=32, args=[memory], check=False)
    assert not report.findings, report.findings
    np.testing.assert_array_equal(memory[:64].reshape(32, 2), np.stack([np.arange(32), np.full(32, 7)], 1))
    np.testing.assert_array_equal(memory[64:128:2], before[1:64:2])
