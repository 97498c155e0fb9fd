"""The command `ptxkit`: emit, assemble, inspect and check kernels; doctor looks at the machine.

Data goes to stdout, messages to stderr. Exit status: 0 fine, 1 a finding of severity error or a failure, 2 usage.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import AssembleError, CheckError, Finding, NoToolError, Position, PtxkitError
from .files import FileError, is_file, no_file, read_ptx
from .types import TYPES

if TYPE_CHECKING:
    from .grammar.tree import Module
    from .inspect import Report
    from .runtime.toolchain import Assembly


class UsageError(Exception):
    """The command line is wrong: an option, a module or kernel that there is not, an output that cannot be written."""


@dataclass(frozen=True, slots=True)
class Program:
    """PTX named on the command line: its text with `.loc`, where each line comes from, and its tree when asked for."""

    name: str
    text: str
    lines: Mapping[int, Position]
    target: str
    module: Callable[[], Module]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["gemm"]:
        from .gemm.__main__ import main as gemm

        return gemm(arguments[1:], prog="ptxkit gemm")
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except UsageError as error:
        print(f"ptxkit: {error}", file=sys.stderr)
        return 2
    except (AssembleError, CheckError) as error:
        if options.json:
            _json({"error": str(error).splitlines()[0], "findings": [_finding(finding) for finding in error.findings]})
        print(f"ptxkit: {error}", file=sys.stderr)
        return 1
    except PtxkitError as error:
        if options.json:
            _json({"error": str(error)})
        print(f"ptxkit: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of stdout has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    from . import __version__
    from .check.command import arguments as check_arguments
    from .diff.command import arguments as diff_arguments
    from .explain.command import arguments as explain_arguments
    from .inspect.command import arguments as inspect_arguments
    from .lift.command import arguments as lift_arguments

    parser = argparse.ArgumentParser(prog="ptxkit", description="Write, assemble and look at PTX kernels.",
                                     epilog="Exit status: 0 fine, 1 a finding of severity error or a failure, 2 usage.")
    parser.add_argument("--version", action="version", version=f"ptxkit {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        made.add_argument("--json", action="store_true", help="write JSON")
        made.set_defaults(run=run)
        return made

    def takes_kernel(made: argparse.ArgumentParser, source: str) -> None:
        files = " or a PTX file, - for stdin" if "FILE" in source else ""
        made.add_argument("source", metavar=source, help=f"module:attribute or file.py:attribute of a kernel{files}")
        made.add_argument("--set", action="append", default=[], metavar="K=V", dest="config", help="a compile-time parameter; repeatable")

    emit = command("emit", _emit, "write a kernel's PTX")
    takes_kernel(emit, "module:kernel")
    emit.add_argument("-o", "--output", default="-", metavar="F", help="a file, or - for stdout (the default)")
    emit.add_argument("--locs", action="store_true", help="with .file and .loc directives")
    assemble = command("assemble", _assemble, "assemble with ptxas and report resources and findings")
    takes_kernel(assemble, "FILE|module:kernel")
    assemble.add_argument("-o", "--output", metavar="F", help="where the cubin goes, - for stdout")
    assemble.add_argument("--target", help="sm_90a unless the PTX says otherwise")
    look = command("inspect", _inspect, "show what a kernel, PTX or a cubin is made of: resources, descriptors, copies, barriers")
    takes_kernel(look, "FILE|module:kernel")
    inspect_arguments(look)
    judge = command("check", _check, "check a kernel without running it: is it legal PTX, and does its synchronisation hold")
    takes_kernel(judge, "FILE|module:kernel")
    check_arguments(judge)
    explain = command("explain", _explain, "explain an opcode, a matrix descriptor, a tensor map or a swizzle")
    explain_arguments(explain)
    lifting = command("lift", _lift, "turn PTX into ptxkit Python that assembles to the same machine code")
    lift_arguments(lifting)
    comparing = command("diff", _diff, "compare two kernels: instructions, resources, protocol")
    diff_arguments(comparing)
    commands.add_parser("gemm", help="run, verify, measure and tune the bundled GEMM kernels")
    command("doctor", _doctor, "say what this machine has, and what to do about what it lacks")
    return parser


# --------------------------------------------------------------------------------------------------- what is named


def _program(options: argparse.Namespace) -> Program:
    source: str = options.source
    if is_file(source):
        if options.config:
            raise UsageError(f"--set is for kernels; {source} is PTX text")
        return _from_text(read_ptx(source), "<stdin>" if source == "-" else source)
    kernel, config = _kernel(source, options.config)
    return Program(kernel.name, kernel.ptx(locs=True, **config), kernel.positions(**config), kernel.target, lambda: kernel.module(**config))


def _from_text(text: str, name: str) -> Program:
    from .grammar import parse

    lines = {number: Position(name, number) for number in range(1, text.count("\n") + 2)}
    found = next((words for words in map(str.split, text.splitlines()) if words[:1] == [".target"]), None)
    return Program(name, text, lines, found[1].rstrip(",") if found and len(found) > 1 else "sm_90a", lambda: parse(text))


def _kernel(source: str, pairs: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The kernel object at `module:attribute` (or `file.py:attribute`) and the configuration that --set gives."""
    place, colon, attribute = source.rpartition(":")
    if not colon:
        raise UsageError(f"{source} is a file, not module:kernel") if is_file(source) else no_file(source)
    if not (place.endswith(".py") or all(part.isidentifier() for part in place.split("."))):
        raise UsageError(f"{place!r} is neither the name of a module nor a .py file")
    module = _import(place)
    kernel: Any = module
    for part in attribute.split("."):
        kernel = getattr(kernel, part, None)
    if not (hasattr(kernel, "ptx") and hasattr(kernel, "positions")):
        names = sorted(name for name, value in vars(module).items() if hasattr(value, "ptx") and hasattr(value, "positions"))
        raise UsageError(f"{place} has no kernel {attribute!r}; it has {', '.join(names) or 'none'}")
    config = dict(map(_pair, pairs))
    try:
        return kernel, kernel.config(config)
    except PtxkitError as error:
        raise UsageError(str(error)) from None


def _import(place: str) -> Any:
    if place.endswith(".py"):
        if not is_file(place):
            raise FileError(f"there is no file {place}")
        path = Path(place).resolve()
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        sys.path.insert(0, str(path.parent))
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(f"there is no module {place}") from None
        raise


def _pair(text: str) -> tuple[str, Any]:
    """A name and its value: a Python literal, a scalar type by its name, or else a text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"--set {text}: write name=value")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, TYPES.get(value, value)


# --------------------------------------------------------------------------------------------------- the commands


def _emit(options: argparse.Namespace) -> int:
    kernel, config = _kernel(options.source, options.config)
    text = kernel.ptx(locs=options.locs, **config)
    if options.json:
        text = json.dumps({"kernel": kernel.name, "target": kernel.target, "config": config, "ptx": text}, default=str) + "\n"
    _write(options.output, text.encode())
    return 0


def _assemble(options: argparse.Namespace) -> int:
    program = _program(options)
    assembly = _assembled(program, options)
    if options.output:
        _write(options.output, assembly.cubin)
    if options.output != "-":
        _show(options, program, _reports(program, assembly), assembly)
    return _status(assembly.findings)


def _inspect(options: argparse.Namespace) -> int:
    from .inspect.command import run

    return run(options, _kernel)


def _assembled(program: Program, options: argparse.Namespace) -> Assembly:
    from .runtime.toolchain import assemble

    return assemble(program.text, options.target or program.target, lines=program.lines)


def _reports(program: Program, assembly: Assembly | None) -> tuple[Report, ...]:
    from .inspect import report
    from .runtime.toolchain import disassemble

    if assembly is None:
        return report(program.module())
    try:
        sass = disassemble(assembly.cubin)
    except NoToolError:
        sass = ""
    return report(program.module(), assembly.resources, sass=sass, log=assembly.log)


def _check(options: argparse.Namespace) -> int:
    from .check.command import run

    if is_file(options.source) and options.config:
        raise UsageError(f"--set is for kernels; {options.source} is PTX text")
    return run(options, _kernel)


def _explain(options: argparse.Namespace) -> int:
    from .explain.command import run

    return run(options)


def _lift(options: argparse.Namespace) -> int:
    from .lift.command import run

    return run(options)


def _diff(options: argparse.Namespace) -> int:
    from .diff.command import run

    return run(options, _kernel)


def _doctor(options: argparse.Namespace) -> int:
    from .doctor import examine, healthy

    checks = examine()
    fine = healthy(checks)
    if options.json:
        _json({"ok": fine, "checks": [asdict(check) for check in checks]})
    else:
        rows: list[tuple[str, str, str]] = []
        for check in checks:
            rows.append((check.name, check.state, check.detail))
            if check.fix:
                rows.append(("", "", f"-> {check.fix}"))
        _table(("", "", ""), rows)
    return 0 if fine else 1


# --------------------------------------------------------------------------------------------------- output


def _show(options: argparse.Namespace, program: Program, reports: Sequence[Report], assembly: Assembly | None) -> None:
    findings = assembly.findings if assembly else ()
    if options.json:
        _json({"source": program.name, "target": options.target or program.target, "ptxas": assembly.tool.version if assembly else None,
               "entries": [asdict(entry) for entry in reports], "findings": [_finding(finding) for finding in findings]})
        return
    for entry in reports:
        _table((entry.name, ""), entry.rows())
    for finding in findings:
        print(finding, file=sys.stderr)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns on stdout: with rich on a terminal, as plain text otherwise."""
    from .settings import settings

    cells = [tuple(map(str, row)) for row in rows]
    if sys.stdout.isatty() and settings().color and importlib.util.find_spec("rich"):
        from rich.console import Console
        from rich.table import Table

        table = Table(*head, box=None, pad_edge=False)
        for row in cells:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(len(row[column]) for row in (tuple(head), *cells)) for column in range(len(head))]
    for row in ([tuple(head)] if any(head) else []) + cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def _finding(finding: Finding) -> dict[str, Any]:
    where = finding.position
    return {"rule": finding.rule, "severity": finding.severity, "kind": finding.kind, "message": finding.message, "fix": finding.fix,
            "file": where.file if where else None, "line": where.line if where else None, "ptx_line": finding.ptx_line}


def _write(output: str, data: bytes) -> None:
    if output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    try:
        Path(output).write_bytes(data)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None


def _status(findings: Sequence[Finding]) -> int:
    return 1 if any(finding.severity == "error" for finding in findings) else 0
