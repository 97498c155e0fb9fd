"""The marks of attention: what ran, the same proof, and what they cost."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ptxkit.attention.__main__ import main
from ptxkit.attention.launch.simulate import simulate
from ptxkit.cards import H200

SMALL = ["timeline", "--device", "sim", "--length", "150", "--heads", "2", "--head", "64"]
NAMES = {"load", "wait", "tile", "block", "turn", "softmax", "mask", "store"}


@pytest.mark.pure
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_marks_is_proven_and_has_a_span_for_each_tile(causal: bool) -> None:
    heads, length, tile, warps = 2, 250, 192, 12
    q, k, v = (np.random.default_rng(seed).standard_normal((1, heads, length, 64)).astype(np.float16) for seed in range(3))
    plain, out = np.zeros_like(q), np.zeros_like(q)
    simulate(q, k, v, plain, is_causal=causal)
    report = simulate(q, k, v, out, is_causal=causal, card=H200.with_sms(2), schedule="random", seed=5, marks=("tile",))
    assert (report.verdict, report.every_schedule) == ("clean", True), str(report)
    assert (out == plain).all()
    assert report.timeline is not None
    assert report.timeline.notes() == []
    (total,) = report.timeline.totals()
    assert (total.name, total.count) == ("tile", heads * -(-length // tile) * warps)


@pytest.mark.pure
def test_the_command_on_the_cpu_device(tmp_path, capsys) -> None:
    page, trace, figures = (tmp_path / name for name in ("t.html", "t.json", "f.json"))
    assert main([*SMALL, "--page", str(page), "--trace", str(trace), "--json", str(figures)]) == 0
    assert "causal attention, 2 heads of 150 x 64" in capsys.readouterr().out
    assert "SM 0 CTA 0 producer" in page.read_text()
    assert json.loads(trace.read_text())["traceEvents"]
    found = json.loads(figures.read_text())["masks"]
    for mask in ("full", "causal"):
        assert found[mask]["all"]["overhead"] is None
        assert NAMES >= {span["name"] for span in found[mask]["all"]["spans"]} >= {"tile", "block", "load"}
    assert main([*SMALL, "--marks", "tiles"]) == 1
    assert "no mark or span 'tiles'" in capsys.readouterr().err


@pytest.mark.gpu
def test_the_command_on_a_gpu(tmp_path) -> None:
    pytest.importorskip("torch")
    figures = tmp_path / "f.json"
    assert main(["timeline", "--json", str(figures), "--page", str(tmp_path / "t.html")]) == 0
    for each in json.loads(figures.read_text())["masks"].values():
        assert set(each) == {"tile", "block", "wait,load", "all"}
        assert all(one["notes"] == [] and math.isfinite(one["overhead"]["part"]) for one in each.values())
