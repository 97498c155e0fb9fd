"""`ptxkit check --sarif`: the log has the structure of SARIF 2.1.0, and results are where an author can mend them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ptxkit.check import check_text, dropped, language
from ptxkit.check.families import RULES
from ptxkit.check.sarif import SENTENCES, help_of, sarif, uri_of
from ptxkit.cli.main import main
from ptxkit.grammar.errors import Finding, Position

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
CORPUS = Path(__file__).parents[1] / "corpus"

# The objects of the schema that a log of ours may have: (required properties, the properties of the schema that we use, with their kind).
# A kind is a type, a list of one kind, the name of another object, or a set of words. Written from the standard (sections 3.13 to 3.52).
SCHEMA: dict[str, tuple[set[str], dict[str, Any]]] = {
    "log": ({"version", "runs"}, {"$schema": "uri", "version": {"2.1.0"}, "runs": ["run"]}),
    "run": ({"tool"}, {"tool": "tool", "automationDetails": "automation", "invocations": ["invocation"],
                       "columnKind": {"utf16CodeUnits", "unicodeCodePoints"}, "results": ["result"]}),
    "tool": ({"driver"}, {"driver": "driver"}),
    "driver": ({"name"}, {"name": str, "version": str, "rules": ["rule"]}),
    "rule": ({"id"}, {"id": str, "name": str, "shortDescription": "multiformat", "help": "multiformat",
                      "defaultConfiguration": "configuration"}),
    "multiformat": ({"text"}, {"text": str, "markdown": str}),
    "configuration": (set(), {"level": {"none", "note", "warning", "error"}}),
    "automation": (set(), {"id": str}),
    "invocation": ({"executionSuccessful"}, {"executionSuccessful": bool}),
    "result": ({"message"}, {"ruleId": str, "ruleIndex": int, "level": {"none", "note", "warning", "error"}, "message": "message",
                             "locations": ["location"], "relatedLocations": ["location"], "properties": dict}),
    "message": ({"text"}, {"text": str}),
    "location": (set(), {"id": int, "physicalLocation": "physical", "message": "message"}),
    "physical": ({"artifactLocation"}, {"artifactLocation": "artifact", "region": "region"}),
    "artifact": (set(), {"uri": "uri"}),
    "region": (set(), {"startLine": "positive", "startColumn": "positive"}),
}


def conforms(value: Any, kind: Any, where: str = "log") -> None:
    if isinstance(kind, list):
        assert isinstance(value, list), where
        for i, each in enumerate(value):
            conforms(each, kind[0], f"{where}[{i}]")
    elif isinstance(kind, set):
        assert value in kind, where
    elif kind == "uri":
        assert re.fullmatch(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+", value), where
        assert not re.search(r"%(?![0-9A-F]{2})", value), where
    elif kind == "positive":
        assert type(value) is int, where
        assert value >= 1, where
    elif isinstance(kind, str):
        required, known = SCHEMA[kind]
        assert isinstance(value, dict), where
        assert required <= value.keys() <= known.keys(), where
        for name, each in value.items():
            conforms(each, known[name], f"{where}.{name}")
    else:
        assert type(value) is kind, where


def checked(log: Any) -> list[Any]:
    """The results of a log that conforms; rules are numbered, once each, and a result's level is not above its rule's."""
    log = json.loads(json.dumps(log))
    conforms(log, "log")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    ids = [rule["id"] for rule in rules]
    assert len(set(ids)) == len(ids)
    order = ["note", "warning", "error"]
    for result in run["results"]:
        rule = rules[result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert order.index(result["level"]) <= order.index(rule["defaultConfiguration"]["level"])
        assert result["message"]["text"].strip().endswith(".")
    results: list[Any] = run["results"]
    return results


def log_of(text: str, name: str = "k.ptx") -> list[Any]:
    return checked(sarif(check_text(text), name, is_file=True))


HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
RACE = HEAD + """.visible .entry k(.param .u64 p)
.reqntid 64
{
	.reg .b32 %r<9>;
	.shared .align 4 .b8 data[256];
	mov.u32 %r1, %tid.x;
	shl.b32 %r2, %r1, 2;
	mov.u32 %r3, data;
	add.u32 %r4, %r3, %r2;
	xor.b32 %r5, %r2, 128;
	add.u32 %r6, %r3, %r5;
	LOC1
	st.shared.u32 [%r4], %r1;
	LOC2
	ld.shared.u32 %r7, [%r6];
	st.shared.u32 [%r4+0], %r7;
	ret;
}
	.file 1 "src/the kernel.cu"
	.file 2 "inner.h"
"""


def race(one: str = "", two: str = "") -> str:
    return RACE.replace("LOC1", one).replace("LOC2", two)


def test_results_of_ptx_are_at_its_lines() -> None:
    results = log_of(race())
    assert results
    for result in results:
        assert result["ruleId"] == "shared-race"
        assert result["level"] == "error"
        (location,) = result["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "k.ptx"
        line = race().splitlines()[location["physicalLocation"]["region"]["startLine"] - 1]
        assert "shared" in line
        assert "relatedLocations" not in result


def places(result: Any) -> tuple[str, int]:
    place = result["locations"][0]["physicalLocation"]
    return place["artifactLocation"]["uri"], place["region"]["startLine"]


def test_results_are_at_the_authors_lines() -> None:
    results = log_of(race(".loc 1 10 3", ".loc 1 12 3"))
    assert ("src/the%20kernel.cu", 12) in map(places, results)
    related = results[0]["relatedLocations"][0]["physicalLocation"]
    assert related["artifactLocation"]["uri"] == "k.ptx"


def test_inlined_code_is_at_the_outermost_call() -> None:
    """The load is in a function of inner.h, called at inner.h:30, and that is called at the kernel's line 44."""
    inlined = ".loc 2 30 1, function_name $a, inlined_at 1 44 5\n\t.loc 2 7 9, function_name $b, inlined_at 2 30 1"
    text = race(".loc 1 10 3", inlined) + "\t.section .debug_str\n\t{\n$a:\n.b8 97,0\n$b:\n.b8 98,0\n\t}\n"
    assert ("src/the%20kernel.cu", 44) in map(places, log_of(text))
    assert not [result for result in log_of(text) if places(result)[0] == "inner.h"]
    circle = text.replace("inlined_at 1 44 5", "inlined_at 2 30 1")
    assert ("inner.h", 30) in map(places, log_of(circle))


def test_the_simulator_names_the_same_lines() -> None:
    from ptxkit import sim

    inlined = ".loc 2 30 1, function_name $a, inlined_at 1 44 5\n\t.loc 2 7 9, function_name $b, inlined_at 2 30 1"
    text = race(".loc 1 10 3", inlined) + "\t.section .debug_str\n\t{\n$a:\n.b8 97,0\n$b:\n.b8 98,0\n\t}\n"
    lines = {str(finding.position) for finding in sim.run(text, grid=1, args=[0]).findings}
    assert "src/the kernel.cu:44:5" in lines
    assert not any("inner.h" in line for line in lines)


def test_language_errors_have_columns() -> None:
    results = log_of(race().replace("ld.shared.u32 %r7", "ld.shared.u33 %r7"))
    assert [result["ruleId"] for result in results] == ["opcode"]
    region = results[0]["locations"][0]["physicalLocation"]["region"]
    line = race().replace("ld.shared.u32 %r7", "ld.shared.u33 %r7").splitlines()[region["startLine"] - 1]
    assert line[region["startColumn"] - 1:].startswith(("u33", ".u33", "ld."))


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.ptx")), ids=lambda path: path.stem)
def test_logs_of_compilers_output_conform(path: Path) -> None:
    text = path.read_text()
    findings = check_text(text)
    assert len(checked(sarif(findings, path.name, is_file=True))) == len(findings)


def test_every_rule_has_help_from_its_page() -> None:
    for rule in (*RULES, *dropped.RULES, *language.RULES):
        assert help_of(rule), rule
        assert not help_of(rule).startswith("#")
    page = (Path(__file__).parents[2] / "docs" / "checks.md").read_text()
    assert all(help_of(rule) in page for rule in RULES)
    assert "```diff" in help_of("shared-race")
    findings = [Finding(rule, "Words", "mend it", Position(None, 3), "protocol", "error", 3) for rule in SENTENCES]
    checked(sarif(findings, "k.ptx", is_file=True))


def test_kinds_and_levels() -> None:
    findings = [Finding("shared-race", "a", severity=severity, ptx_line=1) for severity in ("info", "review", "error")]
    assert [result["level"] for result in checked(sarif(findings, "k.ptx", is_file=True))] == ["note", "warning", "error"]
    assert checked(sarif(findings[:1], "module:kernel", is_file=False))[0]["locations"] == []


def test_uris(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert uri_of("a b/c#d.cu") == "a%20b/c%23d.cu"
    assert uri_of(str(tmp_path / "x" / "k.py")) == "x/k.py"
    assert uri_of("/elsewhere/k é.py") == "file:///elsewhere/k%20%C3%A9.py"
    assert uri_of("-") == "stdin"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("race.ptx").write_text(race())
    assert main(["check", "race.ptx", "--sarif", "race.sarif"]) == 1
    assert "race.ptx: 1 error" in capsys.readouterr().out
    assert checked(json.loads(Path("race.sarif").read_text()))
    assert main(["check", "race.ptx", "--sarif", "-"]) == 1
    assert checked(json.loads(capsys.readouterr().out))
    Path("right.ptx").write_text(HEAD)
    assert main(["check", "right.ptx", "--sarif", "-"]) == 0
    assert checked(json.loads(capsys.readouterr().out)) == []
    assert main(["check", "race.ptx", "--json", "--sarif", "-"]) == 2
    assert main(["check", "race.ptx", "--sarif", str(tmp_path / "no" / "f")]) == 2


def test_the_schema_can_fail() -> None:
    good = sarif(check_text(race()), "k.ptx", is_file=True)
    for spoil in (lambda log: log.pop("version"), lambda log: log["runs"][0].pop("tool"), lambda log: log.update(extra=1),
                  lambda log: log["runs"][0]["results"][0].update(level="fatal"),
                  lambda log: log["runs"][0]["results"][0].update(ruleIndex=0, ruleId="another"),
                  lambda log: log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"].update(startLine=0),
                  lambda log: log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"].update(uri="a b")):
        bad = json.loads(json.dumps(good))
        spoil(bad)
        with pytest.raises(AssertionError):
            checked(bad)
