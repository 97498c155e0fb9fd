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

    `findings` are its messages at Python lines where the line map knows them; `log` is what it wrote, unchanged. The text of the error has
    the first of them.
    """

    MOST_LINES, MOST_CHARACTERS = 100, 2000
    """Of the text: lines, and characters of one."""

    def __init__(self, log: str, findings: Sequence[Finding] = (), *, summary: str = "the assembler refused this PTX") -> None:
        lines = [str(finding) for finding in findings[:self.MOST_LINES]] or log.strip().split("\n", self.MOST_LINES)[:self.MOST_LINES]
        lines = [line if len(line) <= self.MOST_CHARACTERS else f"{line[:self.MOST_CHARACTERS]}..." for line in lines if line]
        if (more := (len(findings) or log.strip().count("\n") + 1) - self.MOST_LINES) > 0:
            lines.append(f"... and {more:,} more")
        super().__init__("\n".join([summary, *lines]))
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
