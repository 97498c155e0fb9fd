"""What of a module an entry needs: functions, variables, and where ptxas places things together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..grammar import tree
from ..grammar.walk import instructions
from ..grammar.write import write_items
from . import dwarf
from .scopes import names, value_names


@dataclass(frozen=True)
class Needed:
    """Functions with a body, in the module's order; names of all that is needed; whether that is the whole module."""

    members: tuple[tree.Function, ...]
    names: frozenset[str]
    whole: bool


class Needs:
    """One module, each of whose items is looked at once."""

    def __init__(self, module: tree.Module) -> None:
        self.module = module
        functions = list(module.functions)
        self.functions = {f.name for f in functions}
        self.bodies = {f.name: f for f in functions if f.defined}
        self.items: dict[str, tree.Item] = {item.name: item for item in module.items if isinstance(item, tree.Variable | tree.Alias)}
        self.items |= self.bodies
        self.constants = {v.name for v in module.items if isinstance(v, tree.Variable) and v.space == "const"}
        self.outside = {v.name for v in module.items if isinstance(v, tree.Variable) and v.space != "shared"}
        self.outside |= self.functions - self.bodies.keys()
        self._mentioned: dict[str, frozenset[str]] = {}
        self._banked: dict[str, bool] = {}

    def of(self, chosen: Sequence[tree.Function]) -> Needed:
        """What the entries need together."""
        every = len(chosen) == sum(1 for _ in self.module.entries)
        whole = every and (self._shared(chosen) if len(chosen) > 1 else self.placed_together(chosen[0]))
        needed = self.reached(chosen) | {name for name, f in self.bodies.items() if whole and f.kind == "func"}
        own = {entry.name for entry in chosen}
        members = tuple(f for f in self.module.functions if f.defined and (f.name in needed or f.name in own))
        return Needed(members, frozenset(needed), whole)

    def reached(self, entries: Iterable[tree.Function]) -> set[str]:
        """The functions and variables that the entries mention, directly or not.

        With one variable of `.const` all of them: the address of each in the bank depends on the others.
        """
        found: set[str] = set()
        open_: list[tree.Item] = list(entries)
        while open_:
            new = self._mentions(open_.pop()) - found
            if new & self.constants:
                new |= self.constants - found
            found |= new
            open_ += [self.items[name] for name in sorted(new)]
        return found

    def placed_together(self, entry: tree.Function) -> bool:
        """Whether the entry's code has addresses from the bank that ptxas makes for the whole module: of global variables and functions;
        or whether sections for a debugger describe the whole module."""
        if dwarf.of_debugger(self.module):
            return True
        reached = self.reached([entry])
        if any(self._in_bank(f) for name, f in self.bodies.items() if name in reached or f is entry):
            return True
        # ptxas lays out a function for all who call it.
        called = reached & self.bodies.keys()
        others = [f for name, f in self.bodies.items() if name not in reached and f is not entry]
        return bool(called) and any(called & self._mentions(f) for f in others)

    def _shared(self, entries: Sequence[tree.Function]) -> bool:
        """Whether `placed_together` holds for any of all entries of the module, without asking it of each."""
        if dwarf.of_debugger(self.module):
            return True
        owner: dict[str, str] = {}
        walked: set[str] = set()
        for entry in entries:
            open_: list[tree.Item] = [entry]
            while open_:
                item = open_.pop()
                if isinstance(item, tree.Function) and self._in_bank(item):
                    return True
                for name in sorted(self._mentions(item)):
                    if owner.setdefault(name, entry.name) != entry.name and not isinstance(self.items[name], tree.Variable):
                        return True  # two entries call it
                    if name not in walked:
                        walked.add(name)
                        open_.append(self.items[name])
        called = owner.keys() & self.bodies.keys()
        own = {entry.name for entry in entries}
        return any(called & self._mentions(f) for name, f in self.bodies.items() if name not in owner and name not in own)

    def _mentions(self, item: tree.Item) -> frozenset[str]:
        """The module's items with a body or a value that one of them mentions."""
        key = item.name if isinstance(item, tree.Variable | tree.Alias | tree.Function) else ""
        if key not in self._mentioned:
            self._mentioned[key] = frozenset(name for name in mentions(item) if name in self.items)
        return self._mentioned[key]

    def _in_bank(self, function: tree.Function) -> bool:
        if function.name not in self._banked:
            self._banked[function.name] = any(map(self._takes, instructions(function.body or ())))
        return self._banked[function.name]

    def _takes(self, instruction: tree.Instruction) -> bool:
        """Whether the instruction has the address of a function or of a variable of the bank, or calls through one."""
        mentioned = [name for operand in instruction.operands for name in names(operand)]
        functions = any(name in self.functions for name in mentioned)
        return functions != (instruction.mnemonic == "call") or any(name in self.outside for name in mentioned)


def mentions(item: tree.Item) -> Iterator[str]:
    if isinstance(item, tree.Alias):
        yield item.target
    elif isinstance(item, tree.Variable):
        yield from value_names(item.initializer)
    elif isinstance(item, tree.Function):
        yield from _named(item.body or ())


def _named(body: Iterable[tree.Statement]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, tree.Block):
            yield from _named(statement.body)
        elif isinstance(statement, tree.Targets):
            yield from statement.names
        elif isinstance(statement, tree.Variable):
            yield from value_names(statement.initializer)
        elif isinstance(statement, tree.Instruction):
            for operand in statement.operands:
                yield from names(operand)


def declarations(module: tree.Module, needed: Needed) -> list[str]:
    """The module's variables, prototypes and directives as PTX lines: all, or what is mentioned."""
    whole = needed.whole
    mentioned = set(needed.names)
    for function in needed.members:
        mentioned.update(mentions(function))
    kept: list[tree.Item] = []
    pointed = {name for item in module.items if isinstance(item, tree.Variable | tree.Alias) and (whole or item.name in needed.names)
               for name in mentions(item)} - {f.name for f in module.functions if not f.defined}
    for item in module.items:
        if isinstance(item, tree.Variable):
            if whole or item.name in mentioned:
                kept.append(item)
        elif isinstance(item, tree.Function):
            if (whole or item.name in mentioned) and (not item.defined or item.name in pointed):
                kept.append(replace(item, body=None))
        elif isinstance(item, tree.Alias):
            if whole or item.name in needed.names:
                kept.append(item)
        elif isinstance(item, tree.Directive) and item.name != "file":
            kept.append(item)
    return [line for line in write_items(kept).splitlines() if line]
