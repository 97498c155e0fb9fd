"""Where the user's code is: the nearest line of the call stack that is not ptxkit's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from grammar.errors import Position

if TYPE_CHECKING:
    from types import FrameType

_PACKAGE = str(Path(__file__).parent) + os.sep
_CONTEXTLIB = sys.modules["contextlib"].__file__ if "contextlib" in sys.modules else None


def user_position() -> Position | None:
    """File and line of the innermost frame outside this package, None when there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_PACKAGE) and filename != _CONTEXTLIB:
            return Position(filename, frame.f_lineno)
        frame = frame.f_back
    return None
