"""The facts of every entry of a module, from its tree, its trace, what ptxas said and what is in the cubin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from ..check import language
from ..check.analysis import Analysis
from ..check.places import Places
from ..check.program import parts
from ..dsl.traced import Traced
from ..grammar import forms, tree
from ..grammar.errors import Finding, OpcodeError
from ..grammar.operands import width
from ..grammar.walk import statements
from ..runtime.diagnostics import Resources
from ..sass import hints
from ..sass.cubin import Cubin, Machine
from . import banks, flight, protocol
from .descriptors import Descriptors
from .facts import DescriptorFact, EntryFacts, NoteFact, ParameterFact, SharedFact
from .resources import count_instructions, in_effect, instructions_of, reached
from .roles import roles
from .words import address

BOUNDS = ("reqntid", "maxntid", "minnctapersm", "maxnreg", "reqnctapercluster", "maxclusterrank", "explicitcluster", "blocksareclusters")


def facts(module: tree.Module, places: Places, traced: Traced | None = None, resources: Mapping[str, Resources] | None = None,
          cubin: Cubin | None = None, sass: str = "", findings: Sequence[Finding] = (), log: str = "") -> tuple[EntryFacts, ...]:
    """The facts of every entry, in the order of the text. What is not given is left out and named in `missing`."""
    wrong = next((finding for finding in language.findings(module, places)
                  if finding.severity == "error" and finding.rule not in language.GATES), None)
    said, hint, found = told(findings, module), hints.said(module), []
    for entry, part in parts(module):
        counts = count_instructions(part, entry)
        machine = cubin.entries.get(entry.name) if cubin else None
        used = (resources or {}).get(entry.name) or (of_machine(machine) if machine else None)
        effect = in_effect(entry.name, sass, log) if counts["setmaxnreg"] else None
        missing = [] if used else ["no registers, spills and machine code: nothing assembled it"]
        common = {"parameters": parameters(entry, traced, machine), "bounds": bounds(entry), "resources": used, "counts": counts,
                  "setmaxnreg": effect, "hint": hint, "mix": mix(part, entry), "shared": shared(part, entry, traced),
                  "notes": notes(said(entry.name), places)}
        if wrong is not None:
            missing.append(f"no protocol: the PTX is not all legal ({wrong}; `ptxkit check` says more)")
            found.append(EntryFacts(entry.name, **common, wgmma=shapes(part, entry), missing=tuple(missing)))  # type: ignore[arg-type]
            continue
        analysis = Analysis(part, entry, places, traced if traced is not None and traced.name == entry.name else None)
        found.append(EntryFacts(
            entry.name, **common, roles=roles(analysis), named=protocol.named(analysis), wgmma=shapes(part, entry),  # type: ignore[arg-type]
            flight=flight.flight(analysis.routine, analysis.values), descriptors=descriptors(analysis), copies=protocol.copies(analysis),
            barriers=protocol.barriers(analysis), banks=banks.conflicts(analysis), missing=tuple(missing)))
    return tuple(found)


def of_cubin(cubin: Cubin, sass: str = "", resources: Mapping[str, Resources] | None = None) -> tuple[EntryFacts, ...]:
    """What a cubin without PTX says."""
    found = []
    for name, machine in cubin.entries.items():
        given = tuple(ParameterFact(f"parameter {p.ordinal}", f"{p.bytes} bytes", p.offset, p.bytes) for p in machine.parameters)
        limits = {"reqntid": machine.reqntid, "maxntid": machine.maxntid, "reqnctapercluster": machine.cluster}
        symbols = (SharedFact("static", machine.shared, 1, "all static shared memory"),) if machine.shared else ()
        missing = ["no instructions, descriptors and protocol: the cubin holds no PTX (assemble with -lineinfo to keep it)",
                   "no spills: a cubin does not say them"]
        found.append(EntryFacts(name, given, {key: value for key, value in limits.items() if value},
                                (resources or {}).get(name) or of_machine(machine), setmaxnreg=in_effect(name, sass, "") or None,
                                shared=symbols, missing=tuple(missing)))
    return tuple(found)


def of_machine(machine: Machine) -> Resources:
    """Resources as a cubin says them: it does not tell spills from other uses of the stack."""
    return Resources(machine.name, machine.registers, machine.stack, 0, 0, machine.shared, machine.barriers)


# ------------------------------------------------------------------------------------------------ declarations


def parameters(entry: tree.Function, traced: Traced | None = None, machine: Machine | None = None) -> tuple[ParameterFact, ...]:
    """The parameters with their places: as the machine code has them, else each aligned to its type or to what it says."""
    places = {p.ordinal: p.offset for p in machine.parameters} if machine and len(machine.parameters) == len(entry.parameters) else {}
    kinds = {parameter.name: parameter for parameter in traced.parameters} if traced and traced.name == entry.name else {}
    found, offset = [], 0
    for ordinal, variable in enumerate(entry.parameters):
        size, align = _size(variable) or 0, _alignment(variable)
        offset = places.get(ordinal, -(-offset // align) * align)
        kind = kinds.get(variable.name)
        found.append(ParameterFact(variable.name, _what(variable, kind.kind if kind else "", kind.type if kind else None), offset, size))
        offset += size
    return tuple(found)


def _what(variable: tree.Variable, kind: str, type: object) -> str:
    if kind == "tensormap":
        return "tensor map"
    element = f" of {getattr(type, '__name__', '')}" if type is not None else ""
    if kind == "pointer" or variable.pointer is not None:
        space = variable.pointer.space if variable.pointer else ""
        return f"pointer{f' to {space}' if space else ''}{element}"
    extents = "".join(f"[{extent}]" for extent in variable.shape)
    guess = " (a tensor map by its size)" if (variable.type, variable.shape, variable.align) == ("b8", (128,), 64) else ""
    return f"{f'v{variable.vector}.' if variable.vector > 1 else ''}{variable.type}{extents}{guess}"


def _alignment(variable: tree.Variable) -> int:
    return variable.align or max(1, _element(variable))


def _element(variable: tree.Variable) -> int:
    return max(1, {"texref": 64, "samplerref": 64, "surfref": 64}.get(variable.type, width(variable.type)) // 8) * variable.vector


def _size(variable: tree.Variable) -> int | None:
    """Bytes; None for an array of open length."""
    size = _element(variable)
    for extent in variable.shape:
        if extent is None:
            return None
        size *= extent
    return size


def bounds(entry: tree.Function) -> dict[str, tuple[int, ...]]:
    return {directive.name: tuple(argument for argument in directive.arguments if isinstance(argument, int))
            for directive in entry.directives if directive.name in BOUNDS}


def shared(module: tree.Module, entry: tree.Function, traced: Traced | None = None) -> tuple[SharedFact, ...]:
    """The shared variables that the entry and the functions it calls name; of a traced kernel what its plan puts where."""
    bodies = [statement for function in reached(module, entry) for statement in statements(function.body or ())]
    named = {name for statement in bodies if isinstance(statement, tree.Instruction) for name in _names(statement)}
    outside = [item for item in module.items if isinstance(item, tree.Variable) and item.space == "shared" and item.name in named]
    inside = [statement for statement in bodies if isinstance(statement, tree.Variable) and statement.space == "shared"]
    found = []
    for variable in (*outside, *inside):
        size = _size(variable)
        what = "static" if size is not None else "dynamic: the launch says how much"
        plan = traced.shared if traced is not None and traced.name == entry.name and traced.shared.symbol == variable.name else None
        if plan is not None and size is None:
            size, what = plan.total, "dynamic"
        found.append(SharedFact(variable.name, size, _alignment(variable), what))
        if plan is not None:
            found += [SharedFact(plan.said(part), part.bytes, part.align, part.what, part.offset, variable.name)
                      for part in plan.allocations]
    return tuple(found)


def _names(instruction: tree.Instruction) -> Iterator[str]:
    from ..check.names import names_in

    for operand in instruction.operands:
        yield from names_in(operand)


# ------------------------------------------------------------------------------------------------ instructions


@cache
def _chapters() -> dict[int, str]:
    """The chapter of the table that a form stands in."""
    from importlib import import_module
    from pkgutil import iter_modules

    from ..grammar import isa

    names = (module.name for module in iter_modules(isa.__path__))
    known = {id(form) for form in forms.forms()}
    return {id(form): name for name in names for form in getattr(import_module(f"ptxkit.grammar.isa.{name}"), "FORMS", ())
            if id(form) in known}


def mix(module: tree.Module, entry: tree.Function) -> dict[str, int]:
    """How many instructions of each class stand in the text: chapters of the table, memory by its state space."""
    found = Counter(_class(instruction.opcode) for instruction in instructions_of(module, entry))
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def _class(opcode: str) -> str:
    try:
        form = forms.lookup(opcode)[0].form
    except OpcodeError:
        found = forms.accepted(opcode)
        if not found:
            return "unknown"
        form = found[0].form
    chapters = _chapters()
    chapter = chapters.get(id(form)) or next((chapters[id(other)] for other in forms.forms(form.mnemonic)), form.mnemonic)
    if chapter in ("memory", "atomic"):
        space = next((token.partition("::")[0] for token in opcode.split(".")
                      if token.partition("::")[0] in ("global", "shared", "local", "param", "const")), "generic")
        return f"{'atomics' if chapter == 'atomic' else 'memory'}, {space}"
    return {"bulk": "asynchronous copies", "floating": "floating point", "half": "floating point", "warp": "warp (shuffle, vote, elect)",
            "matrix": "matrix loads and stores", "barrier": "barriers and fences"}.get(chapter, chapter)


def shapes(module: tree.Module, entry: tree.Function) -> dict[str, int]:
    """wgmma and mma instructions by shape and types."""
    found = Counter(instruction.opcode.replace(".sync.aligned", "") for instruction in instructions_of(module, entry)
                    if instruction.opcode.startswith(("wgmma.mma_async", "mma.", "wmma.mma")))
    return dict(found)


def descriptors(analysis: Analysis) -> tuple[DescriptorFact, ...]:
    """Every descriptor operand of every wgmma."""
    words, found = Descriptors(analysis.values), []
    for site in analysis.sites:
        if "wgmma.issue" not in site.sync:
            continue
        for operand, letter in (("a_desc", "a"), ("b_desc", "b")):
            if site.value(operand) is None:
                continue
            word = words.of(site, operand)
            mode, start = word.field(62, 2), word.field(0, 14)
            leading, stride = word.field(16, 14), word.field(32, 14)
            transposed = analysis.constant(site, f"imm_trans_{letter}")
            where = address(analysis, word.address, site) if word.address is not None else f"{start << 4:#x}" if start is not None else ""
            found.append(DescriptorFact(
                site.place.line, protocol.author(site), site.opcode, letter, where, None if leading is None else leading << 4,
                None if stride is None else stride << 4, word.field(49, 3), None if mode is None else (0, 128, 64, 32)[mode],
                "mn" if transposed else "k"))
    return tuple(found)


# ------------------------------------------------------------------------------------------------ notes


def told(findings: Sequence[Finding], module: tree.Module) -> Callable[[str], list[Finding]]:
    """The messages about each entry: those that name it, and those that name none of the module's functions."""
    names = {function.name for function in module.functions} if findings else set()
    about: dict[str, list[int]] = {"": []}
    for number, finding in enumerate(findings):
        words = set(finding.message.replace("'", " ").replace('"', " ").replace(":", " ").split())
        for name in words & names or ("",):
            about.setdefault(name, []).append(number)
    return lambda entry: [findings[number] for number in sorted({*about[""], *about.get(entry, ())})]


def notes(findings: Sequence[Finding], places: Places) -> tuple[NoteFact, ...]:
    """What ptxas said, with the place in the PTX where it is known."""
    first = {position: line for line, position in sorted((places.lines or {}).items(), reverse=True)} if findings else {}
    found = []
    for finding in findings:
        place = str(finding.position) if finding.position else ""
        line = first.get(finding.position) if places.lines is not None and finding.position else (
            finding.position.line if finding.position else None)
        found.append(NoteFact(finding.rule, finding.severity, finding.message, finding.fix, place, finding.ptx_line or line))
    return tuple(found)
