"""Every static rule against planted mistakes: named, with its severity and line; and silent about the corrected twin and what is legal."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from pathlib import Path

import pytest

from ptxkit.check import check, dropped, language
from ptxkit.check.families import RULES

from .cases import CASES
from .legal import LEGAL
from .programs import FORMS, Case, text

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

PAGE = Path(__file__).parents[2] / "docs" / "checks.md"


def drawn(case: Case) -> str:
    """One of the other forms, always the same for a case."""
    return FORMS[1 + zlib.crc32(str(case).encode()) % (len(FORMS) - 1)]


def judge(case: Case, form: str) -> None:
    wrong, line = text(case, False, form)
    found = check(wrong)
    said = "\n".join(map(str, found))
    assert line is not None
    assert any((f.rule, f.severity, f.ptx_line) == (case.rule, case.severity, line) for f in found), said or f"nothing on line {line}"
    assert {f.rule for f in found} <= {case.rule, *case.also}, said
    assert all(f.message and f.fix and f.kind in ("protocol", "advice") for f in found)
    right, _ = text(case, True, form)
    assert check(right) == ()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_planted_mistake_and_its_twin(case: Case) -> None:
    judge(case, "plain")
    judge(case, drawn(case))


@pytest.mark.parametrize("case", LEGAL, ids=lambda case: case.name)
def test_what_is_legal_earns_nothing(case: Case) -> None:
    for form in ("plain", drawn(case)):
        assert check(text(case, True, form)[0]) == ()


@pytest.mark.sweep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", FORMS)
def test_every_case_in_every_form(form: str, request: pytest.FixtureRequest) -> None:
    if "sweep" not in (request.config.option.markexpr or ""):
        pytest.skip("with -m sweep")
    for case in CASES:
        judge(case, form)
    for case in LEGAL:
        assert check(text(case, True, form)[0]) == ()


def test_every_rule_is_planted_in_three_ways_at_least() -> None:
    planted = Counter(case.rule for case in CASES)
    assert set(planted) == set(RULES)
    assert [rule for rule, count in planted.items() if count < 3] == []
    assert len({str(case) for case in CASES}) == len(CASES)


def test_every_rule_has_its_section_in_the_documentation() -> None:
    sections = re.findall(r"^### `([\w-]+)`$", PAGE.read_text(encoding="utf-8"), re.M)
    assert sorted(sections) == sorted({*RULES, *dropped.RULES, *language.RULES})


SECTION = re.compile(r"^### `([\w-]+)`\n(.*?)(?=^##|\Z)", re.M | re.S)
SNIPPET = re.compile(r"(?:^<!-- (.*) -->\n)?^```diff\n(.*?)^```$", re.M | re.S)
TOLD = {"stage-release", "multicast-release"}
"""Rules whose sections show a sketch: the whole mistake is as long as a kernel."""


def test_the_pages_snippets_are_mistakes_and_their_corrections() -> None:
    shown = set()
    for rule, section in SECTION.findall(PAGE.read_text(encoding="utf-8")):
        for options, body in SNIPPET.findall(section):
            how = {name: value.strip('"') for name, value in re.findall(r'(\w+)=("[^"]*"|\d+)', options)}
            lines = "".join(f"{line[0].strip()}{line[2:]}\n" for line in body.splitlines())
            case = Case(rule, "on the page", lines, "error", int(how.get("block", 64)), int(how.get("cluster", 1)),
                        how.get("directives", ""), how.get("corrected"))
            assert rule in {finding.rule for finding in check(text(case, False)[0])}, rule
            assert check(text(case, True)[0]) == (), rule
            shown.add(rule)
    assert shown == set(RULES) - TOLD


def test_one_entry_of_two_is_mistaken() -> None:
    """Each entry is looked at by itself, with its own threads."""
    case = next(case for case in CASES if str(case) == "init-before-use: arrive")
    wrong, line = text(case, False)
    right, _ = text(case, True)
    _, _, second = right.partition(".visible .entry")
    both = wrong + ".visible .entry" + second.replace(" k(", " other(")
    assert [(f.rule, f.ptx_line) for f in check(both)] == [("init-before-use", line)]


def test_instructions_of_a_newer_target_may_do_what_is_missing() -> None:
    """`tcgen05.commit` arrives on the mbarrier and `tcgen05.ld` writes registers: the table, of sm_90a, has neither."""
    case = next(case for case in CASES if str(case) == "wait-without-arrival: nobody")
    wrong, _ = text(case, False)
    arrives = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2];\n"
    reads = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r60}, [%r61];\nsetp.eq.u32 %p20, %r60, 0;\n@%p20 bra w;\n"
    newer = wrong.replace("sm_90a", "sm_100a").replace("w:\n", f"{arrives}w:\n{reads}", 1)
    assert {(f.kind, f.severity) for f in check(newer)} == {("language", "info")}
