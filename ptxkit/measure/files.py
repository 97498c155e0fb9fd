"""Results on disk: written so that a reader finds the file as it was or as it is, and a cut run leaves a whole one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files import write_whole


def write_aside(path: Path, text: str) -> None:
    """Writes another file, then replaces this one by it. What cannot be written leaves nothing behind."""
    write_whole(path, text.encode())


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
