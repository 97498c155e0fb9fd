"""The CUDA driver: its presence, devices and memory, and loading whole modules with their log.

PTX is loaded as one text by `cuLibraryLoadData`. `link` is only for modules without setmaxnreg: a linker compiles relocatably, and ptxas
then drops setmaxnreg.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import AssembleError, Finding, LaunchError, NoDriverError, Position, PtxkitError
from ..files import encoded
from ..sass import hints
from ..sass.cubin import require_whole
from .diagnostics import findings, resources

_LOG = logging.getLogger("ptxkit")
_LOG_BYTES = 1 << 16
_abandoned: set[int] = set()    # devices that a launch of this process does not let go
_TARGET = re.compile(r"^[ \t]*\.target\s+(sm_\d+[af]?)", re.M)


@functools.cache
def _api() -> Any:
    """`cuda.bindings.driver` after cuInit. Raises NoDriverError before any part of cuda.core is used."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError as error:
        raise NoDriverError("cuda-python is not installed (`pip install 'cuda-python>=12.9,<14'`; there is none for macOS): "
                            "kernels can be written, checked and assembled, but not run") from error
    try:
        load_nvidia_dynamic_lib("cuda")
    except Exception as error:  # the class differs between versions of pathfinder
        raise NoDriverError("no NVIDIA driver was found (libcuda does not load): install the display driver, or pass the GPU to the "
                            "container. Writing, checking and assembling kernels need none") from error
    driver = bindings()
    status, = driver.cuInit(0)
    if int(status) != 0:
        raise NoDriverError(f"the NVIDIA driver does not start: {describe(status, driver)}. "
                            "`nvidia-smi` tells more; CUDA_VISIBLE_DEVICES may hide every GPU")
    return driver


def bindings() -> Any:
    """The module `cuda.bindings.driver`, whose enumerations and structures need no driver."""
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module without a stub

    return driver


def probe() -> None:
    """Raise NoDriverError, with advice, unless there is a driver with at least one GPU."""
    if device_count() == 0:
        raise NoDriverError("the NVIDIA driver sees no GPU: CUDA_VISIBLE_DEVICES may hide every one of them")


def available(target: str | None = None) -> bool:
    """Whether this process can launch a kernel (for a `target` such as "sm_90a") on the current device."""
    try:
        probe()
        if target is not None:
            require_target(target, current_device())
    except (NoDriverError, LaunchError):
        return False
    return True


def describe(status: Any, api: Any = None) -> str:
    """The name of a CUresult and the driver's description."""
    api = api or _api()
    status = api.CUresult(int(status))
    _, sentence = api.cuGetErrorString(status)
    return f"{status.name} ({sentence.decode()})" if sentence else str(status.name)


def call(name: str, *arguments: Any) -> Any:
    """Call a driver function by name. Returns its result, or a tuple of results. Raises LaunchError for any status but success."""
    api = _api()
    status, *results = getattr(api, name)(*arguments)
    if int(status) != 0:
        raise LaunchError(f"{name}: {describe(status, api)}")
    return results[0] if len(results) == 1 else tuple(results)


def driver_version() -> tuple[int, int]:
    """The CUDA version that the driver implements."""
    version = call("cuDriverGetVersion")
    return version // 1000, version % 1000 // 10


# --------------------------------------------------------------------------------------------------- devices


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. Sizes are in bytes. `shared_per_block` is the largest size that a CTA may ask for. `clock_mhz`: the highest clock of the SMs;
    `memory_gbs`: GB/s of the memory at its highest clock; 0 where the driver does not say."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_per_block: int
    shared_per_multiprocessor: int
    registers_per_multiprocessor: int
    l2_bytes: int
    memory_bytes: int
    clock_mhz: float = 0.0
    memory_gbs: float = 0.0


@functools.cache
def device_count() -> int:
    """The number of GPUs that this process may use."""
    status, count = _api().cuDeviceGetCount()
    return int(count) if int(status) == 0 else 0


@functools.cache
def device(ordinal: int) -> Device:
    """The driver's description of one GPU."""
    probe()
    if not 0 <= ordinal < device_count():
        raise LaunchError(f"there is no CUDA device {ordinal}: this process sees {device_count()}, counted from 0")
    handle = call("cuDeviceGet", ordinal)
    kinds = _api().CUdevice_attribute

    def attribute(word: str) -> int:
        return int(call("cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{word}"), handle))

    def said(word: str) -> int:
        try:
            return attribute(word)
        except (LaunchError, AttributeError):       # what a driver no longer tells
            return 0

    return Device(
        ordinal,
        call("cuDeviceGetName", 256, handle).split(b"\0")[0].decode(),
        (attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        attribute("MULTIPROCESSOR_COUNT"),
        attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        attribute("L2_CACHE_SIZE"),
        int(call("cuDeviceTotalMem", handle)),
        said("CLOCK_RATE") / 1e3,
        2 * said("MEMORY_CLOCK_RATE") * said("GLOBAL_MEMORY_BUS_WIDTH") / 8e6,
    )


def current_device() -> int:
    """The ordinal of the current context's device; 0 if this thread has no context."""
    status, handle = _api().cuCtxGetDevice()
    return int(handle) if int(status) == 0 else 0


@functools.cache
def _primary_context(ordinal: int) -> Any:
    """The device's primary context, retained for the life of the process. torch, CuPy and the run-time API share it."""
    device(ordinal)
    return call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal))


@contextmanager
def on(ordinal: int) -> Iterator[None]:
    """Run the block with a current context of that device: the thread's own if it belongs to the device, else the primary one."""
    status, handle = _api().cuCtxGetDevice()
    if int(status) == 0 and int(handle) == ordinal:
        yield
        return
    call("cuCtxPushCurrent", _primary_context(ordinal))
    try:
        yield
    finally:
        call("cuCtxPopCurrent")


def require_target(target: str, ordinal: int) -> None:
    """Raise LaunchError unless code for `target` ("sm_90a", "sm_90") runs on the device.

    An `a` target runs on exactly that compute capability, an `f` target on its family, a plain one on that and later ones.
    """
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", target)
    if found is None:
        raise LaunchError(f"{target!r} is not a target such as 'sm_90a'")
    wanted, suffix = (int(found[1]), int(found[2])), found[3]
    this = device(ordinal)
    if suffix == "a":
        fits = this.capability == wanted
    else:
        fits = this.capability >= wanted and (suffix == "" or this.capability[0] == wanted[0])
    if not fits:
        has = ".".join(map(str, this.capability))
        needs = f"exactly {found[1]}.{found[2]}" if suffix == "a" else f"{found[1]}.{found[2]} or later"
        raise LaunchError(f"the kernel's target is {target}, which needs compute capability {needs}; device {ordinal} ({this.name}) "
                          f"has {has}: launch on another device, or give the kernel another target")


# --------------------------------------------------------------------------------------------------- memory


def allocate(size: int, ordinal: int) -> int:
    """Allocate at least `size` bytes of device memory, aligned to 256. Returns the address. `free` releases it."""
    with on(ordinal):
        return int(call("cuMemAlloc", max(size, 1)))


def allocate_cleared(size: int, ordinal: int) -> int:
    """As `allocate`, with memory full of zeros. It works while this thread captures a stream, and the capture does not record it."""
    with on(ordinal), beside_captures():
        made = allocate(size, ordinal)
        aside = new_stream()
        call("cuMemsetD8Async", made, 0, size, aside)
        call("cuStreamSynchronize", aside)
        call("cuStreamDestroy", aside)
    return made


@contextmanager
def beside_captures() -> Iterator[None]:
    """In the block this thread may allocate and wait while a stream is captured, here or in another thread; no capture records it."""
    mode = call("cuThreadExchangeStreamCaptureMode", _api().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", mode)


def new_stream() -> Any:
    """A stream of the current context that waits for no other."""
    return call("cuStreamCreate", int(_api().CUstream_flags.CU_STREAM_NON_BLOCKING))


def capturing(stream: int, ordinal: int) -> bool:
    """Whether work on that stream is being captured into a graph. What the driver does not answer is taken for yes: it is the legacy
    stream while another one is captured, or a capture that has failed."""
    with on(ordinal):
        status, *mode = _api().cuStreamIsCapturing(stream)
    return int(status) != 0 or int(mode[0]) != 0


def passed(event: Any) -> bool:
    """Whether the device has passed an event, without waiting for it. Raises LaunchError after a fault."""
    status, = _api().cuEventQuery(event)
    if int(status) == int(bindings().CUresult.CUDA_ERROR_NOT_READY):
        return False
    if int(status) != 0:
        raise LaunchError(f"cuEventQuery: {describe(status)}")
    return True


def abandon(ordinal: int) -> None:
    """A launch on the device does not end. To free memory would wait for it, so the end of the process frees what there is."""
    _abandoned.add(ordinal)


def free(address: int, ordinal: int) -> None:
    """Release memory from `allocate`."""
    if ordinal in _abandoned:
        return
    with on(ordinal):
        call("cuMemFree", address)


def copy_to_device(address: int, source: int, size: int, ordinal: int) -> None:
    """Copy host memory at `source` to the device. Returns after the copy is complete."""
    if size:
        with on(ordinal):
            call("cuMemcpyHtoD", address, source, size)


def copy_to_host(target: int, address: int, size: int, ordinal: int) -> None:
    """Copy device memory to the host after all work on blocking streams. Returns after the copy is complete."""
    if size:
        with on(ordinal):
            call("cuMemcpyDtoH", target, address, size)


def device_of(address: int) -> int:
    """The ordinal of the device whose memory holds that address."""
    kind = _api().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, ordinal = _api().cuPointerGetAttribute(kind, address)
    if int(status) != 0:
        raise LaunchError(f"{address:#x} is not an address of device memory: {describe(status)}")
    return int(ordinal)


def synchronize(ordinal: int | None = None) -> None:
    """Wait for all work on the device. A fault in an earlier kernel appears here as a LaunchError."""
    with on(current_device() if ordinal is None else ordinal):
        call("cuCtxSynchronize")


# --------------------------------------------------------------------------------------------------- modules


@dataclass(frozen=True, slots=True)
class Attributes:
    """The driver's attributes of a loaded kernel: registers and local bytes per thread, bytes of static shared and constant memory."""

    registers: int
    local_bytes: int
    shared_bytes: int
    constant_bytes: int
    max_threads: int


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """An entry of a loaded library. It serves every device of the process."""

    name: str
    handle: int

    def attributes(self, ordinal: int) -> Attributes:
        """The driver's attributes of the kernel on that device."""
        kinds, handle = _api().CUfunction_attribute, call("cuDeviceGet", ordinal)

        def attribute(word: str) -> int:
            return int(call("cuKernelGetAttribute", getattr(kinds, f"CU_FUNC_ATTRIBUTE_{word}"), self._kernel(), handle))

        with on(ordinal):
            return Attributes(attribute("NUM_REGS"), attribute("LOCAL_SIZE_BYTES"), attribute("SHARED_SIZE_BYTES"),
                              attribute("CONST_SIZE_BYTES"), attribute("MAX_THREADS_PER_BLOCK"))

    def allow_shared(self, size: int, ordinal: int) -> None:
        """Allow launches on that device to have `size` bytes of dynamic shared memory."""
        this = device(ordinal)
        static = self.attributes(ordinal).shared_bytes
        if size + static > this.shared_per_block:
            raise LaunchError(f"{self.name} asks for {size} bytes of dynamic and {static} of static shared memory a CTA; "
                              f"device {ordinal} ({this.name}) gives at most {this.shared_per_block} in all")
        self._set("MAX_DYNAMIC_SHARED_SIZE_BYTES", size, ordinal)

    def allow_cluster(self, size: int, ordinal: int) -> None:
        """Allow launches on that device with clusters of more than 8 CTAs, the portable size."""
        if size > 8:
            self._set("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1, ordinal)

    def parameters(self) -> tuple[tuple[int, int], ...]:
        """(offset, size) in bytes of each parameter, as the loaded code declares them."""
        found: list[tuple[int, int]] = []
        while True:
            status, offset, size = _api().cuKernelGetParamInfo(self._kernel(), len(found))
            if int(status) != 0:
                return tuple(found)
            found.append((int(offset), int(size)))

    def max_clusters(self, ordinal: int, *, block: tuple[int, int, int], cluster: tuple[int, int, int], shared: int = 0) -> int:
        """The number of clusters of that shape that the device holds at once: the size of a persistent grid."""
        api = _api()
        dimension = api.CUlaunchAttribute()
        dimension.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimension.value.clusterDim.x, dimension.value.clusterDim.y, dimension.value.clusterDim.z = cluster
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = cluster
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared
        config.attrs, config.numAttrs = [dimension], 1
        with on(ordinal):
            return int(call("cuOccupancyMaxActiveClusters", api.CUfunction(self.handle), config))

    def _set(self, word: str, value: int, ordinal: int) -> None:
        kind = getattr(_api().CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{word}")
        with on(ordinal):
            call("cuKernelSetAttribute", kind, value, self._kernel(), call("cuDeviceGet", ordinal))

    def _kernel(self) -> Any:
        return _api().CUkernel(self.handle)


class Library:
    """A loaded module, with the log of the driver's assembler. It stays loaded, since a captured graph may hold its kernels."""

    def __init__(self, handle: Any, log: str, found: tuple[Finding, ...]) -> None:
        self._handle = handle
        self.log = log
        self.findings = found
        self.resources = resources(log)

    def kernel(self, name: str) -> LoadedKernel:
        """The entry with that name, loaded on the current device. Raises LaunchError if there is none."""
        status, handle = _api().cuLibraryGetKernel(self._handle, name.encode())
        if int(status) != 0:
            raise LaunchError(f"the loaded module has no entry {name!r} ({describe(status)}): it has {', '.join(self.names()) or 'none'}")
        return LoadedKernel(name, int(handle))

    def names(self) -> tuple[str, ...]:
        """The entries' names."""
        api = _api()
        count = int(call("cuLibraryGetKernelCount", self._handle))
        handles = call("cuLibraryEnumerateKernels", count, self._handle) if count else ()
        return tuple(call("cuKernelGetName", api.CUkernel(int(handle))).decode() for handle in handles)


def load(code: str | bytes, *, lines: Mapping[int, Position] | None = None, ordinal: int | None = None) -> Library:
    """Load PTX text or a cubin as a whole. Raises AssembleError with the driver's log at Python lines, LaunchError for a wrong device.

    A truncated cubin is an AssembleError too: the driver does not get the number of bytes and would read past the end. `lines` gives the
    source position of a line of the PTX text. The library serves every device of the process. `ordinal` is the device whose architecture
    is checked, and for which text is assembled at once. A text from the driver's own cache has no remarks.
    """
    if isinstance(code, bytes):
        try:
            require_whole(code, "the code to load")
        except PtxkitError as error:
            raise AssembleError("", summary=str(error)) from None
    probe()
    ordinal = current_device() if ordinal is None else ordinal
    text = hints.take(code)[0] if isinstance(code, str) else ""
    target = _TARGET.search(text)
    if target is not None:
        require_target(target.group(1), ordinal)
    data = encoded(text) + b"\0" if isinstance(code, str) else code
    api = _api()
    option = api.CUjit_option
    error_log, info_log = bytearray(_LOG_BYTES), bytearray(_LOG_BYTES)
    names = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, option.CU_JIT_INFO_LOG_BUFFER,
             option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, option.CU_JIT_LOG_VERBOSE]
    values = [error_log, _LOG_BYTES, info_log, _LOG_BYTES, 1]
    with on(ordinal):
        status, handle = api.cuLibraryLoadData(data, names, values, len(names), [], [], 0)
        if int(status) == 0 and text:  # a text that does not assemble is loaded with a log and without entries
            status, _ = api.cuLibraryGetModule(handle)
    log = "\n".join(part for part in (_text(error_log), _text(info_log)) if part)
    if int(status) != 0:
        raise _refused(status, log, text, lines, ordinal)
    found = findings(log, text, lines)
    for finding in found:
        _LOG.info("%s", finding)
    return Library(handle, log, found)


def link(texts: Sequence[str], target: str, ordinal: int | None = None) -> bytes:
    """Link several PTX texts to a cubin by the driver's linker, which drops setmaxnreg. See `ptxkit.link`. Raises AssembleError."""
    probe()
    ordinal = current_device() if ordinal is None else ordinal
    require_target(target, ordinal)
    api = _api()
    log = bytearray(_LOG_BYTES)
    options = [api.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, api.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    with on(ordinal):
        state = call("cuLinkCreate", len(options), options, [log, _LOG_BYTES])
        try:
            for index, text in enumerate(texts):
                data = encoded(hints.take(text)[0]) + b"\0"
                name = f"module{index}".encode()
                status = api.cuLinkAddData(state, api.CUjitInputType.CU_JIT_INPUT_PTX, data, len(data), name, 0, [], [])[0]
                if int(status) != 0:
                    raise _refused(status, _text(log), text, None, ordinal)
            status, *made = api.cuLinkComplete(state)
            if int(status) != 0:
                raise _refused(status, _text(log), "", None, ordinal)
            address, size = made
            return ctypes.string_at(int(address), int(size))
        finally:
            call("cuLinkDestroy", state)


def _text(buffer: bytearray) -> str:
    return buffer.partition(b"\0")[0].decode(errors="replace")


def _refused(status: Any, log: str, text: str, lines: Mapping[int, Position] | None, ordinal: int) -> Exception:
    name = _api().CUresult(int(status)).name
    this = device(ordinal)
    if name == "CUDA_ERROR_NO_BINARY_FOR_GPU":
        return LaunchError(f"the code was assembled for another GPU than device {ordinal} ({this.name}, compute capability "
                           f"{'.'.join(map(str, this.capability))}): assemble it for that one, or launch on another device")
    found = tuple(finding for finding in findings(log, text, lines) if finding.severity == "error")
    summary = f"the driver refused this {'PTX' if text else 'cubin'}: {describe(status)}"
    if name == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION":
        summary += f"; the driver is for CUDA {'.'.join(map(str, driver_version()))}: install a newer one, or assemble with a ptxas"
    return AssembleError(log, found, summary=summary)
