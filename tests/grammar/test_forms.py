"""The laws of the table and of its engine; every law is also shown to catch a row that breaks it."""

from __future__ import annotations

import itertools
import random

import pytest

from ptxkit.grammar import forms, isa, tree
from ptxkit.grammar.errors import OpcodeError, PtxkitError
from ptxkit.grammar.schema import Access, Effects, Form, Per, Range, at, form, imm, r, w
from ptxkit.grammar.spelling import opcode_tokens, python_name
from tests.grammar import laws

pytestmark = pytest.mark.pure

BROKEN = {
    laws.notation_holds: [form("a.b{.c d", d=w("u32")), form("a.b d", d=w("u32"), e=r("u32")), form("a.b d, e", d=w("u32"))],
    laws.references_hold: [form("a.b [p]", p=at(), effects=Effects((Access("r", "q"),))),
                           form("a.b d", d=w("u32", tag="colour")), form("a.b d", d=w("u32", when="c")),
                           form("a.t d", slots={"t": "u32 u64"}, d=w(Per("u", {"u32": "u32"})))],
    laws.operands_resolve: [form("a.b d", d=w("type")), form("a.b d", d=w("u32", n=0))],
    laws.spelling_is_injective: [form("a.b_2x d", d=w("u32")), form("a.b__c d", d=w("u32"))],
    laws.addresses_have_effects: [form("a.b [p]", p=at())],
    laws.dependence_is_said: [form("a.b [p]", p=at(), effects=Effects((Access("r", "p"),))),
                              form("a", effects=Effects(sync=("new.word",)))],
    laws.collectives_converge: [form("a.sync.aligned d", d=w("u32")), form("a.aligned", effects=Effects(sync=("cta.barrier",)))],
    laws.shapes_are_distinct: [(form("a.t d, e{, g}", slots={"t": "b32 f32"}, d=w("t"), e=r("t"), g=r("t")),
                                form("a.b32 d, e", d=w("s32"), e=r("u32")))],
}


@pytest.mark.parametrize("law", [*BROKEN, laws.states_complete], ids=lambda law: law.__name__)
def test_law_holds(law: object) -> None:
    assert list(itertools.islice(law(isa.FORMS), 20)) == []  # type: ignore[operator]


@pytest.mark.parametrize(("law", "rows"), [(law, rows) for law, broken in BROKEN.items() for rows in broken],
                         ids=lambda value: getattr(value, "__name__", ""))
def test_law_can_fail(law: object, rows: Form | tuple[Form, ...]) -> None:
    assert list(law(rows if isinstance(rows, tuple) else (rows,)))  # type: ignore[operator]


def test_a_state_that_leads_nowhere_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms.State, "signatures", lambda state: ())
    assert list(laws.states_complete((form("a.b"),)))


def test_lookup_finds_every_variant() -> None:
    """Of a row with very many variants, a sample that is the same every time."""
    for row in isa.FORMS:
        found = list(itertools.islice(forms.variants(row), 3000))
        for signature in found if len(found) <= 200 else random.Random(row.syntax).sample(found, 200):
            again = [s for s in forms.lookup(signature.opcode) if s.form is row]
            assert [s.parameters for s in again] == [signature.parameters]
            assert [dict(s.bindings) for s in again] == [dict(signature.bindings)]


def test_lookup_does_not_enumerate() -> None:
    """`ld` has tens of thousands of opcodes; finding one visits as many states as it has modifiers."""
    forms.lookup.cache_clear()
    forms.start.cache_clear()
    forms.lookup("ld.weak.global.L1::evict_last.L2::cache_hint.L2::256B.v4.f32")
    assert _visited(forms.start("ld")) == 8


def _visited(state: forms.State) -> int:
    return 1 + sum(_visited(after) for after in state._children.values() if after is not None)


def test_rows_are_found_by_mnemonic() -> None:
    assert set(map(id, forms.forms())) == set(map(id, isa.FORMS))
    assert all(row.mnemonic == mnemonic for mnemonic in forms.mnemonics() for row in forms.forms(mnemonic))


@pytest.mark.parametrize(("opcode", "words"), [
    ("wgmmma.fence", ["`wgmmma` is not an instruction", "did you mean `wgmma`"]),
    ("wgmma.fence.sink.aligned", ["`.sink` is not a modifier of `wgmma`", "after `wgmma.fence`", "`.sync` is legal"]),
    ("wgmma.fence.aligned.sync", ["`.aligned` is out of order after `wgmma.fence`", "`wgmma.fence.sync.aligned`"]),
    ("wgmma.fence.sync", ["incomplete", "`.aligned` is due next"]),
    ("wgmma.fence.sync.aligned.aligned", ["`.aligned` is legal elsewhere in `wgmma`", "`wgmma.fence.sync.aligned` is complete"]),
    ("wgmma.mma_async.sync.aligned.m64n250k16.f32.f16.f16", ["`.m64n250k16` is not a modifier", "did you mean `.m64n2", "in all"]),
    ("mbarrier.try_wait.shared::cta.parity.b64", ["`.parity` is out of order", "`mbarrier.try_wait.parity.shared::cta.b64`"]),
])
def test_a_wrong_opcode_says_what_is_wrong(opcode: str, words: list[str]) -> None:
    with pytest.raises(OpcodeError) as caught:
        forms.lookup(opcode)
    for word in words:
        assert word in str(caught.value)


def test_a_reordered_opcode_has_its_canonical_spelling() -> None:
    assert forms.canonical("ldmatrix.sync.aligned.x4.m8n8.shared.b16") == "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    assert forms.canonical("ldmatrix.sync.aligned.x8.m8n8.shared.b16") is None


def test_python_spelling() -> None:
    tokens = ["cp", "async", "bulk", "tensor", "2d", "shared::cluster", "global", "tile", "mbarrier::complete_tx::bytes"]
    names = ["cp", "async_", "bulk", "tensor_2d", "shared__cluster", "global_", "tile", "mbarrier__complete_tx__bytes"]
    assert python_name(tokens) == names
    assert opcode_tokens(names) == tokens
    assert "tensor_2d" in forms.start("cp").next()["async"].next()["bulk"].attributes()
    assert "tensor" not in forms.start("cp").next()["async"].next()["bulk"].attributes()


def test_signature_resolves_and_renders() -> None:
    opcode = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
    (signature,) = forms.lookup(opcode)
    assert [p.name for p in signature.parameters] == ["dstMem", "tensorMap", "tensorCoords", "mbar", "ctaMask"]
    coordinates = signature.parameters[2].operand
    assert (coordinates.kind, coordinates.type, coordinates.count) == ("coordinates", "s32", 2)
    assert not any(p.optional for p in signature.parameters)
    assert (signature.since, signature.target, signature.bindings["dim"]) == ((8, 0), "sm_90", "2d")
    vector = tree.Vector((tree.Name("%r1"), tree.Integer(0)))
    where, table, barrier = (tree.Address(tree.Name(f"%rd{n}")) for n in range(3))
    written = signature.render((where, table, vector, barrier, tree.Name("%rs1")))
    assert written == (where, tree.TensorAddress(tree.Name("%rd1"), vector), barrier, tree.Name("%rs1"))
    with pytest.raises(PtxkitError, match="`ctaMask` is required"):
        signature.render((where, table, vector, barrier, None))


def test_gates_rise_with_a_token() -> None:
    assert forms.lookup("mbarrier.arrive.release.cta.b64")[0].since == (8, 0)
    assert forms.lookup("mbarrier.arrive.relaxed.cta.b64")[0].since == (8, 6)


def test_an_optional_pair_and_literal_render() -> None:
    row = form("a.b d{|p}, _{, x{, y}}", d=w("u32"), p=w("pred"), x=r("u32"), y=imm(Range(0, 3)))
    signature = next(forms.variants(row))
    d, p, x, y = tree.Name("%r1"), tree.Name("%p1"), tree.Name("%r2"), tree.Integer(2)
    assert signature.render((d, None, None, None)) == (d, tree.Name("_"))
    assert signature.render((d, p, x, y)) == (tree.Pair(d, p), tree.Name("_"), x, y)
    with pytest.raises(PtxkitError, match="`x` must be given"):
        signature.render((d, p, None, y))
