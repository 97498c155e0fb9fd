"""What explain says of calls, operands and packed values, for the whole table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import numpy as np
import pytest

from ptxkit import Ptr, kernel
from ptxkit.dsl import stubs
from ptxkit.explain.calls import calls, meaning, packed
from ptxkit.explain.instruction import explain, text
from ptxkit.grammar import forms
from ptxkit.grammar.summaries import OPERANDS, fitting, operand
from ptxkit.ptx import mov, opcode, st
from ptxkit.types import b32, u32

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]


def signatures(*mnemonics: str) -> Iterator[forms.Signature]:
    """Every form of every complete opcode."""
    todo = [state for state in forms.names().values() if not mnemonics or state.prefix.partition(".")[0] in mnemonics]
    while todo:
        state = todo.pop()
        yield from state.signatures()
        todo += state.attributes().values()


def test_the_calls_are_those_of_the_stub() -> None:
    """As names in order: required ones by position, then options; with the destinations, and without them."""
    seen = set()
    for signature in signatures():
        key = tuple((p.name, p.optional, p.operand.access, p.operand.default, p.operand.kind) for p in signature.parameters)
        if key in seen:
            continue
        seen.add(key)
        said = []
        for call in calls(signature):
            node = ast.parse(call.partition(" = ")[2] or call, mode="eval").body
            assert isinstance(node, ast.Call)
            *options, last = [word.arg for word in node.keywords]
            assert last == "pred"
            said.append(([ast.unparse(each) for each in node.args], options))
        wanted = [([name for name, _ in call.required], [name for name, _, _ in call.options]) for call in stubs._calls(signature)]
        assert all(call in said for call in wanted), signature.opcode
        assert len(said) <= 2
    assert len(seen) > 100


def test_every_operand_has_a_meaning() -> None:
    for form in forms.forms():
        head = re.split(r"[{( ]", form.syntax, maxsplit=1)[0]
        for name in form.operands:
            assert meaning(head, name, list(form.operands)), f"`{name}` of `{form.syntax}` has no words in grammar/summaries.py"


def test_an_operand_without_a_meaning_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(OPERANDS, "shfl")  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="of `shfl"):
        test_every_operand_has_a_meaning()


def test_no_meaning_is_of_an_operand_that_is_not_there() -> None:
    used = set()
    for form in forms.forms():
        head = re.split(r"[{( ]", form.syntax, maxsplit=1)[0]
        for key in ["", *fitting(head, OPERANDS)]:
            used |= {(key, name) for name in form.operands}
    assert {(key, name) for key, names in OPERANDS.items() for name in names} - used == set()
    assert operand("add", "nothing") == ""


def test_explain_shows_them() -> None:
    page = text(explain("cvt.rn.bf16x2.f32"))
    assert "  d = ptx.cvt.rn.bf16x2.f32(a, b, pred=None)\n  ptx.cvt.rn.bf16x2.f32(d, a, b, pred=None)\n" in page
    assert "the upper half of `d` comes from `a`, the lower half from `b`" in page
    page = text(explain("shfl.sync.bfly.b32"))
    assert "d = ptx.shfl.sync.bfly.b32(a, b, c, membermask, p=None, pred=None)" in page
    assert "membermask  the lanes that take part: a register .b32" in page
    assert "imm_trans_a=..., imm_trans_b=..." in text(explain("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"))


UPPER = "the upper half of `d` comes from `a`, the lower half from `b`"


def test_halves_come_from_where_explain_says() -> None:
    """Every cvt of two values into one, on the CPU device: of 1 and 2 it gives the upper half of (1, 1) and the lower half of (2, 2)."""
    pairs = sorted({s.opcode for s in signatures("cvt") if UPPER in packed(s)})
    assert len(pairs) > 10

    @kernel(block=1)
    def convert(out: Ptr[b32]) -> None:
        for i, name in enumerate(pairs):
            make = opcode(name)
            for j, (a, b) in enumerate(((1.0, 2.0), (1.0, 1.0), (2.0, 2.0))):
                made = make(mov.f32(a), mov.f32(b))
                opcode(f"st.global.b{made.type.bits}")(out + 3 * i + j, made)

    out = np.zeros((len(pairs), 3), np.uint32)
    convert.simulate(1, out)
    for name, (both, ones, twos) in zip(pairs, out.tolist(), strict=True):
        half = 16 if "f16x2" in name or "bf16x2" in name else 8
        assert both >> half == ones >> half != twos >> half, name
        assert both & (1 << half) - 1 == twos & (1 << half) - 1, name


def test_the_first_register_has_the_lowest_bits() -> None:
    vectors = {p.name for s in signatures("mov") for p in s.parameters if p.operand.kind == "vector"}
    said = {words for signature in signatures("mov") for words in packed(signature)}
    assert said == {f"the first register of `{name}` has the lowest bits" for name in vectors}

    @kernel(block=1)
    def pack(out: Ptr[u32]) -> None:
        st.global_.u32(out, mov.b32((mov.b16(1), mov.b16(2))))

    out = np.zeros(1, np.uint32)
    pack.simulate(1, out)
    assert out.tolist() == [0x20001]


HALVES = "each half on its own: the lower halves give the lower half, the upper ones the upper half"


def test_halves_are_said_of_what_computes_with_halves_alone() -> None:
    """The result is `d`, and a value of two halves is read; x2 of matrices, texels and stores is no such type."""
    said = {signature.opcode.partition(".")[0] for signature in signatures() if HALVES in packed(signature)}
    assert said == {"abs", "add", "cvt", "ex2", "fma", "max", "min", "mul", "multimem", "neg", "set", "sub", "tanh"}
    for signature in signatures("ldmatrix", "stmatrix", "tex", "red", "setp"):
        assert HALVES not in packed(signature), signature.opcode
    assert not [s.opcode for s in signatures("multimem") if HALVES in packed(s) and "ld_reduce" not in s.opcode]
    both = "each half on its own: one of `b` with the same half of what is in memory"
    assert both in packed(opcode("red.global.add.noftz.f16x2")._signatures()[0])
    assert both in packed(opcode("multimem.red.relaxed.sys.global.add.f16x2")._signatures()[0])


def test_predicates_of_halves() -> None:
    """setp of halves, on the CPU device: `p` is of the lower halves and `q` of the upper ones."""
    packs = opcode("setp.lt.f16x2")
    names = ["p", "q", "a", "b"]
    said = [meaning(str(packs), name, names) for name in "pq"]
    assert said == ["whether it holds of the lower halves", "whether it holds of the upper halves"]
    assert meaning("setp.lt.f32", "q", names) == "the same with the opposite comparison"

    @kernel(block=1)
    def compare(out: Ptr[u32]) -> None:
        for i, (a, b) in enumerate(((0x00003C00, 0x00004000), (0x3C000000, 0x40000000))):    # 1 < 2 in the lower halves, in the upper ones
            q = opcode("setp.ne.u32")(mov.u32(i), i)
            p = packs(mov.b32(a), mov.b32(b), q=q)
            for j, each in enumerate((p, q)):
                st.global_.u32(out + (2 * i + j), opcode("selp.u32")(1, 0, each))

    out = np.full(4, 9, np.uint32)
    compare.simulate(1, out)
    assert out.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
def test_bfind_gives_a_place_or_an_amount(type: str) -> None:
    """On the CPU device: a shift by the amount brings the bit that `bfind` has the place of to the top."""
    assert "shift to the left" in text(explain(f"bfind.shiftamt.{type}"))
    assert "The place of the most significant bit" in text(explain(f"bfind.{type}"))
    bits = int(type[1:])

    @kernel(block=1)
    def find(out: Ptr[u32]) -> None:
        for i, value in enumerate((1, 12, 0x1234567)):
            of = opcode(f"mov.{type}")(value)
            st.global_.u32(out + 2 * i, opcode(f"bfind.{type}")(of))
            st.global_.u32(out + (2 * i + 1), opcode(f"bfind.shiftamt.{type}")(of))

    out = np.zeros((3, 2), np.uint32)
    find.simulate(1, out)
    for value, (place, amount) in zip((1, 12, 0x1234567), out.tolist(), strict=True):
        assert value >> place == 1
        assert value << amount >> bits - 1 == 1


def test_slct_of_a_number_that_is_none() -> None:
    names = ["d", "a", "b", "c"]
    said = [meaning("slct.u32.f32", name, names) for name in "ab"]
    assert said == ["the value where c is at least 0", "the value where it is less, or NaN"]

    @kernel(block=1)
    def select(out: Ptr[u32]) -> None:
        for i, value in enumerate((1.0, -0.0, -1.0, float("nan"))):
            st.global_.u32(out + i, opcode("slct.u32.f32")(7, 8, mov.f32(value)))

    out = np.zeros(4, np.uint32)
    select.simulate(1, out)
    assert out.tolist() == [7, 7, 8, 8]
