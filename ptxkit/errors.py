"""The errors of writing, assembling and running kernels; `PtxkitError` is the root of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from .dsl.source import user_position
from .grammar.errors import Finding, Kind, OpcodeError, ParseError, Position, PtxkitError, Severity

__all__ = [
    "AssembleError",
    "CheckError",
    "Finding",
    "Kind",
    "LaunchError",
    "NoDriverError",
    "NoToolError",
    "OpcodeError",
    "ParseError",
    "Position",
    "PtxkitError",
    "SettingsError",
    "Severity",
    "TraceError",
]


class TraceError(PtxkitError):
    """A kernel function did something that cannot become PTX; `position` is the user's line, found on the stack unless given."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        position = position or user_position()
        super().__init__(f"{position}: {message}" if position else message)
        self.message = message
        self.position = position


class CheckError(PtxkitError):
    """The static rules found something of severity error; every finding of the run is in `findings`."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = tuple(findings)


class AssembleError(PtxkitError):
    """ptxas or the driver's assembler refused the PTX.

    `findings` are its messages at Python lines where the line map knows them; `log` is what it wrote, unchanged.
    """

    def __init__(self, log: str, findings: Sequence[Finding] = (), *, summary: str = "the assembler refused this PTX") -> None:
        lines = [str(finding) for finding in findings] or [log.strip()]
        super().__init__("\n".join([summary, *filter(None, lines)]))
        self.log = log
        self.findings = tuple(findings)


class SettingsError(PtxkitError, ValueError):
    """A PTXKIT_* environment variable has a value that is not one of the legal ones."""


class NoDriverError(PtxkitError, RuntimeError):
    """There is no usable NVIDIA driver or GPU in this process."""


class NoToolError(PtxkitError, RuntimeError):
    """ptxas, nvdisasm or cuobjdump is not installed."""


class LaunchError(PtxkitError):
    """A kernel cannot be launched with these arguments on this device, or the driver refused the launch."""
