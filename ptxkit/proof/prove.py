"""`prove`: one launch in several schedules, checked and compared. What runs and compares them is in `proving`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..cards import H200, Card
from ..sim.asked import Dim
from .result import Proof
from .schedules import Schedules, schedules_of


def prove(kernel: Any, grid: Any = None, *args: Any, schedules: Schedules = 4, entry: str | None = None, block: Dim | None = None,
          cluster: Dim | None = None, dynamic_smem: int | None = None, max_steps: int | None = None, card: Card = H200,
          previous: Mapping[str, Sequence[str | int]] | None = None, **config: Any) -> Proof:
    """Run one launch in several schedules under the checker, and compare the memory that they leave.

    `kernel` is a ptxkit kernel, PTX text, the path of a PTX file, a Triton or Gluon kernel, a compiled function of CuTe DSL or a
    TileLang kernel. Shape, shared memory, scratch and descriptors that its compiler knows need not be given; where it knows the grid, the
    grid may be left out, or be None. `args` and `config` are those of a launch: NumPy arrays or torch tensors on the CPU for arrays,
    compile-time parameters by name. Afterwards the arrays hold what the first schedule left.

    `schedules` is how many different ones run, or names of `ptxkit.sim.SCHEDULES`, with a seed as ("random", 7). One run whose certificates
    hold speaks for every schedule; the others show what differs where they do not hold. `entry`, `block`, `cluster` and `dynamic_smem` are
    for PTX text. `previous` says which parameters the grid before uses until `griddepcontrol.wait`: `{"writes": ["x"], "reads": [2]}`.
    Raises PtxkitError for a launch that does not fit the kernel, never for what a run finds.
    """
    from .given import given
    from .proving import proof_of

    order = schedules_of(schedules)
    shape = {"entry": entry, "block": block, "cluster": cluster, "dynamic_smem": dynamic_smem}
    launch = replace(given(kernel, grid, args, shape, config), previous=previous)
    return proof_of(launch, order, max_steps=max_steps, card=card)
