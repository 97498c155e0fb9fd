"""Results on disk: written so that a reader finds the file as it was or as it is, and a cut run leaves a whole one."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_aside(path: Path, text: str) -> None:
    """Writes another file, then replaces this one by it. What cannot be written leaves nothing behind."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".aside-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise


def write_json(path: Path, results: Mapping[str, Any]) -> None:
    """Results, with numbers to six digits."""
    write_aside(path, json.dumps(rounded(results), indent=1) + "\n")


def rounded(value: Any) -> Any:
    """Numbers to six digits: more is noise, and makes results unreadable."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {name: rounded(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return value


__all__ = ["rounded", "write_aside", "write_json"]
