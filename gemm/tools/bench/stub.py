"""A driver that does nothing, for what a call costs the host: every driver function succeeds at once, memory is numbers, kernels never run.

    with stub.installed() as calls:
        gemm.gemm(a, b, out)                # arrays of `stub.array`

What is called on the warm path is a function of the C library that compares its first two arguments, so that a launch has the cost of a
foreign call and no other. Nothing in the library is changed but where it finds the driver. It is for processes without work on a GPU.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ptxkit.cards import H200, Card
from ptxkit.runtime import driver, launcher
from ptxkit.runtime.arrays import DeviceArray, contiguous_strides

from ...launch import dense, grouped, grouped_k, ptr_array

PAGE = 1 << 21
_BASE = 0x7F00_0000_0000


class Driver:
    """As much of `cuda.bindings.driver` as launches need; enumerations and structures are the real ones. `calls` counts by name."""

    def __init__(self, card: Card = H200) -> None:
        self.card, self.real = card, driver.bindings()
        self.calls: Counter[str] = Counter()
        self.next, self.capturing = _BASE, False
        self.noted: list[Any] = []
        kinds = self.real.CUdevice_attribute
        self.attributes = {kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 9, kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: 0,
                           kinds.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: card.sms,
                           kinds.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: card.shared_bytes,
                           kinds.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: int(card.l2_mib) << 20}
        self.results: dict[str, Callable[..., tuple[Any, ...]]] = {
            "cuDeviceGetCount": lambda: (1,), "cuDeviceGet": lambda ordinal: (ordinal,), "cuCtxGetDevice": lambda: (0,),
            "cuDeviceGetName": lambda size, handle: (card.name.encode() + b"\0",), "cuDriverGetVersion": lambda: (13000,),
            "cuDeviceGetAttribute": lambda kind, handle: (self.attributes.get(kind, 0),),
            "cuDeviceTotalMem": lambda handle: (int(card.memory_gib) << 30,), "cuDevicePrimaryCtxRetain": lambda handle: (1,),
            "cuMemAlloc": self._allocate, "cuLibraryLoadData": lambda *a: (1,), "cuLibraryGetKernel": lambda *a: (2,),
            "cuLibraryGetModule": lambda *a: (3,), "cuKernelGetAttribute": lambda *a: (168,), "cuStreamCreate": lambda *a: (4,),
            "cuOccupancyMaxActiveClusters": lambda kernel, config: (card.resident(config.gridDimX) // config.gridDimX,),
            "cuThreadExchangeStreamCaptureMode": lambda mode: (mode,), "cuStreamIsCapturing": lambda stream: (self.capturing,),
            "cuPointerGetAttribute": lambda kind, address: (0,)}

    def _allocate(self, size: int) -> tuple[int]:
        place, self.next = self.next, self.next + (-(-size // PAGE)) * PAGE
        return (place,)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            return getattr(self.real, name)

        def function(*arguments: Any) -> tuple[Any, ...]:
            self.calls[name] += 1
            result = self.results.get(name)
            return (0,) if result is None else (0, *result(*arguments))

        return function


def array(dtype: str, *shape: int) -> DeviceArray:
    """An array whose memory is a number, which nobody frees."""
    made = DeviceArray.__new__(DeviceArray)
    made.device, made.shape, made.strides, made.dtype = 0, shape, contiguous_strides(shape), dtype
    made.pointer = driver.allocate(made.nbytes, 0)
    return made


@contextmanager
def installed(card: Card = H200) -> Iterator[Driver]:
    """The library with this driver, and afterwards as it was: with nothing kept of what was loaded meanwhile."""
    made = Driver(card)
    before = driver._api, launcher._entry, driver._abandoned
    address = ctypes.cast(ctypes.CDLL(None).pthread_equal, ctypes.c_void_p).value

    def entry(name: str, version: int, prototype: Any) -> Any:
        return prototype(address)

    _forget()
    driver._api, launcher._entry, driver._abandoned = (lambda: made), entry, set()  # type: ignore[assignment]
    try:
        yield made
    finally:
        _forget()
        driver._api, launcher._entry, driver._abandoned = before


def _forget() -> None:
    """Drops what belongs to a device."""
    for cached in (driver.device_count, driver.device, driver._primary_context, dense.card_of, dense.compiled, dense._curve):
        cached.cache_clear()
    for kept in (dense._plans, dense._launches, dense._recipes, grouped._plans, grouped._launches, grouped_k._plans, grouped_k._launches,
                 ptr_array._launches):
        kept.clear()
    for workspaces in (dense._workspaces, grouped._workspaces, grouped_k._workspaces):
        workspaces._made.clear()


__all__ = ["Driver", "array", "installed"]
