"""`ptxkit simulate --keep, --replay, --page, --trace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptxkit.cli.main import main
from tests.sim.kernels import kernel

from .kernels import LATE

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
RIGHT = kernel("ld.param.u64 %rd0, [out];\nst.global.u32 [%rd0], 5;")


def test_a_failure_is_kept_shown_and_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("late.ptx").write_text(LATE)
    launch = ["simulate", "late.ptx", "--grid", "2", "--block", "32", "--arg", "out=zeros:u32:2"]
    assert main([*launch, "--schedules", "12", "--keep", "late.json", "--page", "late.html", "--trace", "trace.json"]) == 1
    said = capsys.readouterr().out
    assert "shortest failure: [memory] memory depends on the schedule: out[1] is 0, first come first run gives 7" in said
    assert "1. CTA 0 warp 0 goes on only when all others wait" in said
    page = Path("late.html").read_text()
    assert "st.global.u32 [%rd0+4], %r2;" in page
    assert "out[1] is 0" in page
    assert json.loads(Path("trace.json").read_text())["otherData"]["kernel"] == "k"
    main([*launch, "--replay", "late.json", "-o", "out=left.npy", "--page", "again.html"])
    assert "schedule replay" in capsys.readouterr().out
    import numpy as np

    assert np.load("left.npy").tolist() == [7, 0]
    assert "CTA 0 warp 0 goes on only when all others wait" in Path("again.html").read_text()


def test_a_page_of_a_right_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "right.ptx").write_text(RIGHT)
    page = tmp_path / "right.html"
    command = ["simulate", str(tmp_path / "right.ptx"), "--grid", "1", "--block", "1", "--arg", "out=zeros:u32:1", "--page", str(page)]
    assert main([*command, "--schedules", "3"]) == 0
    assert "shortest failure" not in capsys.readouterr().out
    assert "A run of k" in page.read_text()
    assert main([*command, "--json", "--schedule", "random"]) == 0
    assert json.loads(capsys.readouterr().out)["replay"]["failure"] is None


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "right.ptx").write_text(RIGHT)
    launch = ["simulate", str(tmp_path / "right.ptx"), "--grid", "1", "--block", "1", "--arg", "out=zeros:u32:1"]
    (tmp_path / "none.json").write_text("[]")
    for more, message in (
            (["--replay", str(tmp_path / "none.json"), "--seed", "3"], "--replay has the schedule"),
            (["--replay", str(tmp_path / "none.json")], "is no schedule"), (["--replay", str(tmp_path / "absent.json")], "cannot read"),
            (["--page", str(tmp_path / "no" / "page.html")], "cannot write"), (["--trace", str(tmp_path)], "cannot write")):
        assert main([*launch, *more]) == 2
        assert message in capsys.readouterr().err
