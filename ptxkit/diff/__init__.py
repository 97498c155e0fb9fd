"""Two kernels side by side: what changed in instructions, resources and protocol. Names of registers and labels say nothing."""

from __future__ import annotations

from .compare import Change, Difference, Function, Hunk, diff

__all__ = ["Change", "Difference", "Function", "Hunk", "diff"]
