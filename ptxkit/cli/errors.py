"""What is wrong with a command line, or with a file that it names."""

from __future__ import annotations

from ..errors import PtxkitError


class UsageError(Exception):
    """The command line is wrong: an option, a module or a kernel that does not exist, or an output that cannot be written."""


class FileError(PtxkitError, ValueError):
    """A file that cannot be read as PTX."""
