"""An entry made ready for the rules: instructions with unique names, device functions inlined, basic blocks and their edges."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property

from ..grammar import forms, tree
from ..grammar.operands import width
from ..grammar.schema import PURE, Effects
from ..grammar.walk import instructions
from .graph import Parents, post_dominators
from .names import Declared, Scope, bound, names_in, renamed
from .places import Place, Places

DEEPEST, LONGEST = 12, 60_000
"""Calls inlined into one another, and instructions of a routine; what is beyond stays a call into the unknown."""

BRANCH = (True, False)
"""What the two ways out of a block mostly are."""

HARMLESS = frozenset(("vprintf", "__assertfail", "malloc", "free"))
"""What nvcc calls and never defines; neither synchronises."""


@dataclass(eq=False, slots=True)
class Site:
    """One instruction of a routine. Its registers have names that are unique in the routine.

    `values` holds one operand per parameter of the signature (None: left out, or the instruction is not legal).
    """

    instruction: tree.Instruction
    signature: forms.Signature | None
    values: tuple[tree.Operand | None, ...]
    place: Place
    control: str = ""
    targets: tuple[str, ...] = ()
    index: int = -1
    block: int = -1
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    tokens: frozenset[str] = frozenset()
    opcode: str = ""
    mnemonic: str = ""
    effects: Effects = PURE
    sync: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.opcode = self.instruction.opcode
        self.mnemonic = self.instruction.mnemonic
        if self.signature is not None:
            self.effects = self.signature.form.effects
            self.sync = self.effects.sync

    @property
    def silent(self) -> bool:
        """Whether the site only computes in registers."""
        does = self.effects
        return (not (self.control or does.memory or does.sync or does.fence or does.control) and does.convergence == "none"
                and not any(isinstance(value, tree.Address | tree.Element) for value in self.values))

    @property
    def name(self) -> str:
        """The instruction as the manual calls it, `cp.async.bulk.tensor`, for messages."""
        section = self.signature.form.section if self.signature is not None else ""
        tokens = self.opcode.split(".")
        return section if section and f"{self.opcode}.".startswith(f"{section}.") else ".".join(tokens[:2])

    def value(self, name: str) -> tree.Operand | None:
        """The operand of that name in the table, None when it is left out."""
        if self.signature is not None:
            for parameter, value in zip(self.signature.parameters, self.values, strict=True):
                if parameter.name == name:
                    return value
        return None

    def tagged(self, tag: str) -> tree.Operand | None:
        """The operand with that tag (`schema.TAGS`)."""
        if self.signature is not None:
            for parameter, value in zip(self.signature.parameters, self.values, strict=True):
                if parameter.operand.tag == tag:
                    return value
        return None

    def space(self, name: str) -> str:
        """The state space of an address operand, without its sub-space; "" is generic."""
        if self.signature is not None:
            for parameter in self.signature.parameters:
                if parameter.name == name:
                    return str(parameter.operand.space)
        return ""


@dataclass(eq=False, slots=True)
class Block:
    """A basic block: the sites from `first` to before `end`. `taken` says, per successor, whether the last site's branch leads there."""

    index: int
    first: int
    end: int
    successors: tuple[int, ...] = ()
    taken: tuple[bool | None, ...] = ()
    predecessors: tuple[int, ...] = ()


@dataclass(eq=False)
class Routine:
    """An entry. `registers` are the types of those that it uses, by unique name; `variables` the other names, by unique name."""

    function: tree.Function
    module: tree.Module
    sites: list[Site]
    blocks: list[Block]
    registers: dict[str, str]
    variables: dict[str, tree.Variable]

    @cached_property
    def order(self) -> list[int]:
        """The blocks that the entry reaches, in reverse post-order."""
        seen, found = {0}, []
        stack = [(0, iter(self.blocks[0].successors))]
        while stack:
            index, rest = stack[-1]
            for successor in rest:
                if successor not in seen:
                    seen.add(successor)
                    stack.append((successor, iter(self.blocks[successor].successors)))
                    break
            else:
                found.append(index)
                stack.pop()
        return found[::-1]

    @cached_property
    def rank(self) -> dict[int, int]:
        """The place of a block in `order`."""
        return {block: number for number, block in enumerate(self.order)}

    @cached_property
    def reachable(self) -> frozenset[int]:
        return frozenset(self.order)

    @cached_property
    def dominators(self) -> Parents:
        """The nearest block that every path from the entry to a block passes; none for the first, though control may come back to it."""
        back = {index: [p for p in self.blocks[index].predecessors if p in self.reachable and index != 0] for index in self.order}
        return post_dominators(back)

    def body(self) -> Iterator[Site]:
        """The sites that the entry reaches, in the order of the text."""
        for block in sorted(self.reachable):
            yield from self.sites[self.blocks[block].first:self.blocks[block].end]

    def directive(self, name: str) -> tuple[int, ...] | None:
        """The integers of a directive of the entry, None without it."""
        for directive in self.function.directives:
            if directive.name == name:
                return tuple(argument for argument in directive.arguments if isinstance(argument, int))
        return None


def routine(module: tree.Module, function: tree.Function, places: Places) -> Routine:
    """The entry with every device function that it calls by name inlined."""
    return _Flattener(module, function, places).routine()


def parts(module: tree.Module) -> Iterator[tuple[tree.Function, tree.Module]]:
    """Each entry with what of the module its routine is made of, so that a module of many entries is not gone through for each.

    That is the variables that are mentioned, and the functions that are called, by a name of their own or an alias.
    """
    bodies = {f.name: f for f in module.functions if f.defined}
    variables = {v.name: v for v in module.items if isinstance(v, tree.Variable)}
    aliases = {item.name: item for item in module.items if isinstance(item, tree.Alias)}
    if len(module.entries) < 2:
        yield from ((entry, module) for entry in module.entries)
        return
    for entry in module.entries:
        reached, todo = {entry.name: entry}, [entry]
        used = dict[str, tree.Variable | tree.Alias]()
        while todo:
            for instruction in instructions(todo.pop().body or ()):
                for name in (name for operand in instruction.operands for name in names_in(operand)):
                    if name in variables and name not in used:
                        used[name] = variables[name]
                    if instruction.mnemonic == "call" and (name in bodies or name in aliases):
                        called = name
                        if name in aliases and name not in bodies:
                            used[name], called = aliases[name], aliases[name].target
                        if called in bodies and called not in reached:
                            reached[called] = bodies[called]
                            todo.append(bodies[called])
        yield entry, replace(module, items=(*used.values(), *reached.values()))


class _Flattener:
    def __init__(self, module: tree.Module, function: tree.Function, places: Places) -> None:
        self.module = module
        self.function = function
        self.places = places
        self.sites: list[Site] = []
        self.labels: dict[str, int] = {}
        self.registers: dict[str, str] = {}
        self.variables: dict[str, tree.Variable] = {}
        self.functions = {f.name: f for f in module.functions if f.kind == "func" and f.body is not None}
        self.functions |= {item.name: self.functions[item.target] for item in module.items
                           if isinstance(item, tree.Alias) and item.target in self.functions}
        self.outer = Scope()
        for item in module.items:
            if isinstance(item, tree.Variable):
                self._declare(self.outer, item)
        self.scopes = 0
        self._fits: dict[tuple[Hashable, ...], tuple[forms.Signature, tuple[int | None, ...], bool]] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def routine(self) -> Routine:
        scope = Scope(self.outer)
        for variable in self.function.parameters:
            self._declare(scope, variable)
        self._body(self.function.body or (), scope, "", ())
        self.sites.append(Site(tree.Instruction("ret"), None, (), self.sites[-1].place if self.sites else Place(None, None), "exit"))
        return Routine(self.function, self.module, self.sites, _blocks(self.sites, self.labels), self.registers, self.variables)

    def _declare(self, scope: Scope, variable: tree.Variable) -> None:
        list(scope.declare(variable))
        if variable.space != "reg":
            self.variables[scope.prefix + variable.name] = variable

    def _inner(self, scope: Scope) -> Scope:
        self.scopes += 1
        return Scope(scope, f"{self.scopes}:")

    def _body(self, body: tuple[tree.Statement, ...], scope: Scope, end: str, within: tuple[str, ...]) -> None:
        """`end` is the label behind an inlined function; `within` the functions that are being inlined."""
        list(scope.take_labels(body))
        loc: tree.Loc | None = None
        for statement in body:
            if isinstance(statement, tree.Variable):
                self._declare(scope, statement)
            elif isinstance(statement, tree.Loc):
                self.loc = loc = statement
            elif isinstance(statement, tree.Block):
                self._body(statement.body, self._inner(scope), end, within)
            elif isinstance(statement, tree.Label):
                self.labels[scope.prefix + statement.name] = len(self.sites)
            elif isinstance(statement, tree.Instruction):
                self._instruction(statement, scope, end, within)
                if loc is not None:
                    self.loc = loc

    loc: tree.Loc | None = None

    def _instruction(self, instruction: tree.Instruction, scope: Scope, end: str, within: tuple[str, ...]) -> None:
        place = self.places.of(instruction.position, self.loc)

        def rename(name: str) -> str:
            known: Declared | None = scope.names.get(name) or scope.find(name) or scope.lane(name)
            if known is None:
                return name
            if known.variable.space == "reg":
                self.registers[known.unique] = known.variable.type
            return known.unique

        own, guard = instruction, instruction.guard
        operands = tuple([_own(operand, rename) for operand in instruction.operands])
        if all(map(operator.is_, operands, instruction.operands)):
            operands = instruction.operands
        if guard is not None and rename(guard.predicate) != guard.predicate:
            guard = replace(guard, predicate=rename(guard.predicate))
        if operands is not instruction.operands or guard is not instruction.guard:
            own = tree.Instruction(instruction.opcode, operands, guard, instruction.position)
        signature, values = self._bound(instruction, operands, scope, rename)
        site = Site(own, signature, values, place)
        site.tokens = _tokens(instruction.opcode)
        site.reads, site.writes = self._registers(site)
        site.control = "call" if site.mnemonic == "call" else "unknown" if signature is None else site.effects.control
        self.sites.append(site)
        if site.control == "branch":
            names = [name for operand in instruction.operands for name in names_in(operand) if scope.find(name) is None]
            listed = [label for name in names for label in (scope.table(name) or (name,))]
            site.targets = self._once(tuple([label for name in listed if (label := scope.label(name)) is not None]))
        elif site.control == "return":
            site.control, site.targets = ("branch", (end,)) if end else ("exit", ())
        elif site.control == "call":
            self._call(instruction, site, scope, within)
        elif site.mnemonic == "st" and "param" in site.tokens:
            self._argument(own, site.place)

    def _bound(self, instruction: tree.Instruction, operands: tuple[tree.Operand, ...], scope: Scope,
               rename: Callable[[str], str]) -> tuple[forms.Signature | None, tuple[tree.Operand | None, ...]]:
        """The signature and its values. Operands of the same shape, of registers of the same types, fit alike: they are bound once."""
        shapes = [_shape(operand, scope.type) for operand in instruction.operands]
        key = None if None in shapes else (instruction.opcode, *shapes)
        known = self._fits.get(key) if key is not None else None
        if known is not None:
            return known[0], operands if known[2] else tuple([None if slot is None else operands[slot] for slot in known[1]])
        apart = tuple(map(copy, instruction.operands))  # of `add %r1, %r1, 4` two are the same object
        found = bound(replace(instruction, operands=apart), scope.type)
        if found is None:
            return None, ()
        signature, values = found
        if key is not None:
            slots = [None if value is None else next((n for n, o in enumerate(apart) if o is value), -1) for value in values]
            if -1 not in slots:
                self._fits[key] = signature, tuple(slots), slots == [*range(len(operands))]
        return signature, tuple(None if value is None else renamed(value, rename) for value in values)

    def _registers(self, site: Site) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The registers that the instruction reads and writes."""
        reads = [site.instruction.guard.predicate] if site.instruction.guard else []
        writes: list[str] = []
        parameters = site.signature.parameters if site.signature else ()
        for parameter, value in zip(parameters, site.values, strict=True):
            if value is None or type(value) is tree.Integer:
                continue
            names = [name for name in names_in(value) if name in self.registers]
            is_address = isinstance(value, tree.Address | tree.Element) or parameter.operand.kind == "arguments"
            if is_address or parameter.operand.access != "w":
                reads += names
            if not is_address and parameter.operand.access != "r":
                writes += names
        return self._once(tuple(reads)), self._once(tuple(writes))

    def _once(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The first tuple of these names: sites share it."""
        return self._names.setdefault(names, names)

    # ------------------------------------------------------------------------------------------- calls

    def _call(self, instruction: tree.Instruction, site: Site, scope: Scope, within: tuple[str, ...]) -> None:
        """A call of a function that the module defines becomes its body; its parameters become copies through variables."""
        named = next((o.name for o in instruction.operands if isinstance(o, tree.Name)), "")
        function = self.functions.get(named)
        if function is None or named in within or len(within) >= DEEPEST or len(self.sites) > LONGEST:
            site.control = "" if named in HARMLESS else "unknown"
            return
        lists = [o.elements for o in site.instruction.operands if isinstance(o, tree.Arguments)]
        before = instruction.operands.index(tree.Name(named))
        results, arguments = (lists[0], lists[1:]) if before else ((), lists)
        site.control = ""
        inner = self._inner(self.outer)
        self.scopes += 1
        end = f"{self.scopes}:return"
        for variable in (*function.returns, *function.parameters):
            self._declare(inner, variable)
        for variable, value in zip(function.parameters, arguments[0] if arguments else (), strict=False):
            self._copy(inner.prefix + variable.name, value, variable, site.place)
        caller = self.loc
        self._body(function.body or (), inner, end, (*within, named))
        self.loc = caller
        self.labels[end] = len(self.sites)
        for variable, value in zip(function.returns, results, strict=False):
            if isinstance(value, tree.Name):
                self._copy(value.name, tree.Name(inner.prefix + variable.name), variable, site.place)

    def _argument(self, store: tree.Instruction, place: Place) -> None:
        """An argument or a result that is one word, where it is stored whole."""
        to, value = store.operands if len(store.operands) == 2 else (None, None)
        if not isinstance(value, tree.Name | tree.Integer):
            return
        if isinstance(to, tree.Address) and isinstance(to.base, tree.Name) and not to.offset:
            variable = self.variables.get(to.base.name)
            if variable is not None and not variable.shape and variable.vector <= 1 and (
                    width(variable.type) == width(store.opcode.rpartition(".")[2])):
                self._copy(to.base.name, value, variable, place, store.guard)

    def _copy(self, to: str, value: tree.Operand, variable: tree.Variable, place: Place, guard: tree.Guard | None = None) -> None:
        """A parameter passed: `values` follows it as it does a move."""
        site = Site(tree.Instruction(f"mov.{variable.type}", (tree.Name(to), value), guard), None, (), place)
        site.reads = (*((guard.predicate,) if guard is not None else ()), *names_in(value))
        site.writes = (to,)
        self.sites.append(site)


@cache
def _tokens(opcode: str) -> frozenset[str]:
    return frozenset(opcode.split("."))


def _own(operand: tree.Operand, rename: Callable[[str], str]) -> tree.Operand:
    """As `renamed`; the operand itself where its name is unique already."""
    kind = type(operand)
    if kind is tree.Integer:
        return operand
    name = operand.name if isinstance(operand, tree.Name) else ""
    if isinstance(operand, tree.Address) and isinstance(operand.base, tree.Name):
        name = operand.base.name
    return operand if name and rename(name) == name else renamed(operand, rename)


def _shape(operand: tree.Operand, types: Callable[[str], str | None]) -> Hashable:
    """What of an operand decides which signature it fits: names by what they stand for. None for one that is looked at each time."""
    if isinstance(operand, tree.Integer | tree.Float):
        return operand
    if isinstance(operand, tree.Name):
        type_ = types(operand.name)
        return type_ if type_ is not None else None if "." in operand.name else operand
    if isinstance(operand, tree.Address) and isinstance(operand.base, tree.Name):
        type_ = types(operand.base.name)
        return None if type_ is None else (type_, operand.offset, operand.displaced, operand.unified)
    if isinstance(operand, tree.Vector):
        lanes = tuple([_shape(element, types) for element in operand.elements])
        return None if None in lanes else lanes
    return None


def _blocks(sites: list[Site], labels: dict[str, int]) -> list[Block]:
    """Split at labels that are branched to and behind everything that may leave the line."""
    starts = {0}
    for index, site in enumerate(sites):
        site.index = index
        if site.control in ("branch", "exit", "trap"):
            starts.add(index + 1)
            starts.update(labels[target] for target in site.targets if target in labels)
    bounds = sorted(start for start in starts if start < len(sites))
    blocks = [Block(number, first, end) for number, (first, end) in enumerate(zip(bounds, [*bounds[1:], len(sites)], strict=True))]
    at = {block.first: block.index for block in blocks}
    before: dict[int, list[int]] = {}
    for block in blocks:
        for index in range(block.first, block.end):
            sites[index].block = block.index
        last = sites[block.end - 1]
        after = [at[labels[target]] for target in last.targets if target in labels and labels[target] in at] if (
            last.control == "branch") else []
        block.taken = (True,) * len(after)
        if (last.control in ("", "call", "unknown") or last.instruction.guard is not None) and block.end in at:
            after.append(at[block.end])
            block.taken = BRANCH if len(after) == 2 else (*block.taken, False if last.control == "branch" else None)
        block.successors = tuple(after)
        for successor in after:
            before.setdefault(successor, []).append(block.index)
    for index, known in before.items():
        blocks[index].predecessors = tuple(known)
    return blocks
