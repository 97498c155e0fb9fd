"""Attention's ladder: every step is within the bound of float64 and certified for every schedule, and assembles as it says."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from ptxkit.attention import __main__ as command
from ptxkit.attention.ladder import report, simulated, worker
from ptxkit.attention.ladder.clocks import PHASES, of_tiles
from ptxkit.attention.ladder.rung import Rung, ShapeError
from ptxkit.attention.ladder.rungs import BY_NAME, NAMES, RUNGS
from ptxkit.attention.tools.bench import BACKENDS
from ptxkit.gemm.tools.bench import stub
from ptxkit.measure.power import Reader
from ptxkit.measure.watch import Step
from ptxkit.runtime import driver
from ptxkit.timeline.launched import Buffer

from .cases import Case

by_name = pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)


def right(outcome: simulated.Outcome) -> None:
    assert outcome.share <= 1, outcome
    assert outcome.report.verdict == "clean", str(outcome.report)
    assert outcome.report.every_schedule


@pytest.mark.pure
@by_name
def test_a_step_is_right_and_certified(rung: Rung) -> None:
    right(simulated.run(rung, simulated.small(rung)))


@pytest.mark.pure
@pytest.mark.thinned(5)
@by_name
def test_a_step_with_a_causal_mask_is_right_and_certified(rung: Rung) -> None:
    right(simulated.run(rung, simulated.small(rung, True), True))


@pytest.mark.pure
@pytest.mark.thinned(8)
@by_name
def test_several_heads_of_another_size_in_another_schedule(rung: Rung) -> None:
    """Falling keys too: the first block has the largest scores, and nothing is rescaled after it."""
    right(simulated.run(rung, simulated.small(rung, True, 64), True, heads=2, HEAD=128, BN=64, grown=0.3, schedule="random", seed=1))


@pytest.mark.pure
def test_a_shape_that_is_not_whole_tiles_is_refused() -> None:
    for rung in RUNGS:
        with pytest.raises(ShapeError, match="works on whole tiles: 4097 rows"):
            rung.require(4097, 128)
        assert rung.name in str(rung.problem(4097, 128))
        assert rung.problem(4096, 128) is None
    assert "take 64 or 128" in str(BY_NAME["tensor_cores"].problem(100, 32))
    assert "take 96 or 104" in str(BY_NAME["loop"].problem(100, 128))


@pytest.mark.pure
def test_a_wrong_or_unwritten_element_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rung = BY_NAME["loop"]
    real = type(rung.kernel).simulate
    for spoil in (0x3F80, simulated.UNWRITTEN):

        def spoilt(kernel: Any, grid: Any, q: Any, k: Any, v: Any, o: Any, *rest: Any, spoil: int = spoil, **how: Any) -> Any:
            outcome = real(kernel, grid, q, k, v, o, *rest, **how)
            o[-1, -1, -1] = spoil
            return outcome

        monkeypatch.setattr(type(rung.kernel), "simulate", spoilt)
        outcome = simulated.run(rung, 8)
        assert not outcome.fine
        assert "WRONG" in str(outcome)


@pytest.mark.thinned(6)
@pytest.mark.ptxas
@by_name
def test_a_step_assembles_without_spills_and_with_setmaxnreg(rung: Rung) -> None:
    for causal, marks in ((False, False), (True, True)):
        assembly = rung.kernel.assemble(causal=causal, marks=marks)
        used = assembly.resources[rung.name]
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)
        assert assembly.findings == ()                                      # among them that ptxas serialises wgmma
        assert used.registers == 168 or rung.step < 4
    sass = rung.kernel.sass()
    assert ("USETMAXREG.TRY_ALLOC" in sass and "USETMAXREG.DEALLOC" in sass) == (rung.step >= 4)
    assert ("HGMMA.64x128x16.F32.BF16" in sass) == (rung.step >= 1)
    assert ("UTMALDG" in sass) == (rung.step >= 2)
    assert ("BAR.ARV" in sass) == (rung.step >= 5)


def phases(timeline: Any) -> dict[str, float]:
    return of_tiles((track.cta, track.role, track.clocks_of) for track in timeline.tracks)


@pytest.mark.pure
@pytest.mark.thinned(6)
@by_name
def test_a_step_with_marks_is_right_and_accounts_for_its_tiles(rung: Rung) -> None:
    rows = simulated.small(rung)
    outcome = simulated.run(rung, rows, marks=True)
    right(outcome)
    timeline = outcome.report.timeline
    assert timeline is not None
    assert timeline.notes() == []
    found = phases(timeline)
    assert found["tiles"] == rows // rung.BM
    there = {"load": rung.step >= 1, "products": True, "softmax": rung.step >= 1, "turn": rung.step >= 5, "store": True}
    assert {phase: found[phase] > 0 for phase in PHASES} == there
    if rung.step >= 3:
        (consumer, *_), (producer, *_) = timeline.of_role("consumer"), timeline.of_role("producer")
        blocks = rows // 32
        assert len(producer.clocks_of("load")) == 2 * blocks
        assert len(consumer.clocks_of("store")) == 1


@pytest.mark.pure
def test_the_clocks_of_the_final_kernel_are_all_of_its_tiles() -> None:
    case = Case(1, 1, 1, 128, 48, 64)
    grid, named, parameters = case.proof()
    timeline = worker.forward.simulate(grid, **named, **parameters, marks=True).timeline
    assert timeline is not None
    found = phases(timeline)
    assert found["tiles"] == 1
    (tile,) = timeline.of_role("consumer")[0].clocks_of("tile")
    assert sum(found[phase] for phase in PHASES) == tile
    assert min(found["load"], found["products"], found["softmax"], found["store"]) > 0


@pytest.mark.pure
def test_no_stores_are_no_tiles() -> None:
    assert of_tiles([]) == {"tiles": 0.0}


@pytest.mark.pure
def test_launches_with_marks_have_the_arguments_that_the_kernels_take() -> None:
    with stub.installed() as calls:
        launched = worker._marked_final([stub.array("bf16", 1, 2, 256, 128) for _ in range(4)], True)
        rung = BY_NAME["pingpong"]
        arrays = [stub.array("bf16", 2, 256, 128) for _ in range(4)]
        step = rung.kernel.compile(marks=True), rung.grid(2, 256), rung.arguments(*arrays), {}
        for compiled, grid, arguments, named in (launched, step):
            compiled(grid, *arguments, **named, **Buffer(compiled, grid, 8).arguments)
        assert calls.calls["cuLibraryLoadData"] == 2


# --------------------------------------------------------------------------------------------------- the command

def timed() -> dict[str, Any]:
    """What the worker writes for a mask, of invented times: every step is twice as fast as the one before, step 0 in rounds of its own."""
    times = {name: [1000.0 / 2 ** i, 1010.0 / 2 ** i, 1020.0 / 2 ** i] for i, name in enumerate((*NAMES, *BACKENDS))}
    times["loop"] = [5000.0, 5000.0]
    del times["copied_ahead"]
    results: dict[str, dict[str, Any]] = {name: {"us": us[1], "p10": us[0], "p90": us[-1], "tflops": 1e5 / us[1]}
                                          for name, us in times.items()}
    worker.compare(results, times)
    results["pingpong"]["clocks"] = {**dict.fromkeys(PHASES, 1234.0), "tiles": 2.0}
    return {"mask": "causal", "length": 4096, "heads": 64, "head": 128, "regime": "burst", "rounds": 3, "mhz": 1700.0, "watts": 500.0,
            "results": results, "left_out": {"copied_ahead": "it hangs"}}


@pytest.mark.pure
def test_steps_are_compared_with_the_step_before_the_final_kernel_and_torch() -> None:
    results = timed()["results"]
    assert results["pingpong"]["gain"] == {"ratio": 2.0, "p10": 2.0, "p90": 2.0, "over": "two_consumers"}
    assert results["specialised"]["gain"]["over"] == "tensor_cores"                      # the step between them was left out
    assert results["tensor_cores"]["gain"] == {"ratio": pytest.approx(5000 / 505), "over": "loop"}       # not of the same rounds
    assert results["overlapped"]["of"]["ours"]["ratio"] == 0.5
    assert set(results["ours"]["of"]) == set(BACKENDS)


@pytest.mark.pure
def test_the_table_has_every_contestant() -> None:
    found = timed()
    json.dumps(found)
    text = report.table({"masks": [found], "device": {"name": "a card", "multiprocessors": 132, "driver": "13.0", "torch": "2"}})
    assert "causal, 64 heads of 4096 x 128, bf16; a card, 132 SMs" in text
    assert "1700 MHz" in text
    for name in (*NAMES, *BACKENDS):
        (line,) = [line for line in text.splitlines() if name in line.split()[:2]]
        assert ("left out: it hangs" in line) == (name == "copied_ahead")
        assert ("1,234" in line) == (name == "pingpong")


@pytest.mark.pure
def test_without_a_gpu_the_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr("ptxkit.attention.ladder.command.RUNGS", [BY_NAME["loop"]])
    monkeypatch.setattr(driver, "available", lambda target: False)
    assert command.main(["ladder"]) == 0
    out, err = capsys.readouterr()
    assert out.count("right; verdict: clean") == 2
    assert "not a GPU: none failed" in out
    assert "there is no Hopper GPU here" in err
    assert command.main(["ladder", "-o", str(tmp_path / "x.json")]) == 2
    assert "need a Hopper GPU" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()
    monkeypatch.setattr(driver, "probe", lambda: None)
    assert command.main(["ladder", "--device", "gpu", "--length", "4097"]) == 1
    assert "works on whole tiles" in capsys.readouterr().err


@pytest.mark.gpu
def test_the_ladder_on_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    given = {"masks": ["full", "causal"], "length": 1024, "heads": 8, "rounds": 3, "json": str(tmp_path / "found.json"), "command": "",
             "kept": str(tmp_path / "kept.json")}
    assert worker.worker(given, Step()) == 0
    for found in json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["masks"]:
        assert set(NAMES) <= set(found["results"])
        assert all(found["results"][name]["clocks"]["tiles"] > 0 for name in NAMES)


class Clock:
    """A card that does at once what it is given, and says that each launch took 10 us."""

    class Event:
        def record(self) -> None: ...
        def synchronize(self) -> None: ...
        def elapsed_time(self, end: Any) -> float:
            return 0.01

    class Graph:
        def replay(self) -> None: ...

    def __init__(self, torch: Any) -> None: ...
    def event(self) -> Clock.Event:
        return self.Event()

    def aside(self) -> Any:
        return contextlib.nullcontext()

    def graph(self, launches: Any) -> Clock.Graph:
        return self.Graph()

    def hold(self) -> None: ...
    def synchronize(self) -> None: ...


@pytest.mark.pure
def test_the_worker_leaves_out_what_is_wrong_and_what_cannot_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    three = tuple(torch.randn(1, 2, 128, 64, generator=torch.Generator().manual_seed(i)).to(torch.bfloat16) for i in range(3))

    def entry(name: str, causal: bool) -> worker.Entry:
        if name == "cudnn":
            raise RuntimeError("No available kernel.\nAborting execution.")
        out = torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in three), is_causal=causal).to(torch.bfloat16)
        if name == "pingpong":
            out[0, 0, 5, 7] += 1
        return worker.Entry(name, [lambda: None], keeps=(lambda: out,))

    class Cuda:
        def synchronize(self) -> None: ...
        def empty_cache(self) -> None: ...

    monkeypatch.setattr(torch, "cuda", Cuda())
    for name, made in {"library": lambda: torch, "device": lambda _: {"name": "a card", "multiprocessors": 1, "driver": "1", "torch": "2"},
                       "reader": lambda _: Reader(), "TorchTimer": Clock, "_sets": lambda *_: [three],
                       "_rung": lambda torch, rung, sets, causal: entry(rung.name, causal),
                       "ours": lambda torch, sets, causal: entry("ours", causal),
                       "torchs": lambda torch, name, sets, causal: entry(name, causal),
                       "clocks": lambda torch, name, *_: {**dict.fromkeys(PHASES, 7.0), "tiles": 1.0}}.items():
        monkeypatch.setattr(worker, name, made)
    given = {"masks": ["full", "causal"], "length": 128, "heads": 2, "rounds": 1, "json": str(tmp_path / "found.json"), "command": "",
             "kept": str(tmp_path / "kept.json")}
    assert worker.worker(given, Step()) == 1
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [one["mask"] for one in found["masks"]] == ["full", "causal"]
    for one in found["masks"]:
        assert set(one["left_out"]) == {"pingpong", "cudnn"}
        assert "times its bound" in one["left_out"]["pingpong"]
        assert one["left_out"]["cudnn"] == "RuntimeError: No available kernel."
        assert set(one["results"]) == {*NAMES, "flash"} - {"pingpong"}
        assert all(seen["us"] > 0 and seen["share_of_bound"] <= 1 for seen in one["results"].values())
        assert one["results"]["overlapped"]["gain"]["over"] == "two_consumers"
        assert all(one["results"][name]["clocks"]["softmax"] == 7 for name in NAMES if name != "pingpong")
    assert capsys.readouterr().out.count("left out: Wrong: an error is") == 2
