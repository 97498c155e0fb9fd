"""Declarations, names, versions and characters, judged by ptxas 13.0 and by the language rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxkit import grammar
from ptxkit.check import check_text, declarations, functions, initial
from ptxkit.check import text as texts

from ..grammar import certify
from . import declared, spelled

judged_by_13_0 = pytest.mark.skipif(certify.version() != "13.0", reason="what ptxas 13.0 takes")
FAMILIES = [*declared.FAMILIES, *spelled.FAMILIES]
ALWAYS = {declared.heads: 40, declared.jumps: 40, declared.locations: 50, declared.aliases: 60, declared.features: 90}


def differences(family: declared.Family, count: int) -> list[declared.Verdict]:
    verdicts = declared.verdicts(declared.sample(family, count, 1))
    assert any(verdict.ptxas for verdict in verdicts)
    assert any(verdict.ptxas == "" for verdict in verdicts)
    return [verdict for verdict in verdicts if not verdict.agrees]


@pytest.mark.thinned(2)
@pytest.mark.ptxas
@judged_by_13_0
@pytest.mark.timeout(120)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_declarations_are_judged_as_by_ptxas(family: declared.Family) -> None:
    assert differences(family, ALWAYS.get(family, 20)) == []


@pytest.mark.sweep
@judged_by_13_0
@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_every_declaration_is_judged_as_by_ptxas(family: declared.Family) -> None:
    assert differences(family, 1 << 30) == []


PLANTED = (
    (functions, "OF_FUNCTIONS", ("noreturn",), declared.directives, ".abi_preserve 10"),
    (functions, "PARAMETER_BYTES", 0x7FFD, declared.features, "32765"), (declarations, "RESERVED", frozenset(), declared.words, "WARP_SZ"),
    (functions, "ARGUMENT_ALIGNMENT", 64, declared.alignments, ".param .align 128"),
    (initial, "VALUED", ("global", "const", "shared"), declared.initial_values, "= sh;"),
    (texts, "FILE", texts.STRANGE, declared.locations, ".file"),
    (declarations, "VERSIONS", frozenset({*declarations.VERSIONS, (8, 9)}), declared.headers, ".version 8.9"),
)


@pytest.mark.thinned(2)
@pytest.mark.ptxas
@judged_by_13_0
@pytest.mark.timeout(120)
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted[1])
def test_a_rule_that_errs_is_caught(planted: tuple[object, str, object, declared.Family, str], monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, value, family, word = planted
    near = [text for text in dict.fromkeys(family()) if word in text][:60]
    assert all(verdict.agrees for verdict in declared.verdicts(near))
    monkeypatch.setattr(module, name, value)
    assert not all(verdict.agrees for verdict in declared.verdicts(near))


# ---------------------------------------------------------------------------------------------------- a later version

LATER = """.version 9.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p) .reqntid 32, 1, 1 .newdirective 3
{
	.reg .b32 r<3>;
	.reg .b64 d<2>;
	ld.param.u64 d1, [p];
	mov.u32 r1, %tid.x;
	add.u32 r2, r1, 1;
	frobnicate.sync.b32 r2, r1;
	st.global.u32 [d1], r2;
	ret;
}
"""


@pytest.mark.pure
def test_a_later_version_is_to_review() -> None:
    found = check_text(LATER)
    assert [(finding.rule, finding.severity) for finding in found] == [
        ("version", "review"), ("declaration", "review"), ("opcode", "review")]
    assert "9.4" in found[0].message
    assert "at most PTX 9.0" in found[0].message
    assert "frobnicate" in found[2].message


@pytest.mark.pure
def test_what_a_later_version_has_long_had_is_judged() -> None:
    wrong = LATER.replace("add.u32 r2, r1, 1;", "add.u32 r2, d1, 1;\n\tadd.u32 r2, r9, 1;")
    assert [(finding.rule, finding.ptx_line) for finding in check_text(wrong) if finding.severity == "error"] == [
        ("operands", 10), ("undefined-name", 11)]
    older = check_text(LATER.replace("9.4", "9.0"))
    assert [finding.rule for finding in older if finding.severity == "error"] == ["declaration", "opcode"]


@pytest.mark.pure
def test_the_command_takes_a_later_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ptxkit.cli.main import main

    (tmp_path / "later.ptx").write_text(LATER)
    assert main(["check", str(tmp_path / "later.ptx")]) == 0
    assert "3 to review" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "later.ptx"), "--strict"]) == 1


@pytest.mark.pure
def test_a_later_text_is_written_as_it_is_read() -> None:
    module = grammar.parse(LATER)
    assert module.version == (9, 4)
    assert grammar.parse(grammar.write(module)) == module
