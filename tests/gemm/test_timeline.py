"""Marks of the bundled kernels: nothing when off, what ran when on, and the same proof."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ptxkit.cards import H200
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.config.parts import Pingpong
from ptxkit.gemm.kernels.dense import gemm as dense
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.tools.run import Product

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
CHANGES = {"cooperative": {"tile.BM": "128", "tile.BN": "128", "schedule": "Cooperative(warpgroups=2)"},
           "pingpong": {"tile.BM": "64", "tile.BN": "128", "schedule": "Pingpong"}}


@pytest.mark.parametrize("schedule", CHANGES)
def test_a_product_with_marks_is_right_and_proven(schedule: str) -> None:
    m, n, k, bk = 384, 256, 320, 64
    config = Product(m, n, k, "f16").config().with_(CHANGES[schedule])
    generator = np.random.default_rng(1)
    a, b = (generator.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    out = np.zeros((m, n), np.float16)
    report = simulate(a, np.asfortranarray(b), out, config=config, card=H200.with_sms(2), schedule="random", seed=3, marks=True)
    assert (report.verdict, report.every_schedule) == ("clean", True), str(report)
    assert (out == (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)).all()
    timeline = report.timeline
    assert timeline.notes() == []
    tiles = math.ceil(m / config.tile.BM) * math.ceil(n / config.tile.BN)
    stages = tiles * k // bk
    producers, consumers = timeline.of_role("producer"), timeline.of_role("consumer")
    warpgroups = 4 if isinstance(config.schedule, Pingpong) else 8           # warps that work on one tile
    assert sum(len(track.clocks_of("load")) for track in producers) == stages
    assert sum(len(track.clocks_of("wait")) for track in producers) == stages
    for name, count in (("tile", tiles), ("mma", tiles), ("store", tiles), ("stage", stages), ("wait", stages)):
        assert sum(len(track.clocks_of(name)) for track in consumers) == warpgroups * count, name
    for track in consumers:
        tile, mma, stage, store = (int(track.clocks_of(name).sum()) for name in ("tile", "mma", "stage", "store"))
        assert stage < mma < tile
        assert store < tile


@pytest.mark.ptxas
@pytest.mark.parametrize("marks", [("tile",), ("stage",), True], ids=["tile", "stage", "all"])
def test_marks_cost_no_spill_and_serialise_no_product(marks: object) -> None:
    assembly = dense.assemble(marks=marks)
    assert assembly.findings == ()
    assert (assembly.resources["gemm"].spills, assembly.resources["gemm"].registers) == (0, dense.assemble().resources["gemm"].registers)


def test_the_command_on_the_cpu_device(tmp_path, capsys) -> None:
    page, trace, figures = (str(tmp_path / name) for name in ("t.html", "t.json", "f.json"))
    small = ["timeline", "-m", "256", "-n", "128", "-k", "128", "--device", "sim"]
    assert main([*small, "--page", page, "--trace", trace, "--json", figures]) == 0
    assert "producer  load" in capsys.readouterr().out
    assert "SM 0 CTA 0 producer" in (tmp_path / "t.html").read_text()
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    found = json.loads((tmp_path / "f.json").read_text())
    assert found["marks"]["all"]["overhead"] is None
    assert {span["name"] for span in found["marks"]["all"]["spans"]} == {"load", "wait", "tile", "mma", "stage", "store"}
    assert main([*small, "--marks", "tiles"]) == 1
    assert "no mark or span 'tiles'" in capsys.readouterr().err


@pytest.mark.gpu
def test_the_command_on_a_gpu(tmp_path, capsys) -> None:
    figures = tmp_path / "f.json"
    assert main(["timeline", "-m", "4096", "-n", "4096", "-k", "4096", "--json", str(figures), "--page", str(tmp_path / "t.html")]) == 0
    found = json.loads(figures.read_text())["marks"]
    assert set(found) == {"tile", "stage", "all"}
    assert all(each["notes"] == [] and math.isfinite(each["overhead"]["part"]) for each in found.values())
