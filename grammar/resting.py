"""Python's cyclic collector at rest: a tree has no cycles, and looking for some takes a third of the time of making one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


MANY = 2_000
"""New objects that are as many as to be looked at with care: each takes as long as a word of a text to be read."""


@contextmanager
def resting() -> Iterator[None]:
    """No collection within, if there would be any, and none of all that was made when it ends: it goes to the oldest generation."""
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
