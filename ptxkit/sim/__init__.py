"""The CPU device: runs PTX without a GPU, and checks it."""

from __future__ import annotations

from .errors import SimulationError, UnsupportedError
from .policy import SCHEDULES
from .report import Report, Stats
from .run import run

__all__ = ["SCHEDULES", "Report", "SimulationError", "Stats", "UnsupportedError", "run"]
