"""One instruction as a line of Python: a call of the DSL that gives exactly this instruction, or else its text."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .. import ptx
from ..dsl.convert import Mismatch
from ..dsl.signs import strange
from ..grammar import tree
from ..grammar.errors import PtxkitError
from ..grammar.forms import Parameter, Signature, lookup
from ..grammar.spelling import python_name
from .terms import Names, Term, quoted, raw, template, term
from .typing import Bound, is_output

ALIAS = 44
"""An opcode longer than this, used more than once, gets a name of its own."""


@dataclass
class Call:
    """`results = callee(arguments)`; without results the destinations come first among the arguments."""

    callee: str
    arguments: list[str]
    results: list[str] = field(default_factory=list)

    def text(self) -> str:
        call = f"{self.callee}({', '.join(self.arguments)})"
        return f"{', '.join(self.results)} = {call}" if self.results else call


class Calls:
    """Instructions of one body to calls. `opcodes` counts how often each is called, `exact` tells `{r}`, which -O0 copies, from `r`."""

    def __init__(self, names: Names, fresh: set[int], opcodes: dict[str, int], plain: frozenset[str], exact: bool) -> None:
        self.names = names
        self.fresh = fresh
        self.opcodes = opcodes
        self.plain = plain
        self.exact = exact
        self.vectors: dict[tuple[str, ...], str] = {}

    def call(self, instruction: tree.Instruction, found: Bound | None) -> Call:
        """The call for one instruction."""
        if found is not None and found.opcode not in self.plain and not _only_text(found) and not (self.exact and _braced(instruction)):
            made = self._typed(instruction, found)
            if made is not None:
                self.opcodes[found.opcode] = self.opcodes.get(found.opcode, 0) + 1
                return made
        return self.text(instruction)

    def _typed(self, instruction: tree.Instruction, found: Bound) -> Call | None:
        results: list[str] = []
        first: list[Term] = []
        rest: list[Term] = []
        options: dict[str, Term] = {}
        for parameter, operand in zip(found.signature.parameters, found.values, strict=True):
            if operand is None:
                continue
            new = is_output(parameter) and id(instruction) in self.fresh
            made = term(self.names, parameter, operand) if new else self._term(parameter, operand)
            if isinstance(operand, tree.Integer) and strange(found.opcode, parameter.name, operand.value):
                made = raw(self.names, operand)
            if parameter.optional or parameter.operand.default is not None:
                if parameter.optional or made.value != parameter.operand.default:
                    options[parameter.name] = made
            elif not is_output(parameter):
                rest.append(made)
            elif new:
                results.append(made.text)
            else:
                first.append(made)
        if not self._agrees(instruction, found, [*first, *rest], options, bool(results)):
            return None
        arguments = [t.text for t in (*first, *rest)] + [f"{name}={t.text}" for name, t in options.items()]
        if len(results) == 1:
            results = [results[0].strip("()")]
        return Call(found.opcode, arguments + self._guard(instruction.guard), results)

    def _term(self, parameter: Parameter, operand: tree.Operand) -> Term:
        made = term(self.names, parameter, operand)
        if isinstance(operand, tree.Vector):
            lanes = tuple(e.name if isinstance(e, tree.Name) else "" for e in operand.elements)
            if lanes in self.vectors:
                return Term(self.vectors[lanes], made.value)
        return made

    def _agrees(self, instruction: tree.Instruction, found: Bound, arguments: list[Term], options: dict[str, Term], fresh: bool) -> bool:
        """Whether the DSL makes this very instruction of these arguments."""
        given = [a.value for a in arguments]
        keywords = {name: t.value for name, t in options.items()}
        for plan in _plans(found.opcode):
            try:
                operands, _, made = plan.bind(self.names.builder, given, keywords)
                written = plan.signature.render(operands)
            except (Mismatch, PtxkitError):
                continue
            if fresh:
                outputs = [(p.operand.kind, p.operand.type, p.operand.count) for p in plan.signature.parameters if is_output(p)]
                same = outputs == [(p.operand.kind, p.operand.type, p.operand.count) for p, _ in found.outputs()]
                return same and _same(_others(plan.signature, operands), _others(found.signature, found.values))
            return not made and _same(written, found.signature.render(found.values))
        return False

    def _guard(self, guard: tree.Guard | None) -> list[str]:
        if guard is None:
            return []
        return [f"pred={'~' if guard.negated else ''}{self.names.registers[guard.predicate]}"]

    def text(self, instruction: tree.Instruction) -> Call:
        """The instruction as PTX writes it."""
        text, values = template(self.names, instruction.operands)
        guard: list[str] = []
        head = ""
        if instruction.guard is not None:
            head = f"@{'!' if instruction.guard.negated else ''}{{}} "
            guard = [self.names.registers[instruction.guard.predicate]]
        line = f"{head}{instruction.opcode}{' ' if text else ''}{text};"
        return Call(self.names.use("verbatim"), [quoted(line), *guard, *values])


@cache
def _plans(opcode: str) -> tuple[Any, ...]:
    """How the DSL tries the signatures of an opcode, in its order."""
    plan: Any = vars(ptx)["_Plan"]
    return tuple(plan(signature) for signature in lookup(opcode))


def _only_text(found: Bound) -> bool:
    """A call's lists are clearest as PTX writes them."""
    return any(p.operand.kind == "arguments" for p in found.signature.parameters)


def _braced(instruction: tree.Instruction) -> bool:
    """Whether an operand is a vector of one register."""
    return any(isinstance(operand, tree.Vector) and len(operand.elements) == 1 for operand in instruction.operands)


def _others(signature: Signature, values: Sequence[tree.Operand | None]) -> tuple[tree.Operand, ...]:
    """What an instruction has besides its destinations."""
    return tuple(v for p, v in zip(signature.parameters, values, strict=True) if v is not None and not is_output(p))


def _same(written: tuple[tree.Operand, ...], wanted: tuple[tree.Operand, ...]) -> bool:
    return [_plain(o) for o in written] == [_plain(o) for o in wanted]


def _plain(operand: tree.Operand) -> tree.Operand:
    """Without what makes no difference: `5U`, `[r+0]`."""
    if isinstance(operand, tree.Integer):
        return tree.Integer(operand.value)
    if isinstance(operand, tree.Address):
        return tree.Address(operand.base, operand.offset, unified=operand.unified)
    if isinstance(operand, tree.Vector):
        return tree.Vector(tuple(_plain(e) for e in operand.elements))
    return operand


def spelled(opcode: str) -> str:
    """An opcode as Python writes it."""
    return ".".join(python_name(opcode.split(".")))


def alias(opcode: str, taken: set[str]) -> str:
    """A short name for a long opcode: its first words."""
    dull = ("sync", "aligned", "async", "shared::cluster", "shared::cta", "global")
    words = list(dict.fromkeys(t.partition("::")[0] for t in opcode.split(".") if t not in dull))
    name = words[0]
    for word in words[1:]:
        if len(name) + len(word) >= 32:
            break
        name += f"_{word}"
    while name in taken or keyword.iskeyword(name):
        head, _, number = name.rpartition("_")
        name = f"{head}_{int(number) + 1}" if head and number.isdigit() else f"{name}_2"
    return name
