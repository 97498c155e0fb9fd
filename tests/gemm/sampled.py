"""Records as `sample` keeps them, of times that a test makes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ptxkit.cards import H200
from ptxkit.gemm.config.dense import DenseConfig
from ptxkit.gemm.heuristic.tuned import knobs
from ptxkit.gemm.tools.bench.shapes import Problem
from ptxkit.gemm.tools.problems import described


def record(seed: int, products: Iterable[tuple[Problem, Iterable[tuple[DenseConfig, float, bool]]]]) -> dict[str, Any]:
    """The record of some products, each with its configurations, their microseconds, and whether each is a way and no candidate."""
    rows, kept, places = [], [], {}
    for problem, measured in products:
        shape, us = described(problem), []
        for config, microseconds, way in measured:
            one = {**knobs(config, shape), **({"way": True} if way else {})}
            place = places.setdefault(json.dumps(one), len(kept))
            if place == len(kept):
                kept.append({**one, "m": shape.m})
            us.append([place, microseconds])
        rows.append({"shape": str(problem), "cublas_us": None, "us": us})
    return {"device": {"name": H200.name}, "seed": seed, "parts": [{"part": "bf16 nt", "configs": kept, "rows": rows, "wrong": []}]}
