"""What is installed only if it is asked for, by the extra of the package that brings it."""

from __future__ import annotations

EXTRAS = {"rich": ("cli", "coloured tables"), "matplotlib": ("plot", "plots"), "ml_dtypes": ("dtypes", "bf16 and fp8 in NumPy"),
          "torch": ("torch", "operators and layers of ptxkit.torch"), "jax": ("jax", "functions of ptxkit.jax")}
"""By the name of a module: the extra, and what it is for."""


def way_out(module: str) -> str:
    """The command that installs a module of `EXTRAS`."""
    return f"pip install 'ptxkit[{EXTRAS[module][0]}]'"
