"""Arrays of other libraries as NumPy arrays, and NumPy arrays with what compilers ask of a tensor."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dsl.arguments import native
from ..sim import SimulationError
from ..sim.storage import storage

_BITS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
"""Types of torch that its `numpy()` refuses, and what their bits are."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type under the name that torch and Triton have for it."""

    name: str
    itemsize: int

    @property
    def is_floating_point(self) -> bool:
        return "float" in self.name

    def __str__(self) -> str:
        return self.name


class Tensor:
    """A NumPy array with what Triton asks of a tensor, for descriptors of arrays where torch is not installed.

        TensorDescriptor(tensor(a), a.shape, [a.shape[1], 1], [64, 64])
    """

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape = list(array.shape)
        self.dtype = ElementType(array.dtype.name, array.dtype.itemsize)

    def data_ptr(self) -> int:
        """Where a simulated launch has it, modulo 256: each buffer begins at a multiple of that."""
        return 4096 + int(self.array.ctypes.data - storage(self.array).ctypes.data)

    def stride(self, axis: int | None = None) -> Any:
        """In elements, of one axis or of all."""
        strides = tuple(stride // self.array.dtype.itemsize for stride in self.array.strides)
        return strides if axis is None else strides[axis]

    def element_size(self) -> int:
        """In bytes."""
        return int(self.array.dtype.itemsize)

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}, shape={self.shape})"


def tensor(array: Any) -> Tensor:
    """The array as a tensor that shares its memory."""
    return Tensor(as_array(array))


def is_tensor(value: Any) -> bool:
    """Whether a value is an array, of NumPy or of a library with tensors."""
    return isinstance(value, np.ndarray | Tensor) or hasattr(value, "data_ptr") or hasattr(value, "__cuda_array_interface__")


def as_array(value: Any) -> Any:
    """The NumPy array that shares the memory of a NumPy array, a `Tensor`, or a torch tensor on the CPU."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Tensor):
        return value.array
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.is_cuda:
            raise SimulationError("a tensor on a GPU: the CPU device takes NumPy arrays and tensors on the CPU, so pass tensor.cpu()")
        name = str(value.dtype).rpartition(".")[2]
        if name not in _BITS:
            return value.detach().numpy()
        try:
            import ml_dtypes
        except ImportError:
            raise SimulationError(f"NumPy has no {name} by itself: pip install 'ptxkit[dtypes]' brings it") from None
        return value.detach().view(getattr(torch, _BITS[name])).numpy().view(getattr(ml_dtypes, name))
    raise SimulationError(f"{value!r} is no array that the CPU device takes: pass a NumPy array or a torch tensor on the CPU")


def checked(name: str, value: Any) -> Any:
    """The NumPy array of an argument; an error that names it where a GPU has no such elements."""
    try:
        array = as_array(value)
    except SimulationError as error:
        raise SimulationError(f"`{name}`: {error}") from None
    native(name, array.dtype)
    if array.dtype.kind not in "biufV" or array.dtype.type is np.void:
        raise SimulationError(f"`{name}` has elements of {array.dtype}: pass an array of numbers that a GPU has")
    return array
