"""How long launches on cold operands take, for sweeps of many configurations: random values for a pool of operands, and a timer of launches
that are all enqueued before the first one begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

ENQUEUE_US, MOST_ENQUEUE_US = 12.0, 400.0   # what a launch is taken to cost the host; raised where the card waits for it
TRIES = 4                       # measurements until all launches were there before the first began
STEP = 1 << 27                  # values that are made at a time


def normal_values(torch: Any, bytes: int, kind: Any) -> Any:
    """So many bytes of N(0, 1) in a type of torch, on the card."""
    made = torch.empty(bytes, device="cuda", dtype=torch.uint8).view(kind)
    for first in range(0, made.numel(), STEP):
        part = made[first:first + STEP]
        part.copy_(torch.randn(part.numel(), device="cuda", dtype=torch.float32))
    return made


class SpinTimer:
    """Times launches on the current stream. The card spins until the host has enqueued all of them."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.enqueue_us = torch, ENQUEUE_US
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def us(self, launches: Sequence[Callable[[], Any]]) -> float:
        """Microseconds of one launch, in the mean of all."""
        for _ in range(TRIES):
            self.torch.cuda._sleep(round(2000 * self.enqueue_us * len(launches)))
            self.start.record()
            for launch in launches:
                launch()
            late = self.start.query()
            self.end.record()
            self.end.synchronize()
            self.enqueue_us = min(2 * self.enqueue_us, MOST_ENQUEUE_US) if late else max(ENQUEUE_US, 0.99 * self.enqueue_us)
            if not late:
                break
        return 1e3 * float(self.start.elapsed_time(self.end)) / len(launches)


__all__ = ["SpinTimer", "normal_values"]
