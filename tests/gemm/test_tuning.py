"""Shapes tuned on their first use, without a GPU: what is found is used and kept, whoever tunes and whatever goes wrong."""

# ruff: noqa: F811

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np
import pytest

from ptxkit import __version__, gemm
from ptxkit.errors import LaunchError
from ptxkit.gemm import Adapter
from ptxkit.gemm.heuristic import table as tables
from ptxkit.gemm.heuristic.dense import heuristic
from ptxkit.gemm.heuristic.table import Table
from ptxkit.gemm.heuristic.tuned import knobs, tuned
from ptxkit.gemm.launch import tuning
from ptxkit.gemm.tools import quick
from ptxkit.gemm.tools.bench import shapes, stub
from ptxkit.measure import files
from ptxkit.measure.values import decoded
from ptxkit.tuning.search import halving

from .first_use import CARD, KIND, SHAPE, Clock, card, favourite, operands, problem_of, third, used, wishes  # noqa: F401

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


def test_the_table_of_a_block_is_read_too(card, tmp_path) -> None:
    path, clock = tmp_path / "team.json", favourite(third())
    with gemm.tuning(table=path, timer=clock):
        gemm.gemm(*operands())
    with tables.nothing_tuned_here():
        stub._forget()
        with gemm.tuning(table=path, timer=clock):
            assert used(operands()) == third()
    assert clock.made == 1


def test_a_late_search_ends_with_what_it_has() -> None:
    rounds: list[int] = []
    found = halving(range(64), lambda some, count: (rounds.append(count), [float(each) for each in some])[1], late=lambda: True)
    assert rounds == [2]
    assert [entry for _, entry in found] == [0, 1, 2, 3]


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
