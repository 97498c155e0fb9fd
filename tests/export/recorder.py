"""A driver that records launches: of an export's C code, through a stub libcuda, and of ptxkit itself. What both record must be equal."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ptxkit.cards import H200, Card
from ptxkit.gemm.tools.bench import stub
from ptxkit.runtime import launcher
from ptxkit.sass.cubin import read

CC = shutil.which("cc")
CXX = shutil.which("c++")
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
ADDRESS = slice(8, 16)
"""Of the array in a recorded tensor map."""

_I, _U, _P, _L = ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (_U,), "cuDriverGetVersion": (_P,), "cuGetErrorName": (_I, _P), "cuGetErrorString": (_I, _P), "cuCtxGetDevice": (_P,),
    "cuDeviceGetAttribute": (_P, _I, _I), "cuLibraryLoadData": (_P, _P, _P, _P, _U, _P, _P, _U),
    "cuLibraryGetKernel": (_P, _P, ctypes.c_char_p),
    "cuKernelSetAttribute": (_I, _I, _P, _I), "cuLaunchKernelEx": (_P, _P, _P, _P),
    "cuTensorMapEncodeTiled": (_P, _I, _U, *[_P] * 5, *[_I] * 4), "cuOccupancyMaxActiveClusters": (_P, _P, _P),
    "cuMemsetD8Async": (_L, ctypes.c_uint8, ctypes.c_size_t, _P), "cuTensorMapReplaceAddress": (_P, _P),
    "cuMemAlloc_v2": (_P, ctypes.c_size_t), "cuMemcpyHtoD_v2": (_L, _P, ctypes.c_size_t)}


class Launched(NamedTuple):
    """A launch as the driver saw it."""

    code: str
    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    attributes: tuple[tuple[int, bytes], ...]
    parameters: tuple[bytes, ...]


class _Config(ctypes.Structure):
    _fields_ = (("grid", _U * 3), ("block", _U * 3), ("shared", _U), ("stream", _P), ("attributes", _P), ("count", _U))


class Recorder:
    """What was asked of the driver, and its answers. `fails` maps a function to the CUresult that it returns."""

    def __init__(self, card: Card = H200) -> None:
        self.card, self.version, self.capability = card, 13000, (9, 0)
        self.fails: dict[str, int] = {}
        self.launches: list[Launched] = []
        self.allowed: list[tuple[str, int, int]] = []
        self.cleared: list[tuple[int, int, int]] = []
        self.memory: dict[int, bytes] = {}
        self._code: dict[int, bytes] = {}
        self._kernels: dict[int, tuple[str, str, tuple[int, ...]]] = {}
        self._words: list[Any] = []
        self.callbacks = {name: ctypes.CFUNCTYPE(_I, *types)(self._checked(name)) for name, types in FUNCTIONS.items()}

    def _checked(self, name: str) -> Callable[..., int]:
        def function(*arguments: Any) -> int:
            if name in self.fails:
                return self.fails[name]
            getattr(self, f"_{name}")(*arguments)
            return 0

        return function

    def _cuInit(self, flags: int) -> None: ...

    def _cuDriverGetVersion(self, place: int) -> None:
        _put(place, "i", self.version)

    def _cuGetErrorName(self, status: int, place: int) -> None:
        self._words.append(ctypes.create_string_buffer(f"CUDA_ERROR_{status}".encode()))
        _put(place, "Q", ctypes.addressof(self._words[-1]))

    def _cuGetErrorString(self, status: int, place: int) -> None:
        self._words.append(ctypes.create_string_buffer(f"words of {status}".encode()))
        _put(place, "Q", ctypes.addressof(self._words[-1]))

    def _cuCtxGetDevice(self, place: int) -> None:
        _put(place, "i", 0)

    def _cuDeviceGetAttribute(self, place: int, kind: int, device: int) -> None:
        known = {75: self.capability[0], 76: self.capability[1], 97: self.card.shared_bytes, 16: self.card.sms}
        _put(place, "i", known[kind])

    def _cuLibraryLoadData(self, place: int, code: int, *options: Any) -> None:
        _put(place, "Q", self.library(_elf(code)))

    @property
    def loads(self) -> int:
        """Libraries that were loaded."""
        return len(self._code)

    def library(self, code: bytes) -> int:
        self._code[handle := len(self._code) + 1] = code
        return handle

    def _cuLibraryGetKernel(self, place: int, library: int, name: bytes) -> None:
        _put(place, "Q", self.kernel(library, name))

    def kernel(self, library: int, name: bytes) -> int:
        code, entry = self._code[library], name.decode()
        self._kernels[handle := 1000 + len(self._kernels)] = (
            digest(code), entry, tuple(parameter.bytes for parameter in read(code).entries[entry].parameters))
        return handle

    def _cuKernelSetAttribute(self, kind: int, value: int, kernel: int, device: int) -> None:
        self.allowed.append((self._kernels[kernel][1], kind, value))

    def _cuLaunchKernelEx(self, config: int, kernel: int, arguments: int, extra: Any) -> None:
        assert not extra
        seen = _Config.from_address(config)
        attributes = tuple(sorted((struct.unpack("<I", ctypes.string_at(seen.attributes + 72 * index, 4))[0],
                                   ctypes.string_at(seen.attributes + 72 * index + 8, 64)) for index in range(seen.count)))
        code, entry, sizes = self._kernels[kernel]
        places = (ctypes.c_uint64 * len(sizes)).from_address(arguments) if sizes else ()
        parameters = tuple(ctypes.string_at(place, size) for place, size in zip(places, sizes, strict=True))
        assert all(place % 64 == 0 for place, size in zip(places, sizes, strict=True) if size == 128)
        self.launches.append(Launched(code, entry, tuple(seen.grid), tuple(seen.block), seen.shared, seen.stream or 0, attributes,
                                      parameters))

    def _cuTensorMapEncodeTiled(self, place: int, kind: int, rank: int, data: int, dims: int, strides: int, box: int, steps: int,
                                *modes: int) -> None:
        """The map has all that it was encoded from, in a form of our own."""
        longs = [*(ctypes.c_uint64 * rank).from_address(dims), *[0] * (5 - rank), *(ctypes.c_uint64 * (rank - 1)).from_address(strides),
                 *[0] * (5 - rank)]
        words = [*(_U * rank).from_address(box), *[0] * (5 - rank)]
        small = [*(_U * rank).from_address(steps), *[0] * (5 - rank)]
        made = struct.pack("<6B2xQ9Q5I5B", kind, rank, *modes, data or 0, *longs, *words, *small)
        assert place % 64 == 0
        ctypes.memmove(place, made.ljust(128, b"\0"), 128)

    def _cuTensorMapReplaceAddress(self, place: int, data: int) -> None:
        _put(place + ADDRESS.start, "Q", data or 0)

    def _cuOccupancyMaxActiveClusters(self, place: int, kernel: int, config: int) -> None:
        seen = _Config.from_address(config)
        size = 1
        for index in range(seen.count):
            if struct.unpack("<I", ctypes.string_at(seen.attributes + 72 * index, 4))[0] == 4:
                x, y, z = struct.unpack("<3I", ctypes.string_at(seen.attributes + 72 * index + 8, 12))
                size = x * y * z
        _put(place, "i", self.card.resident(size) // size)

    def _cuMemsetD8Async(self, place: int, value: int, size: int, stream: int) -> None:
        assert value == 0
        self.cleared.append((place, size, stream or 0))

    def _cuMemAlloc_v2(self, place: int, size: int) -> None:
        self.memory[address := 0x6000_0000_0000 + (len(self.memory) << 24)] = b""
        _put(place, "Q", address)

    def _cuMemcpyHtoD_v2(self, address: int, data: int, size: int) -> None:
        self.memory[address] = ctypes.string_at(data, size)

    @contextmanager
    def under_python(self) -> Iterator[None]:
        """Launches of ptxkit go to this recorder."""
        with stub.installed(self.card) as installed:
            installed.results |= {
                "cuLibraryLoadData": lambda code, *rest: (self.library(_whole(code)),),
                "cuLibraryGetKernel": lambda library, name: (self.kernel(library, name),),
                "cuKernelSetAttribute": lambda kind, value, kernel, device: self.allowed.append(
                    (self._kernels[int(kernel)][1], int(kind), value)) or (),
                "cuKernelGetAttribute": lambda *given: (0,)}
            before = launcher._entry
            launcher._entry = lambda name, version, prototype: prototype(ctypes.cast(self.callbacks[name], _P).value)  # type: ignore[assignment]
            try:
                yield
            finally:
                launcher._entry = before


CODE = (".text.", ".nv.constant", ".nv.shared.", ".nv.global")
"""Sections of what runs, as their names begin."""


def digest(code: bytes) -> str:
    """Of a cubin without its line table: an export has its own, a launch that of whatever text was assembled first, or none
    (`toolchain.assemble`)."""
    seen = read(code)
    found = hashlib.sha256(repr((seen.target, dict(seen.entries))).encode())
    for name, data in sorted(seen.sections.items()):
        if name.startswith(CODE):
            found.update(f"{name}\0{len(data)}\0".encode() + data)
    return found.hexdigest()


def _put(place: int, code: str, value: int) -> None:
    data = struct.pack(f"<{code}", value)
    ctypes.memmove(place, data, len(data))


def _elf(place: int) -> bytes:
    """The whole file of which the address is known: a cubin ends with its section or program headers."""
    head = ctypes.string_at(place, 64)
    phoff, shoff = struct.unpack_from("<QQ", head, 32)
    phsize, phnum, shsize, shnum = struct.unpack_from("<4H", head, 54)
    return ctypes.string_at(place, max(phoff + phsize * phnum, shoff + shsize * shnum))


def _whole(code: bytes) -> bytes:
    phoff, shoff = struct.unpack_from("<QQ", code, 32)
    phsize, phnum, shsize, shnum = struct.unpack_from("<4H", code, 54)
    assert len(code) == max(phoff + phsize * phnum, shoff + shsize * shnum)
    return code


def compiled(sources: Sequence[Path], made: Path, *flags: str, compiler: str | None = CC) -> Path:
    """What the C compiler makes of C files."""
    assert compiler is not None
    done = subprocess.run([compiler, *flags, "-o", str(made), *map(str, sources)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


def driver_library(folder: Path) -> Path:
    """The stub libcuda."""
    return compiled([Path(__file__).with_name("libcuda.c")], folder / "libcuda.so.1", "-shared", "-fPIC")


_attached: dict[Path, Recorder] = {}
"""The recorder that each stub calls, for as long as it may be called."""


def attach(recorder: Recorder, driver: Path) -> None:
    """What is asked of the stub is from now on asked of this recorder."""
    stubbed = ctypes.CDLL(str(driver))
    for place, name in enumerate(FUNCTIONS):
        stubbed.stub_set(place, recorder.callbacks[name])
    _attached[driver] = recorder


def loaded(source: Path, driver: Path, recorder: Recorder) -> ctypes.CDLL:
    """An export, compiled strictly, in this process, with the stub as its driver."""
    attach(recorder, driver)
    made = compiled([source], source.with_suffix(".so"), *STRICT, "-shared", "-fPIC", f'-DPTXKIT_LIBCUDA="{driver}"')
    return ctypes.CDLL(str(made))


def said(library: ctypes.CDLL, name: str) -> str:
    """The sentence on the last call."""
    function = getattr(library, f"{name}_error")
    function.restype = ctypes.c_char_p
    return str(function().decode())
