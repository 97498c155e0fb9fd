"""Schedules of few choices that a search tries first: some warps go last, some operations land late.

A recording of a random schedule has hundreds of choices, and of a large kernel it takes many runs to find those that matter. Most failures
that depend on the schedule show when one role is slow all the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..sim.cta import Cta
from ..sim.observer import Observer
from .choices import Choices, Place

CTAS, WARPS = 16, 32
"""How many CTAs, and how many warps of the first ones, are made slow."""


class Census(Observer):
    """The warps of a launch, CTA by CTA."""

    def __init__(self) -> None:
        self.ctas: list[tuple[int, int]] = []

    def cta_begin(self, cta: Cta) -> None:
        """(index, number of warps)."""
        self.ctas.append((cta.index, len(cta.warps)))


def probes(ctas: Sequence[tuple[int, int]]) -> Iterator[Choices]:
    """For all warps, CTAs, warpgroups and warps in turn: they go last, their operations land late, and both."""
    every = [[(cta, warp) for warp in range(warps)] for cta, warps in ctas[:CTAS]]
    if not every:
        return
    yield Choices(late=_late([who for cta in every for who in cta]))
    groups = [cta for cta in every if len(every) > 1]
    near = [who for cta in every for who in cta][:WARPS]
    some = [[who for who in near if (who[0], who[1] // 4) == place] for place in dict.fromkeys((cta, warp // 4) for cta, warp in near)]
    groups += [group for group in some if group not in groups and len(group) > 1]
    groups += [[who] for who in near if [who] not in groups]
    for group in groups:
        for last, late in ((True, False), (True, True), (False, True)):
            yield Choices(last=frozenset(group) if last else frozenset(), late=_late(group) if late else frozenset())


def _late(warps: Sequence[Place]) -> frozenset[Place]:
    return frozenset((cta, warp, 0) for cta, warp in warps)
