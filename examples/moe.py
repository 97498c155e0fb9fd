"""A mixture-of-experts layer: route, group GEMM of gate and up with silu-and-mul, group GEMM down, combine. On the GPU with torch, in f16
and in fp8 with block scales, else with NumPy on the CPU device. `ptxkit.torch.MoE` is such a layer with gradients."""
from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ptxkit import gemm
from ptxkit.cards import H200
from ptxkit.gemm.launch.combine import simulate as simulate_combine
from ptxkit.gemm.launch.simulate_grouped import simulate
from ptxkit.runtime import driver

Array = np.ndarray[Any, Any]
TOP = 2                                                      # experts of each token


Multiply = Callable[[Array, Array, Array, Array | None], Array]
Combine = Callable[[Array, Array, Array], Array]


def on_cpu(x: Array, router: Array, gate_up: Array, down: Array, multiply: Multiply, combine: Combine) -> Array:
    """x [T, K] through TOP of E experts. router [E, K], gate_up [E, 2H, K], down [E, K, H]. multiply(x, w, ends, token): the rows of x that
    `token` names, with a gate; or without `token` all of them, without a gate."""
    logits = x.astype(np.float32) @ router.astype(np.float32).T
    experts = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
    chosen = np.take_along_axis(logits, experts, 1)
    weights = np.exp(chosen - chosen[:, :1])                 # of the largest: no exponential is infinite
    weights /= weights.sum(1, keepdims=True)
    flat = experts.reshape(-1)
    order = np.argsort(flat, kind="stable")                  # the rows of one expert after another
    ends = np.searchsorted(flat[order], np.arange(len(router) + 1)).astype(np.int32)
    slot = np.empty(len(flat), np.int32)                     # the row of each choice among those of the experts
    slot[order] = np.arange(len(flat), dtype=np.int32)
    hidden = multiply(x, gate_up, ends, (order // TOP).astype(np.int32))
    return combine(multiply(hidden, down, ends, None), slot.reshape(len(x), TOP), weights)


def on_gpu(x: Any, router: Any, layer: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """The same; layer(x, token, ends, slot) does the products. Nothing of it waits for the GPU, so it could be captured into a graph."""
    weights, experts = gemm.choose_experts(x.float() @ router.float().T, TOP)
    offs, _, slot, token = gemm.sort_choices(experts, len(router))
    return gemm.combine(layer(x, token, offs, slot), slot, weights)


def in_f16(gate_up: Any, down: Any) -> Callable[[Any, Any, Any, Any], Any]:
    """Both products of all experts. The first one reads the tokens where they are."""
    def layer(x: Any, token: Any, ends: Any, _: Any) -> Any:
        hidden = gemm.group_gemm(x, gate_up, ends, activation="silu_and_mul", gather=token)
        return gemm.group_gemm(hidden, down, ends, out_dtype="f32")

    return layer


def in_fp8(torch: Any, gate_up: Any, down: Any) -> Callable[[Any, Any, Any, Any], Any]:
    """The same in e4m3: the first product leaves its result with the scales that the second one reads."""
    def blocks(w: Any) -> tuple[Any, Any]:
        """Weights, and the scale of each block of 128 x 128."""
        q, scale = gemm.quantize(w.view(-1, w.shape[-1]), "128x128")
        return q.view(w.shape), scale.view(len(w), -1, scale.shape[1])

    (gate_up, gate_up_scale), (down, down_scale) = blocks(gate_up), blocks(down)

    def layer(x: Any, _: Any, ends: Any, slot: Any) -> Any:
        rows, scale = gemm.quantize(gemm.spread(x, slot), "1x128")
        hidden_scale = torch.empty((down.shape[2] // 128, len(rows)), device="cuda").T
        hidden = gemm.group_gemm(rows, gate_up, ends, x_scale=scale, w_scale=gate_up_scale, activation="silu_and_mul",
                                 out_scale=hidden_scale)
        return gemm.group_gemm(hidden, down, ends, x_scale=hidden_scale, w_scale=down_scale, out_dtype="f32")

    return layer


def simulated(x: Array, w: Array, ends: Array, token: Array | None) -> Array:
    """One group product on the CPU device."""
    gated = token is not None
    out = np.zeros((int(ends[-1]), w.shape[1] // 2 if gated else w.shape[1]), np.float16)
    report = simulate(x, w, ends, out, gated=gated, gather=token, card=H200.with_sms(2))
    assert report.verdict in ("clean", "incomplete"), report    # of tiles drawn by ticket the checker vouches for what was executed
    return out


def combined(y: Array, slot: Array, weights: Array) -> Array:
    """The sums of each token's rows on the CPU device."""
    out = np.zeros((len(slot), y.shape[1]), np.float32)
    report = simulate_combine(y, slot, weights, out=out)
    assert report.verdict == "clean", report
    return out


def exact(x: Array, w: Array, ends: Array, token: Array | None) -> Array:
    """A group product in double precision."""
    gated, x = token is not None, x if token is None else x[token]
    found = np.concatenate([x[a:b].astype(np.float64) @ w[g].astype(np.float64).T
                            for g, (a, b) in enumerate(itertools.pairwise(ends))])
    gate, up = np.split(found, 2, axis=1) if gated else (found, found)
    return gate / (1 + np.exp(-gate)) * up if gated else found


def layer(tokens: int, experts: int, k: int, h: int) -> tuple[Array, Array, Array, Array]:
    """x, router, gate_up and down; most tokens go to the first experts, and to the last one none."""
    rng = np.random.default_rng(0)
    x, router, gate_up, down = (rng.standard_normal(shape) / np.sqrt(shape[-1]) for shape in
                                ((tokens, k), (experts, k), (experts, 2 * h, k), (experts, k, h)))
    x, router[-1] = x * np.sqrt(k), 0
    router[-1] -= 10 * x.mean(0)
    return x.astype(np.float16), router.astype(np.float16), gate_up.astype(np.float16), down.astype(np.float16)


def check() -> str:
    """Run it and compare with double precision."""
    gpu = driver.available("sm_90a") and importlib.util.find_spec("torch") is not None
    shape = (512, 16, 1024, 512) if gpu else (12, 4, 64, 32)
    arrays = layer(*shape)
    right = on_cpu(*arrays, exact, lambda y, slot, weights: (y[slot] * weights[..., None]).sum(1))
    if gpu:
        import torch  # pyright: ignore[reportMissingImports]

        x, router, *weights = (torch.from_numpy(array).cuda() for array in arrays)
        found = {name: on_gpu(x, router, products).cpu().numpy()
                 for name, products in (("f16", in_f16(*weights)), ("fp8", in_fp8(torch, *weights)))}
    else:
        found = {"f16": on_cpu(*arrays, simulated, combined)}
    errors = {name: np.abs(each - right).max() / np.abs(right).max() for name, each in found.items()}
    # Both products round to f16 at least once: 2^-11 of each of two steps, on sums of values of about the same size. In fp8 x, the hidden
    # values and the weights are rounded to 2^-4 each; of this data that makes at most 0.09 of the largest result.
    assert errors["f16"] < 2.0**-8, errors
    assert errors.get("fp8", 0) < 2.0**-3, errors
    tokens, experts, k, h = shape
    where = "" if gpu else ", on the CPU device: there is no Hopper GPU, or no torch"
    within = ", ".join(f"{name} within {error:.1g} of float64" for name, error in errors.items())
    return f"{tokens} tokens through {TOP} of {experts} experts, {k} x {h}, {within}{where}"


if __name__ == "__main__":
    print("moe:", check())
