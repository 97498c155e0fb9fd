"""What each instruction does. Importing this package registers all of it."""

from __future__ import annotations

from . import (
    barrier,
    bulk,
    control,
    convert,
    integer,
    logic,
    matrix,
    mbarrier,
    memory,
    move,
    warp,
    wgmma,
)
from .registry import BLOCKED, Inline, action, blocking, find, pure, semantics_of

__all__ = ["BLOCKED", "Inline", "action", "barrier", "blocking", "bulk", "control", "convert", "find", "integer",
           "logic", "matrix", "mbarrier", "memory", "move", "pure", "semantics_of", "warp", "wgmma"]
