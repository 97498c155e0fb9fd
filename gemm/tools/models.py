"""Layers of models that people run on Hopper cards, dense and grouped: what the preset `models` measures and `tune --model` tunes.

A dense layer is D [M, N] = A [M, K] W [N, K]^T, a grouped one the same for each expert. Extents are those of the whole layer; with tensor
parallelism a card has a share of N (`split="n"`) or of K (`split="k"`). From the models' own configurations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ptxkit.errors import PtxkitError

DECODE = (1, 8, 16, 32, 64, 128)
"""Rows of dense layers: tokens of a step."""
PREFILL = (1024, 4096, 8192)
Split = Literal["", "n", "k"]


class ModelError(PtxkitError, ValueError):
    """A model that is not listed, or not for so many cards."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A weight [N, K] and how tensor parallelism splits it. `types`: "bf16", "f16", "fp8" (one scale, or scales of rows and columns) or
    "fp8-block" (of 1 x 128 and 128 x 128 blocks)."""

    name: str
    n: int
    k: int
    split: Split = ""
    types: tuple[str, ...] = ("bf16", "fp8")
    rows: tuple[int, ...] = (*DECODE, *PREFILL)

    def on(self, cards: int) -> tuple[int, int]:
        """N and K of one card's share."""
        return self.n // (cards if self.split == "n" else 1), self.k // (cards if self.split == "k" else 1)


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts that one card has: `groups` weights [N, K], and the mean rows of a group. `gated`: N is that of gate and up together."""

    name: str
    groups: int
    rows: tuple[int, ...]
    n: int
    k: int
    types: tuple[str, ...] = ("fp8-block",)
    gated: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """`cards`: how many the list's extents are for. A model whose layers have no split is known for that number alone."""

    layers: tuple[Layer, ...] = ()
    experts: tuple[Experts, ...] = ()
    cards: int = 1

    def shared(self) -> tuple[int, ...]:
        """The numbers of cards that its layers are known for: each has a multiple of 16 of what is split."""
        common = math.gcd(*((layer.n if layer.split == "n" else layer.k) for layer in self.layers if layer.split))
        return tuple(sorted({self.cards, *(cards for cards in range(1, common // 16 + 1) if common % (16 * cards) == 0)}))


_BLOCK = ("fp8-block",)
_HALF = ("bf16", "f16")

MODELS = {
    "deepseek-v3": Model((
        Layer("q_a+kv_a", 2112, 7168, types=_BLOCK), Layer("q_b", 24576, 1536, "n", _BLOCK), Layer("kv_b", 32768, 512, "n", _BLOCK),
        Layer("o", 7168, 16384, "k", _BLOCK), Layer("shared gate_up", 4096, 7168, "n", _BLOCK),
        Layer("shared down", 7168, 2048, "k", _BLOCK), Layer("router", 256, 7168, types=("bf16",)),
        Layer("lm_head", 129280, 7168, "n", ("bf16",), (*DECODE, 1024))), (
        Experts("gate_up on 8", 32, (20, 192, 1024), 4096, 7168, gated=True), Experts("down on 8", 32, (20, 192, 1024), 7168, 2048),
        Experts("gate_up on 32", 8, (128, 4096), 4096, 7168, gated=True), Experts("down on 32", 8, (128, 4096), 7168, 2048),
        Experts("gate_up on 64", 4, (128, 8192), 4096, 7168, gated=True), Experts("down on 64", 4, (128, 8192), 7168, 2048),
        Experts("gate_up, tp 8", 256, (1, 4, 128), 512, 7168, gated=True), Experts("down, tp 8", 256, (1, 4, 128), 7168, 256))),
    "llama-3.1-8b": Model((Layer("qkv", 6144, 4096, "n"), Layer("o", 4096, 4096, "k"), Layer("gate_up", 28672, 4096, "n"),
                           Layer("down", 4096, 14336, "k"))),
    "llama-3.3-70b": Model((Layer("qkv", 10240, 8192, "n"), Layer("o", 8192, 8192, "k"), Layer("gate_up", 57344, 8192, "n"),
                            Layer("down", 8192, 28672, "k")), cards=8),
    "llama-3.1-405b": Model((Layer("gate_up", 106496, 16384, "n"), Layer("down", 16384, 53248, "k")), cards=8),
    "qwen3.5-27b": Model((Layer("gate_up", 34816, 5120, "n", _BLOCK), Layer("down", 5120, 17408, "k", _BLOCK))),
    "deepseek-v4-flash": Model(tuple(Layer(f"{n}x{k}", n, k, types=_BLOCK, rows=(1, 4, 16, 2048)) for n, k in (
        (576, 5120), (5120, 1024), (5120, 288), (1792, 5120), (4096, 1280))), cards=8),
    "bert": Model(tuple(Layer(name, n, k, types=_HALF, rows=(197, 512, 197 * 8, 197 * 32)) for name, n, k in (
        ("o", 768, 768), ("qkv", 2304, 768), ("up", 3072, 768), ("down", 768, 3072)))),
    "gpt-2": Model((Layer("lm_head", 50257, 768, types=("bf16",), rows=(1024,)),)),
    "kimi-k2": Model((), (Experts("gate_up on 16", 24, (8, 64, 1024), 4096, 7168, gated=True),
                          Experts("down on 16", 24, (8, 64, 1024), 7168, 2048))),
    "glm-4.5": Model((), (Experts("gate_up, tp 8", 160, (1, 8), 384, 5120, ("fp8",), gated=True),
                          Experts("down, tp 8", 160, (1, 8), 5120, 192, ("fp8",)),
                          Experts("gate_up on 8", 20, (16, 256), 3072, 5120, ("fp8",), gated=True),
                          Experts("down on 8", 20, (16, 256), 5120, 1536, ("fp8",)))),
    "qwen3-235b": Model((), (Experts("gate_up on 8", 16, (32, 512), 3072, 4096, ("bf16", "fp8-block"), gated=True),
                             Experts("down on 8", 16, (32, 512), 4096, 1536, ("bf16", "fp8-block")),
                             Experts("gate_up, tp 8", 128, (4,), 384, 4096, ("bf16", "fp8-block"), gated=True),
                             Experts("down, tp 8", 128, (4,), 4096, 192, ("bf16", "fp8-block")))),
    "qwen3-30b-a3b": Model((), (Experts("gate_up", 128, (1, 8, 256), 1536, 2048, ("bf16", "fp8-block"), gated=True),
                                Experts("down", 128, (1, 8, 256), 2048, 768, ("bf16", "fp8-block")))),
    "qwen3.5-35b-a3b": Model((), (Experts("gate_up", 256, (1, 8, 128), 1024, 2048, gated=True),
                                  Experts("down", 256, (1, 8, 128), 2048, 512))),
    "gpt-oss-120b": Model((), (Experts("gate_up", 128, (2, 128), 5760, 2880, ("bf16",)),
                               Experts("down", 128, (2, 128), 2880, 2880, ("bf16",)))),
    "gpt-oss-20b": Model((), (Experts("gate_up", 32, (2, 128), 5760, 2880, ("bf16",)),
                              Experts("down", 32, (2, 128), 2880, 2880, ("bf16",)))),
    "llama-4": Model((), (Experts("gate_up", 16, (1040,), 8192, 5120, ("fp8",)),)),
    "mixtral-8x7b": Model((), (Experts("gate_up", 8, (512,), 28672, 4096, ("fp8",)),)),
}


@dataclass(frozen=True, slots=True)
class Share:
    """A layer on one card: its name with its model's, its extents, its types and rows."""

    name: str
    n: int
    k: int
    types: tuple[str, ...]
    rows: tuple[int, ...]


def model(name: str) -> Model:
    """The model of this name. Raises ModelError."""
    found = MODELS.get(name.lower())
    if found is None:
        raise ModelError(f"there is no model {name!r}: {', '.join(MODELS)}")
    return found


def dense(name: str, cards: int | None = None) -> Iterator[Share]:
    """The dense layers of a model on one of so many cards (None: as many as it is listed for). Raises ModelError."""
    found = model(name)
    count = found.cards if cards is None else cards
    if count not in (known := found.shared()):
        words = " or ".join(filter(None, (", ".join(map(str, known[:-1])), str(known[-1]))))
        raise ModelError(f"the layers of {name} are not known for {count} cards, but for {words}")
    for layer in found.layers:
        n, k = layer.on(count)
        yield Share(f"{name} {layer.name}" + (f" on {count}" if count > 1 else ""), n, k, layer.types, layer.rows)


def every_dense() -> Iterator[Share]:
    """Those of all models, on as many cards as they are listed for."""
    for name in MODELS:
        yield from dense(name)


def every_grouped() -> Iterator[tuple[str, Experts]]:
    """The experts of all models, with the model's name."""
    for name, found in MODELS.items():
        for experts in found.experts:
            yield name, experts


@functools.cache
def names_of(n: int, k: int) -> tuple[str, ...]:
    """The layers of all models that have a weight [N, K]."""
    return tuple(share.name for share in every_dense() if (share.n, share.k) == (n, k))


__all__ = ["DECODE", "MODELS", "PREFILL", "Experts", "Layer", "Model", "ModelError", "Share", "dense", "every_dense", "every_grouped",
           "model", "names_of"]
