"""Element formats: bits to numbers and back."""

from __future__ import annotations

from functools import cache

import numpy as np

from .values import Array


def decode(rows: Array, type: str) -> Array:
    """Rows of bytes as rows of float32 numbers of the type; every value of the types is exact in float32."""
    match type:
        case "f16":
            return rows.view(np.float16).astype(np.float32)
        case "bf16":
            return (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        case "tf32":
            return (rows.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        case "e4m3" | "e5m2":
            return _fp8(type)[rows]
        case "s8":
            return rows.view(np.int8).astype(np.float32)
        case "u8":
            return rows.astype(np.float32)
        case "b1":
            return np.unpackbits(rows, axis=-1, bitorder="little").astype(np.float32)
    raise AssertionError(type)


@cache
def _fp8(type: str) -> Array:
    """The 256 numbers of an 8-bit format."""
    exponent_bits, mantissa_bits = (4, 3) if type == "e4m3" else (5, 2)
    bias = 2 ** (exponent_bits - 1) - 1
    found = np.zeros(256, np.float32)
    for bits in range(256):
        exponent = bits >> mantissa_bits & (1 << exponent_bits) - 1
        mantissa = bits & (1 << mantissa_bits) - 1
        if type == "e5m2" and exponent == 31:
            value = float("nan") if mantissa else float("inf")
        elif type == "e4m3" and bits & 0x7F == 0x7F:
            value = float("nan")
        elif exponent:
            value = (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)
        else:
            value = mantissa / 2**mantissa_bits * 2.0 ** (1 - bias)
        found[bits] = -value if bits & 0x80 else value
    found.flags.writeable = False
    return found
