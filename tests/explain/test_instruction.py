"""Every instruction of the table explains, by its mnemonic, any beginning and any spelling."""

from __future__ import annotations

import random

import pytest

from ptxkit.explain.instruction import explain, overview, text
from ptxkit.explain.words import CONTROL, CONVERGENCE, KIND_OF, PITFALLS, SYNC, TAGS, pitfalls
from ptxkit.grammar import forms
from ptxkit.grammar.errors import OpcodeError
from ptxkit.grammar.special import SPECIAL
from ptxkit.grammar.summaries import SUMMARIES, summary

pytestmark = pytest.mark.pure


def variant(form: forms.Form, generator: random.Random) -> str:
    """One opcode of the form, by a random walk."""
    state = forms.start_of((form,))
    for _ in range(40):
        after = list(state.next().values())
        if state.signatures() and (not after or generator.random() < 0.4):
            return state.prefix
        if not after:
            break
        state = generator.choice(after)
    return next(forms.variants(form)).opcode


def test_every_mnemonic_has_its_own_sentence_and_explains() -> None:
    for mnemonic in forms.mnemonics():
        made = explain(mnemonic)
        assert made.forms or made.parts, mnemonic
        assert made.summary or made.parts, mnemonic
        syntaxes = {form.syntax for form in made.forms}
        all_of_it = {form.syntax for form in forms.forms(mnemonic)}
        assert syntaxes <= all_of_it if made.complete else syntaxes == all_of_it, mnemonic
        assert mnemonic in text(made)


def test_an_opcode_of_each_form_and_its_beginnings() -> None:
    generator = random.Random(6)
    for form in forms.forms():
        opcode = variant(form, generator)
        made = explain(opcode)
        assert made.complete
        signatures = forms.lookup(opcode)
        assert [note.syntax for note in made.forms] == [signature.form.syntax for signature in signatures]
        for note, signature in zip(made.forms, signatures, strict=True):
            assert [operand.name for operand in note.operands] == [parameter.name for parameter in signature.parameters]
            assert [operand.optional for operand in note.operands] == [parameter.optional for parameter in signature.parameters]
            assert note.since == "{}.{}".format(*signature.since)
        words = opcode.split(".")
        beginning = ".".join(words[:generator.randrange(1, len(words) + 1)])
        begun = explain(f"{beginning}...")
        assert begun.opcode == beginning
        if not begun.complete:
            expected = [row.syntax for row in forms.forms(words[0]) if reaches(row, beginning)]
            assert [note.syntax for note in begun.forms] == expected
        assert text(begun).startswith(beginning)


def reaches(form: forms.Form, beginning: str) -> bool:
    """Whether some opcode of the form begins so, by another way than the page: over the tokens of all states."""
    state: forms.State | None = forms.start_of((form,))
    for token in beginning.split(".")[1:]:
        state = state.next().get(token) if state else None
    return state is not None


def test_what_may_follow_leads_on() -> None:
    for query in ("wgmma.mma_async.sync.aligned", "cp.async.bulk", "ld.global", "setp"):
        made = explain(query)
        for token in made.next:
            assert explain(f"{query}.{token}").opcode == f"{query}.{token}"


@pytest.mark.parametrize("query", [
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
    "ptx.cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes",
    "cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes",
    "@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {0, 0}], [%r2];",
    "@!%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes;",
])
def test_spellings_of_one_opcode(query: str) -> None:
    made = explain(query)
    assert made.opcode == "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    assert made.python == "ptx.cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes"


def test_python_spellings_explain_for_every_form() -> None:
    generator = random.Random(7)
    for form in forms.forms():
        opcode = variant(form, generator)
        assert explain(explain(opcode).python).opcode == opcode


def test_other_orders_of_modifiers_and_halves_of_words() -> None:
    assert explain("add.s32.sat").opcode == "add.sat.s32"
    assert "add.s32.sat" in explain("add.s32.sat").note
    assert explain("wgmma.mma_as").opcode == "wgmma.mma_async"
    assert explain("mbar").opcode == "mbarrier"
    assert set(explain("m").parts) == {mnemonic for mnemonic in forms.mnemonics() if mnemonic[0] == "m"}
    assert all(token.startswith("s") for token in explain("add.s").next)


def test_what_only_ptxas_takes() -> None:
    made = explain("addc.u16")
    assert made.complete
    assert "manual does not have it" in made.note
    assert [note.syntax.split(".")[0] for note in made.forms] == ["addc"]


@pytest.mark.parametrize(("query", "says"), [
    ("wgnna", "wgmma"), ("add.f32.foo", "foo"), ("wgmma.mma_async.sync.aligned.m64n100k16", "m64n96k16"), ("", "names no instruction"),
    ("...", "names no instruction"), ("!!", "!!"), ("@%p", "@%p"), ("\x00", "\x00")])
def test_what_is_no_instruction(query: str, says: str) -> None:
    with pytest.raises(OpcodeError) as caught:
        explain(query)
    assert says in str(caught.value)


def test_special_registers() -> None:
    for name, type in SPECIAL.items():
        made = explain(name)
        assert made.complete
        assert made.parts[name] == f"a .{type} register"
        assert made.summary
    assert set(explain("tid").parts) == {"%tid.x", "%tid.y", "%tid.z", "%tid.w"}


def test_words_are_about_what_the_table_has() -> None:
    """Sentences for what does not exist would be dead; effects without a sentence would be shown as code."""
    begins = {word for form in forms.forms() for word in beginnings(form)}
    assert set(SUMMARIES) <= begins
    assert set(PITFALLS) <= set(SUMMARIES)
    assert set(KIND_OF) <= set(SUMMARIES)
    effects = [form.effects for form in forms.forms()]
    assert {word for effect in effects for word in effect.sync} <= set(SYNC)
    assert {effect.convergence for effect in effects} - {"none"} <= set(CONVERGENCE)
    assert {effect.control for effect in effects} - {""} <= set(CONTROL)
    assert {operand.tag for form in forms.forms() for operand in form.operands.values()} - {""} <= set(TAGS)


def beginnings(form: forms.Form) -> set[str]:
    """The words that some opcode of the form begins with, as far as the sentences go."""
    found = set()
    todo = [forms.start_of((form,))]
    while todo:
        state = todo.pop()
        found.add(state.prefix)
        if state.prefix in {".".join(key.split(".")[:count]) for key in SUMMARIES for count in range(1, 6)}:
            todo += state.next().values()
    return found


def test_pitfalls_stay_with_their_instruction() -> None:
    assert pitfalls("cp.async.bulk.tensor.2d")[:1] == PITFALLS["cp.async.bulk"][:1]
    assert not set(PITFALLS["cp.async"]) & set(pitfalls("cp.async.bulk"))
    assert set(pitfalls("wgmma.wait_group")) >= set(PITFALLS["wgmma"])
    assert summary("wgmma.mma_async.sync") == SUMMARIES["wgmma.mma_async"]
    assert summary("nothing") == ""


def test_the_overview_has_every_mnemonic_once() -> None:
    listed = [mnemonic for rows in overview().values() for mnemonic in rows]
    assert sorted(listed) == sorted(forms.mnemonics())
    assert all(said for rows in overview().values() for said in rows.values())
