"""What stops a simulation: a program that cannot be run at all, and a fault of a program that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import LaunchError
from ..grammar.errors import Finding, Position, PtxkitError

if TYPE_CHECKING:
    from .told import Site


class SimulationError(LaunchError, ValueError):
    """The call is wrong, before anything runs: arguments, launch shape, an unknown entry."""


class UnsupportedError(PtxkitError, NotImplementedError):
    """The program uses what the simulator does not execute; raised by name, before anything runs."""


class InternalError(PtxkitError, RuntimeError):
    """The simulator failed, on a text that is not known to be wrong: a defect of ptxkit."""


class Again(Exception):
    """The run must begin again: a value turned out to be undefined, and those computed from it were not followed."""


class Fault(Exception):
    """The program did what has no meaning: an access out of bounds, a barrier underflow. It ends the run with a finding."""

    def __init__(self, rule: str, message: str, fix: str = "", site: Site | Position | None = None) -> None:
        """`site` is the instruction, or just its place."""
        super().__init__(message)
        if site is None or isinstance(site, Position):
            self.finding = Finding(rule, message, fix, site, "protocol", "error")
            return
        python, line = site.python, site.position
        written = line.line if line is not None and line.file is None else None
        self.finding = Finding(rule, message, fix, python or line, "protocol", "error", written if python else None)
