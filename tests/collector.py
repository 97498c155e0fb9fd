"""Python's cyclic garbage collector, of what a test makes and nothing older: of all that a run has made, a collection takes seconds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def new_objects() -> Iterator[None]:
    """`gc.collect` looks at objects that are made from here on."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
