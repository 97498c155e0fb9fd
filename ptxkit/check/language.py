"""Language rules: every instruction against the table and the declared types, names and labels, version and target."""

from __future__ import annotations

from collections.abc import Iterator

from grammar import forms, match, tree
from grammar.errors import Finding
from grammar.schema import Operand
from grammar.special import SPECIAL

from ..module import has
from .names import Scope, bound, names_in, signatures
from .places import Place, Places, finding

OUTSIDE = frozenset((
    "tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep", "vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad",
    "vset", *(f"{name}{lanes}" for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset") for lanes in (2, 4))))
"""PTX of sm_90 that the table does not have (textures, surfaces, video): not judged."""

GATES = ("version", "target")
"""Rules that say when an instruction came, not that it is none."""

RULES = {
    "opcode": "an opcode that PTX does not have for this target",
    "operands": "operands that the opcode does not take",
    "version": "an instruction that the module's .version does not have yet",
    "target": "an instruction that the module's .target does not have",
    "undefined-name": "a register, variable, function or label that is not declared",
    "duplicate-name": "a register, variable, function or label that is declared twice in one scope",
}


def findings(module: tree.Module, places: Places) -> Iterator[Finding]:
    """The language findings of the whole module, in the order of the text."""
    yield from _Module(module, places).findings()


class _Module:
    def __init__(self, module: tree.Module, places: Places) -> None:
        self.module = module
        self.places = places
        self.outer = Scope()
        self.functions: dict[str, bool] = {}
        self.target = next((name for name in module.target if name.startswith("sm_")), "sm_90a")
        self.newer = int("".join(c for c in self.target if c.isdigit()) or 0) > 90
        self.loc: tree.Loc | None = None

    def findings(self) -> Iterator[Finding]:
        for item in self.module.items:
            if isinstance(item, tree.Variable):
                yield from self._variable(item)
            elif isinstance(item, tree.Alias):
                self.functions.setdefault(item.name, False)
            elif isinstance(item, tree.Function):
                yield from self._declared(item)
                if item.body is not None:
                    self.loc = None
                    yield from self._function(item, item.body)

    # ------------------------------------------------------------------------------------------- names

    def _variable(self, variable: tree.Variable) -> Iterator[Finding]:
        """One of several declarations of a variable may be no `.extern`."""
        known = self.outer.names.get(variable.name)
        if known is not None and "extern" in (known.variable.linkage, variable.linkage):
            if variable.linkage != "extern":
                list(self.outer.declare(variable))
            return
        yield from self._declare(self.outer, variable)
        if variable.name in self.functions:
            yield self._duplicate(variable.name, self._at(variable))

    def _declared(self, function: tree.Function) -> Iterator[Finding]:
        defined = self.functions.get(function.name)
        if (defined and function.body is not None) or self.outer.find(function.name) is not None:
            yield self._duplicate(function.name, self._at(function))
        self.functions[function.name] = bool(defined) or function.body is not None

    def _declare(self, scope: Scope, variable: tree.Variable) -> Iterator[Finding]:
        for name in dict.fromkeys(scope.declare(variable)):
            yield self._duplicate(name, self._at(variable))

    def _duplicate(self, name: str, place: Place) -> Finding:
        return finding("duplicate-name", f"`{name}` is declared twice in this scope", "rename one of them", place, "error", "language")

    def _at(self, statement: tree.Statement | tree.Function) -> Place:
        return self.places.of(getattr(statement, "position", None), self.loc)

    # ------------------------------------------------------------------------------------------- bodies

    def _function(self, function: tree.Function, body: tuple[tree.Statement, ...]) -> Iterator[Finding]:
        scope = Scope(self.outer)
        for variable in (*function.returns, *function.parameters):
            yield from self._declare(scope, variable)
        yield from self._body(body, scope)

    def _body(self, body: tuple[tree.Statement, ...], scope: Scope) -> Iterator[Finding]:
        """A name is known from its declaration on, a label in its whole scope."""
        for name, statement in scope.take_labels(body):
            yield self._duplicate(name, self._at(statement))
        for statement in body:
            if isinstance(statement, tree.Variable):
                yield from self._declare(scope, statement)
                if statement.name in scope.labels:
                    yield self._duplicate(statement.name, self._at(statement))
            elif isinstance(statement, tree.Loc):
                self.loc = statement
            elif isinstance(statement, tree.Block):
                yield from self._body(statement.body, Scope(scope))
            elif isinstance(statement, tree.Targets):
                for name in statement.names:
                    known = scope.label(name) is not None if statement.kind == "branchtargets" else name in self.functions
                    if not known:
                        yield self._undefined(name, "label" if statement.kind == "branchtargets" else "function", self._at(statement))
            elif isinstance(statement, tree.Instruction):
                yield from self._instruction(statement, scope)

    def _instruction(self, instruction: tree.Instruction, scope: Scope) -> Iterator[Finding]:
        if instruction.mnemonic in OUTSIDE:
            return
        place = self._at(instruction)
        undefined = list(dict.fromkeys(self._unknown(instruction, scope)))
        for name in undefined:
            yield self._undefined(name, "name", place)
        found = None if undefined else bound(instruction, scope.type)
        if found is not None and (instruction.guard is None or scope.type(instruction.guard.predicate) == "pred"):
            signature, values = found
            yield from self._gates(instruction, signature, place)
            for parameter, value in zip(signature.parameters, values, strict=True):
                yield from self._named(parameter.operand, value, scope, place)
            return
        if undefined:
            return
        sentence = match.check(instruction, scope.type) or f"`{instruction.opcode}` is not in the table"
        if not signatures(instruction.opcode):
            if self.newer:
                yield finding("opcode", f"{sentence}; .target is {self.target}", "the table describes sm_90a: assemble it to be sure",
                              place, "info", "language")
            else:
                yield finding("opcode", sentence, "write an opcode that the table has", place, "error", "language")
            return
        yield finding("operands", sentence, "give the operands that the opcode's form takes", place, "error", "language")

    def _unknown(self, instruction: tree.Instruction, scope: Scope) -> Iterator[str]:
        """Names that are neither declared nor special nor a label or function; sinks are no names."""
        names = [name for operand in instruction.operands for name in names_in(operand)]
        if instruction.guard is not None:
            names.append(instruction.guard.predicate)
        for name in names:
            if (name not in ("_", "WARP_SZ") and name not in SPECIAL and scope.find(name) is None and scope.lane(name) is None
                    and scope.label(name) is None and name not in self.functions):
                yield name

    def _named(self, operand: Operand, value: tree.Operand | None, scope: Scope, place: Place) -> Iterator[Finding]:
        """A label, function or variable of another kind than the operand asks for."""
        if operand.kind not in ("label", "function") or not isinstance(value, tree.Name):
            return
        name = value.name
        # The prototype of an indirect call is a label, or the name of a table or list of functions.
        if scope.label(name) is None and scope.find(name) is None and (operand.kind == "label" or name not in self.functions):
            yield self._undefined(name, operand.kind, place)

    def _undefined(self, name: str, what: str, place: Place) -> Finding:
        said = {"label": "label of this function", "function": "declared function"}.get(what, "declared name")
        fix = "place the label in this function" if what == "label" else "declare it before this line"
        return finding("undefined-name", f"`{name}` is no {said} here", fix, place, "error", "language")

    def _gates(self, instruction: tree.Instruction, signature: forms.Signature, place: Place) -> Iterator[Finding]:
        if signature.since > self.module.version:
            needed, given = (".".join(map(str, version)) for version in (signature.since, self.module.version))
            yield finding("version", f"`{instruction.opcode}` needs PTX {needed}, and the module says .version {given}",
                          f"write .version {needed}", place, "error", "language")
        if not self.newer and not has(self.target, signature.target):
            yield finding("target", f"`{instruction.opcode}` needs {signature.target}, and the module says .target {self.target}",
                          f"write .target {signature.target}", place, "error", "language")
