"""`check` accepts what the table spells, says what is wrong with the rest, and agrees with ptxas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ptxkit.check import check_text
from ptxkit.grammar import match, parse, tree
from ptxkit.grammar.schema import Range
from ptxkit.grammar.special import SPECIAL
from tests.grammar import certify, near

CORPUS = Path(__file__).parents[1] / "corpus"
NAMES = {"%r": "b32", "%r2": "b32", "%rd": "b64", "%f": "f32", "%p": "pred", "%h": "b16", "smem": ".shared", "gmem": ".global"}
R, RD, F, P, H = (tree.Name(name) for name in ("%r", "%rd", "%f", "%p", "%h"))
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
LOAD = "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes"

@pytest.mark.pure
def test_every_line_of_the_table_is_legal_and_binds() -> None:
    for signature in certify.operand_lists():
        for number, line in enumerate(certify.instances(signature)):
            assert number or match.check(line, near.types) is None
            bound = match.bind(signature, line.operands, near.types)
            assert not isinstance(bound, match.Mismatch)
            assert signature.render(bound) == line.operands


def instructions(body: tuple[tree.Statement, ...], outer: Mapping[str, str]) -> Iterator[tuple[tree.Instruction, Mapping[str, str]]]:
    """The instructions of a body, each with the names that it sees."""
    names = dict(outer)
    for statement in body:
        if isinstance(statement, tree.Variable):
            names.update(declared(statement))
    for statement in body:
        if isinstance(statement, tree.Block):
            yield from instructions(statement.body, names)
        elif isinstance(statement, tree.Instruction):
            yield statement, names


def declared(variable: tree.Variable) -> dict[str, str]:
    vector = f"v{variable.vector}." if variable.vector > 1 else ""
    type = vector + variable.type if variable.space == "reg" else f".{variable.space}"
    return dict.fromkeys([variable.name] if variable.count is None else [f"{variable.name}{n}" for n in range(variable.count)], type)


@pytest.mark.pure
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.ptx")), ids=lambda path: path.stem)
def test_what_nvcc_writes_is_legal(path: Path) -> None:
    module = parse(path.read_text())
    outer = {name: type for item in module.items if isinstance(item, tree.Variable) for name, type in declared(item).items()}
    for function in module.functions:
        names = {name: type for variable in (*function.parameters, *function.returns) for name, type in declared(variable).items()}
        for line, seen in instructions(function.body or (), outer | names):
            assert match.check(line, seen) is None


@pytest.mark.pure
@pytest.mark.parametrize(("opcode", "operands", "words"), [
    ("add.u32", (R, R), "2 operands where `d, a, b` is due"),
    ("add.u32", (R, R, RD), "operand `b` must be a .u32 register; `%rd` is .b64"),
    ("add.f32", (F, F, tree.Integer(1)), "operand `b` must be a .f32 register, or a floating-point literal, not the integer 1"),
    ("add.u32", (R, R, tree.Name("%tid.x")), "the special register `%tid.x` is read by `mov.u32` first"),
    ("ld.shared.u32", (R, tree.Address(F)), "operand `a` must be at a 32-bit or 64-bit register of bits or integers; `%f` is .f32"),
    ("ld.global.u32", (R, tree.Address(R)), "operand `a` must be at a 64-bit register"),
    ("ld.global.u32", (R, tree.Address(tree.Name("smem"))), "operand `a` must be in .global; `smem` is in .shared"),
    ("setmaxnreg.inc.sync.aligned.u32", (tree.Integer(100),), "`imm_reg_count` is 100; legal is 24 to 256 in steps of 8"),
    (WGMMA, (tree.Vector((F,) * 3), RD, RD, P, *map(tree.Integer, (1, 1, 0, 0))), "operand `d` must have 4 lanes, not 3"),
    (LOAD, (tree.Address(RD), tree.TensorAddress(RD, tree.Vector((R,))), tree.Address(R)), "`tensorCoords` must have 2 lanes, not 1"),
    (LOAD, (tree.Address(RD), tree.Address(RD), tree.Address(R)), "must be a tensor map and coordinates in brackets, not `[%rd]`"),
    ("mov.b64", (RD, tree.Vector((F, tree.Name("%r")))), None),
    ("cp.async.ca.shared.global", (tree.Address(R), tree.Address(RD), tree.Integer(4), tree.Integer(8)),
     "`src_size` is 8, more than `cp_size`, which is 4"),
    ("mbarrier.arrive.shared::cluster.b64", (RD, tree.Address(R)), "the result must be `_`"),
    ("ldmatrix.sync.aligned.m8n8.x2.b16", (tree.Vector((R, F)), tree.Address(RD)), None),
    ("st.global.v2.b32", (tree.Address(RD), tree.Vector((tree.Name("%u"), F))), "mixes registers of different types, .u32, .f32"),
    ("bar.snyc", (tree.Integer(0),), "`.snyc` is not a modifier of `bar` (did you mean `.sync`?)"),
])
def test_what_is_wrong_is_said(opcode: str, operands: tuple[tree.Operand, ...], words: str | None) -> None:
    sentence = match.check(tree.Instruction(opcode, operands), NAMES | {"%u": "u32"})
    assert sentence is None if words is None else sentence is not None and sentence.startswith(f"`{opcode}`") and words in sentence


@pytest.mark.pure
def test_a_guard_is_a_predicate() -> None:
    guarded = tree.Instruction("bar.sync", (tree.Integer(0),), tree.Guard("%r"))
    assert "not a predicate" in str(match.check(guarded, NAMES))
    assert match.check(tree.Instruction("bar.sync", (tree.Integer(0),), tree.Guard("%p")), NAMES) is None


@pytest.mark.pure
def test_order_of_modifiers_matters_only_when_strict() -> None:
    line = tree.Instruction("ldmatrix.sync.aligned.x1.m8n8.shared.b16", (tree.Vector((R,)), tree.Address(R)))
    assert match.check(line, NAMES) is None
    assert "out of order" in str(match.check(line, NAMES, strict=True))


@pytest.mark.pure
def test_ranges() -> None:
    assert match.legal(Range(24, 256, 8)) == "24 to 256 in steps of 8"
    assert match.legal(Range(choices=(-1, 1))) == "-1 or 1"
    assert match.legal(Range(0)) == "0 or more"
    assert match.within(Range(24, 256, 8), 32)
    assert not match.within(Range(24, 256, 8), 36)
    assert not match.within(Range(choices=(4, 8)), 6)


@pytest.mark.ptxas
@pytest.mark.skipif(certify.ptxas() is None, reason="no ptxas")
class TestAgreementWithPtxas:
    def test_special_registers(self) -> None:
        registers = {"pred": "%pred_1", "u32": "%u32_1", "u64": "%u64_1"}
        lines = [f"mov.{type} {registers[type]}, {name};" for name, type in SPECIAL.items()]
        assert certify.judge(lines) == {}
        wrong = [f"mov.{type} {registers[type]}, {name};" for name, known in SPECIAL.items()
                 for type in registers if type != known and name != "%gridid"]  # %gridid once had 32 bits
        assert len(certify.judge(wrong)) == len(wrong)


@pytest.mark.parametrize(("line", "right"), [
    ("mov.v2.u32 v, {7, r};", True), ("mov.v2.u32 v, {w.x, v.y};", True), ("mov.v2.u32 v, {r, v.y};", True),
    ("mov.v2.u32 v, {7, 8};", True),
    ("mov.v2.u32 v, {%laneid, 7};", True), ("mov.v2.u32 v, {7, v.y};", False), ("mov.v2.u32 v, {v.y, 7};", False),
    ("mov.v2.u32 v, {%tid.x, 7};", False), ("mov.b64 d, {7, v.y};", False), ("mov.b64 d, {WARP_SZ, v.y};", False),
    ("mov.v4.u32 q, {7, 8, r, q.x};", False), ("st.shared.v2.u32 [r], {7, v.y};", False),
    ("mov.v2.f32 vf, {0f3F800000, vf.y};", False), ("tex.a1d.v4.f32.f32 {f, f, f, f}, [t, {7, vf.y}];", False),
    ("tex.a1d.v4.f32.f32 {f, f, f, f}, [t, {r, vf.y}];", True),
])
@pytest.mark.pure
def test_numbers_stand_beside_whole_registers(line: str, right: bool) -> None:
    text = (".version 8.0 .target sm_90a .address_size 64 .global .texref t; .entry k() { .reg .v2 .u32 v, w; .reg .v4 .u32 q; "
            f".reg .u32 r; .reg .f32 f; .reg .v2 .f32 vf; .reg .b64 d;\n{line}\n}}")
    assert [finding.ptx_line for finding in check_text(text, protocols=False)] == [2] * (not right)
