"""Which threads of a CTA can reach an instruction: registers evaluated for each thread as far as %tid and constants decide them.

A set of threads is an int with a bit per thread, in the order of the linear thread number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cached_property

from ..grammar import tree
from ..grammar.operands import width
from .effort import spend
from .graph import Parents, post_dominators
from .program import Routine, Site
from .values import Value, Values, sources

Vector = tuple["int | None", ...]
DEEP = 60
"""Definitions followed one into another; beyond, a value is not known."""
NOMINAL = 1024
"""Threads assumed of a kernel that does not say how many it has."""


class Launch:
    """What the entry's directives say of its launch: `block` and `cluster` (CTAs) are None where they say nothing.

    `cluster` of a traced kernel is known without a directive.
    """

    def __init__(self, routine: Routine, cluster: tuple[int, int, int] | None = None) -> None:
        self.required = routine.directive("reqntid")
        self.most = routine.directive("maxntid")
        self.min_ctas = routine.directive("minnctapersm")
        self.max_registers = routine.directive("maxnreg")
        block = self.required or self.most
        self.block = (*block, 1, 1)[:3] if block else None
        shape = routine.directive("reqnctapercluster") or cluster
        self.cluster = _product(shape) if shape else None
        self.cluster_shape = (*shape, 1, 1)[:3] if shape else (1, 1, 1)

    @property
    def threads(self) -> int:
        return NOMINAL if self.block is None else _product(self.block)

    @property
    def exact(self) -> bool:
        """Whether the block has just that many threads."""
        return self.required is not None

    @property
    def everyone(self) -> int:
        return (1 << self.threads) - 1

    def warps(self, threads: int) -> int:
        """All threads of the warps that these threads are in."""
        found, warp = 0, 0xFFFFFFFF
        for shift in range(0, self.threads, 32):
            if threads >> shift & warp:
                found |= warp << shift
        return found & self.everyone


class Lanes:
    """Threads by place, in the CTA of that rank in its cluster (None: any)."""

    def __init__(self, routine: Routine, values: Values, launch: Launch, rank: int | None = None) -> None:
        self.routine = routine
        self.values = values
        self.launch = launch
        self.rank = rank
        self.everyone = launch.everyone
        self._vectors: dict[Value, Vector | None] = {}
        self._all = self.everyone, self.everyone
        self._edges: dict[int, tuple[int, int]] = {}
        self.at = self._reach()

    def of(self, site: Site) -> int:
        """The threads that may execute the site."""
        guard = site.instruction.guard
        reach = self.at[site.block]
        if guard is None or not reach or site.control == "branch":
            return reach
        holds, fails = self.masks(self.values.register(site, guard.predicate))
        return reach & (fails if guard.negated else holds)

    def surely(self, site: Site) -> int:
        """The threads that execute the site whenever they come to its block."""
        guard = site.instruction.guard
        reach = self.at[site.block]
        if guard is None or not reach or site.control == "branch":
            return reach
        holds, fails = self.masks(self.values.register(site, guard.predicate))
        return reach & ~(holds if guard.negated else fails)

    def edge(self, block: int, taken: bool | None) -> int:
        """The threads that may leave the block that way."""
        if taken is None:
            return self.everyone
        if block not in self._edges:
            site = self.routine.sites[self.routine.blocks[block].end - 1]
            guard = site.instruction.guard
            masks = self._all if guard is None else self.masks(self.values.register(site, guard.predicate))
            turned = guard is not None and guard.negated and masks is not self._all
            self._edges[block] = (masks[1], masks[0]) if turned else masks
        return self._edges[block][0 if taken else 1]

    def masks(self, value: Value) -> tuple[int, int]:
        """(threads in which a predicate may hold, threads in which it may fail)."""
        vector = self.vector(value)
        if vector is None:
            return self._all
        holds = sum(1 << thread for thread, bit in enumerate(vector) if bit is None or bit)
        fails = sum(1 << thread for thread, bit in enumerate(vector) if not bit)
        return holds, fails

    def _reach(self) -> list[int]:
        at = [0] * len(self.routine.blocks)
        at[0] = self.everyone
        todo = [0]
        while todo:
            block = self.routine.blocks[todo.pop()]
            for successor, taken in zip(block.successors, block.taken, strict=True):
                new = at[successor] | at[block.index] & self.edge(block.index, taken)
                if new != at[successor]:
                    at[successor] = new
                    todo.append(successor)
        return at

    # ------------------------------------------------------------------------------------------- exactness

    @cached_property
    def uncertain(self) -> frozenset[int]:
        """Blocks that only some of their threads may really reach: below a branch on something that may differ between threads."""
        found: set[int] = set()
        for block in self.routine.order:
            site = self.routine.sites[self.routine.blocks[block].end - 1]
            guard = site.instruction.guard
            inexact = (site.mnemonic == "brx" if guard is None else not self.decided(self.values.register(site, guard.predicate)))
            if site.control in ("branch", "exit") and inexact:
                found |= self._below(block)
        return frozenset(found)

    def _below(self, block: int) -> set[int]:
        join = self.joins[block]
        found: set[int] = set()
        todo = list(self.routine.blocks[block].successors)
        while todo:
            here = todo.pop()
            if here != join and here not in found:
                found.add(here)
                todo += self.routine.blocks[here].successors
        return found

    @cached_property
    def joins(self) -> Parents:
        """The block where the threads that part at the end of a block come together again."""
        return post_dominators({index: self.routine.blocks[index].successors for index in self.routine.order})

    def mixed(self) -> frozenset[int]:
        """Blocks at whose begin threads that a branch has parted come together, or that a loop leaves at different times: what is joined
        there may differ between threads though every alternative is the same in all.
        """
        found: frozenset[int] = frozenset()
        left = 64 * len(self.routine.blocks) + 4096
        while True:
            new: set[int] = set()
            left -= len(self.routine.order)
            for block in self.routine.order:
                site = self.routine.sites[self.routine.blocks[block].end - 1]
                guard = site.instruction.guard
                if len(set(self.routine.blocks[block].successors)) < 2 or (
                        guard is not None and uniform(self.values, self.values.register(site, guard.predicate))):
                    continue
                met, steps = self._met(block)
                new |= met
                left -= steps
                if left < 0:
                    return self.routine.reachable
            if new <= found:
                return found
            found |= new
            self.values.mixed = found
            self.values.uniform.clear()

    def _met(self, block: int) -> tuple[set[int], int]:
        """Where paths from different ways out of the block meet, up to where all do; and how many steps that took."""
        join = self.joins[block]
        label: dict[int, int] = {}
        met: set[int] = set()
        todo = [(successor, successor) for successor in dict.fromkeys(self.routine.blocks[block].successors)]
        steps = 0
        while todo:
            here, way = todo.pop()
            steps += 1
            if here in label and (label[here] == way or here in met):
                continue
            if here in label or here in (join, block):
                met.add(here)
                way = here
            label[here] = way
            if here == block:  # a loop, which threads leave at different times
                met |= {other for other in label if len(self.routine.blocks[other].predecessors) > 1}
            elif here != join:
                todo += [(successor, way) for successor in self.routine.blocks[here].successors]
        return met, steps

    def exact(self, site: Site) -> bool:
        """Whether all the threads of `of(site)` execute it together, or none does."""
        guard = site.instruction.guard
        return site.block not in self.uncertain and (
            guard is None or site.control == "branch" or self.decided(self.values.register(site, guard.predicate)))

    def always(self, site: Site) -> bool:
        """Whether a thread that may come to the site comes there whatever the data are: no branch on the way leads past it."""
        threads = self.at[site.block]
        one = threads & -threads
        graph = {block: [successor for successor, taken in zip(self.routine.blocks[block].successors, self.routine.blocks[block].taken,
                                                               strict=True) if self.edge(block, taken) & one]
                 for block in self.routine.order}
        return bool(one) and post_dominators(graph).above(site.block, 0)

    def decided(self, value: Value, depth: int = 0) -> bool:
        """Whether a predicate is known of each thread, is the same in all, or combines such."""
        vector = self.vector(value)
        if (vector is not None and None not in vector) or uniform(self.values, value):
            return True
        return (value.kind == "op" and value.site is not None and value.site.mnemonic in ("and", "or", "not", "xor", "mov") and depth < 8
                and all(self.decided(part, depth + 1) for part in self.values.arguments(value)))

    # ------------------------------------------------------------------------------------------- evaluation

    def vector(self, value: Value, depth: int = 0) -> Vector | None:
        """The value in each thread, None where it is not known."""
        if value in self._vectors:
            return self._vectors[value]
        if depth > DEEP:
            return None
        self._vectors[value] = None  # a value that depends on itself is not known
        found = self._vector(value, depth)
        self._vectors[value] = None if found is None or all(number is None for number in found) else found
        return self._vectors[value]

    def _vector(self, value: Value, depth: int) -> Vector | None:
        if value.kind == "int":
            return (value.number,) * self.launch.threads
        if value.kind == "special":
            return self._special(value.name.lstrip("%"))
        if value.kind in ("phi", "select"):
            return self._merged(value, depth)
        if value.kind == "op" and value.site is not None:
            return self._result(value.site, value, depth)
        return None

    def _merged(self, value: Value, depth: int) -> Vector | None:
        vectors = [self.vector(other, depth + 1) for other in self.values.alternatives(value)]
        if value.kind == "select" and value.site is not None:
            return self._chosen(value, value.site, vectors[0] if vectors else None, self._result(value.site, value, depth), depth)
        first = vectors[0] if vectors else None
        return first if first is not None and all(vector == first for vector in vectors) else None

    def _chosen(self, value: Value, site: Site, before: Vector | None, after: Vector | None, depth: int) -> Vector | None:
        """Of a guarded instruction: its result where the guard holds, what was there before where it does not."""
        guard = site.instruction.guard
        unknown = (None,) * self.launch.threads
        holds = self.vector(self.values.register(site, guard.predicate), depth + 1) if guard is not None else None
        if guard is None or (before is None and after is None):
            return None
        rows = zip(holds or unknown, before or unknown, after or unknown, strict=True)
        return tuple((old if old == new else None) if bit is None else new if bool(bit) != guard.negated else old for bit, old, new in rows)

    def _special(self, name: str) -> Vector | None:
        threads, shape = range(self.launch.threads), self.launch.block or (NOMINAL, 1, 1)
        x, y, _ = shape
        if name.startswith("tid."):
            if self.launch.block is None and name != "tid.x":
                return None
            return tuple({"x": t % x, "y": t // x % y, "z": t // (x * y)}[name[-1]] for t in threads)
        if name in ("laneid", "warpid"):
            return tuple(t % 32 if name == "laneid" else t // 32 for t in threads)
        constant: int | None = None
        if name.startswith("ntid.") and self.launch.exact:
            constant = shape["xyz".index(name[-1])]
        elif name == "cluster_nctarank":
            constant = self.launch.cluster
        elif self.launch.cluster == 1 and name in ("cluster_ctarank", *(f"cluster_ctaid.{axis}" for axis in "xyz")):
            constant = 0
        elif self.rank is not None and name == "cluster_ctarank":
            constant = self.rank
        elif self.rank is not None and name.startswith("cluster_ctaid."):
            cx, cy, _ = self.launch.cluster_shape
            constant = {"x": self.rank % cx, "y": self.rank // cx % cy, "z": self.rank // (cx * cy)}[name[-1]]
        return None if constant is None else (constant,) * len(threads)

    def _result(self, site: Site, value: Value, depth: int) -> Vector | None:
        if site.mnemonic == "elect":
            return self._elected(site, value)
        operation = OPERATIONS.get(site.mnemonic)
        if operation is None or (site.mnemonic == "bfe" and site.opcode[-3] == "s") or "sat" in site.tokens:
            return None
        if "hi" in site.tokens:
            operation = higher
        given = []
        for operand in sources(site):
            vector = self.vector(self.values.of(site, operand), depth + 1)
            if isinstance(operand, tree.Not) and vector is not None:
                vector = tuple(None if bit is None else 1 - bit for bit in vector)
            given.append(vector)
        if site.mnemonic == "shfl":
            return _shuffled(site, given)
        if all(vector is None for vector in given) or (None in given and site.mnemonic not in ("and", "or", "selp")):
            return None
        if site.mnemonic == "cvt":
            given = [_read(site, vector) for vector in given]
        bits, signed = type_of(site)
        second = site.mnemonic == "setp" and len(site.writes) > 1 and site.writes[0] != value.name
        unknown = (None,) * self.launch.threads
        rows = zip(*(unknown if vector is None else vector for vector in given), strict=True)
        return tuple(operation(site, row, bits, signed, second) for row in rows)

    def _elected(self, site: Site, value: Value) -> Vector | None:
        """One lane of each warp, the lowest of the mask: which one it really is, is not promised."""
        if self.routine.registers.get(value.name) != "pred":
            return None
        members = self.values.number(self.values.of(site, sources(site)[0])) if sources(site) else None
        leader = (members & -members).bit_length() - 1 if members else 0
        return tuple(int(thread % 32 == leader) for thread in range(self.launch.threads))


# ------------------------------------------------------------------------------------------------ the same in all threads


def uniform(values: Values, value: Value) -> bool:
    """Whether every thread of the CTA surely has the same value (where it has executed the same)."""
    if value not in values.uniform:
        _spread(values, value)
    return values.uniform[value]


def _spread(values: Values, value: Value) -> None:
    """Find that of the value and of all that it is computed from: what comes from a number that differs may differ."""
    users: dict[Value, list[Value]] = {value: []}
    todo, differing = [value], list[Value]()
    while todo:
        here = todo.pop()
        if values.uniform.get(here) is False or _differs(values, here):
            differing.append(here)
        elif here not in values.uniform:
            for other in (*values.alternatives(here), *values.arguments(here)):
                if other not in users:
                    users[other] = []
                    todo.append(other)
                users[other].append(here)
    spend(len(users))
    values.uniform.update(dict.fromkeys(users, True))
    while differing:
        here = differing.pop()
        if values.uniform[here]:
            values.uniform[here] = False
            differing += users[here]


def _differs(values: Values, part: Value) -> bool:
    """Whether the value may differ between threads though all that it is computed from is the same in all."""
    same = ("ctaid", "nctaid", "ntid", "clusterid", "nclusterid", "cluster_", "gridid", "nwarpid", "smid", "nsmid", "dynamic_smem",
            "total_smem", "is_explicit")
    if part.kind == "phi":
        return part.block in values.mixed
    if part.kind == "symbol":  # each thread has its own
        variable = values.routine.variables.get(part.name)
        return variable is not None and variable.space == "local"
    if part.kind == "special":
        return not part.name.lstrip("%").startswith(same)
    return part.kind == "unknown" or (part.kind in ("op", "select") and part.site is not None and not _uniform_operation(part.site))


def _uniform_operation(site: Site) -> bool:
    """Loads of a thread's own memory differ, and those that others' stores are meant to change come at different times."""
    if site.mnemonic == "ld" and not site.tokens.isdisjoint(("local", "volatile", "relaxed", "acquire", "mmio")):
        return False
    return site.mnemonic not in ("atom", "elect", "activemask", "mbarrier", "clock", "call", "shfl", "match", "ldmatrix", "mma", "wmma",
                                 "wgmma", "alloca", "stacksave")


# ------------------------------------------------------------------------------------------------ operations on one thread's numbers


def type_of(site: Site) -> tuple[int, bool]:
    types = [token for token in site.opcode.split(".") if width(token)]
    last = types[0] if types and site.mnemonic == "cvt" else types[-1] if types else "u32"
    bits = width(last) * (2 if "wide" in site.tokens else 1)
    return bits, last[0] == "s"


def _read(site: Site, vector: Vector | None) -> Vector | None:
    """The numbers as a conversion reads them: in its second type."""
    types = [token for token in site.opcode.split(".") if width(token)]
    if vector is None or len(types) != 2 or any(token[0] not in "usb" for token in types):
        return None
    return tuple(None if number is None else _wrapped(number, width(types[1]), types[1][0] == "s") for number in vector)


def _wrapped(number: int, bits: int, signed: bool) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if signed and number >> bits - 1 else number


Operation = Callable[[Site, tuple["int | None", ...], int, bool, bool], "int | None"]


def _arithmetic(compute: Callable[..., int]) -> Operation:
    def run(site: Site, row: tuple[int | None, ...], bits: int, signed: bool, second: bool) -> int | None:
        if None in row:
            return None
        try:
            return _wrapped(compute(*(_wrapped(n, bits, signed) for n in row if n is not None)), bits, signed)
        except (ZeroDivisionError, ValueError, OverflowError, TypeError):
            return None

    return run


def _both(site: Site, row: tuple[int | None, ...], bits: int, signed: bool, second: bool) -> int | None:
    if 0 in row:
        return 0
    return None if None in row or row[0] is None or row[1] is None else _wrapped(row[0] & row[1], bits, signed)


def _either(site: Site, row: tuple[int | None, ...], bits: int, signed: bool, second: bool) -> int | None:
    if bits == 1 and any(number for number in row):
        return 1
    return None if None in row or row[0] is None or row[1] is None else _wrapped(row[0] | row[1], bits, signed)


def higher(site: Site, row: tuple[int | None, ...], bits: int, signed: bool, second: bool) -> int | None:
    """The upper half of a product, and what is added to it."""
    given = [_wrapped(number, bits, signed) for number in row if number is not None]
    return None if len(given) < len(row) else _wrapped((given[0] * given[1] >> bits) + sum(given[2:]), bits, signed)


def _selected(site: Site, row: tuple[int | None, ...], bits: int, signed: bool, second: bool) -> int | None:
    if len(row) < 3:
        return None
    if row[2] is None:
        return row[0] if row[0] == row[1] else None
    return row[0] if row[2] else row[1]


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}


def _compared(site: Site, row: tuple[int | None, ...], bits: int, signed: bool, second: bool) -> int | None:
    """setp, with its second result and its third operand."""
    tokens = site.opcode.split(".")
    compare = _COMPARE.get(tokens[1])
    if compare is None or row[0] is None or row[1] is None or tokens[-1][0] == "f":
        return None
    found: int | None = int(compare(_wrapped(row[0], bits, signed), _wrapped(row[1], bits, signed)))
    found = 1 - int(bool(found)) if second else found
    if len(row) > 2:
        if "and" in site.tokens:
            return _both(site, (found, row[2]), 1, False, False)
        if "or" in site.tokens:
            return _either(site, (found, row[2]), 1, False, False)
        return None if row[2] is None or found is None else found ^ row[2]
    return found


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


OPERATIONS: dict[str, Operation] = {
    "mov": _arithmetic(lambda a: a), "cvt": _arithmetic(lambda a: a), "add": _arithmetic(operator.add), "sub": _arithmetic(operator.sub),
    "mul": _arithmetic(operator.mul), "mad": _arithmetic(lambda a, b, c: a * b + c), "not": _arithmetic(lambda a: ~a),
    "shl": _arithmetic(lambda a, b: a << b if b < 64 else 0), "shr": _arithmetic(lambda a, b: a >> b), "xor": _arithmetic(operator.xor),
    "div": _arithmetic(_quotient), "rem": _arithmetic(lambda a, b: a - b * _quotient(a, b)), "min": _arithmetic(min),
    "max": _arithmetic(max), "bfe": _arithmetic(lambda a, at, count: a >> at & (1 << count) - 1), "and": _both, "or": _either,
    "selp": _selected, "setp": _compared, "shfl": _arithmetic(lambda a: a),
}


def _shuffled(site: Site, given: list[Vector | None]) -> Vector | None:
    """`shfl.sync.idx` from one lane to its warp."""
    if "idx" not in site.tokens or len(given) < 2 or given[0] is None or given[1] is None or None in given[1]:
        return None
    source, lanes = given[0], given[1]
    return tuple(source[(thread & ~31) + ((lane or 0) & 31)] if (thread & ~31) + ((lane or 0) & 31) < len(source) else None
                 for thread, lane in enumerate(lanes))


def _product(extents: tuple[int, ...]) -> int:
    result = 1
    for extent in extents:
        result *= extent
    return result
