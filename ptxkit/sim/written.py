"""Which bytes of the arguments a run has written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import SimulationError
from .values import Array


@dataclass(frozen=True, slots=True)
class Buffer:
    """The memory of an argument: its first byte's address on the host, its size, and a bit per cell of 2^shift bytes that was written."""

    name: str
    begin: int
    size: int
    shift: int
    bits: Array

    def mask(self) -> Array:
        """Per byte, whether it was written."""
        cells = self.size + (1 << self.shift) - 1 >> self.shift
        return np.repeat(np.unpackbits(self.bits, count=cells).astype(bool), 1 << self.shift)[:self.size]


@dataclass(frozen=True, slots=True)
class Written:
    """The buffers of a run that the checker has watched."""

    buffers: tuple[Buffer, ...]

    def unwritten(self, array: Any) -> Array:
        """Which elements of an argument, or of a view of it, have a byte that nothing has written."""
        if not isinstance(array, np.ndarray):
            raise SimulationError(f"unwritten() takes a NumPy array that was an argument, not {array!r}")
        at = int(array.__array_interface__["data"][0])
        for buffer in self.buffers:
            if buffer.begin <= at < buffer.begin + max(buffer.size, 1):
                missing = ~buffer.mask()
                item = array.dtype.itemsize
                places = np.full(array.shape, at - buffer.begin, np.int64)
                for axis, (extent, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
                    places += (np.arange(extent) * stride).reshape((-1,) + (1,) * (array.ndim - axis - 1))
                return np.asarray(missing[places[..., None] + np.arange(item)].any(axis=-1))
        raise SimulationError(f"the array of shape {array.shape} is in the memory of no argument of this run")

    def partly(self) -> tuple[str, ...]:
        """The arguments of which something was written, but not everything, in words."""
        found = []
        for buffer in self.buffers:
            done = int(buffer.mask().sum()) if buffer.bits.any() else 0
            if 0 < done < buffer.size:
                found.append(f"`{buffer.name}`: {buffer.size - done:,} of {buffer.size:,} bytes were never written")
        return tuple(found)
