"""The command `ptxkit emit`."""

from __future__ import annotations

import argparse
import json

from . import output
from .paths import named
from .source import kernel_of


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes besides its source."""
    parser.add_argument("-o", "--output", type=named, default="-", metavar="F", help="a file, or - for stdout (the default)")
    parser.add_argument("--locs", action="store_true", help="with .file and .loc directives")


def run(options: argparse.Namespace) -> int:
    """Writes the kernel's PTX."""
    kernel, config = kernel_of(options.source, options.config)
    text = kernel.ptx(locs=options.locs, **config)
    if options.json:
        text = json.dumps({"kernel": kernel.name, "target": kernel.target, "config": config, "ptx": text}, default=str) + "\n"
    output.write(options.output, text.encode())
    return 0
