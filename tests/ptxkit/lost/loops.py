"""The loops of these tests: each runs its body `n` times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ptxkit import Reg, Ring, for_range, loop, ring
from ptxkit.ptx import add, mov
from ptxkit.types import u32

Numbers = Reg[u32]


@contextmanager
def counted(n: Numbers) -> Iterator[None]:
    """A `loop` that counts to `n`, and at least once."""
    k = mov.u32(0)
    with loop() as repeat:
        yield
        add.u32(k, k, 1)
        repeat.break_if(k >= n)


LOOPS: dict[str, Callable[[Any], AbstractContextManager[Any]]] = {
    "for_range": for_range, "loop": counted, "ring": lambda n: ring(3, n), "ring of before": lambda n: ring(Ring(2), n),
}
