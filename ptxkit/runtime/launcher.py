"""The warm path of a launch: it writes tensor maps and kernel arguments in place and calls the driver once.

The three driver functions of a launch are called through ctypes, at addresses from `cuGetProcAddress`, on structures that are made once. No
object of cuda.bindings is made during a launch.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..dsl.arguments import FORMATS, misfit
from ..errors import LaunchError
from . import driver

if TYPE_CHECKING:
    from ..dsl.descriptor import TensorMapFields
    from ..types import ScalarType

Extent = tuple[int, int, int]

# CUtensorMapDataType by ptxkit's type. Types without one are copied as unsigned integers of their width.
_DATA_TYPES = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "tf32": 11}
_BY_WIDTH = {8: 0, 16: 1, 32: 2, 64: 4}
_SWIZZLES = {0: 0, 16: 0, 32: 1, 64: 2, 128: 3}
_INTERLEAVES = {0: 0, 16: 1, 32: 2}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}
_FILLS = {"zeros": 0, "nan": 1}

_INVALID_CONTEXT = 201
_CLUSTER_DIMENSION = 4
_PROGRAMMATIC_STREAM_SERIALIZATION = 6

_Status = ctypes.c_int
_ENCODE = ctypes.CFUNCTYPE(_Status, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, *[ctypes.c_void_p] * 5, *[ctypes.c_int] * 4)
_REPLACE = ctypes.CFUNCTYPE(_Status, ctypes.c_void_p, ctypes.c_void_p)
_LAUNCH = ctypes.CFUNCTYPE(_Status, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_FILL = ctypes.CFUNCTYPE(_Status, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
_GET_DEVICE = ctypes.CFUNCTYPE(_Status, ctypes.c_void_p)


def addresses() -> tuple[int, int, int]:
    """The addresses of the driver's functions that launch, point a tensor map at another array, and fill lines with a byte."""
    found = (_entry("cuLaunchKernelEx", 11060, _LAUNCH), _entry("cuTensorMapReplaceAddress", 12000, _REPLACE),
             _entry("cuMemsetD2D8Async", 3020, _FILL))
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found)  # type: ignore[return-value]


@functools.cache
def _entry(name: str, version: int, prototype: Any) -> Any:
    """The driver's function with that name, with its signature since that CUDA version."""
    address, *_ = driver.call("cuGetProcAddress", name.encode(), version, 0)
    if not address:
        raise LaunchError(f"this driver has no {name}: it is older than CUDA {version // 1000}.{version % 1000 // 10}")
    return prototype(int(address))


_Room = ctypes.c_uint8 * 192            # holds 128 bytes at a multiple of 64
_put = struct.Struct("128s").pack_into


class EncodedTensorMap:
    """A tensor map of the array at `pointer`, as the hardware reads it: 128 bytes at `address`, aligned to 64. Each launch copies it."""

    __slots__ = ("_buffer", "_image", "address", "fields", "pointer")

    def __init__(self, fields: TensorMapFields, image: bytes = b"") -> None:
        self._buffer = _Room()
        start = ctypes.addressof(self._buffer)
        offset = -start % 64
        self.address = start + offset
        self.fields = fields
        self.pointer = 0
        self._image = image
        if image:
            _put(self._buffer, offset, image)

    def replace(self, pointer: int) -> None:
        """Point the map at another array of the same shape and strides."""
        replace = _entry("cuTensorMapReplaceAddress", 12000, _REPLACE)
        status = replace(self.address, pointer)
        if status == _INVALID_CONTEXT:
            with driver.on(driver.current_device()):
                status = replace(self.address, pointer)
        if status:
            raise LaunchError(_unencodable(self.fields, pointer, status))
        self.pointer = pointer

    def at(self, pointer: int) -> EncodedTensorMap:
        """A map of another array with the same shape, strides and alignment. It takes an eighth of the time of encoding one."""
        if not self._image:
            self._image = bytes(self)
        made = EncodedTensorMap(self.fields, self._image)
        made.replace(pointer)
        return made

    def __bytes__(self) -> bytes:
        return ctypes.string_at(self.address, 128)


def encode_tiled(fields: TensorMapFields, pointer: int) -> EncodedTensorMap:
    """The tensor map over the array at `pointer`, encoded by the driver. Raises LaunchError with the reason if the driver refuses."""
    made = EncodedTensorMap(fields)
    encode = _entry("cuTensorMapEncodeTiled", 12000, _ENCODE)
    status = encode(made.address, *_arguments(fields)(pointer))
    if status == _INVALID_CONTEXT:  # no context is current in this thread
        with driver.on(driver.current_device()):
            status = encode(made.address, *_arguments(fields)(pointer))
    if status:
        raise LaunchError(_unencodable(fields, pointer, status))
    made.pointer = pointer
    return made


@functools.lru_cache(maxsize=1024)
def _arguments(fields: TensorMapFields) -> Any:
    """The arguments of cuTensorMapEncodeTiled after the map, as a function of the pointer."""
    rank = len(fields.dims)
    dims, strides = (ctypes.c_uint64 * rank)(*fields.dims), (ctypes.c_uint64 * max(rank - 1, 1))(*fields.strides)
    box, element_strides = (ctypes.c_uint32 * rank)(*fields.box), (ctypes.c_uint32 * rank)(*fields.element_strides)
    kind, modes = data_type(fields.type), (_INTERLEAVES[fields.interleave], *fetch_modes(fields.swizzle, fields.l2_promotion),
                                           _FILLS[fields.fill])
    return lambda pointer: (kind, rank, pointer, dims, strides, box, element_strides, *modes)


def data_type(type: ScalarType) -> int:
    """The CUtensorMapDataType of an element type. -1: it has none."""
    return _DATA_TYPES.get(type.__name__, _BY_WIDTH.get(type.bits, -1))


def fetch_modes(swizzle: int, l2_promotion: int) -> tuple[int, int]:
    """The CUtensorMapSwizzle and the CUtensorMapL2promotion of so many bytes."""
    return _SWIZZLES[swizzle], _PROMOTIONS[l2_promotion]


def _unencodable(fields: TensorMapFields, pointer: int, status: int) -> str:
    reason = fields.problem(pointer) or f"{driver.describe(status)}, for {fields}"
    return f"the driver cannot encode a tensor map at {pointer:#x}: {reason}"


class Launcher:
    """A kernel that is ready for launches on one device.

    `parameters` are the kernel's, in order: "tensormap", or the name of a scalar type. A pointer is "u64". A float that struct cannot write
    (bf16) is the integer of its bits. A block counts threads; a cluster and a grid count CTAs. With `pdl` the kernel may start before the
    previous one in the stream has ended, so it must wait with griddepcontrol.wait.

    A call writes the arguments into memory of this object and calls the driver, which copies them. It allocates, loads and waits for
    nothing: it can be captured into a graph, and the next call may follow at once. Any thread may call.
    """

    __slots__ = ("_alone", "_attributes", "_buffer", "_cell", "_cell_address", "_config", "_config_address", "_get_device", "_grid",
                 "_launch", "_lock", "_map_places", "_maps", "_pack", "_passed", "_pointers", "_pointers_address", "_scalars", "_stream",
                 "block", "cluster", "kernel", "ordinal", "parameters", "shared")

    def __init__(self, kernel: driver.LoadedKernel, parameters: Sequence[str], *, block: Extent, cluster: Extent = (1, 1, 1),
                 shared: int = 0, pdl: bool = False, ordinal: int | None = None) -> None:
        self.kernel = kernel
        self.parameters = tuple(parameters)
        self.block, self.cluster, self.shared = block, cluster, shared
        self.ordinal = driver.current_device() if ordinal is None else ordinal
        size = cluster[0] * cluster[1] * cluster[2]
        if shared > 48 << 10 or shared + kernel.attributes(self.ordinal).shared_bytes > 48 << 10:
            kernel.allow_shared(shared, self.ordinal)
        kernel.allow_cluster(size, self.ordinal)
        self._place_arguments()
        self._attributes = (_Attribute * 2)()
        count = 0
        if size > 1:
            self._attributes[count].id = _CLUSTER_DIMENSION
            self._attributes[count].value[0], self._attributes[count].value[1], self._attributes[count].value[2] = cluster
            count += 1
        if pdl:
            self._attributes[count].id = _PROGRAMMATIC_STREAM_SERIALIZATION
            self._attributes[count].value[0] = 1
            count += 1
        self._config = _Config(0, 0, 0, *block, shared, None, ctypes.addressof(self._attributes), count)
        self._config_address = ctypes.addressof(self._config)
        self._launch = _entry("cuLaunchKernelEx", 11060, _LAUNCH)
        self._get_device = _entry("cuCtxGetDevice", 2000, _GET_DEVICE)
        self._cell = ctypes.c_int(-1)
        self._cell_address = ctypes.addressof(self._cell)
        self._alone = driver.device_count() == 1    # then a thread's context can be no other device's
        self._passed = *(ctypes.c_void_p(value) for value in (self._config_address, kernel.handle, self._pointers_address)), None
        self._scalars: tuple[Any, ...] | None = None
        self._lock = threading.Lock()
        self._grid: Extent = (0, 0, 0)
        self._stream = 0

    def _place_arguments(self) -> None:
        """Make a buffer for all scalars, written by one struct, and the array of argument addresses: into the buffer or of tensor maps."""
        layout, offset = "<", 0
        places: list[int | None] = []
        for word in self.parameters:
            if word == "tensormap":
                places.append(None)
                continue
            code = FORMATS.get(word)
            if code is None:
                raise LaunchError(f"{self.kernel.name}: a parameter of type {word} cannot be passed, only tensormap, {', '.join(FORMATS)}")
            width = struct.calcsize(f"<{code}")
            padding = -offset % width
            layout += f"{padding}x{code}" if padding else code
            places.append(offset + padding)
            offset += padding + width
        self._buffer = (ctypes.c_uint8 * max(offset, 1))()
        self._pack = functools.partial(struct.Struct(layout).pack_into, self._buffer, 0)
        base = ctypes.addressof(self._buffer)
        self._map_places = tuple(index for index, place in enumerate(places) if place is None)
        self._maps: tuple[EncodedTensorMap, ...] | None = None
        self._pointers = (ctypes.c_void_p * max(len(places), 1))(*(None if place is None else base + place for place in places))
        self._pointers_address = ctypes.addressof(self._pointers)

    def __call__(self, stream: int, grid: Extent, scalars: tuple[Any, ...], maps: tuple[EncodedTensorMap, ...] = ()) -> None:
        """Launch on `stream` (a CUstream as an integer). `scalars` and `maps` are the arguments of each kind, in order."""
        with self._lock:
            if scalars is not self._scalars:
                self._write(scalars)
            if maps is not self._maps:
                self._point_at(maps)
            if grid != self._grid:
                self._config.grid_x, self._config.grid_y, self._config.grid_z = self._grid = grid
            if stream != self._stream:
                self._config.stream = self._stream = stream
            status = self._launch(*self._passed) if self._alone or self._current() else _INVALID_CONTEXT
            if status and not self._current():
                with driver.on(self.ordinal):
                    status = self._launch(*self._passed)
        if status:
            raise LaunchError(self._refused(status, grid))

    def config(self, grid: Extent) -> ctypes.Structure:
        """The CUlaunchConfig of a launch on this grid, without a stream. It points into this object."""
        return _Config(*grid, *self.block, self.shared, None, self._config.attributes, self._config.count)

    def _current(self) -> bool:
        """Whether this thread has a context of the device."""
        return self._get_device(self._cell_address) == 0 and self._cell.value == self.ordinal

    def _write(self, scalars: tuple[Any, ...]) -> None:
        self._scalars = None                    # what fails has written a part
        try:
            self._pack(*scalars)
        except (struct.error, OverflowError) as error:
            raise LaunchError(self._misfit(scalars, error)) from None
        self._scalars = scalars

    def _point_at(self, maps: tuple[EncodedTensorMap, ...]) -> None:
        if len(maps) != len(self._map_places):
            raise LaunchError(f"{self.kernel.name} takes {len(self._map_places)} tensor maps, not {len(maps)}")
        for place, encoded in zip(self._map_places, maps, strict=True):
            self._pointers[place] = encoded.address
        self._maps = maps

    def _misfit(self, scalars: tuple[Any, ...], error: Exception) -> str:
        words = [word for word in self.parameters if word != "tensormap"]
        if len(scalars) != len(words):
            return f"{self.kernel.name} takes {len(words)} arguments besides tensor maps, not {len(scalars)}"
        for word, value in zip(words, scalars, strict=True):
            try:
                struct.pack(f"<{FORMATS[word]}", value)
            except (struct.error, OverflowError):
                return f"{self.kernel.name}: {misfit(word, word, value)}"
        return f"{self.kernel.name}: {error}"

    def _refused(self, status: int, grid: Extent) -> str:
        said = f"{self.kernel.name} was not launched: {driver.describe(status)}"
        if min(grid) < 1:
            return f"{said}: the grid {grid} is empty"
        if any(g % c for g, c in zip(grid, self.cluster, strict=True)):
            return f"{said}: the grid {grid} counts CTAs and must be a multiple of the cluster {self.cluster}"
        if status >= 700:
            return f"{said}; the fault may be of an earlier kernel, since launches do not wait"
        shape = f"grid {grid}, block {self.block}, cluster {self.cluster}, {self.shared} bytes of dynamic shared memory"
        return f"{said} ({shape}, device {self.ordinal})"


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (*((name, ctypes.c_uint32) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint32))
