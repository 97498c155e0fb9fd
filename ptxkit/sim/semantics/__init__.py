"""What each instruction does. Importing this package registers all of it."""

from __future__ import annotations

from . import (
    atomic,
    barrier,
    bits,
    bulk,
    cache,
    carry,
    compare,
    control,
    convert,
    copies,
    floating,
    half,
    integer,
    logic,
    matrix,
    mbarrier,
    memory,
    mma,
    move,
    tensor,
    tensormaps,
    votes,
    warp,
    wgmma,
    wmma,
)
from .registry import BLOCKED, Inline, action, blocking, find, pure, semantics_of

__all__ = ["BLOCKED", "Inline", "action", "atomic", "barrier", "bits", "blocking", "bulk", "cache", "carry",
           "compare", "control", "convert", "copies", "find", "floating", "half", "integer", "logic", "matrix",
           "mbarrier", "memory", "mma", "move", "pure", "semantics_of", "tensor", "tensormaps", "votes", "warp", "wgmma", "wmma"]
