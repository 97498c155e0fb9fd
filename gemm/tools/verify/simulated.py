"""Random small products on the CPU device, checked, against float64: types, layouts, strides, alignments, batches, scales, fusions, cards
and schedules.

Operands and results lie among poison, as on a GPU. A product is wrong too if the checker does not call it clean; where what a CTA does
depends on when others come, as with sums in a workspace, it may call it incomplete for the reasons that it names.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from ptxkit.cards import CARDS, Card
from ptxkit.errors import PtxkitError
from ptxkit.sim import SCHEDULES

from ...launch.simulate import simulate
from ..run import faulty
from . import guarded
from .dense import Case, expected, kind, legal, operands, result
from .trials import Checked, wrong

MOST = 96                       # of an extent, but for a deep K
DEEP, MOST_DEEP = 0.15, 600
MOST_SMS = 6
NUMPY = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def case(rng: random.Random) -> Case:
    """A random product: log-uniform extents, so that one row or column, less than a tile and several tiles all occur."""
    def extent(most: int) -> int:
        return max(1, round(math.exp(rng.uniform(0, math.log(most)))))

    drawn = replace(kind(rng), size="")
    deep = rng.random() < DEEP
    made = legal(rng, replace(drawn, m=extent(MOST), n=extent(MOST), k=rng.randint(MOST, MOST_DEEP) if deep else extent(2 * MOST)))
    return replace(made, batches=min(made.batches, 3))


def check(torch: Any, one: Case, card: Card, schedule: str, seed: int) -> str | None:
    """A sentence when the product of this case is wrong."""
    arguments, out = operands(torch, one), result(torch, one)
    given = {name: _numpy(torch, value) if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
    try:
        report = simulate(out=_numpy(torch, out), card=card, schedule=schedule, seed=seed, **given)
    except PtxkitError as error:
        return f"refused: {error}"
    if faulty(report):
        return f"the checker says: {report}"
    return guarded.overwritten(torch, out, [out], "D") or wrong(torch, out, *expected(torch, one, arguments), one.out)


def _numpy(torch: Any, tensor: Any) -> Any:
    """The same memory as an array."""
    import ml_dtypes
    import numpy as np

    words = {getattr(torch, word): word for word in NUMPY.values()}
    word = words[tensor.dtype]
    bits = tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]).numpy()
    return bits.view(getattr(np, word, None) or getattr(ml_dtypes, word))


def run(count: int, seed: int, seconds: float = math.inf) -> dict[str, Any]:
    """Check `count` products, none begun after so many seconds; {"cases", "seed", "failures": [{..., "why"}], "device"}."""
    import torch  # pyright: ignore[reportMissingImports]

    until = time.monotonic() + seconds

    def checks() -> Iterator[Checked]:
        for number in range(seed, seed + count):
            if time.monotonic() > until:
                return
            rng = random.Random(number)
            torch.manual_seed(number)
            one, card = case(rng), rng.choice(list(CARDS.values())).with_sms(rng.randint(1, MOST_SMS))
            schedule = rng.choice(list(SCHEDULES))
            what = {"seed": number, **asdict(one), "card": card.name, "sms": card.sms, "schedule": schedule}
            yield what, check(torch, one, card, schedule, number)

    with guarded.on("cpu"):
        done = list(checks())
    return {"cases": len(done), "seed": seed, "failures": [{**what, "why": why} for what, why in done if why], "device": "the CPU device"}


__all__ = ["case", "check", "run"]
