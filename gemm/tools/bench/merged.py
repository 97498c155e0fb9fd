"""Results of several runs as one: summed up by card, regime, type, kind of shape and layout, and drawn in one chart.

    python -m ptxkit.gemm bench --of h100-1.json h100-2.json h200-1.json --json all.json --plot all.svg
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptxkit.errors import PtxkitError
from ptxkit.files import read_json

from .figures import summary
from .shapes import BYTES


class MergeError(PtxkitError, ValueError):
    """A file that has no results."""


def kind_of(row: Mapping[str, Any]) -> str:
    """"aligned": N and K are multiples of 64; "any8": of 8, or of 16 bytes if that is more; else "any"."""
    unit = max(8, 16 // BYTES[row["dtype"]])
    n, k = row["n"], row["k"]
    return "aligned" if n % 64 == k % 64 == 0 else "any8" if n % unit == k % unit == 0 else "any"


def merged(paths: Sequence[Path]) -> dict[str, Any]:
    """The rows of all files, each with the card that it was measured on, and their summary. Raises MergeError."""
    found: dict[str, Any] = {"runs": [], "rows": []}
    for path in paths:
        try:
            results = read_json(path)
            card = results["device"]["name"]
            rows = [{**row, "card": card.removeprefix("NVIDIA "), "kind": kind_of(row)} for row in results["rows"]]
        except OSError as error:
            raise MergeError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise MergeError(f"{path} has no results of dense products") from None
        found["runs"].append({"file": path.name, "command": results.get("command", ""), "device": results["device"], "rows": len(rows),
                              "date": results.get("date", "")})
        found["rows"] += rows
    found["summary"] = summary(found["rows"])
    cards = dict.fromkeys(run["device"]["name"] for run in found["runs"])
    found["device"] = {"name": ", ".join(cards)}
    return found


__all__ = ["MergeError", "kind_of", "merged"]
