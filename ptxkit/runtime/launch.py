"""The arguments of a launch: checks of arrays, the stream, and allocation of the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import LaunchError
from ..types import TYPES
from .arrays import NUMPY_NAMES, ArrayView, DeviceArray, device_array, view

__all__ = [
    "STREAMS",
    "ArrayView",
    "DeviceArray",
    "check_aligned",
    "check_contiguous",
    "check_device",
    "check_dtype",
    "check_shape",
    "current_stream",
    "device_array",
    "empty_like_owner",
    "raw_stream",
    "refuse_gradients",
    "same_device",
    "view",
]

LEGACY_STREAM = 1


def raw_stream(stream: Any, like: ArrayView | None = None) -> int:
    """The CUstream of `stream`, as an integer. `stream` is an object with `__cuda_stream__`, a torch or CuPy stream, or an integer.

    None is the current stream of the library of `like`: torch's or CuPy's current stream. For numba and for `device_array`s, whose copies
    use it, it is the legacy stream. Other libraries do not tell their stream: None is an error with them.
    """
    if stream is None:
        return current_stream(like)
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        said: Any = protocol() if callable(protocol) else protocol
        return int(said[1])
    for attribute in ("cuda_stream", "ptr"):  # torch and CuPy versions without the protocol
        handle = getattr(stream, attribute, None)
        if isinstance(handle, int):
            return handle
    raise LaunchError(f"stream={stream!r} is not a stream: pass an object with __cuda_stream__, a CUstream as an integer, or None")


def current_stream(like: ArrayView | None) -> int:
    """The CUstream on which the library of this array works now. Raises LaunchError where that library does not tell."""
    if like is None:
        raise LaunchError("no argument is an array, so there is no library whose current stream could be meant: pass stream=")
    current = STREAMS.get(like.owner)
    if current is None:
        current = STREAMS[like.owner] = _stream_of(like.owner)
    return current(like.device)


def _stream_of(owner: str) -> Callable[[int], int]:
    """How a library is asked for its current stream on a device."""
    if owner == "torch":
        torch = sys.modules["torch"]
        raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        return raw or (lambda device: int(torch.cuda.current_stream(device).cuda_stream))
    if owner == "cupy":
        return lambda device: int(sys.modules["cupy"].cuda.get_current_stream(device).ptr)
    if owner in ("ptxkit", "numba"):
        return lambda device: LEGACY_STREAM
    raise LaunchError("the library of this launch's arrays does not say which stream it works on: pass stream=")


STREAMS: dict[str, Callable[[int], int]] = {}
"""From the ordinal of a device to the current CUstream, for each library that was asked once."""


def empty_like_owner(like: ArrayView, shape: tuple[int, ...], dtype: str) -> Any:
    """A new uninitialised row-major array of ptxkit's `dtype`, from the library and on the device of `like`."""
    if like.owner == "torch":
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, NUMPY_NAMES[dtype]), device=like.device)
    if like.owner == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.device):
            return cupy.empty(shape, dtype=_cupy_dtype(dtype))
    if like.owner == "ptxkit":
        return DeviceArray(shape, dtype, like.device)
    raise LaunchError("the library of this launch's arrays cannot be asked for a new array: allocate the result and pass it (out=)")


def _cupy_dtype(dtype: str) -> Any:
    name = NUMPY_NAMES[dtype]
    if dtype not in ("bf16", "e4m3", "e5m2"):
        return name
    try:
        import ml_dtypes
    except ImportError:
        raise LaunchError(f"CuPy needs the package ml_dtypes for {name}: `pip install 'ptxkit[dtypes]'`, or pass the result (out=)"
                          ) from None
    return getattr(ml_dtypes, name)


# --------------------------------------------------------------------------------------------------- checks


def refuse_gradients(*arrays: tuple[str, Any]) -> None:
    """Raise LaunchError if torch records gradients and one of these (name, array) pairs requires them: a launch has none, so that a result
    would be cut off from what it was computed from without a word."""
    torch = sys.modules.get("torch")
    for name, array in arrays:
        if getattr(array, "requires_grad", False) and (torch is None or torch.is_grad_enabled()):
            raise LaunchError(f"{name} requires grad, and a launch into memory has no gradient: call the operators torch.ops.ptxkit "
                              "without out (import ptxkit.torch), or this under torch.no_grad()")


def check_dtype(name: str, array: ArrayView, allowed: Sequence[str]) -> None:
    """Raise LaunchError unless the element type is one of `allowed`. A bit-size type ("b16") allows any type of its width."""
    if array.dtype in allowed:
        return
    bits = TYPES[array.dtype].bits
    if f"b{bits}" not in allowed:
        raise LaunchError(f"{name} has elements of {array.dtype}: it must have {' or '.join(allowed)}")


def check_shape(name: str, array: ArrayView, shape: Sequence[int | None]) -> None:
    """Raise LaunchError unless the array has this shape. None allows any extent."""
    if len(array.shape) != len(shape) or any(want is not None and want != have for want, have in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
        raise LaunchError(f"{name} has shape {array.shape}: it must have shape ({wanted})")


def check_contiguous(name: str, array: ArrayView) -> None:
    """Raise LaunchError unless the array is row-major without gaps. The stride of an extent of 1 does not matter."""
    step = 1
    for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if extent != 1 and stride != step and 0 not in array.shape:
            raise LaunchError(f"{name} has strides {array.strides} for shape {array.shape}: it must be row-major without gaps; "
                              "pass .contiguous() or a copy")
        step *= extent


def check_aligned(name: str, array: ArrayView, alignment: int) -> None:
    """Raise LaunchError unless the array's address is a multiple of `alignment` bytes."""
    if array.pointer % alignment:
        raise LaunchError(f"{name} starts at address {array.pointer:#x}, which is not a multiple of {alignment} bytes: a slice may begin "
                          "inside an aligned block; pass a copy, or slice at an aligned element")


def check_device(name: str, array: ArrayView, device: int) -> None:
    """Raise LaunchError unless the array is on that device."""
    if array.device != device:
        raise LaunchError(f"{name} is on device {array.device}, this launch is on device {device}: move it there, or launch where it is")


def same_device(arrays: Sequence[tuple[str, ArrayView]]) -> int:
    """The common device of all (name, array) pairs. Raises LaunchError if they differ or there are none."""
    if not arrays:
        raise LaunchError("no argument is an array, so nothing says on which device to launch")
    first_name, first = arrays[0]
    for name, array in arrays[1:]:
        if array.device != first.device:
            raise LaunchError(f"{name} is on device {array.device} and {first_name} on device {first.device}: a launch has one device; "
                              "move one of them")
    return first.device
