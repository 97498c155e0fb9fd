"""Folders that are full: a file system of 64 KiB, mounted for one process. What is met is one sentence, and nothing bad is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a mount of Linux")]
ROOT = Path(__file__).parents[2]
PAGE = 4096
FILLED = """
import os, sys
from pathlib import Path

small, outside = map(Path, sys.argv[1:3])

def fill(left):
    handle = os.open(small / "fill", os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(handle, bytes(4096)):
            pass
    except OSError:
        pass
    os.ftruncate(handle, max(os.fstat(handle).st_size - left, 0))
    os.close(handle)
"""
ASSEMBLED = FILLED + """
import tempfile
from ptxkit.errors import AssembleError
from ptxkit.runtime import cache, toolchain
from tests.ptxkit import planted

toolchain.ptxas()
tempfile.gettempdir()                       # it is chosen while there is room
texts = [f"// {number}\\n{planted.CLEAN}" for number in range(6)]
for number, text in enumerate(texts):
    fill(number * 4096)
    try:
        print("made", toolchain.assemble(text).cubin[:4] == b"\\x7fELF")
    except AssembleError as error:
        print(error)
    (small / "fill").unlink()
    print("left", [each.name for each in small.rglob(".aside-*")] + [each.name for each in small.glob("ptxkit-*")])
print("then", all(toolchain.assemble(text).cubin[:4] == b"\\x7fELF" for text in texts), cache.cache().size()[0])
"""


def in_small(tmp_path: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with a full folder, its first argument. The mount is seen by it alone. Skips where nothing may be mounted."""
    small = tmp_path / "small"
    small.mkdir()
    unshare = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
    mounted = [*unshare, "sh", "-c", 'mount -t tmpfs -o size=64k,mode=700 none "$1" && shift && exec "$@"', "-", str(small)]
    if shutil.which("unshare") is None or subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing may be mounted here")
    known = {"PTXKIT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([*mounted, sys.executable, "-c", program, str(small), str(tmp_path)], capture_output=True, text=True, check=False,
                          cwd=ROOT, env={**os.environ, **{name: said.replace("SMALL", str(small)) for name, said in known.items()}})


@pytest.mark.ptxas
def test_a_full_temporary_folder(tmp_path: Path) -> None:
    done = in_small(tmp_path, ASSEMBLED, TMPDIR="SMALL")
    assert done.returncode == 0, done.stderr
    *rounds, last = done.stdout.splitlines()
    assert rounds[1::2] == ["left []"] * 6
    said = [each for each in rounds[::2] if each != "made True"]
    assert 1 <= len(said) < 6
    assert all("TMPDIR names another" in each and ("No space left on device" in each or "not a whole cubin" in each) for each in said)
    assert last == "then True 6"
    assert done.stderr == ""


@pytest.mark.ptxas
def test_a_full_cache(tmp_path: Path) -> None:
    done = in_small(tmp_path, ASSEMBLED, PTXKIT_CACHE_DIR="SMALL")
    assert done.returncode == 0, done.stderr
    *rounds, last = done.stdout.splitlines()
    assert rounds == ["made True", "left []"] * 6
    assert last == "then True 6"
    (said,) = done.stderr.splitlines()
    assert said.startswith("cannot write to the cache: [Errno 28] No space left on device")
    assert "PTXKIT_CACHE_DIR" in said


COMMANDS = FILLED + """
import contextlib, io
from ptxkit.cli.main import main

fill(0)
kernel, other = "examples.tile_gemm:tile_gemm", str(small / "other")
(small / "other").write_bytes(b"")
for command in (["emit", kernel, "-o", other], ["inspect", kernel, "--view", "html", "-o", other],
                ["check", kernel, "--sarif", other], ["export", kernel, "-o", str(small / "folder")]):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        code = main(command)
    print(command[0], code, said.getvalue().strip())
print(sorted(each.name for each in small.rglob("*")), (small / "other").stat().st_size)
"""


@pytest.mark.ptxas
def test_commands_that_write_to_a_full_folder(tmp_path: Path) -> None:
    done = in_small(tmp_path, COMMANDS)
    assert done.returncode == 0, done.stderr
    *said, last = done.stdout.splitlines()
    assert [line.split()[0] for line in said] == ["emit", "inspect", "check", "export"]
    for line in said:
        assert line.split()[1] in ("1", "2"), line
        assert "ptxkit: cannot write " in line
        assert line.endswith(": No space left on device")
    assert last == "['fill', 'other'] 0"
