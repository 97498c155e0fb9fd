"""Python's cyclic collector at rest: a tree has no cycles, and looking for some takes a third of the time of making one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 2_000
"""New objects: a look at 12,000 and at the words that they hold took 4 ms."""


@contextmanager
def resting() -> Iterator[None]:
    """No collection within, if there would be any, and no look at all that was made when it ends: it joins the oldest generation.

    What somebody has frozen stays so: then the new objects are looked at.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if gc.get_count()[0] > MANY and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
