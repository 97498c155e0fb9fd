"""What the protocol rules ask of one entry: its values, threads, memory, barriers, and the facts that reach a place."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from ..grammar import tree
from ..grammar.errors import Finding, Kind, Severity
from ..grammar.operands import width
from . import effort
from .barriers import Barriers
from .between import Between
from .graph import loops
from .lanes import Lanes, Launch
from .memory import Memory, bytes_of
from .overlap import Overlap
from .places import Places, finding
from .program import Routine, Site, routine
from .values import Linear, Value, Values

if TYPE_CHECKING:
    from ..dsl.traced import Traced


class Analysis:
    """One entry of a module; `traced` adds what a trace knows: the shared-memory plan, tensor-map boxes, the cluster."""

    def __init__(self, module: tree.Module, function: tree.Function, places: Places, traced: Traced | None = None) -> None:
        self.routine: Routine = routine(module, function, places)
        effort.allow(len(self.routine.sites))
        self.traced = traced
        self.values = Values(self.routine)
        self.launch = Launch(self.routine, traced.cluster if traced else None)
        self.lanes = Lanes(self.routine, self.values, self.launch)
        self.lanes.mixed()
        self._ranked: dict[int, Lanes] = {}

    @cached_property
    def memory(self) -> Memory:
        plan = self.traced.shared if self.traced else None
        return Memory(self.routine, self.values, self.lanes, {plan.symbol: [a.offset for a in plan.allocations]} if plan else {})

    @cached_property
    def barriers(self) -> Barriers:
        plan = self.traced.shared if self.traced else None
        arrays = [(plan.symbol, array.offset, array.count, array.name) for array in plan.barriers] if plan else []
        return Barriers(self.routine, self.values, self.memory, arrays)

    @cached_property
    def overlap(self) -> Overlap:
        return Overlap(self)

    @cached_property
    def between(self) -> Between:
        return Between(self)

    @cached_property
    def sites(self) -> list[Site]:
        """The sites that the entry reaches, in the order of the text."""
        return list(self.routine.body())

    @property
    def inside(self) -> dict[int, list[Site]]:
        """The sites of each block that the entry reaches."""
        routine = self.routine
        return {block.index: routine.sites[block.first:block.end] for block in routine.blocks if block.index in routine.reachable}

    @cached_property
    def telling(self) -> dict[int, list[Site]]:
        """Those of them that do more than compute in registers, of the blocks that have any."""
        routine = self.routine
        return {block.index: found for block in routine.blocks if block.index in routine.reachable
                if (found := [site for site in routine.sites[block.first:block.end] if not site.silent])}

    @cached_property
    def acting(self) -> list[Site]:
        """All of them, in the order of the text."""
        return [site for block in sorted(self.telling) for site in self.telling[block]]

    @cached_property
    def touching(self) -> list[Site]:
        """The sites that read or write shared memory."""
        return [self.routine.sites[index] for index in self.memory.accesses]

    @cached_property
    def readers(self) -> dict[tuple[Value, str], list[Site]]:
        """The sites that read a value from a register."""
        found: dict[tuple[Value, str], list[Site]] = {}
        for site in self.sites:
            for name in dict.fromkeys(site.reads):
                found.setdefault((self.values.register(site, name), name), []).append(site)
        return found

    @cached_property
    def _users(self) -> dict[Value, list[Value]]:
        """The values that are computed from a value, of all that are read."""
        found: dict[Value, list[Value]] = {}
        todo = list(dict.fromkeys(value for value, _ in self.readers))
        seen = set(todo)
        while todo:
            here = todo.pop()
            for other in (*self.values.alternatives(here), *self.values.arguments(here)):
                found.setdefault(other, []).append(here)
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return found

    def computed_from(self, value: Value) -> Iterator[Value]:
        """The value and all that are computed from it."""
        seen, todo = {value}, [value]
        while todo:
            here = todo.pop()
            effort.spend(4)
            yield here
            new = [other for other in dict.fromkeys(self._users.get(here, ())) if other not in seen]
            seen.update(new)
            todo += new

    @cached_property
    def in_clusters(self) -> bool:
        """Whether the kernel is for clusters, by a directive or by a cluster barrier; else one of CTAs that stand alone may run it."""
        return (self.cluster or 1) > 1 or self.routine.directive("explicitcluster") is not None or any(
            "cluster.wait" in site.sync for site in self.sites)

    @property
    def cluster(self) -> int | None:
        return self.launch.cluster

    def ranked(self, rank: int) -> Lanes:
        """The threads by place in the CTA of that rank."""
        if rank not in self._ranked:
            self._ranked[rank] = self.lanes if self.cluster == 1 else Lanes(self.routine, self.values, self.launch, rank)
        return self._ranked[rank]

    def constant(self, site: Site, name: str) -> int | None:
        """The operand of that name when it is a constant."""
        operand = site.value(name)
        return None if operand is None else self.values.number(self.values.of(site, operand))

    def tensormap(self, site: Site) -> Linear | None:
        operand = site.tagged("tensormap")
        return None if operand is None else self.values.address(site, operand)

    def bytes(self, site: Site) -> int | None:
        """Bytes that one execution completes on its barrier: of a tensor copy, what the trace recorded of its box."""
        address = self.tensormap(site)
        if address is None:
            return bytes_of(self.values, site)
        record = self.traced.copies.records.get(address.symbol or "") if self.traced else None
        if record is None or address.terms or "im2col" in site.tokens:
            return None
        total = record.type.bits
        for extent in record.box:
            total *= extent
        return total // 8

    def aligned(self, symbol: str) -> int:
        """Bytes that a shared variable is aligned to; of an address rounded down (`smem+1023&-1024`) what it is rounded to."""
        name, rounded, low = symbol.partition("&-")
        if rounded:
            return int(low)
        variable = self.routine.variables.get(name)
        return 1 if variable is None else max(variable.align or 1, width(variable.type) // 8)

    def first_parity(self, site: Site) -> int | None:
        """The parity that a wait asks for the first time, when that is known."""
        operand = site.value("phaseParity")
        return None if operand is None else self.values.initial(self.values.of(site, operand))

    def wraps(self, address: Linear) -> bool:
        """Whether a loop comes back to the same place: the address has no index, or one that starts again."""
        wrapping = ("selp", "rem", "and", "xor")
        return address.constant or any(part.site is not None and (part.site.mnemonic in wrapping or part.kind == "select")
                                       for term, _ in address.terms for part in self.values.depends(term))

    def extent(self, term: Value) -> int | None:
        """How many values an index has, counted from 0, when a mask, a remainder or the comparison that wraps it tells."""
        if term.kind == "op" and term.site is not None and term.site.mnemonic in ("and", "rem"):
            bounds = [number for part in self.values.arguments(term) if (number := self.values.number(part)) is not None]
            return bounds[0] + (term.site.mnemonic == "and") if bounds else None
        for part in self.values.depends(term) if term.kind in ("phi", "select") else ():
            if part.site is not None and part.site.mnemonic == "selp":
                chosen = self.values.arguments(part)[-1]
                given = self.values.arguments(chosen) if chosen.site is not None and chosen.site.mnemonic == "setp" else []
                bounds = [number for one in given if (number := self.values.number(one)) is not None]
                if bounds:
                    return bounds[0]
        return None

    def in_loop(self, site: Site) -> bool:
        """Whether control can come back to the site."""
        return site.block in self.loops

    def around(self, block: int) -> frozenset[int]:
        """The blocks of the loops around a block, and itself."""
        return self.loops.get(block) or frozenset((block,))

    @cached_property
    def loops(self) -> dict[int, frozenset[int]]:
        """Of each block in a loop: all blocks of the outermost loop around it."""
        return loops({block.index: block.successors for block in self.routine.blocks})

    def loops_with_more(self, wait: Site) -> bool:
        """Whether the wait is in a loop that does more than ask again."""
        around = self.around(wait.block)
        return any(site.sync or site.effects.memory for site in self.acting if site.block in around and site is not wait)

    def every_round(self, site: Site) -> bool:
        """Whether each round of every loop around the site executes it: without it, none of them would come round."""
        loop, guard = self.around(site.block), site.instruction.guard
        if guard is not None and self.lanes.vector(self.values.register(site, guard.predicate)) is None:
            return False
        threads = self.lanes.of(site)
        one, blocks = threads & -threads, self.routine.blocks
        rest = {block: [successor for successor, taken in zip(blocks[block].successors, blocks[block].taken, strict=True)
                        if successor in loop and successor != site.block and self.lanes.edge(block, taken) & one]
                for block in loop if block != site.block}
        while rest:
            ends = [block for block, after in rest.items() if not any(successor in rest for successor in after)]
            if not ends:
                return False
            for block in ends:
                del rest[block]
        return True

    def reaches(self, block: int, without: frozenset[int] = frozenset()) -> frozenset[int]:
        """The blocks that control can come to from the end of a block, not passing through the blocks `without`."""
        key = (block, without)
        if key not in self._reaches:
            seen: set[int] = set()
            todo = [block]
            while todo:
                for successor in self.routine.blocks[todo.pop()].successors:
                    if successor not in seen and successor not in without:
                        seen.add(successor)
                        todo.append(successor)
            self._reaches[key] = frozenset(seen)
            effort.spend(12 * len(seen))  # a set takes memory until the end
        return self._reaches[key]

    @cached_property
    def _reaches(self) -> dict[tuple[int, frozenset[int]], frozenset[int]]:
        return {}

    def report(self, rule: str, site: Site, message: str, fix: str, severity: Severity = "review", kind: Kind = "protocol") -> Finding:
        return finding(rule, message, fix, site.place, severity, kind)
