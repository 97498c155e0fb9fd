"""The opcode namespace: `from ptxkit.ptx import wgmma, mbarrier`; an attribute chain spells an opcode as PTX spells it.

An opcode is a value. Called, it emits exactly one instruction of the trace in progress. Without a destination it returns a fresh
register of the right type (a `Vec` for a vector, a tuple for several); with the destination first, as PTX reads, it writes in
place. Required operands are positional in PTX's order, optional ones are keywords under the manual's names, `pred=` predicates.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .dsl.ambient import current
from .dsl.convert import Mismatch, convert
from .dsl.dropped import Result
from .dsl.fates import loses
from .dsl.reg import Negated, Reg, Vec
from .dsl.rules import observe
from .dsl.source import user_position
from .dsl.trace import Builder
from .dsl.uncalled import Emitting
from .errors import TraceError
from .grammar import forms, tree
from .grammar.errors import OpcodeError, PtxkitError
from .grammar.spelling import opcode_tokens
from .types import pred as predicate
from .types import scalar


class UnknownModifier(OpcodeError, AttributeError):
    """The chain continues with a modifier that is not legal there; the message names the legal ones and begins with the user's line."""

    def __init__(self, message: str, expected: tuple[str, ...] = ()) -> None:
        self.position = user_position()
        super().__init__(f"{self.position}: {message}" if self.position else message, expected)


class _Plan:
    """How a call's arguments fall onto one signature's parameters."""

    __slots__ = ("inputs", "options", "outputs", "plain", "pure", "signature", "updated")

    def __init__(self, signature: forms.Signature) -> None:
        self.signature = signature
        self.pure = signature.form.effects.pure
        self.plain = all(group.kind not in ("literal", "tensor", "pair") for group in signature.layout)
        self.outputs: list[int] = []
        self.updated: list[int] = []            # accumulators, which are read and written
        self.inputs: list[int] = []
        self.options: dict[str, int] = {}
        for i, parameter in enumerate(signature.parameters):
            if parameter.optional or parameter.operand.default is not None:
                self.options[parameter.name] = i
            elif parameter.operand.access == "w":
                self.outputs.append(i)
            else:
                self.inputs.append(i)
                if parameter.operand.kind == "vector" and parameter.operand.access == "rw":
                    self.updated.append(i)

    def usage(self) -> str:
        parameters = self.signature.parameters
        required = ", ".join(parameters[i].name for i in (*self.outputs, *self.inputs))
        return f"({required}{''.join(f', {name}=' for name in self.options)})"

    def bind(self, builder: Builder, args: Sequence[Any],
             options: dict[str, Any]) -> tuple[list[tree.Operand | None], list[Any], list[Any]]:
        """(tree operands per parameter, Python values per parameter, destinations made here); raises Mismatch."""
        parameters = self.signature.parameters
        given_outputs = len(args) == len(self.outputs) + len(self.inputs)
        if not given_outputs and len(args) != len(self.inputs):
            in_place = f" or, with the destination first, {len(self.outputs) + len(self.inputs)}" if self.outputs else ""
            noun = "operand" if len(self.outputs) + len(self.inputs) == 1 else "operands"
            given = f"{len(args)} {'was' if len(args) == 1 else 'were'} given"
            raise Mismatch(0, f"takes {len(self.inputs)}{in_place} {noun} {self.usage()}, {given}")
        values: list[Any] = [None] * len(parameters)
        for i, value in zip((*self.outputs, *self.inputs) if given_outputs else self.inputs, args, strict=True):
            values[i] = value
        for name, value in options.items():
            if name not in self.options:
                raise Mismatch(0, f"has no optional operand `{name}` {self.usage()}")
            values[self.options[name]] = value
        operands: list[tree.Operand | None] = [None] * len(parameters)
        for i, parameter in enumerate(parameters):
            operand, value = parameter.operand, values[i]
            if value is None:
                if operand.default is not None:
                    values[i] = value = self._default(operand, values)
                elif i not in self.inputs and (parameter.optional or not given_outputs):
                    continue
            operands[i] = convert(builder, parameter, value, i)
        fresh: list[Any] = []
        if not given_outputs:
            for i in self.outputs:
                values[i] = destination = _fresh(builder, parameters[i])
                operands[i] = _written(destination)
                fresh.append(destination)
        return operands, values, fresh

    def written(self, operands: list[tree.Operand | None]) -> tuple[tree.Operand, ...]:
        """The operands as the tree holds them."""
        if self.plain:
            given = tuple([each for each in operands if each is not None])
            if len(given) == len(operands):
                return given                         # the usual way
        try:
            return self.signature.render(operands)
        except PtxkitError as error:
            raise TraceError(str(error)) from None

    def _default(self, operand: Any, values: list[Any]) -> int:
        if operand.tag == "transpose":
            for parameter, value in zip(self.signature.parameters, values, strict=True):
                if parameter.name == operand.space:
                    return int(getattr(value, "transposed", False))
        return int(operand.default)


def _fresh(builder: Builder, parameter: forms.Parameter) -> Any:
    operand = parameter.operand
    type = predicate if operand.kind == "predicate" else scalar(str(operand.type))
    if operand.kind == "vector":
        return Vec([builder.register(type) for _ in range(int(operand.count))])  # type: ignore[arg-type]
    return builder.register(type)


def _written(destination: Any) -> tree.Operand:
    if isinstance(destination, Vec):
        return tree.Vector(tuple(element.operand() for element in destination))
    return destination.operand()  # type: ignore[no-any-return]


class Opcode(Emitting):
    """An opcode, complete or not: attributes continue it, a call emits it."""

    __slots__ = ("_attributes", "_children", "_plans", "_state")

    def __init__(self, state: forms.State) -> None:
        self._state = state
        self._attributes: dict[str, forms.State] | None = None
        self._children: dict[str, Opcode] = {}
        self._plans: tuple[_Plan, ...] | None = None

    def __getattr__(self, name: str) -> Opcode:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        child = self._children.get(name)
        if child is None:
            child = self._children[name] = self._after(name, opcode_tokens([name]))
        return child

    def _after(self, name: str, tokens: Sequence[str]) -> Opcode:
        """The opcode that these modifiers lead to; `name` spells them."""
        state: forms.State | None = self._state
        for token in tokens:
            state = state.step(token) if state is not None else None
        if state is None:
            raise self._unknown(name, tokens)
        return Opcode(state)

    def _unknown(self, name: str, modifiers: Sequence[str]) -> UnknownModifier:
        try:
            forms.lookup(".".join([self._state.prefix, *modifiers]))
        except OpcodeError as error:
            spelled = {name: ".".join(opcode_tokens([name])) for name in self._state.attributes()}
            differs = [f".{name}" for name, tokens in spelled.items() if f"`.{tokens}`" in str(error) and name != tokens]
            in_python = f" (in Python: {', '.join(differs)})" if differs else ""
            return UnknownModifier(f"{error}{in_python}", tuple(spelled))
        raise AssertionError(name)

    def __dir__(self) -> list[str]:
        if self._attributes is None:
            self._attributes = self._state.attributes()
        return [*self._attributes, "coordinates", "fragment"]

    def __repr__(self) -> str:
        return f"<opcode {self._state.prefix}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opcode) and other._state.prefix == self._state.prefix

    def __hash__(self) -> int:
        return hash(self._state.prefix)

    def __str__(self) -> str:
        return self._state.prefix

    def _signatures(self) -> tuple[forms.Signature, ...]:
        found = self._state.signatures()
        if not found:
            legal = ", ".join(f".{name}" for name in list(self._state.attributes())[:12])
            raise TraceError(f"`{self._state.prefix}` is incomplete: it continues with one of {legal}")
        return found

    def fragment(self, zero: bool = True) -> Vec[Any, Any]:
        """Fresh registers for the accumulator or fragment of this opcode; `zero` clears them, one mov each."""
        builder = current()
        for signature in self._signatures():
            for parameter in signature.parameters:
                if parameter.operand.kind == "vector" and parameter.operand.access == "rw":
                    made: Vec[Any, Any] = _fresh(builder, parameter)
                    for element in made if zero else ():
                        value = tree.Float(0, 32) if element.type.register == "f32" else tree.Integer(0)
                        builder.emit(f"mov.{element.type.register}", (element.operand(), value))
                    return made
        raise TraceError(f"`{self._state.prefix}` has no accumulator")

    def coordinates(self, thread: Any, operand: Any = "d", *, row: Any = 0) -> Any:
        """Rows and columns of a fragment's elements: see `ptxkit.dsl.coordinates`."""
        from .dsl.coordinates import coordinates

        self._signatures()
        return coordinates(self, thread, operand, row=row)

    def __call__(self, *args: Any, pred: Reg[predicate] | Negated | None = None, **options: Any) -> Any:
        builder = current()
        if self._plans is None:
            self._plans = tuple(_Plan(signature) for signature in self._signatures())
        depth, best = -1, ""                # not the exception, which holds the frames of all callers and so their tensors
        for plan in self._plans:
            try:
                operands, values, fresh = plan.bind(builder, args, options)
            except Mismatch as mismatch:
                if mismatch.depth > depth:
                    depth, best = mismatch.depth, str(mismatch)
                continue
            signature = plan.signature
            written = plan.written(operands)
            builder.module.need(signature)
            builder.emit(signature.opcode, written, _guard(builder, pred))
            if fresh and (plan.pure or pred is not None):
                lost = plan.pure and loses(sys._getframe(1))
                if lost or pred is not None:
                    (builder.dropped if lost else builder.guarded).append(
                        Result(builder.name, written[0], signature.opcode, plan.usage(), user_position()))
            observe(builder, signature, values)
            if not fresh:
                outputs = [values[i] for i in plan.outputs]
                for destination in outputs:
                    for reg in destination if isinstance(destination, Vec | tuple | list) else (destination,):
                        if isinstance(reg, Reg):
                            builder.wrote(reg)
                fresh = outputs or [values[i] for i in plan.updated]
            return None if not fresh else fresh[0] if len(fresh) == 1 else tuple(fresh)
        raise TraceError(f"`{self._state.prefix}` {best}")


def _guard(builder: Builder, pred: Any) -> tree.Guard | None:
    if pred is None:
        return None
    reg = pred.reg if isinstance(pred, Negated) else pred
    if not isinstance(reg, Reg) or reg.type is not predicate:
        raise TraceError(f"pred= takes a predicate register or its negation `~p`, not {pred!r}; a comparison makes one, as in `x != 0`")
    builder.own(reg)
    return tree.Guard(reg.operand().name, isinstance(pred, Negated))


def opcode(text: str) -> Opcode:
    """The opcode of a PTX word: `opcode("ld.global.v2.f32")`. `OpcodeError` when the table does not have it."""
    try:
        forms.lookup(text)
    except OpcodeError as error:
        raise UnknownModifier(str(error), error.expected) from None
    mnemonic, *tokens = text.split(".")
    state = forms.start(mnemonic)
    for token in tokens:
        state = state.next()[token]
    return Opcode(state)


_NAMESPACE: dict[str, Opcode] = {}


def __getattr__(name: str) -> Opcode:
    if name.startswith("__"):
        raise AttributeError(name)
    known = _NAMESPACE.get(name)
    if known is None:
        mnemonic, *tokens = opcode_tokens([name])
        try:
            start = Opcode(forms.start(mnemonic))
        except OpcodeError as error:
            raise UnknownModifier(str(error), error.expected) from None
        known = _NAMESPACE[name] = start._after(name, tokens)
    return known


def __dir__() -> list[str]:
    return list(forms.names())


__all__ = ["Opcode", "UnknownModifier", "opcode"]
