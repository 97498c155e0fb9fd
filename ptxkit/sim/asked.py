"""What a caller may ask of a run, by name and by type. None of it knows the machine, which a caller need not load."""

from __future__ import annotations

Dim = int | tuple[int, ...]
"""Of a grid, a block or a cluster: one to three extents."""
SCHEDULES: tuple[str, ...] = ("fifo", "random", "lazy", "starve-producer", "starve-consumer", "reverse", "elect-high", "spurious",
                              "delay-cta", "adversarial")
"""The schedules by name. "random", "spurious" and "adversarial" go by a seed."""


class PolicyBase:
    """What a policy says of itself. One that decides is a `ptxkit.sim.policy.Policy`, and a run takes no other."""

    name = "fifo"
    quantum = 2000
    """Blocks that a fragment runs before others get a turn."""
    stepwise = False
    """Whether each instruction is a block of its own, so that others may get a turn after any."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed


class ObserverBase:
    """Whom a run tells what happens. One that listens is a `ptxkit.sim.observer.Observer`, and a run takes no other."""
