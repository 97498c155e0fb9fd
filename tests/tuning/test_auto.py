"""`@autotune` on a driver that does nothing: the first launch of a key tunes, later ones do not, a captured one never does."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, Space, autotune, ctaid, if_, kernel, tid
from ptxkit.errors import TraceError
from ptxkit.gemm.tools.bench import stub
from ptxkit.ptx import add, ld, mad, mov, st
from ptxkit.tuning import results
from ptxkit.tuning import tune as tuner
from ptxkit.tuning.auto import Autotuned
from ptxkit.tuning.tune import TuneError
from ptxkit.types import f32, u32

from .clocked import Clocked, parametric, stubbed

pytestmark = pytest.mark.ptxas


@pytest.fixture
def card(tmp_path, monkeypatch):
    """A driver that does nothing, and a cache directory of the test's own for results."""
    monkeypatch.setattr(results, "path_of", lambda card, wish=None: tmp_path / "card.json")
    with stubbed() as made:
        yield made


def scaled(**options: Any) -> Autotuned:
    @autotune(Space(THREADS=(64, 128), EACH=(1, 2)), **options)
    @kernel(block=lambda config: config["THREADS"])
    def scale(x: Ptr[f32], n: Reg[u32], *, THREADS: int = 128, EACH: int = 1, ADD: float = 1.0) -> None:
        """x += ADD."""
        first = mad.lo.u32(mov.u32(ctaid.x), THREADS * EACH, mov.u32(tid.x))
        for step in range(EACH):
            i = first + step * THREADS
            with if_(i < n):
                st.global_.f32(x.at(i), add.rn.f32(ld.global_.f32(x.at(i)), ADD))

    return scale


def grid(config):
    return -(-1024 // (config["THREADS"] * config["EACH"]))


@pytest.fixture
def tuned(monkeypatch):
    """The calls of the tuner."""
    calls = []
    own = tuner.tune

    def counted(*given):
        calls.append(given)
        return own(*given)

    monkeypatch.setattr(tuner, "tune", counted)
    return calls


def test_the_first_launch_of_a_key_tunes_and_later_ones_do_not(card, tuned, tmp_path):
    scale = scaled()
    x, other = stub.array("f32", 1024), stub.array("f32", 2048)
    for _ in range(3):
        scale.launch(grid, x, 1024)
    scale.launch(grid, stub.array("f32", 1024), 1024)           # other memory of the same shape
    assert len(tuned) == 1
    scale.launch(grid, other, 1024)
    scale.launch(grid, x, 1000)
    assert len(tuned) == 3
    scale.launch(grid, x, n=1000)
    assert len(tuned) == 3
    again = scaled()                                            # another process: the file has it
    count = card.calls["cuGraphInstantiate"]
    again.launch(grid, x, 1024)
    (found,) = again.tuned.values()
    assert found.kept
    assert card.calls["cuGraphInstantiate"] == count


def test_a_warm_launch_asks_the_driver_for_nothing_else(card):
    scale, x = scaled(), stub.array("f32", 1024)
    scale.launch(grid, x, 1024)
    before = card.calls.copy()
    scale.launch(grid, x, 1024)
    assert card.calls == before                                 # the launch itself is a call of the C library


def test_the_key_says_what_counts(card, tuned):
    by_name, by_function = scaled(key=("n",)), scaled(key=lambda x, n: n // 1000)
    for scale, counts in ((by_name, 2), (by_function, 1)):
        tuned.clear()
        for x, n in ((stub.array("f32", 1024), 1024), (stub.array("f32", 4096), 1024), (stub.array("f32", 1024), 1023)):
            scale.launch(grid, x, n)
        assert len(scale.tuned) == counts
        assert len(tuned) == counts


def test_nothing_is_tuned_during_a_capture(card, tuned):
    scale, x = scaled(), stub.array("f32", 1024)
    card.capturing = True
    config = scale.config(grid, x, 1024)
    scale.launch(grid, x, 1024)
    assert config == {"THREADS": 64, "EACH": 1}                 # the first legal point
    assert not tuned
    assert not scale.tuned
    card.capturing = False
    scale.launch(grid, x, 1024)                                 # a later launch is tuned
    assert len(tuned) == 1
    card.capturing = True
    again = scaled()                                            # what is kept serves a capture
    assert again.config(grid, x, 1024) == dict(next(iter(scale.tuned.values())).config)
    assert len(tuned) == 1


def test_the_first_legal_point_is_the_first_that_can_be_loaded(card, monkeypatch):
    @autotune({"THREADS": (4096, 2048, 32)})
    @kernel(block=lambda config: config["THREADS"])
    def nothing(x: Ptr[f32], *, THREADS: int = 32) -> None:
        """Reads one value."""
        ld.global_.f32(x)

    card.capturing = True
    assert nothing.config(1, stub.array("f32", 4)) == {"THREADS": 32}
    monkeypatch.setattr(nothing, "space", Space(THREADS=(4096,)))
    nothing._first.clear()
    with pytest.raises(TuneError, match=r"no point of kernel `nothing` can be loaded: .*a block has 1 to 1024 threads"):
        nothing.config(1, stub.array("f32", 8))


def test_what_a_launch_gives_is_fixed(card, tuned):
    scale, x = scaled(), stub.array("f32", 1024)
    assert scale.config(grid, x, 1024, THREADS=128)["THREADS"] == 128
    assert scale.config(grid, x, 1024, ADD=2.0)["ADD"] == 2.0
    assert len(tuned) == 2
    with pytest.raises(TuneError, match="no point of the space"):
        scale.launch(grid, x, 1024, THREADS=96)


def test_a_wrong_use_is_said_where_it_is_decorated():
    @kernel(block=32)
    def plain(x: Ptr[f32], *, EACH: int = 1) -> None: ...

    with pytest.raises(TraceError, match="no compile-time parameter `WARPS`; it has EACH"):
        autotune(Space(WARPS=(1, 2)))(plain)
    with pytest.raises(TuneError, match="no option `grid`; there are key"):
        autotune(Space(EACH=(1, 2)), grid=1)(plain)                          # type: ignore[call-arg]
    with pytest.raises(TuneError, match="key= names `n`, the arguments of kernel `plain` are x"):
        autotune(Space(EACH=(1, 2)), key=("n",))(plain)
    with pytest.raises(TuneError, match="`plain` is autotuned already"):
        autotune(Space(EACH=(1, 2)))(autotune(Space(EACH=(1, 2)))(plain))
    with pytest.raises(TuneError, match=r"@autotune\(\.\.\.\) stands above @kernel"):
        autotune(Space(EACH=(1, 2)))(plain.function)


def test_launches_of_many_threads_tune_once(card, tuned):
    scale, x = scaled(), stub.array("f32", 1024)
    threads = [threading.Thread(target=lambda: scale.launch(grid, x, 1024)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tuned) == 1


def test_everything_is_given_back(card):
    scale, x = scaled(check=lambda x, n: True), stub.array("f32", 1024)
    scale.launch(grid, x, 1024)
    calls = card.calls
    assert calls["cuStreamBeginCapture"] == calls["cuStreamEndCapture"] == calls["cuGraphInstantiate"] == calls["cuGraphDestroy"] > 4
    assert calls["cuGraphInstantiate"] == calls["cuGraphExecDestroy"]
    assert calls["cuEventCreate"] == calls["cuEventDestroy"] > 0
    assert calls["cuMemAlloc"] - calls["cuMemFree"] == 1        # the caller's
    assert calls["cuThreadExchangeStreamCaptureMode"] % 2 == 0
    assert calls["cuMemcpyDtoD"] >= 5


def test_operand_sets_are_more_than_the_l2_holds(card, monkeypatch):
    seen = []
    own = tuner._Field
    monkeypatch.setattr(tuner, "_Field", lambda kernel, device, grid, regime, sets, *more: (
        seen.append(sets), own(kernel, device, grid, regime, sets, *more))[1])
    scale, x = scaled(), stub.array("f32", 4 << 20)             # 16 MiB
    scale.launch(grid, x, 1024)
    warm = scaled(regime="warm")
    warm.launch(grid, x, 1024)
    cold, one = seen
    assert len(cold) == -(-5 * (50 << 20) // (16 << 20))
    assert len({each[0].pointer for each in cold} | {x.pointer}) == len(cold) + 1
    assert len(one) == 1
    seen.clear()


def test_other_devices_serve_too(tmp_path):
    device = Clocked(lambda config: 10.0 - config["A"])
    made = autotune({"A": range(4)}, device=device, results=str(tmp_path))(parametric)
    assert made.config(1, np.zeros(2, np.float32)) == {"A": 3}
    assert made.config(1, np.zeros(2, np.float32)) == {"A": 3}


@pytest.mark.gpu
def test_on_a_gpu_a_captured_launch_runs_and_a_later_one_is_tuned(tmp_path):
    torch = pytest.importorskip("torch")
    scale = scaled(results=str(tmp_path), key=("n",))
    x = torch.zeros(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scale.launch(grid, x, 1024)
    assert not scale.tuned
    graph.replay()
    torch.cuda.synchronize()
    assert bool((x == 1).all())
    scale.launch(grid, x, 1024)
    assert len(scale.tuned) == 1
    assert bool((x == 2).all())                                 # the tuner wrote copies
