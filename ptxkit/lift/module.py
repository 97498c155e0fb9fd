"""The entries of a PTX module as one Python file, traced again and compared before it is given away."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..check.declarations import header
from ..dsl.kernel import Kernel
from ..dsl.raw import held
from ..grammar import tree
from ..grammar.errors import PtxkitError
from ..grammar.gc_pause import gc_pause
from ..grammar.walk import instructions, statements
from ..grammar.write import write_items, write_statement
from ..types import TYPES
from . import dwarf
from .calls import ALIAS, alias, spelled
from .errors import LiftError
from .naming import HELPERS, RESERVED, Namer, parameter_name, register_name
from .needs import Needed, Needs, declarations
from .pointers import pointers
from .scopes import canonical, flattened, labels
from .source import FunctionSource, called
from .terms import quoted

INDENT = "    "
TRIES = 6
MOST = 100_000
"""Statements that are lifted at once (a function costs as much as three, a parameter as one): Python takes up to 6 KB for each
while it compiles and traces them (measured, 3.11)."""
_DECORATED = ("reqntid", "minnctapersm", "maxnreg", "explicitcluster", "reqnctapercluster")


@dataclass(frozen=True)
class Lifted:
    """The Python text, and the kernels that it defines when it is run, by entry."""

    text: str
    kernels: Mapping[str, Kernel[Any]]


def lift(ptx: str | tree.Module, entries: Sequence[str] = (), *, source: str = "PTX") -> str:
    """Python that traces to the same machine code as `entries` (all, unless some are named) of a PTX module.

    What is returned was run: each kernel's tree equals the entry's, names of registers and labels apart. `LiftError` otherwise.
    """
    return lifted(ptx, entries, source=source).text


def lifted(ptx: str | tree.Module, entries: Sequence[str] = (), *, source: str = "PTX") -> Lifted:
    """As `lift`, with the kernels."""
    from ..grammar.read import parse

    module = parse(ptx) if isinstance(ptx, str) else ptx
    needs = Needs(module)
    chosen = _chosen(module, needs, entries)
    needed = needs.of(chosen)
    _bounded(needed)
    plain: frozenset[str] = frozenset()
    best: tuple[int, Lifted] | None = None
    joined = True
    for _ in range(TRIES):
        file = _File(module, chosen, source, plain, needed, joined)
        text, names = file.text(), file.kernels
        del file  # what decided the text takes as much memory as running it will
        try:
            kernels = _run(text, names)
            other = _compare(module, next(iter(kernels.values())))
        except PtxkitError as error:
            refused = _refused(text, error)
            if refused is None or refused in plain:
                raise LiftError(f"lifting failed on {source}: {error}") from error
            plain |= {refused}
            continue
        if best is None or other < best[0]:
            best = other, Lifted(text, kernels)
        if not joined or not other:
            return best[1]
        joined = False
    raise LiftError(f"lifting failed on {source}: the DSL refuses too many of its instructions")


def _chosen(module: tree.Module, needs: Needs, entries: Sequence[str]) -> list[tree.Function]:
    if module.address_size not in (64, None):
        raise LiftError(f"this PTX has {module.address_size}-bit addresses: ptxkit writes 64-bit kernels")
    for wrong in header(module):
        if wrong.severity == "error":  # what a later version has is looked at line by line
            raise LiftError(f"{wrong.message} ({wrong.fix})")
    there = {entry.name: entry for entry in module.entries}
    if not there:
        raise LiftError("there is no entry to lift: the module has only functions and variables" if module.items else "the module is empty")
    for name in entries:
        if name not in there:
            raise LiftError(f"there is no entry `{name}`: the module has {', '.join(there)}")
    if not entries or any(needs.placed_together(there[name]) for name in dict.fromkeys(entries)):
        return list(there.values())
    return [there[name] for name in dict.fromkeys(entries)]


def _bounded(needed: Needed) -> None:
    """Refuse what would take more than some gigabyte and minutes: Python compiles a function as a whole."""
    count = 0
    for function in needed.members:
        count += 3 + len(function.parameters) + len(function.returns)
        for statement in statements(function.body or ()):
            count += not isinstance(statement, tree.Loc)
            if count > MOST:
                place = statement.position if isinstance(statement, tree.Instruction | tree.Label) else function.position
                where = f" (line {place.line})" if place is not None else ""
                raise LiftError(f"`{function.name}`{where}: more than {MOST:,} statements are to be lifted: "
                                "choose fewer entries with -e, or cut the kernel into smaller ones")


def _run(text: str, names: Mapping[str, str]) -> dict[str, Kernel[Any]]:
    """The kernels that the text defines."""
    name = f"<lifted {id(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": name}
    try:
        try:
            with gc_pause():
                program = compile(text, name, "exec")
        except SyntaxError as error:  # regions stop at DEPTH, but braces with variables of their own do not
            raise LiftError(f"its braces are nested deeper than Python's blocks can be: {error.msg}") from error
        exec(program, space)
        kernels = {entry: space[python] for entry, python in names.items()}
        next(iter(kernels.values())).module()
    finally:
        linecache.cache.pop(name, None)
    return kernels


def _refused(text: str, error: PtxkitError) -> str | None:
    """The opcode of the call that the trace refused, which is then written as PTX text."""
    position = getattr(error, "position", None)
    lines = text.splitlines()
    if position is None or not 0 < position.line <= len(lines):
        return None
    aliases = dict(re.findall(r"^(\w+) = ([\w.]+)$", text, re.MULTILINE))
    from ..grammar.spelling import opcode_tokens

    for word in re.findall(r"([A-Za-z_][\w.]*)\(", lines[position.line - 1]):
        names = aliases.get(word, word).split(".")
        if len(names) > 1 or word in aliases:
            return ".".join(opcode_tokens(names))
    return None


def _compare(module: tree.Module, kernel: Kernel[Any]) -> int:
    """Raise unless every function of the traced module is the one of that name; how many have other labels at some place."""
    traced = kernel.module()
    kept = dwarf.mentioned(dwarf.sections(module)) if dwarf.of_debugger(module) else None
    functions = {function.name: function for function in module.functions if function.body is not None}
    others = 0
    for function in traced.functions:
        if function.body is None:
            continue
        wanted = functions[function.name]
        own = None if kept is None else kept & flattened(wanted).registers.keys()
        first, second = canonical(_renamed_parameters(wanted, function), own), canonical(function, own)
        if first != second:
            at = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))
            raise LiftError(f"`{wanted.name}` came back differently: {first[at:at + 1]} became {second[at:at + 1]}")
        others += labels(wanted) != labels(function)
    return others


def _renamed_parameters(wanted: tree.Function, made: tree.Function) -> tree.Function:
    """The function with its parameters under the names that the lifted one has."""
    from .scopes import mapped

    formals = zip((*wanted.returns, *wanted.parameters), (*made.returns, *made.parameters), strict=True)
    renamed = {old.name: new.name for old, new in formals}

    def walk(body: Iterable[tree.Statement]) -> Iterator[tree.Statement]:
        for statement in body:
            if isinstance(statement, tree.Block):
                yield tree.Block(tuple(walk(statement.body)))
            elif isinstance(statement, tree.Instruction):
                yield replace(statement, operands=tuple(mapped(o, lambda n: renamed.get(n, n)) for o in statement.operands))
            else:
                yield statement

    if all(old == new for old, new in renamed.items()):
        return wanted
    registers = [replace(v, name=renamed[v.name]) for v in wanted.parameters]
    returns = [replace(v, name=renamed[v.name]) for v in wanted.returns]
    return replace(wanted, parameters=tuple(registers), returns=tuple(returns), body=tuple(walk(wanted.body or ())))


class _File:
    """One Python file: its kernels and device functions, and what they import."""

    def __init__(self, module: tree.Module, chosen: list[tree.Function], source: str, plain: frozenset[str],
                 needed: Needed, joined: bool) -> None:
        self.module = module
        self.joined = joined
        self.source = source
        self.plain = plain
        self.files = {d.arguments[0]: d.arguments[1].value for d in module.items if isinstance(d, tree.Directive) and d.name == "file"
                      and isinstance(d.arguments[0], int) and isinstance(d.arguments[1], tree.Text)}
        self.used: set[str] = {"kernel", "Module"}
        self.namer = Namer(RESERVED)
        self.members = needed.members
        self.python = {f.name: self.namer(f.name if f.name.isidentifier() and f.name not in RESERVED else register_name(f.name))
                       for f in self.members}
        self.kernels = {entry.name: self.python[entry.name] for entry in chosen}
        self.chosen = chosen
        self.declarations = declarations(module, needed)
        self.sections = dwarf.sections(module)
        self.kept = dwarf.mentioned(self.sections) if dwarf.of_debugger(module) else None
        variables = {v.name: f".{v.space}" for v in module.items if isinstance(v, tree.Variable)}
        self.taken = RESERVED | self.namer.taken
        self.sources = {f.name: self._source(f, variables) for f in self.members}

    def _source(self, function: tree.Function, variables: dict[str, str]) -> FunctionSource:
        taken = Namer()
        parameters = {v.name: taken(parameter_name(v.name, function.name)) for v in (*function.returns, *function.parameters)}
        in_memory = {v.name: parameters[v.name] for v in (*function.returns, *function.parameters) if v.space == "param"}
        plain = self.plain if _capped(function) else self.plain | _SETMAXNREG
        if function.kind == "entry" and not any(d.name == "reqnctapercluster" for d in function.directives):
            plain |= _multicasts(function)
        return FunctionSource(function, variables, in_memory, self.taken, self.files, plain, parameters, self.kept)

    def text(self) -> str:
        taken = set(self.taken)
        for source in self.sources.values():
            taken |= source.namer.taken
        aliases = self._aliases(taken)
        bodies = [self._kernel(f, aliases) if f.kind == "entry" else self._function(f, aliases) for f in self.members]
        entries = ", ".join(f"`{entry.name}`" for entry in self.chosen[:4]) + (", ..." if len(self.chosen) > 4 else "")
        origin = re.sub(r'[\\"\n]|[^ -~]', "_", self.source)
        lines = [f'"""{entries}, lifted from {origin}."""', "", "from __future__ import annotations", ""]
        lines += self._imports()
        if aliases:
            lines += ["", *(f"{name} = {spelled(opcode)}" for opcode, name in aliases.items())]
        if self.declarations:
            lines += ["", 'DECLARATIONS = """', *self.declarations, '"""']
        if self.sections:
            lines += ["", 'DWARF = """', *dwarf.text(self.sections), '"""']
        words = (["DECLARATIONS"] if self.declarations else []) + [f"version={max(self.module.version, (8, 0))}"]
        words += ["debug=DWARF"] if self.sections else []
        words += [] if self.joined else ["joined=False"]
        lines += ["", f"MODULE = Module({', '.join(words)})"]
        for body in bodies:
            lines += ["", "", *body]
        shown = [f"print({python}.ptx())" for python in self.kernels.values()]
        lines += ["", "", 'if __name__ == "__main__":', *(INDENT + line for line in shown), ""]
        return "\n".join(lines)

    def _aliases(self, taken: set[str]) -> dict[str, str]:
        """Names for the long opcodes that are called more than once."""
        count: dict[str, int] = {}
        for source in self.sources.values():
            for opcode, times in source.opcodes.items():
                count[opcode] = count.get(opcode, 0) + times
        made: dict[str, str] = {}
        for opcode, times in count.items():
            if times > 1 and len(spelled(opcode)) > ALIAS:
                made[opcode] = alias(opcode, taken)
                taken.add(made[opcode])
        return made

    def _imports(self) -> list[str]:
        used, mnemonics = set(self.used), set()
        for source in self.sources.values():
            used |= source.names.used
            mnemonics |= {spelled(opcode).partition(".")[0] for opcode in source.opcodes}
        typed = [name for name in ("Annotated", "Any") if name in used]
        lines = [f"from typing import {', '.join(typed)}", ""] if typed else []
        modules = {module: [n for n in exported if n in used] for module, exported in HELPERS.items()}
        modules["ptxkit.types"] = sorted((set(TYPES) | {"bits16", "bits32", "bits64"}) & used)
        modules["ptxkit.ptx"] = sorted(mnemonics)
        for module in sorted(modules):
            wanted = sorted(modules[module], key=lambda n: (not n[0].isupper(), n))
            if wanted:
                line = f"from {module} import {', '.join(wanted)}"
                lines += [line] if len(line) <= 120 else [f"from {module} import (", *(f"{INDENT}{n}," for n in wanted), ")"]
        return lines

    def _function(self, function: tree.Function, aliases: dict[str, str]) -> list[str]:
        source = self.sources[function.name]
        body = source.lines(aliases)
        shortened = _shortened(function, {v.name: self._written(v, source.formals[v.name])
                                          for v in (*function.returns, *function.parameters)})
        signature = " ".join(write_items([replace(shortened, body=None)]).split()).rstrip(";")
        self.used.add("function")
        decorator = called([], "@function", [quoted(signature), "MODULE"], "")
        given = ", ".join(source.formals[v.name] for v in (*function.returns, *function.parameters))
        return [*decorator, f"def {self.python[function.name]}({given}):", *_documented(body)]

    def _kernel(self, entry: tree.Function, aliases: dict[str, str]) -> list[str]:
        source = self.sources[entry.name]
        body = source.lines(aliases)
        python = self.python[entry.name]
        pointed = pointers(entry)
        given = [f"{source.formals[v.name]}: {self._annotation(v, source.formals[v.name], pointed)}" for v in entry.parameters]
        options = self._options(entry)
        if python != entry.name:
            options.append(f'name="{entry.name}"')
        options += ["module=MODULE", *self._directives(entry)]
        definition = called([], f"def {python}", given, "")
        definition[-1] += " -> None:"
        return [*called([], "@kernel", options, ""), *definition, *body]

    def _written(self, variable: tree.Variable, python: str) -> str:
        """What a parameter is called in PTX."""
        stays = variable.space == "reg" and not held(variable)
        return variable.name if stays or (self.kept is not None and variable.name in self.kept) else python

    def _annotation(self, variable: tree.Variable, python: str, pointed: Mapping[str, int | None]) -> str:
        self.used.add("Param")
        name = self._written(variable, python)
        plain = name == python and not variable.shape and variable.pointer is None and variable.align is None and variable.vector == 1
        type = variable.type if variable.type in TYPES else "b8"
        if variable.name in pointed:
            self.used.add("Ptr")
            bits = pointed[variable.name]
            element = f"b{bits}" if f"b{bits}" in TYPES else "Any"
            self.used.add(element)
            type = f"Ptr[{element}]"
        else:
            self.used.add(type)
        if plain and (variable.type == "u64" if type[0] == "P" else variable.type in TYPES):
            return f"Param[{type}]"
        self.used.add("Annotated")
        declared = write_statement(replace(variable, name=name)).removeprefix(".param ").removesuffix(";")
        return f'Annotated[Param[{type}], "{declared}"]'

    def _options(self, entry: tree.Function) -> list[str]:
        said = {d.name: d.arguments for d in entry.directives}
        options: list[str] = []
        if modes := self.module.target[1:]:
            options.append(f'target="{", ".join(["sm_90a", *modes])}"')
        if "reqntid" in said:
            dims = (*said["reqntid"], 1, 1)[:3]
            options.append(f"block={dims[0] if dims[1:] == (1, 1) else dims}")
            if said.get("minnctapersm") != (1,):
                options.append(f"min_ctas={said['minnctapersm'][0] if 'minnctapersm' in said else None}")
        if "maxnreg" in said:
            options.append(f"max_registers={said['maxnreg'][0]}")
        if _cluster(said):
            dims = (*said["reqnctapercluster"], 1, 1)[:3]
            options.append(f"cluster={dims[0] if dims[1:] == (1, 1) else dims}")
        return options

    def _directives(self, entry: tree.Function) -> list[str]:
        """The directives that @kernel has no option for."""
        said = {d.name: d.arguments for d in entry.directives}
        kept = [d for d in entry.directives if not self._said(d.name, said)]
        if not kept:
            return []
        lines = write_items([tree.Function("entry", "f", directives=tuple(kept))]).splitlines()
        return [f"directives={quoted(' '.join(lines[1:]).removesuffix(';'))}"]

    def _said(self, name: str, said: Mapping[str, Any]) -> bool:
        """Whether an option of @kernel says the directive."""
        if name == "minnctapersm":
            return "reqntid" in said
        if name in ("explicitcluster", "reqnctapercluster"):
            return _cluster(said)
        return name in _DECORATED


_SETMAXNREG = frozenset(f"setmaxnreg.{how}.sync.aligned.u32" for how in ("inc", "dec"))


def _capped(function: tree.Function) -> bool:
    """Whether the entry has the register cap without which the DSL refuses setmaxnreg."""
    said = {d.name for d in function.directives}
    return "maxnreg" in said or {"reqntid", "minnctapersm"} <= said


def _multicasts(function: tree.Function) -> frozenset[str]:
    """The multicasts of a kernel whose cluster comes with the launch: the DSL wants to know it."""
    return frozenset(i.opcode for i in instructions(function.body or ()) if ".multicast::cluster" in i.opcode)


def _cluster(said: Mapping[str, Any]) -> bool:
    return {"explicitcluster", "reqnctapercluster"} <= set(said)


def _documented(body: list[str]) -> list[str]:
    return body or [f"{INDENT}pass"]


def _shortened(function: tree.Function, formals: Mapping[str, str]) -> tree.Function:
    """The head of a function with its parameters named as in Python."""
    return replace(function, parameters=tuple(replace(v, name=formals[v.name]) for v in function.parameters),
                   returns=tuple(replace(v, name=formals[v.name]) for v in function.returns))
