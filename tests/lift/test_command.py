"""`ptxkit lift` as it is typed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ptxkit.cli.main import main

pytestmark = pytest.mark.pure

CORPUS = Path(__file__).parents[1] / "corpus"
TWO = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry one(.param .u64 p) { ret; } .visible .entry two() { ret; }"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main([*words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_file_becomes_a_module_that_emits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "loops.py"
    assert said(capsys, "lift", str(CORPUS / "control.ptx"), "-e", "loops", "-o", str(made)) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["loops.py"]
    status, out, _ = said(capsys, "emit", f"{made}:loops")
    assert status == 0
    assert ".visible .entry loops(" in out
    assert said(capsys, "diff", "--no-resources", f"{made}:loops", f"{made}:loops")[0] == 0


def test_what_was_made_for_a_debugger_stays_so(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "lift", str(CORPUS / "debug.ptx"))
    assert (status, err) == (0, "")
    assert '@kernel(target="sm_90a, debug", module=MODULE)' in out
    assert "version=(9, 0), debug=DWARF)" in out


def test_stdout_stdin_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "two.ptx"
    source.write_text(TWO)
    status, out, _ = said(capsys, "lift", str(source))
    assert status == 0
    assert "def one(p: Param[u64]) -> None:" in out
    assert "def two() -> None:" in out
    _, data, _ = said(capsys, "lift", str(source), "-e", "two", "--json")
    assert json.loads(data)["entries"] == ["two"]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(TWO.encode())))
    assert "lifted from stdin" in said(capsys, "lift", "-")[1]


BAD = {
    "binary": (b"\x7fELF\x02\x01", "machine code"), "zeros": (b"\0" * 100, "no text"), "utf-16": (TWO.encode("utf-16"), "UTF-16"),
    "nonsense": (b"this is not PTX", ""), "half": (TWO[:90].encode(), ""), "empty": (b"", ""),
    "old": (TWO.replace("8.0", "1.0").encode(), "needs PTX 8.0"),
    "target": (TWO.replace("sm_90a", "frog").encode(), "no target that is known"),
    "a branch to nothing": (TWO.replace("ret;", "bra;", 1).encode(), "branches to no label"),
    "a branch to two": (TWO.replace("ret;", "bra a, b;", 1).encode(), "branches to no label"),
    "only functions": (b".version 8.0\n.target sm_90a\n.address_size 64\n.func f() { ret; }", "no entry to lift"),
    "nested": (b".version 8.0\n.target sm_90a\n.address_size 64\n.entry f() " + b"{" * 5000, ""),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_input_is_one_error_and_no_file(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, words = BAD[name]
    source, made = tmp_path / "bad.ptx", tmp_path / "bad.py"
    source.write_bytes(data)
    made.write_text("what was there")
    status, out, err = said(capsys, "lift", str(source), "-o", str(made))
    assert (status, out) == (1, "")
    assert err.startswith("ptxkit: ")
    assert words in err
    assert "Traceback" not in err
    assert made.read_text() == "what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.ptx", "bad.py"]


def test_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "two.ptx"
    source.write_text(TWO)
    assert said(capsys, "lift", str(tmp_path / "none.ptx"))[0] == 1
    status, _, err = said(capsys, "lift", str(source), "-e", "three")
    assert status == 1
    assert "the module has one, two" in err
    assert said(capsys, "lift", str(source), "-o", str(tmp_path / "no" / "folder.py"))[0] == 2
