"""The value of a parameter that is a block of bytes with arrays and tensor maps in it: a struct of C++, such as CUTLASS's Params."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..dsl.tensormap import TensorMap
from .errors import SimulationError

MAP_BYTES, MAP_ALIGN = 128, 64


class Struct:
    """`data`: bytes, a NumPy record (or an array of them), or None for zeros. `places` puts at a byte offset, or in a field of the record
    by its name, an array (its address of 8 bytes), (array, n) (the address n bytes behind its start), a `TensorMap` (its 128 bytes)
    or a NumPy number (its own bytes).

        sim.Struct(None, {0: TensorMap(a, box=(64, 64)), 128: out, 136: np.int32(n)})
    """

    def __init__(self, data: Any = None, places: Mapping[int | str, Any] | None = None) -> None:
        if data is not None and not isinstance(data, bytes | bytearray | np.ndarray | np.void):
            raise SimulationError(f"Struct: the data are bytes, a NumPy record or None, not {data!r}")
        self.data = data
        self.places = dict(places or {})
        size = None if data is None else len(data) if isinstance(data, bytes | bytearray) else data.nbytes
        for at, value, _ in self.parts():
            bytes_ = MAP_BYTES if isinstance(value, TensorMap) else 8 if isinstance(value, np.ndarray) and value.ndim else 0
            if size is not None and at + bytes_ > size:
                raise SimulationError(f"a struct of {size} bytes has no {bytes_} bytes at {at}")

    def parts(self) -> Iterator[tuple[int, Any, int]]:
        """(offset, value, bytes to add to its address) of everything that is placed."""
        for key, value in self.places.items():
            yield (self._offset(key), *value) if isinstance(value, tuple) else (self._offset(key), value, 0)

    def with_parts(self, values: list[Any]) -> Struct:
        """The same with other arrays and values at its places, in their order."""
        return Struct(self.data, {key: (value, old[1]) if isinstance(old, tuple) else value
                                  for (key, old), value in zip(self.places.items(), values, strict=True)})

    def __repr__(self) -> str:
        return f"Struct({self.data!r}, {self.places})"

    def bytes(self, name: str, size: int) -> bytearray:
        """The bytes of the data, for a parameter of `size` bytes."""
        data = b"" if self.data is None else bytes(self.data) if isinstance(self.data, bytes | bytearray) else self.data.tobytes()
        if self.data is not None and len(data) != size:
            raise SimulationError(f"`{name}` is {size} bytes, a struct of {len(data)} was given")
        return bytearray(data or bytes(size))

    def _offset(self, key: Any) -> int:
        if isinstance(key, str):
            names: Any = self.data.dtype.fields if isinstance(self.data, np.ndarray | np.void) else None
            if names is None or key not in names:
                raise SimulationError(f"Struct: there is no field {key!r} in its data; give a byte offset")
            return int(names[key][1])
        if not isinstance(key, int) or key < 0:
            raise SimulationError(f"Struct: a place is a byte offset or the name of a field, not {key!r}")
        return key


def placed(name: str, at: int, value: Any, data: bytearray, encoded: bytes) -> None:
    """Write a value's bytes to its place in a Struct for the parameter `name`."""
    align = MAP_ALIGN if isinstance(value, TensorMap) else len(encoded) if len(encoded) in (1, 2, 4, 8) else 1
    if at % align:
        raise SimulationError(f"`{name}`: what is placed at byte {at} must lie at a multiple of {align}")
    if at + len(encoded) > len(data):
        raise SimulationError(f"`{name}` is {len(data)} bytes: {len(encoded)} bytes at {at} do not fit")
    data[at:at + len(encoded)] = encoded
