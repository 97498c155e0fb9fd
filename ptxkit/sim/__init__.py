"""The CPU device: runs PTX without a GPU, and checks it."""

from __future__ import annotations

from .asked import SCHEDULES
from .errors import InternalError, SimulationError, UnsupportedError
from .limits import Limits
from .report import Report, Stats
from .run import run
from .struct import Struct

__all__ = ["SCHEDULES", "InternalError", "Limits", "Report", "SimulationError", "Stats", "Struct", "UnsupportedError", "run"]
