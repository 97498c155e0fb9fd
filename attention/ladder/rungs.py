"""The steps in their order."""

from __future__ import annotations

from . import step00_loop
from .rung import Rung

RUNGS: tuple[Rung, ...] = tuple(module.RUNG for module in (step00_loop,))
BY_NAME = {rung.name: rung for rung in RUNGS}
