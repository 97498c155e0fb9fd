"""Schedules that are recorded, searched, shortened, replayed and shown."""

from __future__ import annotations

from .choices import Choices
from .outcome import Outcome, Trial
from .policies import Recording, Replaying
from .record import Recorder
from .replay import Replay
from .searching import Failure, Search, search

__all__ = ["Choices", "Failure", "Outcome", "Recorder", "Recording", "Replay", "Replaying", "Search", "Trial", "search"]
