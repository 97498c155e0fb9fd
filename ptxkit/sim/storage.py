"""The memory of NumPy arrays: whose it is, and its bytes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .errors import SimulationError


def extent(array: Any) -> tuple[Any, int, int]:
    """(the array that owns the memory or None, first byte, byte after the last)."""
    owner, base = None, array.base
    while base is not None:                     # NumPy's as_strided leaves an object between two arrays that is none
        owner, base = (base if isinstance(base, np.ndarray) else owner), getattr(base, "base", None)
    low, high = np.lib.array_utils.byte_bounds(array) if hasattr(np.lib, "array_utils") else np.byte_bounds(array)  # type: ignore[attr-defined]
    return owner, low, high


def refuse_elements(name: str, value: Any) -> None:
    """Raise for an array of objects, texts or dates."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSUMm":
        raise SimulationError(f"`{name}` has elements of {value.dtype}, which no kernel can use: pass numbers")


def storage(array: Any) -> Any:
    """All bytes of the memory that an array is a part of, as a view: what a kernel that is given the array can write."""
    owner = extent(array)[0]
    return bytes_of(array if owner is None else owner)


def bytes_of(array: Any) -> Any:
    """All bytes of an array that owns its memory, as a view."""
    low, high = extent(array)[1:]
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return array.reshape(-1, order="A").view(np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
