"""ldmatrix, stmatrix, movmatrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import Fault
from ..memory import conflicts, resolve
from ..operand import Vector
from ..program import Op
from ..values import Array, spread
from .registry import Run, action
from .warp import whole


def _rows(f: Any, mask: int, op: Op, space: str, address: Any, count: int, mode: str) -> tuple[Any, Array]:
    """(memory, chunk of each of the 8 * count rows): lane i has the address of row i."""
    lanes = (1 << 8 * count) - 1
    memory, places = resolve(f, mask & lanes, op, space, address, 16)
    if memory is not f.cta.cluster.shared:
        raise Fault("out-of-bounds", f"{f.warp!r}: `{op.opcode}` at addresses in {memory.space} memory: it is for shared memory", "", op)
    if f.machine.watch is not None:
        f.machine.watch.access(f, mask & lanes, op, mode, memory, places, 16, False)
    rows = np.full(8 * count, places, np.intp) if type(places) is int else places[:8 * count]
    memory.traffic[mode == "w"] += 16 * len(rows)
    f.machine.bank_conflicts += conflicts(rows, 16)
    return memory, rows >> 4


@action("stmatrix")
def stmatrix(op: Op) -> Run:
    count = len(op.operand("r").elements)  # type: ignore[union-attr]
    transposed, space = op.has("trans"), op.space("p")

    def run(f: Any, mask: int, address: Any, values: Any) -> None:
        whole(f, mask, op)
        memory, rows = _rows(f, mask, op, space, address, count, "w")
        data = np.array([spread(v, 32) for v in values], np.uint32).view(np.uint16).reshape(count, 8, 8)
        if transposed:
            data = np.ascontiguousarray(data.transpose(0, 2, 1))
        memory.data[:len(memory.data) & ~15].view(np.complex128)[rows] = data.reshape(-1).view(np.complex128)
        if f.machine.watch is not None:
            words = memory.words[8][:len(memory.data) >> 4 << 1].reshape(-1, 2)[rows] != data.reshape(-1).view(np.uint64).reshape(-1, 2)
            lost = np.flatnonzero(words.any(axis=1))
            if len(lost):
                f.machine.watch.overwritten(f, op, memory, int(rows[lost[0]]) << 4, int(lost[0]))

    return run


@action("ldmatrix")
def ldmatrix(op: Op) -> Run:
    r = op.operand("r")
    assert isinstance(r, Vector)
    count = len(r.elements)
    transposed, space = op.has("trans"), op.space("p")

    def run(f: Any, mask: int, address: Any) -> Any:
        whole(f, mask, op)
        memory, rows = _rows(f, mask, op, space, address, count, "r")
        data = memory.data[:len(memory.data) & ~15].view(np.complex128)[rows].view(np.uint16).reshape(count, 8, 8)
        if transposed:
            data = data.transpose(0, 2, 1)
        return list(np.ascontiguousarray(data).reshape(count, 64).view(np.uint32))

    return run


@action("movmatrix")
def movmatrix(op: Op) -> Run:
    """Lane l holds elements 2 (l % 4) and the next of row l / 4, before and after."""

    def run(f: Any, mask: int, a: Any) -> Any:
        whole(f, mask, op)
        matrix = np.ascontiguousarray(spread(a, 32)).view(np.uint16).reshape(8, 8)
        return np.ascontiguousarray(matrix.T).reshape(64).view(np.uint32)

    return run
