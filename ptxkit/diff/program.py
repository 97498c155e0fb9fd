"""What is compared: functions as instructions whose registers and labels are places to be named, with resources and protocol."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..grammar import tree
from ..grammar.forms import canonical
from ..grammar.walk import instructions, statements
from ..grammar.write import write_instruction, write_statement
from ..lift.scopes import flattened, mapped, names, read_names
from ..runtime.diagnostics import Resources

Counts = Mapping[str, int]
Facts = Mapping[str, Counts]


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction: its shape with `{}` for each name, the names, the whole text, and its opcode. A label has no opcode."""

    shape: str
    names: tuple[str, ...]
    text: str
    opcode: str

    def written(self, renamed: Mapping[str, str]) -> str:
        """The text with other names."""
        pieces = self.shape.split("{}")
        return "".join(piece + name for piece, name in zip(pieces, (*(renamed.get(n, n) for n in self.names), ""), strict=True))


@dataclass(frozen=True)
class Code:
    """One entry or device function. `facts` are counts by family: barriers, copies, wgmma, memory, launch."""

    name: str
    kind: str
    lines: tuple[Line, ...]
    facts: Facts = field(default_factory=dict)
    resources: Resources | None = None


@dataclass(frozen=True)
class Program:
    """One side of a comparison."""

    name: str
    codes: tuple[Code, ...]
    kind: str = "PTX"
    note: str = ""


# ------------------------------------------------------------------------------------------------------ PTX


def of_module(module: tree.Module, name: str, resources: Mapping[str, Resources] | None = None, note: str = "") -> Program:
    """The functions with bodies of a PTX module."""
    codes = []
    for function in module.functions:
        if function.body is not None:
            found = (resources or {}).get(function.name) if function.kind == "entry" else None
            codes.append(Code(function.name, function.kind, tuple(_lines(function)), facts(module, function), found))
    return Program(name, tuple(codes), note=note)


def _lines(function: tree.Function) -> Iterator[Line]:
    body = flattened(function)
    parameters = {v.name: f"parameter {i}" for i, v in enumerate((*function.returns, *function.parameters)) if v.space == "param"}
    first = _first_labels(body.statements)
    needed = {first.get(name, name) for i in instructions(body.statements) for operand in i.operands for name in names(operand)}
    needed |= {first.get(name, name) for t in statements(body.statements) if isinstance(t, tree.Targets) for name in t.names}
    read = {name for i in instructions(body.statements) for name in read_names(i)}
    ended = False
    for statement in _flat(body.statements):
        if isinstance(statement, tree.Label):
            if first[statement.name] == statement.name and statement.name in needed:
                yield Line("{}:", (statement.name,), f"{statement.name}:", "")
        elif isinstance(statement, tree.Instruction):
            ended = statement.opcode in ("ret", "exit", "trap") and statement.guard is None
            operands = statement.operands
            if statement.opcode.startswith("mbarrier.arrive") and isinstance(operands[0], tree.Name) and operands[0].name not in read:
                operands = (tree.Name("_"), *operands[1:])
            yield _line(replace(statement, operands=operands), body.registers, first, parameters)
        elif isinstance(statement, tree.Targets):
            listed = tuple(first.get(name, name) for name in statement.names)
            yield Line(f".{statement.kind} {', '.join('{}' for _ in listed)}", listed, f".{statement.kind} {', '.join(listed)}", "")
        elif isinstance(statement, str):
            yield Line(statement, (), statement, "")
        elif not isinstance(statement, tree.Loc):
            text = write_statement(statement)
            yield Line(text, (), text, "")
    if not ended:
        yield Line("ret", (), "ret", "ret")


def _flat(statements: Iterable[tree.Statement]) -> Iterator[tree.Statement | str]:
    """The statements with braces as lines of their own."""
    for statement in statements:
        if isinstance(statement, tree.Block):
            yield "{"
            yield from _flat(statement.body)
            yield "}"
        else:
            yield statement


def _first_labels(statements: Iterable[tree.Statement]) -> dict[str, str]:
    """For each label the first of those that stand at its place."""
    found: dict[str, str] = {}
    current: str | None = None
    for statement in _flat(statements):
        if isinstance(statement, tree.Label):
            current = current or statement.name
            found[statement.name] = current
        elif not isinstance(statement, tree.Loc):
            current = None
    return found


def _line(instruction: tree.Instruction, registers: Mapping[str, str], labels: Mapping[str, str], parameters: Mapping[str, str]) -> Line:
    opcode = "bra" if instruction.opcode == "bra.uni" and instruction.guard is None else instruction.opcode
    opcode = canonical(opcode) or opcode
    found: list[str] = []

    def place(name: str) -> str:
        base, dot, axis = name.rpartition(".")
        if name in registers or name in labels:
            found.append(labels.get(name, name))
            return "{}"
        if dot and base in registers:
            found.append(base)
            return f"{{}}.{axis}"
        return parameters.get(name, name)

    guard = None
    if instruction.guard is not None:
        guard = tree.Guard(place(instruction.guard.predicate), instruction.guard.negated)
    operands = tuple(_plain(mapped(o, place)) for o in instruction.operands)
    shape = write_instruction(tree.Instruction(opcode, operands, guard)).rstrip(";")
    return Line(shape, tuple(found), write_instruction(instruction).rstrip(";"), opcode)


def _plain(operand: tree.Operand) -> tree.Operand:
    if isinstance(operand, tree.Integer):
        return tree.Integer(operand.value)
    if isinstance(operand, tree.Vector) and len(operand.elements) == 1:
        return operand.elements[0]
    return operand


# ------------------------------------------------------------------------------------------------------ protocol

_FAMILIES = (
    ("barriers", r"(?:mbarrier|bar|barrier|cp\.async\.mbarrier)\."),
    ("copies", r"(?:cp\.async|cp\.reduce\.async|prefetch\.tensormap|tensormap|fence\.proxy\.tensormap|multimem|red\.async|st\.async)"),
    ("wgmma", r"(?:wgmma|mma|wmma|ldmatrix|stmatrix)\b"),
    ("fences and registers", r"(?:fence|membar|setmaxnreg|griddepcontrol)\b"),
)
_SHAPE = re.compile(r"\.(m\d+n\d+k\d+)\b")


def facts(module: tree.Module, function: tree.Function) -> dict[str, dict[str, int]]:
    """What the function says to its barriers, copies and wgmma, counted; its launch bounds and its shared memory."""
    found: dict[str, Counter[str]] = {}
    for instruction in instructions(function.body or ()):
        family = next((name for name, pattern in _FAMILIES if re.match(pattern, instruction.opcode)), None)
        if family is not None:
            found.setdefault(family, Counter())[_fact(instruction)] += 1
    for directive in function.directives:
        words = " ".join(str(a.value if isinstance(a, tree.Text) else a) for a in directive.arguments)
        if directive.name in ("reqntid", "maxntid", "reqnctapercluster"):
            words = " ".join(map(str, (*directive.arguments, 1, 1)[:3]))
        found.setdefault("launch", Counter())[f".{directive.name} {words}".strip()] += 1
    for number, variable in enumerate(function.parameters):
        extent = f"[{variable.shape[0]}]" if variable.shape else ""
        found.setdefault("launch", Counter())[f"parameter {number}: .{variable.type}{extent}"] += 1
    for variable in _shared(module, function):
        size = "dynamic" if None in variable.shape else f"{_bytes(variable)} bytes"
        found.setdefault("shared memory", Counter())[f"{size}, aligned to {variable.align or 1}"] += 1
    return {name: dict(counter) for name, counter in found.items()}


def _fact(instruction: tree.Instruction) -> str:
    """An instruction as the protocol sees it: its opcode, and the numbers that are counts, bytes, barriers or groups."""
    opcode = canonical(instruction.opcode) or instruction.opcode
    numbers = [str(o.value) for o in instruction.operands if isinstance(o, tree.Integer)]
    if opcode.startswith("wgmma.mma_async"):
        return opcode
    if opcode.startswith(("mbarrier.test_wait", "mbarrier.try_wait")):
        numbers = numbers[:1]
    return f"{opcode} {', '.join(numbers)}".strip()


def _shared(module: tree.Module, function: tree.Function) -> Iterator[tree.Variable]:
    mentioned = {name for i in instructions(function.body or ()) for operand in i.operands for name in names(operand)}
    for item in module.items:
        if isinstance(item, tree.Variable) and item.space == "shared" and item.name in mentioned:
            yield item
    yield from (v for v in statements(function.body or ()) if isinstance(v, tree.Variable) and v.space == "shared")


def _bytes(variable: tree.Variable) -> int:
    size = max(1, int(re.sub(r"\D", "", variable.type) or 8) // 8) * variable.vector
    for extent in variable.shape:
        size *= extent or 0
    return size


# ------------------------------------------------------------------------------------------------------ machine code

_SECTION = re.compile(r"^\.text\.([^\s:]+):|^\s*\.section\s+\.text\.([^\s,]+)")
_SASS_NAME = re.compile(r"\b(?:R|UR|P|UP|B)\d+\b|\.L_x_\d+|(?<=`\()\.L_\w+(?=\))")
_ADDRESS = re.compile(r"/\*[0-9a-f]{4,}\*/")


def of_sass(text: str, name: str, resources: Mapping[str, Resources] | None = None) -> Program:
    """The functions of nvdisasm's listing."""
    codes: dict[str, list[Line]] = {}
    current: list[Line] | None = None
    for line in text.splitlines():
        if found := _SECTION.match(line):
            current = codes.setdefault(found[1] or found[2], [])
            continue
        stripped = _ADDRESS.sub("", line).strip().rstrip(";").strip()
        if current is None or not stripped or stripped.startswith(("//", ".section", ".align", ".size", ".type", ".other", ".global")):
            continue
        if _ADDRESS.search(line):
            words = stripped.split()
            opcode = words[1] if words[0].startswith("@") and len(words) > 1 else words[0]
            current.append(Line(_SASS_NAME.sub("{}", stripped), tuple(_SASS_NAME.findall(stripped)), stripped, opcode))
        elif stripped.endswith(":") and stripped.startswith(".L_x_"):
            current.append(Line("{}:", (stripped[:-1],), stripped, ""))
    known = resources or {}
    made = (Code(key, "entry", tuple(_without_padding(lines)), _sass_facts(lines), known.get(key)) for key, lines in codes.items())
    return Program(name, tuple(made), "machine code")


def _without_padding(lines: list[Line]) -> list[Line]:
    """Without the branch to itself and the NOPs that fill the section."""
    last = len(lines)
    while last and (lines[last - 1].opcode == "NOP" or not lines[last - 1].opcode):
        last -= 1
    return lines[:last]


def _sass_facts(lines: list[Line]) -> dict[str, dict[str, int]]:
    families = {
        "barriers": ("SYNCS", "BAR", "UCGABAR"),
        "copies": ("UTMALDG", "UTMASTG", "UBLKCP", "UTMAREDG", "LDGSTS", "UTMAPF"),
        "wgmma": ("HGMMA", "IGMMA", "QGMMA", "BGMMA", "HMMA", "WARPGROUP"),
        "fences and registers": ("USETMAXREG", "FENCE", "MEMBAR"),
    }
    found: dict[str, Counter[str]] = {}
    for line in lines:
        for family, heads in families.items():
            if line.opcode.startswith(heads):
                found.setdefault(family, Counter())[line.opcode] += 1
    return {name: dict(counter) for name, counter in found.items()}
