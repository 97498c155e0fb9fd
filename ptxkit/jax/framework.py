"""jax, as a value of any type: type checkers judge this package alike with jax installed and without it."""

from __future__ import annotations

from typing import Any

import jax as _jax  # pyright: ignore[reportMissingImports]
import jax.extend.core as _core  # pyright: ignore[reportMissingImports]
import jax.ffi as _ffi  # pyright: ignore[reportMissingImports]
from jax.interpreters import batching as _batching  # pyright: ignore[reportMissingImports]
from jax.interpreters import mlir as _mlir  # pyright: ignore[reportMissingImports]

jax: Any = _jax
jnp: Any = _jax.numpy
batching: Any = _batching
core: Any = _core
ffi: Any = _ffi
mlir: Any = _mlir

__all__ = ["batching", "core", "ffi", "jax", "jnp", "mlir"]
