"""What a run found, and what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..grammar.errors import Finding, Position
from .errors import SimulationError

if TYPE_CHECKING:
    from ..timeline import Timeline
    from .written import Written

ALIKE = 4
"""Of the findings of one rule at one line so many are written; one with each register of an accumulator would hide the others."""
Verdict = Literal["clean", "review", "incomplete", "error"]


@dataclass(slots=True)
class Stats:
    """Counts of one run, in warp instructions unless said otherwise."""

    instructions: int = 0
    opcodes: Mapping[str, int] = field(default_factory=dict)
    bank_conflicts: int = 0
    barrier_waits: int = 0
    bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes moved, by "read shared", "write global", ..."""


@dataclass(slots=True)
class Report:
    """`verdict`: "error" (wrong, or certain to fail), "incomplete" (a certificate failed, or control depends on a polled value), "review"
    (not provably right), "clean". `checked` says whether the checker ran: without it only faults are findings, and a run without one
    is "incomplete".
    """

    findings: tuple[Finding, ...] = ()
    stats: Stats = field(default_factory=Stats)
    checked: bool = True
    incomplete: bool = False
    every_schedule: bool = False
    """Whether the certificates hold, so that every schedule of this input is equivalent to the one that ran."""
    provided: str = ""
    """What that supposes of the device: that CTAs which wait for each other run together."""
    schedule: str = "fifo"
    seed: int = 0
    output: str = ""
    """What the kernel printed."""
    ended: bool = True
    """Whether the run came to its end. A fault stops it, and leaves memory half-written."""
    variables: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """What the module's own variables in global memory held at the end, by name."""
    written: Written | None = field(default=None, repr=False, compare=False)
    timeline: Timeline | None = field(default=None, repr=False, compare=False)
    """What the marks of the run say, where it ran with them."""

    def unwritten(self, array: Any) -> Any:
        """A mask of an array that was an argument, or of a view of one: the elements of which a byte was never written. A store box that is
        too small, or a grid, leaves some. It takes a run under the checker.
        """
        if self.written is None:
            raise SimulationError("only a run with check=True knows what was written")
        return self.written.unwritten(array)

    @property
    def partly_written(self) -> tuple[str, ...]:
        """The arguments of which something was written, but not all, in words."""
        return () if self.written is None else self.written.partly()

    @property
    def reasons(self) -> tuple[Finding, ...]:
        """Why there is no certificate, where nothing is wrong: what depends on the schedule, the time or the machine, and where it goes."""
        from .checker.rules import RULES

        return tuple(f for f in self.findings if f.severity != "error" and f.rule in RULES and RULES[f.rule].certificate)

    @property
    def verdict(self) -> Verdict:
        severities = {finding.severity for finding in self.findings}
        if "error" in severities:
            return "error"
        if self.incomplete or (self.stats.instructions and not self.checked):
            return "incomplete"
        return "review" if "review" in severities else "clean"

    def _repr_html_(self) -> str:
        from ..html.reports import report

        return report(self)

    def __str__(self) -> str:
        schedule = self.schedule + (f" {self.seed}" if self.schedule == "random" else "")
        verdict = self.verdict if self.checked else "error, not checked" if self.verdict == "error" else "not checked"
        lines = [f"{verdict}: {self.stats.instructions:,} warp instructions, schedule {schedule}"]
        if self.checked and self.every_schedule and self.verdict in ("clean", "review"):
            lines.append("every schedule of this input is equivalent to the one that ran" + (f", {self.provided}" if self.provided else ""))
        lines += _said(self.findings)
        if self.ended:
            lines += [f"partly written: {words}" for words in self.partly_written]
        return "\n".join(lines)


def _said(findings: Iterable[Finding]) -> Iterator[str]:
    """The findings, of one rule at one line the first ones, and how many more there are."""
    seen = Counter[tuple[str, Position | None]]()
    for finding in findings:
        here = finding.rule, finding.position
        seen[here] += 1
        if seen[here] <= ALIKE:
            yield str(finding)
    for (rule, position), count in seen.items():
        if count > ALIKE:
            yield f"... and {count - ALIKE} more [{rule}]{f' at {position}' if position else ''}"
