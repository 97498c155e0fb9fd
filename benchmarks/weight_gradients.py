"""`gemm.group_gemm_k` beside torch._grouped_mm with groups along K, on operands that are not in the L2.

    python benchmarks/weight_gradients.py --json OUT.json
    python benchmarks/weight_gradients.py --shapes 8x4096x4096x7168 --lengths even,skewed --all
    python benchmarks/weight_gradients.py --random 31:200 --json OUT.json
    python benchmarks/weight_gradients.py --sweep 1:400 --seconds 200 --json DATA.json

A shape is groups x mean length x M x N. Lengths are multiples of 8, which torch needs: "even", or "skewed", where group i has a share of
1 / (i + 1) of the rows. bf16 operands and results, and with `--accumulate` f32 sums beside torch's product and `add_`. Both sides are timed
in the same rounds, in random order; `ratio` is torch's time over ours, round by round. With `--all` every configuration that the
heuristic chooses from is timed as well.

`--random SEED:COUNT` times random products, whose lengths are random too, with the choice with trees, the same if CTAs share no tiles, and
the choice without trees. `--sweep SEED:COUNT` times every configuration of such products, for `python -m ptxkit.gemm fit --grouped-k`, and
with `--parts` those whose CTAs share tiles, for `fit --grouped-k --parts`. Both take SEED:COUNT:thin as well, products of one group or with
fewer than 64 rows or columns of a result, and `models`, the weights of experts.

Before a configuration is timed for the first time its result is compared with torch's. The exit status is 1 if one is wrong or there is no
GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptxkit import gemm
from ptxkit.gemm.heuristic.grouped_k import heuristic
from ptxkit.gemm.heuristic.grouped_k_causes import candidates
from ptxkit.gemm.launch.dense import card_of
from ptxkit.gemm.problem.grouped_k import ArraysAlongK, ProblemAlongK
from ptxkit.gemm.tools.bench import grouped_k as bench
from ptxkit.gemm.tools.bench.shapes import ShapeError
from ptxkit.measure.files import write_json
from ptxkit.measure.regimes import REGIMES, Entry, capture, measure, sets_that_are_cold
from ptxkit.measure.timer import TorchTimer
from ptxkit.runtime import driver
from ptxkit.runtime.launch import view

LEAST_LONG = 4096               # rows of a group: long ones
LONG = tuple((8, length, m, n) for length in (LEAST_LONG, 8192) for m, n in ((4096, 7168), (7168, 2048), (4096, 2048)))
SHORT = ((8, 1024, 28672, 4096), (16, 1024, 3072, 4096), (32, 512, 5760, 2880), (64, 256, 4096, 2048), (128, 64, 1536, 2048))
WISHES = {"even": 1.05, "skewed": 1.10}
FAR = 0.01                      # of the norm, between two bf16 results


def lengths(kind: str, groups: int, mean: int) -> list[int]:
    """The rows of each group, multiples of 8 that add up to `groups` times `mean`."""
    total = groups * mean
    if kind == "even":
        return [mean] * groups
    shares = [1 / (i + 1) for i in range(groups)]
    found = [int(total * share / sum(shares)) // 8 * 8 for share in shares]
    return [found[0] + total - sum(found), *found[1:]]


def row(torch: Any, timer: Any, shape: tuple[int, int, int, int], kind: str, options: Any) -> dict[str, Any]:
    """One shape beside torch."""
    groups, mean, m, n = shape
    rows, regime = lengths(kind, groups, mean), REGIMES["burst"]
    total, out_type = sum(rows), torch.float32 if options.accumulate else torch.bfloat16
    bytes = 2 * total * (m + n) + groups * m * n * (8 if options.accumulate else 2)
    count = sets_that_are_cold(bytes, driver.device(driver.current_device()).l2_bytes)
    ends = torch.tensor(rows, device="cuda").cumsum(0).int()
    starts = torch.nn.functional.pad(ends, (1, 0))
    sets = [(torch.randn(total, m, device="cuda", dtype=torch.bfloat16), torch.randn(total, n, device="cuda", dtype=torch.bfloat16),
             torch.zeros(groups, m, n, device="cuda", dtype=out_type)) for _ in range(count)]

    def ours(a: Any, b: Any, out: Any, config: Any = None) -> None:
        gemm.group_gemm_k(a, b, starts, out=out, accumulate=options.accumulate, config=config)

    def theirs(a: Any, b: Any, out: Any) -> None:
        product = torch._grouped_mm(a.mT, b, offs=ends)
        if options.accumulate:
            out.add_(product)

    a, b, out = sets[0]
    problem = ProblemAlongK(ArraysAlongK(view(a, "a"), view(b, "b"), view(starts, "cu_seqlens"), view(out, "out")), options.accumulate)
    card = card_of(driver.current_device())
    chosen, found = heuristic(problem, card), {"groups": groups, "mean": mean, "m": m, "n": n, "lengths": kind, "sets": count}
    ours(a, b, out)
    expected = torch._grouped_mm(a.mT, b, offs=ends).float()
    off = float((out.float() - expected).norm() / expected.norm())
    if not off < FAR:
        return {**found, "wrong": off}
    del expected
    entries = [Entry("ours", [lambda each=each: ours(*each) for each in sets]),
               Entry("torch", [lambda each=each: theirs(*each) for each in sets])]
    others = [config for config in candidates(problem, card) if config != chosen] if options.all else []
    entries += [Entry(str(config), [lambda each=each, config=config: ours(*each, config) for each in sets]) for config in others]
    timed = measure(timer, [capture(timer, entry, regime) for entry in entries], regime, options.rounds)
    us = {entry.name: statistics.median(one.us) for entry, one in zip(entries, timed, strict=True)}
    ratios = [other / own for own, other in zip(timed[0].us, timed[1].us, strict=True)]
    return {**found, "config": str(chosen), "us": us, "tflops": 2e-6 * total * m * n / us["ours"],
            "torch_tflops": 2e-6 * total * m * n / us["torch"], "ratio": statistics.median(ratios)}


def summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means of the ratios, apart for long groups, which have a wish, and for short ones."""
    found: dict[str, Any] = {}
    for kind, wish in WISHES.items():
        for name in ("long", "short"):
            some = [row["ratio"] for row in rows if row["lengths"] == kind and "ratio" in row
                    and (row["mean"] >= LEAST_LONG) == (name == "long")]
            if some:
                found[f"{name} {kind}"] = {"mean": statistics.geometric_mean(some), "least": min(some)}
                found[f"{name} {kind}"] |= {"wish": wish} if name == "long" else {}
    return found


def seeded(text: str) -> list[bench.AlongK]:
    """The products of an option."""
    try:
        return bench.asked(text)
    except ShapeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python benchmarks/weight_gradients.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", type=lambda text: [tuple(map(int, word.split("x"))) for word in text.split(",")], default=LONG + SHORT,
                        help="groups x mean length x M x N, with commas between shapes")
    parser.add_argument("--lengths", type=lambda text: text.split(","), default=tuple(WISHES), help=f"of {', '.join(WISHES)}")
    parser.add_argument("--accumulate", action="store_true", help="f32 sums that products are added to")
    parser.add_argument("--all", action="store_true", help="time every configuration of the heuristic")
    parser.add_argument("--random", type=seeded, metavar="SEED:COUNT", help="random products, or models, instead")
    parser.add_argument("--sweep", type=seeded, metavar="SEED:COUNT", help="every configuration of random products, or of models, instead")
    parser.add_argument("--parts", action="store_true", help="with --sweep: configurations whose CTAs share the tiles of long groups, of "
                        "products that have some")
    parser.add_argument("--seconds", type=float, default=240.0, help="of --random and --sweep: begin no further product after that long")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args(arguments)
    if options.parts and not options.sweep:
        parser.error("--parts is for --sweep")
    if not driver.available():
        print("no weight gradient was measured: there is no GPU", file=sys.stderr)
        return 1
    if options.random or options.sweep:
        run = bench.compare if not options.sweep else bench.sweep_parts if options.parts else bench.sweep
        found = run(options.sweep or options.random, seconds=options.seconds, path=options.json)
        return int(any(row["wrong"] for row in found["rows"]))
    import torch  # pyright: ignore[reportMissingImports]

    timer, rows = TorchTimer(torch), []
    for kind in options.lengths:
        for shape in options.shapes:
            rows.append(row(torch, timer, shape, kind, options))
            last, name = rows[-1], f"{'x'.join(map(str, shape))} {kind}"
            print(f"{name}: WRONG by {last['wrong']:.3g}" if "wrong" in last else
                  f"{name}: {last['tflops']:.0f} TFLOP/s, torch {last['torch_tflops']:.0f}, {last['ratio']:.3f} times ({last['config']})",
                  flush=True)
            torch.cuda.empty_cache()
    summary = summed(rows)
    results = {"date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows,
               "summary": summary}
    if options.json:
        write_json(options.json, results)
    print(json.dumps(summary, indent=1))
    return int(any("wrong" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
