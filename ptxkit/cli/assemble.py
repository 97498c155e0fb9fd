"""The command `ptxkit assemble`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..errors import NoToolError, Position
from . import output
from .files import is_file, read_ptx
from .messages import say
from .paths import named
from .source import kernel_of, refuse_config

if TYPE_CHECKING:
    from ..grammar.tree import Module
    from ..inspect import Report
    from ..runtime.toolchain import Assembly


@dataclass(frozen=True, slots=True)
class Program:
    """PTX named on the command line: its text with `.loc`, the source position of each line, and a function that gives its tree."""

    name: str
    text: str
    lines: Mapping[int, Position]
    target: str
    module: Callable[[], Module]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes besides its source."""
    parser.add_argument("-o", "--output", type=named, metavar="F", help="where the cubin goes, - for stdout")
    parser.add_argument("--target", help="sm_90a unless the PTX says otherwise")


def run(options: argparse.Namespace) -> int:
    """Assembles, and shows resources and findings; 1 when a finding is an error."""
    from ..runtime.toolchain import assemble

    program = _program(options)
    assembly = assemble(program.text, options.target or program.target, lines=program.lines)
    if options.output:
        output.write(options.output, assembly.cubin)
    if options.output != "-":
        _show(options, program, _reports(program, assembly), assembly)
    return output.status(assembly.findings)


def _program(options: argparse.Namespace) -> Program:
    source: str = options.source
    if is_file(source):
        refuse_config(source, options.config, "PTX text")
        return _from_text(read_ptx(source), "<stdin>" if source == "-" else source)
    kernel, config = kernel_of(source, options.config)
    return Program(kernel.name, kernel.ptx(locs=True, **config), kernel.positions(**config), kernel.target, lambda: kernel.module(**config))


def _from_text(text: str, name: str) -> Program:
    from ..grammar import parse

    lines = {number: Position(name, number) for number in range(1, text.count("\n") + 2)}
    found = next((words for words in map(str.split, text.splitlines()) if words[:1] == [".target"]), None)
    return Program(name, text, lines, found[1].rstrip(",") if found and len(found) > 1 else "sm_90a", lambda: parse(text))


def _reports(program: Program, assembly: Assembly) -> tuple[Report, ...]:
    from ..inspect import report
    from ..runtime.toolchain import disassemble

    try:
        sass = disassemble(assembly.cubin)
    except NoToolError:
        sass = ""
    return report(program.module(), assembly.resources, sass=sass, log=assembly.log)


def _show(options: argparse.Namespace, program: Program, reports: Sequence[Report], assembly: Assembly) -> None:
    if options.json:
        output.show_json({"source": program.name, "target": options.target or program.target, "ptxas": assembly.tool.version,
                          "entries": [asdict(entry) for entry in reports],
                          "findings": [output.finding_row(finding) for finding in assembly.findings]})
        return
    for entry in reports:
        output.table((entry.name, ""), entry.rows())
    for finding in assembly.findings:
        say(str(finding))
