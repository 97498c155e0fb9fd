"""Plans for the handler in C: the launches of a product, with the places where the addresses of its buffers go."""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ptxkit.dsl.arguments import FORMATS
from ptxkit.errors import LaunchError, PtxkitError
from ptxkit.gemm.launch.steps import FillStep, KernelStep, Step, Steps, tune_dense
from ptxkit.gemm.launch.tuning import wish
from ptxkit.gemm.problem.dense import Arrays, Options
from ptxkit.runtime import driver
from ptxkit.runtime.launch import LEGACY_STREAM
from ptxkit.runtime.launcher import EncodedTensorMap, addresses
from ptxkit.types import TYPES

from .kinds import KINDS
from .product import Call, nbytes, read

MOST_BUFFERS, MOST_ARGUMENTS, MOST_MAPS = 16, 96, 8         # of handler.c
NUMBER, ADDRESS, MAP, FIXED_MAP = range(4)
ROOM = 1 << 40
FIRST = 0x5E00_0000_0000
"""Buffer i of a plan is at FIRST + i ROOM, where no process on Linux has memory: an address between tells its buffer."""


class _Argument(ctypes.Structure):
    """jx_argument of handler.c."""

    _fields_ = (("kind", ctypes.c_int32), ("buffer", ctypes.c_int32), ("value", ctypes.c_uint64), ("map", ctypes.c_void_p))


class _Step(ctypes.Structure):
    """jx_step of handler.c."""

    _fields_ = (("config", ctypes.c_void_p), ("kernel", ctypes.c_void_p), ("arguments", ctypes.c_void_p), ("count", ctypes.c_int32),
                ("buffer", ctypes.c_int32), *((name, ctypes.c_uint64) for name in ("offset", "pitch", "width", "height")))


class _Plan(ctypes.Structure):
    """jx_plan of handler.c."""

    _fields_ = (("steps", ctypes.c_void_p), ("count", ctypes.c_int32), ("buffers", ctypes.c_int32), ("workspace_bytes", ctypes.c_uint64),
                *((name, ctypes.c_void_p) for name in ("launch", "replace", "fill")))


class Plan:
    """The steps of a product on a device, as handler.c reads them at `address`. It lives as long as the process."""

    def __init__(self, found: Steps, buffers: int, apart: Sequence[int]) -> None:
        self.workspace_bytes, self._apart, self._kept = found.workspace_bytes, tuple(apart), []
        self._count = buffers + bool(found.workspace_bytes)
        steps = (_Step * max(1, len(found.steps)))(*(self._step(step) for step in found.steps))
        self._plan = _Plan(ctypes.addressof(steps), len(found.steps), self._count, found.workspace_bytes, *addresses())
        self._kept += [steps, found]
        self.address = ctypes.addressof(self._plan)

    _kept: list[Any]

    def _step(self, step: Step) -> _Step:
        if isinstance(step, FillStep):
            placed = self._placed(step.start)
            assert placed is not None, "what is cleared belongs to a buffer"
            return _Step(None, None, None, 0, placed[0], placed[1], step.pitch, step.width, step.height)
        config, arguments = step.launcher.config(step.grid), self._arguments(step)
        self._kept += [config, arguments]
        handle = ctypes.c_void_p(int(step.launcher.kernel.handle))
        return _Step(ctypes.addressof(config), handle, ctypes.addressof(arguments), len(step.launcher.parameters))

    def _arguments(self, step: KernelStep) -> Any:
        words, numbers, maps = step.launcher.parameters, iter(step.scalars), iter(step.maps)
        if len(words) > MOST_ARGUMENTS or words.count("tensormap") > MOST_MAPS:
            raise LaunchError(f"kernel `{step.launcher.kernel.name}` has {len(words)} parameters: the handler of ptxkit.jax has room for "
                              f"{MOST_ARGUMENTS}, of them {MOST_MAPS} tensor maps")
        found = [self._map(next(maps)) if word == "tensormap" else self._number(word, next(numbers)) for word in words]
        return (_Argument * len(found))(*found)

    def _number(self, word: str, value: Any) -> _Argument:
        placed = self._placed(value) if word == "u64" else None
        if placed is not None:
            return _Argument(ADDRESS, *placed, None)
        return _Argument(NUMBER, 0, int.from_bytes(struct.pack("<" + FORMATS[word], value), "little"), None)

    def _map(self, made: EncodedTensorMap) -> _Argument:
        self._kept.append(made)
        placed = self._placed(made.pointer)
        return _Argument(FIXED_MAP, 0, 0, made.address) if placed is None else _Argument(MAP, *placed, made.address)

    def _placed(self, address: int) -> tuple[int, int] | None:
        """The buffer that an address belongs to, and the bytes after its start, as 64 bits; None where it belongs to none."""
        buffer, past = divmod(address - FIRST + ROOM // 2, ROOM)
        if not 0 <= buffer < self._count:
            return None
        return buffer, (past - ROOM // 2 - self._apart[buffer]) % (1 << 64)


def places(apart: Sequence[int]) -> list[int]:
    """Addresses that tell buffers apart, with this rest modulo 16."""
    return [FIRST + number * ROOM + rest for number, rest in enumerate(apart)]


@functools.cache
def plan(text: str, device: int, apart: tuple[int, ...]) -> Plan:
    """The plan of a product in words on a device, for buffers whose addresses have these rests modulo 16."""
    call = read(text)
    found = places(apart)
    with driver.on(device):
        steps = of_call(call, device, found)
        return Plan(steps, len(call.arrays), apart)


def of_call(call: Call, device: int, pointers: Sequence[int]) -> Steps:
    """The steps of a product with its buffers, and then its workspace, at these addresses."""
    seen, workspace = call.named(pointers[:len(call.arrays)], device), pointers[len(call.arrays)]
    found = KINDS[call.kind].steps(seen, call.options, workspace)
    if not call.clears:
        return found
    out = seen["out"]
    width = out.shape[-1] * TYPES[out.dtype].bits // 8
    lines = FillStep(out.pointer, width, width, math.prod(out.shape[:-1]))
    return Steps((lines, *found.steps), found.workspace_bytes)


def tune(text: str, device: int = 0) -> None:
    """Tune a dense product in words where that is wished, on memory of its own: XLA has none for it when it is lowered. A product that
    cannot be tuned keeps the heuristic's configuration, which is said."""
    call = read(text)
    if call.kind != "dense" or wish() is None:
        return
    held: list[int] = []
    try:
        with driver.on(device):
            for array in call.arrays:
                size = max(1, nbytes(array))
                held.append(driver.allocate(size, device))
                numbers = np.resize(_NUMBERS, -(-size // 4))
                driver.copy_to_device(held[-1], numbers.ctypes.data, size, device)
            tune_dense(Arrays(**call.named(held, device)), Options(**call.options), LEGACY_STREAM)
    except PtxkitError as error:
        _log.warning("a product of jax was not tuned and keeps its configuration: %s", str(error).splitlines()[0])
    finally:
        for address in held:
            driver.free(address, device)


_NUMBERS = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, np.uint32) & 0x3F3F3F3F
"""Elements between 0 and 2 in every type that is multiplied."""
_log = logging.getLogger("ptxkit")
_lock = threading.Lock()


def known(text: str, device: int = 0, apart: Sequence[int] = (0,) * MOST_BUFFERS) -> Plan:
    """The plan, made once. Any thread may ask."""
    with _lock:
        return plan(text, device, tuple(apart))


__all__ = ["FIRST", "ROOM", "Plan", "known", "of_call", "places", "plan", "tune"]
