"""How long the CPU device takes, in seconds of one processor in user mode: `python benchmarks/simulator.py [CASE ...]`.

    python benchmarks/simulator.py --baseline TREE --pairs 7 --output F.json

compares with another tree of the project: processes of both in turn, each of which runs a case once to warm up and then `RUNS` times, the
best of which counts. `--output` has the medians and the minima of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RUNS = 3
ENDLESS = 150_000
"""Warp instructions after which the loop that never ends is stopped."""

EMPTY = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry empty()
.reqntid 32
{
    ret;
}
"""


def product(config: Any, dtype: Any, check: bool) -> Any:
    """512^3: small integers, whose sums are the same in every order."""
    from ptxkit.gemm.launch.simulate import simulate

    generator = np.random.default_rng(0)
    a, b = (generator.integers(-3, 4, (512, 512)).astype(dtype) for _ in range(2))
    out = np.zeros((512, 512), dtype)
    report = simulate(a, b.T, out, config=config, check=check)
    assert np.array_equal(out, (a.astype(np.float32) @ b.astype(np.float32).T).astype(dtype))
    return report


def small_tiles(check: bool) -> Any:
    """Many instructions: 128 CTAs of one warpgroup, tiles of 64 x 32 x 64, 16 stages."""
    import ml_dtypes

    from ptxkit.gemm.config.dense import DenseConfig, Operands
    from ptxkit.gemm.config.parts import Cooperative, Static, Swizzle, Tile
    from ptxkit.types import bf16

    config = DenseConfig(Operands(bf16, bf16, bf16), Tile(64, 32, 64), 16, Cooperative(1), scheduler=Static(order=Swizzle("along_m", 8)))
    return product(config, ml_dtypes.bfloat16, check)


def large_tiles(check: bool) -> Any:
    """Few instructions: tiles of 128 x 256 x 64, clusters of 2, 3 stages."""
    from ptxkit.gemm.config.dense import DenseConfig, Operands
    from ptxkit.gemm.config.parts import ClusterShape, Static, Tile
    from ptxkit.types import f16

    config = DenseConfig(Operands(f16, f16, f16), Tile(128, 256), 3, scheduler=Static(cluster=ClusterShape(2, 1)))
    return product(config, np.float16, check)


def empty(check: bool) -> Any:
    """65,536 CTAs that do nothing."""
    from ptxkit import sim

    return sim.run(EMPTY, grid=65536, args=[], check=check)


def endless(check: bool) -> Any:
    """The mailbox of the tests without the step of its loop: st.async for ever."""
    from ptxkit import sim
    from tests.sim.mutants import pipelines

    lines = pipelines.mail.ptx().splitlines()
    step = [i for i, line in enumerate(lines) if line.strip() == "add.u32 %r15, %r15, 1;"]
    assert len(step) == 1, "the kernel has changed: find the step of its loop"
    del lines[step[0]]
    arrays = [np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)]
    report = sim.run("\n".join(lines), args=arrays, grid=4, check=check, max_steps=ENDLESS)
    assert [finding.rule for finding in report.findings if finding.rule == "max-steps"]
    return report


CASES: dict[str, Callable[[], Any]] = {
    "small tiles, checked": lambda: small_tiles(True), "small tiles, unchecked": lambda: small_tiles(False),
    "large tiles, checked": lambda: large_tiles(True), "large tiles, unchecked": lambda: large_tiles(False),
    "65,536 empty CTAs": lambda: empty(True), "endless": lambda: endless(True)}
ONCE = ("65,536 empty CTAs", "endless")
"""Cases that take seconds: they run once, in a process of their own."""


def measured(case: str) -> dict[str, float]:
    """Seconds, warp instructions and the memory that the process took more, of a case in this process."""
    runs = 0 if case in ONCE else RUNS
    before, best, report = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, float("inf"), None
    for i in range(runs + 1):
        start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        report = CASES[case]()
        if i or not runs:
            best = min(best, resource.getrusage(resource.RUSAGE_SELF).ru_utime - start)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": best, "instructions": report.stats.instructions, "megabytes": (after - before) / 1024}


def elsewhere(case: str, tree: Path) -> dict[str, float]:
    """`measured` in a new process, of the project in that folder."""
    environment = dict(os.environ, PYTHONPATH=str(tree), OPENBLAS_NUM_THREADS="1")
    done = subprocess.run([sys.executable, __file__, "--here", case], cwd=tree, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compared(case: str, trees: dict[str, Path], pairs: int) -> dict[str, dict[str, float]]:
    """Of each tree the median and the minimum of a case's seconds; the trees take turns."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for i in range(pairs):
        for name in list(trees)[::-1 if i % 2 else 1]:
            runs[name].append(elsewhere(case, trees[name]))
    return {name: {"median": statistics.median(run["seconds"] for run in of), "minimum": min(run["seconds"] for run in of),
                   "instructions": of[0]["instructions"], "megabytes": max(run["megabytes"] for run in of)} for name, of in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--baseline", type=Path, metavar="TREE", help="another tree of the project")
    parser.add_argument("--pairs", type=int, default=1, help="processes of each tree for a case")
    parser.add_argument("--output", type=Path, metavar="F.json")
    parser.add_argument("--here", metavar="CASE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measured(options.here)))
        return
    unknown = [case for case in options.cases if case not in CASES]
    if unknown:
        parser.error(f"there is no case {unknown[0]!r}; there are {', '.join(CASES)}")
    trees = {"before": options.baseline.resolve()} if options.baseline else {}
    trees["now"] = Path(__file__).resolve().parents[1]
    found = {}
    for case in options.cases or CASES:
        found[case] = compared(case, trees, options.pairs)
        for name, of in found[case].items():
            print(f"{case}, {name}: {of['median']:.2f} s (at best {of['minimum']:.2f}), {of['instructions']:,} warp instructions, "
                  f"{of['instructions'] / of['median'] / 1000:,.0f} thousand a second, {of['megabytes']:.0f} MB", flush=True)
    if options.output:
        options.output.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
