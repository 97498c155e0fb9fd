"""Arguments by protocol, on stand-ins: what an array says, whose stream, and each refusal's words."""

from __future__ import annotations

import builtins
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxkit.errors import AssembleError, LaunchError, NoDriverError
from ptxkit.runtime import arrays, compiled, driver, launch, toolchain
from ptxkit.runtime.arrays import ArrayView


class FakeDtype:
    """As torch's dtypes: an object known by its identity."""


class FakeTensor:
    """What `view` asks of a torch tensor."""

    def __init__(self, dtype: FakeDtype, shape: tuple[int, ...], device: int = 0) -> None:
        self.dtype = dtype
        self.shape = shape
        self.device = f"cuda:{device}" if device >= 0 else "cpu"
        self._device = device

    def get_device(self) -> int:
        return self._device

    def data_ptr(self) -> int:
        return 0x7000

    def is_neg(self) -> bool:
        return False

    def stride(self) -> tuple[int, ...]:
        return arrays.contiguous_strides(self.shape)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = types.ModuleType("torch")
    module.Tensor = FakeTensor
    for name in ("bfloat16", "float16", "float32", "float8_e4m3fn", "complex64"):
        setattr(module, name, FakeDtype())
    module._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 0xABC0 + device)
    module.empty = lambda shape, *, dtype, device: FakeTensor(dtype, shape, device)
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(arrays, "_TORCH", {})
    return module


class Interface:
    """An array of a library unknown to ptxkit, by `__cuda_array_interface__`."""

    def __init__(self, **fields: Any) -> None:
        self.__cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (0, False), "version": 3, **fields}


class Packed:
    """An array by DLPack that says it is on `device`; its bytes are NumPy's."""

    def __init__(self, array: np.ndarray[Any, Any], device: tuple[int, int]) -> None:
        self.array = array
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int) -> Any:
        assert stream == -1  # no synchronisation: the launch goes to the stream that the owner works on
        return self.array.__dlpack__()


def like(owner: str, *, shape: tuple[int, ...] = (4, 8), strides: tuple[int, ...] | None = None, dtype: str = "bf16", pointer: int = 0x1000,
         device: int = 0) -> ArrayView:
    return ArrayView(pointer, shape, arrays.contiguous_strides(shape) if strides is None else strides, dtype, device, owner)


def test_view_of_torch(torch: Any) -> None:
    seen = launch.view(FakeTensor(torch.bfloat16, (4, 8), 1))
    assert seen == ArrayView(0x7000, (4, 8), (8, 1), "bf16", 1, "torch")
    assert launch.view(FakeTensor(torch.float8_e4m3fn, (16,))).dtype == "e4m3"
    with pytest.raises(LaunchError, match=r"a is a torch tensor on cpu.*\.cuda\(\)"):
        launch.view(FakeTensor(torch.float32, (4,), -1), "a")
    with pytest.raises(LaunchError, match="a has elements of"):
        launch.view(FakeTensor(torch.complex64, (4,)), "a")


def test_view_of_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    class ndarray:
        data = types.SimpleNamespace(ptr=0x9000)
        shape, strides, dtype = (3, 5), (4, 12), np.dtype("float32")
        device = types.SimpleNamespace(id=2)

    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=ndarray))  # type: ignore[misc]
    assert launch.view(ndarray()) == ArrayView(0x9000, (3, 5), (1, 3), "f32", 2, "cupy")


def test_view_by_cuda_array_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "device_of", lambda address: 3)
    monkeypatch.setattr(driver, "current_device", lambda: 0)
    assert launch.view(Interface(data=(0x8000, False))) == ArrayView(0x8000, (2, 3), (3, 1), "f32", 3, "other")
    assert launch.view(Interface(data=(0x8000, False), strides=(4, 8))).strides == (1, 2)
    assert launch.view(Interface(shape=(0, 3))).device == 0
    with pytest.raises(LaunchError, match="calls '<c8'"):
        launch.view(Interface(typestr="<c8"))


def test_view_by_dlpack() -> None:
    array = np.arange(24, dtype=np.float16).reshape(4, 6)
    assert launch.view(Packed(array, (2, 1))) == ArrayView(array.ctypes.data, (4, 6), (6, 1), "f16", 1, "other")
    assert launch.view(Packed(array.T, (2, 0))).strides == (1, 6)
    assert launch.view(Packed(array[1:], (13, 0))).pointer == array.ctypes.data + 12
    with pytest.raises(LaunchError, match="DLPack type code"):
        launch.view(Packed(np.zeros(3, np.complex64), (2, 0)))


@pytest.mark.parametrize(("array", "says"), [
    (np.zeros(3), r"a is a numpy ndarray in host memory.*ptxkit\.device_array\(a\)"),
    ([1, 2], r"a is a list, not an array.*ptxkit\.device_array"),
    (3, "a is a int, not an array"),
])
def test_what_is_not_on_a_device_says_how_to_copy(array: Any, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        launch.view(array, "a")


def test_streams(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 0x55

    assert launch.raw_stream(7) == 7
    assert launch.raw_stream(Protocol()) == 0x55
    assert launch.raw_stream(types.SimpleNamespace(cuda_stream=9)) == 9
    assert launch.raw_stream(types.SimpleNamespace(ptr=11)) == 11
    assert launch.raw_stream(None, like("torch", device=2)) == 0xABC2
    assert launch.raw_stream(None, like("ptxkit")) == launch.LEGACY_STREAM
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(get_current_stream=lambda device: types.SimpleNamespace(ptr=0x66)))
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # type: ignore[misc]
    assert launch.raw_stream(None, like("cupy")) == 0x66
    for owner in ("jax", "other"):
        with pytest.raises(LaunchError, match="pass stream="):
            launch.raw_stream(None, like(owner))
    with pytest.raises(LaunchError, match="pass stream="):
        launch.raw_stream(None)
    for other in ("default", True, -1):
        with pytest.raises(LaunchError, match="is not a stream"):
            launch.raw_stream(other)


def test_the_result_is_allocated_by_the_arguments_library(torch: Any) -> None:
    made = launch.empty_like_owner(like("torch", device=1), (2, 2), "f16")
    assert (made.dtype, made.shape, made.get_device()) == (torch.float16, (2, 2), 1)
    with pytest.raises(LaunchError, match=r"pass it \(out=\)"):
        launch.empty_like_owner(like("jax"), (2, 2), "f16")


def test_dtype() -> None:
    launch.check_dtype("a", like("torch"), ("f16", "bf16"))
    launch.check_dtype("a", like("torch"), ("b16",))
    with pytest.raises(LaunchError, match="a has elements of f32: it must have f16 or bf16"):
        launch.check_dtype("a", like("torch", dtype="f32"), ("f16", "bf16"))


def test_shape() -> None:
    launch.check_shape("a", like("torch"), (4, None))
    for wrong in ((4,), (4, 9), (None, None, None)):
        with pytest.raises(LaunchError, match=r"a has shape \(4, 8\): it must have shape"):
            launch.check_shape("a", like("torch"), wrong)


@pytest.mark.parametrize(("shape", "strides", "fine"), [
    ((4, 8), (8, 1), True), ((4, 1), (1, 77), True), ((0, 8), (3, 5), True),
    ((4, 8), (16, 1), False), ((4, 8), (1, 4), False), ((8,), (2,), False)])
def test_contiguity(shape: tuple[int, ...], strides: tuple[int, ...], fine: bool) -> None:
    array = like("torch", shape=shape, strides=strides)
    if fine:
        launch.check_contiguous("a", array)
    else:
        with pytest.raises(LaunchError, match=r"a has strides .*row-major without gaps"):
            launch.check_contiguous("a", array)


def test_alignment() -> None:
    launch.check_aligned("a", like("torch"), 16)
    with pytest.raises(LaunchError, match="a starts at address 0x1008, which is not a multiple of 16 bytes"):
        launch.check_aligned("a", like("torch", pointer=0x1008), 16)


def test_devices() -> None:
    launch.check_device("a", like("torch", device=1), 1)
    with pytest.raises(LaunchError, match="a is on device 1, this launch is on device 0"):
        launch.check_device("a", like("torch", device=1), 0)
    assert launch.same_device([("a", like("torch", device=1)), ("b", like("cupy", device=1))]) == 1
    with pytest.raises(LaunchError, match="b is on device 0 and a on device 1"):
        launch.same_device([("a", like("torch", device=1)), ("b", like("torch"))])
    with pytest.raises(LaunchError, match="no argument is an array"):
        launch.same_device([])


@pytest.mark.parametrize(("target", "capability", "says"), [
    ("sm_90a", (9, 0), ""), ("sm_90", (9, 0), ""), ("sm_90", (10, 0), ""), ("sm_80", (9, 0), ""), ("sm_100f", (10, 3), ""),
    ("sm_90a", (8, 0), r"exactly 9\.0; device 0 \(A\) has 8\.0"), ("sm_90a", (10, 0), r"exactly 9\.0"), ("sm_90", (8, 9), r"9\.0 or later"),
    ("sm_100f", (12, 0), r"10\.0 or later"), ("hopper", (9, 0), "is not a target")])
def test_the_target_must_fit_the_device(monkeypatch: pytest.MonkeyPatch, target: str, capability: tuple[int, int], says: str) -> None:
    made = driver.Device(0, "A", capability, 1, 1, 1, 1, 1, 1)
    monkeypatch.setattr(driver, "device", lambda ordinal: made)
    if says:
        with pytest.raises(LaunchError, match=says):
            driver.require_target(target, 0)
    else:
        driver.require_target(target, 0)


def test_no_cuda_python(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_cuda(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "cuda":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_cuda)
    with pytest.raises(NoDriverError, match="cuda-python is not installed"):
        driver._api.__wrapped__()


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    import cuda.pathfinder

    def missing(name: str) -> None:
        raise RuntimeError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(cuda.pathfinder, "load_nvidia_dynamic_lib", missing)
    with pytest.raises(NoDriverError, match=r"no NVIDIA driver was found.*install the display driver"):
        driver._api.__wrapped__()


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "device_count", lambda: 0)
    with pytest.raises(NoDriverError, match="sees no GPU"):
        driver.probe()


@pytest.mark.parametrize(("ptxas", "cuda", "wheel"), [
    ("13.0.88", (12, 9), "nvidia-cuda-nvcc-cu12"), ("14.1.0", (13, 3), "nvidia-cuda-nvcc==13.*"),
    ("13.5.37", (13, 0), ""), ("12.9.86", (13, 0), "")])
def test_a_cubin_of_a_later_cuda_than_the_driver(monkeypatch: pytest.MonkeyPatch, ptxas: str, cuda: tuple[int, int], wheel: str) -> None:
    tool = toolchain.Tool("ptxas", Path("ptxas"), ptxas)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssembleError("", summary="the driver refused this cubin: CUDA_ERROR_INVALID_IMAGE")

    monkeypatch.setattr(toolchain, "assemble", lambda *_, **__: toolchain.Assembly(b"", "", {}, (), tool, "sm_90a"))
    monkeypatch.setattr(driver, "require_target", lambda *_: None)
    monkeypatch.setattr(driver, "driver_version", lambda: cuda)
    monkeypatch.setattr(driver, "load", refuse)
    with pytest.raises(AssembleError, match=r"^the driver refused this cubin: CUDA_ERROR_INVALID_IMAGE") as caught:
        compiled.load_text("", "sm_90a", {}, 0)
    says = f"ptxas {ptxas} is of a later CUDA than the driver, which is for {cuda[0]}.{cuda[1]} and may refuse its cubins"
    assert (says in str(caught.value)) is (f"`pip install {wheel}`" in str(caught.value)) is bool(wheel)
