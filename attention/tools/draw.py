"""Random problems of attention, in memory that is poisoned around and between their arrays. Tensors are torch's, on a GPU or on the CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..config.forward import HEADS
from .reference import expected, narrowed, widened

GUARD = 4096                # elements before and after an array
POISON = {"bf16": 0x7FC1, "f16": 0x7E01}        # a NaN
AXES = ((0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3))
MOST_SCORES = 3 << 20       # of a problem: NumPy needs a part of a second for its reference


@dataclass(frozen=True)
class Drawn:
    """A problem by its seed. `axes` is the order of batches, heads, rows and head dim in memory, `padding` elements lie between rows.

    `lengths` are those of packed sequences; `spare` rows after them belong to none.
    """

    seed: int
    type: str
    head: int
    heads: int
    kv_heads: int
    batches: int
    queries: int
    keys: int
    causal: bool
    scale: float | None
    lse: bool
    axes: tuple[int, ...]
    padding: int
    lengths: tuple[int, ...] = ()
    spare: int = 0

    def __str__(self) -> str:
        size = f"packed {list(self.lengths)}" if self.lengths else f"{self.batches} x {self.queries} x {self.keys}"
        words = [f"seed {self.seed}: {self.type} head {self.head}", f"{self.heads}/{self.kv_heads} heads", size]
        return ", ".join([*words, *(["causal"] if self.causal else []), f"axes {self.axes}", f"padding {self.padding}"])


def draw(seed: int, most_scores: int = MOST_SCORES) -> Drawn:
    """The problem of a seed: lengths from 1 to some thousands, most of them no multiple of anything."""
    generator = np.random.default_rng(seed)
    kv_heads, group = int(generator.integers(1, 4)), int(generator.choice([1, 1, 2, 4]))
    heads, packed = kv_heads * group, bool(generator.random() < 0.3)
    batches = 1 if packed else int(generator.integers(1, 4))
    room = most_scores // (heads * batches)
    queries = int(math.exp(generator.uniform(0, math.log(min(3000, room)))))
    keys = max(1, min(int(math.exp(generator.uniform(0, math.log(3000)))), room // queries))
    lengths: list[int] = []
    if packed:
        for _ in range(int(generator.integers(1, 70))):
            length = int(math.exp(generator.uniform(0, math.log(max(2, math.isqrt(room) // 2))))) - 1
            if sum(own * own for own in lengths) + length * length < room:
                lengths.append(length)
        lengths = lengths or [1]
    spare = int(generator.integers(0, 9))
    rows = sum(lengths) + spare
    return Drawn(seed, str(generator.choice(["bf16", "f16"])), int(generator.choice(HEADS)), heads, kv_heads, batches,
                 max(1, rows) if packed else queries, max(1, rows) if packed else keys, bool(generator.random() < 0.5),
                 None if generator.random() < 0.7 else float(generator.uniform(0.02, 1)), bool(generator.random() < 0.5),
                 AXES[int(generator.integers(len(AXES)))], int(generator.choice([0, 8, 24])), tuple(lengths), spare)


class Made:
    """The arrays of a problem on a device, as ptxkit.attention takes them."""

    def __init__(self, torch: Any, drawn: Drawn, device: str) -> None:
        self.torch, self.drawn, self.device = torch, drawn, device
        generator = np.random.default_rng(drawn.seed)
        growth = float(generator.uniform(0.2, 4))

        def bits(heads: int, rows: int, growth: float = 1.0) -> Any:
            values = generator.standard_normal((drawn.batches, heads, rows, drawn.head)) * np.linspace(1, growth, rows)[:, None]
            return narrowed(values, drawn.type)

        q, k, v = bits(drawn.heads, drawn.queries), bits(drawn.kv_heads, drawn.keys, growth), bits(drawn.kv_heads, drawn.keys)
        self.bits = q, k, v
        (self.q, _), (self.k, _), (self.v, _) = (self._placed(x) for x in (q, k, v))
        self.out, self.memory = self._placed(np.full(q.shape, POISON[drawn.type], np.uint16))
        self.lse_memory = torch.full((2 * GUARD + q[..., 0].size,), math.nan, dtype=torch.float32, device=device)
        shape = (drawn.heads, drawn.queries) if drawn.lengths else q.shape[:3]
        self.lse = self.lse_memory[GUARD:-GUARD].view(shape) if drawn.lse else None
        starts = np.concatenate([[0], np.cumsum(drawn.lengths)]).astype(np.int32)
        self.starts = starts
        self.cu_seqlens = torch.from_numpy(starts).to(device) if drawn.lengths else None

    def _placed(self, bits: Any) -> tuple[Any, Any]:
        """A tensor in poisoned memory, and that memory as int16."""
        torch, drawn = self.torch, self.drawn
        shape = [bits.shape[axis] for axis in drawn.axes]
        shape[-1] += drawn.padding
        size = math.prod(shape)
        poison = int(np.array(POISON[drawn.type], np.uint16).view(np.int16))
        memory = torch.full((2 * GUARD + size,), poison, dtype=torch.int16, device=self.device)
        view = memory[GUARD:GUARD + size].view(shape)[..., :bits.shape[-1]].permute(*(int(i) for i in np.argsort(drawn.axes)))
        view.copy_(torch.from_numpy(bits.view(np.int16)))
        tensor = view.view(torch.bfloat16 if drawn.type == "bf16" else torch.float16)
        return (tensor[0].transpose(0, 1), memory) if drawn.lengths else (tensor, memory)

    def arguments(self) -> dict[str, Any]:
        """What `ptxkit.attention` and `simulate` take besides q, k and v."""
        drawn = self.drawn
        return {"is_causal": drawn.causal, "scale": drawn.scale, "enable_gqa": drawn.heads != drawn.kv_heads, "lse": self.lse,
                "cu_seqlens": self.cu_seqlens}

    def stored(self) -> bytes:
        """The memory of the results."""
        return bytes(self.memory.cpu().numpy()) + bytes(self.lse_memory.cpu().numpy())

    def problem(self) -> str | None:
        """What is wrong with the results, or None: errors above the bound, poison that is left, or memory around them that changed."""
        out = self.memory.cpu()
        guarded = self.torch.ones(out.shape, dtype=self.torch.bool)
        inside = self._same_place(guarded)
        found = widened(self._same_place(out).numpy().view(np.uint16), self.drawn.type)
        worst = self._worst(found, inside)
        poison = int(np.array(POISON[self.drawn.type], np.uint16).view(np.int16))
        if not bool((out[guarded] == poison).all()):
            return "memory around the result, or rows of no sequence, was written"
        if not bool(self.torch.isnan(self.lse_memory[:GUARD]).all() and self.torch.isnan(self.lse_memory[-GUARD:]).all()):
            return "memory around the log-sum-exp was written"
        return None if worst <= 1 else f"the largest error is {worst:.3g} of its bound"

    def _same_place(self, memory: Any) -> Any:
        """The elements of memory where the result is, as [batches, heads, rows, head dim]."""
        strides = self.out.stride() if not self.drawn.lengths else (0, self.out.stride(1), self.out.stride(0), 1)
        shape = (self.drawn.batches, self.drawn.heads, self.drawn.queries, self.drawn.head)
        return memory.as_strided(shape, strides, GUARD)

    def _worst(self, found: Any, inside: Any) -> float:
        """The largest error as a share of its bound, NaN above all; marks what was to be written in `inside`."""
        drawn, lse = self.drawn, None if self.lse is None else self.lse.cpu().numpy()
        bounds = [(0, drawn.queries, drawn.keys)]
        if drawn.lengths:
            bounds = [(int(start), int(end), int(end)) for start, end in zip(self.starts[:-1], self.starts[1:], strict=True) if end > start]
        worst = 0.0
        for start, end, keys in bounds:
            inside[:, :, start:end] = False
            q, k, v = (widened(x[:, :, start:stop], drawn.type) for x, stop in zip(self.bits, (end, keys, keys), strict=True))
            right = expected(q, k, v, drawn.type, causal=drawn.causal, scale=drawn.scale)
            shares = [np.abs(found[:, :, start:end] - right.out) / right.out_bound]
            if lse is not None:
                own = lse[None, :, start:end] if drawn.lengths else lse
                shares.append(np.abs(own - right.lse) / right.lse_bound)
            for share in shares:
                largest = float(share.max())
                worst = largest if not largest <= worst else worst
        return worst


__all__ = ["HEADS", "Drawn", "Made", "draw"]
