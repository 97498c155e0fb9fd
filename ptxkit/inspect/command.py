"""The command `ptxkit inspect`: PTX text, a cubin or a kernel, as tables, JSON or a page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cli import output
from ..cli.files import decoded, errors_in, is_file, read_source
from ..cli.messages import say
from ..cli.paths import named
from ..cli.source import kernel_of, refuse_config
from ..dsl.source import named as file_named
from ..errors import AssembleError, NoToolError, Position, PtxkitError

if TYPE_CHECKING:
    from ..dsl.traced import Traced
    from ..grammar import tree
    from ..runtime.toolchain import Assembly
    from ..sass.cubin import Cubin
    from .facts import EntryFacts

VIEWS = ("terminal", "html")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes besides its source."""
    parser.add_argument("-e", "--entry", metavar="NAME", help="only this entry")
    parser.add_argument("--view", choices=VIEWS, default="terminal",
                        help="tables for a terminal (the default), or a page that links Python, PTX and SASS line by line")
    parser.add_argument("-o", "--output", type=named, default="-", metavar="F", help="a file, or - for stdout (the default)")
    parser.add_argument("--target", help="sm_90a unless the PTX says otherwise")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is inspected: PTX (its tree and text) with the author's lines, or a cubin, or both. `near` is the folder of its file.

    `own` is the file of a kernel.
    """

    name: str
    module: tree.Module | None
    text: str | None
    lines: Mapping[int, Position] | None
    target: str
    traced: Traced | None = None
    cubin: Cubin | None = None
    code: bytes | None = None
    near: Path | None = None
    own: str = ""


def run(options: argparse.Namespace) -> int:
    """Shows the facts of every entry; 1 when ptxas refuses the PTX, but not for a later .version, or finds an error in it."""
    subject = _subject(options)
    status, assembly, why = 0, None, ""
    if subject.code is None and subject.text is not None:
        try:
            assembly = _assembled(subject, options.target or subject.target)
        except NoToolError as error:
            say(f"ptxkit: no resources: {error}")
        except AssembleError as error:
            later = any("Unsupported .version" in finding.message for finding in error.findings)
            status, why = int(not later), str(error)  # a later PTX is no fault of the text
    entries = _facts(subject, assembly)
    if options.entry is not None:
        names = [entry.name for entry in entries]
        if options.entry not in names:
            raise PtxkitError(f"{subject.name} has no entry {options.entry!r}; it has {', '.join(names) or 'none'}")
        entries = tuple(entry for entry in entries if entry.name == options.entry)
    output.write(options.output, _rendered(options, subject, entries, assembly, why).encode("utf-8", "replace"))
    if why:
        say(f"ptxkit: {why}")
    if not entries:
        say(f"ptxkit: {subject.name} has no entries")
    errors = assembly is not None and any(finding.severity == "error" for finding in assembly.findings)
    return 1 if errors else status


# ------------------------------------------------------------------------------------------------ what is named


def _subject(options: argparse.Namespace) -> Subject:
    source: str = options.source
    if is_file(source):
        refuse_config(source, options.config, "a file")
        return _of_file(source, Path(source))
    found, config = kernel_of(source, options.config)
    traced = found.trace(**config)
    return Subject(traced.name, traced.numbered()[0], traced.ptx(locs=True), traced.positions(), found.target, traced,
                   own=file_named(found.function.__code__.co_filename))


def _of_file(source: str, path: Path) -> Subject:
    from ..grammar import parse
    from ..grammar.errors import ParseError
    from ..sass.cubin import is_elf, read

    data, name = read_source(source), "<stdin>" if source == "-" else source
    if is_elf(data):
        cubin = read(data, name)
        text, module = cubin.ptx, None
        try:
            module = parse(text) if text is not None else None
        except ParseError as error:
            say(f"ptxkit: the PTX in {name} is left out: {error}")
        return Subject(name, module, text if module else None, None, cubin.target, cubin=cubin, code=data, near=path.parent)
    text = decoded(data, source).encode("utf-8", "replace").decode("utf-8")  # characters of another encoding are replaced
    with errors_in(source):
        module = parse(text)
    return Subject(name, module, text, None, module.target[0] if module.target else "sm_90a",
                   near=None if source == "-" else path.parent)


def _assembled(subject: Subject, target: str) -> Assembly:
    from ..runtime.toolchain import assemble

    assert subject.text is not None
    lines = subject.lines or {number: Position(subject.name, number) for number in range(1, subject.text.count("\n") + 2)}
    try:
        return assemble(subject.text, target, lines=lines)
    except AssembleError as error:
        missing = [finding.message for finding in error.findings if "Unresolved extern" in finding.message]
        if not missing or len(missing) < len(error.findings):
            raise
        made = assemble(subject.text, target, lines=lines, relocatable=True)
        say(f"ptxkit: {subject.name} is one part of a program ({missing[0]}): its resources are those of a relocatable object, "
            "as `ptxas -c` makes it")
        return made


def _facts(subject: Subject, assembly: Assembly | None) -> tuple[EntryFacts, ...]:
    from ..check.places import Places
    from ..sass.cubin import read
    from . import entry

    code = subject.code if assembly is None else assembly.cubin
    cubin = subject.cubin if assembly is None else read(assembly.cubin)
    sass = _disassembled(code) if subject.text is None or "setmaxnreg" in subject.text else ""
    if subject.module is None:
        return entry.of_cubin(cubin, sass) if cubin is not None else ()
    places = Places(subject.module, subject.lines)
    if assembly is None:
        return entry.facts(subject.module, places, subject.traced, None, cubin, sass)
    return entry.facts(subject.module, places, subject.traced, assembly.resources, cubin, sass, assembly.findings, assembly.log)


def _disassembled(code: bytes | None) -> str:
    """nvdisasm's text, "" without the tool."""
    from ..runtime.toolchain import disassemble

    if code is None:
        return ""
    try:
        return disassemble(code)
    except (NoToolError, AssembleError):
        return ""


# ------------------------------------------------------------------------------------------------ what is written


def _rendered(options: argparse.Namespace, subject: Subject, entries: Sequence[EntryFacts], assembly: Assembly | None, why: str) -> str:
    from .sections import text

    if options.json:
        return json.dumps(_data(options, subject, entries, assembly, why), indent=2, default=str) + "\n"
    if options.view == "html":
        return _page(options, subject, entries, assembly)
    return "\n".join(text(entry) for entry in entries)


def _data(options: argparse.Namespace, subject: Subject, entries: Sequence[EntryFacts], assembly: Assembly | None,
          why: str) -> dict[str, Any]:
    tool = assembly.tool.version if assembly else subject.cubin.tool.lstrip("V") if subject.cubin else None
    findings = [{"rule": finding.rule, "severity": finding.severity, "kind": finding.kind, "message": finding.message, "fix": finding.fix,
                 "file": finding.position.file if finding.position else None, "line": finding.position.line if finding.position else None}
                for finding in (assembly.findings if assembly else ())]
    data = {"source": subject.name, "target": options.target or subject.target, "ptxas": tool,
            "entries": [asdict(entry) for entry in entries], "findings": findings}
    return {**data, "error": why.splitlines()[0]} if why else data


def _page(options: argparse.Namespace, subject: Subject, entries: Sequence[EntryFacts], assembly: Assembly | None) -> str:
    from ..check.places import Places
    from ..sass import control, listing
    from .linked import linked
    from .page import Listing, page, sources

    code = subject.code if assembly is None else assembly.cubin
    machine: tuple[listing.MachineLine, ...] = ()
    said = []
    if code is None:
        said.append("no machine code: nothing assembled it")
    elif subject.module is not None:
        machine, problem = linked(subject.module, options.target or subject.target, code)
        said += [problem] if problem else []
    else:
        machine = tuple(listing.lines(_disassembled(code)))
        said.append("a cubin without PTX" if machine else "a cubin without PTX, and no nvdisasm to show its machine code")
    authors: Mapping[int, Position] = {}
    if subject.module is not None:
        authors = subject.lines or _authors(subject.module, Places(subject.module, None))
    found = sources(authors, subject.near)
    unread = sorted({position.file for position in authors.values() if position.file} - set(found))
    said += [f"not found here: {', '.join(unread)}"] if unread else []
    issues = control.issues(machine, listing.texts(code)) if code is not None else ()
    return page(subject.name, entries, Listing(subject.text, machine, authors, found, tuple(said), issues, subject.own, entries))


def _authors(module: tree.Module, places: Any) -> dict[int, Position]:
    """The position that `.loc` gives to each PTX line with an instruction."""
    from ..grammar import tree

    found: dict[int, Position] = {}

    def body(statements: Sequence[tree.Statement], loc: tree.Loc | None) -> tree.Loc | None:
        for statement in statements:
            if isinstance(statement, tree.Loc):
                loc = statement
            elif isinstance(statement, tree.Block):
                loc = body(statement.body, loc)
            elif isinstance(statement, tree.Instruction) and statement.position is not None:
                author = places.of(statement.position, loc).author
                if author is not None:
                    found[statement.position.line] = author
        return loc

    for function in module.functions:
        body(function.body or (), None)
    return found
