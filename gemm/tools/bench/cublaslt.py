"""cuBLASLt through ctypes: the algorithms that its heuristic proposes for a product, each as a launch."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .operands import Operands
from .shapes import BYTES, Problem

ALGORITHMS = 8
WORKSPACE_BYTES = 64 << 20
"""More than the 32 MiB that the library's own default on Hopper is."""

# Values of the enumerations in cublas_api.h, cublasLt.h and library_types.h.
_TYPES = {"f32": 0, "f16": 2, "bf16": 14, "e4m3": 28, "e5m2": 29}
_COMPUTE_F32, _COMPUTE_TF32 = 68, 77
_SCALE_F32 = 0
_TRANSA, _TRANSB, _A_SCALE, _B_SCALE, _FAST_ACCUM = 3, 4, 17, 18, 25
_MAX_WORKSPACE = 1
_BATCH_COUNT, _BATCH_OFFSET = 5, 6          # attributes of a layout; the offset is in elements


class _Heuristic(ctypes.Structure):
    _fields_ = (("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
                ("reserved", ctypes.c_int * 4))


class LtError(Exception):
    """The library is not there or refuses."""


@functools.cache
def _library() -> Any:
    """The library, preferably the one that torch has loaded."""
    names = ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]
    try:
        for line in Path("/proc/self/maps").read_text().splitlines():
            path = line.split(maxsplit=5)[-1]
            if "libcublasLt.so" in path:
                names.insert(0, path)
                break
    except OSError:
        pass
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise LtError("libcublasLt does not load")


def _call(routine: str, *arguments: Any) -> None:
    status = getattr(_library(), routine)(*arguments)
    if status != 0:
        raise LtError(f"{routine} returns {status}")


@functools.cache
def _handle() -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _call("cublasLtCreate", ctypes.byref(handle))
    return handle


class Product:
    """Descriptors of one product. cuBLASLt is column-major: it computes D^T = B^T A^T, its A being our B."""

    def __init__(self, torch: Any, problem: Problem, data: Operands) -> None:
        self.torch = torch
        self.description = ctypes.c_void_p()
        _call("cublasLtMatmulDescCreate", ctypes.byref(self.description),
              _COMPUTE_TF32 if problem.dtype == "f32" else _COMPUTE_F32, _SCALE_F32)
        # Row-major B [K, N] is column-major N x K, which is B^T; column-major B is column-major K x N, to be transposed.
        self._set(_TRANSA, ctypes.c_int32(problem.layout[1] == "t"))
        self._set(_TRANSB, ctypes.c_int32(problem.layout[0] == "t"))
        if BYTES[problem.dtype] == 1:
            self._set(_FAST_ACCUM, ctypes.c_int8(1))
            self._set(_A_SCALE, ctypes.c_void_p(data.b_scale.data_ptr()))
            self._set(_B_SCALE, ctypes.c_void_p(data.a_scale.data_ptr()))
        m, n, k = problem.m, problem.n, problem.k
        self.layouts = [self._layout(problem.dtype, *((n, k) if problem.layout[1] == "n" else (k, n)), problem.batch),
                        self._layout(problem.dtype, *((k, m) if problem.layout[0] == "n" else (m, k)), problem.batch),
                        self._layout(problem.out, n, m, problem.batch)]
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    def _set(self, attribute: int, value: Any) -> None:
        _call("cublasLtMatmulDescSetAttribute", self.description, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    @staticmethod
    def _layout(dtype: str, rows: int, columns: int, batch: int | None) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        _call("cublasLtMatrixLayoutCreate", ctypes.byref(made), _TYPES[dtype], ctypes.c_uint64(rows), ctypes.c_uint64(columns),
              ctypes.c_int64(rows))
        more = () if batch is None else ((_BATCH_COUNT, ctypes.c_int32(batch)), (_BATCH_OFFSET, ctypes.c_int64(rows * columns)))
        for attribute, value in more:
            _call("cublasLtMatrixLayoutSetAttribute", made, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))
        return made

    def algorithms(self, most: int = ALGORITHMS) -> list[_Heuristic]:
        """What the heuristic proposes, best first."""
        preference = ctypes.c_void_p()
        _call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        size = ctypes.c_size_t(WORKSPACE_BYTES)
        _call("cublasLtMatmulPreferenceSetAttribute", preference, _MAX_WORKSPACE, ctypes.byref(size), ctypes.c_size_t(ctypes.sizeof(size)))
        found = (_Heuristic * most)()
        count = ctypes.c_int()
        b, a, d = self.layouts
        _call("cublasLtMatmulAlgoGetHeuristic", _handle(), self.description, b, a, d, d, preference, most, found, ctypes.byref(count))
        _call("cublasLtMatmulPreferenceDestroy", preference)
        return [result for result in found[:count.value] if result.state == 0]

    def launch(self, data: Operands, chosen: _Heuristic) -> Callable[[], None]:
        """One product on torch's current stream by that algorithm. It keeps everything alive that it uses."""
        b, a, d = self.layouts
        run = _library().cublasLtMatmul
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (data.b, data.a, data.d)]
        fixed = (_handle(), self.description, ctypes.byref(self.one), pointers[0], b, pointers[1], a, ctypes.byref(self.zero),
                 pointers[2], d, pointers[2], d, ctypes.byref(chosen.algorithm), ctypes.c_void_p(self.workspace.data_ptr()),
                 ctypes.c_size_t(WORKSPACE_BYTES))
        current = self.torch.cuda.current_stream

        def go(held: Any = (self, data, chosen)) -> None:
            status = run(*fixed, ctypes.c_void_p(current().cuda_stream))
            if status != 0:
                raise LtError(f"cublasLtMatmul returns {status}")

        return go


def proposals(torch: Any, problem: Problem, sets: Sequence[Operands]) -> list[list[Callable[[], None]]]:
    """For each algorithm, its launch on each operand set; those that refuse to run are left out."""
    product = Product(torch, problem, sets[0])
    found = []
    for chosen in product.algorithms():
        launches = [product.launch(data, chosen) for data in sets]
        try:
            launches[0]()
            torch.cuda.synchronize()
        except LtError:
            continue
        found.append(launches)
    return found


__all__ = ["ALGORITHMS", "LtError", "proposals"]
