"""The language rules at the templates of a body, for a function of whose nodes nobody has asked.

Each template, and each block of them, is judged once for all functions whose registers have the same types: as the statements that it
is with `ANY` for each number, and by what its other names stand for. Then a body is right if every register, label and parameter that
it uses is declared. Here nothing is ever said against a function: what is found wrong, and what cannot be told, is judged by its nodes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from grammar import tree
from grammar.columns import CALLS, made
from grammar.special import SPECIAL
from grammar.templates import ANY, ANY_LABEL, ANY_PARAMETER, DIGITS, FOUND, LABEL, PARAMETER, Plain, Template

from . import declarations
from .kinds import Kinds
from .names import Declared, Scope, match_type, names_in
from .places import NOWHERE

if TYPE_CHECKING:
    from .language import _Module

FIXED = {"_", *(name for name in SPECIAL if "." in name)}
"""The names that always stand for the same."""
Unit = Template | tuple[Template, ...]
"""A line of statements, or the lines of a block with its braces."""


class Judge:
    """What of a module's templates is known to be right."""

    def __init__(self, module: _Module) -> None:
        self.module = module
        self.environments: list[tuple[dict[str, str], set[Hashable]]] = []
        self.mentioned: dict[Unit, tuple[str, ...] | None] = {}

    def right(self, function: tree.Function, body: Plain) -> bool:
        """Whether there is certainly nothing to say about the body and the names of the function's parameters."""
        variables, first = _declared(body)
        if any(True for variable in variables if not declarations.plain(variable) for _ in declarations.variable(variable, NOWHERE)):
            return False
        lines, blocks = _parts(body)
        targets = body.targets()
        scope = self._scope([*function.returns, *function.parameters, *variables], lines, targets)
        if scope is None:
            return False
        known = {FOUND + target[len(LABEL):] for target in targets} | body.kept
        for stem, variable in scope.ranges.items():
            scope.names[stem + ANY] = Declared(scope.types[stem], stem, variable)
            known.update(self.module.known.registers(stem, min(variable.count or 0, body.stop - body.at)))
        types = scope.types
        prefix = body.parameters
        parameters = [variable for variable in function.parameters if variable.name.startswith(prefix)]
        if parameters and all(variable.space == "param" and not variable.type.endswith("ref") for variable in parameters):
            known.update([PARAMETER + variable.name[len(prefix):] for variable in parameters])
            scope.names[ANY_PARAMETER] = Declared(".param", ANY_PARAMETER, parameters[0])
            types = {**types, PARAMETER: function.kind}
        return known.issuperset(body.words) and self._right({*lines[first:], *blocks}, scope, types)

    def _scope(self, variables: list[tree.Variable], lines: list[Template], targets: list[str]) -> Scope | None:
        """The names of a body; None if one is declared twice, or inside a block, or is no plain one."""
        outer = self.module.outer
        scope = Scope(outer)
        for variable in variables:
            name, type = variable.name, match_type(variable)
            if variable.count is None:
                scope.names[name] = Declared(type, name, variable)
            elif name[-1] in DIGITS or not declarations.plain(variable):
                return None
            else:
                scope.ranges[name], scope.types[name] = variable, type
        labels = [str(template.parts[0][0]) for template in lines if template.sort == ":"]
        named = [*filter(ANY_LABEL.__ne__, labels), *targets]
        scope.labels = dict(zip(named, named, strict=True))
        declared = [*scope.names, *scope.ranges, *scope.labels]
        once = len(labels) == len(named) and len(set(declared)) == len(variables) + len(named)
        scope.labels[ANY_LABEL] = ANY_LABEL
        apart = (scope.labels.keys().isdisjoint(outer.names) and not outer.ranges
                 and scope.ranges.keys().isdisjoint([name.rstrip(DIGITS) for name in scope.names]))
        return scope if once and apart and not any(ANY in name for name in declared) else None

    def _right(self, units: set[Unit], scope: Scope, types: dict[str, str]) -> bool:
        """Whether all of the units are right among these names."""
        fine = self._environment(types)
        met: Kinds | None = None
        new: list[Unit] = []
        keys: list[Hashable] = []
        for unit in units - fine:
            if isinstance(unit, Template) and unit.sort != "i":
                if unit.sort not in ("", ":"):
                    return False
                fine.add(unit)
                continue
            names = self._mentioned(unit)
            if names is None:
                return False
            met = met or self.module.kinds(scope)
            key = (unit, *[self._meaning(name, scope, met) for name in names]) if names else unit
            if not names or key not in fine:
                new.append(unit)
                keys.append(key)
        if met is not None and new:
            statements = tuple([statement for unit in new for statement in _statements(unit)])
            if any(True for _ in self.module.body(statements, scope, met)):
                return False
            fine.update(keys)
        return True

    def _environment(self, types: dict[str, str]) -> set[Hashable]:
        """The units, some with the meanings of their names, that are right where the registers of ranges have these types."""
        for known, fine in self.environments:
            if all(known.get(stem, type) == type for stem, type in types.items()):
                known.update(types)
                return fine
        fine = set()
        self.environments.append((types.copy(), fine))
        return fine

    def _mentioned(self, unit: Unit) -> tuple[str, ...] | None:
        """The names in a unit that are as they are written; None if it declares others, or hands on a parameter."""
        if unit not in self.mentioned:
            self.mentioned[unit] = _mentioned(unit)
        return self.mentioned[unit]

    def _meaning(self, name: str, scope: Scope, met: Kinds) -> Hashable:
        """What a name stands for, by the identity of what declared it."""
        known = scope.names.get(name) or scope.find(name)
        return id(known.variable) if known is not None else (met.name(name), id(self.module.declared.get(name)))


def _declared(body: Plain) -> tuple[list[tree.Variable], int]:
    """The variables that are declared before any instruction or block, and how many lines stand there."""
    found: list[tree.Variable] = []
    for number, template in enumerate(body.templates):
        if template.signs or template.sort not in ("", "=", ":"):
            return found, number
        found += [part[0] for part in template.parts if isinstance(part[0], tree.Variable)]
    return found, len(body.templates)


def _parts(body: Plain) -> tuple[list[Template], set[Unit]]:
    """The lines that stand in no block, and the different blocks without what no rule asks for."""
    lines: list[Template] = []
    blocks: set[Unit] = set()
    begin = depth = 0
    for number in body.braces:
        signs = body.templates[number].signs
        if depth == 0:
            lines += body.templates[begin:number]
            begin = number
        depth += (signs[0] == "{") - (signs[-1] == "}")
        if depth == 0:
            blocks.add(tuple([template for template in body.templates[begin:number + 1] if template.sort or template.signs]))
            begin = number + 1
    return lines + body.templates[begin:], blocks


def _statements(unit: Unit) -> list[tree.Statement]:
    if isinstance(unit, Template):
        return [made(part, 0) for part in unit.parts]
    stack: list[list[tree.Statement]] = [[]]
    for template in unit:
        if template.signs[:1] == "{":
            stack.append([])
        stack[-1] += [made(part, 0) for part in template.parts]
        if template.signs[-1:] == "}":
            block = tree.Block(tuple(stack.pop()))
            stack[-1].append(block)
    return stack[0]


def _mentioned(unit: Unit) -> tuple[str, ...] | None:
    found: dict[str, None] = {}
    for template in (unit,) if isinstance(unit, Template) else unit:
        for part in template.parts:
            if len(part) == 2:
                name, ranged = (part[0], False) if isinstance(part[0], str) else (part[0].name, part[0].count is not None)
                if ANY in name or (ranged and name[0] == "%"):
                    return None
            elif len(part) == 4:
                opcode, operands, guard, _ = part
                names = {name for operand in operands for name in names_in(operand)}
                if opcode in CALLS and ANY_PARAMETER in names:
                    return None
                if guard is not None:
                    names.add(guard.predicate)
                found.update(dict.fromkeys([name for name in names if ANY not in name and name not in FIXED]))
    return tuple(found)
