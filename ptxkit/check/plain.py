"""The language rules at the templates of a body, for a function of whose nodes nobody has asked.

Each template, and each block of them, is judged once for all functions whose registers have the same types: as the statements that it
is with `ANY` for each number, by what its other names stand for, and by the parameters of what it calls. Then a body is right if every
register, label, parameter and function that it uses is declared. Here nothing is ever said against a function: what is found wrong, and
what cannot be told, is judged by its nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from ..grammar import tree
from ..grammar.lazy import ANY, ANY_CALLEE, ANY_LABEL, ANY_PARAMETER, DIGITS, Template, TemplateBody
from ..grammar.special import RESERVED, SPECIAL
from . import declarations, functions
from .kinds import Kinds
from .names import Declared, Scope, match_type, names_in
from .places import NOWHERE

if TYPE_CHECKING:
    from .language import _Module

CALLS = ("call", "call.uni")
"""The opcodes of a call."""
FIXED = {"_", *(name for name in SPECIAL if "." in name)}
"""The names that always stand for the same."""


class Lines(NamedTuple):
    """Those of a block with its braces, or one that calls; and the numbers of the heads of what they call."""

    templates: tuple[Template, ...]
    heads: tuple[int, ...]


Unit = Template | Lines


class Declaring(NamedTuple):
    """What a line declares: variables, and ranges of registers with their types. `right`: that nothing is to be said about it."""

    right: bool
    variables: list[tree.Variable]
    ranges: dict[str, tree.Variable]
    types: dict[str, str]


class Judge:
    """What of a module's templates is known to be right."""

    def __init__(self, module: _Module) -> None:
        self.module = module
        self.environments: list[tuple[dict[str, str], set[Hashable]]] = []
        self.mentioned: dict[Template | tuple[Template, ...], tuple[str, ...] | None] = {}
        self.heads: dict[int, int] = {}  # by the identity of the function
        self.numbers: dict[Hashable, int] = {}
        self.lines: dict[Template, Declaring] = {}

    def right(self, function: tree.Function, body: TemplateBody) -> bool:
        """Whether there is certainly nothing to say about the body and the names of the function's parameters."""
        variables = [*function.returns, *function.parameters]
        for variable in variables:
            if variable.count is not None or ANY in variable.name:
                return False
        ranges: dict[str, tree.Variable] = {}
        types: dict[str, str] = {}
        declared, first = 0, 0
        known_lines = self.lines
        for template in body.templates:
            line = known_lines.get(template)
            if line is None:
                if template.braces or template.kind not in ("", "declarations"):
                    break
                line = known_lines[template] = _declaring(template, self.module.says)
            if not line.right:
                return False
            first += 1
            if line.types:
                declared += len(line.ranges)
                ranges.update(line.ranges)
                types.update(line.types)
            variables += line.variables
        called = body.callees()
        heads = self._heads(called)
        if heads is None:
            return False
        lines, units = _parts(body, first, heads)
        labels: list[str] = []
        targets: list[str] = []
        if body.brace_lines or not body.label_templates.isdisjoint(units):
            found = _labels(body, lines)
            if found is None:
                return False
            labels, targets = found
        if not RESERVED.isdisjoint(labels):
            return False
        outer = self.module.outer
        names = [variable.name for variable in variables]
        once = len({*names, *ranges, *labels}) == len(names) + declared + len(labels)
        if not once or outer.ranges or not outer.names.keys().isdisjoint([*labels, *called]):
            return False
        if not {*names, *ranges, *labels}.isdisjoint(called):
            return False
        if not ranges.keys().isdisjoint([name.rstrip(DIGITS) for name in names]):
            return False
        prefix = body.parameter_prefix
        own = [variable for variable in function.parameters if variable.name.startswith(prefix)]
        given: list[str] = []
        if own and all(variable.space == "param" and not variable.type.endswith("ref") for variable in own):
            given = [variable.name for variable in own]
            types[ANY_PARAMETER] = function.kind
        known = body.literal_words.union(body.words_for(targets, given, called))
        right = self._used(body, ranges, known) and self._right(units, Names(
            self.module, variables, ranges, types, labels, own, dict(zip(heads, called, strict=True))))
        if right:
            for variable in (*variables, *_declared(units)):
                if variable.space in ("shared", "const"):
                    self.module.budget.add(variable, function.name)
        return right

    def _heads(self, called: list[str]) -> list[int] | None:
        """For each function that is called the number of its head: one for all whose parameters are the same to a call.

        None if one is not declared.
        """
        found: list[int] = []
        for name in called:
            function = self.module.declared.get(name)
            if function is None:
                return None
            number = self.heads.get(id(function))
            if number is None:
                head = function.kind, functions.shapes(function.returns), functions.shapes(function.parameters)
                number = self.heads[id(function)] = self.numbers.setdefault(head, len(self.numbers))
            found.append(number)
        return found

    def _used(self, body: TemplateBody, ranges: dict[str, tree.Variable], known: set[str]) -> bool:
        """Whether all words are known or registers of ranges. `known` may be added to."""
        counts = {stem: variable.count or 0 for stem, variable in ranges.items()}
        if sum(counts.values()) > 1000 + 3 * len(body.words) // 4:  # many of them are not used
            return all(_within(counts, word) for word in {*body.words}.difference(known))
        registers = self.module.known.registers
        self.module.known.names = self.module.known.names or body.register_names
        for stem, count in counts.items():
            known.update(islice(registers(stem, count), count))
        return known.issuperset(body.words)

    def _right(self, units: set[Unit], names: Names) -> bool:
        """Whether all of the units are right among these names."""
        fine = self._environment(names.types)
        new: list[Unit] = []
        keys: list[Hashable] = []
        for unit in units - fine:
            if isinstance(unit, Template) and unit.kind != "instructions":
                if unit.kind not in ("", "label"):
                    return False
                fine.add(unit)
                continue
            mentioned = self._mentioned(unit)
            if mentioned is None:
                return False
            key = (unit, *map(names.meaning, mentioned)) if mentioned else unit
            if not mentioned or key not in fine:
                new.append(unit)
                keys.append(key)
        if new:
            statements = tuple([statement for unit in new for statement in _statements(unit, names.called)])
            if any(True for _ in self.module.body(statements, names.kinds.scope, names.kinds)):
                return False
            fine.update(keys)
        return True

    def _environment(self, types: dict[str, str]) -> set[Hashable]:
        """The units, some with the meanings of their names, that are right where the registers of ranges have these types."""
        for known, fine in self.environments:
            if types.items() <= known.items() or all(known.get(stem, type) == type for stem, type in types.items()):
                known.update(types)
                return fine
        fine = set()
        self.environments.append((types.copy(), fine))
        return fine

    def _mentioned(self, unit: Unit) -> tuple[str, ...] | None:
        """The names in a unit that are as they are written; None if it declares others, or hands on a parameter."""
        templates = unit if isinstance(unit, Template) else unit.templates
        if templates not in self.mentioned:
            self.mentioned[templates] = _mentioned((templates,) if isinstance(templates, Template) else templates)
        return self.mentioned[templates]


class Names:
    """What the names of a body stand for."""

    def __init__(self, module: _Module, variables: list[tree.Variable], ranges: dict[str, tree.Variable], types: dict[str, str],
                 labels: list[str], own: list[tree.Variable], called: dict[int, str]) -> None:
        """`types`: of the registers of ranges, and what the function is if it has parameters of its `own`. `called`: a function for each
        head."""
        self.module, self.ranges, self.types, self.labels, self.own, self.called = module, ranges, types, labels, own, called
        self.variables = {variable.name: variable for variable in variables}

    @cached_property
    def kinds(self) -> Kinds:
        scope = Scope(self.module.outer)
        for name, variable in self.variables.items():
            scope.names[name] = Declared(match_type(variable), name, variable)
        for stem, variable in self.ranges.items():
            scope.ranges[stem], scope.types[stem] = variable, self.types[stem]
            scope.names[stem + ANY] = Declared(self.types[stem], stem, variable)
        if ANY_PARAMETER in self.types:
            scope.names[ANY_PARAMETER] = Declared(".param", ANY_PARAMETER, self.own[0])
        scope.labels = {name: name for name in (*self.labels, ANY_LABEL)}
        return self.module.kinds(scope)

    def meaning(self, name: str) -> Hashable:
        """What a name stands for, by the identity of what declared it."""
        variable = self.variables.get(name)
        if variable is None and (known := self.module.outer.names.get(name)) is not None:
            variable = known.variable
        if variable is not None:
            return id(variable)
        if name in SPECIAL and name.rstrip(DIGITS) not in self.ranges:
            return name
        return self.kinds.name(name), id(self.module.declared.get(name))


def _declaring(template: Template, says: declarations.Given) -> Declaring:
    right = True
    variables: list[tree.Variable] = []
    ranges: dict[str, tree.Variable] = {}
    for variable in template.statements if template.kind else ():
        assert isinstance(variable, tree.Variable)
        name = variable.name
        fine = declarations.plain(variable) or not any(True for _ in declarations.variable(variable, NOWHERE, says))
        if ANY in name or not fine or variable.initializer is not None:  # what symbols stand for depends on where they stand
            right = False
        if variable.count is None:
            variables.append(variable)
        else:
            right = right and variable.space == "reg" and name[-1] not in DIGITS and name not in ranges
            ranges[name] = variable
    return Declaring(right, variables, ranges, {name: match_type(variable) for name, variable in ranges.items()})


def _declared(units: set[Unit]) -> Iterator[tree.Variable]:
    """What blocks declare."""
    for unit in units:
        for template in unit.templates if isinstance(unit, Lines) else ():
            if template.kind == "declarations":
                yield from [statement for statement in template.statements if isinstance(statement, tree.Variable)]


def _within(counts: dict[str, int], word: str) -> bool:
    """Whether a register is one of ranges of so many."""
    stem = word.rstrip(DIGITS)
    digits = word[len(stem):]
    return 0 < len(digits) < 11 and int(digits) < counts.get(stem, 0)


def _parts(body: TemplateBody, first: int, heads: list[int]) -> tuple[list[Template], set[Unit]]:
    """The lines that stand in no block; and without the first ones, the different lines, and blocks without what no rule asks for.

    `heads`: of what is called, in the order of the text.
    """
    if not body.brace_lines and not body.call_lines:
        return body.templates, {*islice(body.templates, first, None)}
    templates, calls = body.templates, body.call_lines
    each = _shared(heads, [templates[number].callees for number in calls])
    lines: list[Template] = []
    units: set[Unit] = set()
    blocks: set[tuple[Template, ...]] = set()  # those without calls
    begin = depth = done = 0  # `done`: how many of the calls stand in a block or were seen to stand in none
    for number in (*body.brace_lines, len(templates)):
        if depth == 0:
            lines += templates[begin:number]
            begin = number
            while done < len(calls) and calls[done] < number:
                units.add(Lines((templates[calls[done]],), each[done]))
                done += 1
            if number == len(templates):
                break
        braces = templates[number].braces
        depth += (braces[0] == "{") - (braces[-1] == "}")
        if depth == 0:
            told = tuple([template for template in templates[begin:number + 1] if template.kind or template.braces])
            begin = number + 1
            if done < len(calls) and calls[done] < begin:
                stop = bisect_right(calls, number, done)
                units.add(Lines(told, tuple(chain.from_iterable(each[done:stop]))))
                done = stop
            else:
                blocks.add(told)
    units.update([Lines(told, ()) for told in blocks])
    others = {*islice(lines, first, None)}
    return lines, units.union(others.difference([templates[number] for number in calls]) if calls else others)


def _shared(heads: Iterable[int], counts: list[int]) -> list[tuple[int, ...]]:
    """The heads, so many in each part."""
    given = iter(heads)
    return [tuple(islice(given, count)) for count in counts]


def _labels(body: TemplateBody, lines: list[Template]) -> tuple[list[str], list[str]] | None:
    """The labels of such lines of a body, and which of them stand in no template; None if some of these stand elsewhere."""
    labels = [label.name for template in lines if template.kind == "label"
              for label in template.statements if isinstance(label, tree.Label)]
    named = [*filter(ANY_LABEL.__ne__, labels)]
    targets = body.labels() if body.brace_lines or len(named) < len(labels) else []
    named += targets
    return (named, targets) if len(named) == len(labels) and not any(ANY in name for name in named) else None


def _statements(unit: Unit, called: dict[int, str]) -> list[tree.Statement]:
    """The statements of a unit, with a function for each head."""
    if isinstance(unit, Template):
        return list(unit.statements)
    names = iter([called[head] for head in unit.heads])
    stack: list[list[tree.Statement]] = [[]]
    for template in unit.templates:
        if template.braces[:1] == "{":
            stack.append([])
        stack[-1] += _calling(template.statements, names) if template.callees else template.statements
        if template.braces[-1:] == "}":
            block = tree.Block(tuple(stack.pop()))
            stack[-1].append(block)
    return stack[0]


def _calling(statements: Iterable[tree.Statement], names: Iterator[str]) -> list[tree.Statement]:
    """The statements of a line with the names of the functions that they call."""
    hole = tree.Name(ANY_CALLEE)
    found: list[tree.Statement] = []
    for statement in statements:
        if isinstance(statement, tree.Instruction):
            operands = tuple([tree.Name(next(names)) if operand == hole else operand for operand in statement.operands])
            statement = tree.Instruction(statement.opcode, operands, statement.guard, statement.position)
        found.append(statement)
    return found


def _mentioned(templates: Iterable[Template]) -> tuple[str, ...] | None:
    found: dict[str, None] = {}
    own: set[str] = set()  # what a block declares at its very beginning
    depth, begins = 0, True
    for template in templates:
        depth += template.braces[:1] == "{"
        for statement in template.statements:
            if isinstance(statement, tree.Label | tree.Variable):
                name = statement.name
                ranged = isinstance(statement, tree.Variable) and statement.count is not None
                if ANY in name or (ranged and name[0] == "%") or depth < 1:
                    return None
                if begins and depth == 1 and not ranged and isinstance(statement, tree.Variable):
                    own.add(name)
            elif isinstance(statement, tree.Instruction):
                begins = False
                names = {name for operand in statement.operands for name in names_in(operand)}
                if statement.opcode in CALLS and ANY_PARAMETER in names:
                    return None
                if statement.guard is not None:
                    names.add(statement.guard.predicate)
                found.update(dict.fromkeys([name for name in names if ANY not in name and name not in FIXED and name not in own]))
        depth -= template.braces[-1:] == "}"
    return tuple(found)
