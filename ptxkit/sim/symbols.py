"""Where variables lie: offsets in the shared, global, const and param regions and in frames, and what their bytes are at the start."""

from __future__ import annotations

import struct

from ..grammar import tree
from ..grammar.operands import width
from .errors import SimulationError, UnsupportedError
from .operand import Symbol
from .spaces import CONST, FUNCTION, GLOBAL, LOCAL, RESERVED_SHARED, SHARED

_FRAMED = ("local", "param")


def round_up(value: int, align: int) -> int:
    return -(-value // align) * align


def extent(variable: tree.Variable) -> tuple[int, int]:
    """(bytes, bytes of one element) of a variable; an array without an extent has none."""
    element = max(width(variable.type), 8) // 8 * variable.vector
    count = 1
    for n in variable.shape:
        count *= 0 if n is None else n
    if variable.shape and variable.shape[0] is None:
        count = _elements(variable.initializer)
    return element * count, element


def alignment(variable: tree.Variable) -> int:
    return max(variable.align or 0, max(width(variable.type), 8) // 8 * variable.vector)


def _elements(initializer: tree.Initializer | None) -> int:
    return len(initializer.elements) if isinstance(initializer, tree.Aggregate) else 0


class Layout:
    """The variables of a module. Frames of its functions add the variables that are declared inside them."""

    def __init__(self, module: tree.Module) -> None:
        self.symbols: dict[str, Symbol] = {}
        self.placed: list[Symbol] = []
        """Every variable that has a place, those of function bodies too, whose names need not be unique."""
        self._shared: dict[str, tree.Variable] = {}
        """The shared variables of the module that nothing has named yet: an entry has those that it names, as ptxas counts them."""
        self.sizes = {"shared": RESERVED_SHARED, "global": 0, "const": 0}
        self.dynamic: list[Symbol] = []
        self.dynamic_align = 16
        self._initial: list[tuple[Symbol, tree.Variable]] = []
        names = [f.name for f in module.functions]
        names += [item.name for item in module.items if isinstance(item, tree.Alias)]
        self.functions = {name: FUNCTION + 16 * i for i, name in enumerate(dict.fromkeys(names), 1)}
        for item in module.items:
            if not isinstance(item, tree.Variable):
                continue
            if item.space == "shared":
                if item.linkage != "extern" or item.name not in self._shared:
                    self._shared[item.name] = item
                continue
            known = self.symbols.get(item.name)
            if known is None or item.linkage != "extern" or not known.size:
                self.symbols[item.name] = self.place(item)

    def find(self, name: str) -> Symbol | None:
        """The variable of the module with that name."""
        variable = self._shared.pop(name, None)
        if variable is not None:
            self.symbols[name] = self.place(variable)
        return self.symbols.get(name)

    def place(self, variable: tree.Variable) -> Symbol:
        """A shared, global or const variable, wherever it is declared."""
        space = variable.space
        if space not in self.sizes:
            raise UnsupportedError(f"the variable `{variable.name}` is in .{space}, which the simulator does not have")
        size, element = extent(variable)
        align = alignment(variable)
        if space == "shared" and variable.shape and variable.shape[0] is None:
            symbol = Symbol(variable.name, space, "dynamic", 0, 0, element, variable.type)
            self.dynamic.append(symbol)
            self.placed.append(symbol)
            self.dynamic_align = max(self.dynamic_align, align)
            return symbol
        address = round_up(self.sizes[space], align)
        symbol = Symbol(variable.name, space, space, address, size, element, variable.type)
        self.sizes[space] = address + size
        self.placed.append(symbol)
        if variable.initializer is not None:
            self._initial.append((symbol, variable))
        return symbol

    def frame(self, function: tree.Function) -> Frame:
        return Frame(self, function.kind == "entry")

    @property
    def dynamic_start(self) -> int:
        """The offset of dynamic shared memory: behind the static variables, aligned as its declarations ask."""
        return round_up(self.sizes["shared"], self.dynamic_align)

    def address(self, symbol: Symbol) -> int:
        """The symbol's place in its space, as an instruction of that space sees it; shared addresses lack the CTA's rank."""
        if symbol.region == "dynamic":
            return self.dynamic_start
        return symbol.address + (GLOBAL if symbol.region == "global" else 0)

    def generic(self, symbol: Symbol) -> int:
        """The symbol's generic address; shared ones lack the CTA's rank, local ones the frame."""
        windows = {"global": 0, "shared": SHARED, "const": CONST, "local": LOCAL}
        if symbol.space not in windows:
            raise SimulationError(f"`{symbol.name}` in .{symbol.space} has no constant generic address")
        return self.address(symbol) + windows[symbol.space]

    def contents(self, space: str) -> bytearray:
        """The region's bytes at the start of a launch."""
        memory = bytearray(self.sizes[space])
        for symbol, variable in self._initial:
            if symbol.region == space and variable.initializer is not None:
                step = max(width(variable.type), 8) // 8
                self._write(memory, symbol.address, variable.initializer, variable, variable.shape, step)
        return memory

    def _write(self, memory: bytearray, at: int, value: tree.Initializer, variable: tree.Variable, shape: tuple[int | None, ...],
               size: int) -> int:
        if isinstance(value, tree.Aggregate):
            inner = shape[1:]
            step = size * variable.vector if not inner else size
            for n in inner:
                step *= n or 1
            for i, element in enumerate(value.elements):
                self._write(memory, at + i * (step if shape else size), element, variable, inner, size)
            return at
        memory[at:at + size] = self._bits(value, variable.type, size).to_bytes(size, "little")
        return at

    def _bits(self, value: tree.Constant, type: str, size: int) -> int:
        mask = (1 << 8 * size) - 1
        if isinstance(value, tree.Float):
            if size == 4 and value.width == 64:
                return int(struct.unpack("<I", struct.pack("<f", value.value))[0])
            return int(struct.unpack("<Q", struct.pack("<d", value.value))[0]) if size == 8 else value.bits & mask
        if isinstance(value, tree.Integer):
            return value.value & mask
        if isinstance(value, tree.Name):
            return self._named(value.name) & mask
        return self._expression(value, type) & mask

    def _named(self, name: str, generic: bool = False) -> int:
        if name in self.functions:
            return self.functions[name]
        symbol = self.find(name)
        if symbol is None:
            raise SimulationError(f"an initialiser names `{name}`, which is not declared")
        return self.generic(symbol) if generic else self.address(symbol)

    def _expression(self, value: tree.Expression, type: str) -> int:
        first = value.operands[0]
        if value.operator == "generic" and isinstance(first, tree.Name):
            return self._named(first.name, generic=True)
        if value.operator in ("+", "-"):
            left, right = (self._bits(operand, type, 8) for operand in value.operands)
            return left + right if value.operator == "+" else left - right
        if value.operator == "mask" and isinstance(first, tree.Integer):
            selected = first.value
            shift = (selected & -selected).bit_length() - 1
            return (self._bits(value.operands[1], type, 8) & selected) >> shift
        raise UnsupportedError(f"an initialiser with `{value.operator}`")


class Frame:
    """The parameters and local variables of one function."""

    def __init__(self, layout: Layout, is_entry: bool) -> None:
        self.layout = layout
        self.is_entry = is_entry
        self.size = 0
        self.parameters = 0

    def parameter(self, variable: tree.Variable) -> Symbol:
        """A formal parameter: of an entry in the param region, of a device function in its frame."""
        if variable.space == "reg":
            return Symbol(variable.name, "reg", "reg", 0, 0, 0, variable.type)
        if not self.is_entry:
            return self.variable(variable)
        size, element = extent(variable)
        address = round_up(self.parameters, alignment(variable))
        self.parameters = address + size
        return Symbol(variable.name, "param", "param", address, size, element, variable.type)

    def variable(self, variable: tree.Variable) -> Symbol:
        """A variable declared in the body."""
        if variable.space not in _FRAMED:
            return self.layout.place(variable)
        size, element = extent(variable)
        address = round_up(self.size, alignment(variable))
        self.size = address + size
        return Symbol(variable.name, variable.space, "frame", address, size, element, variable.type)


