"""wmma: fragments whose layout is nobody's business. Here lane l holds the elements from l * (elements a lane) on, in row-major order,
wrapping around where a fragment holds more than the matrix has. Sub-byte types are refused by name. Sums are formed as in `mma`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..memory import load, store
from ..operand import Vector
from ..program import Op
from ..rounding import quiet
from ..values import DTYPES, LANE, Array, array_of, spread
from .mma import elements, lanes_of, product, shape_of
from .registry import Run, action
from .warp import whole

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "u8": 8, "s8": 8, "f32": 32, "s32": 32, "f64": 64}


def _count(op: Op, name: str) -> int:
    operand = op.operand(name)
    return len(operand.elements) if isinstance(operand, Vector) else 1


def _bits(op: Op, type: str) -> int:
    if type not in _BITS:
        raise UnsupportedError(f"the simulator does not execute `{op.opcode}`")
    return _BITS[type]


def _places(op: Op, matrix: str, name: str) -> tuple[Array, int, int]:
    """Of a load or store: (line and place in it, of each element and lane), bits of an element, elements of a line."""
    bits = _bits(op, op.bindings["type"])
    m, n, k = shape_of(op.bindings["shape"])
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[matrix]
    per = max(32 // bits, 1)
    each = _count(op, name) * per
    flat = (LANE.astype(np.int64) * each + np.arange(each)[:, None]) % (rows * columns)
    row, column = np.divmod(flat, columns)
    if op.bindings["layout"] == "row":
        return np.stack([row, column]), bits, columns
    return np.stack([column, row]), bits, rows


def _addresses(address: Any, places: Array, stride: Any, lead: int, size: int) -> list[Array]:
    at = array_of(address, 32 if isinstance(address, int) and address < 1 << 32 else 64)
    step = lead if stride is None else array_of(stride, 32).astype(np.int64)
    return [(at + (places[0, i] * step + places[1, i]) * size).astype(np.uint64) for i in range(places.shape[1])]


@action("wmma.load")
def wmma_load(op: Op) -> Run:
    places, bits, lead = _places(op, op.tokens[2], "r")
    per, space = max(32 // bits, 1), op.space("p")

    def run(f: Any, mask: int, address: Any, stride: Any = None) -> Any:
        whole(f, mask, op)
        found = [spread(load(f, mask, op, space, at, bits // 8, 1), bits) for at in _addresses(address, places, stride, lead, bits // 8)]
        if per == 1:
            return found
        return [_joined(found[i:i + per], bits) for i in range(0, len(found), per)]

    return run


def _joined(parts: list[Array], bits: int) -> Array:
    total = parts[0].astype(np.uint32)
    for i, part in enumerate(parts[1:], 1):
        total = total | part.astype(np.uint32) << np.uint32(i * bits)
    return total


@action("wmma.store")
def wmma_store(op: Op) -> Run:
    places, bits, lead = _places(op, "d", "r")
    per, space = max(32 // bits, 1), op.space("p")

    def run(f: Any, mask: int, address: Any, values: Any, stride: Any = None) -> None:
        whole(f, mask, op)
        for i, at in enumerate(_addresses(address, places, stride, lead, bits // 8)):
            word = spread(values[i // per], max(bits, 32))
            part = word if per == 1 else (word >> np.uint32(i % per * bits)).astype(DTYPES[bits])
            store(f, mask, op, space, at, (part,), bits // 8)

    return run


@action("wmma.mma")
def wmma_mma(op: Op) -> Run:
    m, n, k = shape_of(op.bindings["shape"])
    types = [token for token in op.tokens[op.tokens.index(op.bindings["shape"]) + 1:] if token not in ("satfinite", "rn")]
    if not {"rz", "rm", "rp"}.isdisjoint(types):
        raise UnsupportedError(f"the simulator does not execute `{op.opcode}`")
    to, a_type, b_type, c_type = types if len(types) == 4 else (types[0], "f16", "f16", types[1])
    for type in types:
        _bits(op, type)

    def run(f: Any, mask: int, a: Any, b: Any, c: Any) -> Any:
        whole(f, mask, op)
        found = product(_matrix(a, a_type, m, k), _matrix(b, b_type, k, n), _matrix(c, c_type, m, n), to, satfinite=op.has("satfinite"))
        each = np.ascontiguousarray(found.reshape(32, -1))
        if to == "f16":
            each = each.view(np.uint32)
        return [np.ascontiguousarray(each[:, i]) for i in range(each.shape[1])]

    return quiet(run)


def _matrix(values: Any, type: str, rows: int, columns: int) -> Array:
    """The numbers of a fragment."""
    words = lanes_of(values, type)
    if type in ("f32", "s32"):
        numbers = words.view(np.float32 if type == "f32" else np.int32).astype(np.float64)[..., None]
    else:
        numbers = elements(words, type)
    return np.moveaxis(numbers, 1, 0).reshape(-1)[:rows * columns].reshape(rows, columns)
