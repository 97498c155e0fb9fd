"""Names of files on a command line, as `type=` of options, and files that options name."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from ..files import read_json, read_text
from .errors import UsageError


def named(text: str) -> str:
    """The name of a file or a folder."""
    if not text:
        raise argparse.ArgumentTypeError("a name, not ''")
    return text


def output_file(text: str) -> str:
    """A file to write, or `-`. It is refused before anything runs where its folder is not there."""
    if text != "-" and (os.path.isdir(named(text)) or not os.path.isdir(os.path.dirname(text) or ".")):
        raise argparse.ArgumentTypeError(f"cannot write {text}: name a file in a folder that is there")
    return text


def output_path(text: str) -> Path:
    """A file to write, as `output_file`, that cannot be stdout."""
    return Path(output_file(text))


def text_of(path: str | os.PathLike[str]) -> str:
    """The text of a file that an option names."""
    try:
        return read_text(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no UTF-8 text") from None


def json_of(path: str | os.PathLike[str]) -> Any:
    """What a JSON file says that an option names."""
    try:
        return read_json(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from None


__all__ = ["json_of", "named", "output_file", "output_path", "text_of"]
