"""torch, as a value of any type: type checkers judge this package alike with torch installed and without it."""

from __future__ import annotations

from typing import Any

try:
    import torch as _torch  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("ptxkit.torch needs torch 2.11 or newer: `pip install 'ptxkit[torch]'`", name="torch") from None

torch: Any = _torch

__all__ = ["torch"]
