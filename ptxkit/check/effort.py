"""How much the protocol rules may do for one text, so that they end in time and memory near linear in it, whatever it is."""

from __future__ import annotations

from contextvars import ContextVar

FIRST, EACH = 30_000_000, 400
"""Steps for a text, and for each of its instructions: facts handed along an edge, addresses compared, blocks gone through.

A kernel of this project takes 150,000 at most, 20,000 lines of compilers' output 530,000; of the public kernels that were looked at, one
of attention takes 22,000,000, and 94,000 lines compiled without optimisation 57,000,000. That is 1 to 6 seconds.
"""


class Exhausted(Exception):
    """The rules have done what they may."""


class Effort:
    """What the rules have done for a text, and the most that they may."""

    def __init__(self) -> None:
        self.done, self.most, self.extra = 0, FIRST, 0

    def go_on(self) -> None:
        """Some steps for the other families when one has taken all."""
        self.extra = max(0, self.done - self.most) + self.most // 32


CURRENT: ContextVar[Effort | None] = ContextVar("effort", default=None)
"""The effort of the check that goes on. Without one there is no end to it."""


def allow(sites: int) -> None:
    """Steps for so many more instructions."""
    effort = CURRENT.get()
    if effort is not None:
        effort.most += EACH * sites


def spend(steps: int) -> None:
    """Raises `Exhausted` when it is too much."""
    effort = CURRENT.get()
    if effort is not None:
        effort.done += steps
        if effort.done > effort.most + effort.extra:
            raise Exhausted
