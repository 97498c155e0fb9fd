"""Runs a launch in several schedules from the same memory, and compares what they leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..cards import H200, Card
from ..sim import Report
from ..sim.storage import refuse_elements, storage
from .launch import Launch
from .result import Difference, Proof, Run
from .schedules import Schedule


def proof_of(launch: Launch, schedules: Sequence[Schedule], *, check: bool = True, max_steps: int | None = None, card: Card = H200,
             after: Callable[[Run], None] | None = None) -> Proof:
    """Run the launch in each of the schedules, from the same memory. `after` is told of each run when it has ended."""
    for name, array in launch.arrays.items():
        refuse_elements(name, array)
    kept = {name: storage(array) for name, array in launch.arrays.items()}
    before = {name: bytes_.copy() for name, bytes_ in kept.items()}
    left: dict[str, Any] = {}
    runs: list[Run] = []
    ended: tuple[Run, dict[str, Any]] | None = None
    difference: Difference | None = None
    for schedule in schedules:
        for name, bytes_ in kept.items():
            bytes_[:] = before[name]
        report = launch.run(schedule.name, schedule.seed, check=check, max_steps=max_steps, card=card)
        runs.append(Run(schedule, report))
        left = left or {name: bytes_.copy() for name, bytes_ in kept.items()}
        if report.ended and ended is None:
            ended = runs[-1], left if len(runs) == 1 else {name: bytes_.copy() for name, bytes_ in kept.items()}
        elif report.ended and ended is not None and difference is None:
            difference = _compare(launch, *ended, kept, runs[-1])
        if after is not None:
            after(runs[-1])
    for name, bytes_ in kept.items():
        bytes_[:] = left[name]
    return Proof(launch, tuple(runs), difference, before, max_steps, card)


def _compare(launch: Launch, first: Run, left: dict[str, Any], kept: dict[str, Any], other: Run) -> Difference | None:
    """Where the memory after another run differs from what the first left."""
    schedules = first.schedule, other.schedule
    for name, bytes_ in kept.items():
        places = np.flatnonzero(left[name] != bytes_)
        if len(places):
            return _element(name, launch.arrays[name], left[name], places, schedules)
    return _variable(first.report, other.report, schedules)


def _element(name: str, array: Any, left: Any, places: Any, schedules: tuple[Schedule, Schedule]) -> Difference:
    """The first element of the array that differs; a byte of its memory where no element does."""
    now = array.copy()
    whole = storage(array)
    changed = whole.copy()
    whole[:] = left
    was = array.copy()
    whole[:] = changed
    item = array.dtype.itemsize
    different = (was.reshape(-1).view(np.uint8) != now.reshape(-1).view(np.uint8)).reshape(-1, item).any(axis=1)
    if not different.any():
        place = int(places[0])
        return Difference(f"the memory of {name}", (place,), (int(left[place]), int(changed[place])), schedules)
    index = tuple(int(i) for i in np.unravel_index(int(different.argmax()), array.shape))
    return Difference(name, index, (was[index].item(), now[index].item()), schedules)


def _variable(first: Report, other: Report, schedules: tuple[Schedule, Schedule]) -> Difference | None:
    for name, was in first.variables.items():
        now = other.variables[name]
        if was != now:
            at = next(i for i, (a, b) in enumerate(zip(was, now, strict=True)) if a != b)
            return Difference(name, (at,), (was[at], now[at]), schedules)
    return None
