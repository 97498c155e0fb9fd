"""What stops a simulation: a program that cannot be run at all, and a fault of a program that runs."""

from __future__ import annotations

from grammar.errors import Finding, Position, PtxkitError


class SimulationError(PtxkitError, ValueError):
    """The call is wrong, before anything runs: arguments, launch shape, an unknown entry."""


class UnsupportedError(PtxkitError, NotImplementedError):
    """The program uses what the simulator does not execute; raised by name, before anything runs."""


class Fault(Exception):
    """The program did what has no meaning: an access out of bounds, a barrier underflow. It ends the run with a finding."""

    def __init__(self, rule: str, message: str, fix: str = "", position: Position | None = None) -> None:
        super().__init__(message)
        self.finding = Finding(rule, message, fix, position, "protocol", "error")
