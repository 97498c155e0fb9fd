"""The data of a measurement: normally distributed operands in as many sets as keep them out of the L2 cache, and a check of D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .shapes import BYTES, Problem

TORCH_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
ERROR = {"bf16": 1e-2, "f16": 2e-3, "e4m3": 2e-2, "e5m2": 2e-2}
"""The relative Frobenius error that a right product stays far under: rounding of D gives 2e-3 for bf16, 3e-4 for f16; fp8 adds the
few bits that fast accumulation keeps."""
COLD = 5
"""Bytes in rotation over those of the L2: with random replacement a line survives one turn with probability exp(-5), under 1 %."""
MOST_SETS = 512


@dataclass(frozen=True, slots=True)
class Operands:
    """A [M, K], B [K, N] and D [M, N] as torch tensors on the device; scales for fp8."""

    a: Any
    b: Any
    d: Any
    a_scale: Any = None
    b_scale: Any = None


def sets_that_are_cold(set_bytes: int, l2_bytes: int, most: int = MOST_SETS) -> int:
    """How many operand sets, used in turn, leave next to nothing of a set in the L2 until its next turn."""
    return max(1, min(most, -(-COLD * l2_bytes // set_bytes)))


def make(torch: Any, problem: Problem, count: int) -> list[Operands]:
    """`count` sets of fresh N(0, 1) data, D full of NaN."""
    return [_one(torch, problem) for _ in range(count)]


def _one(torch: Any, problem: Problem) -> Operands:
    kind = getattr(torch, TORCH_NAMES[problem.dtype])
    m, n, k = problem.m, problem.n, problem.k

    def normal(rows: int, columns: int, letter: str) -> Any:
        lines = (rows, columns) if letter == "n" else (columns, rows)
        if BYTES[problem.dtype] == 2:
            made = torch.randn(lines, device="cuda", dtype=kind)
        else:
            made = torch.randn(lines, device="cuda", dtype=torch.float16).to(kind)
        return made if letter == "n" else made.T

    a, b = normal(m, k, problem.layout[0]), normal(k, n, problem.layout[1])
    d = torch.full((m, n), float("nan"), device="cuda", dtype=getattr(torch, TORCH_NAMES[problem.out]))
    if BYTES[problem.dtype] == 2:
        return Operands(a, b, d)
    if problem.block:
        blocks = -(-k // 128)
        a_scale = (torch.rand((blocks, m), device="cuda") + 0.5).T
        return Operands(a, b, d, a_scale, torch.rand((blocks, -(-n // 128)), device="cuda") + 0.5)
    return Operands(a, b, d, torch.tensor(0.75, device="cuda"), torch.tensor(1.25, device="cuda"))


def wrong(torch: Any, problem: Problem, data: Operands, rows: int = 32) -> str | None:
    """A sentence when a sample of D's rows is not the product, by a float32 product of the same operands."""
    picked = torch.linspace(0, problem.m - 1, min(rows, problem.m), device="cuda").long()
    bits = data.a.view(torch.uint8) if BYTES[problem.dtype] == 1 else data.a    # fp8 may have no indexing of its own
    a = bits[picked].view(data.a.dtype).float()
    actual = data.d[picked].float()
    if not bool(torch.isfinite(actual).all()):
        return f"{int((~torch.isfinite(actual)).sum())} of {actual.numel()} sampled elements are not finite or were not written"
    difference = size = 0.0
    for first in range(0, problem.n, 4096):
        columns = slice(first, min(first + 4096, problem.n))
        exact = _product(torch, problem, data, a, picked, columns)
        difference += float((actual[:, columns] - exact).square().sum())
        size += float(exact.square().sum())
    error = (difference / size) ** 0.5 if size else 0.0
    return None if error <= ERROR[problem.dtype] else f"relative error {error:.3g}, at most {ERROR[problem.dtype]:g} is allowed"


def _product(torch: Any, problem: Problem, data: Operands, a: Any, picked: Any, columns: slice) -> Any:
    """Rows `picked` and some columns (from a multiple of 128) of the product, in float32."""
    b = data.b[:, columns].float()
    if not problem.block:
        exact = a @ b
        return exact if data.a_scale is None else exact * (data.a_scale * data.b_scale)
    k, width = b.shape
    scales = data.b_scale[:, columns.start // 128:-(-columns.stop // 128)]
    b = b * scales.repeat_interleave(128, 0)[:k].repeat_interleave(128, 1)[:, :width]
    return (a * data.a_scale[picked].repeat_interleave(128, 1)[:, :k]) @ b


__all__ = ["Operands", "make", "sets_that_are_cold", "wrong"]
