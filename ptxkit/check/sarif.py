"""Findings in SARIF 2.1.0, the format in which code hosts and editors take the results of static analysis."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from .. import __version__
from ..grammar.errors import Finding, Position, Severity
from . import dropped, language
from .families import RULES

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS: Mapping[Severity, str] = {"error": "error", "review": "warning", "info": "note"}
SENTENCES = {**RULES, **dropped.RULES, **language.RULES, "syntax": "text that is not PTX"}
"""Every rule with its sentence."""
_SECTION = re.compile(r"^### `([\w-]+)`$\n(.*?)(?=^##|\Z)", re.M | re.S)


def sarif(findings: Iterable[Finding], source: str, *, is_file: bool) -> dict[str, Any]:
    """The log of one run over `source`, a PTX file or module:kernel. A result is at the author's line where the finding has it, else at
    the PTX line of the file; of both, the PTX line is a related location.
    """
    results = list(findings)
    rules = list(dict.fromkeys(finding.rule for finding in results))
    run = {
        "tool": {"driver": {"name": "ptxkit", "version": __version__, "rules": [_rule(rule, results) for rule in rules]}},
        "automationDetails": {"id": f"ptxkit check/{source.strip('/')}/"},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, rules, source if is_file else None) for finding in results],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: str, findings: Iterable[Finding]) -> dict[str, Any]:
    said = {each.severity for each in findings if each.rule == rule}
    worst = next(level for severity, level in LEVELS.items() if severity in said)
    sentence = _capital(SENTENCES.get(rule, rule.replace("-", " ")))
    text = help_of(rule)
    return {"id": rule, "name": "".join(map(str.capitalize, rule.split("-"))), "shortDescription": {"text": sentence},
            "help": {"text": _plain(text) or sentence, **({"markdown": text} if text else {})},
            "defaultConfiguration": {"level": worst}}


def _result(finding: Finding, rules: list[str], file: str | None) -> dict[str, Any]:
    fix = f" Fix: {finding.fix}." if finding.fix else ""
    made: dict[str, Any] = {"ruleId": finding.rule, "ruleIndex": rules.index(finding.rule), "level": LEVELS[finding.severity],
                            "message": {"text": f"{_capital(finding.message).rstrip('.')}.{fix}"}, "properties": {"kind": finding.kind}}
    author = finding.position if finding.position is not None and finding.position.file is not None else None
    text = None if file is None or finding.ptx_line is None else Position(file, finding.ptx_line, finding.ptx_column)
    first = author or text
    made["locations"] = [] if first is None else [{"physicalLocation": _place(first)}]
    if author is not None and text is not None:
        made["relatedLocations"] = [{"id": 1, "physicalLocation": _place(text), "message": {"text": "the PTX"}}]
    return made


def _place(position: Position) -> dict[str, Any]:
    region = {"startLine": position.line, **({"startColumn": position.column} if position.column else {})}
    return {"artifactLocation": {"uri": uri_of(position.file or "")}, "region": region}


def uri_of(file: str) -> str:
    """A reference relative to the working directory where the file is below it, as code hosts want it, else a file: URI. Standard input is
    `stdin`.
    """
    path = PurePath(file)
    if file == "-":
        return "stdin"
    if path.is_absolute():
        if not path.is_relative_to(Path.cwd()):
            return path.as_uri()
        path = path.relative_to(Path.cwd())
    return quote(path.as_posix())


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# ----------------------------------------------------------------------------------------------------- the page of the rules


def help_of(rule: str) -> str:
    """The section of docs/checks.md about a rule, as Markdown; "" where the page is not there."""
    return _sections().get(rule, "")


@cache
def _sections() -> dict[str, str]:
    """The page lies beside this module in an installed package, and in docs of a checkout."""
    here = Path(__file__)
    for page in (here.with_name("checks.md"), here.parents[2] / "docs" / "checks.md"):
        if page.is_file():
            return {rule: text.strip() for rule, text in _SECTION.findall(page.read_text(encoding="utf-8"))}
    return {}


def _plain(markdown: str) -> str:
    """The words of a section, without its example."""
    return " ".join(re.sub(r"```.*?```", "", markdown, flags=re.S).replace("`", "").split())
