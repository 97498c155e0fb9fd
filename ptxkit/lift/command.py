"""The command `ptxkit lift`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..cli import output
from ..cli.files import errors_in, read_ptx
from ..cli.paths import named
from .module import lifted


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("source", metavar="FILE.ptx", help="a PTX file, - for stdin")
    parser.add_argument("-e", "--entry", action="append", default=[], metavar="ENTRY", help="an entry; repeatable; all unless given")
    parser.add_argument("-o", "--output", type=named, default="-", metavar="kernel.py", help="a file, or - for stdout (the default)")


def run(options: argparse.Namespace) -> int:
    """Lifts, and writes the file when all entries are lifted correctly."""
    text = read_ptx(options.source)
    name = "stdin" if options.source == "-" else Path(options.source).name
    with errors_in(options.source):
        made = lifted(text, options.entry, source=name)
    text = made.text
    if options.json:
        text = json.dumps({"source": name, "entries": list(made.kernels), "python": text}, indent=2) + "\n"
    output.write(options.output, text.encode("utf-8", "surrogateescape"))
    return 0
