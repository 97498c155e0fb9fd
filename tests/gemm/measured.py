"""A row of a bench whose times are given."""

from __future__ import annotations

from ptxkit.gemm.tools.bench import baselines
from ptxkit.measure.figures import row_ratios, spread


def row(problem, regime, **times):
    found = {"shape": str(problem), "m": problem.m, "n": problem.n, "k": problem.k, "dtype": problem.dtype, "regime": regime,
             "contestants": {name: {**spread([us, us * 1.1, us]), "tflops": 1e-6 * problem.flops / us,
                                    "gbs": 1e-3 * problem.bytes / us} for name, us in times.items()}}
    found["ratios"] = row_ratios({name: [us] for name, us in times.items()}, "ours", baselines.CEILINGS)
    return found
