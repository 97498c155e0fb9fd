"""Contestants of one measurement: who can take part, their times in turn, and the card's clock and power meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..errors import PtxkitError
from .asked import Regime, Timer
from .figures import spread
from .power import Sampler
from .regimes import Captured, Timed, measure

Maker = TypeVar("Maker")


class NotImplementedHere(Exception):
    """What a contestant cannot do; the sentence says why."""


def prepared(makers: Mapping[str, Maker], prepare: Callable[[Maker], Captured], alive: Callable[[], None],
             skipped: Callable[[str], str | None] = lambda name: None) -> tuple[list[Captured], dict[str, str]]:
    """The graphs of those that can run and are right, and why each of the others is left out; `alive` raises where the card is lost."""
    graphs: list[Captured] = []
    left_out: dict[str, str] = {}
    for name, make in makers.items():
        why = skipped(name)
        if why is not None:
            left_out[name] = why
            continue
        try:
            graphs.append(prepare(make))
        except (NotImplementedHere, PtxkitError) as error:
            alive()
            left_out[name] = str(error)
        except Exception as error:                          # whatever others raise for a product that they do not have
            alive()
            left_out[name] = f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"
    return graphs, left_out


def sampled(timer: Timer, graphs: Sequence[Captured], regime: Regime, rounds: int, sensors: Any,
            seed: int = 0) -> tuple[list[Timed], Sampler]:
    """The times of all in turn, and the samples of the sensors meanwhile."""
    with Sampler(sensors) as sampler:
        timed = measure(timer, graphs, regime, rounds, seed)
    return timed, sampler


def contestants(timed: Sequence[Timed], more: Callable[[Timed], Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The spread of each, and `more`."""
    return {one.captured.entry.name: {**spread(one.us), **more(one)} for one in timed}


def times_of(timed: Sequence[Timed]) -> dict[str, list[float]]:
    """The times of each by its name."""
    return {one.captured.entry.name: one.us for one in timed}


__all__ = ["NotImplementedHere", "contestants", "prepared", "sampled", "times_of"]
