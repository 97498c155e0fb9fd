"""What commands write: tables, JSON, findings, files. Data goes to stdout."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import write_whole
from ..grammar.errors import Finding
from ..settings import settings
from .errors import UsageError


def write(output: str, data: bytes) -> None:
    """To the file, which is written whole or left as it was, or to stdout for `-`."""
    if output == "-":
        _to_stdout(data)
        return
    try:
        write_whole(Path(output), data)
    except OSError as error:
        raise cannot_write(output, error) from None


def _to_stdout(data: bytes) -> None:
    """A stdout that takes text alone, as that of a notebook, gets text, and refuses machine code."""
    sys.stdout.flush()
    stream = getattr(sys.stdout, "buffer", None)
    if stream is not None:
        stream.write(data)
        return
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UsageError("this stdout takes text, not machine code: name a file with -o") from None
    sys.stdout.write(text)


def cannot_write(output: str, error: OSError) -> UsageError:
    return UsageError(f"cannot write {output}: {error.strerror}")


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns on stdout: with rich on a terminal, as plain text otherwise."""
    cells = [tuple(map(str, row)) for row in rows]
    if sys.stdout.isatty() and settings().color and importlib.util.find_spec("rich"):
        from rich.console import Console
        from rich.table import Table

        made = Table(*head, box=None, pad_edge=False)
        for row in cells:
            made.add_row(*row)
        Console().print(made)
        return
    widths = [max(len(row[column]) for row in (tuple(head), *cells)) for column in range(len(head))]
    for row in ([tuple(head)] if any(head) else []) + cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def finding_row(finding: Finding) -> dict[str, Any]:
    """A finding of the assembler as JSON."""
    where = finding.position
    return {"rule": finding.rule, "severity": finding.severity, "kind": finding.kind, "message": finding.message, "fix": finding.fix,
            "file": where.file if where else None, "line": where.line if where else None, "ptx_line": finding.ptx_line}


def status(findings: Sequence[Finding]) -> int:
    """The exit status: 1 when a finding is an error."""
    return 1 if any(finding.severity == "error" for finding in findings) else 0
