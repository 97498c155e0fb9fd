"""Laws of the bench: what its options ask for, who is measured, and how a run goes on when it is cut, hangs or falls."""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from ptxkit.gemm.__main__ import main
from ptxkit.gemm.tools import problems
from ptxkit.gemm.tools.bench import baselines, command, grouped_data, operands, run, shapes
from ptxkit.gemm.tools.bench.grouped_cases import case
from ptxkit.gemm.tools.bench.shapes import Problem
from ptxkit.measure import files, watch
from ptxkit.measure.regimes import REGIMES

from .measured import row


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


# A run, and its files.


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
        for _ in range(16):
            time.sleep(0.15)
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
    done = watch.watched("bench", {"keys": keys, "status": 1}, note, patience_s=0.5, say=said.append,
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


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize(("text", "names", "sentence"), [
    ("128x256x640:e4m3-block", ["scaled_mm"], "M and the blocks of K are multiples of 4"),
    ("126x256x512:e4m3-block", ["scaled_mm"], "M and the blocks of K are multiples of 4"),
    ("128x256x512:e4m3-block", ["scaled_mm_slow"], "ask for scaled_mm"), ("128x256x512:e4m3-block:nn", ["scaled_mm"], "layout nt"),
    ("2x128x256x512:e4m3", ["scaled_mm"], "single products")])
def test_what_scaled_mm_does_not_take(text, names, sentence):
    (make,) = baselines.baselines(names).values()
    with pytest.raises(baselines.NotImplementedHere, match=sentence):
        make(None, shapes.problem(text), ())


@pytest.mark.parametrize(("depth", "blocks"), [(12, 5), (9, 5), (5, 1), (1, 3)])
def test_block_scales_lie_as_scaled_mm_takes_them(torch, depth, blocks):
    """Contiguous along K, and lines a multiple of 4 apart."""
    scales = torch.rand(blocks, depth).T
    padded = baselines._padded(torch, scales)
    assert torch.equal(padded, scales)
    assert padded.stride() == (1, -(-depth // 4) * 4)


class OnTheCpu:
    """torch, whose arrays are on the CPU wherever they are asked for."""

    def __init__(self, torch):
        self.torch = torch

    def __getattr__(self, name):
        found = getattr(self.torch, name)
        return functools.partial(self._call, found) if callable(found) and not isinstance(found, type) else found

    @staticmethod
    def _call(function, *given, **options):
        return function(*given, **{**options, "device": "cpu"} if "device" in options else options)


@pytest.mark.parametrize("text", ["24x40x144:bf16:nt", "24x40x144:f16:nn", "24x40x144:bf16:tn:+1", "24x40x144:f32:tt",
                                  "3x24x40x144:bf16:nn", "24x48x144:e4m3", "24x48x144:e4m3-rowcol",
                                  "24x160x512:e4m3-block", "26x272x640:e4m3-block", "3x128x384:e4m3-block"])
def test_operands_lie_as_the_configuration_in_the_results_was_chosen_for(torch, text):
    shape = shapes.problem(text)
    data, wanted = operands.make(OnTheCpu(torch), shape, 1)[0], problems.arrays_described(shape)
    for name, given in (("a", data.a), ("b", data.b), ("out", data.d), ("a_scale", data.a_scale), ("b_scale", data.b_scale)):
        assert laid_out(given) == laid_out(getattr(wanted, name)), name


@pytest.mark.parametrize("text", ["3x5x128x256:bf16", "3x5x256x256:bf16:gated", "3x5x128x256:fp8", "3x6x256x640:fp8-block",
                                  "2x5x256x256:fp8:quantised", "2x5x512x512:fp8-block:gated:quantised"])
def test_operands_of_groups_lie_as_the_configuration_was_chosen_for(torch, text):
    one = case(text)
    data, wanted = grouped_data.make(OnTheCpu(torch), one), problems.arrays_of(one)
    for name in ("x", "w", "out", "x_scale", "w_scale", "out_scale"):
        assert laid_out(getattr(data, name)) == laid_out(getattr(wanted, name)), name


def laid_out(array):
    """The extents of a tensor or of an array that is only described, each with its stride if that has a meaning."""
    if array is None:
        return None
    strides = array.stride() if callable(getattr(array, "stride", None)) else array.strides
    return [(extent, stride if extent > 1 else None) for extent, stride in zip(array.shape, strides, strict=True)]


# On a GPU, with torch.


@pytest.mark.gpu
@pytest.mark.parametrize("text", ["256x512x384:bf16:nt", "256x512x384:f16:nn", "264x512x384:bf16:tn", "256x136x384:f16:tt", "1x512x1024",
                                  "256x512x384:e4m3", "256x512x384:e4m3-rowcol", "128x256x512:e4m3-block", "5x72x136x384",
                                  "12x72x136x384:f16:nn"])
def test_contestants_agree_with_float32_and_an_error_is_seen(torch, text):
    problem = shapes.problem(text)
    data = operands.make(torch, problem, 2)
    names = ["ours", "scaled_mm"] if problem.block or problem.rowcol else \
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
