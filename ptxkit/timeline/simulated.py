"""A run with marks on the CPU device. Its clocks count warp instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..dsl.marks import BUFFER
from ..errors import LaunchError
from .buffer import CPU, Plan, own_arguments
from .timeline import Timeline

if TYPE_CHECKING:
    from ..dsl.traced import Traced
    from ..sim import Report


def marked(traced: Traced, args: tuple[Any, ...], named: dict[str, Any], events: int, options: dict[str, Any]) -> Report:
    """`ptxkit.sim.run` with a buffer of marks. The report has the timeline."""
    from ..sim import run

    assert traced.marks is not None
    if traced.block is None:
        raise LaunchError(f"kernel `{traced.name}` has no block size, which marks need: give @kernel(block=...)")
    plan = Plan.of(traced.marks, options["grid"], traced.block, events)
    buffer = np.zeros(plan.bytes // 8, np.uint64)
    given = (*own_arguments(traced, args, named), *plan.arguments(buffer).values())
    report = run(traced, args=given, marks=BUFFER, **options)
    report.timeline = Timeline.of(traced.name, traced.marks, plan, plan.slices(buffer), device=CPU)
    return report
