"""Language rules: every instruction against the table and the declared types, names and labels, calls, version and target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from ..dsl.module import has
from ..grammar import forms, match, tree, wording
from ..grammar.errors import Finding, Severity
from ..grammar.features import NEWEST
from ..grammar.gc_pause import gc_pause
from ..grammar.lazy import template_body
from ..grammar.operands import width
from ..grammar.special import RESERVED, SPECIAL_SINCE
from . import declarations, functions, initial, kinds, sections, taken
from .budget import Budget
from .kinds import Kinds
from .names import Scope, names_in, signatures
from .places import NOWHERE, Place, Places, finding
from .plain import Judge

GATES = ("version", "target")
"""Rules that say when an instruction came, not that it is none."""

RULES = {
    "opcode": "an opcode that PTX does not have for this target",
    "operands": "operands that the opcode does not take",
    "order": "modifiers in another order than PTX's, which ptxas takes (told only when asked for)",
    "version": "a .version that is not known, or an instruction that the module's .version does not have yet",
    "target": "a .target that is not known, or an instruction that the module's .target does not have",
    "undefined-name": "a register, variable, function or label that is not declared",
    "duplicate-name": "a register, variable, function or label that is declared twice in one scope",
    "call": "a call that does not fit the declaration or prototype of what it calls",
    "declaration": "a variable or function that cannot be declared so",
    "characters": "a character that is not ASCII, which ptxas takes nowhere in a text",
    "number": "a number of more than 64 bits, of which ptxas takes the lowest ones",
    "location": "a .file or .loc that ptxas does not take",
    "too-many": "the file has more findings than are told",
    "unfinished": "the protocol rules stopped before their end: the text asks for more steps than they take",
}

OPAQUE = {"texture": ("texref", "samplerref"), "sampler": ("samplerref", "texref"), "surface": ("surfref",)}
"""The variables that stand for what has no address."""

OLDEST = (8, 0)
"""The lowest version that the table tells apart: of a module that says a lower one nothing is said about when an instruction came."""

MOST = 10_000
"""Findings of one module that are told: a file of mistakes only would otherwise take hundreds of times its size."""

DECLARING = frozenset((tree.Variable, tree.Targets, tree.Prototype))
"""The statements whose names are known from there on."""

Strange = tuple[str, str, str, Severity, tuple[str, ...]]
Verdict = tuple[forms.Signature, ...]
_verdicts: dict[tuple[Any, ...], Verdict] = {}


def findings(module: tree.Module, places: Places, *, strict: bool = False) -> Iterator[Finding]:
    """The language findings of the whole module, in the order of the text. `strict`: also modifiers that stand in another order."""
    if kinds.crowded() or len(_verdicts) > kinds.MOST:
        kinds.forget()
        _verdicts.clear()
    with gc_pause():
        told = list(islice(_Module(module, places, strict).findings(), MOST + 1))
    if len(told) > MOST:
        line = told.pop().ptx_line
        where = f"; the next is at line {line}" if line else ""
        told.append(finding("too-many", f"there are more than {MOST} findings: the others are not told{where}", "correct these first",
                            NOWHERE, "error", "language"))
    return iter(told)


class _Module:
    def __init__(self, module: tree.Module, places: Places, strict: bool) -> None:
        self.module = module
        self.places = places
        self.strict = strict
        self.outer = Scope()
        self.functions: dict[str, bool] = {}
        self.declared: dict[str, tree.Function] = {}
        self.says = declarations.Given.of(module)
        self.budget = Budget()
        self.name = ""
        self.aliases: dict[str, str] = {}
        self.target = self.says.target
        number = int("".join(c for c in self.target if c.isdigit()) or 0)
        self.newer, self.older = number > 90, number < 90
        self.loc: tree.Loc | None = None
        self.fine: set[tuple[Any, ...]] = set()
        self.strange: dict[str, Strange | None] = {}
        self.given: tuple[tree.Variable, ...] = ()
        self.formal: tuple[tree.Variable, ...] = ()
        self.inputs: tuple[tree.Variable, ...] = ()
        self.known = kinds.Known()
        self.judge = Judge(self)

    def findings(self) -> Iterator[Finding]:
        yield from declarations.header(self.module)
        for item in self.module.items:
            if isinstance(item, tree.Variable):
                yield from self._variable(item)
            elif isinstance(item, tree.Alias):
                yield from functions.alias(item, self.declared, self.aliases, self.outer, NOWHERE, self.says)
                self.aliases[item.name] = item.target
            elif isinstance(item, tree.Function):
                yield from self._declared(item)
                if item.defined:
                    self.name = item.name
                    yield from self._function(item)
            elif isinstance(item, tree.Section):
                yield from sections.section(item)
            elif isinstance(item, tree.Directive) and item.name == "pragma":
                yield from sections.pragma(item, self._at(item), self.says)
        yield from self.budget.findings(self.module, self.says, self.places)

    # ------------------------------------------------------------------------------------------- names

    def _variable(self, variable: tree.Variable) -> Iterator[Finding]:
        """One of several declarations of a variable may be no `.extern`."""
        place = self._at(variable)
        yield from declarations.variable(variable, place, self.says, module=True)
        if variable.initializer is not None:
            yield from initial.valued(variable, place, self.says, lambda name: self._meaning(name, self.outer))
        self.budget.add(variable)
        known = self.outer.own(variable.name)
        if known is not None and "extern" in (known.variable.linkage, variable.linkage):
            if not variable.linkage:
                yield finding("declaration", f"`{variable.name}` was declared .extern, and is defined without a linkage here",
                              "define it .visible", place, "error", "language", variable.name)
            if not declarations.alike(known.variable, variable):
                yield finding("declaration", f"`{variable.name}` was declared as another variable before", "declare both alike", place,
                              "error", "language", variable.name)
            if variable.linkage != "extern":
                list(self.outer.declare(variable))
            return
        yield from self._declare(self.outer, variable)
        if variable.name in self.functions:
            yield self._duplicate(variable.name, self._at(variable))

    def _declared(self, function: tree.Function) -> Iterator[Finding]:
        name = function.name
        before = self.declared.get(name)
        if before is not None or not functions.plain_head(function):
            yield from functions.function(function, before, self._at(function), self.says)
        defined = self.functions.get(name)
        if (defined and function.defined) or self.outer.find(name) is not None:
            yield self._duplicate(name, self._at(function))
        self.functions[name] = bool(defined) or function.defined
        self.declared[name] = function

    def _meaning(self, name: str, scope: Scope) -> str:
        """What a name stands for in an initial value."""
        found = scope.find(name)
        if found is not None:
            return found.variable.space
        function = self.declared.get(name)
        return "" if function is None else "entry" if function.kind == "entry" else "function"

    def _declare(self, scope: Scope, variable: tree.Variable) -> Iterator[Finding]:
        for name in dict.fromkeys(scope.declare(variable)):
            yield self._duplicate(name, self._at(variable))

    def _duplicate(self, name: str, place: Place) -> Finding:
        return finding("duplicate-name", f"`{name}` is declared twice in this scope", "rename one of them", place, "error", "language",
                       name)

    def _at(self, statement: tree.Statement | tree.Function) -> Place:
        return self.places.of(getattr(statement, "position", None), self.loc)

    # ------------------------------------------------------------------------------------------- bodies

    def _function(self, function: tree.Function) -> Iterator[Finding]:
        self.given = function.parameters if function.kind == "entry" else ()
        self.inputs = function.parameters
        self.formal = (*function.returns, *function.parameters)
        templates = template_body(function)
        if templates is not None and self.judge.right(function, templates):
            return
        self.loc = None
        body, scope = function.body or (), Scope(self.outer)
        for variable in self.formal:
            yield from self._declare(scope, variable)
        yield from self._labels(body, scope)
        for name in scope.labels.keys() & {variable.name for variable in self.formal}:
            yield self._duplicate(name, self._at(function))
        first = 0
        while first < len(body) and isinstance(declared := body[first], tree.Variable):
            yield from self._local(declared, scope)
            first += 1
        met = self.kinds(scope)
        met.add_ranges(len(body))
        yield from self.body(body[first:], scope, met)

    def kinds(self, scope: Scope, outer: Kinds | None = None) -> Kinds:
        return Kinds(scope, self.functions, self.formal, self.known, outer, entry=bool(self.given), inputs=self.inputs)

    def _labels(self, body: tuple[tree.Statement, ...], scope: Scope) -> Iterator[Finding]:
        for name, statement in scope.take_labels(body):
            yield self._duplicate(name, self._at(statement))
        for word in RESERVED & scope.labels.keys():
            yield finding("declaration", f"`{word}` is a word of PTX, so no label can have that name", "take another name", NOWHERE,
                          "error", "language", word)

    def _local(self, variable: tree.Variable, scope: Scope) -> Iterator[Finding]:
        if not declarations.plain(variable):
            place = self._at(variable)
            yield from declarations.variable(variable, place, self.says)
            yield from initial.valued(variable, place, self.says, lambda name: self._meaning(name, scope))
            self.budget.add(variable, self.name)
        yield from self._declare(scope, variable)
        if variable.name in scope.labels:
            yield self._duplicate(variable.name, self._at(variable))

    def body(self, body: tuple[tree.Statement, ...], scope: Scope, met: Kinds) -> Iterator[Finding]:
        """The statements of a scope whose labels are known; another name is known from its declaration on."""
        fine, guards, first = self.fine, met.guards, 0
        declared = [number for number, statement in enumerate(body, 1) if type(statement) in DECLARING]
        for last in (*declared, len(body)):
            part = body[first:last]
            first = last
            instructions = [statement for statement in part if type(statement) is tree.Instruction]
            found = met.keys(instructions)
            if fine.issuperset(found) and all(met.guarded(statement.guard) for statement in instructions
                                              if statement.guard is not None and id(statement.guard) not in guards):
                part = tuple([statement for statement in part if type(statement) is not tree.Instruction])
            keys = iter(found)
            for statement in part:
                if type(statement) is tree.Instruction:
                    guard, key = statement.guard, next(keys)
                    good = guard is None or id(guard) in guards or met.guarded(guard)
                    if not good or key not in fine:
                        yield from self._instruction(statement, scope, key, good)
                elif isinstance(statement, tree.Variable):
                    yield from self._local(statement, scope)
                    met.alone()
                elif isinstance(statement, tree.Loc):
                    self.loc = statement
                elif isinstance(statement, tree.Block):
                    yield from self._block(statement, scope, met)
                elif isinstance(statement, tree.Targets):
                    yield from self._targets(statement, scope)
                    met.alone()
                elif isinstance(statement, tree.Prototype):
                    scope.listed.add(statement.label)
                    met.alone()
                    yield from functions.prototype(statement, self._at(statement), self.says)

    def _targets(self, targets: tree.Targets, scope: Scope) -> Iterator[Finding]:
        branch = targets.kind == "branchtargets"
        scope.listed.add(targets.label)
        for name in targets.names:
            if (scope.label(name) is None) if branch else (name not in self.functions):
                yield self._undefined(name, "label" if branch else "function", self._at(targets))
            elif branch and name != targets.label and scope.stands(name) != "a label":
                yield finding("operands", f"`{targets.label}` lists `{name}`, which is {scope.stands(name)}", "list labels of "
                              "instructions", self._at(targets), "error", "language", name)

    def _block(self, block: tree.Block, scope: Scope, met: Kinds) -> Iterator[Finding]:
        """The statements of a block; what another one in the same place has declared alike was judged there."""
        body = block.body
        others = tuple([statement for statement in body if type(statement) is not tree.Instruction and type(statement) is not tree.Loc])
        if not others:
            yield from self.body(body, scope, met)
            return
        variables = tuple([statement for statement in body[:len(others)] if isinstance(statement, tree.Variable)])
        plain = len(variables) == len(others)
        inner = met.blocks.get(variables) if plain else None
        if inner is None:
            within, wrong = Scope(scope), False
            yield from self._labels(body, within)
            if not plain:
                yield from self.body(body, within, self.kinds(within))
                return
            for variable in variables:
                for said in self._local(variable, within):
                    wrong = True
                    yield said
            inner = self.kinds(within, met)
            if not wrong:
                met.blocks[variables] = inner
        yield from self.body(body[len(variables):], inner.scope, inner)

    def _instruction(self, instruction: tree.Instruction, scope: Scope, key: tuple[Any, ...], guarded: bool) -> Iterator[Finding]:
        """One instruction whose like has not been met in this module, a call, or one that has a fault.

        `guarded`: its guard, if any, is a predicate."""
        called = instruction.mnemonic == "call"
        verdict = _verdicts.get(key) if guarded else None
        place: Place | None = None
        if verdict is None:
            place = self._at(instruction)
            undefined = list(dict.fromkeys(self._unknown(instruction, scope)))
            for name in undefined:
                yield self._undefined(name, "name", place)
            strange = self._strange(instruction.opcode)
            if strange is not None:
                rule, sentence, fix, severity, expected = strange
                yield finding(rule, sentence, fix, place, severity, "language", instruction.opcode, expected)
            if undefined or strange is not None:
                return
            if not guarded and (guard := instruction.guard) is not None and self._is_no_register(guard.predicate, scope):
                sentence = f"`{instruction.opcode}`: the guard `{guard.predicate}` is no register"
                yield finding("operands", sentence, "give a predicate", place, "error", "language", guard.predicate, ("a predicate",))
                return
            found = match.explain(instruction, scope.type)
            if isinstance(found, match.Mismatch):
                yield self._mismatch(instruction, found, place)
                return
            misnamed = [name for signature, values in found[:1] for parameter, value in zip(signature.parameters, values, strict=True)
                        for name in self._named(signature, parameter, value, scope, place)]
            yield from misnamed
            verdict = tuple(signature for signature, _ in found)
            if not misnamed and not any(signature.form.rules for signature in verdict):
                _verdicts[key] = verdict
        if called:
            yield from self._call(instruction, scope, place or self._at(instruction))
        signature = min(verdict, key=self._ease)
        good = True
        for said in (*self._gates(instruction, signature), *self._specials(instruction, scope)):
            good = False
            yield said
        if self.strict and signature.opcode != instruction.opcode:
            good = False
            yield finding("order", f"`{instruction.opcode}` is `{signature.opcode}` in PTX's order", f"write `{signature.opcode}`",
                          place or self._at(instruction), "review", "language", instruction.opcode, (signature.opcode,))
        if good and not called and key in _verdicts:
            self.fine.add(key)

    def _is_no_register(self, name: str, scope: Scope) -> bool:
        """Whether it is a label, a function, a lane of a vector or a constant. None of these is a predicate."""
        known = name in self.functions or scope.label(name) is not None or scope.part(name) is not None
        return scope.type(name) is None and (known or name in ("WARP_SZ", "_"))

    def _mismatch(self, instruction: tree.Instruction, found: match.Mismatch, place: Place) -> Finding:
        severity: Severity = "review" if self.module.version > NEWEST and found.depth < 0 else "error"  # it may have other operands now
        return finding("operands", found.sentence, "give the operands that the opcode's form takes", place, severity, "language",
                       found.words or instruction.opcode, found.expected)

    def _strange(self, opcode: str) -> Strange | None:
        """Why there is no such opcode: the rule, the sentence, the way out, how bad it is, and what is expected; None if there is one."""
        if opcode not in self.strange:
            found = None if signatures(opcode) else match.explain(tree.Instruction(opcode), lambda name: None)
            self.strange[opcode] = None if not isinstance(found, match.Mismatch) else self._missing(opcode, found)
        return self.strange[opcode]

    def _missing(self, opcode: str, found: match.Mismatch) -> Strange:
        later = forms.later(opcode)
        if self.newer:
            return "opcode", f"{found.sentence}; .target is {self.target}", "the table describes sm_90a: assemble it to be sure", "info", ()
        if later is not None:
            version = ".".join(map(str, later.since))
            return ("target", f"`{opcode}` needs {later.target} and PTX {version}, and the module says .target {self.target}",
                    f"write .target {later.target}", "error", (later.target, f"PTX {version}"))
        if self.module.version > NEWEST:
            version, newest = (".".join(map(str, number)) for number in (self.module.version, NEWEST))
            return ("opcode", f"{found.sentence}; the module says .version {version}, and the table has PTX {newest}",
                    "assemble it with the ptxas of a newer toolkit to be sure", "review", ())
        return "opcode", found.sentence, "write an opcode that the table has", "error", found.expected

    def _unknown(self, instruction: tree.Instruction, scope: Scope) -> Iterator[str]:
        """Names that are neither declared nor special nor a label or function; sinks are no names."""
        names = [name for operand in instruction.operands for name in names_in(operand)]
        if instruction.guard is not None:
            names.append(instruction.guard.predicate)
        for name in names:
            if Kinds(scope, self.functions, ()).name(name) == kinds.UNKNOWN and name != "WARP_SZ":
                yield name

    def _named(self, signature: forms.Signature, parameter: forms.Parameter, value: tree.Operand | None, scope: Scope,
               place: Place) -> Iterator[Finding]:
        """A label, function or variable of another kind than the operand asks for."""
        operand = parameter.operand
        if operand.kind == "address":
            yield from self._addressed(signature, parameter, value, scope, place)
        elif match.lone(signature, parameter) or (isinstance(value, tree.Offset) and (scope.type(value.base.name) or ".")[0] != "."):
            yield taken.odd(signature, parameter, place)
        elif isinstance(value, tree.Integer | tree.Vector):
            yield from taken.cut(signature, parameter, value, place)
        if not isinstance(value, tree.Name):
            return
        name = value.name
        if operand.variable or operand.kind == "symbol":
            yield from self._taken(signature, parameter, name, scope, place)
        if operand.kind not in ("label", "function"):
            return
        if operand.kind == "label" and scope.find(name) is None and scope.label(name) is not None:
            wanted = {"bra": "a label of an instruction", "brx": "a list of labels"}.get(
                signature.form.mnemonic, "a prototype or a list of functions")
            if scope.stands(name) != "a label" and not scope.is_listed(name):
                yield finding("operands", f"`{signature.opcode}`: operand `{parameter.name}` is `{name}`, {scope.stands(name)} that "
                              "stands after this line", "place it before", place, "error", "language", name)
            if scope.stands(name) not in wanted:
                yield finding("operands", f"`{signature.opcode}`: operand `{parameter.name}` must be {wanted}, and `{name}` is "
                              f"{scope.stands(name)}", f"give {wanted}", place, "error", "language", name, (wanted,))
        # The prototype of an indirect call is a label, or the name of a table of functions.
        if scope.find(name) is None and (scope.label(name) is None if operand.kind == "label" else name not in self.functions):
            yield self._undefined(name, operand.kind, place)

    def _taken(self, signature: forms.Signature, parameter: forms.Parameter, name: str, scope: Scope, place: Place) -> Iterator[Finding]:
        """The address of a label, or one of 64 bits in a register of 32."""
        known = scope.type(name)
        sentence = ""
        if known is None and scope.part(name) is None and name not in self.functions and scope.label(name) is not None:
            sentence = f"is `{name}`, a label, which has no address"
        elif (found := scope.find(name)) is not None and found.type == ".param" and found.variable not in self.formal:
            sentence = f"is `{name}`, a parameter of a call, whose address cannot be taken"
        elif found is not None and found.variable.type.endswith("ref") and signature.opcode.rpartition(".")[2] not in ("u64", "pred"):
            sentence = f"is `{name}`, a .{found.variable.type}, which is moved as .u64"
        elif known in (".global", ".const") and width(str(parameter.operand.type) or signature.opcode.rpartition(".")[2]) == 32:
            sentence = f"is `{name}` in {known}, whose address has 64 bits"
        if sentence:
            yield finding("operands", f"`{signature.opcode}`: operand `{parameter.name}` {sentence}", "give a variable or a register",
                          place, "error", "language", name, wording.expected(parameter.operand))

    def _addressed(self, signature: forms.Signature, parameter: forms.Parameter, value: tree.Operand | None, scope: Scope,
                   place: Place) -> Iterator[Finding]:
        """An address by a name that has none, a texture as memory or the other way round, a kernel's own parameter written."""
        base = value.base if isinstance(value, tree.Address | tree.Element) else None
        if not isinstance(base, tree.Name):
            return

        def wrong(sentence: str, expected: str) -> Finding:
            return finding("operands", f"`{signature.opcode}`: operand `{parameter.name}` {sentence}", f"give {expected}", place, "error",
                           "language", name, (expected,))

        name, known = base.name, scope.find(base.name)
        if known is None:
            if scope.part(name) is None:
                yield wrong(f"is at `{name}`, which is a label or a function", "a variable or a register")
            return
        queried = signature.form.mnemonic == "txq" and "_mode" not in signature.opcode
        opaque = OPAQUE.get(parameter.operand.tag, ())[:1 if queried else None]
        reference = known.variable.type.endswith("ref")
        if known.type[:1] == "." and (known.variable.type not in opaque if opaque else reference):
            yield wrong(f"is at `{name}`, which is a .{known.variable.type}", f"a .{opaque[0]}" if opaque else "a variable")
        if isinstance(value, tree.Address) and not kinds.near(value.offset):
            far = wrong(f"is displaced by {value.offset} bytes, which 32 bits do not hold", "an offset of 32 bits")
            yield replace(far, severity="review")
        written = any("w" in access.mode and access.operand == parameter.name for access in signature.form.effects.memory)
        if written and any(known.variable is each for each in self.inputs):
            yield wrong(f"writes `{name}`, and what is passed to it a kernel or a function only reads", "another variable")
        if isinstance(value, tree.Element) and known.type[:1] == "." and not known.variable.shape:
            yield wrong(f"has an index into `{name}`, which is no array", "an array")

    def _call(self, instruction: tree.Instruction, scope: Scope, place: Place) -> Iterator[Finding]:
        lists = [operand for operand in instruction.operands if isinstance(operand, tree.Arguments)]
        names = [operand.name for operand in instruction.operands if isinstance(operand, tree.Name)]
        returned = lists.pop(0) if instruction.operands and isinstance(instruction.operands[0], tree.Arguments) else None
        given = lists[0] if lists else None
        wanted = self.declared.get(names[0]) if names else None
        every: list[tree.Function | tree.Prototype | None] = [wanted]
        for name in names[1:]:
            table, prototype = scope.table(name), scope.prototype(name)
            if table:
                every = [*dict.fromkeys(self.declared.get(each) for each in table)]
            elif prototype is not None:
                every = [prototype]
        for callee in every:
            if isinstance(callee, tree.Function) and callee.kind == "entry":
                if callee is not wanted:
                    continue
                yield finding("call", f"`{callee.name}` is an entry, which is not called", "call a .func", place, "error", "language",
                              callee.name)
            elif callee is not None and (found := [*functions.call(names[0], callee, returned, given, scope, place)]):
                yield from found
                return

    def _undefined(self, name: str, what: str, place: Place) -> Finding:
        said = {"label": "label of this function", "function": "declared function"}.get(what, "declared name")
        fix = "place the label in this function" if what == "label" else "declare it before this line"
        return finding("undefined-name", f"`{name}` is no {said} here", fix, place, "error", "language", name)

    def _specials(self, instruction: tree.Instruction, scope: Scope) -> Iterator[Finding]:
        """Special registers that the version or the target has not."""
        for operand in instruction.operands:
            for name in names_in(operand):
                if name in SPECIAL_SINCE and scope.type(name) is None:
                    yield from self.says.lacks(name, self._at(instruction), SPECIAL_SINCE[name])

    def _ease(self, signature: forms.Signature) -> tuple[bool, tuple[int, int]]:
        """Of several forms that fit, the one that this target has, of the lowest version."""
        return not has(self.target, signature.target), signature.since

    def _gates(self, instruction: tree.Instruction, signature: forms.Signature) -> Iterator[Finding]:
        if signature.since > max(self.module.version, OLDEST):
            needed, given = (".".join(map(str, version)) for version in (signature.since, self.module.version))
            yield finding("version", f"`{instruction.opcode}` needs PTX {needed}, and the module says .version {given}",
                          f"write .version {needed}", self._at(instruction), "error", "language", instruction.opcode, (f"PTX {needed}",))
        # The table was measured for sm_90: what an older target has not is not in it.
        if not self.newer and not has(self.target, signature.target) and not (self.older and signature.target == "sm_90"):
            yield finding("target", f"`{instruction.opcode}` needs {signature.target}, and the module says .target {self.target}",
                          f"write .target {signature.target}", self._at(instruction), "error", "language", instruction.opcode,
                          (signature.target,))
