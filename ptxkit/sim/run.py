"""`run`: what the CPU device is asked for. The machine that does it is in `simulation`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..cards import H200, Card
from .asked import Dim, ObserverBase, PolicyBase
from .limits import LIMITS, Limits
from .report import Report


def run(source: Any, entry: str | None = None, *, grid: Dim, block: Dim | None = None, cluster: Dim | None = None,
        dynamic_smem: int | None = None, args: Sequence[Any], schedule: str | PolicyBase = "fifo", seed: int = 0, check: bool = True,
        max_steps: int | None = None, limits: Limits = LIMITS, card: Card = H200, observers: Sequence[ObserverBase] = (),
        previous: Mapping[str, Iterable[Any]] | None = None, names: Sequence[str] | None = None,
        marks: str = "", **config: Any) -> Report:
    """Execute one launch on the CPU device; arrays in `args` are updated in place.

    `source` is PTX text, a tree, or a kernel object (with its compile-time parameters as keywords). `args`: NumPy arrays for pointers
    and (for kernels that record their tiles) tensor maps, numbers, `ptxkit.TensorMap`. A grid counts CTAs. `block`, `cluster` and
    `dynamic_smem` default to what the kernel says. `schedule`: "fifo", "random" (by `seed`), "adversarial", a named adversary, or a
    `ptxkit.sim.policy.Policy`. `observers` are each a `ptxkit.sim.observer.Observer`, and are told of every event, after the checker.
    `check` runs the checker, whose findings the report holds; without it only faults are found. As many CTAs run at the same time as `card`
    has SMs. A run ends after `max_steps` warp instructions (None: 20 million), and where it exceeds the `limits`. `previous` says which
    arrays the grid before uses until `griddepcontrol.wait` returns: `{"writes": [...], "reads": [...]}` of parameters by name or index, or
    of views of argument arrays. `names` are what messages call the parameters, where PTX has other names than the author. `marks` is the
    parameter with the buffer of marks: what they write is no result of the program.
    """
    from .simulation import prepare

    return prepare(source, entry, grid=grid, block=block, cluster=cluster, dynamic_smem=dynamic_smem, args=args, schedule=schedule,
                   seed=seed, check=check, max_steps=max_steps, limits=limits, card=card, observers=observers, previous=previous,
                   names=names, marks=marks, **config).run()
