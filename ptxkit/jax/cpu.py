"""Arrays on the CPU: products by the kernels that a GPU would run, executed by the CPU device of `ptxkit.sim`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ptxkit.errors import LaunchError
from ptxkit.gemm.problem.options import flag
from ptxkit.runtime.arrays import ArrayView

from .framework import jax
from .kinds import KINDS
from .product import Call, dtype_of, nbytes, read

_wish: Any = jax.make_user_context(default_value="refused")
_one_at_a_time = threading.Lock()


@contextmanager
def cpu_device(*, check: bool = False) -> Iterator[None]:
    """Inside the block products of arrays on the CPU are compiled for the CPU device: each kernel runs as on a GPU, instruction by
    instruction.

    It is for tests and for small shapes: a product of 64 x 64 x 64 takes about 10 ms, the first of its kind more. With `check` the
    checker watches each kernel for races and misused barriers, and a finding is an error. Outside of all blocks a product of arrays on
    the CPU is refused. Blocks may be nested and belong to the thread; a function under jax.jit is traced inside and outside anew.
    """
    with _wish("checked" if flag("check", check) or _wish.value == "checked" else "open"):
        yield


def checked() -> bool:
    """Whether the checker is to watch. Raises LaunchError outside of all blocks."""
    if _wish.value == "refused":
        raise LaunchError("the arrays of this product are on the CPU: put them on a GPU, or run small shapes on the CPU device inside "
                          "`with ptxkit.jax.cpu_device():`")
    return bool(_wish.value == "checked")


def run(text: str, pointers: Sequence[int]) -> None:
    """A product in words, with buffers at these addresses. Threads run one after another."""
    call = read(text)
    arrays = {name: _array(seen, pointer) for name, seen, pointer in zip(call.names, call.arrays, pointers, strict=False)}
    with _one_at_a_time:
        _run(call, arrays)


def _run(call: Call, arrays: dict[str, Any]) -> None:
    if call.clears:
        arrays["out"][...] = 0
    _judge(KINDS[call.kind].simulate(arrays, **call.options, check=call.checked))


def _judge(report: Any) -> None:
    if report.verdict == "error":
        raise LaunchError(f"the kernel failed on the CPU device: {report}")


def _array(seen: ArrayView, pointer: int) -> Any:
    """A NumPy array of a buffer."""
    dtype, size = np.dtype(dtype_of(seen.dtype)), nbytes(seen)
    if not size:
        return np.zeros(seen.shape, dtype)
    memory: Any = (ctypes.c_uint8 * size).from_address(pointer)
    bits = np.frombuffer(memory, f"u{dtype.itemsize}")
    strides = tuple(stride * dtype.itemsize for stride in seen.strides)
    return np.lib.stride_tricks.as_strided(bits, seen.shape, strides).view(dtype)


__all__ = ["checked", "cpu_device", "run"]
