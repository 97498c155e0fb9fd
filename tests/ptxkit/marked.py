"""A kernel with marks, its run on the CPU device, and how often each name is in a timeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxkit import Ptr, Reg, ctaid, for_range, func, if_, kernel, tid
from ptxkit.idioms import elect
from ptxkit.ptx import add, mov, ret, st
from ptxkit.timeline import Track
from ptxkit.types import u32


class Nothing:
    """In place of `span`."""

    def __init__(self, name: str) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *args: object) -> None: ...


def nothing(name: str) -> None: ...


def written(mark: Any, span: Any, role: Any) -> Any:
    """A kernel with these words: roles, loops, a function, branches, and an early way out."""

    @func
    def twice(x: Reg[u32]) -> Reg[u32]:
        with span("twice"):
            return add.u32(x, x)

    @kernel(block=96)
    def marked(x: Ptr[u32], n: Reg[u32], m: Reg[u32], *, INNER: int = 2) -> None:
        thread = mov.u32(tid.x)
        mark("begin")
        with if_(thread >= 64):
            role("idle")
            mark("leaves")
            ret()
        with if_(thread < 32), if_(elect()):
            role("producer")
            with for_range(n), span("load"):
                st.global_.u32(x.at(ctaid.x), n)
        with if_(thread >= 32):
            role("consumer")
            with span("all"), for_range(n) as i:
                with span("stage"):
                    for _ in range(INNER):
                        with span("step"):
                            st.global_.u32(x.at(ctaid.x * 32 + thread), twice(i))
                with if_(i < m):
                    mark("few")
        mark("end")

    return marked


def run(kernel: Any, grid: Any, n: int, m: int, **options: Any) -> Any:
    report = kernel.simulate(grid, np.zeros(1024, np.uint32), n, m, marks=True, **options)
    assert report.verdict == "clean", str(report)
    assert report.every_schedule
    return report.timeline


def counts(tracks: tuple[Track, ...]) -> dict[str, int]:
    """How many spans and marks of each name there are."""
    found: dict[str, int] = {}
    for track in tracks:
        for name in [*(each.name for each in track.spans()), *(name for name, _ in track.points)]:
            found[name] = found.get(name, 0) + 1
    return found
