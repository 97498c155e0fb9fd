"""The command `ptxkit export`."""

from __future__ import annotations

import argparse

from ..cli import output
from ..cli.errors import UsageError
from ..cli.files import is_file
from ..cli.paths import named
from ..cli.source import kernel_of
from .folder import FolderError
from .one import export


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes besides its source."""
    parser.add_argument("-o", "--output", type=named, required=True, metavar="DIR",
                        help="the folder of the files; it is made if it is not there")
    parser.add_argument("--name", help="how the files and functions are called (default: the kernel's name)")
    parser.add_argument("--force", action="store_true", help="overwrite files")


def run(options: argparse.Namespace) -> int:
    """Writes a kernel's cubin, header and C file."""
    if is_file(options.source):
        raise UsageError(f"{options.source} is a file, and an export takes module:kernel: PTX text does not say the boxes of tensor maps "
                         "nor the dynamic shared memory")
    kernel, config = kernel_of(options.source, options.config)
    try:
        made = export(kernel.trace(**config), options.output, name=options.name, force=options.force)
    except FolderError as error:
        raise UsageError(str(error)) from None
    if options.json:
        entry = made.entry
        output.show_json({"name": made.name, "files": list(map(str, made.files)), "kernel": entry.name, "target": entry.target,
                          "ptxas": entry.tool, "block": entry.block, "cluster": entry.cluster, "dynamic_smem": entry.shared,
                          "prototype": made.prototype})
    else:
        print(made)
    return 0
