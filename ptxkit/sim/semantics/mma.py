"""mma.sync, dense: every fragment in registers.

Lane 4g + t holds, of A, rows g and g + 8 and the elements from t * (elements a register) on; of B, column g; of C and D, columns 2t and
2t + 1 of rows g and g + 8. Products and sums of f16, bf16, tf32 and fp8 are formed in float64 and rounded once to D's type, to nearest:
hardware adds in blocks and truncates, within 2**-22 of the sum of the magnitudes (fp8: 2**-12). f64 is a chain of fma in the order of k,
integers are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import exact
from ..errors import UnsupportedError
from ..formats import decode as number
from ..operand import Vector
from ..program import Op
from ..rounding import encode, quiet
from ..values import DTYPES, LANE, Array, frozen, spread
from .registry import Run, action
from .warp import whole

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "u8": 8, "s8": 8, "u4": 4, "s4": 4, "b1": 1, "f64": 64}
_GROUP, _THREAD = (LANE >> 2).astype(np.intp), (LANE & 3).astype(np.intp)


def shape_of(token: str) -> tuple[int, int, int]:
    """m, n, k of "m16n8k16"."""
    m, rest = token[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def factor_map(outer: int, k: int, bits: int, registers: int) -> Array:
    """Index into a matrix of `outer` rows (A) or columns (B) of k of (register, lane, element)."""
    per = max(32 // bits, 1)
    rows = outer // 8
    index = np.empty((registers, 32, per), np.intp)
    for i in range(registers):
        row = _GROUP + 8 * (i % rows)
        column = _THREAD[:, None] * per + np.arange(per) + 4 * per * (i // rows)
        index[i] = row[:, None] * k + column
    return frozen(index)


def sum_map(m: int) -> Array:
    """Index into C of (element, lane): row-major in 8 columns."""
    return frozen(np.stack([(_GROUP + 8 * (i // 2)) * 8 + 2 * _THREAD + i % 2 for i in range(m // 4)]))


def elements(words: Array, type: str) -> Array:
    """The elements of registers, one more axis, lowest first, as numbers that float64 holds."""
    bits = _BITS[type]
    if bits < 8:
        per = 32 // bits
        raw = words[..., None] >> (np.arange(per, dtype=np.uint32) * np.uint32(bits)) & np.uint32((1 << bits) - 1)
        found = raw.astype(np.float64)
        return np.asarray(np.where(found >= 8, found - 16, found)) if type == "s4" else found
    if type == "f64":
        return np.asarray(np.expand_dims(words.view(np.float64), -1))
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 4)
    return number(octets, type).astype(np.float64)


@action("mma")
def mma(op: Op) -> Run:
    tokens = op.tokens
    shape = op.bindings["shape"]
    if (shape == "m8n8k4" and "f64" not in tokens) or tokens[1].startswith("sp"):
        raise UnsupportedError(f"the simulator does not execute `{op.opcode}`")
    m, n, k = shape_of(shape)
    types = [token for token in tokens[tokens.index("col") + 1:] if token in _BITS or token in ("f32", "s32")]
    to, a_type, b_type, c_type = types
    a_map = factor_map(m, k, _BITS[a_type], _count(op, "a"))
    b_map = factor_map(n, k, _BITS[b_type], _count(op, "b"))
    c_map = sum_map(m)
    popc = op.bindings.get("bitOp", "")

    def run(f: Any, mask: int, a: Any, b: Any, c: Any) -> Any:
        whole(f, mask, op)
        left, right = _matrix(a, a_type, a_map, m * k).reshape(m, k), _matrix(b, b_type, b_map, n * k).reshape(n, k)
        addend = _sums(c, c_type, c_map)
        return results(product(left, right.T, addend, to, popc, op.has("satfinite")), to, c_map)

    return quiet(run)


def _count(op: Op, name: str) -> int:
    operand = op.operand(name)
    return len(operand.elements) if isinstance(operand, Vector) else 1


def lanes_of(values: Any, type: str) -> Array:
    """A vector operand as (register, lane)."""
    bits = 64 if type == "f64" else 32
    return np.stack([spread(v, bits) for v in (values if isinstance(values, (list, tuple)) else [values])])


def _matrix(values: Any, type: str, index: Array, size: int) -> Array:
    found = np.empty(size)
    found[index.reshape(-1)] = elements(lanes_of(values, type), type).reshape(-1)
    return found


def _sums(values: Any, type: str, index: Array) -> Array:
    words = lanes_of(values, type)
    if type == "f16":
        numbers = np.moveaxis(elements(words, "f16"), 2, 1).reshape(-1, 32)
    else:
        numbers = words.view({"f64": np.float64, "f32": np.float32, "s32": np.int32}[type]).astype(np.float64)
    found = np.empty(index.size)
    found[index.reshape(-1)] = numbers.reshape(-1)
    return found.reshape(-1, 8)


def product(a: Array, b: Array, c: Array, to: str, popc: str = "", satfinite: bool = False) -> Array:
    """a @ b + c as bits of the result's type."""
    if to == "f64":
        return _chain(a, b, c)
    if popc:
        ones = a @ b
        total = ones + c if popc == "and" else a.sum(1)[:, None] + b.sum(0) - 2 * ones + c
    else:
        total = a @ b + c
    if to != "s32":
        return encode(total, to)
    if satfinite:
        total = np.clip(total, -(2.0**31), 2.0**31 - 1)
    return total.astype(np.int64).astype(np.uint32)


def _chain(a: Array, b: Array, c: Array) -> Array:
    bits = [np.ascontiguousarray(x).view(np.uint64).tolist() for x in (a, b, c)]
    found = bits[2]
    for i in range(len(found)):
        for j in range(len(found[i])):
            for k in range(a.shape[1]):
                found[i][j] = exact.multiply_add(bits[0][i][k], bits[1][k][j], found[i][j], "rn")
    return np.array(found, np.uint64)


def results(d: Array, to: str, index: Array) -> list[Array]:
    """The registers of D."""
    lanes = d.reshape(-1)[index]
    if to != "f16":
        return [np.ascontiguousarray(row, DTYPES[64 if to == "f64" else 32]) for row in lanes]
    return [lanes[i].astype(np.uint32) | lanes[i + 1].astype(np.uint32) << np.uint32(16) for i in range(0, len(lanes), 2)]
