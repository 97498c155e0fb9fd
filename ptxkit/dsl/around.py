"""The code around a `with` body when the body begins: its frames, where they are, and what their names hold."""

from __future__ import annotations

from types import FrameType
from typing import Any, NamedTuple

from .held import Held, users
from .plain import own_values


class Around(NamedTuple):
    """A frame around a body, the offset at which it enters it, and what its names hold: values of the trace, and Python's own."""

    frame: FrameType
    begin: int
    held: Held
    numbers: dict[str, Any]


def around(frame: FrameType | None) -> list[Around]:
    """The frame that a `with` stands in, and those whose body it is a part of, as they are now."""
    found = []
    for each in users(frame):
        own = each.f_locals
        found.append(Around(each, each.f_lasti, Held(each, own), own_values(each.f_code, own, each.f_globals)))
    return found


__all__ = ["Around", "around"]
