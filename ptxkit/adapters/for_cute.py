"""Compiled functions of CuTe DSL. Their host code runs here, with functions of ours in place of CUDA's: it says what it would launch.

`cute.compile` makes a host function that computes the grid, encodes tensor maps and fills the structs of parameters. Its calls of CUDA are
answered by this module, so that no driver is needed. Pointers among the parameters are found by their addresses.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..cards import H200
from ..dsl.tensormap import TensorMap
from ..grammar import parse, tree
from ..proof.launch import Launch
from ..sim import SimulationError, Struct
from ..sim.program import entry_of
from ..sim.storage import storage
from ..sim.symbols import extent
from ..sim.tensormap import TYPES
from ..smem import SHARED_LIMIT
from . import version_of
from .cute_arguments import as_cute_takes_them, bound, name_of, of_cute
from .encoded import Encoded, decoded

HOST_TYPES = (*TYPES[:8], "f64", "bf16", "f32", "tf32", "tf32")
"""Element types by their number in `CUtensorMapDataType`."""
_CLUSTER = 4
"""`cudaLaunchAttributeClusterDimension`."""
_ATTRIBUTES = {16: H200.sms, 97: SHARED_LIMIT}
"""What a device says of itself, by `cudaDeviceAttr`: multiprocessors, shared memory of a block that asks for more."""
_MARK = b"ptxkit map".ljust(120, b".")
"""How the 128 bytes of a tensor map begin that the host function had encoded; its number follows."""


@dataclass
class Launched:
    """One launch as the host function asked for it."""

    kernel: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    smem: int
    cluster: tuple[int, ...] | None
    parameters: int


@dataclass
class Cuda:
    """What stands in for CUDA: it writes down what is asked of it."""

    launches: list[Launched] = field(default_factory=list)
    maps: list[tuple[int, ...]] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def function(self, name: str) -> Callable[..., int]:
        """What answers a call of that function."""
        return getattr(self, name, lambda *_: 0)

    def _cudaLibraryGetKernel(self, out: int, _: int, name: int) -> int:
        self.kernels.append(ctypes.string_at(name).decode())
        ctypes.c_uint64.from_address(out).value = len(self.kernels)
        return 0

    def _cudaGetDevice(self, out: int) -> int:
        ctypes.c_int32.from_address(out).value = 0
        return 0

    def _cudaDeviceGetAttribute(self, out: int, attribute: int, _: int) -> int:
        ctypes.c_int32.from_address(out).value = _ATTRIBUTES.get(attribute & 0xFFFFFFFF, 0)
        return 0

    def _cuKernelGetAttribute(self, out: int, *_: int) -> int:
        ctypes.c_int32.from_address(out).value = 0
        return 0

    def _cuTensorMapEncodeTiled(self, out: int, *fields: int) -> int:
        kind, rank, address, dims, strides, box, steps, interleave, swizzle, _, fill = (word & (1 << 64) - 1 for word in fields)
        rank &= 0xFFFFFFFF

        def words(at: int, kind: Any, count: int) -> tuple[int, ...]:
            return tuple((kind * count).from_address(at)) if count else ()

        self.maps.append((kind & 0xFFFFFFFF, address, *words(dims, ctypes.c_uint64, rank), *words(strides, ctypes.c_uint64, rank - 1),
                          *words(box, ctypes.c_uint32, rank), *words(steps, ctypes.c_uint32, rank), interleave & 0xFF, swizzle & 0xFF,
                          fill & 0xFF))
        ctypes.memmove(out, _MARK + (len(self.maps) - 1).to_bytes(8, "little"), 128)
        return 0

    def _cudaLaunchKernelEx(self, config: int, kernel: int, parameters: int) -> int:
        shape = tuple((ctypes.c_uint32 * 6).from_address(config))
        smem, attributes = ctypes.c_uint64.from_address(config + 24).value, ctypes.c_uint64.from_address(config + 40).value
        cluster = None
        for each in range(ctypes.c_uint32.from_address(config + 48).value):
            at = attributes + 72 * each
            if ctypes.c_uint32.from_address(at).value == _CLUSTER:
                cluster = tuple((ctypes.c_uint32 * 3).from_address(at + 8))
        return self._launched(kernel, shape, smem, cluster, parameters)

    def _cudaLaunchKernel(self, kernel: int, *rest: int) -> int:
        return self._launched(kernel, tuple(word & 0xFFFFFFFF for word in rest[:6]), rest[7], None, rest[6])

    def _launched(self, kernel: int, shape: tuple[int, ...], smem: int, cluster: tuple[int, ...] | None, parameters: int) -> int:
        self.launches.append(Launched(kernel, shape[:3], shape[3:], smem, cluster, parameters))
        if 0 < kernel <= len(self.kernels):
            sizes = self.sizes.get(self.kernels[kernel - 1], ())
            pointers = (ctypes.c_uint64 * len(sizes)).from_address(parameters) if sizes else ()
            self.contents = [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]
        return 0


def launch_of(kernel: Any, grid: Any, args: Sequence[Any], config: Mapping[str, Any]) -> Launch:
    """The launch that a compiled function makes with these arguments."""
    if grid is not None:
        args = (grid, *args)                                    # the function computes its grid: this is its first argument
    if not hasattr(kernel, "ir_module") or not hasattr(kernel, "artifacts"):
        raise SimulationError(f"{kernel!r} is not compiled: pass what cute.compile makes of the function")
    text = getattr(kernel.artifacts, "PTX", None)
    if not text:
        raise SimulationError("CuTe DSL has not kept the PTX of this function: set CUTE_DSL_KEEP=ptx and CUTE_DSL_ARCH=sm_90a in the "
                              "environment before cutlass is imported")
    text = text.rstrip("\0")
    if ".version" not in text:                                  # the file that it was to be kept in
        raise SimulationError(f"CuTe DSL has not kept the PTX of this function at {text}: make the folder that CUTE_DSL_DUMP_DIR names "
                              "before the function is compiled")
    module = parse(text)
    given = bound(kernel, args, config)
    arrays = {name: value if isinstance(value, np.ndarray) else _memory(name, value) for name, value in given.items()
              if isinstance(value, np.ndarray) or of_cute(value)}
    cuda = _called(kernel, module, given)
    if len(cuda.launches) != 1:
        raise SimulationError(f"`{name_of(kernel)}` launches {len(cuda.launches)} kernels: ptxkit proves functions with one launch")
    (launched,) = cuda.launches
    if 0 in launched.grid:
        raise SimulationError(f"`{name_of(kernel)}` launches a grid of {' x '.join(map(str, launched.grid))} CTAs with these arguments: "
                              f"{', '.join(f'{name} is {array.shape}' for name, array in arrays.items())}")
    name = cuda.kernels[launched.kernel - 1]
    function = entry_of(module, name)
    values = tuple(_parameter(variable, data, arrays, cuda.maps) for variable, data in zip(function.parameters, cuda.contents, strict=True))
    cluster = launched.cluster if launched.cluster not in (None, (1, 1, 1)) else None
    return Launch(function.name, module, launched.grid, values, launched.block, cluster, launched.smem, arrays,
                  f"CuTe DSL {version_of('nvidia-cutlass-dsl')}", text,
                  names=tuple(_named(variable.name, value, arrays) for variable, value in zip(function.parameters, values, strict=True)))


def _named(parameter: str, value: Any, arrays: Mapping[str, Any]) -> str:
    """What messages call a parameter: the only array in it, else as PTX does."""
    parts = [part for _, part, _ in value.parts()] if isinstance(value, Struct) else [value]
    inside = [part.array if isinstance(part, TensorMap) else part for part in parts]
    return next((name for name, array in arrays.items() if len(inside) == 1 and inside[0] is array), parameter)


def _memory(name: str, tensor: Any) -> Any:
    """The elements of a tensor of CuTe's run time, as bits: from its address, shape and strides."""
    address = ctypes.c_uint64.from_address(tensor.__c_pointers__()[0]).value
    bits = tensor.element_type.width
    if bits % 8:
        raise SimulationError(f"`{name}` is a tensor of {tensor.element_type}: the CPU device has elements of whole bytes")
    dtype: np.dtype[Any] = np.dtype(f"u{bits // 8}")
    shape, strides = tuple(map(int, tensor.shape)), tuple(int(stride) * dtype.itemsize for stride in tensor.stride)
    size = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.ndarray(shape, dtype, np.ctypeslib.as_array(memory), strides=strides)


def _called(kernel: Any, module: tree.Module, given: Mapping[str, Any]) -> Cuda:
    """What the host function asks of CUDA when it is called."""
    from cutlass._mlir.execution_engine import ExecutionEngine  # pyright: ignore[reportMissingImports]

    entries = [function for function in module.functions if function.kind == "entry"]
    cuda = Cuda(sizes={entry.name: [extent(parameter)[0] for parameter in entry.parameters] for entry in entries})
    engine = ExecutionEngine(kernel.ir_module, 0, [])
    kept = []
    for name, count in _declared(kernel.ir_module):
        answer = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_uint64] * count)(cuda.function(name))
        kept.append(answer)
        engine.raw_register_runtime(name, ctypes.cast(answer, ctypes.c_void_p))
    result, library = ctypes.c_int32(0), ctypes.c_uint64(0)
    pointer = ctypes.c_void_p(ctypes.addressof(library))
    _call(engine.raw_lookup("cuda_load"), ctypes.addressof(pointer), ctypes.addressof(result))
    try:
        placed = as_cute_takes_them(kernel, given)
        pointers, alive = kernel.generate_execution_args(*placed.args, **placed.kwargs)
    except Exception as error:
        raise SimulationError(f"CuTe DSL does not take the arguments of `{name_of(kernel)}`: {' '.join(str(error).split())}") from error
    _call(engine.raw_lookup(f"_mlir_ciface_{kernel.function_name}"), *map(_address, pointers), ctypes.addressof(result))
    del alive, kept
    if result.value:
        raise SimulationError(f"`{name_of(kernel)}` ends with CUDA error {result.value}")
    return cuda


def _call(function: int, *addresses: int) -> None:
    """Call a function of the engine, which takes the addresses of its arguments and of its result."""
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)((ctypes.c_void_p * len(addresses))(*addresses))


def _declared(module: Any) -> Iterator[tuple[str, int]]:
    """The functions that the host code calls and does not define, with the number of their parameters."""
    for operation in module.body.operations:
        if operation.operation.name == "llvm.func" and not len(operation.regions[0].blocks):
            name = operation.attributes["sym_name"].value
            inputs = str(operation.attributes["function_type"]).partition("(")[2].rpartition(")")[0]
            if name.startswith("_cu"):
                yield name, inputs.count(",") + 1 if inputs else 0


def _address(pointer: Any) -> int:
    return pointer if isinstance(pointer, int) else int(ctypes.cast(pointer, ctypes.c_void_p).value or 0)


def _parameter(variable: tree.Variable, data: bytes, arrays: Mapping[str, Any], maps: Sequence[tuple[int, ...]]) -> Any:
    """A number, an array, or a struct with the arrays and tensor maps that it points to or holds."""
    if variable.shape:
        return _struct(data, arrays, maps)
    found = _pointed(int.from_bytes(data, "little"), arrays) if len(data) == 8 else None
    if found is not None:
        array, offset = found
        whole = storage(array)
        return whole[array.ctypes.data - whole.ctypes.data + offset:] if offset else array
    kind = {"f32": "<f", "f64": "<d"}.get(variable.type)
    return struct.unpack(kind, data)[0] if kind else int.from_bytes(data, "little")


def _struct(data: bytes, arrays: Mapping[str, Any], maps: Sequence[tuple[int, ...]]) -> Struct:
    inside: dict[int | str, Any] = {}
    at = 0
    while at + 8 <= len(data):
        address = int.from_bytes(data[at:at + 8], "little")
        if data[at:at + 120] == _MARK:
            inside[at] = _map(maps[int.from_bytes(data[at + 120:at + 128], "little")], arrays)
            at += 128
        elif (found := _pointed(address, arrays)) is not None and (encoded := _encoded(data, at)) is not None:
            inside[at] = _of_encoded(encoded, *found)
            at += 128
        else:
            if found is not None:
                inside[at] = found
            at += 8
    return Struct(data, inside)


def _encoded(data: bytes, at: int) -> Encoded | None:
    """The tensor map at an offset of a parameter; CuTe DSL encodes them itself. None where there is none."""
    return decoded(data[at:at + 128]) if at % 64 == 0 and at + 128 <= len(data) else None


def _of_encoded(encoded: Encoded, array: Any, offset: int) -> TensorMap:
    size = array.dtype.itemsize
    return TensorMap(array, box=encoded.box[::-1], swizzle=encoded.swizzle, dtype=encoded.type, shape=encoded.dims[::-1],
                     strides=(*(stride // size for stride in encoded.strides[::-1]), 1), offset=offset)


def _pointed(address: int, arrays: Mapping[str, Any]) -> tuple[Any, int] | None:
    for array in arrays.values():
        start = array.ctypes.data
        if start <= address < start + max(array.nbytes, 1):
            return array, address - start
    return None


def _map(fields: tuple[int, ...], arrays: Mapping[str, Any]) -> TensorMap:
    """The tensor map of the fields that were given to be encoded."""
    kind, address, *rest, interleave, swizzle, fill = fields
    rank = (len(rest) + 1) // 4
    dims, strides, box, steps = rest[:rank], rest[rank:2 * rank - 1], rest[2 * rank - 1:3 * rank - 1], rest[3 * rank - 1:]
    found = _pointed(address, arrays)
    if found is None:
        raise SimulationError(f"a tensor map begins at {address:#x}, where no argument's array lies")
    array, offset = found
    dtype = HOST_TYPES[kind].partition(".")[0]
    size = np.dtype(array.dtype).itemsize
    return TensorMap(array, box=tuple(box[::-1]), swizzle=(0, 32, 64, 128)[swizzle], interleave=(0, 16, 32)[interleave],
                     element_strides=tuple(steps[::-1]), fill="nan" if fill else "zeros", dtype=dtype, shape=tuple(dims[::-1]),
                     strides=(*(stride // size for stride in strides[::-1]), 1), offset=offset)
