"""What a call of attention would launch, as values, for programs that launch it without Python."""

from __future__ import annotations

from ptxkit.gemm.launch.steps import FillStep, KernelStep, Steps

from ..problem.forward import Arrays, Options
from .forward import Launch, prepare


def of_attention(arrays: Arrays, options: Options) -> Steps:
    """The steps of `ptxkit.attention` on these arrays. Where there are no keys, results are cleared and log-sum-exps left as they are."""
    launch = prepare(arrays, options, None)
    if isinstance(launch, Launch):
        return Steps((KernelStep(launch.launcher, launch.grid, launch.scalars, launch.maps),), 0)
    return Steps(tuple(FillStep(*fill) for part in launch.cleared for fill in part.fills()), 0)


__all__ = ["of_attention"]
