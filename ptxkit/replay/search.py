"""`search`: many schedules of one launch, for the shortest under which it fails. What runs and shortens them is in `searching`."""

from __future__ import annotations

from typing import Any

from ..cards import H200, Card
from ..proof.schedules import Schedules
from ..sim.asked import Dim
from .found import Search


def search(kernel: Any, grid: Any = None, *args: Any, schedules: Schedules = 20, runs: int = 400, seconds: float = 30.0,
           entry: str | None = None, block: Dim | None = None, cluster: Dim | None = None, dynamic_smem: int | None = None,
           max_steps: int | None = None, card: Card = H200, **config: Any) -> Search:
    """Run a launch under many schedules, and give the shortest that is found for each way in which it fails. The arrays stay as they are.

    A launch fails when the report has an error, when it deadlocks, or when memory differs from what first-come-first-run order leaves.
    It is given as to `ptxkit.prove`. The whole search, shortening included, ends after `runs` runs or `seconds` seconds, whichever comes
    first (the run that is under way is finished).
    """
    from ..proof.given import given
    from .searching import search_launch

    shape = {"entry": entry, "block": block, "cluster": cluster, "dynamic_smem": dynamic_smem}
    launch = given(kernel, grid, args, shape, config)
    return search_launch(launch, schedules=schedules, runs=runs, seconds=seconds, max_steps=max_steps, card=card)
