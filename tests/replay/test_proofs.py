"""A proof that fails gives the replay of its failure, from the memory that the proof began with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.vector_add import vector_add
from ptxkit import prove
from tests.sim.kernels import kernel

from .kernels import LATE, RACE

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]


def test_other_memory(tmp_path: Path) -> None:
    out = np.zeros(2, np.uint32)
    proof = prove(LATE, 2, out, schedules=12, block=32)
    assert out.tolist() == [7, 7]
    replay = proof.replay()
    assert replay.failure is not None
    assert replay.failure.rule == "memory"
    assert len(replay.choices) == 1
    assert replay.run().launch.arrays["out"].tolist() == [7, 0]
    assert out.tolist() == [7, 7]
    page = proof.page(tmp_path / "late.html").read_text()
    assert "out[1] is 0, first come first run gives 7" in page


def test_an_array_that_is_read_and_written_starts_again() -> None:
    text = LATE.replace("mov.u32 %r1, 7;", "ld.relaxed.gpu.global.u32 %r1, [%rd0];\nadd.u32 %r1, %r1, 7;")
    out = np.array([100, 0], np.uint32)
    proof = prove(text, 2, out, schedules=12, block=32)
    assert out.tolist() == [107, 107]
    assert proof.replay().run().launch.arrays["out"].tolist() == [107, 100]


def test_an_error_and_a_proof() -> None:
    replay = prove(RACE, 1, np.zeros(64, np.uint32), block=64, schedules=2).replay()
    assert replay.failure is not None
    assert replay.failure.rule == "shared-race"
    a, b, c = np.ones((3, 700), np.float32)
    proof = prove(vector_add, 3, a, b, c, 700, schedules=("random",))
    assert proof.proven
    assert not proof.search()
    shown = proof.replay()
    assert shown.failure is None
    assert shown.choices.name == "random"
    assert shown.run().report.verdict == "clean"


def test_views_and_arrays_that_are_given_twice() -> None:
    """Rows of one array are two arguments: a run on copies leaves what a run on the arrays leaves."""
    text = LATE.replace("(.param .u64 out)", "(.param .u64 out, .param .u64 other)").replace(
        "ld.param.u64 %rd0, [out];", "ld.param.u64 %rd0, [out];\n\tld.param.u64 %rd2, [other];\n\tst.global.u32 [%rd2+8], 9;")
    whole = np.zeros((3, 4), np.uint32)
    proof = prove(text, 2, whole[1], whole[2, ::-1][::-1], schedules=2, block=32)
    assert whole.tolist() == [[0] * 4, [7, 7, 0, 0], [0, 0, 9, 0]]
    left = proof.replay().run().launch
    assert left.arrays["out"].tolist() == [7, 0, 0, 0]
    assert left.arrays["other"].tolist() == [0, 0, 9, 0]
    odd = np.lib.stride_tricks.as_strided(np.zeros(16, np.uint32), (2,), (8,))
    copied = proof.launch.copy().args
    assert np.shares_memory(copied[0], copied[0].base)
    assert prove(LATE, 2, odd, schedules=1, block=32).launch.copy().arrays["out"].shape == (2,)


def test_a_run_that_does_not_end_is_shown_as_far_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxkit.replay.searching.ENDLESS", 1_000)
    text = kernel("ld.param.u64 %rd0, [out];\nmov.u32 %r1, 0;\nTOP:\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%rd0], %r1;\nbra TOP;")
    proof = prove(text, 1, np.zeros(4, np.uint32), schedules=2, block=32, max_steps=3_000)
    assert proof.verdict == "error"
    assert not proof.search()
    page = proof.page(tmp_path / "page.html").read_text()
    assert "(max_steps is 1,000)" in page
