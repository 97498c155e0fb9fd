"""What the tuner keeps: results that are used again, and notes of points at which a run hung or fell, which the next one skips."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ptxkit.cards import H100
from ptxkit.measure.device import Lost
from ptxkit.runtime import driver
from ptxkit.tuning import results
from ptxkit.tuning.tune import Tuned

from .clocked import Clocked, parametric, tune

ROOT = Path(__file__).parents[2]


@pytest.mark.pure
def test_a_kept_result_is_used_and_nothing_is_measured(tmp_path, unassembled):
    device = Clocked(lambda config: 10.0 - config["A"])
    first = tune(device, {"A": range(5)}, tmp_path)
    count = len(device.launched)
    again = tune(device, {"A": range(5)}, tmp_path)
    assert (again.kept, again.config, again.time, again.default) == (True, first.config, first.time, first.default)
    assert len(device.launched) == count
    assert "kept from before" in str(again)
    assert not tune(device, {"A": range(5)}, tmp_path, again=True).kept
    assert not tune(device, {"A": range(4)}, tmp_path).kept                             # another space
    assert not tune(device, {"A": range(5)}, tmp_path, key=lambda y: 1).kept            # another key
    assert not tune(Clocked(lambda config: 1.0, of=H100), {"A": range(5)}, tmp_path / "other").kept
    more = parametric.tune({"A": range(5)}, grid=1, args=(np.zeros(4, np.float32),), device=device, results=tmp_path / "card.json")
    assert not more.kept                                                                # another shape


@pytest.mark.pure
def test_clock_and_power_are_kept_with_the_result(tmp_path, unassembled):
    found = tune(Clocked(lambda config: 10.0, mhz=1755), {"A": range(5)}, tmp_path)
    assert found.sensors == {"mhz": 1755.0, "watts": 500.0, "celsius": 50.0}
    (entry,) = json.loads((tmp_path / "card.json").read_text())["entries"].values()
    assert (entry["mhz"], entry["watts"], entry["us"], entry["regime"]) == (1755.0, 500.0, 10.0, "burst")


@pytest.mark.pure
def test_a_result_of_another_version_or_text_is_not_used(tmp_path, unassembled, monkeypatch):
    device = Clocked(lambda config: 10.0 - config["A"])
    tune(device, {"A": range(5)}, tmp_path)
    monkeypatch.setattr(results, "__version__", "9.9")
    assert not tune(device, {"A": range(5)}, tmp_path).kept
    assert tune(device, {"A": range(5)}, tmp_path).kept
    monkeypatch.setattr(results, "source_hash", lambda kernel: "another")
    assert not tune(device, {"A": range(5)}, tmp_path).kept


@pytest.mark.pure
def test_an_interrupted_run_leaves_what_was_kept_and_nothing_else(tmp_path, unassembled):
    device = Clocked(lambda config: 10.0 - config["A"])
    tune(device, {"A": range(5)}, tmp_path)
    before = (tmp_path / "card.json").read_bytes()
    for at in (0, 1, 7, 30):
        count = 0

        def interrupts(config, at=at):
            nonlocal count
            count += 1
            if count > at:
                raise KeyboardInterrupt
            return 1.0

        with pytest.raises(KeyboardInterrupt):
            tune(Clocked(interrupts), {"A": range(9)}, tmp_path)
        assert (tmp_path / "card.json").read_bytes() == before
        assert not list(tmp_path.glob(".aside-*"))
        for note in tmp_path.glob(".*.note"):           # it may have hung there: only that point is left out
            assert json.loads(note.read_text())["at"].startswith("A=")
            note.unlink()
    assert len(tune(device, {"A": range(9)}, tmp_path).times) == 9


@pytest.mark.pure
def test_a_point_that_hangs_ends_the_run_and_is_skipped_by_the_next(tmp_path, unassembled):
    class Hanging(Clocked):
        def finish(self, patience_s: float) -> None:
            assert patience_s == 3.0
            if self.launched and self.launched[-1]["A"] == 2:
                raise Lost("it does not end")

    device = Hanging(lambda config: 10.0 - config["A"])
    with pytest.raises(Lost, match=r"parametric A=2: it does not end. .* start it again, and this point is skipped"):
        tune(device, {"A": range(5)}, tmp_path, patience_s=3.0)
    found = tune(device, {"A": range(5)}, tmp_path, patience_s=3.0)
    assert found.config == {"A": 4}
    assert found.counts == {"hang": 1}
    assert "an earlier run hung or fell at it; delete" in found.skipped[0].why
    assert tune(device, {"A": range(5)}, tmp_path, patience_s=3.0, again=True).counts == {"hang": 1}
    for note in tmp_path.glob(".*.note"):
        note.unlink()
    with pytest.raises(Lost):
        tune(device, {"A": range(5)}, tmp_path, patience_s=3.0, again=True)


@pytest.mark.pure
def test_a_process_that_falls_leaves_its_point_to_be_skipped(tmp_path):
    program = textwrap.dedent(f"""
        import os, numpy as np
        from ptxkit.dsl.kernel import Kernel
        from tests.tuning.clocked import Clocked, parametric
        Kernel.assemble = lambda self, **config: None
        device = Clocked(lambda config: os._exit(9) if config["A"] == 3 else 10.0 - config["A"])
        print(parametric.tune({{"A": range(5)}}, grid=1, args=(np.zeros(2, np.float32),), device=device, results={str(tmp_path)!r}).config)
    """)
    done = [subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
            for _ in range(2)]
    assert [each.returncode for each in done] == [9, 0], done[1].stderr
    assert done[1].stdout.strip() == "{'A': 4}"


@pytest.mark.pure
def test_two_that_tune_the_same_measure_it_once(tmp_path, unassembled):
    devices = [Clocked(lambda config: (time.sleep(0.001), 10.0 - config["A"])[1]) for _ in range(3)]
    found: list[Tuned] = []
    threads = [threading.Thread(target=lambda device=device: found.append(tune(device, {"A": range(6)}, tmp_path))) for device in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.kept for one in found) == [False, True, True]
    assert {tuple(one.config.items()) for one in found} == {(("A", 5),)}


# On a GPU.


def test_nothing_is_freed_of_a_device_that_a_launch_does_not_let_go(monkeypatch):
    monkeypatch.setattr(driver, "_abandoned", set())
    monkeypatch.setattr(driver, "on", lambda ordinal: pytest.fail("to free would wait for the launch"))
    driver.abandon(3)
    driver.free(64, 3)
    with pytest.raises(pytest.fail.Exception):
        driver.free(64, 2)


def said_twice(program):
    """What two runs of a program print, each in a process of its own."""
    return [subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False).stdout
            for _ in range(2)]


@pytest.mark.gpu
def test_on_a_gpu_a_point_that_hangs_is_named_and_then_skipped(tmp_path):
    program = textwrap.dedent(f"""
        import os, sys
        import numpy as np
        from ptxkit import Ptr, device_array, kernel
        from ptxkit.flow import loop
        from ptxkit.ptx import ld, mov, st
        from ptxkit.types import u32

        @kernel(block=32)
        def waits(x: Ptr[u32], *, FOR: int = 0) -> None:
            with loop() as waiting:
                waiting.break_if(ld.volatile.global_.u32(x) == FOR)
            st.global_.u32(x + 1, mov.u32(FOR))

        x = device_array(np.zeros(2, np.uint32))
        try:
            print(waits.tune({{"FOR": (0, 1)}}, grid=1, args=(x,), patience_s=2.0, results={str(tmp_path)!r}))
        except Exception as error:
            print(error)
        sys.stdout.flush()
        os._exit(0)
    """)
    said = said_twice(program)
    assert "FOR=1: it does not end" in said[0]
    assert "1 hung or fell before" in said[1]


@pytest.mark.gpu
def test_on_a_gpu_an_illegal_access_is_named_and_then_skipped(tmp_path):
    program = textwrap.dedent(f"""
        import os, sys
        import numpy as np
        from ptxkit import Ptr, device_array, kernel
        from ptxkit.ptx import mov, st
        from ptxkit.types import u32

        @kernel(block=32)
        def far(x: Ptr[u32], *, AWAY: int = 0) -> None:
            st.global_.u32(x.at(mov.u32(AWAY)), mov.u32(1))

        try:
            print(far.tune({{"AWAY": (0, 1 << 31)}}, grid=1, args=(device_array(np.zeros(2, np.uint32)),), results={str(tmp_path)!r}))
        except Exception as error:
            print(error)
        sys.stdout.flush()
        os._exit(0)
    """)
    said = said_twice(program)
    assert "AWAY=2147483648" in said[0]
    assert "1 hung or fell before" in said[1]
