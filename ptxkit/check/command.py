"""The command `ptxkit check`."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from typing import Any

from ..cli.errors import UsageError
from ..cli.files import is_file, read_ptx
from ..cli.messages import plain, say, shown
from ..cli.output import write
from ..cli.paths import named
from ..cli.source import kernel_of, refuse_config
from ..errors import PtxkitError
from ..grammar.errors import Finding, Position
from . import check, check_text
from .found import Findings
from .sarif import sarif

SEVERITIES = {"error": ("error", "errors"), "review": ("to review", "to review"), "info": ("for information", "for information")}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes besides its source."""
    parser.add_argument("--language", action="store_true", help="only the language, not the protocols")
    parser.add_argument("--strict", action="store_true", help="also modifiers in another order than PTX's; exit 1 on findings to review")
    parser.add_argument("--sarif", type=named, metavar="F", help="write the findings as SARIF 2.1.0 for a code host, - for stdout")
    parser.add_argument("--target", help="judge for this target, whatever the PTX says: sm_90a")


@dataclass(frozen=True, slots=True)
class _Checked:
    """A source with its findings, as lines of text and as JSON."""

    name: str
    shown: str
    found: Findings
    lines: list[str]

    @property
    def counts(self) -> dict[str, int]:
        return {severity: sum(finding.severity == severity for finding in self.found) for severity in SEVERITIES}

    def row(self) -> dict[str, Any]:
        return {"source": self.shown, "counts": self.counts, "findings": [_row(finding, self.shown) for finding in self.found]}

    def text(self) -> str:
        said = [f"{count} {SEVERITIES[severity][count > 1]}" for severity, count in self.counts.items() if count]
        return "\n".join([*self.lines, f"{shown(self.shown)}: {', '.join(said) or 'no findings'}"])


def run(options: argparse.Namespace) -> int:
    """Prints every finding of every source; 1 when one is an error, or when one of several sources cannot be read."""
    if options.json and options.sarif == "-":
        raise UsageError("--json and --sarif - both write to stdout: name a file")
    names: list[str] = options.sources
    checked, failed = [], {}
    for name in names:
        try:
            checked.append(_checked(options, name))
        except PtxkitError as error:
            if len(names) == 1:
                raise
            failed[name] = plain(str(error))
            say(f"ptxkit: {error}")
        if checked and checked[-1].name == name and not options.json and options.sarif != "-":
            print(checked[-1].text())
    if options.sarif:
        logs = [sarif(each.found, each.name, is_file=is_file(each.name)) for each in checked]
        joined = {**logs[0], "runs": [made for log in logs for made in log["runs"]]} if logs else {}
        write(options.sarif, (json.dumps(joined, indent=1) + "\n").encode())
    if options.json:
        rows = [each.row() for each in checked]
        many = {"sources": rows, "errors": failed,
                "counts": {severity: sum(row["counts"][severity] for row in rows) for severity in SEVERITIES}}
        print(json.dumps(rows[0] if len(names) == 1 else many, indent=2))
    bad = any(each.counts["error"] or (options.strict and each.counts["review"]) for each in checked)
    return int(bad or bool(failed))


def _checked(options: argparse.Namespace, name: str) -> _Checked:
    if is_file(name):
        refuse_config(name, options.config, "PTX text")
        place = "<stdin>" if name == "-" else name
        found = check_text(read_ptx(name), strict=options.strict, target=options.target, protocols=not options.language)
        return _Checked(name, place, found, [_line(finding, shown(place)) for finding in found])
    kernel, config = kernel_of(name, options.config)
    every = kernel.check(**config) if not options.strict else check(kernel.trace(**config), strict=True)
    found = Findings(finding for finding in every if finding.kind == "language" or not options.language)
    return _Checked(name, name, found, [str(finding) for finding in found])


def _line(finding: Finding, name: str) -> str:
    """A finding at its place in the PTX file, followed by the source line that the PTX came from."""
    author = finding.position
    if finding.ptx_line is None:
        return str(finding)
    text = str(replace(finding, position=Position(name, finding.ptx_line, finding.ptx_column)))
    return f"{text} [{author}]" if author is not None and author.file is not None else text


def _row(finding: Finding, name: str) -> dict[str, Any]:
    author = finding.position
    written = author if author is not None and author.file is not None else None
    row: dict[str, Any] = {
        "rule": finding.rule, "severity": finding.severity, "kind": finding.kind, "message": finding.message, "fix": finding.fix,
        "words": finding.words, "expected": list(finding.expected),
        "file": name if finding.ptx_line is not None and written is None else written.file if written else None,
        "line": finding.ptx_line if written is None else written.line,
        "column": finding.ptx_column or None, "ptx_line": finding.ptx_line,
    }
    return row

