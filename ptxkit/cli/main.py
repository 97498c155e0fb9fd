"""The command `ptxkit`: emit, assemble, inspect, check, simulate, debug and export kernels; doctor looks at the machine.

Data goes to stdout, messages to stderr. Exit status: 0 fine, 1 a finding of severity error or a failure, 2 usage and wrong settings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from .guard import Parser, guarded


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["gemm"] or list(arguments[:2]) == ["export", "gemm"]:
        from ..gemm.__main__ import main as gemm

        return gemm(["export", *arguments[2:]] if arguments[0] == "export" else arguments[1:], prog="ptxkit gemm")
    return guarded(lambda: _run(arguments), arguments)


def _run(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    return int(options.run(options))


def parser() -> argparse.ArgumentParser:
    """Every command with its options. A command is a module with `arguments(parser)` and `run(options)`."""
    from .. import __version__
    from ..check import command as check
    from ..diff import command as diff
    from ..explain import command as explain
    from ..export import command as export
    from ..inspect import command as inspect
    from ..lift import command as lift
    from . import assemble, cache, debug, doctor, emit, simulate

    made = Parser(prog="ptxkit", description="Write, assemble and look at PTX kernels.",
                                   epilog="Exit status: 0 fine, 1 a finding of severity error or a failure, 2 usage.")
    made.add_argument("--version", action="version", version=f"ptxkit {__version__}")
    commands = made.add_subparsers(required=True, metavar="command")

    def command(module: Any, help: str, source: str = "") -> None:
        name = module.__name__.removesuffix(".command").rpartition(".")[2]
        under = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        under.add_argument("--json", action="store_true", help="write JSON")
        if source:
            files = " or a PTX file, - for stdin" if "FILE" in source else ""
            many = module is check
            under.add_argument("sources" if many else "source", nargs="+" if many else None, metavar=source,
                               help=f"module:attribute or file.py:attribute of a kernel{files}{'; repeatable' if many else ''}")
            under.add_argument("--set", action="append", default=[], metavar="K=V", dest="config",
                               help="a compile-time parameter, or one field of it as name.field=value; repeatable")
        module.arguments(under)
        under.set_defaults(run=module.run)

    command(emit, "write a kernel's PTX", "module:kernel")
    command(assemble, "assemble with ptxas and report resources and findings", "FILE|module:kernel")
    command(inspect, "show what a kernel, PTX or a cubin is made of: resources, descriptors, copies, barriers", "FILE|module:kernel")
    command(check, "check kernels without running them: is it legal PTX, and does its synchronisation hold", "FILE|module:kernel")
    command(simulate, "run a kernel or PTX on the CPU device under its checker, in one schedule or many")
    command(debug, "step through a kernel or PTX on the CPU device: breakpoints, registers, tiles, barriers, copies in flight")
    command(explain, "explain an opcode, a matrix descriptor, a tensor map or a swizzle")
    command(export, "write a kernel for programs without Python: cubin, C header, C file; `export gemm` writes products", "module:kernel")
    command(lift, "turn PTX into ptxkit Python that assembles to the same machine code")
    command(diff, "compare two kernels: instructions, resources, protocol")
    commands.add_parser("gemm", help="run, verify, measure and tune the bundled GEMM kernels")
    command(cache, "show where assembled kernels are kept, how many there are and their limit; --clear removes them")
    command(doctor, "say what this machine has, and what to do about what it lacks")
    return made
