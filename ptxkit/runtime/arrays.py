"""Device arrays for programs that have only NumPy, and the properties of any array by protocol, without importing its library."""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dsl.arguments import WORDS, native
from ..errors import LaunchError
from ..types import TYPES
from . import driver

if TYPE_CHECKING:
    import numpy as np

NUMPY_NAMES = {word: name for name, word in WORDS.items() if name != "bool"}
_TYPESTRS = {word: f"<{kind}{size}" for kind, sizes in {"u": (1, 2, 4, 8), "i": (1, 2, 4, 8), "f": (2, 4, 8)}.items() for size in sizes
             for word in ({"i": "s"}.get(kind, kind) + str(8 * size),)}
_WORDS = {typestr.lstrip("<"): word for word, typestr in _TYPESTRS.items()} | {"b1": "u8"}


class ArrayView(NamedTuple):
    """The properties of an array that a launch needs. `strides` count elements. `dtype` is ptxkit's name of the element type ("bf16").

    `owner` is the library that allocates and that is asked for a stream: "torch", "cupy", "jax", "ptxkit", "numba" or "other".
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    owner: str


class DeviceArray:
    """A row-major array in device memory. It is freed with its last reference.

    `numpy()` waits for the legacy stream and all blocking streams and copies back; the caller must wait for other streams. The array has
    `__cuda_array_interface__` if that knows the element type (not bf16 and fp8).
    """

    __slots__ = ("__weakref__", "device", "dtype", "pointer", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], dtype: str, device: int | None = None) -> None:
        if dtype not in NUMPY_NAMES:
            raise LaunchError(f"{dtype!r} is not the element type of a device array: it is one of {', '.join(NUMPY_NAMES)}")
        self.device = driver.current_device() if device is None else device
        self.shape = tuple(shape)
        self.strides = contiguous_strides(self.shape)
        self.dtype = dtype
        self.pointer = driver.allocate(self.nbytes, self.device)
        weakref.finalize(self, driver.free, self.pointer, self.device).atexit = False

    @property
    def size(self) -> int:
        """Elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        return self.size * TYPES[self.dtype].bits // 8

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype not in _TYPESTRS:
            raise AttributeError(f"__cuda_array_interface__ has no name for {self.dtype}")
        return {"shape": self.shape, "typestr": _TYPESTRS[self.dtype], "data": (self.pointer, False), "strides": None, "stream": 1,
                "version": 3}

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host. bf16 and fp8 become ml_dtypes' types; without that package, unsigned integers of their width."""
        import numpy as np

        host = np.empty(self.shape, _host_dtype(self.dtype))
        driver.copy_to_host(host.ctypes.data, self.pointer, self.nbytes, self.device)
        return host

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}, shape={self.shape}, device={self.device})"


def device_array(array: np.ndarray[Any, Any], dtype: str | None = None, *, device: int | None = None) -> DeviceArray:
    """A NumPy array copied to the device. `dtype` reads its bits as another type of the same width: `device_array(u16, "bf16")`."""
    import numpy as np

    array = np.ascontiguousarray(array)
    native("array", array.dtype)
    word = dtype or WORDS.get(array.dtype.name)
    if word is None or word not in TYPES:
        raise LaunchError(f"an array of {dtype or array.dtype} cannot be copied to the device: its type is one of {', '.join(WORDS)}")
    if TYPES[word].bits != 8 * array.dtype.itemsize:
        bits = 8 * array.dtype.itemsize
        raise LaunchError(f"{array.dtype} has {bits} bits an element and {word} {TYPES[word].bits}: convert the array first")
    made = DeviceArray(array.shape, word, device)
    driver.copy_to_device(made.pointer, array.ctypes.data, made.nbytes, made.device)
    return made


def _host_dtype(word: str) -> Any:
    import numpy as np

    name = NUMPY_NAMES[word]
    if hasattr(np, name):
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(f"uint{TYPES[word].bits}")
    return np.dtype(getattr(ml_dtypes, name))


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


# --------------------------------------------------------------------------------------------------- by protocol


def marks(*arrays: Any) -> tuple[Any, ...] | None:
    """What tells these arrays from all others: address, shape, strides and type, in the words of their library, which it says sooner than
    those of a view. An address is one device's. None stands for an array that is not there; None is returned for arrays of other
    libraries than torch and this one."""
    found: list[Any] = []
    for array in arrays:
        kind = type(array)
        if kind in _TENSORS:
            try:
                found += (array.data_ptr(), array.shape, array.stride(), array.dtype)
            except RuntimeError:                # a sparse tensor has no address: `view` says so
                return None
        elif kind is DeviceArray:
            found += (array.pointer, array.shape, array.strides, array.dtype)
        elif array is None:
            found.append(None)
        else:
            return None
    return tuple(found)


def marks_of_three(a: Any, b: Any, out: Any) -> tuple[Any, ...] | None:
    """`marks` of three arrays: the warm path of a product."""
    kind = type(a)
    if kind in _TENSORS and type(b) in _TENSORS and type(out) in _TENSORS:
        try:
            return (a.data_ptr(), a.shape, a.stride(), a.dtype, b.data_ptr(), b.shape, b.stride(), b.dtype,
                    out.data_ptr(), out.shape, out.stride(), out.dtype)
        except RuntimeError:                    # a sparse tensor has no address: `view` says so
            return None
    if kind is DeviceArray and type(b) is DeviceArray and type(out) is DeviceArray:
        return (a.pointer, a.shape, a.strides, a.dtype, b.pointer, b.shape, b.strides, b.dtype,
                out.pointer, out.shape, out.strides, out.dtype)
    return None


def are_tensors(a: Any, b: Any) -> bool:
    """Whether both are plain tensors of torch, which has been seen."""
    return type(a) in _TENSORS and type(b) in _TENSORS


_TENSORS: set[type] = set()
"""torch.Tensor and torch.nn.Parameter, once a tensor has been seen: of other subclasses a view decides."""


def view(array: Any, name: str = "argument") -> ArrayView:
    """The properties of `array`. Raises LaunchError, with the array as `name`, unless it is on a CUDA device."""
    kind = type(array)
    if kind is DeviceArray:
        return ArrayView(array.pointer, array.shape, array.strides, array.dtype, array.device, "ptxkit")
    if kind is ArrayView:
        return array  # type: ignore[no-any-return]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _view_torch(array, torch, name)
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        word = WORDS.get(array.dtype.name)
        if word is None:
            raise _unknown_type(name, array.dtype)
        size = array.dtype.itemsize
        return ArrayView(array.data.ptr, array.shape, tuple(s // size for s in array.strides), word, array.device.id, "cupy")
    owner = kind.__module__.partition(".")[0]
    owner = {"jaxlib": "jax"}.get(owner, owner if owner in ("jax", "numba") else "other")
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _view_interface(interface, name, owner)
    if hasattr(array, "__dlpack__"):
        return _view_dlpack(array, name, owner)
    raise LaunchError(f"{name} is {_a(array)}, not an array on a CUDA device: "
                      "pass a torch or CuPy array, or ptxkit.device_array(numpy_array)")


def _view_torch(tensor: Any, torch: Any, name: str) -> ArrayView:
    device: int = tensor.get_device()
    if device < 0:
        raise LaunchError(f"{name} is a torch tensor on {tensor.device}: " + (
            "it has no memory; make it anew on the GPU" if str(tensor.device) == "meta" else "copy it to the GPU with .cuda()"))
    if not _TORCH:
        _TENSORS.update(kind for kind in (torch.Tensor, getattr(getattr(torch, "nn", None), "Parameter", None)) if kind is not None)
        _TORCH.update({getattr(torch, attribute): word for attribute, word in WORDS.items() if hasattr(torch, attribute)})
    word = _TORCH.get(tensor.dtype)
    if word is None:
        raise _unknown_type(name, tensor.dtype)
    if tensor.is_neg():
        raise LaunchError(f"{name} is a view whose memory holds its negative, as the imaginary part of a conjugate: pass "
                          f"{name}.resolve_neg()")
    kind = type(tensor)
    if kind not in _TENSORS and getattr(kind, "__torch_dispatch__", None) is not getattr(torch.Tensor, "__torch_dispatch__", None):
        raise LaunchError(f"{name} is a {kind.__name__}, a tensor with operators of its own: pass the plain tensor that it stands for; in "
                          "a graph that torch compiles call the operators torch.ops.ptxkit (import ptxkit.torch)")
    try:
        return ArrayView(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), word, device, "torch")
    except RuntimeError:
        raise LaunchError(f"{name} is a torch tensor without memory of its own ({tensor.layout}): pass a dense one, {name}.to_dense() of a "
                          "sparse one") from None


_TORCH: dict[Any, str] = {}


def _view_interface(interface: dict[str, Any], name: str, owner: str) -> ArrayView:
    typestr = interface["typestr"]
    word = _WORDS.get(typestr.lstrip("<|="))
    if word is None:
        raise _unknown_type(name, f"the type that __cuda_array_interface__ calls {typestr!r}")
    shape, size = tuple(interface["shape"]), TYPES[word].bits // 8
    strides = interface.get("strides")
    elements = contiguous_strides(shape) if strides is None else tuple(s // size for s in strides)
    pointer = int(interface["data"][0])
    return ArrayView(pointer, shape, elements, word, driver.device_of(pointer) if pointer else driver.current_device(), owner)


class _Tensor(ctypes.Structure):
    """DLTensor, which is also the start of DLManagedTensor."""

    _fields_ = (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64))


_DLPACK_CUDA, _DLPACK_MANAGED = 2, 13
_DLPACK_KINDS = {0: "s", 1: "u", 2: "f", 4: "bf", 6: "u"}
_DLPACK_FLOAT8 = {10: "e4m3", 12: "e5m2"}
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _view_dlpack(array: Any, name: str, owner: str) -> ArrayView:
    """The properties by DLPack. The capsule is only read: `array` keeps the memory and must outlive the launch, as any argument."""
    where, device = array.__dlpack_device__()
    if int(where) not in (_DLPACK_CUDA, _DLPACK_MANAGED):
        raise LaunchError(f"{name} is {_a(array)} in host memory: copy it to the GPU, for NumPy with ptxkit.device_array({name})")
    capsule = array.__dlpack__() if owner == "jax" else array.__dlpack__(stream=-1)  # JAX takes no -1 ("do not synchronise")
    tensor = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    word = _DLPACK_FLOAT8.get(tensor.code, _DLPACK_KINDS.get(tensor.code, "?") + str(tensor.bits))
    if word not in TYPES or tensor.lanes != 1:
        raise _unknown_type(name, f"DLPack type code {tensor.code} of {tensor.bits} bits")
    shape = tuple(tensor.shape[:tensor.rank])
    strides = tuple(tensor.strides[:tensor.rank]) if tensor.strides else contiguous_strides(shape)
    return ArrayView((tensor.data or 0) + tensor.offset, shape, strides, word, int(device), owner)


def _unknown_type(name: str, dtype: Any) -> LaunchError:
    return LaunchError(f"{name} has elements of {dtype}, which no PTX type stands for: convert it to one of {', '.join(WORDS)}")


def _a(array: Any) -> str:
    kind = type(array)
    return f"a {kind.__name__}" if kind.__module__ == "builtins" else f"a {kind.__module__.partition('.')[0]} {kind.__name__}"
