"""jax, as a value of any type: type checkers judge this package alike with jax installed and without it."""

from __future__ import annotations

from typing import Any

try:
    import jax as _jax  # pyright: ignore[reportMissingImports]
    import jax.export as _export  # pyright: ignore[reportMissingImports]
    import jax.extend.core as _core  # pyright: ignore[reportMissingImports]
    import jax.ffi as _ffi  # pyright: ignore[reportMissingImports]
    from jax.interpreters import batching as _batching  # pyright: ignore[reportMissingImports]
    from jax.interpreters import mlir as _mlir  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ModuleNotFoundError("ptxkit.jax needs jax 0.10 or newer: `pip install 'ptxkit[jax]'`", name="jax") from None

jax: Any = _jax
jnp: Any = _jax.numpy
batching: Any = _batching
core: Any = _core
export: Any = _export
ffi: Any = _ffi
mlir: Any = _mlir

__all__ = ["batching", "core", "export", "ffi", "jax", "jnp", "mlir"]
