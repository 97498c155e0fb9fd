"""The command `ptxkit check`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

from ..cli.errors import UsageError
from ..cli.files import is_file, read_ptx
from ..cli.output import write
from ..cli.source import kernel_of, refuse_config
from ..grammar.errors import Finding, Position
from . import check, check_text
from .found import Findings
from .sarif import sarif

SEVERITIES = {"error": ("error", "errors"), "review": ("to review", "to review"), "info": ("for information", "for information")}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes besides its source."""
    parser.add_argument("--language", action="store_true", help="only the language, not the protocols")
    parser.add_argument("--strict", action="store_true", help="also modifiers in another order than PTX's; exit 1 on findings to review")
    parser.add_argument("--sarif", metavar="F", help="write the findings as SARIF 2.1.0 for a code host, - for stdout")
    parser.add_argument("--target", help="judge for this target, whatever the PTX says: sm_90a")


def run(options: argparse.Namespace) -> int:
    """Prints every finding; 1 when one is an error."""
    name: str = options.source
    if options.json and options.sarif == "-":
        raise UsageError("--json and --sarif - both write to stdout: name a file")
    if is_file(name):
        refuse_config(name, options.config, "PTX text")
        shown = "<stdin>" if name == "-" else name
        found = check_text(read_ptx(name), strict=options.strict, target=options.target, protocols=not options.language)
        lines = [_line(finding, shown) for finding in found]
    else:
        shown = name
        kernel, config = kernel_of(name, options.config)
        every = kernel.check(**config) if not options.strict else check(kernel.trace(**config), strict=True)
        found = Findings(finding for finding in every if finding.kind == "language" or not options.language)
        lines = [str(finding) for finding in found]
    counts = {severity: sum(finding.severity == severity for finding in found) for severity in SEVERITIES}
    status = 1 if counts["error"] or (options.strict and counts["review"]) else 0
    if options.sarif:
        made = json.dumps(sarif(found, name, is_file=is_file(name)), indent=1) + "\n"
        write(options.sarif, made.encode())
        if options.sarif == "-":
            return status
    if options.json:
        print(json.dumps({"source": shown, "counts": counts, "findings": [_row(finding, shown) for finding in found]}, indent=2))
    else:
        for line in lines:
            print(line)
        said = [f"{count} {SEVERITIES[severity][count > 1]}" for severity, count in counts.items() if count]
        print(f"{shown}: {', '.join(said) or 'no findings'}")
    return status


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

