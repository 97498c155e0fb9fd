"""Random small products on the CPU device, and what `gemm verify --device sim` finds. torch's numbers are the oracle."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.torch import wanted

torch = wanted(__name__)

from ptxkit.cards import H100  # noqa: E402
from ptxkit.gemm.__main__ import main  # noqa: E402
from ptxkit.gemm.tools.verify import guarded, simulated  # noqa: E402
from ptxkit.gemm.tools.verify.dense import Case  # noqa: E402

pytestmark = pytest.mark.timeout(120)
CARD = H100.with_sms(2)


def test_random_products_are_right(tmp_path: Path) -> None:
    """`python -m ptxkit.gemm verify --device sim --cases 10000 --seed 20000` has as many as one has time for."""
    path = tmp_path / "found.json"
    assert main(["verify", "--device", "sim", "--cases", "8", "--seed", "7", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["cases"] == 8
    assert main(["verify", "--device", "sim", "--seconds", "0", "--json", str(path)]) == 0
    assert json.loads(path.read_text())["cases"] == 0


def test_what_is_drawn_is_small_and_of_every_kind() -> None:
    drawn = [simulated.case(random.Random(seed)) for seed in range(400)]
    assert max(max(one.m, one.n) for one in drawn) <= 104
    assert max(one.k for one in drawn) <= 616
    for name in ("a", "b", "out", "layout", "scales", "fused", "loose", "batches", "offset", "pads", "accumulate", "fast"):
        assert len({getattr(one, name) for one in drawn}) > 1, name
    assert {one.m for one in drawn} >= {1, 2, 3}


@pytest.mark.parametrize("out", ["e4m3", "e5m2", "bf16", "f32"])
@pytest.mark.parametrize("n", [1, 33])
def test_results_of_any_alignment_are_stored_by_element(out: str, n: int) -> None:
    one = Case(35, n, 40, "bf16", "bf16", out, pads=(0, 0, 1, 0), offset=1, loose=True)
    with guarded.on("cpu"):
        assert simulated.check(torch, one, CARD, "fifo", 0) is None


@pytest.mark.parametrize("seed", [20430, 22102, 22821, 30673, 31316, 32246, 32490])
def test_what_was_wrong_once_is_right(seed: int) -> None:
    """Strides of an extent of 1 mean nothing, and an f16 sum may be less than f16's smallest normal number. These were wrong once."""
    found = simulated.run(1, seed)
    assert found["cases"] == 1
    assert not found["failures"]


def test_a_wrong_element_and_a_write_outside_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    right, one = simulated.simulate, Case(20, 24, 40, pads=(0, 0, 1, 0), offset=16)

    def spoiled(where: str) -> Any:
        def simulate(*, out: Any, **given: Any) -> Any:
            report = right(out=out, **given)
            if where == "inside":
                out[3, 5] += 1
            else:
                np.lib.stride_tricks.as_strided(out, (25,), (out.itemsize,))[24] = 0           # between two rows
            return report
        return simulate

    with guarded.on("cpu"):
        for where, words in (("inside", "an error is"), ("outside", "outside of D were written")):
            monkeypatch.setattr(simulated, "simulate", spoiled(where))
            assert words in str(simulated.check(torch, one, CARD, "fifo", 0))
