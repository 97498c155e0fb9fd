"""What the parts of the checker share: the state of each cluster, fragment and site, and the list of findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...grammar.errors import Finding
from ..observer import Observer
from .agents import Ended
from .clocks import Double, Home, Lanes
from .rules import RULES
from .shadow import Shadow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..cta import Cluster, Cta
    from ..fragment import Fragment
    from ..machine import Machine
    from ..program import Op

MOST = 64
"""Findings that a run keeps; each rule speaks once per pair of sites."""


class Base(Observer):
    """`incomplete`: something steers the run that another schedule may do otherwise, or a certificate fails."""

    def __init__(self) -> None:
        self._findings: dict[tuple[Any, ...], Finding] = {}
        self.homes: list[Home | Ended] = []
        self.incomplete = False
        self.accesses = 0
        self.alone: dict[int, list[int]] = {}
        """By instruction, the elections (by index) whose elected lane executes it, or the others."""
        self.parted: set[int] = set()
        """The blocks at whose end lanes of a warp have parted."""

    def findings(self) -> list[Finding]:
        return list(self._findings.values())

    @property
    def keyed(self) -> Mapping[tuple[Any, ...], Finding]:
        """The findings by (rule, site, what tells them apart: of two accesses (the site before, whether it wrote)), in the order found."""
        return self._findings

    @property
    def every_schedule(self) -> bool:
        """Whether the certificates hold and nothing races, so that every schedule of this input does the same."""
        return not self.incomplete and not any(f.severity == "error" for f in self._findings.values())

    def report(self, rule: str, op: Op | None, message: str, *, other: Any = None, fix: str = "") -> None:
        known = RULES[rule]
        if known.certificate:
            self.incomplete = True
        key = rule, None if op is None else op.index, other
        if key in self._findings or len(self._findings) >= MOST:
            return
        position = None if op is None else op.python or op.position
        line = op.position.line if op is not None and op.position is not None and op.position.file is None else None
        self._findings[key] = Finding(rule, message, fix or known.fix, position, known.kind, known.severity, line)

    def site(self, index: int) -> str:
        """An instruction as a message names it."""
        ops = self.machine.program.ops
        if not 0 <= index < len(ops):
            return "an instruction"
        op = ops[index]
        where = op.python or op.position
        return f"`{op.opcode}` ({where})" if where else f"`{op.opcode}`"

    # ------------------------------------------------------------------------------------------- life

    def begin(self, machine: Machine) -> None:
        self.machine = machine

    def home(self, cluster: Cluster) -> Home:
        shadow: Shadow | None = cluster.shared.shadow
        if shadow is None:
            made = Home(cluster, len(self.homes))
            self.homes.append(made)
            cluster.shared.shadow = made, Shadow(len(cluster.shared.data) & ~15)
        return cluster.shared.shadow[0]  # type: ignore[no-any-return]

    def forget(self, cluster: Cluster) -> None:
        """The cluster has ended: keep of it only what a later message may tell."""
        known = cluster.shared.shadow
        if known is not None:
            self.homes[known[0].number] = known[0].end()

    def shadow(self, cluster: Cluster) -> Shadow:
        self.home(cluster)
        return cluster.shared.shadow[1]  # type: ignore[no-any-return]

    def lanes(self, f: Fragment, op: Op | None = None, mask: int = 0) -> Lanes:
        """What the lanes of a fragment know; of what an elected lane does alone (`op`, with lanes `mask`), what stands for that lane."""
        if op is not None and self.alone:
            double = self._elected(f, op, mask)
            if double is not None:
                return double.lanes
        found: Lanes | None = f.shadow
        if found is None:
            home = self.home(f.cta.cluster)
            warp = home.warp(f)
            view = home.new()
            view.a[0, warp.own] = 1
            found = f.shadow = Lanes(warp, [(f.mask, view)])
        return found

    def _elected(self, f: Fragment, op: Op, mask: int) -> Double | None:
        """The elected lane that executes this alone, or one of the calls that have led here."""
        if mask & mask - 1:
            return None
        at, below = op, f.stack
        while True:
            for i in self.alone.get(at.index, ()):
                double: Double | None = self.lanes(f).warp.elections.get(i)
                if double is not None and double.mask == mask:
                    return double
            if below is None:
                return None
            at, below = below.op, below.below

    def part(self, f: Fragment, other: Fragment) -> None:
        self.parted.add(f.block)
        lanes: Lanes | None = f.shadow
        if lanes is None:
            mask, f.mask = f.mask, f.mask | other.mask
            lanes = self.lanes(f)
            f.mask = mask
        other.shadow = lanes.part(other.mask)

    def joined(self, parts: Sequence[Fragment]) -> None:
        whole = max(parts, key=lambda f: f.mask.bit_count())
        self.lanes(whole).adopt([self.lanes(f) for f in parts if f is not whole])

    # ------------------------------------------------------------------------------------------- words

    def place(self, cluster: Cluster, place: int) -> str:
        """The author's name of a byte of shared memory."""
        cta: Cta = cluster.ctas[place // self.machine.shared_stride]
        return f"{self.machine.name_of(place - cta.start)} of {cta!r}"
