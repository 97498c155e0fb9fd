"""`ptxkit check`: exit status 1 on an error, 0 on clean and on review, which it prints; --json."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from examples import tile_gemm
from ptxkit.cli.main import main
from tests.sim.mutants.edit import Edit
from tests.sim.mutants.more import MUTANTS

from .cases import CASES
from .programs import text

pytestmark = pytest.mark.pure

ERROR = next(case for case in CASES if str(case) == "proxy-fence: a bulk store")
REVIEW = next(case for case in CASES if str(case) == "bulk-exit: a store")


@pytest.mark.parametrize(("case", "right", "status", "says"), [
    (ERROR, False, 1, "1 error"), (ERROR, True, 0, "no findings"), (REVIEW, False, 0, "1 to review"), (REVIEW, True, 0, "no findings")])
def test_the_exit_status(case: object, right: bool, status: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernel.ptx"
    ptx, line = text(case, right)  # type: ignore[arg-type]
    path.write_text(ptx)
    assert main(["check", str(path)]) == status
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == f"{path}: {says}"
    assert line is None or printed.startswith(f"{path}:{line}")
    assert main(["check", str(path), "--strict"]) == (0 if right else 1)


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernel.ptx"
    ptx, line = text(ERROR, False)
    path.write_text(ptx)
    assert main(["check", str(path), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["counts"] == {"error": 1, "review": 0, "info": 0}
    (found,) = data["findings"]
    assert (found["rule"], found["kind"], found["severity"]) == ("proxy-fence", "protocol", "error")
    assert found["fix"].startswith("fence.proxy.async")
    assert line is not None
    assert str(line) in json.dumps(found)


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text(REVIEW, False)[0]))
    assert main(["check", "-"]) == 0
    assert "bulk-exit" in capsys.readouterr().out


def test_a_kernel_is_checked_and_told_by_its_python_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "examples.tile_gemm:tile_gemm"]) == 0
    assert "no findings" in capsys.readouterr().out
    from ptxkit.check import check

    traced = tile_gemm.tile_gemm.trace()
    found = check(Edit(traced).delete(r"bar\.sync 0").done())
    assert {(f.rule, f.severity) for f in found} >= {("init-before-use", "error")}
    assert all(f.position is not None and f.position.file is not None and f.position.file.endswith("tile_gemm.py") for f in found)
    wrong = check(MUTANTS["W8.mode:tile_gemm"].source())
    assert [(f.rule, f.kind, f.severity) for f in wrong] == [("layout", "advice", "review")]
    assert "tensor map" in wrong[0].message
