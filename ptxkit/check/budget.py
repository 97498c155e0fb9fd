"""Language rules of what does not fit: the constants of a module, and the shared variables of an entry with those that it calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..grammar import tree
from ..grammar.errors import Finding
from ..grammar.walk import instructions
from .declarations import Given, alignment, bytes_of
from .names import names_in
from .places import NOWHERE, Places, finding

CONST_BYTES = 1 << 16
SHARED_BYTES = {"sm_90a": 0x38C00, "sm_100a": 0x38C00, "sm_103a": 0x38C00, "sm_120a": 0x18C00}
"""The most that ptxas 13.0 takes of declared shared memory, by target; of the others 48 KB, and of those that it does not know any."""
PLAIN_SHARED_BYTES = 0xC000
STEPS = 1 << 18
"""How many functions are looked into for all entries of a module."""
UNKNOWN = ("sm_100f", "sm_101a", "sm_101f", "sm_103f", "sm_110a", "sm_110f", "sm_120f", "sm_121a", "sm_121f")


@dataclass
class Budget:
    """What a module declares in memory of a fixed size. `shared`: by function, "" for what stands outside of all."""

    const: list[tree.Variable] = field(default_factory=list)
    shared: dict[str, list[tree.Variable]] = field(default_factory=dict)

    def add(self, variable: tree.Variable, function: str = "") -> None:
        if variable.space == "const":
            self.const.append(variable)
        elif variable.space == "shared" and None not in variable.shape:
            self.shared.setdefault(function, []).append(variable)

    def findings(self, module: tree.Module, given: Given, places: Places) -> Iterator[Finding]:
        total = _bytes(self.const)
        if total > CONST_BYTES:
            largest = max(self.const, key=bytes_of)
            yield finding("declaration", f"the module has {total} bytes of .const variables, `{largest.name}` most of them; {CONST_BYTES} "
                          "is the most", "declare some of them .global", places.of(largest.position), "error", "language", largest.name)
        yield from self._shared(module, given, places)

    def _shared(self, module: tree.Module, given: Given, places: Places) -> Iterator[Finding]:
        most = SHARED_BYTES.get(given.target, PLAIN_SHARED_BYTES)
        functions = {item.name: item for item in module.items if isinstance(item, tree.Function) and item.defined}
        own = {name: _bytes(variables) for name, variables in self.shared.items()}
        others = sum(size for name, size in own.items() if name not in functions or functions[name].kind != "entry")
        suspects = [] if given.target in UNKNOWN else [function for name, function in functions.items() if function.kind == "entry"
                                                       and own.get(name, 0) + others > most]
        reach = _Reach(module, functions) if suspects else None
        for entry in suspects:
            assert reach is not None
            total = _bytes(self._reached(entry, functions, reach))
            if total > most:
                yield finding("declaration", f"`{entry.name}` has {total} bytes of declared shared memory; {most} is the most for "
                              f"{given.target}", "declare less, or take dynamic shared memory",
                              places.of(entry.position) if entry.position is not None else NOWHERE, "error", "language", entry.name)

    def _reached(self, entry: tree.Function, functions: dict[str, tree.Function], reach: _Reach) -> list[tree.Variable]:
        """The shared variables of an entry and of what it calls, and those outside of functions that they name."""
        todo, seen, named = [entry.name], {entry.name: None}, set[str]()
        while todo:
            names, called = reach.of(todo.pop())
            named |= names
            new = [name for name in called if name not in seen]
            seen.update(dict.fromkeys(new))
            todo += new
        outer = [variable for variable in self.shared.get("", ()) if variable.name in named]
        return outer + [variable for name in seen for variable in self.shared.get(name, ())]


class _Reach:
    """What each function names and calls."""

    def __init__(self, module: tree.Module, functions: dict[str, tree.Function]) -> None:
        self.functions = functions
        self.aliases = {item.name: item.target for item in module.items if isinstance(item, tree.Alias)}
        self.outer = {item.name for item in module.items if isinstance(item, tree.Variable)}
        self.known: dict[str, tuple[set[str], list[str]]] = {}
        self.steps = 0

    def of(self, function: str) -> tuple[set[str], list[str]]:
        """The variables outside of functions that a function names, and the functions that it calls; nothing after many questions."""
        self.steps += 1
        if self.steps > STEPS:
            return set(), []
        if function not in self.known:
            named, called = set[str](), dict[str, None]()
            for instruction in instructions(self.functions[function].body or ()):
                names = [name for operand in instruction.operands for name in names_in(operand)]
                named.update(self.outer.intersection(names))
                if instruction.mnemonic == "call":
                    called.update(dict.fromkeys(callee for name in names if (callee := self.aliases.get(name, name)) in self.functions))
            self.known[function] = named, [*called]
        return self.known[function]


def _bytes(variables: Iterable[tree.Variable]) -> int:
    total = 0
    for variable in variables:
        step = alignment(variable)
        total = (total + step - 1) // step * step + bytes_of(variable)
    return total
