"""What the launches of all products share: launches in parts, and whether a caller's configuration is for the operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Generic, Protocol, TypeVar

from ptxkit.errors import LaunchError


class Launchable(Protocol):
    """A launch that is ready."""

    def run(self, stream: int) -> None:
        """Launch on a stream."""


L = TypeVar("L", bound=Launchable)


class GroupLaunches(Generic[L]):
    """Launches that have some of the groups each, one after another."""

    __slots__ = ("launches",)

    def __init__(self, launches: Sequence[L]) -> None:
        self.launches = launches

    def run(self, stream: int) -> None:
        """Launch all of them on a stream."""
        for each in self.launches:
            each.run(stream)


def check_operands(given: Any, needed: Any) -> None:
    """Raise LaunchError unless the operands of the caller's configuration are those that the arguments need. Room for groups is not
    compared."""
    for field in fields(needed):
        own, wanted = getattr(given, field.name), getattr(needed, field.name)
        if own != wanted and field.name != "max_groups":
            raise LaunchError(f"this config is not for this problem: its {field.name} is {_word(own)}, the arguments need {_word(wanted)}")


def _word(value: Any) -> str:
    return getattr(value, "__name__", str(value))


__all__ = ["GroupLaunches", "check_operands"]
