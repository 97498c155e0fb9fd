"""The kernel that the README shows runs wherever Python does.

It is run from a folder with a space, in a home that is read-only, without write access to the cache, in a thread, after a fork, in the
cells of IPython, from stdin and in an interactive Python.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import linecache
import os
import shutil
import subprocess
import sys
import threading
import zipapp
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxkit.cli.main import main
from ptxkit.errors import TraceError
from ptxkit.runtime import toolchain
from tests.distributions import example, expected
from tests.ptxkit.other_user import as_other, open_folder

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM, PRINTS = example(PAGE), expected(PAGE)
WRONG = "@kernel(block=32)\ndef wrong(out: Ptr[f32]) -> None:\n    st.global_.f32(out, 'a word')\n\n\nwrong.ptx()\n"

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
posix = pytest.mark.skipif(os.name != "posix", reason="forks, users and permissions are POSIX's")


def ran(*arguments: str, cwd: Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    return subprocess.run([sys.executable, *arguments], cwd=cwd, input=stdin, capture_output=True, text=True, encoding="utf-8", check=False,
                          env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", **environment})


def proven() -> str:
    """What the program prints, here."""
    with contextlib.redirect_stdout(io.StringIO()) as written:
        exec(compile(PROGRAM, "saxpy.py", "exec", dont_inherit=True), {"__name__": "__main__"})
    return written.getvalue()


# --------------------------------------------------------------------------------------------------- folders


@pytest.mark.ptxas
def test_paths_with_spaces(tmp_path: Path) -> None:
    """The program, the home, the cache, temporary files and ptxas itself are in folders whose names need quotes."""
    home, temporary, kept = (tmp_path / name for name in ("my höme", "my temporary 'files'", "what is $kept"))
    for folder in (home, temporary):
        folder.mkdir()
    (home / "my saxpy.py").write_text(PROGRAM, encoding="utf-8")
    tool = home / "my ptxas"
    tool.symlink_to(toolchain.ptxas().path)
    places = {"HOME": str(home), "TMPDIR": str(temporary), "PTXKIT_CACHE_DIR": str(home / "my cache"), "PTXKIT_PTXAS": str(tool),
              "PTXKIT_KEEP": "ptx,cubin,log", "PTXKIT_KEEP_DIR": str(kept)}
    done = ran("-m", "ptxkit", "assemble", "my saxpy.py:saxpy", "-o", "a cubin", "--json", cwd=home, **places)
    assert (done.returncode, done.stderr) == (0, PRINTS)
    assert json.loads(done.stdout)["ptxas"]
    assert (home / "a cubin").read_bytes().startswith(b"\x7fELF")
    assert list(temporary.iterdir()) == []
    assert len(list((home / "my cache").rglob("*.cubin"))) == 1
    assert {path.suffix for path in kept.iterdir()} == {".ptx", ".cubin", ".log"}


AS_OTHER = """
import contextlib, io, logging
from pathlib import Path
from ptxkit import Ptr, kernel, settings
from ptxkit.cli.main import main
from ptxkit.ptx import st
from ptxkit.runtime import cache
from ptxkit.types import u32

def use(place, number):
    settings.settings.cache_clear()
    said, names = io.StringIO(), {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as written:
        exec(compile(sys.argv[1], "saxpy.py", "exec"), names)

        @kernel(block=32)
        def other(out: Ptr[u32]) -> None:
            st.global_.u32(out, number)

        print(names["saxpy"].assemble().resources["saxpy"].registers > 0, other.assemble().cubin[:4])
        print("doctor", main(["doctor"]), "cannot be written to" in written.getvalue())
    print(place, written.getvalue().splitlines()[:3] + written.getvalue().splitlines()[-1:])

os.environ["PTXKIT_CACHE_DIR"] = "off"
with contextlib.redirect_stdout(io.StringIO()):
    use("preparation", 0)                   # everything is imported while it can be read
sys.stdout.flush()
"""


@posix
@pytest.mark.ptxas
def test_a_home_and_a_cache_that_cannot_be_written_to() -> None:
    program = """
for number, (name, value) in enumerate([("HOME", sys.argv[2] + "/home"), ("PTXKIT_CACHE_DIR", sys.argv[2] + "/cache")], 1):
    os.environ.pop("PTXKIT_CACHE_DIR")
    os.environ[name] = value
    os.environ.setdefault("PTXKIT_CACHE_DIR", "")
    use(name, number)
"""
    with open_folder() as folder:
        for each in ("home", "cache"):
            (folder / each).mkdir(mode=0o755)
            (folder / each).chmod(0o555)
        shutil.copy(toolchain.ptxas().path, folder / "ptxas")
        done = as_other(AS_OTHER, program, PROGRAM, folder, PTXKIT_PTXAS=str(folder / "ptxas"), PATH=os.environ["PATH"])
        assert done.returncode == 0, done.stderr
        due = [*PRINTS.splitlines(), r"True b'\x7fELF'", "doctor 0 True"]
        assert done.stdout.splitlines() == [f"HOME {due}", f"PTXKIT_CACHE_DIR {due}"]
        first, second = done.stderr.splitlines()
        assert first.startswith("cannot write to the cache: ")
        assert str(folder / "home") in first
        assert str(folder / "cache") in second
        assert [path for each in ("home", "cache") for path in (folder / each).iterdir()] == []


# --------------------------------------------------------------------------------------------------- threads and forks


def test_a_thread_that_is_not_the_main_one() -> None:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(proven()))
    thread.start()
    thread.join()
    assert said == [PRINTS]


FORKS = """
import contextlib, io, multiprocessing, os, sys
from ptxkit.runtime import toolchain

def proven():
    with contextlib.redirect_stdout(io.StringIO()) as written:
        exec(compile(sys.argv[1], "saxpy.py", "exec"), {"__name__": "__main__"})
    return written.getvalue()

def exit_of(work):
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def registers(number):
    text = sys.argv[2].replace("NUMBER", str(number))
    return toolchain.assemble(text).resources["k"].registers

here = proven()
child = exit_of(lambda: proven() == here)
grandchild = exit_of(lambda: exit_of(lambda: proven() == here) == 0)
wrong = exit_of(lambda: proven() == "")
print(here, child, grandchild, wrong, flush=True)
first = registers(5)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(first > 0 and pool.map(registers, range(6, 10), chunksize=1) == [first] * 4)
"""
STORE = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [out];
    cvta.to.global.u64 %rd1, %rd0;
    st.global.u32 [%rd1], NUMBER;
    ret;
}
"""


@posix
@pytest.mark.ptxas
def test_after_a_fork(tmp_path: Path) -> None:
    """The child of a process that has used it, a child of that one, and workers that assemble."""
    done = ran("-c", FORKS, PROGRAM, STORE, cwd=tmp_path, PTXKIT_CACHE_DIR="off")
    assert (done.returncode, done.stdout) == (0, f"{PRINTS} 0 0 1\nTrue\n"), done.stderr


# --------------------------------------------------------------------------------------------------- interactive


class Shell:
    """What a shell of IPython does with a cell, as far as tracebacks and tools can see it.

    A cell is a file `<ipython-input-NUMBER-HASH>` of `linecache`; its statements are compiled one at a time.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.numbers: dict[str, int] = {}
        self.compile = SimpleNamespace(format_code_name=self.label)

    def label(self, file: str) -> tuple[str, str] | None:
        return ("Cell", f"In[{self.numbers[file]}]") if file in self.numbers else None

    def run_cell(self, text: str) -> str:
        """What the cell prints."""
        number = len(self.numbers) + 1
        file = f"<ipython-input-{number}-{hashlib.sha1(text.encode()).hexdigest()[:12]}>"
        self.numbers[file] = number
        linecache.cache[file] = len(text), None, text.splitlines(True), file
        with contextlib.redirect_stdout(io.StringIO()) as written:
            for statement in ast.parse(text).body:
                exec(compile(ast.Module([statement], []), file, "exec", dont_inherit=True), self.names)
        return written.getvalue()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    made = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: made))
    yield made
    for file in made.numbers:
        linecache.cache.pop(file, None)


def test_cells_of_ipython(shell: Shell) -> None:
    assert shell.run_cell(PROGRAM) == PRINTS
    assert '.file 1 "In[1]"' in shell.run_cell("print(saxpy.ptx(locs=True))")
    with pytest.raises(TraceError, match=r"^In\[3\]:3: `st\.global\.f32` operand `b`"):
        shell.run_cell(WRONG)
    assert shell.run_cell(PROGRAM.replace("fma.rn", "fma.rz")) == PRINTS, "a cell may be run again"
    assert "fma.rz.f32" in shell.run_cell("print(saxpy.ptx())")


@pytest.mark.ptxas
def test_commands_where_stdout_takes_text_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a notebook, whose stdout has no buffer of bytes."""
    (tmp_path / "one.ptx").write_text(STORE.replace("NUMBER", "7"), encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()) as written:
        assert main(["inspect", str(tmp_path / "one.ptx"), "--view", "html"]) == 0
        assert main(["assemble", str(tmp_path / "one.ptx"), "-o", "-"]) == 2
    assert written.getvalue().startswith("<!doctype html>")
    assert capsys.readouterr().err == "ptxkit: this stdout takes text, not machine code: name a file with -o\n"


@pytest.mark.parametrize("arguments", [["-"], ["-i"], ["-c", PROGRAM]], ids=["stdin", "interactive", "argument"])
def test_a_program_without_a_file(arguments: list[str], tmp_path: Path) -> None:
    typed = PROGRAM.replace("\n\n\n@", "\n\n@").replace("\n\n\nx", "\n\nx") if arguments == ["-i"] else PROGRAM
    done = ran(*arguments, cwd=tmp_path, stdin="" if arguments[0] == "-c" else typed)
    assert (done.returncode, done.stdout) == (0, PRINTS), done.stderr
    assert "Error" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [["-m", "saxpy"], ["-OO", "saxpy.py"], ["-W", "error", "saxpy.py"], ["app.pyz"]],
                         ids=["module", "optimised", "warnings", "zipapp"])
def test_a_program_that_python_runs_otherwise(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "saxpy.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(PROGRAM, encoding="utf-8")
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    done = ran(*options, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, PRINTS, "")


def test_a_mistake_in_an_archive_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(PROGRAM + WRONG, encoding="utf-8")
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    done = ran("app.pyz", cwd=tmp_path)
    place = f"{Path('app.pyz', '__main__.py')}:{PROGRAM.count(chr(10)) + 3}: `st.global.f32` operand `b` takes "
    assert done.returncode == 1
    assert place in done.stderr.splitlines()[-1]


def test_a_mistake_in_stdin_has_its_line(tmp_path: Path) -> None:
    done = ran("-", cwd=tmp_path, stdin=PROGRAM + WRONG)
    line = PROGRAM.count("\n") + 3
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ptxkit.errors.TraceError: <stdin>:{line}: `st.global.f32` operand `b` takes ")
