"""Attention on the CPU device beside float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxkit.attention.launch.simulate import arguments, simulate
from ptxkit.attention.tools.reference import expected, narrowed, widened
from ptxkit.cards import H200

NAN = {"bf16": 0x7FC0, "f16": 0x7E00}


@dataclass
class Case:
    """Arrays of bits, in the order of `axes` in memory. Outputs are poisoned."""

    batches: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head: int
    type: str = "bf16"
    axes: tuple[int, ...] = (0, 1, 2, 3)
    growth: float = 1.0
    seed: int = 0
    named: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        generator = np.random.default_rng(self.seed)

        def made(heads: int, rows: int, growth: float = 1.0) -> Any:
            values = generator.standard_normal((self.batches, heads, rows, self.head)) * np.linspace(1, growth, rows)[:, None]
            return self.placed(narrowed(values, self.type))

        self.q, self.k, self.v = made(self.heads, self.queries), made(self.kv_heads, self.keys, self.growth), made(self.kv_heads, self.keys)
        self.out = self.placed(np.full(self.q.shape, NAN[self.type], np.uint16))
        self.lse = np.full(self.q.shape[:3], np.nan, np.float32)

    def placed(self, bits: Any) -> Any:
        """The same array with its axes in this order in memory."""
        return np.ascontiguousarray(bits.transpose(self.axes)).transpose(np.argsort(self.axes))

    def run(self, *, causal: bool = False, ctas: int = 2, scale: float | None = None, **more: Any) -> Any:
        return simulate(self.q, self.k, self.v, self.out, lse=self.lse, is_causal=causal, scale=scale, dtype=self.type,
                        enable_gqa=self.heads != self.kv_heads, card=H200.with_sms(ctas), **more)

    def proof(self, *, causal: bool = False, **more: Any) -> Any:
        """What `ptxkit.prove` takes."""
        found = arguments(self.q, self.k, self.v, self.out, lse=self.lse, is_causal=causal, dtype=self.type,
                          enable_gqa=self.heads != self.kv_heads, card=H200.with_sms(2), **more)
        assert found is not None
        return found

    def shares(self, *, causal: bool = False, scale: float | None = None) -> tuple[float, float]:
        """The largest errors of out and lse, as shares of their bounds; NaN where an element was not stored."""
        right = expected(*(widened(x, self.type) for x in (self.q, self.k, self.v)), self.type, causal=causal, scale=scale)
        out = np.abs(widened(self.out, self.type) - right.out) / right.out_bound
        return float(out.max()), float((np.abs(self.lse - right.lse) / right.lse_bound).max())
