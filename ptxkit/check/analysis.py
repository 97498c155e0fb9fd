"""What the protocol rules ask of one entry: its values, threads, memory, barriers, and the facts that reach a place."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ..grammar import tree
from ..grammar.errors import Finding, Kind, Severity
from ..grammar.operands import width
from .barriers import Barriers
from .lanes import Lanes, Launch
from .memory import Memory, bytes_of
from .places import Places, finding
from .program import Routine, Site, routine
from .values import Linear, Value, Values

if TYPE_CHECKING:
    from ..dsl.traced import Traced


class Analysis:
    """One entry of a module; `traced` adds what a trace knows: the shared-memory plan, tensor-map boxes, the cluster."""

    def __init__(self, module: tree.Module, function: tree.Function, places: Places, traced: Traced | None = None) -> None:
        self.routine: Routine = routine(module, function, places)
        self.traced = traced
        self.values = Values(self.routine)
        self.launch = Launch(self.routine, traced.cluster if traced else None)
        self.lanes = Lanes(self.routine, self.values, self.launch)
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
    def sites(self) -> list[Site]:
        """The sites that the entry reaches, in the order of the text."""
        return list(self.routine.body())

    @cached_property
    def inside(self) -> dict[int, list[Site]]:
        """The sites of each block that the entry reaches."""
        routine = self.routine
        return {block.index: routine.sites[block.first:block.end] for block in routine.blocks if block.index in routine.reachable}

    @cached_property
    def telling(self) -> dict[int, list[Site]]:
        """Those of them that do more than compute in registers."""
        return {block: [site for site in sites if not site.silent] for block, sites in self.inside.items()}

    @cached_property
    def acting(self) -> list[Site]:
        """All of them, in the order of the text."""
        return [site for block in sorted(self.telling) for site in self.telling[block]]

    @cached_property
    def touching(self) -> list[Site]:
        """The sites that read or write shared memory."""
        return [self.routine.sites[index] for index in self.memory.accesses]

    @cached_property
    def readers(self) -> dict[str, list[Site]]:
        """The sites that read a register, by its name."""
        found: dict[str, list[Site]] = {}
        for site in self.sites:
            for name in dict.fromkeys(site.reads):
                found.setdefault(name, []).append(site)
        return found

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
        return site.block in self.reaches(site.block)

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
        return self._reaches[key]

    @cached_property
    def _reaches(self) -> dict[tuple[int, frozenset[int]], frozenset[int]]:
        return {}

    def report(self, rule: str, site: Site, message: str, fix: str, severity: Severity = "review", kind: Kind = "protocol") -> Finding:
        return finding(rule, message, fix, site.place, severity, kind)
