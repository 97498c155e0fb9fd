"""ptxas as the oracle of the table: which lines does its front end accept?

The sentinel method: an unknown mnemonic as the last statement makes ptxas report every semantic error with its line and stop
before the back end. Only a parsing error ends the run earlier: that line is taken out and judged as rejected, and the rest again.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ptxkit.grammar import forms, isa, tree
from ptxkit.grammar.schema import Form, Operand, Range
from ptxkit.grammar.write import write_instruction

CHUNK = 1000
SELECTED = {"part": ("b0", "b3", "h0", "h1"), "halves": ("h00", "h31", "h22"), "bytes": ("b3210", "b7654", "b0070"),
            "mask2": ("h0", "h1", "h10"), "mask4": ("b0", "b31", "b3210", "b210")}
MEMORY_KIB = 6_000_000  # an ill-typed operand can make ptxas take more than 10 GB
SECONDS = 60
# A texture with a sampler of its own is for a module of texmode_independent, one without for any other.
SAMPLED = re.compile(r"\[[^\],{}]+,\s*[^\],{}\s]+\s*,|\[sampler")
REGISTERS = {"b8": 40, "b16": 40, "b32": 200, "b64": 40, "b128": 8, "u8": 8, "s8": 8, "u16": 40, "s16": 40, "u32": 200, "s32": 200,
             "u64": 40, "s64": 40, "f16": 40, "f16x2": 40, "f32": 200, "f64": 40, "pred": 40}
DECLARED = {"bf16": "b16", "bf16x2": "b32", "tf32": "b32", "u16x2": "b32", "s16x2": "b32", "u8x4": "b32", "s8x4": "b32",
            "e4m3x2": "b16", "e5m2x2": "b16", "b1": "b32"}
HANDLES = {"texture": "texture", "sampler": "sampler", "surface": "surface"}
SPACES = {"": "global_data", "global": "global_data", "const": "const_data", "shared": "shared_data", "shared::cta": "shared_data",
          "shared::cluster": "shared_data", "local": "local_data", "param": "parameter", "param::entry": "parameter",
          "param::func": "argument"}


@functools.cache
def ptxas() -> str | None:
    """The ptxas that judges, None when there is none."""
    from ptxkit.runtime import toolchain

    return str(toolchain.ptxas().path) if toolchain.has_ptxas() else None


@functools.cache
def version() -> str:
    """The release of that ptxas, "13.0"; "" when there is none."""
    from ptxkit.runtime import toolchain

    return ".".join(toolchain.ptxas().version.split(".")[:2]) if toolchain.has_ptxas() else ""


# ---------------------------------------------------------------------------------------------------- judging


def judge(lines: Sequence[str], version: str = "9.0", target: str = "sm_90a", chunk: int = CHUNK) -> dict[int, str]:
    """The lines (by index) that ptxas rejects, each with its first message; a smaller `chunk` where many are not even parsed."""
    sampled = [i for i, line in enumerate(lines) if SAMPLED.search(line)]
    apart = set(sampled)
    work = [(group[start:start + chunk], mode) for group, mode in (([i for i in range(len(lines)) if i not in apart], target),
            (sampled, f"{target}, texmode_independent")) for start in range(0, len(group), chunk)]
    with ThreadPoolExecutor(2) as pool:
        parts = pool.map(lambda part: _judge_chunk(lines, part[0], version, part[1]), work)
        return {index: message for part in parts for index, message in part.items()}


def _judge_chunk(lines: Sequence[str], indices: list[int], version: str, target: str) -> dict[int, str]:
    rejected: dict[int, str] = {}
    left = list(indices)
    while left:
        complete, found = _run([lines[i] for i in left], version, target)
        if complete:
            rejected.update({left[n]: message for n, message in found.items() if 0 <= n < len(left)})
            return rejected
        fatal = [n for n, message in found.items() if "Parsing error" in message and 0 <= n < len(left)]
        if fatal:
            rejected[left[fatal[0]]] = found[fatal[0]]
            del left[fatal[0]]
        elif len(left) == 1:
            rejected[left[0]] = next(iter(found.values()), "ptxas crashed, or ran out of time or memory")
            return rejected
        else:
            half = len(left) // 2
            for part in (left[:half], left[half:]):
                rejected.update(_judge_chunk(lines, part, version, target))
            return rejected
    return rejected


def _run(lines: Sequence[str], version: str, target: str) -> tuple[bool, dict[int, str]]:
    """Whether ptxas came to the sentinel, and its messages by line."""
    head = module_head(version, target)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "lines.ptx")
        source.write_text("\n".join((head, *lines, "zzz_sentinel;", "}", "")))
        chip = target.partition(",")[0]
        command = ["sh", "-c", f'ulimit -v {MEMORY_KIB}; exec "$0" "$@"', ptxas() or "ptxas", f"-arch={chip}", str(source),
                   "-o", os.devnull]
        try:
            log = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False).stderr
        except subprocess.TimeoutExpired:
            return False, {}
    first = head.count("\n") + 2
    messages: dict[int, str] = {}
    for number, message in re.findall(r"line (\d+); (?:error|fatal)\s*: (.*)", log):
        messages.setdefault(int(number) - first, message)
    return "zzz_sentinel" in log, messages


@functools.cache
def module_head(version: str, target: str) -> str:
    b128 = tuple(map(int, version.split("."))) >= (8, 3)
    registers = [f".reg .{type} %{type}_<{count}>;" for type, count in REGISTERS.items() if type != "b128" or b128]
    return "\n".join((
        f".version {version}", f".target {target}", ".address_size 64",
        ".global .align 128 .b8 global_data[1024];", ".const .align 128 .b8 const_data[1024];",
        ".global .texref texture;", ".global .surfref surface;", *([".global .samplerref sampler;"] if "texmode" in target else ()),
        ".func callee();", ".func (.param .b32 result) giver(.param .b32 given);",
        ".visible .entry kernel(.param .align 128 .b8 parameter[128])", "{",
        ".shared .align 128 .b8 shared_data[1024];", ".local .align 16 .b8 local_data[64];",
        ".param .align 16 .b8 argument[64];", ".param .b32 passed;", *registers,
        "targets: .branchtargets somewhere;", "prototype: .callprototype _ ();",
        "giving: .callprototype (.param .b32 _) _ (.param .b32 _);", "somewhere:"))


# ---------------------------------------------------------------------------------------------------- instances


@dataclass(slots=True)
class Names:
    """Hands out registers, a different one for each operand of a line."""

    used: int = 0

    def register(self, type: str) -> tree.Name:
        declared = DECLARED.get(type, type)
        self.used += 1
        return tree.Name(f"%{declared}_{self.used % REGISTERS[declared]}")


def instances(signature: forms.Signature, *, alternatives: bool = True) -> Iterator[tree.Instruction]:
    """Lines of one opcode: every choice of optional operands, and every other spelling of each operand in turn."""
    fillings = list(presences(signature))
    for present in fillings:
        yield _line(signature, present, None, 0)
    if alternatives:
        for position, parameter in enumerate(signature.parameters):
            for choice in range(1, len(spellings(signature, parameter, Names()))):
                line = _line(signature, fillings[-1], position, choice)
                if obeys(signature, line):
                    yield line


def presences(signature: forms.Signature) -> Iterator[frozenset[int]]:
    """The sets of optional brackets that may be filled together, the empty one first, the fullest last."""
    regions = sorted({p.regions for p in signature.parameters if p.regions}, key=lambda region: (len(region), region))
    chosen: list[frozenset[int]] = [frozenset()]
    for region in regions:
        chosen += [each | {region[-1]} for each in chosen if each.issuperset(region[:-1])]
    yield from chosen


def _line(signature: forms.Signature, present: frozenset[int], position: int | None, choice: int) -> tree.Instruction:
    names = Names()
    values: list[tree.Operand | None] = []
    for index, parameter in enumerate(signature.parameters):
        spelled = spellings(signature, parameter, names)
        values.append(spelled[choice if index == position else 0] if present.issuperset(parameter.regions) else None)
    return tree.Instruction(signature.opcode, signature.render(values))


def obeys(signature: forms.Signature, line: tree.Instruction) -> bool:
    """Whether the numbers of the line stand in the relations of its row."""
    numbers = {p.name: v.value for p, v in zip(signature.parameters, line.operands, strict=False) if isinstance(v, tree.Integer)}
    return all(numbers[low] <= numbers[high] for low, relation, high in map(str.split, signature.form.rules)
               if relation == "<=" and {low, high} <= numbers.keys())


def spellings(signature: forms.Signature, parameter: forms.Parameter, names: Names) -> list[tree.Operand]:
    """The operand as registers first, then each other way that the table allows."""
    operand = parameter.operand
    kind = operand.kind
    if kind == "immediate":
        return [tree.Integer(value) for value in _immediates(operand.immediate)]
    if kind == "address":
        written = any(access.operand == parameter.name and "w" in access.mode for access in signature.form.effects.memory)
        return _addresses(operand, "argument" if written and operand.space == "param" else SPACES[str(operand.space)], names)
    gives = {"ret_param", "param_list"} <= {p.name for p in signature.parameters}
    if kind == "label":
        return [tree.Name({"tlist": "targets", "fproto": "giving" if gives else "prototype"}.get(parameter.name, "somewhere"))]
    if kind == "function":
        return [tree.Name("giver" if gives else "callee")]
    if kind == "symbol":
        variable = tree.Name(SPACES[str(operand.space)])
        return [variable, tree.Offset(variable, 16)]
    if kind == "special":
        if operand.tag == "whole":
            return [tree.Name("%tid")]
        return [tree.Name("%clock64" if str(operand.type)[1:] == "64" else "%is_explicit_cluster" if operand.type == "pred" else "%tid.x")]
    if kind in ("vector", "coordinates"):
        return _vectors(operand, names)
    if kind == "arguments":
        return [tree.Arguments((tree.Name("passed"),) if gives else ())]
    name = names.register(str(operand.type))
    found: list[tree.Operand] = [name]
    if operand.negate:
        found.append(tree.Not(name))
    if operand.minus:
        found.append(tree.Minus(name))
    found += [tree.Name(f"{name.name}.{word}") for word in SELECTED.get(str(operand.selector), ())]
    if operand.sink:
        found.append(tree.Name("_"))
    if operand.variable:
        variable = tree.Name(SPACES[str(operand.space)])
        found += [variable, tree.Offset(variable, 16)]
    return found + [tree.Integer(value) for value in _immediates(operand.immediate)] + _floats(operand)


def _addresses(operand: Operand, variable: str, names: Names) -> list[tree.Operand]:
    """By register and by variable; a kernel's own parameter cannot be written, a call's argument can."""
    space = str(operand.space)
    by_symbol: list[tree.Operand] = [tree.Address(tree.Name(variable)), tree.Address(tree.Name(variable), 16)]
    if space.startswith("param"):
        return by_symbol
    register = names.register("b64")
    found: list[tree.Operand] = [tree.Address(register), tree.Address(register, 16), tree.Address(register, -16)]
    if operand.tag == "tensormap":
        return found[:1]
    if operand.tag in HANDLES:
        return [found[0], tree.Address(tree.Name(HANDLES[operand.tag]))]
    if space.startswith("shared"):
        found.append(tree.Address(names.register("b32")))
    return found + by_symbol if space else found


def _vectors(operand: Operand, names: Names) -> list[tree.Operand]:
    types = [str(operand.type)] * int(str(operand.count))
    if operand.index:
        types[0] = "u32"
    lanes: tuple[tree.Operand, ...] = tuple(names.register(type) for type in types)
    found: list[tree.Operand] = [tree.Vector(lanes)]
    if operand.sink and len(lanes) > 1:
        found.append(tree.Vector((tree.Name("_"), *lanes[1:])))
    if operand.immediate is not None:
        found.append(tree.Vector(tuple(tree.Integer(n) for n in range(len(lanes)))))
    if operand.float_immediate:
        found.append(tree.Vector(tuple(tree.Integer(n) if type == "u32" else _float(type) for n, type in enumerate(types))))
    return found


def _immediates(allowed: object) -> list[int]:
    if not isinstance(allowed, Range):
        return []
    if allowed.choices:
        return list(allowed.choices)
    step = allowed.multiple
    low = allowed.low if allowed.low is not None else min(0, allowed.high or 0)
    high = allowed.high if allowed.high is not None else low + 2 * step
    return sorted({low, low + step, high})


def _floats(operand: Operand) -> list[tree.Operand]:
    if not operand.float_immediate:
        return []
    return [_float(str(operand.type))]


def _float(type: str) -> tree.Float:
    return tree.Float.of(1.0, 64 if type in ("f64", "b64") else 32)


@functools.cache
def operand_lists() -> tuple[forms.Signature, ...]:
    """One signature of the table for each distinct operand list of each row."""
    found: dict[int, forms.Signature] = {}
    for row in isa.FORMS:
        for signature in forms.variants(row):
            found.setdefault(id(signature.parameters), signature)
    return tuple(found.values())


def table_lines(rows: Iterable[Form]) -> Iterator[tuple[forms.Signature, str]]:
    """Every variant of every row with every choice of optional operands; the other spellings once per distinct operand list."""
    for row in rows:
        seen: set[int] = set()
        for signature in forms.variants(row):
            fresh = id(signature.parameters) not in seen
            seen.add(id(signature.parameters))
            for instruction in instances(signature, alternatives=fresh):
                yield signature, write_instruction(instruction)
