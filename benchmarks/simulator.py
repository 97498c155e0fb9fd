"""How long the CPU device takes for the HGEMM kernel: `python benchmarks/simulator.py [n ...]`, best of three, processor seconds.

Targets on two cores: 512 in 0.5 s and 1024 in 3 s without the checker, 512 in 1.5 s with it.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, Static, Tile
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.types import f16


def seconds(n: int, check: bool) -> tuple[float, int]:
    """(best of three, warp instructions) of an n x n x n product with 128 x 256 x 64 tiles, clusters of 2, 3 stages."""
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-3, 4, (n, n)).astype(np.float16) for _ in range(2))
    out = np.zeros((n, n), np.float16)
    config = DenseConfig(Operands(f16, f16, f16), Tile(128, 256), 3, scheduler=Static(cluster=ClusterShape(2, 1)))
    best, count = float("inf"), 0
    for _ in range(3):
        start = time.process_time()
        report = simulate(a, b.T, out, config=config, check=check)
        best, count = min(best, time.process_time() - start), report.stats.instructions
    assert np.array_equal(out, (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16))
    return best, count


def main() -> None:
    for n in [int(word) for word in sys.argv[1:]] or [512, 1024]:
        for check in (False, True) if n <= 512 else (False,):
            taken, count = seconds(n, check)
            print(f"{n}^3 {'with' if check else 'without'} the checker: {taken:.2f} s, {count:,} warp instructions, "
                  f"{count / taken / 1000:,.0f} thousand a second")


if __name__ == "__main__":
    main()
