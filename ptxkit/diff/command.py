"""The command `ptxkit diff`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace

from ..cli.files import decoded, errors_in, is_file, read_source
from ..cli.messages import plain, say
from ..cli.numbers import count
from ..cli.source import kernel_of
from ..errors import AssembleError, NoToolError, PtxkitError
from ..runtime.diagnostics import Resources
from ..sass.cubin import is_elf
from .compare import Difference, diff
from .program import Program, of_module, of_sass


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    for side in ("A", "B"):
        parser.add_argument(side.lower(), metavar=side,
                            help="a PTX file, - for stdin, a cubin, or module:attribute or file.py:attribute of a kernel")
    parser.add_argument("-e", "--entry", metavar="ENTRY", help="compare this entry alone")
    parser.add_argument("--context", type=count, default=2, metavar="N", help="how many equal instructions to show around a difference (2)")
    parser.add_argument("--no-resources", action="store_true", help="do not assemble: no registers, spills and shared memory")


def run(options: argparse.Namespace) -> int:
    """Compares; 0 when only names differ, else 1."""
    texts = [_read(source) for source in (options.a, options.b)]
    machine = any(isinstance(text, bytes) for text in texts)
    made = [_program(name, text, machine, not options.no_resources) for name, text in zip((options.a, options.b), texts, strict=True)]
    for note in dict.fromkeys(program.note for program in made if program.note):
        say(f"ptxkit: {note}")
    if options.entry is not None:
        made = [_only(program, options.entry) for program in made]
    found = diff(made[0], made[1], context=options.context)
    if options.json:
        print(json.dumps({"same": found.same, **asdict(found)}, indent=2))
    else:
        print(plain(report(found)))
    return 0 if found.same else 1


def _read(source: str) -> str | bytes:
    """The PTX text or the cubin of one side."""
    if is_file(source):
        data = read_source(source)
        return data if is_elf(data) else decoded(data, source)
    kernel, config = kernel_of(source)
    return kernel.ptx(**config)


def _only(program: Program, entry: str) -> Program:
    kept = tuple(code for code in program.codes if code.name == entry)
    if not kept:
        raise PtxkitError(f"{program.name} has no entry `{entry}`: it has {', '.join(code.name for code in program.codes)}")
    return replace(program, codes=kept)


def _program(name: str, given: str | bytes, machine: bool, assemble: bool) -> Program:
    from ..grammar import parse
    from ..runtime.toolchain import assemble as assembled
    from ..runtime.toolchain import disassemble

    if isinstance(given, bytes):
        return of_sass(disassemble(given), name, _used(given))
    with errors_in(name):
        module = parse(given)
    if machine:
        made = assembled(given, module.target[0])
        return of_sass(disassemble(made.cubin), name, _used(made.cubin))
    if not assemble:
        return of_module(module, name)
    try:
        return of_module(module, name, assembled(given, module.target[0]).resources)
    except (NoToolError, AssembleError) as error:
        return of_module(module, name, note=f"no resources: {str(error).splitlines()[0]}")
    except PtxkitError as error:
        return of_module(module, name, note=f"no resources: {error}")


def _used(cubin: bytes) -> dict[str, Resources]:
    from ..sass.cubin import read

    return {name: Resources(name, m.registers, m.stack, 0, 0, m.shared, m.barriers) for name, m in read(cubin).entries.items()}


def report(found: Difference) -> str:
    """The comparison as text."""
    if found.same:
        return f"{found.before} and {found.after} are the same but for names"
    lines = [f"{found.before} -> {found.after} ({found.kind})"]
    lines += [f"only in {found.before}: {name}" for name in found.only_before]
    lines += [f"only in {found.after}: {name}" for name in found.only_after]
    for function in found.functions:
        if function.same:
            continue
        renamed = "" if function.name == function.other else f" -> {function.other}"
        removed = f"{function.removed} instruction{'s' * (function.removed != 1)} removed"
        lines += ["", f"{function.kind} {function.name}{renamed}: {removed}, {function.added} added"]
        for family in dict.fromkeys(change.family for change in function.changes):
            lines.append(f"  {family}")
            lines += [f"    {c.what:<60} {c.before} -> {c.after}" for c in function.changes if c.family == family]
        for hunk in function.hunks:
            lines.append(f"  @@ {hunk.before} -> {hunk.after}")
            lines += [f"  {sign} {text}" for sign, text in hunk.lines]
    return "\n".join(lines)
