"""ptxas accepts every line that the table can spell, and from the version and for the target that the table says."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from ptxkit.grammar import forms, isa
from ptxkit.grammar.isa import later, lenient
from ptxkit.grammar.schema import Form, Range, form, imm, r, w
from ptxkit.grammar.write import write_instruction
from tests.grammar import certify

pytestmark = [pytest.mark.ptxas, pytest.mark.skipif(certify.ptxas() is None, reason="no ptxas")]
measured = pytest.mark.skipif(certify.version() != "13.0", reason=f"gates are those of ptxas 13.0, and this is {certify.version()}")

VERSIONS = ("8.0", "8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7", "8.8", "9.0")
PLANTED = (
    form("add.s32.sat2 d, a, b", d=w("s32"), a=r("s32"), b=r("s32")),
    form("add.s32 d, a, b", d=w("s32"), a=r("s32"), b=r("s64")),
    form("add.s32 d, a{, b}", d=w("s32"), a=r("s32"), b=r("s32")),
    form("mul.lo.f32 d, a, b", d=w("f32"), a=r("f32"), b=r("f32")),
    form("setmaxnreg.inc.sync.aligned.u32 n", n=imm(Range(24, 256, 4))),
    form("shl.b32 d, a, b", d=w("b32"), a=r("b32"), b=r("u32", float_immediate=True, negate=True)),
)


@functools.cache
def plain_lines() -> tuple[tuple[forms.Signature, str], ...]:
    """One line of every variant, without its optional operands."""
    return tuple((signature, write_instruction(next(certify.instances(signature, alternatives=False))))
                 for row in isa.FORMS for signature in forms.variants(row))


def rejections(rows: tuple[Form, ...]) -> list[str]:
    lines = [line for _, line in certify.table_lines(rows)]
    return [f"{lines[index]} -- {message}" for index, message in certify.judge(lines).items()]


def wrong_gates(lines: tuple[tuple[forms.Signature, str], ...]) -> list[str]:
    """Lines that ptxas refuses at their own version, or takes at the version before."""
    wrong = []
    for before, version in zip(("", *VERSIONS), VERSIONS, strict=False):
        major, minor = map(int, version.split("."))
        texts = [text for signature, text in lines if signature.since == (major, minor)]
        wrong += [f"{texts[i]} is refused at {version}: {why}" for i, why in certify.judge(texts, version).items()]
        if before:
            refused = certify.judge(texts, before)
            wrong += [f"{text} is accepted at {before}" for i, text in enumerate(texts) if i not in refused]
    return wrong


def wrong_targets(lines: tuple[tuple[forms.Signature, str], ...]) -> list[str]:
    """Rows for sm_90a that sm_90 takes, and the other way round."""
    refused = certify.judge([text for _, text in lines], target="sm_90")
    return [f"{text}: {refused.get(i, 'accepted')} for sm_90, and the table says {signature.target}"
            for i, (signature, text) in enumerate(lines) if (i in refused) != (signature.target == "sm_90a")]


def test_every_variant_is_accepted() -> None:
    assert rejections(isa.FORMS)[:30] == []


def test_what_only_ptxas_takes_is_accepted() -> None:
    """One line of each opcode."""
    lines = [write_instruction(next(certify.instances(signature, alternatives=False)))
             for row in lenient.FORMS for signature in forms.variants(row)]
    assert [f"{lines[i]} -- {message}" for i, message in certify.judge(lines).items()][:30] == []


def later_lines(rows: tuple[Form, ...]) -> list[tuple[forms.Signature, str]]:
    """One line of each opcode that a later target has."""
    return [(signature, f"{signature.opcode} {row.example};".replace(" ;", ";")) for row in rows for signature in forms.variants(row)]


def wrong_later(lines: list[tuple[forms.Signature, str]]) -> list[str]:
    """Lines that sm_90a takes, or that their target refuses from their version on or takes before."""
    wrong = [f"{lines[i][1]}: sm_90a takes it" for i in set(range(len(lines))) - certify.judge([text for _, text in lines]).keys()]
    for gate in sorted({(signature.target, signature.since) for signature, _ in lines}):
        target, since = gate[0], ".".join(map(str, gate[1]))
        texts = [text for signature, text in lines if (signature.target, signature.since) == gate]
        wrong += [f"{texts[i]} for {target}, {since}: {why}" for i, why in certify.judge(texts, since, target).items()]
        refused = certify.judge(texts, VERSIONS[VERSIONS.index(since) - 1], target)
        wrong += [f"{text} for {target} is accepted before {since}" for i, text in enumerate(texts) if i not in refused]
    return wrong


@measured
def test_later_targets() -> None:
    assert wrong_later(later_lines(later.FORMS))[:30] == []


@pytest.mark.parametrize("wrong", [{"since": "8.8"}, {"since": "8.1"}, {"target": "sm_90a"}, {"example": "%b32_1"}])
def test_a_wrong_later_row_is_found(wrong: dict[str, str]) -> None:
    planted = dataclasses.replace(next(row for row in later.FORMS if row.mnemonic == "redux"), **wrong)  # type: ignore[arg-type]
    assert wrong_later(later_lines((planted,)))


@measured
def test_versions_are_the_lowest() -> None:
    assert wrong_gates(plain_lines())[:30] == []


@measured
def test_targets_are_right() -> None:
    assert wrong_targets(plain_lines())[:30] == []


@pytest.mark.parametrize("row", PLANTED, ids=lambda row: row.syntax)
def test_a_wrong_row_is_rejected(row: Form) -> None:
    assert rejections((row,))


def test_bad_lines_are_found_among_good_ones() -> None:
    """Also one that ends the run of ptxas, which is taken out and the others judged again."""
    good = [text for _, text in plain_lines()[:certify.CHUNK + 500]]
    bad = {0: "add.s32 %s32_1, %s32_2, %f32_3;", 700: "add.s32 %s32_1 = %s32_2;", 701: "frobnicate %s32_1;", len(good) - 1: "add.s32 ;"}
    lines = [bad.get(index, line) for index, line in enumerate(good)]
    assert certify.judge(lines).keys() == bad.keys()


@pytest.mark.parametrize(("mnemonic", "wrong"), [("wgmma", {"since": "8.1"}), ("st", {"since": "8.1"}), ("red.async", {"since": "8.0"}),
                                                 ("wgmma", {"target": "sm_90"}), ("fence", {"target": "sm_90a"})])
def test_a_wrong_gate_is_found(mnemonic: str, wrong: dict[str, str]) -> None:
    row = next(row for row in isa.FORMS if row.syntax.startswith(mnemonic))
    planted = dataclasses.replace(row, **wrong)  # type: ignore[arg-type]
    lines = tuple((signature, write_instruction(next(certify.instances(signature, alternatives=False))))
                  for signature in forms.variants(planted))
    assert wrong_targets(lines) if "target" in wrong else wrong_gates(lines)
