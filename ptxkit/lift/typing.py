"""Which type each register has in a lifted kernel, and which instruction makes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ..grammar import tree
from ..grammar.errors import OpcodeError
from ..grammar.forms import Parameter, Signature, canonical, lookup
from ..grammar.match import Mismatch, bind
from ..grammar.operands import accepts, width
from ..grammar.schema import Operand
from ..types import TYPES, scalar
from .scopes import names

Values = tuple[tree.Operand | None, ...]
_ORDER = {"": ("b",), "32": ("u32", "s32", "f32", "f16x2", "b32"), "64": ("u64", "s64", "f64", "b64"), "16": ("u16", "s16", "f16", "b16")}


@dataclass(frozen=True, slots=True)
class Bound:
    """An instruction of the table: its opcode in the table's order, and a value for each parameter of a signature."""

    opcode: str
    signature: Signature
    values: Values

    def outputs(self) -> list[tuple[Parameter, tree.Operand]]:
        """The destinations that a call gives or returns."""
        return [(p, v) for p, v in zip(self.signature.parameters, self.values, strict=True) if is_output(p) and v is not None]


def is_output(parameter: Parameter) -> bool:
    """Whether a call gives or returns the operand as a destination; an optional one is a keyword."""
    return parameter.operand.access == "w" and not parameter.optional and parameter.operand.default is None


def bound(instruction: tree.Instruction, types: Callable[[str], str | None]) -> Bound | None:
    """The instruction's operands by the table, None if the table does not have it."""
    try:
        signatures = lookup(instruction.opcode)
        opcode = instruction.opcode
    except OpcodeError:
        found = canonical(instruction.opcode)
        if found is None:
            return None
        opcode, signatures = found, lookup(found)
    for signature in signatures:
        values = bind(signature, instruction.operands, types)
        if not isinstance(values, Mismatch):
            return Bound(opcode, signature, values)
    return None


class Registers:
    """The choice for every register of one body: `types`, and `fresh`, the instructions whose results are new registers.

    `kept` are those that keep their names: they are made before any instruction.
    """

    def __init__(self, instructions: Iterable[tuple[tree.Instruction, Bound | None]], declared: dict[str, str],
                 given: dict[str, str], kept: Collection[str] = ()) -> None:
        self.declared = declared
        self.uses: dict[str, list[Callable[[str], bool]]] = {name: [] for name in declared}
        self.made: dict[int, list[tuple[str, str]]] = {}
        self.first: dict[str, int] = dict.fromkeys(given, 0)
        for instruction, found in instructions:
            self._note(instruction, found)
        self.types: dict[str, str] = {}
        self.fresh: set[int] = set()
        for key, results in self.made.items():
            if all(name not in kept and self._fits(name, type) for name, type in results):
                self.fresh.add(key)
                self.types.update(results)
        self.types.update({name: scalar(type).__name__ for name, type in given.items()})
        self.loose = [name for name in self.first if name not in self.types]
        for name in self.loose:
            self.types[name] = self._chosen(name)

    def _note(self, instruction: tree.Instruction, found: Bound | None) -> None:
        reads: list[str] = []
        results: list[tuple[Parameter, str]] = []
        if instruction.guard:
            reads.append(instruction.guard.predicate)
        if found is None:
            reads += [self._base(name) for operand in instruction.operands for name in names(operand)]
        else:
            for parameter, value in zip(found.signature.parameters, found.values, strict=True):
                if value is None:
                    continue
                for name, constraint in _registers(parameter.operand, value):
                    if name in self.declared:
                        self.uses[name].append(constraint)
                if is_output(parameter):
                    lanes = value.elements if isinstance(value, tree.Vector) else (value,)
                    results += [(parameter, lane.name if isinstance(lane, tree.Name) else "_") for lane in lanes]
                    reads += [base for lane in lanes for name in names(lane) if (base := self._base(name)) != name]
                else:
                    reads += map(self._base, names(value))
        names_ = [name for _, name in results]
        new = bool(names_) and all(n in self.declared and n not in self.first and n not in reads for n in names_)
        single = any(p.operand.kind == "vector" and p.operand.count == 1 for p, _ in results)
        if new and len(set(names_)) == len(names_) and not single:
            self.made[id(instruction)] = [(name, _result_type(parameter.operand)) for parameter, name in results]
        for name in (*reads, *names_):
            if name in self.declared:
                self.first.setdefault(name, id(instruction))

    def _base(self, name: str) -> str:
        """The register of a name such as `%r1.b0`."""
        return name if name in self.declared else name.rpartition(".")[0]

    def _fits(self, name: str, type: str) -> bool:
        wanted = width(TYPES[type].register) if type in TYPES else 0
        return wanted == width(self.declared[name]) and all(constraint(type) for constraint in self.uses[name])

    def _chosen(self, name: str) -> str:
        declared = self.declared[name]
        if declared == "pred":
            return "pred"
        bits = width(declared)
        for type in _ORDER.get(str(bits), ()):
            if all(constraint(type) for constraint in self.uses[name]) and self.uses[name]:
                return type
        return f"b{bits}" if bits != 8 else "b16"


def _result_type(operand: Operand) -> str:
    """The type of the register that the DSL makes for a destination."""
    return "pred" if operand.kind == "predicate" else scalar(str(operand.type)).__name__


def _registers(operand: Operand, value: tree.Operand) -> list[tuple[str, Callable[[str], bool]]]:
    """The registers in a value, each with what the DSL asks of its type."""

    def fits(type: str) -> bool:
        return accepts(operand, type)

    def predicate(type: str) -> bool:
        return type == "pred"

    def address(type: str) -> bool:
        return type[0] in "bus" and type[1:].isdigit()

    if isinstance(value, tree.Name):
        return [(value.name, predicate if operand.kind == "predicate" else fits)]
    if isinstance(value, tree.Not):
        return [(name, predicate) for name in names(value)]
    if isinstance(value, tree.Vector) and operand.kind in ("vector", "coordinates"):
        return [pair for element in value.elements for pair in _registers(operand, element)]
    if isinstance(value, tree.Address):
        return [(name, address) for name in names(value)]
    return []

