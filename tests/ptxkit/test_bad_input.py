"""Bad input: one clear error at the user's own line, which says what is wrong, where, and the way out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from ptxkit import Layout, Ptr, Reg, Ring, TensorMap, for_range, if_, kernel, label, loop, ptx, ring, smem, tid
from ptxkit import func as device_function
from ptxkit.arrays import ArrayView
from ptxkit.descriptor import TensorMapFields
from ptxkit.errors import LaunchError, OpcodeError, Position, PtxkitError, TraceError
from ptxkit.flow import else_
from ptxkit.idioms import arrive_remote, multicast_mask, remote, wait
from ptxkit.ptx import add, bar, bra, cp, ld, mbarrier, mov, opcode, setmaxnreg, wgmma
from ptxkit.ptx import st as store
from ptxkit.types import bf16, e4m3, f16, f32, pred, s32, u16, u32, u64
from tests.ptxkit.machine import trace

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

MMA = wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes


def line_of(function: Callable[..., Any]) -> int:
    """The line of the function that ends in `# wrong`, else its only statement."""
    source, first = inspect.getsourcelines(getattr(function, "function", function))
    marked = [first + i for i, line in enumerate(source) if line.rstrip().endswith("# wrong")]
    return marked[0] if marked else first + len(source) - 1


def refused(function: Callable[..., Any], *words: str, error: type[PtxkitError] = TraceError, at: int | None = None, **how: Any) -> str:
    """The message of tracing `function`: it has every word, and begins with this file and the line that is wrong."""
    with pytest.raises(error) as caught:
        trace(function, **how)
    position = getattr(caught.value, "position", None)
    assert isinstance(position, Position)
    assert (position.file, position.line) == (__file__, at or line_of(function)), str(caught.value)
    message = str(caught.value)
    assert message.startswith(f"{__file__}:{position.line}: ")
    for word in words:
        assert word in message, message
    return message


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
    refused(rounding, "operators work on integer registers", "`fma.rn.f32(a, b, c)`")
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

    def unknown(a: Reg[u32]) -> None:
        add.u32(a, 1, carry=1)

    refused(few, "`add.u32` takes 2 or, with the destination first, 3 operands (d, a, b), 1 were given")
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
    assert set(caught.value.expected) == set(dir(mbarrier.arrive)) - {"fragment"}
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
        multiply(lambda: smem.tile(bf16, (64, 64))[0].desc(64))

    def type_() -> None:
        multiply(lambda: smem.tile(f16, (64, 64))[0].desc())

    def straddles() -> None:
        multiply(lambda: smem.tile(bf16, (128, 64), major="mn")[0].desc(mn=8))

    here = multiply.__code__.co_firstlineno + 2
    refused(rows, "operand `b_desc` reads 64 rows x 16 of depth, the tile has 32 x 64 from there on", at=here)
    refused(past_the_rows, "reads 64 rows x 16 of depth, the tile has 32 x 64", at=here)
    refused(depth, "the tile has 64 x 0 from there on", at=here)
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


# --------------------------------------------------------------------------------------------------- Python on registers


def test_python_cannot_look_at_a_register() -> None:
    def branch(a: Reg[u32]) -> None:
        if a == 1:
            pass

    def conjunction(a: Reg[u32]) -> None:
        _ = a == 1 and a == 2

    def negation(a: Reg[u32]) -> None:
        _ = not a

    def repeat(a: Reg[u32]) -> None:
        while a != 0:
            pass

    def member(a: Reg[u32]) -> None:
        _ = a in [1, 2]

    def chained(a: Reg[u32]) -> None:
        _ = 1 < a < 5

    def of_negated(a: Reg[u32]) -> None:
        _ = ~(a == 1) and True

    def special(a: Reg[u32]) -> None:
        _ = tid.x == 0 and True

    words = ("has no value while the kernel is being traced", "`with if_(p):`", "`p & q`")
    for function in (branch, repeat):
        refused(function, *words, at=function.__code__.co_firstlineno + 1)
    for function in (conjunction, negation, member, chained, of_negated, special):
        refused(function, *words)


def test_python_cannot_count_with_a_register() -> None:
    def unrolled(n: Reg[u32]) -> None:
        list(range(n))  # type: ignore[call-overload]

    def subscript(n: Reg[u32]) -> None:
        [1, 2, 3][n]  # type: ignore[call-overload]

    refused(unrolled, "cannot index or count in Python", "`for_range`")
    refused(subscript, "cannot index or count in Python")


@pytest.mark.parametrize(("sign", "way_out"), [("+", "add.u32(x, x, y)"), ("-", "sub.u32(x, x, y)"), ("*", "mul.lo.u32(x, x, y)"),
                                               ("&", "and_.b32(x, x, y)"), ("|", "or_.b32(x, x, y)"), ("^", "xor.b32(x, x, y)"),
                                               ("<<", "shl.b32(x, x, y)"), (">>", "shr.u32(x, x, y)")])
def test_augmented_assignment_would_rebind_silently(sign: str, way_out: str) -> None:
    def function(x: Reg[u32]) -> None:
        exec(f"x {sign}= 1", {}, {"x": x})

    with pytest.raises(TraceError) as caught:
        trace(function)
    assert f"`x {sign}= y` would silently bind the Python name to a new register" in str(caught.value)
    assert f"`{way_out}`" in str(caught.value)
    name, *modifiers = way_out.partition("(")[0].split(".")
    assert opcode(".".join([name.rstrip("_"), *modifiers]))


def test_control_flow_takes_a_predicate() -> None:
    def known() -> None:
        with if_(True):  # type: ignore[arg-type]  # wrong
            pass

    def number(n: Reg[u32]) -> None:
        with loop() as repeat:
            repeat.break_if(n)  # type: ignore[arg-type]  # wrong

    refused(known, "control flow takes a predicate register, not True", "a condition known in Python is a Python `if`")
    refused(number, "control flow takes a predicate register, not Reg[u32]")


def test_else_without_if() -> None:
    def between(n: Reg[u32]) -> None:
        with if_(n == 0):
            pass
        add.u32(n, n, 1)
        with else_():  # wrong
            pass

    def twice(n: Reg[u32]) -> None:
        with if_(n == 0):
            pass
        with else_():
            pass
        with else_():  # wrong
            pass

    for function in (between, twice):
        refused(function, "else_() must stand directly after the `with if_(...)` block")


def test_what_a_loop_counts_with() -> None:
    def wide(n: Reg[u64]) -> None:
        with for_range(n):  # type: ignore[arg-type]  # wrong
            pass

    def negative() -> None:
        with for_range(4, start=-1):  # wrong
            pass

    def fractional() -> None:
        with for_range(1.5):  # type: ignore[arg-type]  # wrong
            pass

    def stuck() -> None:
        with for_range(4, step=0):  # wrong
            pass

    def no_stages() -> None:
        Ring(0)

    def ended(n: Reg[u32]) -> None:
        with loop() as repeat:
            repeat.break_if(n == 0)
        repeat.break_()

    refused(ended, "this loop has ended: break and continue stand inside its `with` block")
    for function, given in ((wide, "Reg[u64](%rd0)"), (negative, "-1"), (fractional, "1.5")):
        refused(function, "an int from 0 to 2^32 - 1 or a 32-bit register", f"not {given}")
    refused(stuck, "step 0 does not end")
    refused(no_stages, "a ring has at least one stage, not 0")


# --------------------------------------------------------------------------------------------------- traces


@pytest.mark.parametrize("outside", [
    lambda: bar.sync(0), lambda: smem.tile(bf16, (64, 64)), lambda: smem.mbarrier(1), lambda: MMA.fragment(), lambda: label(),
    lambda: Ring(2), lambda: if_(pred).__enter__(), lambda: mov.u32(tid.x), lambda: tripled(1), lambda: wait(None, 0)])  # type: ignore[arg-type]
def test_an_instruction_outside_a_trace(outside: Callable[[], Any]) -> None:
    with pytest.raises(TraceError) as caught:
        outside()
    assert caught.value.message == "PTX instructions can only be called while a @kernel function is being traced"
    assert caught.value.position is not None
    assert caught.value.position.file == __file__


def test_a_register_outside_its_trace() -> None:
    kept: list[Any] = []

    def keeps(n: Reg[u32]) -> None:
        kept.append(n)

    trace(keeps)
    with pytest.raises(TraceError, match="can only be called while a @kernel function is being traced"):
        _ = kept[0] + 1


def test_a_register_of_another_trace() -> None:
    kept: dict[str, Any] = {}

    def keeps(n: Reg[u32], p: Ptr[u32], a: TensorMap) -> None:
        kept.update(n=n, p=p, a=a, q=n == 1, barriers=smem.mbarrier(2), array=smem.array(u32, 4), tile=smem.tile(bf16, (64, 64)),
                    ring=Ring(2))
        kept.update(barrier=kept["barriers"][0], view=kept["tile"][0], desc=kept["tile"][0].desc())

    trace(keeps)

    def operand(m: Reg[u32]) -> None:
        add.u32(m, kept["n"])

    def left(m: Reg[u32]) -> None:
        kept["n"] + 1

    def right(m: Reg[u32]) -> None:
        _ = m + kept["n"]

    def unary(m: Reg[u32]) -> None:
        ~kept["n"]

    def guard(m: Reg[u32]) -> None:
        add.u32(m, m, 1, pred=~kept["q"])

    def combined(m: Reg[u32]) -> None:
        _ = (m == 0) & ~kept["q"]

    def condition(m: Reg[u32]) -> None:
        if_(kept["q"]).__enter__()

    def pointer(m: Reg[u32]) -> None:
        ld.global_.u32(kept["p"])

    def moved(m: Reg[u32]) -> None:
        kept["p"].at(m)

    def bound(m: Reg[u32]) -> None:
        for_range(kept["n"]).__enter__()

    def vector(m: Reg[u32]) -> None:
        store.global_.v2.u32(kept["p"], (m, m))

    def lanes(p: Ptr[u32]) -> None:
        store.global_.v2.u32(p, (kept["n"], 1))

    def index(m: Reg[u32]) -> None:
        smem.array(u32, 4).at(kept["n"])

    def advanced(m: Reg[u32]) -> None:
        kept["ring"].advance()

    def passed(m: Reg[u32]) -> None:
        tripled(kept["n"])

    def descriptor(m: Reg[u32]) -> None:
        MMA(MMA.fragment(), kept["desc"], kept["desc"], True)

    def tensormap(m: Reg[u32]) -> None:
        load(smem.tile(bf16, (64, 64))[0], kept["a"], (0, 0), smem.mbarrier(1)[0])

    for function in (operand, left, right, unary, guard, combined, condition, pointer, moved, bound, vector, lanes, index, advanced, passed,
                     descriptor, tensormap):
        refused(function, f"belongs to the trace of `keeps`, not to `{function.__name__}`", "pass it as a parameter")

    def barriers() -> None:
        kept["barriers"][0]

    def barrier() -> None:
        mbarrier.arrive.shared__cta.b64(kept["barrier"])

    def array() -> None:
        kept["array"].at(1)

    def element() -> None:
        ld.shared__cta.u32(kept["array"])

    def stage() -> None:
        kept["tile"][0]

    def view() -> None:
        kept["view"].desc()

    for shared in (barriers, barrier, array, element, stage, view):
        refused(shared, f"this shared memory belongs to `keeps`, not to `{shared.__name__}`", "allocate it inside the kernel")


def test_a_register_of_a_device_function_stays_there() -> None:
    kept: list[Any] = []

    @device_function
    def leaks(n: Reg[u32]) -> None:
        kept.append(n + 1)

    def uses(n: Reg[u32]) -> None:
        leaks(n)
        add.u32(n, kept[0])

    refused(uses, "belongs to the trace of `leaks`, not to `uses`")


# --------------------------------------------------------------------------------------------------- labels


def test_a_label_that_is_never_placed() -> None:
    def lost(n: Reg[u32]) -> None:
        end = label("end")
        bra(end, pred=n == 0)  # wrong
        add.u32(n, n, 1)

    def text(n: Reg[u32]) -> None:
        bra("nowhere")  # wrong
        add.u32(n, n, 1)

    refused(lost, "label `$end_1` is branched to but never placed in `lost`", "`label.place()`")
    refused(text, "label `nowhere` is branched to but never placed in `text`")


def test_a_label_defined_twice() -> None:
    def twice(n: Reg[u32]) -> None:
        top = label("top")
        top.place()
        add.u32(n, n, 1)
        top.place()

    message = refused(twice, "label `$top_1` is defined twice: first at")
    assert f"{__file__}:{line_of(twice) - 2}, again at" in message


# --------------------------------------------------------------------------------------------------- shared memory


def test_shared_memory_over_the_limit_prints_the_budget() -> None:
    def large() -> None:
        smem.mbarrier(4, name="full")
        smem.tile(bf16, (3, 128, 64), name="A")
        smem.tile(bf16, (6, 256, 64), name="B")

    message = refused(large, "shared memory over the limit of 232,448 bytes per CTA")
    assert message.splitlines()[1:] == [
        "   offset     bytes  what",
        "        0        32  mbarrier x 4  (full)",
        "    1,024    49,152  tile 3 x 128 x 64 bf16, k-major, swizzle 128  (A)",
        "   50,176   196,608  tile 6 x 256 x 64 bf16, k-major, swizzle 128  (B)",
        "    total   246,784  of 232,448, dynamic",
    ]


def test_static_shared_memory_over_its_own_limit() -> None:
    def large() -> None:
        smem.array(u32, 16_384)

    refused(large, "static shared memory over 49,152 bytes", "leave `smem=` out to make it dynamic", "65,536", smem="static")


def test_allocations_that_cannot_be() -> None:
    def nothing() -> None:
        smem.array(u32, 0)

    def odd() -> None:
        smem.array(u32, 4, align=24)

    def no_barriers() -> None:
        smem.mbarrier(0)

    def flat() -> None:
        smem.tile(bf16, (64,))

    def swizzle() -> None:
        smem.tile(bf16, (64, 64), swizzle=100)

    def narrow() -> None:
        smem.tile(bf16, (64, 32), swizzle=128)

    def thin() -> None:
        smem.tile(bf16, (64, 4))

    def major() -> None:
        smem.tile(bf16, (64, 64), major="row")  # type: ignore[arg-type]

    refused(nothing, "at least one element")
    refused(odd, "power-of-two alignment, not 4 and 24")
    refused(no_barriers, "ask for at least one")
    refused(flat, "(rows, columns) or (stages, rows, columns), not (64,)")
    refused(swizzle, "swizzle is one of 128, 64, 32, 16, 0 bytes, not 100")
    refused(narrow, "its contiguous extent is 64 bytes, not a multiple of the 128-byte span", "narrower swizzle or a wider tile")
    refused(thin, "its contiguous extent is 8 bytes")
    refused(major, "major is 'k' or 'mn', not 'row'")


# --------------------------------------------------------------------------------------------------- setmaxnreg


def test_setmaxnreg_that_would_be_ignored() -> None:
    def capless() -> None:
        setmaxnreg.dec.sync.aligned.u32(40)

    words = ("setmaxnreg would be ignored", "@kernel(block=...) with min_ctas=1, or max_registers=")
    refused(capless, *words, block=None)
    refused(capless, *words, min_ctas=None)
    assert trace(capless, min_ctas=None, max_registers=168).setmaxnreg
    assert trace(capless).setmaxnreg


def test_setmaxnreg_that_exceeds_the_pool() -> None:
    def greedy() -> None:
        thread = mov.u32(tid.x)
        with if_(thread < 128):
            setmaxnreg.dec.sync.aligned.u32(40)
        with else_():
            setmaxnreg.inc.sync.aligned.u32(240)  # wrong

    # 384 threads have 168 registers each at entry; two warpgroups may have 232 when the third keeps 40.
    refused(greedy, "setmaxnreg exceeds the pool: dec 40 on 128 threads, inc 240 on 256 threads need 66,560 registers",
            "the CTA has 384 x 168 = 64,512 at entry", block=384)

    def fits() -> None:
        with if_(mov.u32(tid.x) < 128):
            setmaxnreg.dec.sync.aligned.u32(40)
        with else_():
            setmaxnreg.inc.sync.aligned.u32(232)

    assert trace(fits, block=384).setmaxnreg

    def two_ctas() -> None:
        setmaxnreg.inc.sync.aligned.u32(232)

    refused(two_ctas, "setmaxnreg exceeds the pool", block=256, min_ctas=2)


# --------------------------------------------------------------------------------------------------- copies


def copied(shape: tuple[int, ...], part: Callable[[Any], Any] = lambda tile: tile[0], **how: Any) -> Callable[..., None]:
    def function(a: TensorMap) -> None:
        barrier = smem.mbarrier(1, check=False)
        load(part(smem.tile(bf16, shape, **how)), a, (0, 0), barrier[0])

    return function


def test_a_swizzle_span_smaller_than_the_inner_box() -> None:
    refused(copied((64, 128)), "the swizzle span is smaller than the inner box: 256 bytes of a tile with 128-byte spans", "TensorMap(a)",
            "copy `tile[stage].span(i)` for i in range(2)")
    refused(copied((64, 64), swizzle=32), "128 bytes of a tile with 32-byte spans", "range(4)")
    trace(copied((64, 128), lambda tile: tile[0].span(1)))


def test_a_box_over_256() -> None:
    refused(copied((512, 64)), "a box of 64x512 through TensorMap(a): no extent may exceed 256", "copy `tile[stage].lines(start, 256)`")
    trace(copied((512, 64), lambda tile: tile[0].lines(256, 256)))


def test_two_boxes_through_one_tensor_map() -> None:
    def function(a: TensorMap) -> None:
        barrier = smem.mbarrier(1, check=False)
        load(smem.tile(bf16, (64, 64))[0], a, (0, 0), barrier[0])
        load(smem.tile(bf16, (128, 64))[0], a, (0, 0), barrier[0])

    refused(function, "`a` already copies box 64x64 bf16, swizzle 128; one tensor map has one box",
            "this copy has box 64x128 bf16, swizzle 128, so pass a second map")


def test_multicast_without_a_cluster() -> None:
    def function(a: TensorMap) -> None:
        barrier = smem.mbarrier(1, check=False)
        load.multicast__cluster(smem.tile(bf16, (64, 64))[0], a, (0, 0), barrier[0], 3)

    def mask() -> None:
        multicast_mask(3)

    refused(function, "multicasts to the CTAs of a cluster, and this kernel has none", "@kernel(cluster=2)",
            "leave `.multicast::cluster` out")
    trace(function, cluster=2)
    refused(mask, "CTAs range(0, 3) are not all in a cluster of 2", cluster=2)


def test_misaligned_shared_memory_of_a_bulk_copy() -> None:
    bulk = cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes

    def inside(p: Ptr[u32]) -> None:
        barrier, array = smem.mbarrier(1, check=False), smem.array(u32, 64)
        bulk(array.at(1), p, 64, barrier[0])  # wrong

    def aligned_too_little(p: Ptr[u32]) -> None:
        array, barrier = smem.array(u32, 64, align=8), smem.mbarrier(1, check=False)
        bulk(array, p, 64, barrier[0])  # wrong

    def one_dimensional(a: TensorMap) -> None:
        array, barrier = smem.array(u32, 64), smem.mbarrier(1, check=False)
        opcode("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes")(array, a, (0,), barrier[0])  # wrong

    refused(inside, "needs shared memory aligned to 16 bytes: offset 20", "`array 64 u32`", "align=16")
    refused(aligned_too_little, "needs shared memory aligned to 16 bytes: offset 0", "aligned to 8", "align=16")
    refused(one_dimensional, "needs shared memory aligned to 128 bytes", "aligned to 16", "align=128")


def test_bulk_copies_move_multiples_of_16_bytes() -> None:
    def function(p: Ptr[u32]) -> None:
        barrier, array = smem.mbarrier(1, check=False), smem.array(u32, 64)
        cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes(array, p, 24, barrier[0])

    refused(function, "operand `size`", "in steps of 16", "not 24")


# --------------------------------------------------------------------------------------------------- arrivals


def arrivals(count: Any, arrive: Callable[[Any, Any], None], *, check: bool = True) -> Callable[..., None]:
    def function(n: Reg[u32]) -> None:
        thread = mov.u32(tid.x)
        full = smem.mbarrier(2, name="full", check=check)
        with if_(thread == 0):
            for i in range(2):
                mbarrier.init.shared__cta.b64(full[i], count)
        with ring(2, n) as (_, stage, parity):
            arrive(full[stage], thread)
            wait(full[stage], parity)

    return function


def one_thread(barrier: Any, thread: Any) -> None:
    with if_(thread == 0):
        mbarrier.arrive.expect_tx.shared__cta.b64(barrier, 16)


def one_warp(barrier: Any, thread: Any) -> None:
    with if_(thread >> 5 == 0):
        mbarrier.arrive.shared__cta.b64(barrier)


def all_threads(barrier: Any, thread: Any) -> None:
    mbarrier.arrive.shared__cta.b64(barrier)


def test_an_arrive_count_that_cannot_match() -> None:
    words = ("arrivals a phase, but the arrives in this kernel make at most", "no phase can complete", "check=False")
    for arrive, most in ((one_thread, 1), (one_warp, 32), (all_threads, 128)):
        trace(arrivals(most, arrive))
        function = arrivals(most + 1, arrive)
        refused(function, f"the barriers `full` expect {most + 1} arrivals a phase", f"at most {most}", *words,
                at=function.__code__.co_firstlineno + 2)
        trace(arrivals(most + 1, arrive, check=False))


def test_arrivals_of_blocks_with_more_than_one_dimension() -> None:
    function = arrivals(5, one_thread)
    trace(function, block=(32, 8))
    refused(function, "expect 5 arrivals", "at most 4", at=function.__code__.co_firstlineno + 2, block=(32, 4))


def test_arrivals_of_a_cluster() -> None:
    def in_the_second(barrier: Any, thread: Any) -> None:
        with if_(thread == 0):
            arrive_remote(barrier, 1)

    trace(arrivals(2, in_the_second), cluster=2)
    function = arrivals(3, in_the_second)
    refused(function, "expect 3 arrivals", "at most 2", at=function.__code__.co_firstlineno + 2, cluster=2)


def test_an_arrive_that_counts_more_than_a_phase() -> None:
    def function() -> None:
        full = smem.mbarrier(1, name="full")
        mbarrier.init.shared__cta.b64(full[0], 2)
        mbarrier.arrive.shared__cta.b64(full[0], count=3)

    refused(function, "one arrive counts 3, but the barriers `full` expect 2 a phase")


def test_a_barrier_that_is_never_initialised() -> None:
    def function() -> None:
        full = smem.mbarrier(1, name="full")  # wrong
        mbarrier.arrive.shared__cta.b64(full[0])
        wait(full[0], 0)

    refused(function, "the barriers `full` are used but never initialised", "mbarrier.init.shared__cta.b64(barrier, count)")


def test_a_barrier_of_another_cta() -> None:
    def one() -> None:
        far = remote(smem.mbarrier(1, check=False)[0], 1)
        mbarrier.arrive.shared__cta.b64(far)

    def array() -> None:
        far = remote(smem.mbarrier(2, check=False), 1)
        wait(far[1], 0)

    def generic() -> None:
        mbarrier.arrive.b64(smem.mbarrier(1, check=False)[0])

    for function in (one, array):
        refused(function, "takes a barrier of this CTA (`.shared::cluster` reaches those of others)",
                "not MBarrier (shared memory of another CTA)", cluster=2)
    refused(generic, "takes a generic address", "for a barrier of this CTA say `.shared::cta`")


def test_a_count_that_no_barrier_can_have() -> None:
    def zero() -> None:
        mbarrier.init.shared__cta.b64(smem.mbarrier(1)[0], 0)

    def large() -> None:
        mbarrier.init.shared__cta.b64(smem.mbarrier(1)[0], 1 << 20)

    for function, count in ((zero, 0), (large, 1 << 20)):
        refused(function, "operand `count`", "an int (1..1048575)", f"not {count}")


# --------------------------------------------------------------------------------------------------- tensor maps


FIELDS: dict[str, Any] = {"type": bf16, "dims": (1024, 512), "strides": (2048,), "box": (64, 64), "swizzle": 128}


@pytest.mark.parametrize(("change", "address", "words"), [
    ({"box": (128, 64)}, 0, ("the box is 256 bytes wide, more than the 128-byte swizzle span", "load it in 2 boxes or widen the swizzle")),
    ({"box": (64, 512)}, 0, ("box extent 512 of dimension 1 is not between 1 and 256", "load the tile in several boxes")),
    ({"box": (0, 64)}, 0, ("box extent 0 of dimension 0",)),
    ({"strides": (2056,)}, 0, ("the stride of dimension 1 is 2056 bytes", "must be a multiple of 16", "pad the rows")),
    ({"strides": (-2048,)}, 0, ("the stride of dimension 1 is -2048 bytes",)),
    ({"strides": (1 << 40,)}, 0, ("below 2^40",)),
    ({}, 8, ("the base address 0x8 is not a multiple of 16",)),
    ({"interleave": 32, "swizzle": 32, "box": (16, 64)}, 16, ("the base address 0x10 is not a multiple of 32",)),
    ({"dims": (0, 512)}, 0, ("extent 0 of dimension 0 is not between 1 and 2^32",)),
    ({"box": (12, 64), "swizzle": 0}, 0, ("the box is 24 bytes wide", "a multiple of 16 bytes")),
    ({"element_strides": (1, 9)}, 0, ("element strides (1, 9) are not between 1 and 8",)),
    ({"dims": (1,) * 6, "strides": (16,) * 5, "box": (8,) * 6}, 0, ("1 to 5 dimensions",)),
    ({"strides": ()}, 0, ("one stride less",)),
])
def test_a_tensor_map_that_the_hardware_cannot_have(change: dict[str, Any], address: int, words: tuple[str, ...]) -> None:
    assert TensorMapFields(**FIELDS).problem(0) is None
    problem = TensorMapFields(**{**FIELDS, **change}).problem(address)
    assert problem is not None
    for word in words:
        assert word in problem


@pytest.mark.parametrize(("how", "word"), [({"swizzle": 100}, "swizzle is 0, 32, 64 or 128 bytes, not 100"),
                                           ({"interleave": 8}, "interleave is 0, 16 or 32 bytes, not 8"),
                                           ({"fill": "ones"}, "fill is 'zeros' or 'nan', not 'ones'")])
def test_an_explicit_tensor_map_is_checked_where_it_is_made(how: dict[str, Any], word: str) -> None:
    with pytest.raises(TraceError) as caught:
        TensorMap(None, box=(64, 64), **how)
    assert word in str(caught.value)
    assert str(caught.value).startswith(__file__)


class NoLibrary:
    """In place of a loaded module: nothing here reaches a device."""

    def kernel(self, name: str) -> None:
        return None


def launched(monkeypatch: pytest.MonkeyPatch, argument: Any, **change: Any) -> str:
    """What a launch of a kernel that copies a 64 x 64 bf16 box says of one argument for its map."""
    from ptxkit import runtime

    seen = ArrayView(pointer=0x1000, shape=(512, 1024), strides=(1024, 1), dtype="bf16", device=0, owner="ptxkit")._replace(**change)
    monkeypatch.setattr(runtime, "view", lambda array, name: seen)
    compiled = runtime.Compiled(trace(copied((64, 64))), 0, NoLibrary())  # type: ignore[arg-type]
    with pytest.raises(LaunchError) as caught:
        compiled(1, argument)
    return str(caught.value)


def test_an_explicit_map_that_differs_from_the_tile_it_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    for how, shown in (({"box": (128, 64), "swizzle": 128}, "box 64x128 bf16, swizzle 128"),
                       ({"box": (64, 64), "swizzle": 0}, "box 64x64 bf16, swizzle none"),
                       ({"box": (64, 32), "swizzle": 64}, "box 32x64 bf16, swizzle 64")):
        message = launched(monkeypatch, TensorMap(None, **how))  # type: ignore[arg-type]
        assert f"the tensor map given for `a` ({shown}) differs from the tile that the kernel copies" in message
        assert "copies: box 64x64 bf16, swizzle 128; pass the plain array" in message


def test_an_array_that_cannot_have_the_map_that_the_kernel_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for change, words in (
        ({"pointer": 0x1008}, "the base address 0x1008 is not a multiple of 16"),
        ({"strides": (1028, 1)}, "the stride of dimension 1 is 2056 bytes: it must be a multiple of 16"),
        ({"strides": (1, 512)}, "a tensor map needs the last dimension contiguous"),
        ({"shape": (4, 512, 1024), "strides": (1 << 19, 1024, 1)}, "`a` has 3 dimensions, the kernel copies boxes of 2"),
        ({"dtype": "f32"}, "`a` has elements of f32, the kernel copies bf16"),
    ):
        assert words in launched(monkeypatch, object(), **change)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------- kernels and functions


def test_kernels_that_cannot_be() -> None:
    def plain(n: Reg[u32]) -> None:
        pass

    def annotated(n: int) -> None:
        pass

    def bare(n) -> None:  # type: ignore[no-untyped-def]
        pass

    def boolean(p: Reg[pred]) -> None:
        pass

    def returns(n: Reg[u32]) -> Reg[u32]:
        return n

    def generates(n: Reg[u32]) -> Any:
        yield n

    for wrong, shown in ((returns, r"Reg\[u32\]"), (generates, "<generator object")):
        with pytest.raises(TraceError, match=f"kernel `{wrong.__name__}` returned {shown}.*a kernel returns nothing") as caught:
            trace(wrong)
        assert caught.value.position == Position(__file__, wrong.__code__.co_firstlineno)
    with pytest.raises(TraceError, match="a block has 1 to 1024 threads, not 2048"):
        trace(plain, block=2048)
    with pytest.raises(TraceError, match="a cluster has 1 to 16 CTAs"):
        trace(plain, cluster=32)
    with pytest.raises(TraceError, match="block is one to three positive extents, not 0"):
        trace(plain, block=0)
    with pytest.raises(TraceError, match="smem is 'static', 'dynamic' or None"):
        trace(plain, smem="large")
    with pytest.raises(TraceError, match="is not an identifier of PTX"):
        kernel(name="größer")(plain)
    for function, name in ((annotated, "n"), (bare, "n"), (boolean, "p")):
        with pytest.raises(TraceError, match=rf"parameter `{name}` of kernel .* write TensorMap, Ptr\[type\] or Reg") as caught:
            trace(function)
        assert caught.value.position == Position(__file__, function.__code__.co_firstlineno)


@kernel(block=32)
def configured(n: Reg[u32], *, STAGES: int, BM: int = 64) -> None:
    pass


def test_configurations_that_a_kernel_does_not_have() -> None:
    for how, words in (({"BK": 3}, "kernel `configured` has no compile-time parameter `BK`; it has STAGES, BM"),
                       ({}, "kernel `configured` needs a value for its compile-time parameter `STAGES`")):
        with pytest.raises(TraceError) as caught:
            configured.ptx(**how)
        assert words in str(caught.value)
        assert str(caught.value).startswith(__file__)
    with pytest.raises(TraceError, match=r"compile-time parameter `STAGES` is \[1, 2\], which may change: .* a tuple"):
        configured.ptx(STAGES=[1, 2])
    with pytest.raises(TraceError, match="a compile-time parameter cannot be called `stream`"):
        @kernel(block=32)
        def takes(n: Reg[u32], *, stream: int = 0) -> None:
            pass
    with pytest.raises(TraceError, match=r"a kernel is not called but launched: configured\.launch\(grid,"):
        configured(1, STAGES=3)  # type: ignore[arg-type]


@device_function
def tripled(n: Reg[u32]) -> Reg[u32]:
    return n * 3


def test_device_functions_that_cannot_be() -> None:
    @device_function
    def endless(n: Reg[u32]) -> Reg[u32]:
        return endless(n)

    @device_function
    def untyped(n: int) -> None:
        pass

    @device_function
    def forgets(n: Reg[u32]) -> Reg[u32]:
        pass  # type: ignore[empty-body]

    def other() -> Any:
        @device_function
        def tripled(n: Reg[u32]) -> Reg[u32]:
            return n * 4

        return tripled

    def recursive(n: Reg[u32]) -> None:
        endless(n)

    def wrong_type(x: Reg[f32]) -> None:
        tripled(x)  # type: ignore[arg-type]

    def too_many(n: Reg[s32]) -> None:
        tripled(n, n)  # type: ignore[call-arg, arg-type]

    def unannotated(n: Reg[u32]) -> None:
        untyped(1)

    def ambiguous(n: Reg[u32]) -> None:
        tripled(n)
        other()(n)

    def returns_nothing(n: Reg[u32]) -> None:
        forgets(n)

    refused(recursive, "@func `endless` calls itself", "write the recursion as a loop", at=endless.function.__code__.co_firstlineno + 2)
    refused(wrong_type, "@func `tripled`: parameter `n` is Reg[u32], not Reg[f32](%f0)")
    refused(too_many, "@func `tripled` takes 1 registers (n), 2 were given")
    refused(unannotated, "@func `untyped` takes and returns Reg[...] values")
    refused(ambiguous, "two functions of this module are called `tripled`: rename one")
    refused(returns_nothing, "says it returns Reg[u32], but returned None", at=forgets.function.__code__.co_firstlineno)


def test_layouts_are_checked_outside_a_trace_too() -> None:
    with pytest.raises(TraceError, match="a tile of 0x64 bf16 has no elements"):
        Layout.of(bf16, 0, 64)
