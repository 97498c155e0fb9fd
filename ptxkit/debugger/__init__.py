"""Step through a kernel on the CPU device: sessions, in Python and in a terminal."""

from __future__ import annotations

from .breaks import Breakpoint, Stop
from .debug import debug
from .session import Session
from .values import Matrix

__all__ = ["Breakpoint", "Matrix", "Session", "Stop", "debug"]
