"""How a bench takes time, on a card that keeps time, and what its sensors say meanwhile."""

from __future__ import annotations

import gc
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.gemm.tools.bench import baselines, operands, run
from ptxkit.gemm.tools.bench.shapes import Problem
from ptxkit.measure import power, regimes, watch
from ptxkit.measure.regimes import REGIMES, Entry
from ptxkit.measure.timer import TorchTimer

from .virtual_card import Card, Matrix


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


def test_samples_belong_to_the_spans_in_which_they_were_taken():
    readings = iter([power.Sample(1.0, 1980, 300.0), power.Sample(2.0, 1400, 700.0), power.Sample(3.0, 1500, 680.0), None])
    with power.Sampler(SimpleNamespace(read=lambda: next(readings, None)), period_s=0.0) as sampler:
        sampler._thread.join()
    assert sampler.within([(1.5, 3.5)]) == {"mhz": 1450.0, "watts": 690.0}
    assert sampler.within([(4.0, 5.0)]) == {}
    assert sampler.within()["watts"] == pytest.approx(560.0)
    sampler.samples = [power.Sample(1.0, 1980, 300.0, 0), power.Sample(2.0, 1980, 300.0, 61), power.Sample(3.0, 1980, 300.0, 65)]
    assert sampler.within()["celsius"] == 63.0


@pytest.mark.gpu
def test_the_sensors_answer():
    sample = power.Reader().read()
    assert sample is not None
    assert 100 < sample.mhz < 3000
    assert 20 < sample.watts < 1500
