"""The cache and other users, its limit, and what killed processes leave. Users are children of this process where it is root's."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxkit import files
from ptxkit.errors import PtxkitError
from ptxkit.files import is_private, make_folder, read_regular, write_whole
from ptxkit.runtime import cache
from ptxkit.runtime.cache import Cache, Entry, key

from .cubins import small
from .other_user import NOBODY, ROOT, as_other, open_folder

IMPORTS = "from pathlib import Path\nfrom ptxkit.runtime.cache import Cache, Entry, key"
ENTRY = Entry(small(b"cubin"), "log")
posix = pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
pytestmark = pytest.mark.pure


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What was said and counted of directories is forgotten."""
    files._told.clear()
    cache._written.clear()
    yield
    files._told.clear()
    cache._written.clear()


@pytest.fixture(name="open_folder")
def _open_folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def put(folder: Path, name: str = "k") -> Path:
    """An entry of this user's. Returns its place."""
    store = Cache(folder)
    store.put(key(name), ENTRY)
    return store._path(key(name))


# --------------------------------------------------------------------------------------------------- who can write


@posix
def test_a_new_cache_is_its_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = put(tmp_path / "above" / "cache")
        make_folder(tmp_path / "other" / "tuned", tmp_path / "other")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(folder.stat().st_mode) for folder in (path, path.parent, path.parents[1], tmp_path / "other" / "tuned")]
    assert modes == [0o600, 0o700, 0o700, 0o700]


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
@pytest.mark.parametrize("below", [False, True])
def test_what_others_can_write_to_is_not_read_nor_written(tmp_path: Path, mode: int, below: bool,
                                                          caplog: pytest.LogCaptureFixture) -> None:
    path, other = put(tmp_path / "cache"), key("other")
    folder = path.parent if below else path.parents[1]
    os.chmod(folder, mode)
    store = Cache(tmp_path / "cache")
    assert store.get(key("k")) is None
    assert store.get(key("k")) is None
    store.put(key("k"), Entry(small(b"another"), ""))
    assert path.exists()
    (said,) = caplog.messages
    assert said.startswith(f"{tmp_path / 'cache'} is not used as the cache, because {folder if below else 'it'} can be written by others: ")
    assert f"`chmod -R go-w {tmp_path / 'cache'}`" in said
    os.chmod(folder, 0o700)
    assert store.get(key("k")) == ENTRY
    assert store.get(other) is None


@posix
def test_an_entry_that_others_can_write_to_is_made_again(tmp_path: Path) -> None:
    path = put(tmp_path)
    path.chmod(0o666)
    assert Cache(tmp_path).get(key("k")) is None
    assert not path.exists()


def test_the_directory_of_another_user(open_folder: Path) -> None:
    """Root's is trusted, and another user's is not, whoever this process is."""
    if os.geteuid() != 0:
        assert is_private(Path("/usr")), "root's"
        return
    put(open_folder / "roots")
    for folder in (open_folder / "roots").rglob("*"):
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    (open_folder / "roots").chmod(0o755)
    program = "print(Cache(Path(sys.argv[1])).get(key('k')) is not None)"
    assert as_other(IMPORTS, program, open_folder / "roots").stdout == "True\n"
    put(open_folder / "others")
    for path in (open_folder / "others", *(open_folder / "others").rglob("*")):
        os.chown(path, NOBODY - 1, NOBODY - 1)
        path.chmod(0o755 if path.is_dir() else 0o644)
    done = as_other(IMPORTS, program, open_folder / "others")
    assert done.stdout == "False\n"
    assert done.stderr == (f"{open_folder / 'others'} is not used as the cache, because it belongs to another user (uid {NOBODY - 1}): set "
                           "PTXKIT_CACHE_DIR to a directory of yours, or to off\n")
    assert not is_private(open_folder / "others"), "root does not read what another user can change"


@posix
def test_a_directory_that_cannot_be_written_to_costs_only_time(open_folder: Path) -> None:
    program = """
store = Cache(Path(sys.argv[1]))
store.put(key('k'), Entry(bytes.fromhex(sys.argv[2]), ''))
print(store.get(key('k')), store.size(), list(Path(sys.argv[1]).iterdir()))
"""
    (open_folder / "cache").mkdir()
    if os.geteuid() != 0:
        (open_folder / "cache").chmod(0o500)
    done = as_other(IMPORTS, program, open_folder / "cache", ENTRY.cubin.hex())
    assert done.stdout == "None (0, 0) []\n", done.stderr
    assert "cannot write to the cache" in done.stderr
    assert done.stderr.count("\n") == 1


# --------------------------------------------------------------------------------------------------- what stands in the way


@posix
@pytest.mark.parametrize("make", [os.mkfifo, Path.touch, lambda path: path.symlink_to("/nowhere"),
                                  lambda path: path.symlink_to("/dev/zero")],
                         ids=["pipe", "file", "dangling", "device"])
def test_what_stands_in_the_place_of_a_folder_is_removed(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = put(tmp_path)
    path.unlink()
    path.parent.rmdir()
    make(path.parent)
    assert Cache(tmp_path).get(key("k")) is None
    assert put(tmp_path) == path
    assert Cache(tmp_path).get(key("k")) == ENTRY


@posix
@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)],
                         ids=["pipe", "folder", "device", "circle"])
def test_only_regular_files_are_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "file")
    assert read_regular(tmp_path / "file", 1 << 20) is None
    assert read_regular(tmp_path / "none", 1 << 20) is None
    (tmp_path / "large").write_bytes(bytes(100))
    assert read_regular(tmp_path / "large", 99) is None
    found = read_regular(tmp_path / "large", 100)
    assert found is not None
    assert found[0] == bytes(100)


def test_any_bytes_as_an_entry_are_survived(tmp_path: Path) -> None:
    """Forged ones too: with the right sum, and a log of any bytes and any length."""
    import hashlib
    import random

    chance = random.Random(1)
    path, store = put(tmp_path), Cache(tmp_path)
    for _ in range(300):
        log = chance.randbytes(chance.randrange(40))
        length = len(log) if chance.random() < 0.7 else chance.choice([0, 1, len(log) + 1, 1 << 62, (1 << 64) - 1])
        body = length.to_bytes(8, "little") + log + (ENTRY.cubin if chance.random() < 0.7 else chance.randbytes(chance.randrange(200)))
        data = cache._MAGIC + hashlib.sha256(body).digest() + body
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data if chance.random() < 0.8 else chance.randbytes(chance.randrange(100)))
        path.chmod(0o600)
        found = store.get(key("k"), ["k"])
        assert found is None or found.cubin == ENTRY.cubin
        assert (found is None) == (not path.exists())


# --------------------------------------------------------------------------------------------------- the limit


def test_what_was_not_used_for_longest_is_removed_first(tmp_path: Path) -> None:
    size = len(cache._pack(ENTRY))
    store = Cache(tmp_path, limit=10 * size)
    names = [key(str(number)) for number in range(9)]
    for number, name in enumerate(names):
        store.put(name, ENTRY)
        os.utime(store._path(name), (number, number))
    assert store.get(names[0]) == ENTRY
    for number in range(9, 12):
        store.put(key(str(number)), ENTRY)
    there = [name for name in names if store._path(name).exists()]
    assert names[0] in there, "it was used last"
    assert there[1:] == names[-len(there[1:]):], "the oldest have gone"
    assert store.size()[1] <= 10 * size
    for number in range(12, 80):
        store.put(key(str(number)), ENTRY)
        assert store.size()[1] <= 10 * size
        assert store._path(key(str(number))).exists()
    store.put(key("large"), Entry(small(bytes(20 * size)), ""))
    assert store.size()[1] <= 10 * size
    assert not store._path(key("large")).exists()


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """Entries of a time to come would be the last to go, and what is new the first."""
    size, ahead = len(cache._pack(ENTRY)), time.time() + 1e7
    store = Cache(tmp_path, limit=4 * size)
    for number in range(3):
        os.utime(put(tmp_path, f"future {number}"), (ahead, ahead))
    aside = store._path(key("future 0")).with_name(".aside-future")
    aside.touch()
    os.utime(aside, (ahead, ahead))
    for number in range(6):
        cache._written.clear()
        store.put(key(str(number)), ENTRY)
        assert store.get(key(str(number))) == ENTRY
    assert not any(store._path(key(f"future {number}")).exists() for number in range(3))
    assert not aside.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, OSError])
def test_a_write_that_is_cut_short_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    path = put(tmp_path)

    def cut(*given: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", cut)
        with contextlib.suppress(error):
            put(tmp_path, "other")
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [path]


@pytest.mark.parametrize("error", [FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError])
def test_a_folder_that_others_remove_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
                                               error: type[OSError]) -> None:
    real, calls = cache.make_private, []

    def removed(*given: Any) -> None:
        calls.append(given)
        if len(calls) < 4:
            raise error
        real(*given)

    monkeypatch.setattr(cache, "make_private", removed)
    put(tmp_path)
    assert Cache(tmp_path).get(key("k")) == ENTRY
    assert caplog.messages == []


@pytest.mark.parametrize("operation", ["replace", "utime", "scandir", "fstat"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EXDEV, errno.EROFS, errno.ENOENT, errno.ENAMETOOLONG])
def test_a_file_system_that_fails_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, number: int) -> None:
    """As one of a network does: for some time, and also after it has done what is asked for."""
    put(tmp_path)
    store, real = Cache(tmp_path), getattr(os, operation)
    for does in (False, True):
        def fails(*given: Any, does: bool = does) -> None:
            if does:
                real(*given)
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patched:
            patched.setattr(os, operation, fails)
            assert store.get(key("k")) in (None, ENTRY)
            store.put(key("other"), ENTRY)
            store.trim()
            store.size()
        assert store.get(key("k")) == ENTRY
        assert store.get(key("other")) in (None, ENTRY)
        assert not list(tmp_path.rglob(".aside-*"))


def test_what_killed_processes_left_is_counted_and_removed_when_it_is_old(tmp_path: Path) -> None:
    path = put(tmp_path)
    (tmp_path / "tuned").mkdir()
    old, new, table = path.parent / ".aside-old", path.parent / ".aside-new", tmp_path / "tuned" / ".aside-table"
    for file in (old, new, table):
        file.write_bytes(bytes(100))
    for file in (old, table):
        os.utime(file, (time.time() - 3700,) * 2)
    store = Cache(tmp_path)
    assert store.size() == (1, path.stat().st_size + 300)
    cache._written.clear()
    put(tmp_path, "other")
    assert [file.exists() for file in (old, new, table)] == [False, True, False]
    assert store.clear() == 2
    assert store.size() == (0, 0)


def test_clear_does_not_follow_links(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.cubin").touch()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "ab").symlink_to(elsewhere)
    assert Cache(tmp_path / "cache").size() == (0, 0)
    assert Cache(tmp_path / "cache").clear() == 0
    assert (elsewhere / "a.cubin").exists()


# --------------------------------------------------------------------------------------------------- the command


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    return subprocess.run([sys.executable, "-m", "ptxkit", "cache", *arguments], env={"PYTHONPATH": path, **environment},
                          capture_output=True, text=True, check=False)


def test_the_command(tmp_path: Path) -> None:
    put(tmp_path)
    size = Cache(tmp_path).size()[1]
    about = {"PTXKIT_CACHE_DIR": str(tmp_path), "PTXKIT_CACHE_MB": "7"}
    said = json.loads(command("--json", **about).stdout)
    assert said == {"place": str(tmp_path), "used": True, "entries": 1, "bytes": size, "limit": 7_000_000, "removed": None}
    text = command(**about).stdout
    assert text.splitlines() == [f"place    {tmp_path}", "entries  1", f"bytes    {size:,}", "limit    7,000,000 bytes"]
    assert command("--clear", **about).stdout.splitlines()[-1] == "removed  1"
    assert Cache(tmp_path).size() == (0, 0)
    assert command("--clear", **about).stdout.splitlines()[-1] == "removed  0"
    off = command("--json", PTXKIT_CACHE_DIR="off")
    assert json.loads(off.stdout)["place"] is None
    assert command(PTXKIT_CACHE_DIR="off").stdout == "off: set PTXKIT_CACHE_DIR to keep cubins\n"


# --------------------------------------------------------------------------------------------------- whole files


@posix
def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    write_whole(tmp_path / "link", b"two")
    assert path.read_bytes() == b"two"
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path, b"")

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"three")
    assert path.read_bytes() == b"two"
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "link"]
    write_whole(Path("/dev/null"), b"three")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# --------------------------------------------------------------------------------------------------- temporary folders

KILLED = """
import os, sys, signal, tempfile
tempfile.tempdir = sys.argv[1]
from ptxkit.files import temporary_folder
with temporary_folder() as folder:
    (folder / "file").write_text("")
    print(folder, flush=True)
    if sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the table of processes of Linux")
def test_temporary_folders_go_after_a_kill(tmp_path: Path) -> None:
    def start(how: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})

    killed = start("kill")
    left, _ = killed.communicate()
    assert killed.returncode == -9
    assert (Path(left.strip()) / "file").exists()
    unlike = [tmp_path / name for name in ("ptxkit-keep", "ptxkit-1-2-x", "ptxkit-1-2-3-abroad", "other-1-2-3-x")]
    for folder in unlike:
        folder.mkdir()
    with start("stay") as living:
        assert living.stdout is not None
        here = Path(living.stdout.readline().strip())
        assert not Path(left.strip()).exists()
        assert all(folder.exists() for folder in unlike)
        with start("stay") as other:
            assert other.stdout is not None
            other.stdout.readline()
            assert (here / "file").exists(), "its process lives"
            other.communicate("")
        os.utime(unlike[2], (0, 0))
        with start("stay") as last:
            last.communicate("")
        assert [folder.exists() for folder in unlike] == [True, True, False, True]
        living.communicate("")
    assert sorted(tmp_path.iterdir()) == sorted(folder for folder in unlike if folder != unlike[2])


def test_what_is_not_whole_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(PtxkitError, match="not a whole cubin"):
        Cache(tmp_path).put(key("k"), Entry(b"\x7fELF", ""))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_a_place_where_nothing_can_be_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The kernel says that the file is not there, as where another process clears the cache."""
    Cache(Path("/proc/ptxkit-of-a-test")).put(key("k"), ENTRY)
    assert "cannot write to the cache: [Errno 2]" in caplog.text
