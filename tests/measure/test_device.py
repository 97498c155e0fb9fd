"""Laws of the devices that measure: copies hold the same and are apart, times are the driver's, what hangs or falls is said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, TensorMap, kernel, tid
from ptxkit.errors import LaunchError
from ptxkit.gemm.tools.bench import stub
from ptxkit.grammar import parse
from ptxkit.measure import device as devices
from ptxkit.measure import regimes
from ptxkit.measure.device import Cpu, Gpu, Lost, WrongRun, arguments_of, arrays_of, device_of, mapped, sets_of
from ptxkit.measure.regimes import Entry, Regime
from ptxkit.measure.timer import HOLD, DriverTimer
from ptxkit.ptx import ld, mov, st
from ptxkit.runtime.arrays import ArrayView
from ptxkit.sim import run
from ptxkit.types import f32, u32
from tests.tuning.clocked import stubbed

FAST = Regime("burst", 1.0, True, 0.0, 3)


@pytest.fixture
def card():
    with stubbed() as made:
        yield made


@dataclass(frozen=True)
class Record:
    data: Any
    count: int


@kernel(block=32)
def copied(x: Ptr[f32], y: Ptr[f32], n: Reg[u32], *, BY: int = 0) -> None:
    """y = x in 32 elements, BY elements away."""
    thread = mov.u32(tid.x)
    st.global_.f32(y.at(thread + BY), ld.global_.f32(x.at(thread)))


# Arguments.


@pytest.mark.pure
def test_every_array_is_replaced_once_wherever_it_stands():
    x, y = np.arange(4.0), np.arange(6.0)
    given = (x, Record(y, 3), {"x": x, "n": 2}, TensorMap(y, box=(2,)), 5, 2.0, np.float32(3), x)
    assert {id(array) for array in arrays_of(given)} == {id(x), id(y)}
    made = mapped(given, np.copy)
    assert made[0] is made[2]["x"] is made[7] is not x
    assert made[1].data is made[3].array is not y
    assert (made[1].count, made[2]["n"], made[3].box, *made[4:7]) == (3, 2, (2,), 5, 2.0, np.float32(3))
    assert given[3].array is y


@pytest.mark.pure
def test_arguments_are_as_many_as_the_kernel_takes():
    x = np.zeros(32, np.float32)
    assert len(arguments_of(copied, lambda: [x, x, 32])) == 3
    with pytest.raises(LaunchError, match=r"takes 3 arguments \(x, y, n\), args= has 2"):
        arguments_of(copied, (x, x))


# The GPU, by a driver that does nothing.


@pytest.mark.ptxas
def test_copies_are_apart_and_as_many_as_are_cold(card):
    x, y = stub.array("f32", 1 << 20), stub.array("f32", 1 << 20)
    place = Gpu((x, y, 3))
    assert place.places((x, y, 3)) == -(-5 * (50 << 20) // (8 << 20))
    assert place.places((3,)) == 1
    sets = sets_of(place, (x, y, 3), (x, y, 3), cold=True)
    assert len({array.pointer for each in sets for array in each[:2]} | {x.pointer, y.pointer}) == 2 * len(sets) + 2
    assert card.calls["cuMemcpyDtoD"] == 2 * len(sets)
    assert len(sets_of(place, lambda: (x, y, 3), (x, y, 3), cold=True)) == len(sets)
    assert len(sets_of(place, (x, y, 3), (x, y, 3), cold=False)) == 1
    with pytest.raises(LaunchError, match="give args= a function"):
        place.copied((ArrayView(x.pointer, (4,), (1,), "f32", 0, "jax"),))


@pytest.mark.ptxas
def test_without_memory_for_all_there_are_fewer_sets(card, monkeypatch):
    x = stub.array("f32", 1 << 20)
    place, allocate, count = Gpu((x,)), devices.driver.allocate, 0

    def limited(size: int, ordinal: int) -> int:
        nonlocal count
        count += 1
        if count > 3:
            raise LaunchError("CUDA_ERROR_OUT_OF_MEMORY")
        return allocate(size, ordinal)

    monkeypatch.setattr(devices.driver, "allocate", limited)
    assert len(sets_of(place, (x,), (x,), cold=True)) == 3
    with pytest.raises(LaunchError, match="OUT_OF_MEMORY"):
        sets_of(place, (x,), (x,), cold=True)


@pytest.mark.ptxas
def test_times_are_the_drivers(card):
    x, y = stub.array("f32", 64), stub.array("f32", 64)
    place = Gpu((x, y, 3))
    entries = [Entry(str(by), [place.launch(copied, {"BY": by}, lambda config: 1 + config["BY"], (x, y, 3))]) for by in (0, 1)]
    graphs = [regimes.capture(place.timer, entry, FAST) for entry in entries]
    for timed in regimes.measure(place.timer, graphs, FAST, 3):
        assert timed.us == [pytest.approx(500.0 / timed.captured.launches)] * 3
    assert place.timer.stream == place.stream                   # a stream of its own, where torch is not


@pytest.mark.ptxas
def test_what_does_not_end_or_falls_is_said(card, monkeypatch):
    place = Gpu((stub.array("f32", 64),))
    place.finish(1.0)
    monkeypatch.setattr(devices.driver, "passed", lambda event: False)
    with pytest.raises(Lost, match=r"it does not end: nothing happened for 0\.01 s"):
        place.finish(0.01)

    def fallen(event: Any) -> bool:
        raise LaunchError("cuEventQuery: CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr(devices.driver, "passed", fallen)
    with pytest.raises(Lost, match="ILLEGAL_ADDRESS"):
        place.finish(1.0)


def test_an_event_that_is_not_ready_is_no_fault(card, monkeypatch):
    codes = iter((600, 0, 700))
    monkeypatch.setattr(card, "cuEventQuery", lambda event: (next(codes),), raising=False)
    card.results["cuGetErrorString"] = lambda status: (b"an illegal address",)
    assert [devices.driver.passed(0), devices.driver.passed(0)] == [False, True]
    with pytest.raises(LaunchError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS \(an illegal address\)"):
        devices.driver.passed(0)


# The kernel that keeps a card busy.


@pytest.mark.pure
def test_the_kernel_that_holds_looks_at_the_clock_until_it_has_passed():
    assert [entry.name for entry in parse(HOLD).items if getattr(entry, "kind", "") == "entry"] == ["hold"]
    steps = [run(HOLD, grid=1, args=(cycles,), check=False).stats.instructions for cycles in (0, 100, 10_000)]
    assert steps[0] < steps[1] < steps[2]


@pytest.mark.ptxas
def test_the_kernel_that_holds_assembles():
    from ptxkit import assemble

    assert [each.spills for each in assemble(HOLD).resources.values()] == [0]


# The CPU device.


@pytest.mark.pure
def test_the_cpu_device_counts_what_is_executed_and_says_what_is_wrong():
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    place = device_of("cpu", (x, y, 3))
    own = place.copied((x, y, 3))
    launch = place.launch(copied, {}, 1, own)
    begin, end = place.timer.event(), place.timer.event()
    begin.record()
    launch()
    end.record()
    assert np.array_equal(own[1], x)
    assert not y.any()
    count = copied.simulate(1, x, np.zeros(32, np.float32), 3).stats.instructions
    assert 1e3 * begin.elapsed_time(end) == count
    place.restore(own, (x, y, 3))
    assert not own[1].any()
    place.poison(own[1])
    assert np.isnan(own[1]).all()
    with pytest.raises(WrongRun, match="out-of-bounds"):
        place.launch(copied, {"BY": 1}, 1, own)()
    assert isinstance(place, Cpu)


@pytest.mark.pure
def test_nothing_of_a_device_knows_a_machine() -> None:
    assert "torch" not in {line.split()[1].split(".")[0] for path in Path(devices.__file__).parent.glob("*.py")
                           for line in path.read_text(encoding="utf-8").splitlines() if line.startswith(("import ", "from "))}


# On a GPU.


@pytest.mark.gpu
def test_a_timer_of_the_driver_takes_the_time_that_is_spent():
    place = DriverTimer(0)
    start, end = place.event(), place.event()
    with place.aside():
        place.hold()
        start.record()
        place.hold()
        end.record()
    place.synchronize()
    assert 0.05 < start.elapsed_time(end) < 5.0
    assert end.query()


@pytest.mark.gpu
def test_copies_on_a_gpu_hold_the_same():
    from ptxkit import device_array

    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    given = device_array(x), device_array(y), 3
    place = Gpu(given)
    own = place.copied(given)
    assert np.array_equal(own[0].numpy(), x)
    place.poison(own[1])
    assert np.isnan(own[1].numpy()).all()
    with place.timer.aside():
        place.launch(copied, {}, 1, own)()
    place.finish(10.0)
    assert np.array_equal(place.values(own[1]), x)
    assert not given[1].numpy().any()
