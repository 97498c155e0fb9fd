"""The error of lifting."""

from __future__ import annotations

from ..grammar.errors import PtxkitError


class LiftError(PtxkitError):
    """The PTX cannot be lifted; the message says which entry and why."""
