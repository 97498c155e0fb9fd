"""The kernels of the scoreboard: how each is launched, and what it must compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CORPUS = Path(__file__).parents[2] / "tests" / "corpus"


@dataclass(frozen=True)
class Ready:
    """A launch for `prove`, the array that it makes, what that must be in f32, and how far it may be off."""

    arguments: tuple[Any, ...]
    made: Any
    wanted: Any
    tolerance: float
    config: dict[str, Any]

    @property
    def right(self) -> bool:
        """Whether the result is right, after the launch."""
        error = np.abs(np.asarray(self.made, np.float32) - self.wanted)
        return bool(np.all(error <= self.tolerance * max(1.0, float(np.abs(self.wanted).max()))))


@dataclass(frozen=True)
class Case:
    """A kernel by name; `ready` imports what it needs. `floor` are those that were certified before.

    `mistakes` are the rules that a run finds broken, where the compiler has made a mistake.
    """

    name: str
    compiler: str
    package: str
    ready: Callable[[], Ready]
    floor: bool = False
    mistakes: tuple[str, ...] = ()


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def bf16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


def operands(m: int, n: int, k: int) -> tuple[Any, Any, Any, Any]:
    """Two bf16 operands, a poisoned result, and the product in f32."""
    a, b = normal(m, k, dtype=bf16()), normal(k, n, seed=1, dtype=bf16())
    return a, b, np.full((m, n), np.nan, bf16()), a.astype(np.float32) @ b.astype(np.float32)


def _softmax() -> Ready:
    from .triton_kernels import softmax

    x, y = normal(6, 200), np.full((6, 200), np.nan, np.float32)
    power = np.exp(x - x.max(1, keepdims=True))
    return Ready((softmax, (6,), x, y, 200), y, power / power.sum(1, keepdims=True), 1e-6, {"SIZE": 256})


def _layer_norm() -> Ready:
    from .triton_kernels import layer_norm

    x, weight, bias = normal(5, 300), normal(300, seed=1), normal(300, seed=2)
    y, mean, rstd = np.full_like(x, np.nan), np.full(5, np.nan, np.float32), np.full(5, np.nan, np.float32)
    wanted = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias
    return Ready((layer_norm, (5,), x, weight, bias, y, mean, rstd, 300, 1e-5), y, wanted, 1e-5, {"SIZE": 128})


def _matmul() -> Ready:
    from .triton_kernels import matmul

    a, b, c, wanted = operands(100, 72, 80)
    return Ready((matmul, (2, 2), a, b, c, 100, 72, 80), c, wanted, 2**-8, {"BM": 64, "BN": 64, "BK": 32})


def _host_descriptors() -> Ready:
    from triton.tools.tensor_descriptor import TensorDescriptor

    from ptxkit.adapters.tensors import tensor

    from .triton_kernels import matmul_tma_host

    a, b, c, wanted = operands(128, 128, 192)
    given = [TensorDescriptor(tensor(x), list(x.shape), [x.shape[1], 1], [64, 64]) for x in (a, b, c)]
    return Ready((matmul_tma_host, (2, 2), *given, 192), c, wanted, 2**-8, {"BM": 64, "BN": 64, "BK": 64})


def _device_descriptors() -> Ready:
    from .triton_kernels import matmul_tma_device

    a, b, c, wanted = operands(128, 128, 128)
    return Ready((matmul_tma_device, (2, 2), a, b, c, 128, 128, 128), c, wanted, 2**-8, {"BM": 64, "BN": 64, "BK": 64})


def _specialized() -> Ready:
    from .triton_kernels import matmul_specialized

    a, b, c, wanted = operands(256, 128, 128)
    config = {"BM": 128, "BN": 64, "BK": 64, "num_warps": 4, "num_stages": 2}
    return Ready((matmul_specialized, (3,), a, b, c, 256, 128, 128), c, wanted, 2**-8, config)


def _attention() -> Ready:
    from .triton_kernels import attention

    heads, length, depth = 2, 120, 64
    q, k, v = (normal(heads, length, depth, seed=seed, dtype=bf16()) for seed in range(3))
    o = np.full((heads, length, depth), np.nan, bf16())
    score = np.einsum("hid,hjd->hij", q.astype(np.float32), k.astype(np.float32)) / math.sqrt(depth)
    power = np.exp(np.where(np.tri(length, dtype=bool), score, -np.inf))
    wanted = np.einsum("hij,hjd->hid", power / power.sum(2, keepdims=True), v.astype(np.float32))
    return Ready((attention, (2, heads), q, k, v, o, length, 1 / math.sqrt(depth)), o, wanted, 2**-7, {"D": depth, "BM": 64, "BN": 32})


def _gluon(name: str, grid: tuple[int, ...], extra: tuple[Any, ...], **config: Any) -> Ready:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from ptxkit.adapters.tensors import tensor

    from . import gluon_kernels

    a, b, c, wanted = operands(128, 128, 256)
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.bfloat16)
    given = [TensorDescriptor(tensor(x), list(x.shape), [x.shape[1], 1], [64, 64], layout) for x in (a, b, c)]
    return Ready((getattr(gluon_kernels, name), grid, *given, *extra), c, wanted, 2**-8, {"num_warps": 4, **config})


def _cute(name: str, *arrays: Any, made: Any, wanted: Any, tolerance: float = 0.0) -> Ready:
    from . import cute_kernels

    return Ready((getattr(cute_kernels, name)(), None, *arrays), made, wanted, tolerance, {})


def _cute_add() -> Ready:
    a, b, c = normal(1000), normal(1000, seed=1), np.full(1000, np.nan, np.float32)
    return _cute("add", a, b, c, made=c, wanted=a + b)


def _cute_copy() -> Ready:
    a, b = normal(100, 136), np.full((100, 136), np.nan, np.float32)
    return _cute("tma_copy", a, b, made=b, wanted=a)


def _cute_reverse() -> Ready:
    a, b = normal(8, 32), np.full((8, 32), np.nan, np.float32)
    return _cute("reverse_rows", a, b, made=b, wanted=a[:, ::-1])


def _cute_product() -> Ready:
    a, b, c = normal(128, 256, dtype=bf16()), normal(128, 256, seed=1, dtype=bf16()), np.full((128, 128), np.nan, np.float32)
    return _cute("product", a, b, c, made=c, wanted=a.astype(np.float32) @ b.astype(np.float32).T, tolerance=1e-6)


def _tilelang_scale() -> Ready:
    from .tilelang_kernels import scale_rows

    a, b = normal(70, 64), np.full((70, 64), np.nan, np.float32)
    return Ready((scale_rows(), None, a, b, 1.5), b, a * np.float32(1.5), 0.0, {})


def _tilelang_matmul() -> Ready:
    from .tilelang_kernels import matmul

    a, b, c, wanted = operands(128, 128, 256)
    return Ready((matmul(128, 128, 256), None, a, b, c), c, wanted, 2**-8, {})


CASES = (
    Case("softmax", "Triton", "triton", _softmax, floor=True),
    Case("layer norm", "Triton", "triton", _layer_norm, floor=True),
    Case("matmul", "Triton", "triton", _matmul, floor=True),
    Case("matmul, host descriptors", "Triton", "triton", _host_descriptors, floor=True),
    Case("matmul, device descriptors", "Triton", "triton", _device_descriptors, floor=True),
    Case("matmul, persistent and specialized", "Triton", "triton", _specialized),
    Case("causal attention", "Triton", "triton", _attention, floor=True),
    Case("matmul, blocked", "Gluon", "triton", lambda: _gluon("blocked", (2, 2), (256,)), floor=True),
    Case("matmul, persistent", "Gluon", "triton", lambda: _gluon("persistent", (2,), (128, 128, 256), STAGES=3), floor=True),
    Case("matmul, specialized", "Gluon", "triton", lambda: _gluon("specialized", (2, 2), (256,), STAGES=3),
         mistakes=("setmaxnreg-participation",)),
    Case("vector add", "CuTe DSL", "nvidia-cutlass-dsl", _cute_add),
    Case("TMA copy", "CuTe DSL", "nvidia-cutlass-dsl", _cute_copy),
    Case("pipeline of threads", "CuTe DSL", "nvidia-cutlass-dsl", _cute_reverse),
    Case("matmul, persistent", "CuTe DSL", "nvidia-cutlass-dsl", _cute_product),
    Case("scale rows", "TileLang", "tilelang", _tilelang_scale),
    Case("matmul", "TileLang", "tilelang", _tilelang_matmul, mistakes=("mbarrier-wait", "deadlock")),
)


def cases(*names: str) -> Iterator[Case]:
    """The cases of these names, or all."""
    yield from (case for case in CASES if not names or case.name in names)
