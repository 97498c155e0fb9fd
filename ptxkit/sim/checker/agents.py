"""Who accesses memory: lanes, and what is asynchronous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..values import FULL, Array, indices

if TYPE_CHECKING:
    from .clocks import Home


ALL = slice(32)
WARP_WORDS, LANE_WORDS = "CTA {} warp {}", "CTA {} warp {} lane {}"


class Agent(NamedTuple):
    """Who an agent is; `kind` "lane", "copies" (of an mbarrier), "wgmma", "bulk reads", "bulk writes", "cp.async". Its name is `words`
    with `of`, names and numbers, in them: a name costs more than an agent, and few are told.
    """

    kind: str
    words: str
    of: tuple[str | int, ...] = ()

    @property
    def name(self) -> str:
        return self.words.format(*self.of)


NOBODY = Agent("none", "nobody")


class Ended:
    """What is left of a `Home` when its cluster has ended: who its agents were."""

    def __init__(self, home: Home) -> None:
        self.ctas = tuple(cta.index for cta in home.cluster.ctas)
        self.warps_per_cta = home.warps_per_cta
        self.others = tuple(home.others)
        self.doubles = home.doubles

    def describe(self, agent: int) -> Agent:
        lanes = 32 * self.warps_per_cta * len(self.ctas)
        if agent >= lanes:
            return self.others[agent - lanes]
        cta, warp = divmod(agent // 32, self.warps_per_cta)
        return Agent("lane", LANE_WORDS, (self.ctas[cta], warp, agent % 32))


def ranks(home: Home | Ended, agents: Any) -> Any:
    """The CTAs, by rank in the cluster, that lanes are of; of an asynchronous agent, none of them."""
    found = agents // (32 * home.warps_per_cta)
    for first, rank in home.doubles:
        found = np.where((agents >= first) & (agents < first + 32), rank, found)
    return found


class WarpClock:
    """`epoch` ticks at each release and meeting. `fenced`: per lane, its epoch at its last proxy fence, per row of views from
    `GLOBAL` on, which are so many. `elected`: of a lane that the warp elects, whichever it is.
    """

    def __init__(self, base: int, warp: Any, rows: int, *, elected: bool = False) -> None:
        self.base = base
        self.elected = elected
        self.warp = warp
        self.own = slice(base, base + 32)
        self.epoch = 1
        self.used = True
        """Whether a lane has done what not all of them know."""
        self.fenced: Array = np.zeros((rows, 32), np.int32)
        self.registers: dict[Any, Any] = {}
        """Per activation (None: the entry's) what the rules about registers know."""
        self.wgmma: Any = None
        self.elections: dict[int, Any] = {}
        """By instruction that elects a lane, what stands for that lane."""
        self.copies = -1
        """The agent of lane 0's cp.async, how many the warp has issued, and up to which of them each lane has waited."""
        self.issued_copies = 0
        self.copied: Array = np.zeros(32, np.int32)

    def places(self, mask: int) -> tuple[Any, Any]:
        """Where lanes are among the agents, and among the warp's lanes: slices and numbers, which NumPy takes faster than lists."""
        if mask == FULL:
            return self.own, ALL
        if mask & mask - 1 == 0:
            lane = mask.bit_length() - 1
            return self.base + lane, lane
        lanes = indices(mask)
        return lanes + self.base, lanes

    def tick(self) -> int:
        """The epoch that ends."""
        self.epoch += 1
        return self.epoch - 1

    def met(self, mask: int) -> None:
        """These lanes know what each has done; whether all do."""
        self.used = bool(self.warp.live & ~mask)
