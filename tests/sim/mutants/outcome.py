"""What became of a mutant: run under a schedule, and judged by what its kind of mistake must earn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import sim

from .catalogue import Mutant
from .subjects import SUBJECTS, Subject


@dataclass(frozen=True)
class Outcome:
    """One run: its verdict, the (rule, severity, kind) of its findings, whether the numbers were right."""

    schedule: str
    seed: int
    verdict: str
    findings: tuple[tuple[str, str, str], ...]
    right: bool

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rule for rule, severity, _ in self.findings if severity != "info"))

    def __str__(self) -> str:
        rules = ", ".join(self.rules) or "nothing found"
        return f"{self.schedule}/{self.seed}: {self.verdict}, {rules}, {'right' if self.right else 'wrong'}"


def outcome(subject: Subject, source: Any, schedule: str, seed: int) -> Outcome:
    report, right = subject.run(source, schedule=schedule, seed=seed)
    return Outcome(schedule, seed, report.verdict, tuple((f.rule, f.severity, f.kind) for f in report.findings), right)


def lints(subject: Subject, source: Any) -> tuple[tuple[str, str, str], ...]:
    """What the static rules say of a mutant and not of its original."""
    from ptxkit.check import check as static_check

    known = {(f.rule, f.severity) for f in static_check(subject.original)}
    return tuple((f.rule, f.severity, f.kind) for f in static_check(source) if (f.rule, f.severity) not in known)


def caught(mutant: Mutant, seen: Outcome) -> bool:
    """Whether one run, or the static rules, said what the catalogue asks for."""
    findings = seen.findings
    severities = {severity for _, severity, _ in findings}
    if mutant.expect == "error":
        return "error" in severities
    if mutant.expect == "review":
        return bool(severities & {"error", "review"})
    if mutant.expect == "wrong":
        return not seen.right or bool(severities & {"error", "review"}) or any(kind == "advice" for *_, kind in findings)
    if mutant.expect == "advice":
        return any(kind == "advice" for *_, kind in findings)
    raise ValueError(mutant.expect)


def refusal(subject: Subject) -> str:
    """Why the engine does not execute a subject; empty when it does."""
    try:
        subject.run(check=False)
    except sim.UnsupportedError as error:
        return str(error)
    return ""


__all__ = ["SUBJECTS", "Outcome", "caught", "lints", "outcome", "refusal"]
