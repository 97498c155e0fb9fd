"""The command: data on stdout, messages on stderr, exit status 0 fine, 1 a failure, 2 usage."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxkit.cli.main import main, parser
from ptxkit.errors import NoToolError
from ptxkit.runtime import toolchain

from . import planted

ROOT = Path(__file__).parents[2]

KERNEL = '''
from ptxkit import Ptr, Reg, kernel, tid
from ptxkit.ptx import add, mov, st
from ptxkit.types import u32


@kernel(block=32)
def store(out: Ptr[u32], *, VALUE: int = 7) -> None:
    """Every thread writes VALUE."""
    st.global_.u32(out.at(mov.u32(tid.x)), mov.u32(VALUE))


@kernel(block=32)
def broken(out: Ptr[u32]) -> None:
    if mov.u32(tid.x) == 0:
        pass
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of kernels, made the working directory."""
    (tmp_path / "kernels_of_a_test.py").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "kernels_of_a_test", raising=False)
    return tmp_path


def write(folder: Path, ptx: str) -> str:
    path = folder / "planted.ptx"
    path.write_text(ptx)
    return str(path)


def test_emit(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", "kernels_of_a_test:store"]) == 0
    written = capsys.readouterr()
    assert written.out.startswith(".version")
    assert ".entry store" in written.out
    assert ".loc" not in written.out
    assert written.err == ""
    assert main(["emit", "kernels_of_a_test:store", "--set", "VALUE=1234", "-o", "store.ptx", "--locs"]) == 0
    assert capsys.readouterr().out == ""
    text = (module / "store.ptx").read_text()
    assert "1234" in text
    assert ".loc" in text


def test_emit_from_a_file_as_json(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", "kernels_of_a_test.py:store", "--set", "VALUE=9", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kernel"], data["target"], data["config"]) == ("store", "sm_90a", {"VALUE": 9})
    assert ".entry store" in data["ptx"]


@pytest.mark.parametrize(("arguments", "says"), [
    (["emit", "kernels_of_a_test:stare"], "has no kernel 'stare'; it has broken, store"),
    (["emit", "no_such_module_x:store"], "there is no module no_such_module_x"),
    (["emit", "kernels_of_a_test:store", "--set", "VALUE"], "write name=value"),
    (["emit", "kernels_of_a_test:store", "--set", "WIDTH=3"], "WIDTH"),
    (["emit", "kernels_of_a_test:store", "-o", "no/such/folder/f"], "cannot write no/such/folder/f"),
    (["assemble", "kernels_of_a_test.py", "--set", "A=1"], "--set is for kernels"),
    (["check", "kernels_of_a_test.py", "--set", "A=1"], "--set is for kernels"),
    (["inspect", "kernels_of_a_test.py", "--set", "A=1"], "--set is for kernels"),
    (["emit", "kernels_of_a_test.py"], "is a file, not module:kernel"),
    (["emit", ":store"], "neither the name of a module nor a .py file"),
    (["emit", "..a:store"], "neither the name of a module nor a .py file"),
])
def test_usage(module: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(arguments) == 2
    written = capsys.readouterr()
    assert says in written.err
    assert written.out == ""


SOURCES = {"emit": 1, "assemble": 1, "inspect": 1, "check": 1, "simulate": 1, "debug": 1, "export": 1, "lift": 1, "diff": 2}
"""The commands that read files or kernels, and how many each names."""
MORE = {"export": ("-o", "out")}
"""What else a command must be given."""


@pytest.mark.parametrize("command", SOURCES)
@pytest.mark.parametrize("source", ["missing.ptx", "missing", "missing.py:store", ".", "a" * 5000, "no/such/folder.cubin"])
def test_a_file_that_is_not_there_is_bad_input(module: Path, capsys: pytest.CaptureFixture[str], command: str, source: str) -> None:
    assert main([command, *[source] * SOURCES[command], *MORE.get(command, ())]) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert re.match(r"ptxkit: (there is no file|cannot read|\. is a folder)", written.err)


@pytest.mark.parametrize("command", sorted(SOURCES.keys() - {"emit", "export"}))
def test_a_file_that_is_no_ptx_is_bad_input(module: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    Path("binary.ptx").write_bytes(bytes(range(256)))
    assert main([command, *["binary.ptx"] * SOURCES[command]]) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert "binary.ptx is no text" in written.err


@pytest.mark.parametrize("command", sorted(SOURCES.keys() - {"lift"}))
def test_a_kernel_that_there_is_not_is_usage(module: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, *["kernels_of_a_test:stare"] * SOURCES[command], *MORE.get(command, ())]) == 2
    assert "has no kernel 'stare'" in capsys.readouterr().err


def test_every_command_is_held_to_the_rule() -> None:
    commands = set(re.findall(r"^    (\w+)", parser().format_help(), re.MULTILINE)) - {"command"}
    assert commands == {*SOURCES, "cache", "explain", "doctor", "gemm"}


@pytest.mark.parametrize("arguments", [[], ["sing"], ["emit"], ["emit", "a:b", "--loud"]])
def test_usage_by_argparse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_a_kernel_that_cannot_be_traced(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", "kernels_of_a_test:broken"]) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("ptxkit: ")
    assert "kernels_of_a_test.py:15" in written.err
    assert "if_" in written.err


@pytest.mark.ptxas
def test_assemble_a_kernel(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assemble", "kernels_of_a_test:store", "-o", "store.cubin"]) == 0
    assert (module / "store.cubin").read_bytes().startswith(b"\x7fELF")
    assert "registers" in capsys.readouterr().out


@pytest.mark.ptxas
def test_assemble_reports_errors_at_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = planted.ERRORS["wrong operand type"]
    path = write(tmp_path, case.ptx)
    assert main(["assemble", path]) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert f"{path}:{case.line}: error" in written.err
    assert main(["assemble", path, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["findings"][0]["file"], data["findings"][0]["line"], data["findings"][0]["severity"]) == (path, case.line, "error")


@pytest.mark.ptxas
def test_remarks_go_to_stderr_and_are_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = planted.REMARKS["setmaxnreg without a cap"]
    assert main(["assemble", write(tmp_path, case.ptx)]) == 0
    written = capsys.readouterr()
    assert "C7508" in written.err
    assert "C7508" not in written.out
    assert "setmaxnreg in effect" in written.out


@pytest.mark.ptxas
@pytest.mark.parametrize(("ptx", "effect"), [
    (planted.SETMAXNREG_IN_EFFECT, True), (planted.REMARKS["setmaxnreg without a cap"].ptx, False), (planted.CLEAN, None)])
def test_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str], ptx: str, effect: bool | None) -> None:
    assert main(["inspect", write(tmp_path, ptx), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    entry, = data["entries"]
    assert (entry["name"], entry["setmaxnreg"]) == ("k", effect)
    assert entry["resources"]["registers"] > 0
    assert entry["counts"]["wgmma"] == ptx.count("wgmma.mma_async")


@pytest.mark.ptxas
def test_inspect_from_stdin_without_nvdisasm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> Any:
        raise NoToolError("nvdisasm was not found")

    monkeypatch.setattr(toolchain, "nvdisasm", missing)
    monkeypatch.setattr(sys, "stdin", io.StringIO(planted.REMARKS["setmaxnreg without a cap"].ptx))
    assert main(["inspect", "-", "--json"]) == 0
    entry, = json.loads(capsys.readouterr().out)["entries"]
    assert entry["setmaxnreg"] is False


def test_inspect_without_ptxas_still_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> Any:
        raise NoToolError("ptxas was not found: install it")

    monkeypatch.setattr(toolchain, "ptxas", missing)
    assert main(["inspect", write(tmp_path, planted.CLEAN)]) == 0
    written = capsys.readouterr()
    assert "wgmma" in written.out
    assert "no resources: ptxas was not found" in written.err
    assert main(["assemble", write(tmp_path, planted.CLEAN)]) == 1


def test_machine_code_is_not_ptx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.cubin").write_bytes(b"\x7fELF\x02")
    assert main(["assemble", str(tmp_path / "k.cubin")]) == 1
    assert "machine code" in capsys.readouterr().err


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert status == (0 if data["ok"] else 1)
    checks = {check["name"]: check for check in data["checks"]}
    assert {"python", "ptxas", "nvdisasm", "cuobjdump", "driver", "cache", "rich", "matplotlib", "ml_dtypes", "torch", "jax"} <= set(checks)
    assert all(check["fix"] for check in checks.values() if check["state"] != "ok")
    assert main(["doctor"]) == status
    assert "ptxas" in capsys.readouterr().out


def test_a_wrong_setting_and_a_closed_pipe_from_outside() -> None:
    environment = {**os.environ, "PTXKIT_CHECK": "perhaps"}
    command = [sys.executable, "-m", "ptxkit", "doctor"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "off, warn, error" in done.stderr
    piped = subprocess.run(f"{sys.executable} -m ptxkit doctor | true", shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Traceback" not in piped.stderr
