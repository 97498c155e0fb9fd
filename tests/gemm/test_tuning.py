"""Shapes tuned on their first use, without a GPU: what is found is used and kept, whoever tunes and whatever goes wrong."""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxkit import __version__, gemm
from ptxkit.cards import H100, H200, Card
from ptxkit.errors import LaunchError
from ptxkit.gemm import Adapter
from ptxkit.gemm.config.dense import DenseConfig
from ptxkit.gemm.heuristic import table as tables
from ptxkit.gemm.heuristic.dense import candidates, heuristic
from ptxkit.gemm.heuristic.table import Table, file_name, keep, lookup
from ptxkit.gemm.heuristic.tuned import kind, knobs, shape_of, tuned
from ptxkit.gemm.launch import adapter, dense, trial, tuning
from ptxkit.gemm.tools import quick
from ptxkit.gemm.tools.bench import shapes, stub
from ptxkit.gemm.tools.problems import asked
from ptxkit.measure import files
from ptxkit.measure.regimes import COLD
from ptxkit.measure.values import apart, decoded, span
from ptxkit.runtime.arrays import ArrayView
from ptxkit.settings import Settings
from ptxkit.tuning import locks
from ptxkit.tuning.search import halving

CARD = dataclasses.replace(H200, name="NVIDIA Card 9")
KIND = "bf16/bf16/nt"
SHAPE = (512, 1024, 768)


@pytest.fixture
def wishes(tmp_path, monkeypatch):
    """The settings of one test, with a cache directory of its own."""
    found = SimpleNamespace(**{field.name: getattr(Settings(tmp_path / "cache"), field.name) for field in dataclasses.fields(Settings)})
    for module in (tables, tuning):
        monkeypatch.setattr(module, "settings", lambda: found)
    with tables.nothing_tuned_here():
        yield found


@pytest.fixture
def card(wishes, caplog, monkeypatch):
    for module in (dense, adapter):
        monkeypatch.setattr(module, "card_of", functools.cache(lambda ordinal: CARD))
    with stub.installed(CARD) as made, caplog.at_level(logging.WARNING, "ptxkit"):
        yield made


def operands(m: int = SHAPE[0], n: int = SHAPE[1], k: int = SHAPE[2]) -> tuple[Any, Any, Any]:
    b = stub.array("bf16", k, n)
    b.strides = 1, k
    return stub.array("bf16", m, k), b, stub.array("bf16", m, n)


@dataclasses.dataclass
class Clock:
    """A timer by what a function says of configurations; `made` counts the products that were measured."""

    us: Callable[[DenseConfig], float]
    broken: Callable[[DenseConfig], bool] = lambda config: False
    made: int = 0
    closed: int = 0
    pause_s: float = 0.0
    shapes: list[tuple[int, ...]] = dataclasses.field(default_factory=list)

    def __call__(self, problem: Any, arrays: Any, ordinal: int, stream: int, launches: Any) -> Clock:
        self.made += 1
        self.shapes.append(shape_of(problem))
        time.sleep(self.pause_s)
        return self

    def admit(self, found: Sequence[DenseConfig], until: float) -> list[DenseConfig]:
        return [config for config in found if not self.broken(config)]

    def times(self, some: Sequence[DenseConfig], rounds: int) -> list[float]:
        return [self.us(config) for config in some]

    def close(self) -> None:
        self.closed += 1


def problem_of(shape: tuple[int, int, int] = SHAPE) -> Any:
    return asked(*shape)


def third(shape: tuple[int, int, int] = SHAPE, card: Card = CARD) -> DenseConfig:
    """A configuration that is not the heuristic's."""
    return list(candidates(problem_of(shape), card))[2]


def favourite(best: DenseConfig) -> Clock:
    return Clock(lambda config: 10.0 if config == best else 20.0)


def used(arrays: tuple[Any, Any, Any]) -> DenseConfig:
    """The configuration of the plan that a call of these arrays uses."""
    gemm.gemm(*arrays)
    (plan,) = [plan for plan in dense._plans.values() if plan.problem.d_lines.dims == tuple(reversed(arrays[2].shape))
               and plan.problem.k == arrays[0].shape[1]]
    return plan.config


# What is tuned, and when.


def test_a_new_shape_is_tuned_on_its_first_use_and_stays_so(card, wishes) -> None:
    best, clock, arrays = third(), favourite(third()), operands()
    with gemm.tuning(timer=clock):
        assert used(arrays) == best
        assert used(arrays) == best
        assert used(operands()) == best                         # other arrays of the same shape
    assert (clock.made, clock.closed) == (1, 1)
    assert used(arrays) == best
    kept = Table.read(tables.user_path(CARD))
    assert (kept.device, kept.sms, kept.version) == (CARD.name, CARD.sms, __version__)
    entry = kept.entries[KIND]["x".join(map(str, SHAPE))]
    assert entry["config"] == knobs(best, problem_of())
    assert entry["measured"]["first_use"] == {"us": 10.0, "heuristic_us": 20.0}
    with tables.nothing_tuned_here():                           # another process
        assert tuned(problem_of(), CARD) == best
        stub._forget()
        assert used(arrays) == best
    assert clock.made == 1


def test_a_shape_that_was_used_before_is_tuned_in_the_block(card) -> None:
    best, clock, arrays = third(), favourite(third()), operands()
    assert used(arrays) == heuristic(problem_of(), CARD)
    with gemm.tuning(timer=clock):
        assert used(arrays) == best


def test_nothing_is_tuned_outside_a_block_or_with_a_configuration_of_the_callers(card) -> None:
    clock, arrays = favourite(third()), operands()
    with gemm.tuning(timer=clock):
        pass
    assert used(arrays) == heuristic(problem_of(), CARD)
    with gemm.tuning(timer=clock):
        gemm.gemm(*operands(256), config=heuristic(problem_of((256, *SHAPE[1:])), CARD))
        gemm.gemm(stub.array("bf16", 64, 0), stub.array("bf16", 0, 64), stub.array("bf16", 64, 64))
    assert clock.made == 0


def test_blocks_may_be_nested_and_end_in_any_order(card) -> None:
    outer, inner = favourite(third()), favourite(third())
    one, other = gemm.tuning(timer=outer), gemm.tuning(timer=inner)
    with one:
        with other:
            gemm.gemm(*operands())
        gemm.gemm(*operands(640))
    assert (outer.shapes, inner.shapes) == ([(640, *SHAPE[1:])], [SHAPE])
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert tuning.wish() is other._wish
    other.__exit__(None, None, None)
    assert tuning.wish() is None


def test_the_environment_tunes_too(card, wishes, tmp_path, monkeypatch) -> None:
    best = third()
    monkeypatch.setattr(tuning, "_ENVIRONMENT", tuning.Wish(timer=favourite(best)))
    wishes.tune = tmp_path / "team.json"
    assert used(operands()) == best
    assert Table.read(tmp_path / "team.json").entries[KIND]
    assert not tables.user_path(CARD).exists()
    with tables.nothing_tuned_here():
        assert tuned(problem_of(), CARD) == best                # the table of PTXKIT_TUNE is read, too
        wishes.tune = True
        tables.forget()
        assert tuned(problem_of(), CARD) is None


def test_an_adapter_is_tuned_before_it_says_its_configuration(card) -> None:
    best, arrays = third(), operands()
    with gemm.tuning(timer=favourite(best)):
        product = Adapter(*arrays)
        assert product.config == best
    product.initialize()
    product.run(1)


# Never during a capture.


def test_the_heuristic_serves_a_capture_and_a_later_use_is_tuned(card) -> None:
    best, clock, arrays = third(), favourite(third()), operands()
    with gemm.tuning(timer=clock):
        card.capturing = 1
        for _ in range(3):
            assert used(arrays) == heuristic(problem_of(), CARD)
        assert clock.made == 0
        assert card.calls["cuStreamIsCapturing"] == 3
        card.capturing = 0
        assert used(arrays) == best
        card.capturing = 1
        assert used(arrays) == best                             # what is known serves a capture as well
    assert clock.made == 1


def test_a_stream_that_cannot_be_asked_counts_as_captured(card) -> None:
    card.results["cuStreamIsCapturing"] = lambda stream: ()
    before = type(card).__getattr__

    clock = favourite(third())
    with gemm.tuning(timer=clock), pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(card), "__getattr__", lambda self, name: (lambda stream: (906, 0)) if name == "cuStreamIsCapturing" else
                      before(self, name))
        gemm.gemm(*operands())
    assert clock.made == 0


# What goes wrong.


def test_a_shape_that_cannot_be_tuned_is_tried_once_and_said_once(card, caplog) -> None:
    def fails(*given: Any) -> Any:
        tries.append(1)
        raise LaunchError("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)")

    tries: list[int] = []
    with gemm.tuning(timer=fails):
        for _ in range(3):
            assert used(operands()) == heuristic(problem_of(), CARD)
    assert len(tries) == 1
    (said,) = caplog.messages
    assert "512x1024x768" in said
    assert "OUT_OF_MEMORY" in said


def test_configurations_that_are_wrong_are_left_out(card) -> None:
    best = third()
    clock = Clock(lambda config: 1.0 if config == best else 20.0, broken=lambda config: config == best)
    with gemm.tuning(timer=clock):
        assert used(operands()) == heuristic(problem_of(), CARD)
    entry = Table.read(tables.user_path(CARD)).entries[KIND]["x".join(map(str, SHAPE))]
    assert entry["wrong"] == 1
    with gemm.tuning(timer=Clock(lambda config: 1.0, broken=lambda config: True)):
        assert used(operands(2048)) == heuristic(problem_of((2048, *SHAPE[1:])), CARD)


def test_noise_does_not_replace_the_heuristics_choice(card) -> None:
    best = third()
    with gemm.tuning(timer=Clock(lambda config: 9.95 if config == best else 10.0)):
        assert used(operands()) == heuristic(problem_of(), CARD)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_disk_or_a_home_that_cannot_be_written_is_one_warning_and_nothing_is_lost(card, caplog, monkeypatch, number) -> None:
    def refuse(*given: Any, **named: Any) -> Any:
        raise OSError(number, os.strerror(number))

    other = (2048, *SHAPE[1:])
    monkeypatch.setattr(files, "write_whole", refuse)
    for shape in (SHAPE, other):
        with gemm.tuning(timer=favourite(third(shape))):
            assert used(operands(*shape)) == third(shape)
    assert used(operands()) == third()
    (said,) = caplog.messages
    assert "used by this process alone" in said
    assert os.strerror(number) in said


def test_a_table_that_breaks_off_is_not_left_behind(tmp_path, monkeypatch) -> None:
    path = tmp_path / "table.json"
    Table.of(CARD).write(path)
    before = path.read_bytes()
    monkeypatch.setattr(tables.os, "replace", lambda *given: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
    broken = Table.of(CARD)
    broken.put(KIND, SHAPE, {"config": {}})
    with pytest.raises(OSError, match="no space"):
        broken.write(path)
    assert [each.name for each in tmp_path.iterdir()] == ["table.json"]
    assert path.read_bytes() == before


# Whose results are used.


def write(path: Path, BN: int, card: Card = CARD, version: str = __version__) -> None:
    made = Table(card.name, sms=card.sms, version=version)
    made.put(KIND, SHAPE, {"config": {"tile": {"BN": BN}}})
    made.write(path)


def found(card: Card = CARD) -> Any:
    tables.forget()
    kept = lookup(card, KIND, *SHAPE)
    return kept and kept["tile"]["BN"]


def test_the_order_of_tables(wishes, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tables, "FOLDER", tmp_path / "shipped")
    assert found() is None
    write(tmp_path / "shipped" / file_name(CARD.name), 64, version="0.0.1")     # what ships is of the package
    assert found() == 64
    write(tables.user_path(CARD), 96)
    assert found() == 96
    write(tmp_path / "team.json", 128)
    wishes.table = tmp_path / "team.json"
    assert found() == 128
    write(tmp_path / "mine.json", 160)
    wishes.tune = tmp_path / "mine.json"
    assert found() == 160
    keep(CARD, KIND, SHAPE, {"config": {"tile": {"BN": 192}}}, None)
    assert found() == 192
    assert lookup(CARD, KIND, 520, *SHAPE[1:])["tile"]["BN"] == 192             # a near number of rows
    assert lookup(CARD, KIND, 520, *SHAPE[1:], exact=True) is None


def test_the_table_of_a_block_is_read_too(card, tmp_path) -> None:
    path, clock = tmp_path / "team.json", favourite(third())
    with gemm.tuning(table=path, timer=clock):
        gemm.gemm(*operands())
    with tables.nothing_tuned_here():
        stub._forget()
        with gemm.tuning(table=path, timer=clock):
            assert used(operands()) == third()
    assert clock.made == 1


def test_a_folder_has_a_table_for_each_card(wishes, tmp_path) -> None:
    wishes.table = tmp_path
    for card, BN in ((CARD, 64), (H100, 96), (H200.with_sms(16), 128)):
        write(tmp_path / tables.own_name(card), BN, card)
    assert [found(card) for card in (CARD, H100, H200.with_sms(16))] == [64, 96, 128]
    assert found(H200.with_sms(17)) is None
    assert {path.name for path in tmp_path.iterdir()} >= {"card-9.json", "h100-80gb-hbm3.json", "h200-16-sms.json"}


def test_a_result_of_another_card_or_version_is_not_used_and_said_once(wishes, tmp_path, caplog) -> None:
    wishes.table = tmp_path / "team.json"
    for card, version, sentence in ((H100, __version__, "is of NVIDIA H100 80GB HBM3 with 132 SMs, not of NVIDIA Card 9"),
                                    (CARD.with_sms(16), __version__, "with 16 SMs, not of NVIDIA Card 9 with 132"),
                                    (CARD, "0.0.9", f"was tuned by ptxkit 0.0.9, not by {__version__}"),
                                    (CARD, "", "before 0.1")):
        write(wishes.table, 64, card, version)
        caplog.clear()
        tables.forget()
        with caplog.at_level(logging.WARNING, "ptxkit"):
            assert lookup(CARD, KIND, *SHAPE) is None
            tables._known.cache_clear()
            assert lookup(CARD, KIND, *SHAPE) is None
        (said,) = caplog.messages
        assert sentence in said
        assert str(wishes.table) in said
    caplog.clear()
    wishes.table = tmp_path / "gone.json"
    with caplog.at_level(logging.WARNING, "ptxkit"):
        assert found() is None
    assert "is not there" in caplog.text
    caplog.clear()
    wishes.table = Path(os.devnull)
    with caplog.at_level(logging.WARNING, "ptxkit"):
        assert found() is None
    assert "is no file or folder" in caplog.text


def test_what_is_tuned_never_spoils_a_table_of_others(wishes, tmp_path, caplog) -> None:
    path = tmp_path / "table.json"
    entry = {"config": {"tile": {"BN": 96}}}
    write(path, 64, H100)
    before = path.read_bytes()
    with caplog.at_level(logging.WARNING, "ptxkit"):
        keep(CARD, KIND, SHAPE, entry, path)
    assert path.read_bytes() == before
    assert "used by this process alone" in caplog.text
    assert lookup(CARD, KIND, *SHAPE) == entry["config"]
    write(path, 64, CARD, "0.0.9")
    keep(CARD, KIND, SHAPE, entry, path)
    assert Table.read(path).version == __version__
    assert Table.read(tmp_path / "table.0.0.9.json").entries[KIND]                # put aside, not lost
    path.write_text("{")
    keep(CARD, KIND, SHAPE, entry, path)
    assert Table.read(path).entries[KIND]
    assert (tmp_path / "table.old.json").read_text() == "{"


def test_a_table_that_ships_is_added_to_whoever_wrote_it(wishes, tmp_path, monkeypatch) -> None:
    """By whatever path: the package's folders are links in a checkout."""
    folder = tmp_path / "cards"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    monkeypatch.setattr(tables, "FOLDER", folder)
    write(folder / file_name(CARD.name), 64, version="")
    keep(CARD, KIND, (8, 8, 8), {"config": {}}, tmp_path / "link" / file_name(CARD.name))
    assert len(Table.read(folder / file_name(CARD.name)).entries[KIND]) == 2
    assert {path.suffix for path in folder.iterdir()} == {".json", ".lock"}


# Threads and processes.


def test_threads_tune_a_shape_once(card) -> None:
    best, clock = third(), favourite(third())
    clock.pause_s = 0.1
    got: list[DenseConfig] = []
    barrier = threading.Barrier(6)

    def work() -> None:
        arrays = operands()
        barrier.wait()
        gemm.gemm(*arrays)
        got.append(tuned(problem_of(), CARD, exact=True))

    with gemm.tuning(timer=clock):
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert clock.made == 1
    assert got == [best] * 6


def _keep_some(path: Path, first: int, ready: Any) -> None:
    ready.wait()
    for number in range(first, first + 10):
        keep(CARD, KIND, (number, 64, 64), {"config": {"tile": {"BN": 64}}}, path)


def _tune_one(folder: Path, ready: Any, out: Any) -> None:
    clock = Clock(lambda config: 10.0, pause_s=0.3)
    tuning.driver.capturing = lambda stream, ordinal: False
    with gemm.tuning(table=folder / "table.json", timer=clock):
        ready.wait()
        tuning.first_use(problem_of(), None, 0, 1, CARD, None)
    out.put(clock.made)


@pytest.mark.timeout(120)
def test_processes_lose_nothing_of_each_other(tmp_path) -> None:
    many = multiprocessing.get_context("fork")
    path, ready = tmp_path / "table.json", many.Barrier(3)
    workers = [many.Process(target=_keep_some, args=(path, 1 + 10 * number, ready)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(Table.read(path).entries[KIND]) == 30
    assert {each.name for each in tmp_path.iterdir()} == {"table.json", ".table.json.lock"}


@pytest.mark.timeout(120)
def test_of_processes_one_tunes_a_shape_and_the_others_find_it(tmp_path) -> None:
    many = multiprocessing.get_context("fork")
    ready, out = many.Barrier(3), many.Queue()
    workers = [many.Process(target=_tune_one, args=(tmp_path, ready, out)) for _ in range(3)]
    for worker in workers:
        worker.start()
    made = [out.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert sorted(made) == [0, 0, 1]
    assert len(Table.read(tmp_path / "table.json").entries[KIND]) == 1


def test_a_lock_that_another_has_is_waited_for_and_given_up(tmp_path) -> None:
    path = tmp_path / "table.json"
    with locks.locked(path) as first:
        assert first
        begin = time.monotonic()
        with locks.locked(path, 0.1) as second:
            assert not second
        assert time.monotonic() - begin >= 0.1
    with locks.locked(path, 0.1) as third_:
        assert third_
    with locks.locked(tmp_path / "no" / "folder") as none:
        assert not none


# The timer of the device, by a driver that does nothing.


def test_the_device_timer_gives_everything_back(card, monkeypatch) -> None:
    monkeypatch.setitem(card.results, "cuEventElapsedTime", lambda start, end: (0.5,))
    arrays = operands()
    seen = dense.Arrays(*(dense.view(array) for array in arrays))
    problem = problem_of()
    found = list(candidates(problem, CARD))[:3]
    timer = trial.DeviceTimer(seen, 0, 1, dense.launches(problem, dense.PLAIN, 0))
    size = sum(span(array) for array in seen[:3])
    assert len(timer.sets) == min(trial.MOST_SETS, -(-COLD * (50 << 20) // size))
    assert len({each.a.pointer for each in timer.sets} | {arrays[0].pointer}) == len(timer.sets) + 1
    assert timer.admit(found, time.monotonic() + 60) == found
    times = timer.times(found[:2], 3)
    assert times == pytest.approx([500.0 / count for _, count in timer.graphs.values()])
    timer.close()
    timer.close()
    calls = card.calls
    assert calls["cuMemAlloc"] - calls["cuMemFree"] == 3        # those of the call itself
    assert calls["cuEventCreate"] == calls["cuEventDestroy"] == 2
    assert calls["cuStreamBeginCapture"] == calls["cuStreamEndCapture"] == calls["cuGraphInstantiate"] == calls["cuGraphDestroy"]
    assert calls["cuGraphInstantiate"] == calls["cuGraphExecDestroy"] >= 2
    assert calls["cuThreadExchangeStreamCaptureMode"] % 2 == 0


def test_as_many_sets_as_there_is_memory_for(card, monkeypatch) -> None:
    full = []
    allocate = trial.driver.allocate

    def limited(size: int, ordinal: int) -> int:
        if len(full) == limit:
            raise LaunchError("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY")
        full.append(1)
        return allocate(size, ordinal)

    seen = dense.Arrays(*(dense.view(array) for array in operands()))
    monkeypatch.setattr(trial.driver, "allocate", limited)
    limit = 7
    timer = trial.DeviceTimer(seen, 0, 1, dense.launches(problem_of(), dense.PLAIN, 0))
    assert len(timer.sets) == 2
    timer.close()
    full.clear()
    limit = 2
    before = card.calls["cuMemFree"]
    with pytest.raises(LaunchError, match="OUT_OF_MEMORY"):
        trial.DeviceTimer(seen, 0, 1, dense.launches(problem_of(), dense.PLAIN, 0))
    assert card.calls["cuMemFree"] - before == 2


def test_results_are_compared_by_their_values() -> None:
    values = np.array([0.0, 1.5, -2.0, 448.0, 2.0 ** -9, np.nan])
    import ml_dtypes

    for dtype, name in (("bf16", "bfloat16"), ("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2"), ("f16", "float16"), ("f32", "float32")):
        kind_ = getattr(ml_dtypes, name, None) or np.dtype(name)
        stored = values.astype(kind_)
        assert np.array_equal(decoded(stored.view(np.uint8).reshape(-1), dtype), stored.astype(np.float64), equal_nan=True), dtype
    every = np.arange(256, dtype=np.uint8)
    assert np.array_equal(decoded(every, "e4m3"), every.view(ml_dtypes.float8_e4m3fn).astype(np.float64), equal_nan=True)
    assert apart(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0
    assert apart(np.array([1.0, np.nan]), np.array([1.0, 2.0])) == float("inf")
    assert apart(np.array([1.0, 5.0]), np.array([1.0, np.nan])) == float("inf")
    assert apart(np.array([1.1]), np.array([1.0])) == pytest.approx(0.1)
    assert apart(np.array([0.1]), np.array([0.0])) == float("inf")
    assert apart(np.array([0.0]), np.array([0.0])) == 0
    assert span(ArrayView(0, (3, 4), (8, 1), "bf16", 0, "other")) == 2 * (2 * 8 + 3 + 1)
    assert span(ArrayView(0, (3, 4), (0, 1), "f32", 0, "other")) == 16
    assert span(ArrayView(0, (0, 4), (4, 1), "f32", 0, "other")) == 0


def test_a_late_search_ends_with_what_it_has() -> None:
    rounds: list[int] = []
    found = halving(range(64), lambda some, count: (rounds.append(count), [float(each) for each in some])[1], late=lambda: True)
    assert rounds == [2]
    assert [entry for _, entry in found] == [0, 1, 2, 3]


def test_what_is_kept_is_json_that_can_be_read(wishes, tmp_path) -> None:
    keep(CARD, KIND, SHAPE, {"config": knobs(third(), problem_of())}, tmp_path / "deep" / "table.json")
    data = json.loads((tmp_path / "deep" / "table.json").read_text())
    assert (data["device"], data["sms"], data["version"]) == (CARD.name, 132, __version__)
    assert kind(problem_of()) == KIND


# Many shapes.


def test_many_shapes_are_tuned_as_on_first_use(card, wishes, tmp_path, monkeypatch) -> None:
    """Of every type, also with block scales; what is there is left alone, what cannot be had is said, and memory is given back."""
    monkeypatch.setattr(quick, "card_of", lambda ordinal: CARD)
    clock, said = Clock(lambda config: 10.0), []
    problems = [shapes.problem(text) for text in ("512x1024x768", "64x256x512:e4m3-block", "128x128x256:f32", "4x64x64x128:f16:tn",
                                                  "128x128x256:e5m2", "512x1024x768:nn")]
    path = tmp_path / "table.json"
    quick.run(problems, path, 0.1, timer=clock, say=said.append)
    assert clock.made == len(problems)
    assert sorted(Table.read(path).entries) == ["bf16/bf16/nn", "bf16/bf16/nt", "e4m3-block/bf16/nt", "e5m2/bf16/nt", "f16-batched/f16/tn",
                                                "f32/f32/nt"]
    assert card.calls["cuMemAlloc"] == card.calls["cuMemFree"] > 3 * len(problems)
    assert len(said) == len(problems)
    assert "10.00 us" in said[0]
    quick.run([*problems, shapes.problem("128x128x130:e4m3")], path, 0.1, timer=clock, say=said.append)
    assert clock.made <= len(problems) + 1
    quick.run(problems, path, 0.1, seconds=-1.0, timer=clock, say=said.append)
    assert said[-1].startswith("cut after 0 of 6")


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "e4m3", "e5m2"])
def test_random_operands_are_of_about_size_one(dtype) -> None:
    found = decoded(quick.values(dtype, 4000, np.random.default_rng(1)), dtype)
    assert found.shape == (4000,)
    assert np.isfinite(found).all()
    assert 0.3 < np.sqrt(np.square(found).mean()) < 3
    assert abs(found.mean()) < 0.1
