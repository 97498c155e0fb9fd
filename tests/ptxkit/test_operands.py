"""What an instruction takes: registers and their operators, immediates, vectors, sinks, predicates, pointers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, Vec, laneid, sink, smem, tid
from ptxkit.errors import TraceError
from ptxkit.flow import if_
from ptxkit.ptx import add, atom, bar, cvt, elect, fma, ld, mad, mov, opcode, selp, setmaxnreg, setp, shfl
from ptxkit.ptx import st as store
from ptxkit.types import TYPES, Scalar, b32, bf16, f32, f64, integer, pred, s16, s32, s64, u8, u16, u32, u64
from tests.ptxkit.machine import kernel_of, lines, opcodes, quotient, run, stored, trace

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

INTEGERS: dict[str, type[Any]] = {t.__name__: t for t in (u16, s16, u32, s32, u64, s64)}
Binary = Callable[[Any, Any], Any]
ARITHMETIC: dict[str, tuple[Binary, Binary]] = {
    "+": (operator.add, operator.add), "-": (operator.sub, operator.sub), "*": (operator.mul, operator.mul),
    "//": (operator.floordiv, quotient), "%": (operator.mod, lambda a, b: a - b * quotient(a, b)),
    "&": (operator.and_, operator.and_), "|": (operator.or_, operator.or_), "^": (operator.xor, operator.xor),
}
COMPARISONS: list[Binary] = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def values(type_name: str) -> st.SearchStrategy[int]:
    bits, signed = INTEGERS[type_name].bits, type_name.startswith("s")
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.one_of(st.sampled_from([low, high, 0, 1]), st.integers(low, high), st.integers(0, 40))


# --------------------------------------------------------------------------------------------------- operators


@given(st.data(), st.sampled_from(sorted(INTEGERS)), st.sampled_from(sorted(ARITHMETIC)), st.booleans())
@settings(deadline=None, max_examples=300)
def test_an_operator_is_one_instruction_and_computes_what_it_says(data: st.DataObject, type_name: str, sign: str, immediate: bool) -> None:
    emit, expected = ARITHMETIC[sign]
    x, y = data.draw(values(type_name)), data.draw(values(type_name))
    bits = INTEGERS[type_name].bits
    if sign in ("//", "%") and (y == 0 or (x, y) == (-(1 << bits - 1), -1)):
        return

    def body(out: Any, a: Any, b: Any) -> None:
        opcode(f"st.global.b{bits}")(out, emit(a, y if immediate else b))

    traced = kernel_of(type_name, body)
    assert len(opcodes(traced)) == 2
    (result,) = stored(run(traced, {"out": 0, "x": x & (1 << bits) - 1, "y": y & (1 << bits) - 1}))
    assert result == expected(x, y) & (1 << bits) - 1


@given(st.data(), st.sampled_from(sorted(INTEGERS)), st.sampled_from(COMPARISONS))
@settings(deadline=None, max_examples=150)
def test_a_comparison_is_one_setp(data: st.DataObject, type_name: str, compare: Binary) -> None:
    x, y = data.draw(values(type_name)), data.draw(values(type_name))
    bits = INTEGERS[type_name].bits

    def body(out: Any, a: Any, b: Any) -> None:
        with if_(compare(a, b)):
            opcode(f"st.global.b{bits}")(out, 1)

    traced = kernel_of(type_name, body)
    assert opcodes(traced)[0].startswith("setp.")
    found = stored(run(traced, {"out": 0, "x": x & (1 << bits) - 1, "y": y & (1 << bits) - 1}))
    assert found == ([1] if compare(x, y) else [])


@given(st.data(), st.sampled_from(sorted(INTEGERS)), st.sampled_from([operator.lshift, operator.rshift]))
@settings(deadline=None, max_examples=100)
def test_a_shift_keeps_the_sign_of_its_type(data: st.DataObject, type_name: str, shift: Binary) -> None:
    x, bits = data.draw(values(type_name)), INTEGERS[type_name].bits
    amount = data.draw(st.integers(0, bits - 1))

    def body(out: Any, a: Any, b: Any) -> None:
        opcode(f"st.global.b{bits}")(out, shift(a, amount))

    traced = kernel_of(type_name, body)
    assert len(opcodes(traced)) == 2
    assert stored(run(traced, {"out": 0, "x": x & (1 << bits) - 1, "y": 0})) == [shift(x, amount) & (1 << bits) - 1]


@pytest.mark.parametrize(("expression", "line"), [
    (lambda x, y: 5 + x, "add.u32 %r2, %r0, 5;"),
    (lambda x, y: 5 - x, "sub.u32 %r2, 5, %r0;"),
    (lambda x, y: 5 * x, "mul.lo.u32 %r2, %r0, 5;"),
    (lambda x, y: 5 & x, "and.b32 %r2, %r0, 5;"),
    (lambda x, y: ~x, "not.b32 %r2, %r0;"),
    (lambda x, y: -x, "neg.s32 %r2, %r0;"),
    (lambda x, y: operator.lt(5, x), "setp.gt.u32 %p0, %r0, 5;"),
    (lambda x, y: operator.eq(5, x), "setp.eq.u32 %p0, %r0, 5;"),
])
def test_mirrored_and_unary_operators(expression: Binary, line: str) -> None:
    assert lines(kernel_of("u32", lambda out, x, y: expression(x, y)))[0] == line


def test_bits_are_compared_and_added_unsigned() -> None:
    assert opcodes(kernel_of("b32", lambda out, x, y: (x + y, x < y, x >> 1))) == ["add.u32", "setp.lt.u32", "shr.u32"]


def test_integers_of_either_sign_go_together() -> None:
    def kernel(a: Reg[u32], b: Reg[s32]) -> None:
        _ = a + b, b + a

    assert opcodes(trace(kernel)) == ["add.u32", "add.s32"]


# --------------------------------------------------------------------------------------------------- in place


def test_the_destination_first_writes_in_place() -> None:
    def kernel(out: Ptr[u32], k: Reg[u32]) -> None:
        same = add.u32(k, k, 1)
        assert same is k
        fresh = add.u32(k, 1)
        assert fresh is not k
        store.global_.u32(out, k)
        store.global_.u32(out, fresh)

    assert stored(run(trace(kernel), {"out": 0, "k": 5})) == [6, 7]


def test_several_destinations_come_together() -> None:
    def kernel(x: Reg[u32]) -> None:
        lane, p = elect.sync(0xFFFFFFFF)
        assert (lane.type, p.type) == (b32, pred)
        again = elect.sync(lane, p, 0xFFFFFFFF)
        assert again[0] is lane
        assert again[1] is p
        shfl.sync.down.b32(x, 1, 31, 0xFFFFFFFF, p=p)

    assert lines(trace(kernel))[:-1] == ["elect.sync %r1|%p0, 4294967295;"] * 2 + ["shfl.sync.down.b32 %r2|%p0, %r0, 1, 31, 4294967295;"]


# --------------------------------------------------------------------------------------------------- immediates


@pytest.mark.parametrize("type_name", sorted(INTEGERS))
def test_integers_fit_the_width_of_their_type(type_name: str) -> None:
    bits = INTEGERS[type_name].bits
    plus = opcode(f"add.{type_name}")
    for value in (-(1 << bits - 1), -1, 0, (1 << bits) - 1):
        assert len(opcodes(kernel_of(type_name, lambda out, x, y, v=value: (plus(x, v), x + v)))) == 2
    for value in (-(1 << bits - 1) - 1, 1 << bits):
        with pytest.raises(TraceError, match=f"int of {bits} bits, not {value}"):
            kernel_of(type_name, lambda out, x, y, v=value: plus(x, v))
        with pytest.raises(TraceError, match=f"{value} does not fit the {bits} bits"):
            kernel_of(type_name, lambda out, x, y, v=value: x + v)


def test_setmaxnreg_takes_24_to_256_in_steps_of_8() -> None:
    def emitted(count: int) -> str:
        return lines(trace(lambda: setmaxnreg.dec.sync.aligned.u32(count)))[0]

    for registers in range(300):
        if 24 <= registers <= 256 and registers % 8 == 0:
            assert emitted(registers) == f"setmaxnreg.dec.sync.aligned.u32 {registers};"
        else:
            with pytest.raises(TraceError, match=rf"takes an int \(24..256 in steps of 8\), not {registers}"):
                emitted(registers)


def test_a_named_barrier_is_0_to_15_or_a_register() -> None:
    def barrier(number: Any) -> list[str]:
        return lines(trace(lambda: bar.sync(number)))

    assert [barrier(i)[0] for i in range(16)] == [f"bar.sync {i};" for i in range(16)]
    for wrong in (-1, 16):
        with pytest.raises(TraceError, match=r"takes a register of type .u32 or an int \(0..15\)"):
            barrier(wrong)


def test_floating_literals_are_written_by_their_bits() -> None:
    def kernel(x: Reg[f32], y: Reg[f64]) -> None:
        add.rn.f32(x, 1.5)
        fma.rn.f64(y, 0.1, y)
        mov.f32(float("-inf"))

    assert lines(trace(kernel))[:3] == ["add.rn.f32 %f1, %f0, 0f3FC00000;", "fma.rn.f64 %fd1, %fd0, 0d3FB999999999999A, %fd0;",
                                        "mov.f32 %f2, 0fFF800000;"]


def test_a_float_operand_takes_no_int_and_an_integer_operand_no_float() -> None:
    with pytest.raises(TraceError, match=r"takes a register of type \.f32 or a float, not 1"):
        kernel_of("f32", lambda out, x, y: add.rn.f32(x, 1))
    with pytest.raises(TraceError, match=r"not 1\.0"):
        kernel_of("u32", lambda out, x, y: add.u32(x, 1.0))
    with pytest.raises(TraceError, match="not True"):
        kernel_of("u32", lambda out, x, y: add.u32(x, True))


# --------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize("bits", ["b16", "b32", "b64"])
def test_a_bit_size_type_accepts_every_type_of_its_width(bits: str) -> None:
    def taken(name: str) -> bool:
        try:
            kernel_of(name, lambda out, x, y: opcode(f"mov.{bits}")(x))
        except TraceError:
            return False
        return True

    parameters = [name for name, type_ in TYPES.items() if type_.bits in (16, 32, 64)]
    assert {name for name in parameters if taken(name)} == {name for name in parameters if issubclass(TYPES[name], TYPES[bits])}


@pytest.mark.parametrize(("given", "taken"), [(u32, True), (s32, True), (b32, True), (f32, False), (u16, False), (u64, False)])
def test_arithmetic_takes_its_own_class(given: type[Scalar], taken: bool) -> None:
    try:
        kernel_of(given.__name__, lambda out, x, y: add.u32(x, y))
    except TraceError:
        assert not taken
    else:
        assert taken


def test_loads_and_stores_take_wider_registers() -> None:
    def kernel(p: Ptr[u8], w: Reg[u32]) -> None:
        ld.global_.u8(w, p)
        store.global_.u8(p, w)
        byte = ld.global_.u8(p)
        assert byte.type is u8
        cvt.u32.u8(byte)

    assert lines(trace(kernel))[:4] == ["ld.global.u8 %r0, [%rd1];", "st.global.u8 [%rd1], %r0;", "ld.global.u8 %rs0, [%rd1];",
                                        "cvt.u32.u8 %r1, %rs0;"]


# --------------------------------------------------------------------------------------------------- vectors and sinks


def test_what_has_parts_extends_a_list_and_adds_to_nothing_else() -> None:
    def kernel(x: Ptr[u32]) -> None:
        words: list[Any] = []
        same = words
        for i in range(2):
            words += ld.global_.v4.u32(x + 4 * i)
        assert same is words
        store.global_.v4.u32(x, words[4:])
        for other in ((), 1, Vec([1, 2])):
            with pytest.raises(TraceError, match=r"`\+` is no instruction on a Vec: take its registers one by one"):
                other + ld.global_.v2.u32(x)
        for whole in (smem.tile(bf16, (2, 8, 8)), smem.array(u32, 2), smem.mbarrier(2)):
            parts: list[Any] = []
            parts += whole
            assert len(parts) == 2
        with pytest.raises(TraceError, match="an element of an array is one place"):
            words += smem.array(u32, 2)[0]

    assert "st.global.v4.u32 [%rd1], {%r4, %r5, %r6, %r7};" in lines(trace(kernel))


def test_vectors() -> None:
    def kernel(p: Ptr[f32]) -> None:
        v = ld.global_.v4.f32(p + 4)
        assert isinstance(v, Vec)
        assert len(v) == 4
        store.global_.v4.f32(p, v)
        store.global_.v2.f32(p, v[2:])
        store.global_.v4.f32(p, (v[0], v[1], 1.0, v[3]))
        ld.global_.v2.f32((v[0], v[3]), p)
        add.rn.f32(*v[:2])

    assert lines(trace(kernel))[:-1] == [
        "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd1+16];", "st.global.v4.f32 [%rd1], {%f0, %f1, %f2, %f3};",
        "st.global.v2.f32 [%rd1], {%f2, %f3};", "st.global.v4.f32 [%rd1], {%f0, %f1, 0f3F800000, %f3};",
        "ld.global.v2.f32 {%f0, %f3}, [%rd1];", "add.rn.f32 %f4, %f0, %f1;"]


def test_sinks_stand_where_the_isa_has_them() -> None:
    def kernel(p: Ptr[u32], x: Reg[u32]) -> None:
        atom.global_.add.u32(sink, p, 1)
        ld.global_.v4.u32((sink, x, sink, x), p)
        q = setp.eq.u32(x, 1)
        setp.eq.u32(q, x, 2, q=sink)
        elect.sync(sink, q, 0xFFFFFFFF)

    found = lines(trace(kernel))
    assert found[:2] == ["atom.global.add.u32 _, [%rd1], 1;", "ld.global.v4.u32 {_, %r0, _, %r0}, [%rd1];"]
    assert found[3:5] == ["setp.eq.u32 %p0|_, %r0, 2;", "elect.sync _|%p0, 4294967295;"]
    for wrong in (lambda x: add.u32(sink, x, 1), lambda x: add.u32(x, x, sink), lambda x: mov.u32(sink, x)):
        with pytest.raises(TraceError, match="not sink"):
            kernel_of("u32", lambda out, x, y, wrong=wrong: wrong(x))


# --------------------------------------------------------------------------------------------------- predicates


@pytest.mark.parametrize("x", [0, 1])
@pytest.mark.parametrize("y", [0, 1])
def test_predicates_combine_with_negations_in_one_instruction(x: int, y: int) -> None:
    def truth(expression: Callable[[Any, Any], Any]) -> int:
        def body(out: Any, a: Any, b: Any) -> None:
            p, q = a == 1, b == 1
            store.global_.u32(out, selp.u32(1, 0, expression(p, q)))

        traced = kernel_of("u32", body)
        assert len(opcodes(traced)) <= 5
        (result,) = stored(run(traced, {"out": 0, "x": x, "y": y}))
        return int(result)

    assert truth(lambda p, q: p & q) == (x and y)
    assert truth(lambda p, q: p | q) == (x or y)
    assert truth(lambda p, q: p ^ q) == x ^ y
    assert truth(lambda p, q: p & ~q) == (x and not y)
    assert truth(lambda p, q: ~p & q) == (not x and y)
    assert truth(lambda p, q: ~p | ~q) == (not (x and y))
    assert truth(lambda p, q: ~p ^ q) == 1 - (x ^ y)
    assert truth(lambda p, q: ~p) == 1 - x


def test_a_guard_is_a_predicate_or_its_negation() -> None:
    def kernel(x: Reg[u32]) -> None:
        p = x == 1
        add.u32(x, x, 1, pred=p)
        add.u32(x, x, 1, pred=~p)
        add.u32(x, x, 1, pred=~~p)

    assert [line.partition(" ")[0] for line in lines(trace(kernel))[1:4]] == ["@%p0", "@!%p0", "@%p0"]


# --------------------------------------------------------------------------------------------------- pointers and special registers


def test_constant_offsets_fold_into_the_address() -> None:
    def kernel(p: Ptr[f32], i: Reg[u32], j: Reg[u64]) -> None:
        ld.global_.f32(p + 3 - 1)
        ld.global_.f32(p.at(i) + 2)
        ld.global_.f32((p + 2).at(j))
        ld.global_.f32(p + i)
        ld.global_.u8(p.cast(u8) + 3)

    assert [line for line in lines(trace(kernel)) if line.startswith("ld.global")] == [
        "ld.global.f32 %f0, [%rd1+8];", "ld.global.f32 %f1, [%rd3+8];", "ld.global.f32 %f2, [%rd4+8];", "ld.global.f32 %f3, [%rd5];",
        "ld.global.u8 %rs0, [%rd1+3];"]
    assert opcodes(trace(kernel)).count("mad.wide.u32") == 2
    assert opcodes(trace(kernel)).count("mad.lo.u64") == 1


def test_a_signed_index_may_be_negative() -> None:
    def kernel(p: Ptr[f32], i: Reg[s32]) -> None:
        ld.global_.f32(p.at(i))

    assert "mad.wide.s32" in opcodes(trace(kernel))


def test_special_registers_are_read_by_mov_or_in_an_operator() -> None:
    def kernel(x: Reg[u32]) -> None:
        mov.u32(tid.x)
        _ = x + tid.y

    assert lines(trace(kernel))[:3] == ["mov.u32 %r1, %tid.x;", "mov.u32 %r2, %tid.y;", "add.u32 %r3, %r0, %r2;"]

    def others(p: Ptr[u32], x: Reg[u32]) -> None:
        array = smem.array(u32, 4)
        ld.global_.u32(p.at(tid.x))
        ld.shared__cta.u32(array.at(tid.x))
        with if_(tid.x == 0):
            _ = (tid.x >> 5) + -tid.x, 3 - tid.x, x << laneid

    assert [opcode for opcode in opcodes(trace(others)) if opcode != "mov.u32"] == [
        "mad.wide.u32", "ld.global.u32", "mad.lo.u32", "ld.shared::cta.u32", "setp.eq.u32", "bra", "shr.u32", "neg.s32", "add.u32",
        "sub.u32", "shl.b32"]
    with pytest.raises(TraceError, match=r"takes a register .*, not Special"):
        kernel_of("u32", lambda out, x, y: add.u32(x, tid.x))


def test_integer_is_the_class_of_integers() -> None:
    assert all(issubclass(t, integer) for t in INTEGERS.values())
    assert not issubclass(f32, integer)
    assert mad.lo.u32
