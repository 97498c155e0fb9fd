"""The ladder: every step is right and clean on the CPU device, assembles as it says, and the harness survives a bad step."""

from __future__ import annotations

import itertools
import json
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from ptxkit.gemm.__main__ import main
from ptxkit.gemm.ladder import report, simulated, supervise
from ptxkit.gemm.ladder.parts import PHASES, of_tiles
from ptxkit.gemm.ladder.rung import ShapeError
from ptxkit.gemm.ladder.rungs import BY_NAME, NAMES, OURS, RUNGS
from ptxkit.gemm.ladder.step12_hilbert import curve, place

by_name = pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
cheap = pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung.step != 2], ids=lambda rung: rung.name)   # 2 is much unrolled
PERSISTENT = [rung for rung in RUNGS if rung.persistent]


def right(outcome: simulated.Outcome) -> None:
    assert outcome.wrong == 0
    assert outcome.report.verdict == "clean", str(outcome.report)
    assert outcome.report.every_schedule


def one_tile(rung):
    rows, columns, depth = rung.tile
    return rows * rung.cluster, columns, depth


@pytest.mark.thinned(2)
@pytest.mark.pure
@by_name
def test_a_step_is_right_and_clean(rung):
    right(simulated.run(rung, *simulated.small(rung)))
    right(simulated.run(rung, *one_tile(rung)))


@pytest.mark.thinned(4)
@pytest.mark.pure
@pytest.mark.parametrize("rung", PERSISTENT, ids=lambda rung: rung.name)
@pytest.mark.parametrize(("resident", "schedule", "seed"), [(2, "random", 1), (3, "adversarial", 0)])
def test_tiles_dealt_unevenly_in_other_schedules(rung, resident, schedule, seed):
    rows, columns, depth = rung.tile
    right(simulated.run(rung, 3 * rows * rung.cluster, columns, 3 * depth, resident=resident, schedule=schedule, seed=seed))


@pytest.mark.pure
@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung.step in (3, 5, 6)], ids=lambda rung: rung.name)
def test_other_schedules_of_one_tile_a_cta(rung):
    rows, columns, depth = rung.tile
    right(simulated.run(rung, rows, 2 * columns, 7 * depth, schedule="random", seed=3))


@pytest.mark.pure
@cheap
def test_a_step_with_marks_is_right_and_accounts_for_its_tiles(rung):
    m, n, k = one_tile(rung)
    outcome = simulated.run(rung, m, n, k, marks=True)
    right(outcome)
    timeline = outcome.report.timeline
    assert timeline.notes() == []
    found = of_tiles((track.cta, track.role, track.clocks_of) for track in timeline.tracks)
    assert found["tiles"] == rung.ctas(m, n, 1)
    assert [found[phase] > 0 for phase in PHASES] == [phase != "load" or rung.step > 0 for phase in PHASES]
    if rung.step >= 5:
        (producer, *_), (consumer, *_) = timeline.of_role("producer"), timeline.of_role("consumer")
        stages = k // rung.tile[2]
        assert [len(producer.clocks_of(name)) for name in ("wait", "load")] == [stages, stages]
        assert [len(consumer.clocks_of(name)) for name in ("wait", "mma", "store")] == [stages, stages, 1]


@pytest.mark.pure
@by_name
def test_static_rules_find_nothing(rung):
    assert rung.kernel.check() == ()


@pytest.mark.pure
@by_name
def test_a_product_of_broken_tiles_is_refused_with_the_nearest_ones(rung):
    m, n, k = one_tile(rung)
    for shape, letter in (((m + 1, n, k), "M"), ((m, n + 1, k), "N"), ((m, n, k + 1), "K")):
        if letter == "K" and k == 1:
            continue
        with pytest.raises(ShapeError, match=f"whole tiles: {letter} = "):
            rung.require(*shape)
        assert rung.name in str(rung.problem(*shape))
    assert rung.problem(4096, 4096, 4096) is None
    assert "take 128" in str(BY_NAME["larger_tile"].problem(100, 128, 64))
    assert "take 256 or 512" in str(BY_NAME["hilbert"].problem(300, 256, 64))


@pytest.mark.thinned(2)
@pytest.mark.ptxas
@by_name
def test_a_step_assembles_without_spills_and_with_setmaxnreg(rung):
    for marks in (False, True) if rung.step >= 3 else (False,):
        assembly = rung.kernel.assemble(marks=marks)
        used = assembly.resources[rung.name]
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)
        assert assembly.findings == ()
        assert used.registers == 168 or rung.step < 6
    sass = rung.kernel.sass()
    assert ("USETMAXREG.TRY_ALLOC" in sass and "USETMAXREG.DEALLOC" in sass) == (rung.step >= 6)
    assert ("HGMMA.64x256x16.F32.BF16" in sass) == (rung.step >= 6)
    assert ("MULTICAST" in sass) == (rung.cluster > 1)


@pytest.mark.pure
def test_steps_without_marks_hold_no_trace_of_them():
    for rung in RUNGS:
        assert "%clock64" not in rung.kernel.ptx()
        assert "%clock64" in rung.kernel.ptx(marks=True)


@pytest.mark.pure
@pytest.mark.parametrize("side", [1, 2, 4, 8, 32])
def test_the_curve_visits_every_place_once_in_steps_of_one(side):
    points = [place(side, i) for i in range(side * side)]
    assert set(points) == {(row, column) for row in range(side) for column in range(side)}
    assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in itertools.pairwise(points))


@pytest.mark.pure
@pytest.mark.parametrize(("m", "n"), [(256, 256), (768, 512), (256, 2048), (2048, 256), (4096, 4096)])
def test_the_table_holds_every_tile_once(m, n):
    table = curve(m, n)
    assert sorted((word >> 16, word & 0xFFFF) for word in table) == [(row, column) for row in range(m // 256) for column in range(n // 256)]


@pytest.mark.pure
def test_a_wrong_step_is_noticed(monkeypatch):
    rung = BY_NAME["tensor_cores"]
    real = type(rung.kernel).simulate

    def spoilt(kernel, grid, a, b, d, *rest, **how):
        outcome = real(kernel, grid, a, b, d, *rest, **how)
        d[-1, -1] ^= 1
        return outcome

    monkeypatch.setattr(type(rung.kernel), "simulate", spoilt)
    outcome = simulated.run(rung, 64, 64, 64)
    assert outcome.wrong == 1
    assert not outcome.fine
    assert "1 elements WRONG" in str(outcome)


# --------------------------------------------------------------------------------------------------- the harness

WORKER = """
    import json, os, sys, time
    task, names = sys.argv[1], sys.argv[sys.argv.index("--names") + 1].split(",")
    def say(**what): print(json.dumps(what), flush=True)
    def fate(name):
        say(begin=name)
        if (task, name) == ("verify", "naive"): time.sleep(60)
        if (task, name) == ("verify", "pipelined"): sys.exit("CUDA_ERROR_ILLEGAL_ADDRESS")
        if (task, name) == ("measure", "larger_tile"): os._exit(3)
    print("some library talks")
    for name in names:
        fate(name)
        if task == "verify":
            for shape in ([512, 768, 320], [4096] * 3):
                say(name=name, shape=shape, wrong="an error" if name == "two_consumers" and shape[0] == 4096 else None)
        if task == "profile" and name != "ours":
            say(name=name, clocks={"load": 10.0, "mma": 1234.5, "store": 99.0, "at_rate": 1000.0, "tiles": 4.0})
    if task == "measure":
        def figures(us): return {"us": us, "p10": us * .9, "p90": us * 1.1, "rounds": 5, "tflops": 137e3 / us,
                                 "of_cublas": {"ratio": 200 / us, "p10": 190 / us, "p90": 210 / us}, "of_ceiling": {"ratio": 150 / us}}
        found = {name: figures(1000.0 / (i + 1)) for i, name in enumerate([*names, "cublas", "wgmma"])}
        for name in names[1:]:
            found[name]["gain"] = {"ratio": 1.5, "p10": 1.4, "p90": 1.6, "over": "x"}
        say(measured={"size": 4096, "regime": "burst", "sets": 3, "mhz": 1980.0, "watts": 500.0, "results": found},
            device={"name": "a card", "multiprocessors": 132, "driver": "13.0"})
"""


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, list[str]]:
    """The ladder with a worker in which steps hang, crash, fail and are wrong."""
    script = tmp_path_factory.mktemp("worker") / "worker.py"
    script.write_text(textwrap.dedent(WORKER), encoding="utf-8")
    said: list[str] = []
    found = supervise.ladder(4096, rounds=5, say=said.append, patience_s=2.0, worker=(sys.executable, str(script)))
    device = found.pop("device")
    return {"schema": 1, "date": "today", "command": "a command", "device": device, "sizes": [found]}, said


@pytest.mark.pure
def test_bad_steps_are_left_out_with_the_reason_and_the_others_measured(survived):
    results, said = survived
    (found,) = results["sizes"]
    bad = {"naive": "hangs", "pipelined": "CUDA_ERROR_ILLEGAL_ADDRESS", "two_consumers": "wrong at 4096x4096x4096: an error",
           "larger_tile": "status 3"}
    assert set(found["left_out"]) == set(bad)
    for name, word in bad.items():
        assert word in found["left_out"][name]
        assert any(name in line for line in said)
    good = set(NAMES) - set(bad)
    assert set(found["results"]) == good | {"cublas", "wgmma"}
    assert all(found["results"][name]["clocks"]["mma"] == 1234.5 for name in good - {OURS})


@pytest.mark.pure
def test_the_tables_say_it_all(survived, tmp_path):
    results, _ = survived
    (found,) = results["sizes"]
    text = report.table(results)
    assert "1980 MHz" in text
    for name in NAMES:
        line = next(line for line in text.splitlines() if f" {name} " in line or line.startswith(f"{name} "))
        assert "left out:" in line if name in found["left_out"] else f"{found['results'][name]['tflops']:.0f}" in line
    page = tmp_path / "page.md"
    page.write_text(f"# before\n\n{report.BEGIN}\nold\n{report.END}\n\nafter\n", encoding="utf-8")
    report.fill(page, results)
    once = page.read_text(encoding="utf-8")
    report.fill(page, results)
    assert page.read_text(encoding="utf-8") == once
    assert once.startswith("# before\n\n")
    assert once.endswith(f"{report.END}\n\nafter\n")
    assert "old" not in once
    columns = {line.count("|") for line in once.splitlines() if line.startswith("|")}
    assert columns == {len(report.COLUMNS) + 1}
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(report.ReportError, match="between one line"):
        report.fill(page, results)


@pytest.mark.pure
def test_the_chart_is_a_png(survived, tmp_path):
    pytest.importorskip("matplotlib")
    report.plot(tmp_path / "chart.png", survived[0])
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.pure
def test_recorded_results_fill_a_page_by_the_command(survived, tmp_path, capsys):
    recorded, page = tmp_path / "ladder.json", tmp_path / "page.md"
    recorded.write_text(json.dumps(survived[0]), encoding="utf-8")
    page.write_text(f"{report.BEGIN}\n{report.END}\n", encoding="utf-8")
    assert main(["ladder", "--results", str(recorded), "--docs", str(page)]) == 1      # steps were left out
    assert "a command" in page.read_text(encoding="utf-8")
    assert "tensor_cores" in capsys.readouterr().out
    recorded.write_text("{}", encoding="utf-8")
    assert main(["ladder", "--results", str(recorded)]) == 1
    assert "this is not what" in capsys.readouterr().err


@pytest.mark.pure
def test_the_command_on_the_cpu_device(monkeypatch, capsys):
    monkeypatch.setattr(simulated, "RUNGS", [BY_NAME["naive"], BY_NAME["tensor_cores"]])
    assert main(["ladder", "--device", "sim"]) == 0
    out = capsys.readouterr().out
    assert out.count("right; verdict: clean") == 2
    assert "not a GPU: none failed" in out
    assert main(["ladder", "--device", "sim", "--size", "100"]) == 1
    assert "works on whole tiles" in capsys.readouterr().err
    assert main(["ladder", "--device", "sim", "--plot", "x.png"]) == 1
    assert "need a GPU" in capsys.readouterr().err


@pytest.mark.pure
def test_the_page_names_every_step_and_can_be_filled():
    page = (Path(__file__).parents[2] / "docs" / "ladder.md").read_text(encoding="utf-8")
    assert page.count(report.BEGIN) == page.count(report.END) == 1
    for rung in RUNGS:
        module = sys.modules[rung.kernel.__module__]
        assert f"**{rung.step}, [" in page
        assert f"gemm/ladder/{Path(str(module.__file__)).name}" in page


@pytest.mark.gpu
def test_the_ladder_on_a_gpu():
    pytest.importorskip("torch")
    found = supervise.ladder(1024, rounds=3, say=lambda line: None)
    assert found["left_out"] == {}
    assert set(found["results"]) == {*NAMES, "cublas", "wgmma"}
    assert all(np.isfinite(seen["us"]) for seen in found["results"].values())
