"""What a proof found."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cards import H200, Card
from ..grammar.errors import Finding
from ..sim import Report
from ..sim.report import Verdict
from .launch import Launch
from .schedules import Schedule

if TYPE_CHECKING:
    from ..replay.found import Search
    from ..replay.replay import Replay

_WORST: tuple[Verdict, ...] = ("error", "incomplete", "review", "clean")


@dataclass(frozen=True)
class Run:
    """One schedule and its report."""

    schedule: Schedule
    report: Report


@dataclass(frozen=True)
class Difference:
    """The first place in memory where two schedules differ. `index` is of the array's element, or of a byte of a variable."""

    array: str
    index: tuple[int, ...]
    values: tuple[Any, Any]
    schedules: tuple[Schedule, Schedule]

    def __str__(self) -> str:
        first, second = self.schedules
        at = ", ".join(map(str, self.index))
        return f"memory differs: `{self.array}`[{at}] is {self.values[0]} in schedule {first}, {self.values[1]} in schedule {second}"


@dataclass(frozen=True)
class Proof:
    """The reports of several schedules of one launch.

    `proven` says whether every schedule of this input is equivalent to those that ran: the certificates of each run hold, nothing is wrong,
    and all left the same memory. The arrays of the launch hold what the first schedule left. A proof has no truth value: ask `proven`.
    `before` is the memory of each array before the first run, `max_steps` and `card` are those of the runs.
    """

    launch: Launch
    runs: tuple[Run, ...]
    difference: Difference | None = None
    before: Mapping[str, Any] = field(default_factory=dict, repr=False)
    max_steps: int | None = None
    card: Card = H200

    def search(self, *, runs: int = 400, seconds: float = 30.0) -> Search:
        """Look for the shortest schedule of each failure, first among the schedules that ran."""
        from ..replay.searching import search_launch

        return search_launch(self.launch.copy(self.before), schedules=[run.schedule for run in self.runs], runs=runs, seconds=seconds,
                             max_steps=self.max_steps, card=self.card)

    def replay(self, *, runs: int = 400, seconds: float = 30.0) -> Replay:
        """The failure that shows most, under the shortest schedule that is found; the run of the first schedule where nothing fails.

        Where memory may depend on the order, a schedule that leaves other memory is looked for, at most 10 seconds.
        """
        from ..replay.searching import INCONCLUSIVE, recorded

        fails = any(finding.severity == "error" and finding.rule not in INCONCLUSIVE for finding, _ in self.findings())
        depends = any(finding.rule == "order-dependence" for finding, _ in self.findings())
        limit = seconds if fails or self.difference is not None else min(seconds, 10.0) if depends else 0.0
        found = self.search(runs=runs, seconds=limit).replay if limit else None
        return found or recorded(self.launch.copy(self.before), self.runs[0].schedule, max_steps=self.max_steps, card=self.card)

    def page(self, path: str | os.PathLike[str], *, seconds: float = 30.0) -> Path:
        """Write the page that shows `replay()`: one HTML file."""
        return self.replay(seconds=seconds).page(path)

    @property
    def proven(self) -> bool:
        """Whether every schedule of this input is equivalent."""
        return self.certified and self.difference is None

    @property
    def certified(self) -> bool:
        """Whether the certificates hold in every run. With a `difference`, a certificate was false: report that as a bug of ptxkit."""
        return all(run.report.every_schedule and run.report.verdict in ("clean", "review") for run in self.runs)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the runs; "incomplete" at best where memories differ."""
        found = {run.report.verdict for run in self.runs} | ({"incomplete"} if self.difference is not None else set())
        return next(verdict for verdict in _WORST if verdict in found)

    @property
    def failing(self) -> Run | None:
        """The run with an error, of those the one of fewest instructions; None where no run has one."""
        errors = [run for run in self.runs if run.report.verdict == "error"]
        return min(errors, key=lambda run: run.report.stats.instructions, default=None)

    def findings(self) -> Iterator[tuple[Finding, tuple[Schedule, ...]]]:
        """Each finding once, with the schedules that have it, errors first."""
        seen: dict[tuple[Any, ...], tuple[Finding, list[Schedule]]] = {}
        for run in self.runs:
            for finding in run.report.findings:
                key = finding.rule, finding.severity, finding.position, finding.ptx_line
                _, schedules = seen.setdefault(key, (finding, []))
                if run.schedule not in schedules:
                    schedules.append(run.schedule)
        order = ("error", "review", "info")
        for finding, schedules in sorted(seen.values(), key=lambda pair: order.index(pair[0].severity)):
            yield finding, tuple(schedules)

    def __bool__(self) -> bool:
        raise TypeError("a proof has no truth value: ask .proven, .verdict or .difference")

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        from ..html.reports import proof

        return proof(self)

    def lines(self) -> Iterator[str]:
        """The statement, and each finding."""
        count = len(self.runs)
        by = f" (compiled by {self.launch.compiler})" if self.launch.compiler else ""
        said = "proven" if self.proven else "not proven"
        yield f"{said}: {self.launch.name}{by}, {count} schedule{'s' * (count > 1)}: {self._counts()}"
        if self.proven:
            provided = dict.fromkeys(run.report.provided for run in self.runs if run.report.provided)
            yield ", ".join(("every schedule of this input is equivalent to those that ran", *provided))
        elif self.difference is not None:
            yield str(self.difference)
            if self.certified:
                yield "the certificates say that this cannot be: please report it as a bug of ptxkit"
        elif count > 1 and self.verdict != "error":
            yield "memory is the same in all of them"
        for finding, schedules in self.findings():
            told = ", ".join(map(str, schedules[:3])) + (f" and {len(schedules) - 3} more" if len(schedules) > 3 else "")
            yield f"{finding}" if len(schedules) == count else f"{finding} [in {told}]"

    def _counts(self) -> str:
        verdicts = [run.report.verdict for run in self.runs]
        return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in reversed(_WORST) if verdict in verdicts)
