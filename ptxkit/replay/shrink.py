"""Makes a failing schedule short: leaves out choices as long as the launch still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..sim.policy import Policy
from .choices import Choices, Help, Land, Place, Run, joined

Fails = Callable[[Choices], bool]


@dataclass(slots=True)
class Budget:
    """What a search may use: runs and seconds from now on."""

    most: int
    seconds: float
    runs: int = 0
    began: float = 0.0

    def __post_init__(self) -> None:
        self.began = time.monotonic()

    def quarter(self) -> bool:
        """Whether a quarter of it is used up."""
        return self.runs >= self.most // 4 or time.monotonic() - self.began >= self.seconds / 4

    def over(self) -> bool:
        return self.runs >= self.most or time.monotonic() - self.began >= self.seconds


def shrink(choices: Choices, fails: Fails, budget: Budget) -> Choices:
    """Choices under which the launch fails as well, and no more of them. `choices` fail.

    First whole kinds of choices are left out, then the end, then those about one CTA or warp, then halves, quarters and so on down to
    single choices (delta debugging), then turns are made as long as they may be. All of it stops when the budget is used up.
    """
    best = _without_kinds(choices, fails, budget)
    best = _without_end(best, fails, budget)
    best = _without_some(best, fails, budget, lambda place: place[:1])
    best = _without_some(best, fails, budget, lambda place: place[:2])
    while not budget.over():
        before = len(best)
        best = _without_parts(best, fails, budget)
        together = replace(best, steps=joined(best.steps))
        if len(together) < len(best) and not budget.over() and fails(together):
            best = together
        if len(best) == before:
            break
    return _longer_turns(best, fails, budget)


def _without_kinds(best: Choices, fails: Fails, budget: Budget) -> Choices:
    empty: dict[str, Any] = {"steps": (), "late": frozenset(), "elections": (), "spurious": frozenset(), "last": frozenset()}
    small = "elections", "spurious"
    for names in (("steps", *small), ("late", *small), *((name,) for name in (*small, "late", "last", "steps"))):
        candidate = replace(best, **{name: empty[name] for name in names})
        if len(candidate) < len(best) and not budget.over() and fails(candidate):
            best = candidate
    return best


def _without_end(best: Choices, fails: Fails, budget: Budget) -> Choices:
    """The shortest beginning of the steps that halving finds."""
    low, high = 0, len(best.steps)
    while low < high and not budget.over():
        middle = (low + high) // 2
        candidate = replace(best, steps=best.steps[:middle])
        if fails(candidate):
            best, high = candidate, middle
        else:
            low = middle + 1
    return best


def _without_some(best: Choices, fails: Fails, budget: Budget, about: Callable[[Place], Place]) -> Choices:
    """Without all that is about one thing, for each thing in turn."""
    groups = dict.fromkeys(about(_place(item)) for item in _items(best))
    for group in groups if len(groups) > 1 else ():
        kept = [item for item in _items(best) if about(_place(item)) != group]
        if budget.over() or len(best) <= len(groups):
            break
        candidate = _of(best, kept)
        if len(candidate) < len(best) and fails(candidate):
            best = candidate
    return best


def _place(item: tuple[str, Any]) -> Place:
    """The CTA and the warp that a choice is about."""
    kind, value = item
    match value:
        case Run() | Land():
            return value.cta, value.warp
        case Help():
            return value.tasks[0] if value.tasks else ()
    place: Place = value[0] if kind == "elections" else value
    return place


def _without_parts(best: Choices, fails: Fails, budget: Budget) -> Choices:
    parts = 2
    while not budget.over():
        items = _items(best)
        if not items:
            return best
        parts = min(parts, len(items))
        size = -(-len(items) // parts)
        cuts = range(0, len(items), size)
        alone = [items[start:start + size] for start in cuts] if 2 < parts <= 4 else []
        for kept in (*alone, *([*items[:start], *items[start + size:]] for start in cuts)):
            if budget.over():
                return best
            candidate = _of(best, kept)
            if len(kept) < len(items) and fails(candidate):
                best, parts = candidate, 2 if kept in alone else max(parts - 1, 2)
                break
        else:
            if size == 1:
                return best
            parts *= 2
    return best


def _items(choices: Choices) -> list[tuple[str, Any]]:
    """The choices one by one; what is asked for apart from the steps comes first."""
    apart = (("last", choices.last), ("late", choices.late), ("spurious", choices.spurious))
    return [*((kind, place) for kind, places in apart for place in sorted(places)), *(("elections", each) for each in choices.elections),
            *(("steps", step) for step in choices.steps)]


def _of(choices: Choices, items: Sequence[tuple[str, Any]]) -> Choices:
    def kind(name: str) -> list[Any]:
        return [value for of, value in items if of == name]

    return replace(choices, steps=tuple(kind("steps")), late=frozenset(kind("late")), elections=tuple(kind("elections")),
                   spurious=frozenset(kind("spurious")), last=frozenset(kind("last")))


def _longer_turns(best: Choices, fails: Fails, budget: Budget) -> Choices:
    """Turns that end only where the warp must wait are easier to follow than those that end after some blocks."""
    for i, step in enumerate(best.steps):
        if budget.over() or not isinstance(step, Run) or step.blocks >= Policy.quantum:
            continue
        candidate = replace(best, steps=(*best.steps[:i], replace(step, blocks=Policy.quantum), *best.steps[i + 1:]))
        if fails(candidate):
            best = candidate
    return best
