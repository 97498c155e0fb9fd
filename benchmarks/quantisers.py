"""`gemm.quantize` beside a copy that moves as many bytes, of operands that are not in the L2.

    python benchmarks/quantisers.py --json OUT.json
    python benchmarks/quantisers.py --shapes 8192x7168,16384x4096 --kinds row,1x128 --source f32

A quantiser of M x K elements reads them ("tensor" twice), and writes a byte for each and its scales; "1x128T" is that of the transposed
matrix. The copy, torch's, reads half as many bytes and writes the other half. Sets of operands are taken in turn, 256 MB together at least.
Quantiser and copy are timed in the same rounds, in random order; `ratio` is the copy's time over the quantiser's, round by round. Before
that its result is compared with torch's divisions and conversions, bit for bit. The exit status is 1 if one is wrong or there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptxkit import gemm
from ptxkit.measure.files import write_json
from ptxkit.measure.regimes import REGIMES, Entry, capture, measure, sets_that_are_cold
from ptxkit.measure.timer import TorchTimer
from ptxkit.runtime import driver

SHAPES = ((1024, 7168), (4096, 4096), (8192, 7168), (16384, 4096), (8192, 14336), (4096, 16384))
KINDS = ("tensor", "row", "1x128", "128x128", "1x128T")
TORCH = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
TOP = {"e4m3": 448.0, "e5m2": 57344.0}
LEAST_BYTES = 256_000_000
WISH = 0.88


def moved(m: int, k: int, kind: str, size: int) -> int:
    """The bytes that a quantiser moves at least, of elements of `size` bytes."""
    tall, deep = -(-m // 128), -(-k // 128)
    scales = {"tensor": 1, "row": m, "1x128": m * deep, "128x128": tall * deep, "1x128T": k * tall}[kind]
    return m * k * (size * (2 if kind == "tensor" else 1) + 1) + 4 * scales


def expected(torch: Any, x: Any, kind: str, out: str) -> tuple[Any, Any]:
    """q and its scales, by torch; M and K are multiples of 128."""
    x, kind = (x.T.contiguous(), "1x128") if kind == "1x128T" else (x, kind)
    m, k = x.shape
    blocks = {"tensor": (m, k), "row": (1, k), "1x128": (1, 128), "128x128": (128, 128)}[kind]
    parts = x.float().view(m // blocks[0], blocks[0], k // blocks[1], blocks[1])
    largest = parts.abs().amax((1, 3))
    scale = largest / torch.tensor(TOP[out], device=x.device)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    q = (parts / scale[:, None, :, None]).clamp(-TOP[out], TOP[out]).to(getattr(torch, TORCH[out]))
    return q.view(m, k), scale


def row(torch: Any, timer: Any, m: int, k: int, kind: str, source: str, out: str, rounds: int) -> dict[str, Any]:
    """One quantiser beside its copy."""
    regime = REGIMES["burst"]
    made = [torch.randn((m, k), device="cuda").to(getattr(torch, TORCH[source]))]
    size = made[0].element_size()
    bytes = moved(m, k, kind, size)
    count = max(-(-LEAST_BYTES // (m * k * (size + 1))), sets_that_are_cold(bytes, driver.device(driver.current_device()).l2_bytes))
    made += [made[0].clone() for _ in range(count - 1)]
    how: dict[str, Any] = {"kind": kind.removesuffix("T"), "transposed": kind.endswith("T")}
    results = [gemm.quantize(x, dtype=out, **how) for x in made]
    q, scale = expected(torch, made[0], kind, out)
    found: dict[str, Any] = {"m": m, "k": k, "kind": kind, "source": source, "out": out, "bytes": bytes, "sets": count}
    right = torch.equal(results[-1][0].view(torch.uint8), q.view(torch.uint8)) and torch.equal(results[-1][1].reshape(scale.shape), scale)
    if not right:
        return {**found, "wrong": True}
    pairs = [[torch.empty(bytes // 2, dtype=torch.uint8, device="cuda") for _ in range(2)] for _ in range(count)]
    entries = [Entry("quantise", [lambda x=x, r=r: gemm.quantize(x, out=r[0], out_scale=r[1], **how)
                                  for x, r in zip(made, results, strict=True)]),
               Entry("copy", [lambda pair=pair: pair[1].copy_(pair[0]) for pair in pairs])]
    timed = measure(timer, [capture(timer, entry, regime) for entry in entries], regime, rounds)
    ours, copied = (one.us for one in timed)
    us, ratios = statistics.median(ours), [theirs / own for own, theirs in zip(ours, copied, strict=True)]
    return {**found, "us": us, "copy_us": statistics.median(copied), "gbs": 1e-3 * bytes / us, "ratio": statistics.median(ratios)}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The geometric mean and the least of each kind's ratios."""
    found = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        ratios = [row["ratio"] for row in rows if row["kind"] == kind and "ratio" in row]
        if ratios:
            found[kind] = {"mean": math.exp(statistics.fmean(map(math.log, ratios))), "least": min(ratios), "of": len(ratios)}
    return found


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python benchmarks/quantisers.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", type=lambda text: [tuple(map(int, word.split("x"))) for word in text.split(",")], default=SHAPES,
                        help="MxK with commas, multiples of 128")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=KINDS, help=f"of {', '.join(KINDS)}")
    parser.add_argument("--source", choices=("bf16", "f16", "f32"), default="bf16")
    parser.add_argument("--out", choices=tuple(TOP), default="e4m3")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args(arguments)
    if not driver.available():
        print("no quantiser was measured: there is no GPU", file=sys.stderr)
        return 1
    import torch  # pyright: ignore[reportMissingImports]

    timer = TorchTimer(torch)
    rows = []
    for m, k in options.shapes:
        for kind in options.kinds:
            rows.append(row(torch, timer, m, k, kind, options.source, options.out, options.rounds))
            last = rows[-1]
            print(f"{m}x{k} {kind}: " + ("WRONG" if "wrong" in last else f"{last['us']:.1f} us, {last['gbs']:.0f} GB/s, "
                                         f"{last['ratio']:.3f} of a copy's rate"), flush=True)
            torch.cuda.empty_cache()
    results = {"date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "wish": WISH, "rows": rows,
               "summary": summary(rows)}
    if options.json:
        write_json(options.json, results)
    print(json.dumps(results["summary"], indent=1))
    return int(any("wrong" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
