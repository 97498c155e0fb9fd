"""`kernel.bench`: what is measured beside what, who is left out and why, and the files."""

from __future__ import annotations

import gc
import json
from xml.etree import ElementTree

import numpy as np
import pytest

from ptxkit.cards import H200
from ptxkit.gemm.tools.bench import stub
from ptxkit.measure.bench import BenchError
from tests.tuning.clocked import Clocked, axpy, parametric, stubbed

Y = np.zeros(2, np.float32)


def clocked(**more):
    return Clocked(lambda config: 10.0 + config["A"], **more)


@pytest.mark.pure
def test_times_and_ratios_are_those_of_the_configurations():
    found = parametric.bench(grid=1, args=(Y,), device=clocked(), config={"A": 2}, against={"fast": {"A": 0}, "slow": {"A": 12}},
                             flops=24e6, bytes=12e3)
    (row,) = found.rows
    assert {name: seen["us"] for name, seen in row["contestants"].items()} == {
        "kernel": pytest.approx(12.0), "fast": pytest.approx(10.0), "slow": pytest.approx(22.0)}
    assert found.time() == pytest.approx(12.0)
    assert found.time("slow", "burst") == pytest.approx(22.0)
    assert row["ratios"]["slow"]["ratio"] == pytest.approx(22 / 12)
    assert row["ratios"]["best"]["ratio"] == pytest.approx(10 / 12)
    kernel = row["contestants"]["kernel"]
    assert (kernel["tflops"], kernel["gbs"], kernel["config"]) == (pytest.approx(2.0), pytest.approx(1.0), {"A": "2", "B": "0"})
    assert not row["checked"]
    assert "kernel 12.00 us 2.0 TFLOP/s 1.0 GB/s, fast 10.00 us" in str(found)
    assert "(1.833 times as long)" in str(found)


@pytest.mark.pure
def test_who_is_wrong_or_cannot_run_is_left_out_with_the_reason():
    def writes(config, arguments):
        arguments[0][:] = 1.0 if config["A"] < 5 else 2.0

    device = clocked(writes=writes, refuses=lambda config: config.get("A") == 9)
    found = parametric.bench(grid=1, args=(Y,), device=device, check={"y": np.ones(2)}, against={
        "wrong": {"A": 5}, "refused": {"A": 9}, "foreign": np.add, "unknown": {"C": 1}, "right": {"A": 1}})
    (row,) = found.rows
    assert list(row["contestants"]) == ["kernel", "right"]
    assert row["checked"]
    why = row["left_out"]
    assert why["wrong"].startswith("wrong: `y` differs from its reference")
    assert "INVALID_VALUE" in why["refused"]
    assert "the CPU device counts" in why["foreign"]
    assert "no compile-time parameter `C`" in why["unknown"]
    assert all(f"{name}: " in str(found) for name in why)
    with pytest.raises(BenchError, match="wrong: `y`"):
        parametric.bench(grid=1, args=(Y,), device=device, config={"A": 6}, check={"y": np.ones(2)})
    with pytest.raises(BenchError, match="'wrong' was not measured: wrong: `y`"):
        found.time("wrong")


@pytest.mark.pure
def test_files_hold_what_was_measured(tmp_path):
    found = parametric.bench(grid=1, args=(Y,), device=clocked(), against={"a<b": {"A": 10}}, label="two & two", json=tmp_path / "x.json",
                             plot=tmp_path / "x.svg")
    kept = json.loads((tmp_path / "x.json").read_text())
    assert (kept["schema"], kept["kernel"], kept["unit"], len(kept["rows"])) == (1, "parametric", "us", 1)
    assert kept["rows"][0]["contestants"]["a<b"]["us"] == 20.0
    picture = ElementTree.parse(tmp_path / "x.svg").getroot()
    bars = [float(rect.get("width")) for rect in picture.iter("{http://www.w3.org/2000/svg}rect") if rect.get("height") == "11"]
    assert bars[1] / bars[0] == pytest.approx(2.0, abs=1e-2)
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "two & two burst" in texts
    assert texts[-1].startswith("us, median")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.svg"]
    for what, unit in (("flops", "TFLOP/s"), ("bytes", "GB/s")):
        parametric.bench(grid=1, args=(Y,), device=clocked(), plot=tmp_path / "y.svg", **{what: 1e6})
        assert unit in (tmp_path / "y.svg").read_text()
    assert found.rows == json.loads(json.dumps(found.results))["rows"]


@pytest.mark.pure
@pytest.mark.parametrize(("words", "sentence"), [({"regimes": "cold"}, "regimes= has 'cold': there are burst"),
                                                 ({"against": {"kernel": {}}}, "give it another name"),
                                                 ({"regime": "warm"}, "no option `regime`; there are against, regimes"),
                                                 ({"rounds": 0}, "rounds= is an int of at least 1, not 0"),
                                                 ({"flops": "1e9"}, "flops= is a number of at least 0, not '1e9'")])
def test_a_mistake_is_a_sentence(words, sentence):
    with pytest.raises(BenchError, match=sentence):
        parametric.bench(grid=1, args=(Y,), device=clocked(), **words)


@pytest.mark.pure
def test_on_the_cpu_device_it_counts_instructions():
    x, y, n = np.ones(500, np.float32), np.zeros(500, np.float32), 500
    found = axpy.bench(grid=lambda config: -(-n // config["THREADS"]), args=(x, y, n), device="cpu", check={"y": x + y},
                       against={"wide": {"THREADS": 256}})
    assert found.unit == "warp instructions"
    assert found.time() == axpy.simulate(4, x.copy(), y.copy(), n).stats.instructions
    assert "warp instructions" in str(found)
    assert not y.any()


@pytest.mark.ptxas
def test_on_a_driver_that_does_nothing_every_regime_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr("ptxkit.measure.regimes.time.sleep", lambda seconds: None)
    monkeypatch.setattr("ptxkit.measure.regimes._settle", lambda timer, found, seconds: None)
    with stubbed() as card:
        x, y = stub.array("f32", 1 << 18), stub.array("f32", 1 << 18)
        streams = set()

        def other(x, y, n, *, stream):
            streams.add(stream)

        found = axpy.bench(grid=4, args=(x, y, 512), regimes=("burst", "warm", "sustained"), against={"other": other}, rounds=2,
                           check=lambda x, y, n: True, json=tmp_path / "x.json")
        assert [row["regime"] for row in found.rows] == ["burst", "warm", "sustained"]
        assert [row["sets"] for row in found.rows] == [64, 1, 1]
        assert all(list(row["contestants"]) == ["kernel", "other"] and row["rounds"] == 2 for row in found.rows)
        assert len(streams) == 1
        assert found.results["device"]["name"] == H200.name
        for row in found.rows:
            kernel = row["contestants"]["kernel"]
            assert kernel["us"] == pytest.approx(500.0 / kernel["launches"])
        del found
        gc.collect()
        assert card.calls["cuGraphInstantiate"] == card.calls["cuGraphExecDestroy"] == 6


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["ptxkit", "torch"])
def test_on_a_gpu_a_kernel_is_timed_beside_others(library, tmp_path):
    from ptxkit import device_array

    n = 1 << 22
    host = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    if library == "torch":
        torch = pytest.importorskip("torch")
        x, y = (torch.from_numpy(each).cuda() for each in host)
        against = {"add": lambda x, y, n: y.add_(x)}
    else:
        x, y = map(device_array, host)
        against = {"wide": {"THREADS": 512}}
    found = axpy.bench(grid=lambda config: -(-n // (config["THREADS"] * config["EACH"])), args=(x, y, n), config={"EACH": 4}, bytes=12 * n,
                       against=against, check={"y": host[0] + host[1]}, json=tmp_path / "x.json", plot=tmp_path / "x.svg")
    (row,) = found.rows
    assert "left_out" not in row
    assert row["sets"] > 1
    assert 500 < row["contestants"]["kernel"]["gbs"] < 6000
    assert np.array_equal((y.numpy() if library == "ptxkit" else y.cpu().numpy()), host[1])
