"""What the names in an instruction stand for: registers, variables, labels, special registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..grammar import forms, tree
from ..grammar.special import SPECIAL, VECTORS
from .errors import SimulationError, UnsupportedError
from .operand import Address, Immediate, Indexed, Negated, Operand, Register, Sink, SpecialRegister, Symbol, SymbolValue, Vector, Word
from .symbols import Layout

_AXES = {axis: lane for axes in ("xyzw", "rgba") for lane, axis in enumerate(axes)}


class Scope:
    """The names of one `{}`; inner ones hide outer ones."""

    def __init__(self, outer: Scope | None) -> None:
        self.outer = outer
        self.names: dict[str, Any] = {}
        self.labels: dict[str, object] = {}

    def find(self, name: str) -> Any:
        return next((scope.names[name] for scope in self.outwards() if name in scope.names), None)

    def label(self, name: str) -> object | None:
        return next((scope.labels[name] for scope in self.outwards() if name in scope.labels), None)

    def outwards(self) -> Iterator[Scope]:
        """This one and those around it, the innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer


_SYSTEM = frozenset(f"%reserved_smem_offset_{place}" for place in ("cap", "0", "1"))
"""Special registers without a value that any launch here would give. The others have one, or the certificate counts them as unknown."""
_WORDS = ("label", "function", "literal")
"""The kinds of operands that name something which is no operand elsewhere."""


class Names:
    """Finds names in a scope, then among the variables of the module, and decodes operands with them."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def find(self, scope: Scope, name: str) -> Any:
        found = scope.find(name)
        if found is None:
            found = self.layout.find(name)
        if found is None and "." in name:
            vector, _, axis = name.rpartition(".")
            of = scope.find(vector)
            if isinstance(of, Vector) and axis in _AXES:
                return of.elements[_AXES[axis]]
        return found

    def declared(self, scope: Scope, name: str) -> Any:
        found = self.find(scope, name)
        if found is None:
            raise SimulationError(f"`{name}` is no declared name here")
        return found

    def predicate(self, scope: Scope, name: str) -> Register:
        found = self.declared(scope, name)
        if not isinstance(found, Register) or found.type != "pred":
            raise SimulationError(f"the guard `{name}` is no predicate")
        return found

    def _symbol(self, scope: Scope, name: str) -> Symbol:
        found = self.declared(scope, name)
        if not isinstance(found, Symbol):
            raise SimulationError(f"`{name}` is no variable")
        return found

    def _register(self, scope: Scope, name: str) -> Register:
        found = self.declared(scope, name)
        if not isinstance(found, Register):
            raise SimulationError(f"`{name}` is no register")
        return found

    def operand(self, parameter: forms.Parameter, value: tree.Operand, scope: Scope) -> Operand:
        operand = parameter.operand
        if isinstance(value, tree.Name):
            return self._name(operand.kind, value.name, scope)
        if isinstance(value, tree.Integer):
            return Immediate(value.value)
        if isinstance(value, tree.Float):
            return Immediate(value.bits, value.width)
        if isinstance(value, (tree.Vector, tree.Arguments)):
            return Vector(tuple(self.operand(parameter, element, scope) for element in value.elements))
        if isinstance(value, tree.Not):
            return Negated(self.operand(parameter, value.operand, scope))
        if isinstance(value, tree.Address):
            if isinstance(value.base, tree.Integer):
                return Address(Immediate(value.base.value), value.offset)
            base = self.declared(scope, value.base.name)
            if not isinstance(base, Symbol | Register):
                raise SimulationError(f"`{value.base.name}` holds no address")
            return Address(SymbolValue(base) if isinstance(base, Symbol) else base, value.offset)
        if isinstance(value, tree.Offset):
            if isinstance(self.declared(scope, value.base.name), Register):
                raise UnsupportedError(f"a sum as an operand, `{value.base.name}+{value.offset}`, is not executed: add it before")
            return SymbolValue(self._symbol(scope, value.base.name), value.offset)
        if isinstance(value, tree.Element):
            symbol = self._symbol(scope, value.base.name)
            size = symbol.element
            if isinstance(value.index, tree.Integer):
                return Address(SymbolValue(symbol), (value.index.value + value.offset) * size)
            return Indexed(SymbolValue(symbol, value.offset * size), self._register(scope, value.index.name), size)
        raise SimulationError(f"an operand {value!r} is not supported by the simulator")

    def _name(self, kind: str, name: str, scope: Scope) -> Operand:
        if name == "_":
            return Sink()
        found = self.find(scope, name)
        if found is not None:
            return SymbolValue(found) if isinstance(found, Symbol) else found
        if name == "WARP_SZ":
            return Immediate(32)
        if name in _SYSTEM:
            raise UnsupportedError(f"`{name}` says where the system keeps data of its own in shared memory, as cooperative groups read it: "
                                   "the simulator has none there; keep such data in shared memory that the kernel declares")
        if name in SPECIAL:
            return SpecialRegister(name)
        if name in VECTORS:
            return Vector(tuple(map(SpecialRegister, VECTORS[name])))
        if kind in _WORDS or name in self.layout.functions or isinstance(self.find(scope, name.rpartition(".")[0]), Register):
            return Word(name)
        raise SimulationError(f"`{name}` is no declared name here")
