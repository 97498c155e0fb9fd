"""Registers that are read after the `with` block in which they were first written.

A register that a block makes has no value after it where the block did not run, and after a loop it is not what the next iteration reads.
What was written on every path to the read is right: in both halves of `if_` and `else_`, or before each way out of a `loop`. So is a read
under the same condition as the write, or one that implies it: `p & q` implies `p`, and `t < 4` implies `t < 8`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import TraceError
from ..grammar import tree
from ..grammar.errors import OpcodeError, Position
from ..grammar.walk import instructions
from .assigned import assigned

if TYPE_CHECKING:
    from .trace import Builder

ENDS = ("bra", "bra.uni", "exit", "ret", "ret.uni", "trap", "brx.idx", "brx.idx.uni")
"""Instructions after which control does not go on, if they have no guard."""
CONSTANT = ("%tid.", "%ntid.", "%ctaid.", "%nctaid.", "%clusterid.", "%nclusterid.", "%cluster_ctaid.", "%cluster_nctaid.",
            "%cluster_ctarank", "%cluster_nctarank", "%laneid")
"""Special registers that do not change while a thread runs."""


class Region:
    """The body of one `with` block: statements `at` to `end` of the trace, and the numbers of the registers made in it. In the list that
    the builder appends to it begins at `start`."""

    __slots__ = ("alone", "at", "before", "condition", "end", "exits", "first", "kind", "last", "of", "out", "parent", "repeats", "start",
                 "taken")

    def __init__(self, kind: str, start: int, at: int, first: dict[str, int], parent: Region | None) -> None:
        self.kind = kind
        self.start = start
        self.at = self.end = at
        self.first = first
        self.last: dict[str, int] = first
        self.parent = parent
        self.condition: tree.Guard | None = None
        self.of: Region | None = None
        self.out = ""
        self.repeats = False
        self.alone = False                   # whether at most one thread of a warp is in it
        self.before: frozenset[str] = frozenset()
        self.taken: frozenset[str] | None = None
        self.exits: frozenset[str] | None = None


class Regions:
    """The `with` blocks of one trace."""

    def __init__(self) -> None:
        self.open: list[Region] = []
        self.events: list[tuple[int, Region, bool]] = []
        """Where blocks begin (True) and end, in the order of the trace."""

    def enter(self, builder: Builder, kind: str, condition: tree.Guard | None = None) -> Region:
        """Begin a block."""
        region = Region(kind, len(builder.body), builder.now, builder.counts(), self.open[-1] if self.open else None)
        region.condition = condition
        self.open.append(region)
        self.events.append((region.at, region, True))
        return region

    def leave(self, builder: Builder, region: Region) -> None:
        """End the block that was begun last."""
        region.end, region.last = builder.now, builder.counts()
        self.open.remove(region)
        self.events.append((region.end, region, False))

    def branched(self, depth: int) -> bool:
        """Whether a block within the outermost `depth` ones is one of a branch."""
        return any(region.kind in ("if_", "else_") for region in self.open[depth:])

    def homes(self, prefixes: Mapping[str, str]) -> dict[str, Region]:
        """The innermost block in which each register was made, for those that a block made."""
        found: dict[str, Region] = {}
        for _, region, begins in self.events:
            if begins:
                for kind, last in region.last.items():
                    first, prefix = region.first.get(kind, 0), prefixes[kind]
                    if first < last:
                        found.update(dict.fromkeys([f"{prefix}{i}" for i in range(first, last)], region))
        return found


def check_reads(builder: Builder, reads: Mapping[str, int], prefixes: Mapping[str, str]) -> None:
    """Raise where a register is read after the block that made it. `reads` is the last statement that reads each register."""
    regions = builder.regions
    if not regions.events:
        return
    late = {name: region for name, region in regions.homes(prefixes).items() if reads.get(name, -1) >= region.end}
    if late:
        _Paths(builder, late).follow()


class _Paths:
    """The registers among `late` that have been written on every path to the current statement."""

    def __init__(self, builder: Builder, late: Mapping[str, Region]) -> None:
        self.body = builder.statements()
        self.events = builder.regions.events
        self.late = late
        self.open: list[Region] = []
        self.written: frozenset[str] = frozenset()
        self.dead = False
        self.lines: dict[str, Position | None] = {}
        self.values = _Values(self.body)

    def follow(self) -> None:
        events = iter((*self.events, (len(self.body) + 1, None, False)))
        at, region, begins = next(events)
        for i, statement in enumerate(self.body):
            while at <= i:
                assert region is not None
                (self._enter if begins else self._leave)(region)
                at, region, begins = next(events)
            if isinstance(statement, tree.Label):
                self.dead = False
            for each in (statement,) if isinstance(statement, tree.Instruction) else instructions((statement,)):
                self._step(each)

    def _enter(self, region: Region) -> None:
        region.before = self.written
        self.open.append(region)

    def _leave(self, region: Region) -> None:
        self.open.remove(region)
        here = None if self.dead else self.written
        if region.kind == "if_":
            region.taken, self.written = here, region.before
        elif region.kind == "else_" and region.of is not None:
            halves = [half for half in (region.of.taken, here) if half is not None]
            self.written = frozenset.intersection(*halves) if halves else region.before
        elif region.kind == "loop":
            if region.repeats and here is not None:
                region.exits = here if region.exits is None else region.exits & here
            self.written = region.exits if region.exits is not None else self.written
        else:
            self.written = region.before
        self.dead = False

    def _step(self, instruction: tree.Instruction) -> None:
        guard = instruction.guard
        read, written = accesses(instruction)
        for name in (*read, *((guard.predicate,) if guard else ())):
            if name in self.late and name not in self.written and not self.dead and name in self.lines:
                self._read(name, instruction)
        if instruction.opcode in ENDS:
            for region in self.open:
                if region.out and any(tree.Name(region.out) == operand for operand in instruction.operands):
                    region.exits = self.written if region.exits is None else region.exits & self.written
            self.dead = guard is None
        for name in written:
            if name in self.late:
                self.lines.setdefault(name, instruction.position)
                self.written |= {name}

    def _read(self, name: str, instruction: tree.Instruction) -> None:
        region: Region | None = self.late[name]
        here = [fact for each in (*(region.condition for region in self.open), instruction.guard) if each is not None
                for fact in self.values.facts(each)]
        while region is not None and region not in self.open:
            if region.condition is None or not any(implies(fact, self.values.of(region.condition)) for fact in here):
                self._refuse(name, self.late[name], instruction)
            region = region.parent

    def _refuse(self, name: str, region: Region, instruction: tree.Instruction) -> NoReturn:
        after = f"read after it (line {instruction.position.line})" if instruction.position else "read after it"
        kind = name[1:].rstrip("0123456789")
        type_ = {"p": "pred", "r": "u32", "rd": "u64", "rs": "u16", "rq": "b128", "f": "f32", "fd": "f64"}.get(kind, "b32")
        called = self._called(name)
        word = called or "total"
        if region.kind in ("if_", "else_"):
            first = "n != n" if kind == "p" else f"mov.{type_}({'0.0' if kind in ('f', 'fd') else '0'})"
            raise TraceError(
                f"`{called or name}` is first written in this `with {region.kind}` body and {after}: where the body does not run, it has "
                f"no value. Make it before the `with`, as `{word} = {first}`, and write it in place here, as `mov.{type_}({word}, x)`",
                self.lines[name])
        word = word if word.isidentifier() else "total"
        how = f"{'for_range(n, ' if region.kind == 'for_range' else 'loop('}{word}=zero)"
        add = "add.rn.f32" if kind == "f" else "add.u32"
        raise TraceError(
            f"`{called or name}` is first written in this loop's body and {after}: each iteration makes it anew, and without one it has no "
            f"value. Carry it, `with {how} as loop:` and `loop.{word} = ...`, after which `loop.{word}` is the result; or make it before "
            f"the loop and write it in place, as `{add}({word}, {word}, x)`", self.lines[name])

    def _called(self, name: str) -> str | None:
        """What the author assigns at the line that makes a register, if that is the register: the last one that the line makes."""
        line = self.lines[name]
        if line is None:
            return None
        written = [(each.position, accesses(each)[1]) for each in instructions(self.body)]
        at = next(i for i, (_, names) in enumerate(written) if name in names)
        statement = assigned(line)
        if statement is None or (at + 1 < len(written) and (after := written[at + 1][0]) is not None and after.file == line.file
                                 and after.line in statement.lines):
            return None
        return statement.target


def leaves(body: list[tree.Statement], top: str) -> bool:
    """Whether control may leave the statements of a loop's body, which goes back to `top`."""
    within = {statement.name for statement in body if isinstance(statement, tree.Label)} | {top}
    for each in instructions(body):
        mnemonic = each.opcode.partition(".")[0]
        if mnemonic in ("ret", "exit", "trap", "brx", "call") or (mnemonic == "bra" and not within.issuperset(names(each.operands[0]))):
            return True
    return False


class _Values:
    """What predicates are, by the instructions that make them: two comparisons of the same values are one condition."""

    def __init__(self, body: list[tree.Statement]) -> None:
        self.made: dict[str, Any] = {}
        for each in instructions(body):
            for name in accesses(each)[1]:
                self.made[name] = None if name in self.made or each.guard is not None else each

    def of(self, guard: tree.Guard) -> tuple[Any, bool]:
        """A predicate that is written more than once is no condition that two places share."""
        if self.made.get(guard.predicate, ()) is None:
            return object(), guard.negated
        value = self._value(guard.predicate, 4)
        return guard.predicate if value is None else value, guard.negated

    def facts(self, guard: tree.Guard) -> Iterator[tuple[Any, bool]]:
        """Conditions that hold where this one does: of `p & q` also `p` and `q`, of `~(p | q)` also `~p` and `~q`."""
        yield self.of(guard)
        made = self.made.get(guard.predicate)
        if made is not None and made.opcode == ("or.pred" if guard.negated else "and.pred"):
            for operand in made.operands[1:]:
                inner = operand.operand if isinstance(operand, tree.Not) else operand
                if isinstance(inner, tree.Name):
                    yield from self.facts(tree.Guard(inner.name, isinstance(operand, tree.Not) != guard.negated))

    def _value(self, name: str, depth: int) -> Any:
        """The expression that a register holds all the time; None where there is none."""
        made = self.made.get(name, ())
        if made is None:
            return None
        if made == () or not depth or isinstance(made.operands[0], tree.Pair) \
                or made.opcode.partition(".")[0] not in ("setp", "mov", "add", "sub", "and", "or", "shr", "shl"):
            return name
        source = made.operands[1]
        if made.opcode.startswith("mov") and isinstance(source, tree.Name) and source.name.startswith("%"):
            if source.name.startswith(CONSTANT):
                return source.name
            if source.name not in self.made:
                return name
        inner = [self._operand(o, depth - 1) for o in made.operands[1:]]
        return None if None in inner else (made.opcode, *inner)

    def _operand(self, operand: tree.Operand, depth: int) -> Any:
        if isinstance(operand, tree.Not) and isinstance(operand.operand, tree.Name):
            value = self._value(operand.operand.name, depth)
            return None if value is None else ("not", value)
        return self._value(operand.name, depth) if isinstance(operand, tree.Name) else operand


_NOT = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "ne": "eq", "eq": "ne"}


def implies(one: tuple[Any, bool], other: tuple[Any, bool]) -> bool:
    """Whether a condition holds where another one does: it is the same, or both compare a value with constants, as `t < 4` and `t < 8`."""
    if one == other:
        return True
    narrow, wide = _bounds(one), _bounds(other)
    return narrow is not None and wide is not None and narrow[0] == wide[0] and wide[1] <= narrow[1] and narrow[2] <= wide[2]


def _bounds(condition: tuple[Any, bool]) -> tuple[Any, float, float] | None:
    """What a condition compares, and the least and greatest number for which it holds. None if it compares no integer with a constant."""
    match condition[0]:
        case (str(opcode), value, tree.Integer(number)) if opcode.startswith("setp.") and opcode.count(".") == 2:
            _, relation, kind = opcode.split(".")
        case _:
            return None
    relation = _NOT.get(relation, "") if condition[1] else relation
    low, high = {"lt": (-inf, number - 1), "le": (-inf, number), "gt": (number + 1, inf), "ge": (number, inf),
                 "eq": (number, number)}.get(relation, (inf, -inf))
    return ((value, kind), low, high) if low <= high and (number >= 0 or kind[0] == "s") else None


WRITES: dict[str, bool] = {}
"""What `writes` said of an opcode."""


def accesses(instruction: tree.Instruction) -> tuple[list[str], list[str]]:
    """(names read, names written) by an instruction. PTX's results stand first."""
    operands = instruction.operands
    if not operands:
        return [], []
    if not writes(instruction.opcode):
        return [name for operand in operands for name in names(operand)], []
    read = [name for operand in operands[1:] for name in names(operand)]
    written = list(names(operands[0]))
    if instruction.opcode.startswith("wgmma.mma_async") and tree.Integer(0) not in operands[3:4]:
        read += written
    return read, written


def writes(opcode: str) -> bool:
    """Whether an opcode's first operand is its result."""
    from ..grammar.forms import lookup

    known = WRITES.get(opcode)
    if known is None:
        try:
            known = any(s.parameters and s.parameters[0].operand.access in ("w", "rw") and s.parameters[0].operand.kind != "address"
                        for s in lookup(opcode))
        except OpcodeError:
            known = True
        known = WRITES[opcode] = known or opcode.startswith("call")
    return known


def names(operand: Any) -> Iterator[str]:
    """The names in an operand."""
    if isinstance(operand, tree.Name):
        yield operand.name
    elif isinstance(operand, tree.Vector | tree.Arguments):
        for element in operand.elements:
            yield from names(element)
    elif isinstance(operand, tree.Address | tree.Offset):
        yield from names(operand.base)
    elif isinstance(operand, tree.TensorAddress):
        yield operand.tensormap.name
        yield from names(operand.coordinates)
    elif isinstance(operand, tree.Pair):
        yield from names(operand.first)
        yield from names(operand.second)
    elif isinstance(operand, tree.Not):
        yield from names(operand.operand)


__all__ = ["WRITES", "Region", "Regions", "accesses", "check_reads", "leaves", "names", "writes"]
