"""Figures of a bench: quantiles, ratios, summaries and charts."""

from __future__ import annotations

import json
import random
import statistics
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.gemm.__main__ import main
from ptxkit.gemm.tools.bench import figures, report
from ptxkit.gemm.tools.bench.shapes import Problem, parse
from ptxkit.measure.figures import paired, quantile, row_ratios

from .measured import row


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
