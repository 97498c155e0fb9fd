"""Three Triton kernels as PTX for sm_90a: `python tests/corpus/triton_kernels.py`, with triton 3.9 installed; it needs no GPU."""

from __future__ import annotations

from pathlib import Path

import triton
import triton.language as tl
from generate import neutral
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).resolve().parent


@triton.jit
def matmul(a, b, c, k, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = tl.load(a + rows[:, None] * k + (start + depth)[None, :], mask=(start + depth)[None, :] < k, other=0.0)
        y = tl.load(b + (start + depth)[:, None] * stride + columns[None, :])
        accumulator = tl.dot(x, y, accumulator)
    tl.store(c + rows[:, None] * stride + columns[None, :], accumulator.to(tl.bfloat16))


@triton.jit
def softmax(x, y, total, n, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    value = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + tl.program_id(0) * n + at, power / tl.sum(power, 0), mask=at < n)
    tl.atomic_add(total, tl.sum(power, 0))


@triton.jit
def scan(x, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    value = tl.cumsum(tl.load(x + at), 0)
    tl.device_print("sum", value)
    tl.store(x + at, tl.sort(value))


KERNELS = {
    "matmul": (matmul, {"a": "*bf16", "b": "*bf16", "c": "*bf16", "k": "i32", "stride": "i32"}, {"BM": 64, "BN": 32, "BK": 32}),
    "softmax": (softmax, {"x": "*fp32", "y": "*fp32", "total": "*fp32", "n": "i32"}, {"SIZE": 256}),
    "scan": (scan, {"x": "*i64"}, {"SIZE": 64}),
}


def main() -> None:
    for name, (kernel, signature, constants) in KERNELS.items():
        places = {(kernel.arg_names.index(word),): value for word, value in constants.items()}
        source = ASTSource(fn=kernel, signature={**signature, **dict.fromkeys(constants, "constexpr")}, constexprs=places)
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "ptx_version": 90})
        target = HERE / f"triton_{name}.ptx"
        target.write_text(neutral(made.asm["ptx"], str(HERE)))
        print(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
