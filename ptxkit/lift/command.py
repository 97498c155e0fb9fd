"""The command `ptxkit lift`."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from ..cli.files import read_ptx
from ..cli.output import cannot_write
from .module import lifted


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("source", metavar="FILE.ptx", help="a PTX file, - for stdin")
    parser.add_argument("-e", "--entry", action="append", default=[], metavar="ENTRY", help="an entry; repeatable; all unless given")
    parser.add_argument("-o", "--output", default="-", metavar="kernel.py", help="a file, or - for stdout (the default)")


def run(options: argparse.Namespace) -> int:
    """Lifts, and writes the file when all entries are lifted correctly."""
    text = read_ptx(options.source)
    name = "stdin" if options.source == "-" else Path(options.source).name
    made = lifted(text, options.entry, source=name)
    text = made.text
    if options.json:
        text = json.dumps({"source": name, "entries": list(made.kernels), "python": text}, indent=2) + "\n"
    if options.output == "-":
        print(text, end="")
        return 0
    try:
        _replace(Path(options.output), text)
    except OSError as error:
        raise cannot_write(options.output, error) from None
    return 0


def _replace(path: Path, text: str) -> None:
    """Writes the whole file, or leaves the old one."""
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
