"""Laws of the bench: what is measured, how time is taken (on a card that keeps time), figures, and files."""

from __future__ import annotations

import gc
import json
import math
import random
import statistics
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.gemm.__main__ import main
from ptxkit.gemm.tools import problems
from ptxkit.gemm.tools.bench import baselines, command, figures, operands, report, run, shapes
from ptxkit.gemm.tools.bench.shapes import PRESETS, Problem, ShapeError, parse
from ptxkit.measure import files, power, regimes, watch
from ptxkit.measure.figures import paired, quantile, row_ratios, spread
from ptxkit.measure.regimes import REGIMES, Entry
from ptxkit.measure.timer import TorchTimer

from .virtual_card import Card, Matrix

# What is measured.


def test_the_lists_are_those_that_the_numbers_are_promised_for():
    burst = PRESETS["burst"].problems
    assert len(burst) == len(set(burst)) == 7 + 1 + 5 * 7
    assert {p.m for p in burst if p.m == p.n == p.k} == {512, 1024, 2048, 4096, 6144, 8192, 16384}
    assert {p.m for p in burst if (p.n, p.k) == (576, 7168)} == {1, 16, 64, 128, 4096}
    assert len(PRESETS["sustained"].problems) == 7
    assert {p.layout for p in PRESETS["layouts"].problems} == set(shapes.LAYOUTS)
    assert all(p.memory_bound for p in PRESETS["memory"].problems)
    assert [p.block for p in PRESETS["fp8"].problems] == [False] * 2 + [True] * 4
    assert len(PRESETS["rowcol"].problems) == 40
    assert all(p.rowcol for p in PRESETS["rowcol"].problems)


def test_scales_of_a_list_are_replaced_where_it_is_fp8():
    for scales in shapes.SCALES:
        assert [p.scales for p in parse("64:e4m3,128:e4m3-block,256:bf16", scales=scales)] == [scales, scales, "one"]
    assert [p.scales for p in parse("64:e4m3,128:e4m3-rowcol", ["e5m2", "bf16"])] == ["one", "rowcol", "one", "one"]


def test_a_shape_with_scales_of_rows_and_columns_is_that_problem():
    problem = problems.described(shapes.problem("128x256x512:e4m3-rowcol"))
    assert problem.fusion.scale == "row_column"
    assert problems.described(shapes.problem("128x256x512:e4m3")).fusion.scale == "whole"
    assert problems.described(shapes.problem("128x256x512:e4m3-block")).block_scales


@pytest.mark.parametrize(("text", "problem"), [
    ("4096", Problem(4096, 4096, 4096)),
    ("1x2x3", Problem(1, 2, 3)),
    ("128X2112x7168:f16:tn", Problem(128, 2112, 7168, "f16", "tn")),
    ("64x64x128:nn", Problem(64, 64, 128, "bf16", "nn")),
    ("4096x4096x7168:e4m3-block", Problem(4096, 4096, 7168, "e4m3", "nt", True)),
    ("4096x4096x7168:e4m3-rowcol", Problem(4096, 4096, 7168, "e4m3", "nt", rowcol=True)),
])
def test_a_shape_in_words(text, problem):
    assert shapes.problem(text) == problem
    assert shapes.problem(str(problem)) == problem


@pytest.mark.parametrize("text", ["", "3x", "axbxc", "1x2", "1x2x3x4x5", "0x1x2x3", "0x1x1", "16:f64", "16:xx", "nosuch",
                                  "16:bf16-rowcol", "16:e4m3-rows", "2x16x16x16:e4m3-rowcol"])
def test_what_is_no_shape_says_so(text):
    with pytest.raises(ShapeError):
        parse(text)


def test_shapes_from_files_lists_and_with_other_types(tmp_path):
    wanted = (Problem(16, 32, 64), Problem(512, 512, 512, "f16", "nn"))
    (tmp_path / "shapes.txt").write_text("# M N K\n16 32 64\n\n512x512x512:f16:nn   # a cube\n")
    (tmp_path / "shapes.json").write_text(json.dumps([[16, 32, 64], "512:f16:nn"]))
    assert parse(str(tmp_path / "shapes.txt")) == parse(str(tmp_path / "shapes.json")) == parse("16x32x64,512:f16:nn") == wanted
    assert parse("512,512", ["bf16", "f16"], "tt") == tuple(Problem(512, 512, 512, dtype, "tt") for dtype in ("bf16", "f16"))
    assert parse("quick,512") == PRESETS["quick"].problems
    (tmp_path / "shapes.json").write_text("{}")
    with pytest.raises(ShapeError, match="is a list"):
        parse(str(tmp_path / "shapes.json"))


def test_bytes_and_flops():
    problem = Problem(128, 576, 7168, "e4m3")
    assert problem.bytes == 128 * 7168 + 576 * 7168 + 2 * 128 * 576
    assert problem.flops == 2 * 128 * 576 * 7168


@pytest.mark.parametrize(("words", "regime", "names"), [
    ([], "burst", ("ours", "cublas", "cublaslt")),
    (["--shapes", "sustained"], "sustained", ("ours", "cublas", "cublaslt", "wgmma")),
    (["--sustained"], "sustained", ("ours", "cublas", "cublaslt", "wgmma")),
    (["--sustained", "--shapes", "512:e4m3"], "sustained", ("ours", "scaled_mm", "cublaslt")),
    (["--shapes", "random:1:5:any8", "--dtype", "e4m3"], "burst", ("ours", "scaled_mm", "cublaslt", "read")),
    (["--shapes", "models"], "burst", ("ours", "cublas", "cublaslt", "scaled_mm", "read")),
    (["--shapes", "512", "--regime", "warm"], "warm", ("ours", "cublas", "cublaslt")),
    (["--shapes", "16x512x512"], "burst", ("ours", "cublas", "cublaslt", "read")),
    (["--shapes", "16x512x512", "--against", "scaled_mm,ours"], "burst", ("ours", "scaled_mm")),
])
def test_the_options_become_jobs(words, regime, names):
    options = _options(words)
    found = command.jobs(options)
    assert found[0][0] == regime
    assert found[0][2] == names


def _options(words):
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


def test_both_regimes_are_two_passes():
    found = command.jobs(_options(["--shapes", "quick", "--regime", "both"]))
    assert [job[0] for job in found] == ["burst"] * 5 + ["sustained"] * 5


def test_baselines_by_name_and_from_modules():
    a, b, d = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4), np.zeros((2, 4), int)
    name = "numpy:matmul"
    assert list(baselines.baselines(["ours", name, "ours"])) == ["ours", name]
    entry, = baselines.baselines([name])[name](None, Problem(2, 4, 3), [operands.Operands(a, b, d)])
    entry.launches[0]()
    assert np.array_equal(d, a @ b)
    for wrong in ("nosuch", "no.such:f", "numpy:nosuch"):
        with pytest.raises(baselines.BaselineError, match=wrong):
            baselines.baselines([wrong])


def test_without_a_gpu_only_the_host_is_measured(capsys, monkeypatch):
    monkeypatch.setattr("ptxkit.runtime.driver.available", lambda target=None: False)
    assert main(["bench", "--json", "-", "--shapes", "512"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["host"]["import_ms"] > 0
    assert "there is no GPU" in said.err
    assert main(["bench", "--no-host", "--shapes", "512"]) == 1         # which measures nothing
    assert main(["bench", "--shapes", "nosuch"]) == 2
    assert main(["bench", "--against", "nosuch"]) == 2


# How time is taken.


def burst_of(card, entries, regime, rounds=6):
    timer = TorchTimer(card.torch)
    return regimes.measure(timer, [regimes.capture(timer, entry, regime) for entry in entries], regime, rounds)


FAST = {name: replace(regime, pause=min(regime.pause, 1e-3), settle_s=0.0) for name, regime in REGIMES.items()}


@pytest.mark.parametrize("name", FAST)
@settings(deadline=None)
@given(st.lists(st.floats(1.0, 30_000.0), min_size=1, max_size=4), st.floats(0.2, 50.0))
def test_times_are_those_of_the_card(name, us, scale):
    card = Card()
    entries = [Entry(str(i), [card.kernel(time_)], scale=scale) for i, time_ in enumerate(us)]
    for timed, time_ in zip(burst_of(card, entries, FAST[name], 3), us, strict=True):
        assert len(timed.us) == 3
        assert timed.us == pytest.approx([time_ / scale] * 3, rel=1e-9)


@pytest.mark.parametrize("problem", [Problem(512, 512, 512), Problem(1, 576, 7168), Problem(4096, 4096, 4096), Problem(128, 7168, 16384)])
def test_a_burst_is_cold_and_warm_is_warm(problem):
    card = Card()
    count = regimes.sets_that_are_cold(problem.bytes, card.l2_bytes)
    assert count * problem.bytes >= regimes.COLD * card.l2_bytes
    warm, cold = 10.0, 25.0
    launches = [card.reader(i, problem.bytes, warm, cold) for i in range(count)]
    timed, = burst_of(card, [Entry("x", launches)], FAST["burst"])
    assert timed.us == pytest.approx([cold] * len(timed.us))
    timed, = burst_of(card, [Entry("x", launches)], FAST["warm"])
    expected = warm if problem.bytes <= card.l2_bytes else cold
    assert timed.us == pytest.approx([expected] * len(timed.us), rel=0.1)


def test_every_round_has_each_entry_once_in_an_order_that_changes():
    card = Card()
    entries = [Entry(str(i), [card.kernel(100.0)]) for i in range(3)]
    for regime in FAST.values():
        graphs = [regimes.capture(TorchTimer(card.torch), entry, regime) for entry in entries]
        card.replays.clear()
        regimes.measure(TorchTimer(card.torch), graphs, regime, 10, settle_s=0.0)
        place = {id(captured.graph): i for i, captured in enumerate(graphs)}
        order = [place[id(graph)] for graph in card.replays]
        rounds = [tuple(order[i:i + 3]) for i in range(0, 30, 3)]
        assert all(sorted(one) == [0, 1, 2] for one in rounds)
        assert len(set(rounds)) > 2


def test_nothing_is_collected_while_a_graph_is_captured():
    """Whatever the launches do: a graph that is freed then ends the capture."""
    card, seen = Card(), []
    run = card.kernel(10.0)

    def launch():
        seen.append(gc.isenabled())
        run()

    def broken():
        launch()
        if not seen[-1]:
            raise RuntimeError("not to be captured")

    regimes.capture(TorchTimer(card.torch), Entry("x", [launch]), FAST["warm"])
    assert seen[0]
    assert not seen[-1]
    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="not to be captured"):
        regimes.capture(TorchTimer(card.torch), Entry("x", [broken]), FAST["warm"])
    assert gc.isenabled()


@settings(deadline=None)
@given(st.floats(1, 1e5), st.floats(0.1, 50), st.integers(1, regimes.MOST_SETS))
def test_a_graph_is_whole_turns_of_about_the_wanted_length(us, graph_ms, sets):
    count = regimes.launches_for(us, graph_ms, sets)
    assert count % sets == 0
    assert sets <= count <= max(regimes.MOST_LAUNCHES, sets)
    if sets < count < regimes.MOST_LAUNCHES - sets:
        assert abs(count * us - 1e3 * graph_ms) <= sets * us


def test_of_several_entries_the_fastest_is_kept():
    card = Card()
    entries = [Entry("lt", [card.kernel(us)], str(us)) for us in (30.0, 20.0, 25.0)]
    assert regimes.best_of(TorchTimer(card.torch), entries, FAST["burst"]).entry.label == "20.0"


def test_a_row_measures_who_is_right_and_names_who_is_not(monkeypatch):
    card = Card()
    problem = Problem(64, 512, 512)
    sets = [operands.Operands(None, None, Matrix()) for _ in range(2)]
    monkeypatch.setattr(operands, "make", lambda torch, problem, count: sets)
    monkeypatch.setattr(operands, "wrong", lambda torch, problem, data: None if data.d.written else "not written")
    monkeypatch.setattr(run.driver, "current_device", lambda: 0)
    monkeypatch.setattr(run.driver, "device", lambda ordinal: SimpleNamespace(l2_bytes=60 << 20))

    def product(us, writes=True):
        def launch(data):
            work = card.kernel(us)

            def go():
                work()
                data.d.written = data.d.written or writes
            return go
        return [launch(data) for data in sets]

    def broken(torch, problem, sets):
        raise TypeError("no such product\nat all")

    def refused(torch, problem, sets):
        raise baselines.NotImplementedHere("only squares")

    makers = {
        "ours": lambda *a: [Entry("ours", product(10.0), detail={"config": "wide"})],
        "cublas": lambda *a: [Entry("cublas", product(12.0))],
        "cublaslt": lambda *a: [Entry("cublaslt", product(us), detail={"algorithm": i}) for i, us in enumerate((14.0, 11.0, 13.0))],
        "read": lambda *a: [Entry("read", product(16.0, False), scale=2.0, ceiling=True)],
        "lazy": lambda *a: [Entry("lazy", product(1.0, False))], "broken": broken, "refused": refused, "hung": broken}
    step = watch.Step()
    step.state["skip"] = {f"burst {problem} hung": "it hangs"}
    found = run.row(card.torch, problem, FAST["burst"], makers, 5, power.Reader(), 0, step)
    assert {name: seen["us"] for name, seen in found["contestants"].items()} == pytest.approx(
        {"ours": 10.0, "cublas": 12.0, "cublaslt": 11.0, "read": 8.0})
    assert found["contestants"]["cublaslt"]["algorithm"] == 1
    assert {name: seen["ratio"] for name, seen in found["ratios"].items()} == pytest.approx(
        {"cublas": 1.2, "cublaslt": 1.1, "read": 0.8, "best": 1.1})
    assert found["left_out"] == {"lazy": "wrong: not written", "broken": "TypeError: no such product", "refused": "only squares",
                                 "hung": "it hangs"}
    assert found["contestants"]["ours"]["tflops"] == pytest.approx(problem.flops / 10e-6 / 1e12)
    assert found["contestants"]["ours"]["gbs"] == pytest.approx(problem.bytes / 10e-6 / 1e9)
    said = run.line(found)
    assert "ours 10.00 us" in said
    assert "(1.100)" in said
    assert "refused: only squares" in said


# Figures.


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_numpys(values, share):
    assert quantile(values, share) == pytest.approx(np.quantile(values, share))


def test_ratios_are_of_the_same_round():
    ours, theirs = [1.0, 2.0, 4.0, 8.0, 16.0], [1.1, 2.2, 4.4, 8.8, 17.6]        # a card that slows down five rounds long
    assert paired(ours, theirs)["ratio"] == pytest.approx(1.1)
    assert statistics.median(theirs) / statistics.median(ours) == pytest.approx(1.1)
    shuffled = random.Random(1).sample(theirs, 5)
    assert paired(ours, shuffled)["p90"] > 1.5
    found = row_ratios({"ours": ours, "a": theirs, "b": [2 * t for t in ours], "read": [0.1] * 5}, "ours", ("read",))
    assert found["best"] == found["a"]
    assert row_ratios({"a": ours}, "ours", ()) == {}


def test_the_summary_is_a_geometric_mean_by_regime_and_type():
    rows = [{"regime": "burst", "dtype": dtype, "shape": f"{dtype}{ratio}", "ratios": {"best": {"ratio": ratio}}}
            for dtype, ratio in (("bf16", 2.0), ("bf16", 0.5), ("f16", 1.5))]
    rows.append({"regime": "burst", "dtype": "bf16", "shape": "wrong", "ratios": {}})
    found = figures.summary(rows)
    assert found["burst bf16"]["best"] == {"shapes": 2, "geometric_mean": pytest.approx(1.0), "percentile_5": pytest.approx(0.575),
                                           "least": 0.5, "least_shape": "bf160.5", "below_0.95": 1}
    assert found["burst f16"]["best"]["geometric_mean"] == pytest.approx(1.5)


def test_the_summary_knows_layouts_and_large_weights():
    def measured(problem, us, read):
        return {"regime": "burst", "shape": str(problem), "dtype": "bf16", "m": problem.m, "n": problem.n, "k": problem.k,
                "layout": problem.layout, "weight_bytes": problem.weight_bytes, "contestants": {"ours": {"us": us}},
                "ratios": {"read": {"ratio": read}}}

    rows = [measured(Problem(16, 7168, 16384), 60.0, 0.9), measured(Problem(16, 4096, 7168), 20.0, 0.8),
            measured(Problem(16, 576, 7168), 4.0, 0.5),
            measured(Problem(512, 512, 512), 10.0, 0.5), measured(Problem(512, 512, 512, layout="tn"), 12.5, 0.5)]
    summary = figures.summary(rows)
    found = summary["burst bf16"]
    assert summary["burst bf16 tn"]["nt"]["shapes"] == 1
    assert summary["burst bf16 nt"]["read"]["shapes"] == 4
    assert found["read"]["least"] == 0.5
    assert found["read, weights over 100 MB"]["least"] == 0.9
    assert found["read, weights over 25 MB"]["least"] == 0.8
    assert found["nt"] == {"shapes": 1, "geometric_mean": pytest.approx(0.8), "percentile_5": 0.8, "least": 0.8,
                           "least_shape": "512x512x512:bf16:tn", "below_0.95": 1}


@pytest.mark.parametrize(("kind", "unit"), [("aligned", 64), ("any8", 8), ("any", 1)])
@pytest.mark.parametrize("dtype", ["bf16", "e4m3", "f32"])
def test_random_shapes_are_log_uniform_and_the_same_for_a_seed(kind, unit, dtype):
    found = parse(f"random:7:400:{kind}", [dtype])
    assert found == parse(f"random:7:400:{kind}", [dtype])
    assert len(found) == 400
    assert found != parse(f"random:8:400:{kind}", [dtype])
    least = max(unit, 16 if kind == "any8" and dtype == "e4m3" else unit)
    for problem in found:
        assert 16 <= problem.m <= 10_000
        assert {128 <= extent <= 16_000 and extent % least == 0 for extent in (problem.n, problem.k)} == {True}
        assert problem.layout == "nt" or dtype == "bf16" or (dtype == "f32" and kind == "any")
        assert not problem.offset or (kind == "any" and dtype != "e4m3")
        assert shapes.problem(str(problem)) == problem
        assert problem.layout[0] == "n" or kind == "any" or problem.m % 8 == 0
    for name, low, high in (("m", 16, 10_000), ("n", 128, 16_000), ("k", 128, 16_000)):
        extents = [getattr(problem, name) for problem in found]
        logarithms = sorted(math.log(extent / low) / math.log(high / low) for extent in extents)
        distance = max(abs(value - (place + 0.5) / 400) for place, value in enumerate(logarithms))
        assert distance < 1.63 / math.sqrt(400)     # Kolmogorov and Smirnov, at 1 %


def test_random_shapes_join_others_and_what_is_none_says_so():
    assert parse("512,random:1:2,64x64x64") [:2] == (Problem(512, 512, 512), Problem(64, 64, 64))
    assert {problem.layout for problem in parse("random:1:40")} == set(shapes.LAYOUTS)
    assert {problem.dtype for problem in parse("random:1:40")} == {"bf16", "f16"}
    for text in ("random:", "random:1", "random:1:0", "random:x:3", "random:1:3:odd", "random:1:3:any:more"):
        with pytest.raises(ShapeError):
            parse(text)


def test_many_rows_are_drawn_as_points(tmp_path):
    rows = [{"shape": str(problem), "dtype": problem.dtype, "layout": problem.layout, "m": problem.m, "n": problem.n, "k": problem.k,
             "regime": "burst", "contestants": {"ours": {"us": 1.0, "p10": 1.0, "p90": 1.0}},
             "ratios": {"best": {"ratio": 0.5 + place / 60}}} for place, problem in enumerate(parse("random:1:70"))]
    report.plot(tmp_path / "many.svg", {"rows": rows, "device": {"name": "a card"}})
    circles = [node for node in ElementTree.parse(tmp_path / "many.svg").iter() if node.tag.endswith("circle") and len(node)]
    assert len(circles) == 70
    report.plot(tmp_path / "few.svg", {"rows": rows[:3]})
    assert not [node for node in ElementTree.parse(tmp_path / "few.svg").iter() if node.tag.endswith("circle")]


def test_results_of_several_runs_are_one_table_and_one_chart(tmp_path, capsys):
    """The rows of the issue's kind: by card, type, kind of shape, and layout; every product a point."""
    def run_of(name, card, ratios):
        rows = [{"regime": "burst", "dtype": dtype, "layout": layout, "shape": f"{n}x{k}", "m": 512, "n": n, "k": k, "batch": batch,
                 "weight_bytes": 1, "contestants": {"ours": {"us": 1.0}},
                 "ratios": {"best": {"ratio": ratio}, "cublas": {"ratio": 2 * ratio}}}
                for dtype, layout, n, k, batch, ratio in ratios]
        (tmp_path / name).write_text(json.dumps({"device": {"name": card}, "command": name, "date": "2026-11-25", "rows": rows}))
        return str(tmp_path / name)

    files = [run_of("a.json", "NVIDIA H100", [("bf16", "nt", 64, 128, None, 1.0), ("bf16", "nt", 640, 128, None, 4.0),
                                              ("bf16", "nn", 72, 128, None, 0.5), ("e4m3", "nt", 80, 128, None, 1.5)]),
             run_of("b.json", "NVIDIA H200", [("bf16", "nt", 64, 64, None, 1.1), ("bf16", "tn", 72, 99, None, 0.9),
                                              ("bf16", "nt", 64, 64, 8, 1.3), ("e4m3", "nt", 72, 128, None, 1.0)])]
    assert main(["bench", "--of", *files, "--json", str(tmp_path / "all.json"), "--plot", str(tmp_path / "all.svg")]) == 0
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "all.json").read_text())
    assert set(found["summary"]) >= {
        "H100 burst bf16 aligned", "H100 burst bf16 aligned nt", "H100 burst bf16 any8", "H100 burst e4m3 any8", "H200 burst bf16 aligned",
        "H200 burst bf16 any", "H200 burst bf16 aligned batched", "H200 burst e4m3 any"}
    aligned = found["summary"]["H100 burst bf16 aligned"]
    assert aligned["best"] == {"shapes": 2, "geometric_mean": 2.0, "percentile_5": 1.15, "least": 1.0, "least_shape": "64x128",
                               "below_0.95": 0}
    assert aligned["cublas"]["geometric_mean"] == 4.0
    assert "H200 burst bf16 any: 0.900 x best over 1 shapes" in said
    assert [run["device"]["name"] for run in found["runs"]] == ["NVIDIA H100", "NVIDIA H200"]
    drawn = (tmp_path / "all.svg").read_text()
    assert drawn.count("<title>") == 8
    assert "bf16 nt H100" in drawn
    (tmp_path / "none.json").write_text("[]")
    assert main(["bench", "--of", str(tmp_path / "none.json")]) == 1


def test_the_worst_rows_are_those_that_are_measured_again():
    rows = [{"ratios": {"best": {"ratio": ratio}}} for ratio in (1.2, 0.7, 0.9)] + [{"ratios": {}}]
    assert figures.worst(rows, 2) == [1, 2]
    assert figures.worst(rows, 0) == []
    assert figures.worst(rows, 9) == [1, 2, 0]


def test_samples_belong_to_the_spans_in_which_they_were_taken():
    readings = iter([power.Sample(1.0, 1980, 300.0), power.Sample(2.0, 1400, 700.0), power.Sample(3.0, 1500, 680.0), None])
    with power.Sampler(SimpleNamespace(read=lambda: next(readings, None)), period_s=0.0) as sampler:
        sampler._thread.join()
    assert sampler.within([(1.5, 3.5)]) == {"mhz": 1450.0, "watts": 690.0}
    assert sampler.within([(4.0, 5.0)]) == {}
    assert sampler.within()["watts"] == pytest.approx(560.0)
    sampler.samples = [power.Sample(1.0, 1980, 300.0, 0), power.Sample(2.0, 1980, 300.0, 61), power.Sample(3.0, 1980, 300.0, 65)]
    assert sampler.within()["celsius"] == 63.0


# A run, and its files.


def row(problem, regime, **times):
    found = {"shape": str(problem), "m": problem.m, "n": problem.n, "k": problem.k, "dtype": problem.dtype, "regime": regime,
             "contestants": {name: {**spread([us, us * 1.1, us]), "tflops": 1e-6 * problem.flops / us,
                                    "gbs": 1e-3 * problem.bytes / us} for name, us in times.items()}}
    found["ratios"] = row_ratios({name: [us] for name, us in times.items()}, "ours", baselines.CEILINGS)
    return found


@pytest.fixture
def card_of_rows(monkeypatch):
    """`run.run` with rows that take no GPU; the problems that were measured."""
    measured = []

    def measure(torch, problem, regime, makers, rounds, sensors, seed, step):
        measured.append((problem, list(makers), rounds))
        time.sleep(0.01)
        return row(problem, regime.name, ours=10.0, cublas=11.0)

    monkeypatch.setattr(run.driver, "available", lambda target=None: True)
    monkeypatch.setattr(run, "library", lambda: SimpleNamespace(cuda=SimpleNamespace(empty_cache=lambda: None)))
    monkeypatch.setattr(run, "device", lambda torch: {"name": "Card"})
    monkeypatch.setattr(run, "reader", lambda torch: None)
    monkeypatch.setattr(run, "row", measure)
    return measured


def test_a_cut_run_leaves_what_it_has(card_of_rows, tmp_path):
    path = tmp_path / "results.json"
    seen = []
    jobs = [("burst", Problem(size, size, size), ("ours", "cublas")) for size in (512, 1024, 2048)]
    results = run.run(jobs, path=path, say=lambda line: seen.append((line, len(json.loads(path.read_text())["rows"]))))
    assert [count for _, count in seen] == [1, 2, 3]
    assert json.loads(path.read_text()) == files.rounded(results)
    assert "1024x1024x1024:bf16:nt" in seen[1][0]
    assert "1.100 x cublas over 3 shapes" in run.closing(results)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    cut = run.run(jobs, seconds=0.005, path=path)
    assert len(cut["rows"]) == 1
    assert "cut after 1 of 3" in run.closing(cut)
    assert card_of_rows[0][2] == REGIMES["burst"].rounds


def test_a_run_that_was_restarted_goes_on(card_of_rows, tmp_path):
    path = tmp_path / "results.json"
    jobs = [("burst", Problem(size, size, size), ("ours", "cublas")) for size in (512, 1024, 2048)]
    run.run(jobs[:1], path=path)
    step = watch.Step()
    step.state["restarts"] = 1
    results = run.run(jobs, path=path, step=step)
    assert [row["m"] for row in results["rows"]] == [512, 1024, 2048]
    assert [problem.m for problem, _, _ in card_of_rows] == [512, 1024, 2048]


WORKER = """
import os, sys, time
from pathlib import Path
from ptxkit.measure import watch
step = watch.Step(Path(sys.argv[1]))
for key in step.state["options"]["keys"]:
    if step.finished(key) or step.begin(key) is not None:
        continue
    if key == "hangs":
        time.sleep(60)
    if key == "falls":
        os.abort()
    if key == "out of service":
        os._exit(70)
    if key == "slow":
        for _ in range(4):
            time.sleep(0.5)
            step.touch()
    step.finish(key)
sys.exit(step.state["options"]["status"])
"""


def test_what_hangs_or_falls_is_skipped_and_the_rest_goes_on(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    note = tmp_path / "note"
    said = []
    keys = ["a", "hangs", "slow", "falls", "out of service", "b"]
    done = watch.watched("bench", {"keys": keys, "status": 1}, note, patience_s=1.5, say=said.append,
                         worker=(sys.executable, str(script)))
    assert done == 1
    step = watch.Step(note)
    assert step.state["done"] == ["a", "slow", "b"]
    assert list(step.state["skip"]) == ["hangs", "falls", "out of service"]
    assert [line.partition(":")[0] for line in said] == ["hangs", "falls", "out of service"]
    assert "it hangs" in said[0]
    assert "status -6" in said[1]


def test_a_worker_that_never_gets_anywhere_is_not_started_forever(tmp_path):
    worker = (sys.executable, "-c", "import os; os.abort()")
    said = []
    assert watch.watched("bench", {}, tmp_path / "note", worker=worker, say=said.append) == 1
    assert len(said) == 1


def test_numbers_are_written_to_six_digits():
    assert files.rounded({"a": [1.23456789, (7, "x", True, None)]}) == {"a": [1.23457, [7, "x", True, None]]}


def test_the_chart_has_a_bar_a_contestant_as_long_as_it_is_fast(tmp_path):
    problem = Problem(512, 512, 512)
    rows = [row(problem, "burst", ours=4.0, cublas=5.0), row(problem, "sustained", ours=8.0, **{"a<b:f": 16.0})]
    report.plot(tmp_path / "chart.svg", {"rows": rows, "device": {"name": "Card & Co"}})
    picture = ElementTree.parse(tmp_path / "chart.svg").getroot()
    bars = [float(rect.get("width")) for rect in picture.iter("{http://www.w3.org/2000/svg}rect") if rect.get("height") == "11"]
    assert len(bars) == 4
    assert [bar / bars[0] for bar in bars] == pytest.approx([1, 0.8, 0.5, 0.25], abs=1e-3)
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ours", "cublas", "a<b:f", f"{problem} burst"} <= set(texts)
    assert texts[-1].endswith("Card & Co")


def test_a_chart_that_cannot_be_drawn(tmp_path, monkeypatch):
    with pytest.raises(report.PlotError, match="nothing was measured"):
        report.plot(tmp_path / "chart.svg", {"rows": []})
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(report.PlotError, match="matplotlib"):
        report.plot(tmp_path / "chart.png", {"rows": [row(Problem(8, 8, 8), "burst", ours=1.0)]})


# On a GPU, with torch.


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.gpu
@pytest.mark.parametrize("text", ["256x512x384:bf16:nt", "256x512x384:f16:nn", "264x512x384:bf16:tn", "256x136x384:f16:tt", "1x512x1024",
                                  "256x512x384:e4m3", "256x512x384:e4m3-rowcol", "128x256x512:e4m3-block", "5x72x136x384",
                                  "12x72x136x384:f16:nn"])
def test_contestants_agree_with_float32_and_an_error_is_seen(torch, text):
    problem = shapes.problem(text)
    data = operands.make(torch, problem, 2)
    names = ["ours"] if problem.block else ["ours", "scaled_mm"] if problem.rowcol else \
        ["ours", "scaled_mm", "cublaslt"] if operands.BYTES[problem.dtype] == 1 else ["ours", "cublas", "cublaslt"]
    for name, make in baselines.baselines(names).items():
        for entry in make(torch, problem, data):
            for one, launch in zip(data, entry.launches, strict=True):
                one.d.fill_(math.nan)
                assert operands.wrong(torch, problem, one), name
                launch()
                assert operands.wrong(torch, problem, one) is None, (name, entry.label)
                one.d[..., -1, 5] += 40 * one.d.float().abs().max().to(one.d.dtype)
                assert operands.wrong(torch, problem, one), name


@pytest.mark.gpu
def test_the_sensors_answer():
    sample = power.Reader().read()
    assert sample is not None
    assert 100 < sample.mhz < 3000
    assert 20 < sample.watts < 1500
