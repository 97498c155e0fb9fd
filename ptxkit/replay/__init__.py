"""Schedules that are recorded, searched, shortened, replayed and shown."""

from __future__ import annotations

from .choices import Choices
from .events import Record
from .found import Failure, Search
from .outcome import Outcome, Trial
from .replay import Replay
from .search import search

__all__ = ["Choices", "Failure", "Outcome", "Record", "Replay", "Search", "Trial", "search"]
