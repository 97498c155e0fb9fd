"""Mixture-of-experts layers of well-known models, beside their two products alone and beside separate kernels, in bf16 on a Hopper GPU.

    python benchmarks/moe_layer.py -o OUT.json
    python benchmarks/moe_layer.py --only qwen3 --seconds 300

Each row has the experts that one card has and tokens whose choices are all of these: those that the layer's own router makes. Timed in
the same rounds, in random order, as graphs: `products`: gate and up, and down, of rows that were gathered beforehand. `layer`:
MoE.forward, from the router's product to the sums. `experts`: the same from the router's choices on. Its first product gathers its rows.
`copied`: with the rows spread to their experts before. `separate`: the choices sorted by torch's operators, index_select, the two products
and a combine. Ratios are medians of the rounds: `over_products` is the layer's time
over that of the products (wished: at most 1.12), and `separate_over` that of the separate kernels over that of `experts` (wished: at
least 1.10). With `--parts` each kernel is timed alone as well. Results are compared before: `layer` has the bits of `experts`, `copied`
those of `separate`, and the former, whose tiles may be others, are near the latter. The exit status is 1 if they are not, or without a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ptxkit import gemm
from ptxkit.gemm.tools.models import every_grouped
from ptxkit.measure.files import write_json
from ptxkit.measure.regimes import REGIMES, Entry, capture, measure, sets_that_are_cold
from ptxkit.measure.timer import TorchTimer
from ptxkit.runtime import driver

TOP = {"deepseek-v3": 8, "kimi-k2": 8, "glm-4.5": 8, "qwen3-235b": 8, "qwen3-30b-a3b": 8, "qwen3.5-35b-a3b": 8, "gpt-oss-120b": 4,
       "gpt-oss-20b": 4, "llama-4": 1, "mixtral-8x7b": 2}
"""The experts that each model chooses for a token."""
SKEW = 0.5
"""How unevenly tokens choose experts. A token is the sum of a part that all tokens share and a part of its own, whose standard deviation
is 1. This is the standard deviation of the shared part."""
NEAR = 2.0**-8
"""How far, of the norm, the sums of other tiles may be."""
MOST_BYTES = 24 << 30
"""Of weights: no more operand sets than fit."""


@dataclass(frozen=True)
class Layer:
    """The experts of a card, and the tokens of a call: `experts` times `mean` rows in all."""

    name: str
    experts: int
    top_k: int
    mean: int
    features: int
    hidden: int

    @property
    def tokens(self) -> int:
        """As many as have the expected rows."""
        return max(1, round(self.experts * self.mean / self.top_k))

    @property
    def weight_bytes(self) -> int:
        """Of all experts."""
        return 6 * self.experts * self.features * self.hidden


def layers(only: str = "") -> Iterator[Layer]:
    """The layers of the models whose names hold `only`, with each number of rows an expert."""
    for model, experts in every_grouped():
        if only in model and experts.name.startswith("gate_up"):
            for mean in experts.rows:
                yield Layer(f"{model} {experts.name}", experts.groups, min(TOP[model], experts.groups), mean, experts.k, experts.n // 2)


def sorted_by_torch(chosen: Any, count: int) -> tuple[Any, Any, Any]:
    """What `gemm.sort_choices` finds, by torch's operators: where experts begin, the token of each row, and the row of each choice."""
    import torch  # pyright: ignore[reportMissingImports]

    flat = chosen.reshape(-1)
    ordered, choice = flat.sort(stable=True)
    numbers = torch.arange(flat.shape[0], dtype=torch.int32, device=flat.device)
    offs = torch.searchsorted(ordered, torch.arange(count + 1, dtype=torch.int32, device=flat.device), out_int32=True)
    return offs, (choice // chosen.shape[1]).int(), torch.zeros_like(numbers).scatter(0, choice, numbers).view(chosen.shape)


def entries(torch: Any, layer: Layer, made: Sequence[Any], x: Any, with_parts: bool) -> dict[str, list[Callable[[], Any]]]:
    """What is timed: for each of the layers that were made, a call of each way."""
    weights, chosen = made[0].route(x)
    routing = gemm.sort_choices(chosen, layer.experts)
    gathered, gate = x[routing.token.long()], {"activation": "silu_and_mul"}
    options = {"device": "cuda", "dtype": torch.bfloat16}
    hidden, given = (torch.empty(len(gathered), columns, **options) for columns in (layer.hidden, layer.features))

    def products(own: Any, rows: Any, offs: Any, gather: Any = None) -> None:
        gemm.group_gemm(rows, own.gate_up, offs, out=hidden, gather=gather, **gate)
        gemm.group_gemm(hidden, own.down, offs, out=given)

    def summed(own: Any, how: str) -> Any:
        if how == "separate":
            offs, token, slot = sorted_by_torch(chosen, layer.experts)
        else:
            offs, _, slot, token = gemm.sort_choices(chosen, layer.experts)
        if how == "experts":
            products(own, x, offs, token)
        else:
            products(own, x.index_select(0, token) if how == "separate" else gemm.spread(x, slot), offs)
        return gemm.combine(given, slot, weights)

    found = {"products": [lambda own=own: products(own, gathered, routing.offs) for own in made],
             "layer": [lambda own=own: own(x) for own in made],
             **{how: [lambda own=own, how=how: summed(own, how) for own in made] for how in ("experts", "copied", "separate")}}
    logits = torch.ops.ptxkit.gemm(x, made[0].router.t(), out_dtype=torch.float32)
    parts: dict[str, Callable[[Any], Any]] = {
        "router": lambda own: torch.ops.ptxkit.gemm(x, own.router.t(), out_dtype=torch.float32),
        "choose": lambda _: gemm.choose_experts(logits, layer.top_k), "sort": lambda _: gemm.sort_choices(chosen, layer.experts),
        "gate_up": lambda own: gemm.group_gemm(gathered, own.gate_up, routing.offs, out=hidden, **gate),
        "gate_up_gathered": lambda own: gemm.group_gemm(x, own.gate_up, routing.offs, out=hidden, gather=routing.token, **gate),
        "down": lambda own: gemm.group_gemm(hidden, own.down, routing.offs, out=given),
        "combine": lambda _: gemm.combine(given, routing.slot, weights), "copy": lambda _: gemm.spread(x, routing.slot),
        "index_select": lambda _: x.index_select(0, routing.token), "torch_topk": lambda _: logits.topk(layer.top_k)[0].softmax(-1),
        "torch_sort": lambda _: sorted_by_torch(chosen, layer.experts)}
    return found | {name: [lambda own=own, part=part: part(own) for own in made] for name, part in parts.items() if with_parts}


def row(torch: Any, timer: Any, layer: Layer, rounds: int, with_parts: bool) -> dict[str, Any]:
    """One layer: medians in microseconds, and median ratios."""
    from ptxkit.torch import MoE

    regime = REGIMES["burst"]
    count = max(1, min(sets_that_are_cold(layer.weight_bytes, driver.device(driver.current_device()).l2_bytes),
                       MOST_BYTES // layer.weight_bytes))
    torch.manual_seed(0)
    made = [MoE(layer.features, layer.hidden, layer.experts, layer.top_k, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
    x = (torch.randn(layer.tokens, layer.features, device="cuda") + SKEW * torch.randn(layer.features, device="cuda")).bfloat16()
    with torch.no_grad():
        for other in made[1:]:
            other.router.copy_(made[0].router)
        calls = entries(torch, layer, made, x, with_parts)
        found = {**asdict(layer), "tokens": layer.tokens, "sets": count}
        results = {name: calls[name][0]() for name in ("layer", "experts", "copied", "separate")}
        off = (results["experts"].float() - results["separate"].float()).norm() / results["separate"].float().norm()
        if not torch.equal(results["copied"], results["separate"]) or not float(off) <= NEAR \
                or not torch.equal(results["layer"], results["experts"]):
            return {**found, "wrong": True}
        timed = measure(timer, [capture(timer, Entry(name, each), regime) for name, each in calls.items()], regime, rounds)
    us = {name: one.us for name, one in zip(calls, timed, strict=True)}

    def ratio(one: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(us[one], us[other], strict=True))

    return {**found, "us": {name: round(statistics.median(each), 2) for name, each in us.items()},
            "over_products": ratio("layer", "products"), "experts_over_products": ratio("experts", "products"),
            "separate_over": ratio("separate", "experts"), "copied_over": ratio("copied", "experts")}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Geometric means, and what was worst."""
    right = [row for row in rows if "wrong" not in row]
    if not right:
        return {}
    return {"rows": len(right), "separate_over": math.exp(statistics.fmean(math.log(row["separate_over"]) for row in right)),
            "most_over_products": max(row["over_products"] for row in right)}


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python benchmarks/moe_layer.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name has this in it")
    parser.add_argument("--parts", action="store_true", help="time each kernel alone as well")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=480.0, help="begin no other layer after so long")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args(arguments)
    if not driver.available():
        print("no layer was measured: there is no GPU", file=sys.stderr)
        return 1
    import torch  # pyright: ignore[reportMissingImports]

    timer, begin, rows, every = TorchTimer(torch), time.monotonic(), [], list(layers(options.only))
    for layer in every:
        if time.monotonic() - begin > options.seconds:
            break
        rows.append(row(torch, timer, layer, options.rounds, options.parts))
        last = rows[-1]
        print(f"{layer.name}, {layer.experts} x {layer.mean}: " + (
            "WRONG" if "wrong" in last else f"{last['us']['layer']:.1f} us, {last['over_products']:.3f} of its products, separate kernels "
            f"{last['separate_over']:.3f}"), flush=True)
        torch.cuda.empty_cache()
    results = {"date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "layers": len(every), "rows": rows,
               "summary": summary(rows)}
    if options.output:
        write_json(options.output, results)
    print(json.dumps(results["summary"], indent=1))
    return int(any("wrong" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
