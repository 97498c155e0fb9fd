"""TileLang kernels: rows by a factor for any number of rows, and a product whose loads by TMA run ahead."""

from __future__ import annotations

from typing import Any

import tilelang.language as T


def scale_rows() -> Any:
    """B = A * factor, 64 columns."""
    rows = T.dynamic("rows")

    @T.prim_func
    def scale(A: T.Tensor((rows, 64), "float32"), B: T.Tensor((rows, 64), "float32"), factor: T.float32):  # type: ignore[valid-type]
        with T.Kernel(T.ceildiv(rows, 32), threads=128) as block:
            for i, j in T.Parallel(32, 64):
                if block * 32 + i < rows:
                    B[block * 32 + i, j] = A[block * 32 + i, j] * factor

    return scale


def matmul(m: int, n: int, k: int, tile: int = 64, stages: int = 2) -> Any:
    """C = A B in bf16, a tile of 64 x 64 a CTA."""

    @T.prim_func
    def product(A: T.Tensor((m, k), "bfloat16"), B: T.Tensor((k, n), "bfloat16"), C: T.Tensor((m, n), "bfloat16")):  # type: ignore[valid-type]
        with T.Kernel(T.ceildiv(n, tile), T.ceildiv(m, tile), threads=128) as (column, row):
            left = T.alloc_shared((tile, tile), "bfloat16")
            right = T.alloc_shared((tile, tile), "bfloat16")
            acc = T.alloc_fragment((tile, tile), "float32")
            T.clear(acc)
            for step in T.Pipelined(T.ceildiv(k, tile), num_stages=stages):
                T.copy(A[row * tile, step * tile], left)
                T.copy(B[step * tile, column * tile], right)
                T.gemm(left, right, acc)
            T.copy(acc, C[row * tile, column * tile])

    return product
