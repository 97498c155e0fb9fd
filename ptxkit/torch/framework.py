"""torch, as a value of any type: type checkers judge this package alike with torch installed and without it."""

from __future__ import annotations

from typing import Any

import torch as _torch  # pyright: ignore[reportMissingImports]

torch: Any = _torch

__all__ = ["torch"]
