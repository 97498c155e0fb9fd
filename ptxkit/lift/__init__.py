"""PTX back to Python: a kernel from elsewhere as ptxkit code that assembles to the same machine code."""

from __future__ import annotations

from .errors import LiftError
from .module import lift

__all__ = ["LiftError", "lift"]
