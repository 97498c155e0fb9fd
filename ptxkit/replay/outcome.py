"""One run of a launch, on arrays of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..cards import H200, Card
from ..dsl.traced import Traced
from ..proof.launch import Launch

if TYPE_CHECKING:
    from ..sim.asked import ObserverBase, PolicyBase
    from ..sim.report import Report


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found, and the launch with the arrays as it left them."""

    report: Report
    launch: Launch

    def bytes(self) -> tuple[bytes, ...]:
        """The memory that it left: arrays, then the module's own variables."""
        variables = [bytes(value) for _, value in sorted(self.report.variables.items())]
        return (*(array.tobytes() for array in self.launch.arrays.values()), *variables)


@dataclass(frozen=True, slots=True)
class Trial:
    """A launch that is run again and again, each time with the arrays as they were given."""

    launch: Launch
    max_steps: int | None = None
    card: Card = H200

    @classmethod
    def of(cls, launch: Launch, max_steps: int | None = None, card: Card = H200) -> Trial:
        """Findings in a traced kernel then name the lines of its PTX, too, which becomes the launch's text."""
        source = launch.source
        if isinstance(source, Traced):
            launch = replace(launch, source=replace(source, module=source.numbered()[0]), text=source.ptx(locs=True))
        return cls(launch, max_steps, card)

    def run(self, schedule: str | PolicyBase = "fifo", seed: int = 0, *, check: bool = True,
            observers: Sequence[ObserverBase] = ()) -> Outcome:
        launch = self.launch.copy()
        report = launch.run(schedule, seed, check=check, observers=observers, max_steps=self.max_steps, card=self.card)
        return Outcome(report, launch)
