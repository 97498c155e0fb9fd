"""What a run found, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..grammar.errors import Finding

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
    schedule: str = "fifo"
    seed: int = 0
    output: str = ""
    """What the kernel printed."""

    @property
    def verdict(self) -> Verdict:
        severities = {finding.severity for finding in self.findings}
        if "error" in severities:
            return "error"
        if self.incomplete or (self.stats.instructions and not self.checked):
            return "incomplete"
        return "review" if "review" in severities else "clean"

    def __str__(self) -> str:
        schedule = self.schedule + (f" {self.seed}" if self.schedule == "random" else "")
        verdict = self.verdict if self.checked else "error, not checked" if self.verdict == "error" else "not checked"
        lines = [f"{verdict}: {self.stats.instructions:,} warp instructions, schedule {schedule}"]
        if self.checked and self.every_schedule and self.verdict in ("clean", "review"):
            lines.append("every schedule of this input is equivalent to the one that ran")
        lines += [str(finding) for finding in self.findings]
        return "\n".join(lines)
