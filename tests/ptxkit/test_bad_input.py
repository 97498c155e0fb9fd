"""Bad input to one instruction: one clear error at the user's own line, which says what is wrong, where, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ptxkit import Ptr, Reg, kernel, ptx, smem, tid
from ptxkit.errors import OpcodeError, TraceError
from ptxkit.fragments import unpack
from ptxkit.ptx import add, atom, bar, ld, mbarrier, opcode, setmaxnreg, wgmma
from ptxkit.ptx import st as store
from ptxkit.types import bf16, e4m3, f16, f32, f64, u16, u32, u64
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

MMA = wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16


# --------------------------------------------------------------------------------------------------- registers


def test_wrong_register_width() -> None:
    def narrow(a: Reg[u64], b: Reg[u32]) -> None:
        add.u64(a, b)

    def operators(a: Reg[u64], b: Reg[u32]) -> None:
        _ = a + b

    def address(a: Reg[u32]) -> None:
        ld.global_.u32(a)

    def index(a: Reg[u64]) -> None:
        smem.array(u32, 4).at(a)

    refused(narrow, "`add.u64` operand `b`", "register of type .u64", "not Reg[u32](%r0)", "convert it: `cvt.u64.u32(x)`")
    refused(operators, "`add` needs two registers of one width", "64 bits", "32", "cvt.u64.u32(x)")
    refused(address, "operand `a` takes an address in .global memory (a Ptr or a 64-bit register), not Reg[u32](%r0)")
    refused(index, "indexed with an int or a 32-bit register, not Reg[u64]")


def test_wrong_register_class() -> None:
    def class_(a: Reg[u32], b: Reg[f32]) -> None:
        add.u32(a, b)

    def rounding(a: Reg[f32]) -> None:
        _ = a + a

    def predicate(a: Reg[u32]) -> None:
        add.u32(a, 1, pred=a)

    def as_integer(a: Reg[u32]) -> None:
        add.u32(a, a == 1)

    def converted(a: Reg[f32], b: Reg[u16]) -> None:
        add.rn.f32(a, b)

    def barrier(a: Reg[u32]) -> None:
        mbarrier.arrive.shared__cta.b64(a)

    def array(a: Reg[u32]) -> None:
        mbarrier.arrive.shared__cta.b64(smem.array(u64, 1))

    def space() -> None:
        ld.global_.u32(smem.array(u32, 4))

    def generic() -> None:
        ld.u32(smem.array(u32, 4))

    def fraction(p: Ptr[u32]) -> None:
        p.at(1.5)  # type: ignore[arg-type]

    refused(fraction, "a pointer is indexed with an int or an integer register, not 1.5")
    refused(class_, "`add.u32` operand `b`", ".u32", "not Reg[f32](%f0)", "`mov.b32(x)` takes its bits as they are")
    refused(rounding, "operators work on integer registers", "`add.rn.f32(a, b)`")
    refused(predicate, "pred= takes a predicate register", "not Reg[u32]", "`x != 0`")
    refused(as_integer, "operand `b` takes a register of type .u32", "not Reg[pred](%p0)")
    refused(converted, "not Reg[u16](%rs0)", "`cvt.rn.f32.u16(x)`")
    refused(barrier, "takes an mbarrier (`barriers[i]`), not Reg[u32](%r0)")
    refused(array, "takes an mbarrier (`barriers[i]`), not Shared")
    refused(space, "takes an address in .global memory", "not Shared (shared memory)")
    refused(generic, "generic address", "cvta.shared.u64")


def test_wrong_number_and_name_of_operands() -> None:
    def few(a: Reg[u32]) -> None:
        add.u32(a)

    def none() -> None:
        bar.sync()

    def unknown(a: Reg[u32]) -> None:
        add.u32(a, 1, carry=1)

    refused(few, "`add.u32` takes 2 or, with the destination first, 3 operands (d, a, b), 1 was given")
    refused(none, "`bar.sync` takes 1 operand (a, b=), 0 were given")
    refused(unknown, "has no optional operand `carry` (d, a, b)")


def test_wrong_fragment_length() -> None:
    def accumulator() -> None:
        tile = smem.tile(bf16, (64, 64))
        wide = wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16.fragment()
        MMA(wide, tile[0].desc(), tile[0].desc(), True)  # wrong

    def a_in_registers(x: Reg[u32]) -> None:
        tile = smem.tile(bf16, (64, 64))
        MMA(MMA.fragment(), (x, x, x), tile[0].desc(), True)  # wrong

    def vector(p: Ptr[f32]) -> None:
        store.global_.v2.f32(p, ld.global_.v4.f32(p))

    refused(accumulator, "operand `d` takes a Vec of 32 .f32 (the opcode's `.fragment()`), not 64 values of f32")
    refused(a_in_registers, "operand `a` takes a Vec of 4 .b32, not 3 values of u32")
    refused(vector, "takes a Vec of 2 .f32, not 4 values of f32")


def test_a_descriptor_is_not_a_u64() -> None:
    def number(x: Reg[u64]) -> None:
        tile = smem.tile(bf16, (64, 64))
        MMA(MMA.fragment(), x, tile[0].desc(), True)  # wrong

    def tile_itself() -> None:
        tile = smem.tile(bf16, (64, 64))
        MMA(MMA.fragment(), tile[0].desc(), tile[0], True)  # wrong

    def as_number(x: Reg[u64]) -> None:
        add.u64(x, smem.tile(bf16, (64, 64))[0].desc())

    refused(number, "takes a matrix descriptor (`tile[stage].desc(k)`), not Reg[u64]")
    refused(tile_itself, "operand `b_desc` takes a matrix descriptor (`tile[stage].desc(k)`), not TileView")
    refused(as_number, "operand `b` takes a register of type .u64")


# --------------------------------------------------------------------------------------------------- opcodes


def test_unknown_modifier() -> None:
    def misspelled(p: Ptr[u32]) -> None:
        ld.globl.u32(p)

    def text(p: Ptr[u32]) -> None:
        opcode("ld.global.v3.u32")

    def instruction(p: Ptr[u32]) -> None:
        ptx.frobnicate.u32(p)

    refused(misspelled, "`.globl` is not a modifier of `ld` (did you mean `.global`?)", "`.weak`, `.global`", "in Python: .global_",
            error=OpcodeError)
    refused(text, "`.v3` is not a modifier of `ld`", "after `ld.global`, one of `.v2`, `.v4`", error=OpcodeError)
    refused(instruction, "`frobnicate` is not an instruction", error=OpcodeError)


def test_a_modifier_out_of_order_names_the_right_order() -> None:
    def order(p: Ptr[u32]) -> None:
        ld.u32.global_(p)

    message = refused(order, "`.global` is out of order after `ld.u32`", "in PTX's order it is `ld.global.u32`", error=OpcodeError)
    assert "`ld.u32` is complete" in message


def test_an_incomplete_opcode_names_what_is_due() -> None:
    def incomplete(p: Ptr[u32]) -> None:
        ld.global_(p)

    refused(incomplete, "`ld.global` is incomplete: it continues with one of .ca")


def test_an_unknown_modifier_lists_the_legal_next_ones() -> None:
    with pytest.raises(OpcodeError) as caught:
        mbarrier.arrive.quietly  # noqa: B018
    assert set(caught.value.expected) == set(dir(mbarrier.arrive)) - {"coordinates", "fragment"}
    assert isinstance(caught.value, AttributeError)
    assert not hasattr(mbarrier.arrive, "quietly")


def test_a_wgmma_shape_that_the_isa_does_not_have() -> None:
    def columns() -> None:
        wgmma.mma_async.sync.aligned.m64n100k16.f32.bf16.bf16.fragment()

    def types() -> None:
        wgmma.mma_async.sync.aligned.m64n64k16.f16.bf16.bf16.fragment()

    def integer() -> None:
        wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8.fragment()

    refused(columns, "`.m64n100k16` is not a modifier", "one of `.m64n96k16`, `.m64n104k16`", error=OpcodeError)
    refused(types, "`.bf16` is legal elsewhere in `wgmma` but not after", "`.f16` is legal there", error=OpcodeError)
    refused(integer, "`.s32`", "not after `wgmma.mma_async.sync.aligned.m64n40k32`", error=OpcodeError)


def test_an_instruction_that_the_target_does_not_have() -> None:
    def needs_a() -> None:
        setmaxnreg.dec.sync.aligned.u32(40)

    refused(needs_a, "`setmaxnreg.dec.sync.aligned.u32` needs sm_90a", "this kernel's target is sm_90", '@kernel(target="sm_90a")',
            target="sm_90")


# --------------------------------------------------------------------------------------------------- wgmma and its tiles


def test_a_wgmma_must_find_what_it_reads_in_the_tile() -> None:
    def multiply(b: Any, mma: Any = MMA) -> None:
        a = smem.tile(bf16, (64, 64))
        mma(mma.fragment(zero=False), a[0].desc(), b(), True)

    def rows() -> None:
        multiply(lambda: smem.tile(bf16, (32, 64))[0].desc())

    def past_the_rows() -> None:
        multiply(lambda: smem.tile(bf16, (128, 64))[0].desc(mn=96))

    def depth() -> None:
        multiply(lambda: smem.tile(bf16, (64, 72), swizzle=16)[0].desc(64))

    def type_() -> None:
        multiply(lambda: smem.tile(f16, (64, 64))[0].desc())

    def straddles() -> None:
        multiply(lambda: smem.tile(bf16, (128, 64), major="mn")[0].desc(mn=8))

    here = multiply.__code__.co_firstlineno + 2
    refused(rows, "operand `b_desc` reads 64 rows x 16 of depth, the tile has 32 x 64 from there on", at=here)
    refused(past_the_rows, "reads 64 rows x 16 of depth, the tile has 32 x 64", at=here)
    refused(depth, "the tile has 64 x 8 from there on", at=here)
    refused(type_, "reads bf16, the tile has f16", at=here)
    refused(straddles, "reads 128 contiguous bytes from byte 16 of a 128-byte span", "start at a multiple of 64 elements", at=here)


def test_a_tile_that_wgmma_cannot_describe() -> None:
    def plain() -> None:
        smem.tile(bf16, (64, 64), swizzle=0)[0].desc()

    def transposed_bytes() -> None:
        smem.tile(e4m3, (128, 64), major="mn")[0].desc()

    def between() -> None:
        smem.tile(bf16, (64, 64))[0].desc(mn=4)

    def at_run_time(k: Reg[u32]) -> None:
        smem.tile(bf16, (64, 64))[0].desc(k)  # type: ignore[arg-type]

    refused(at_run_time, "the depth of a descriptor is an int, not Reg[u32](%r0)", "choose a stage by register")
    refused(plain, "has no wgmma descriptor: give it swizzle=128, 64, 32 or 16")
    refused(transposed_bytes, "MN-major operands of 16-bit types only, not e4m3", "store the tile K-major")
    refused(between, "no descriptor starts at row 4, depth 0")


# --------------------------------------------------------------------------------------------------- indices


def test_index_out_of_range() -> None:
    def barrier() -> None:
        smem.mbarrier(4, name="full")[4]

    def negative() -> None:
        smem.mbarrier(4, name="full")[-1]

    def stage() -> None:
        smem.tile(bf16, (4, 64, 64))[4]

    def named() -> None:
        bar.sync(16)

    def element() -> None:
        smem.array(u32, 8).at(8)

    def span() -> None:
        smem.tile(bf16, (64, 128))[0].span(2)

    def lines() -> None:
        smem.tile(bf16, (64, 128))[0].lines(60, 8)

    refused(barrier, "barrier 4 is out of range: `full` has 4, 0 to 3")
    refused(negative, "barrier -1 is out of range: `full` has 4, 0 to 3")
    refused(stage, "stage 4 is out of range: the tile has 4, 0 to 3")
    refused(named, "`bar.sync` operand `a`", "an int (0..15), not 16")
    refused(element, "element 8 is outside an array of 8 u32")
    refused(span, "span 2 of a tile that has 2")
    refused(lines, "lines 60 to 60+8 of a tile with 64", "multiples of 8")


# --------------------------------------------------------------------------------------------------- what Python's syntax offers


def test_floats_of_another_width_than_the_arrays() -> None:
    def loaded(x: Ptr[bf16]) -> None:
        ld.global_.f32(x.at(tid.x))

    def stored(x: Ptr[f32]) -> None:
        store.global_.f64(x, 1.0)

    def of_vector(x: Ptr[bf16]) -> None:
        ld.global_.v2.f32(x)

    def shared(a: Reg[f32]) -> None:
        store.shared.f32(smem.array(f16, 64).at(tid.x), a)

    def added(x: Ptr[f64]) -> None:
        atom.global_.add.f32(x, 1.0)

    refused(loaded, "`ld.global.f32` at a pointer to bf16", "2 bytes, and the access has 4", "`.b16` and convert", "`p.cast(f32)`")
    refused(stored, "`st.global.f64` at a pointer to f32", "`.f32` and convert", "`p.cast(f64)`")
    refused(of_vector, "`ld.global.v2.f32`")
    refused(shared, "at an array of f16", "make it an array of f32")
    refused(added, "`atom.global.add.f32`")

    @kernel(block=32)
    def right(x: Ptr[bf16], y: Ptr[f32]) -> None:
        words = ld.global_.v2.b32(x)                                # bits may be of any number of elements
        store.global_.f32(x.cast(f32), unpack(bf16, words[0])[0])
        store.global_.u32(y, ld.global_.u32(x))
        store.global_.b16(x.at(3), ld.global_.b16(y))

    right.trace()


def _syntax() -> dict[str, tuple[Callable[[Any, Any, Any, Any], object], str]]:
    """x: Ptr[f32], h: Ptr[bf16], n: Reg[u32], a: Reg[f32]; and what is written instead."""
    def to_pointer(x: Any, h: Any, n: Any, a: Any) -> None:
        h[n] = a

    def to_array(x: Any, h: Any, n: Any, a: Any) -> None:
        smem.array(bf16, 4)[n] = a

    def to_tile(x: Any, h: Any, n: Any, a: Any) -> None:
        smem.tile(bf16, (2, 64, 64))[n] = a

    def to_vector(x: Any, h: Any, n: Any, a: Any) -> None:
        MMA.fragment()[0] = a

    return {
        "to_pointer": (to_pointer, "`st.global_.b16(p.at(i), x)`"), "to_array": (to_array, "`st.shared.b16(a.at(i), x)`"),
        "to_tile": (to_tile, "`st.shared.b16(t[stage].at(row, column), x)`"), "to_vector": (to_vector, "`mov.b32(v[0], x)`"),
        "item": (lambda x, h, n, a: h[n], "`ld.global_.b16(p.at(i))` reads it"),
        "items": (lambda x, h, n, a: list(x), "`ld.global_.f32(p.at(i))` reads it"),
        "quotient": (lambda x, h, n, a: a / 2, "`div.full.f32(a, b)`"), "inverse": (lambda x, h, n, a: 1 / a, "`rcp.approx.f32(a)`"),
        "of integers": (lambda x, h, n, a: 1 / n, "`cvt.rn.f32.u32(a)`"), "on the right": (lambda x, h, n, a: 10 // n, "`div.u32(10, x)`"),
        "remainder": (lambda x, h, n, a: 10 % n, "`rem.u32(10, x)`"), "power": (lambda x, h, n, a: n ** 2, "multiply"),
        "abs": (lambda x, h, n, a: abs(a), "`abs.f32(x)`"), "compared": (lambda x, h, n, a: a > 0, "`setp.gt.f32(a, b)`"),
        "equal": (lambda x, h, n, a: a == a, "`setp.eq.f32(a, b)`"), "product": (lambda x, h, n, a: a * 2, "`mul.rn.f32(a, b)`"),
        "negated": (lambda x, h, n, a: -a, "`neg.f32(a)`"), "float index": (lambda x, h, n, a: x.at(a), "integer register, not Reg[f32]"),
        "int for float": (lambda x, h, n, a: store.global_.f32(x, 1), "; write 1.0"),
        "register": (lambda x, h, n, a: store.global_.f32(x, n), "`cvt.rn.f32.u32(x)` converts its value, `mov.b32(x)`"),
        "special": (lambda x, h, n, a: add.u32(n, tid.x), "read it into a register: `mov.u32(tid.x)`"),
        "words": (lambda x, h, n, a: unpack(bf16, ld.global_.v4.b32(x)), "unpack takes one word"),
    }


@pytest.mark.parametrize("name", _syntax())
def test_what_python_offers_and_a_kernel_has_not(name: str) -> None:
    wrong, way = _syntax()[name]

    @kernel(block=32)
    def body(x: Ptr[f32], h: Ptr[bf16], n: Reg[u32], a: Reg[f32]) -> None:
        wrong(x, h, n, a)

    with pytest.raises(TraceError) as caught:
        body.trace()
    assert way in str(caught.value)
    assert caught.value.position is not None
    assert caught.value.position.file == __file__
