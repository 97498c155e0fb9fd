"""Only a whole cubin is taken from an assembler, kept in the cache, given by it and handed to the driver."""

from __future__ import annotations

import logging
import os
import random
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ptxkit import settings
from ptxkit.errors import AssembleError, PtxkitError
from ptxkit.grammar import parse
from ptxkit.runtime import cache, driver, toolchain
from ptxkit.runtime.cache import Cache, Entry
from ptxkit.sass.cubin import require_whole

from ..inspect.subjects import PARTS
from . import planted
from .cubins import small
from .test_toolchain import CORPUS, fake_tool

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
WHOLE = small(bytes(range(256)), "k")
BROKEN = {
    "empty": b"",
    "a part": WHOLE[:200],
    "all but a byte": WHOLE[:-1],
    "text": b"ptxas info    : 0 bytes gmem\n" * 99,
    "noise": random.Random(1).randbytes(5000),
    "noise with the magic": b"\x7fELF" + random.Random(2).randbytes(5000),
    "32 bits": WHOLE[:4] + b"\1" + WHOLE[5:],
    "for the host": small(bytes(256), machine=62),
    "zeros behind the header": WHOLE[:64] + bytes(len(WHOLE)),
    "of another kernel": small(bytes(256), "other"),
    "without code": small(b"", "k"),
    "sections behind the end": WHOLE[:40] + struct.pack("<Q", 1 << 63) + WHOLE[48:],
    "segments behind the end": WHOLE[:32] + struct.pack("<Q", 1 << 63) + WHOLE[40:],
    "a segment longer than the file": WHOLE[:-24] + struct.pack("<QQQ", 1 << 40, 1 << 40, 1),
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """A cache of its own; settings are read again after the test."""
    settings.settings.cache_clear()
    monkeypatch.setenv("PTXKIT_CACHE_DIR", str(tmp_path / "cache"))
    yield monkeypatch
    monkeypatch.undo()
    settings.settings.cache_clear()


# ------------------------------------------------------------------------------------------------ what is whole


@pytest.mark.pure
@pytest.mark.parametrize("extended", [False, True])
def test_a_cut_at_any_byte_is_seen(extended: bool) -> None:
    whole = small(bytes(range(256)), "k", extended=extended)
    require_whole(whole, entries=["k"])
    for length in range(len(whole)):
        with pytest.raises(PtxkitError):
            require_whole(whole[:length])


@pytest.mark.pure
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken(name: str) -> None:
    with pytest.raises(PtxkitError, match=r"^this file is "):
        require_whole(BROKEN[name], entries=["k"])


@pytest.mark.ptxas
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_ptxas_makes_is_whole(path: Path) -> None:
    text = path.read_text()
    entries = [entry.name for entry in parse(text).entries if entry.body is not None]
    assert list(toolchain.defined_entries(text)) == entries
    for relocatable in {True, path.stem in PARTS}:
        made = toolchain.assemble(text, relocatable=relocatable).cubin
        require_whole(made, entries=entries)
        for length in range(0, len(made), 211):
            with pytest.raises(PtxkitError):
                require_whole(made[:length])


@pytest.mark.ptxas
@pytest.mark.parametrize("target", ["sm_75", "sm_90", "sm_90a", "sm_100a", "sm_120"])
def test_what_ptxas_makes_for_a_target_is_whole(target: str) -> None:
    text = f".version 8.7\n.target {target}\n.address_size 64\n.visible .entry a() {{ ret; }}\n.weak .entry b$_() {{ ret; }}\n"
    require_whole(toolchain.assemble(text, target).cubin, entries=["a", "b$_"])


@pytest.mark.pure
@pytest.mark.parametrize(("text", "entries"), [
    (".visible .entry k() { ret; }", ("k",)),
    (".entry a(.param .u64 x[2])\n.maxntid 32, 1, 1\n{ ret; }\n.weak .entry b { ret; } .func f() { ret; }", ("a", "b")),
    (".visible .entry k();\n.extern .entry e(.param .u32 p);\n.visible .entry k() { ret; }", ("k",)),
    ('.entry k() .pragma "nounroll"; .pragma "x { y"; .maxnreg 32 { ret; }', ("k",)),
    ("/* .entry a() { */ // .entry b() {\n.entry /* c */\n// d\nk() { .pragma \".entry e() {\"; }", ("k",)),
    ('.file 1 "//a.cu"\n.visible .entry _Z1kPf(.param .u64 p) { .loc 1 1 0 ret; }', ("_Z1kPf",)),
    ("", ()),
])
def test_the_entries_that_a_text_defines(text: str, entries: tuple[str, ...]) -> None:
    assert toolchain.defined_entries(text) == entries


# ------------------------------------------------------------------------------------------------ the cache


@pytest.mark.pure
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_not_given_and_is_removed(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As an earlier version has kept it: with the right sum."""
    store, key = Cache(tmp_path), cache.key(HEAD)
    store.put(key, Entry(WHOLE, "log"))
    path, = tmp_path.glob("??/*.cubin")
    path.write_bytes(cache._pack(Entry(BROKEN[name], "log")))
    with caplog.at_level(logging.WARNING, "ptxkit"):
        assert store.get(key, ["k"]) is None
    assert "is damaged (what it holds is " in caplog.text
    assert not path.exists()


@pytest.mark.pure
@pytest.mark.parametrize("name", sorted(set(BROKEN) - {"of another kernel", "without code"}))
def test_what_is_broken_is_not_kept(name: str, tmp_path: Path) -> None:
    with pytest.raises(PtxkitError, match="what is to be kept"):
        Cache(tmp_path).put(cache.key(HEAD), Entry(BROKEN[name], "log"))
    assert Cache(tmp_path).size() == (0, 0)


@pytest.mark.pure
@pytest.mark.timeout(20)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system")
@pytest.mark.parametrize("make", [lambda path: os.mkfifo(path), lambda path: path.symlink_to("/dev/zero"), Path.mkdir],
                         ids=["pipe", "device", "folder"])
def test_what_is_no_file_is_not_read(make: Callable[[Path], None], tmp_path: Path) -> None:
    store, key = Cache(tmp_path), cache.key(HEAD)
    store.put(key, Entry(WHOLE, "log"))
    path, = tmp_path.glob("??/*.cubin")
    path.unlink()
    make(path)
    assert store.get(key) is None
    store.put(key, Entry(WHOLE, "log"))
    assert store.get(key) == (None if path.is_dir() else Entry(WHOLE, "log"))


# ------------------------------------------------------------------------------------------------ the assembler

scripts = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")


def leaving(folder: Path, what: bytes) -> Path:
    """An executable that calls itself ptxas, leaves these bytes and says that all is well."""
    (folder / "left").write_bytes(what)
    return fake_tool(folder, f"open(sys.argv[-1], 'wb').write(open({str(folder / 'left')!r}, 'rb').read()); print('ptxas info    : fine')")


@scripts
@pytest.mark.timeout(30)
@pytest.mark.parametrize("left", [
    "os.mkfifo(made)", "os.mkdir(made)", "os.symlink('/dev/zero', made)", "os.symlink(made, made)", "open(made, 'wb').truncate(1 << 42)",
    "os.rmdir(made) if os.path.isdir(made) else os.chmod(os.path.dirname(made), 0)", "import shutil; shutil.rmtree(os.path.dirname(made))"])
def test_an_assembler_that_leaves_no_file(left: str, environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pipe is not waited for, a device not read, and the folder goes."""
    environment.setattr(tempfile, "tempdir", str(tmp_path))
    environment.setenv("PTXKIT_PTXAS", str(fake_tool(tmp_path, f"made = sys.argv[-1]; {left}")))
    with pytest.raises(AssembleError, match=r"exited with status 0, but what it left \(0 bytes\) is not a whole cubin"):
        toolchain.assemble(planted.CLEAN)
    assert not list(tmp_path.glob("ptxkit-*"))
    assert Cache(tmp_path / "cache").size() == (0, 0)


@scripts
@pytest.mark.parametrize("name", BROKEN)
def test_an_assembler_that_leaves_what_is_broken(name: str, environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("PTXKIT_PTXAS", str(leaving(tmp_path, BROKEN[name])))
    with pytest.raises(AssembleError) as caught:
        toolchain.assemble(planted.CLEAN)
    said = str(caught.value)
    assert said.startswith(f"ptxas 13.0.1 exited with status 0, but what it left ({len(BROKEN[name]):,} bytes) is ")
    assert f"Is the temporary folder {tempfile.gettempdir()} full?" in said
    assert "fine" in caught.value.log
    assert Cache(tmp_path / "cache").size() == (0, 0)


@scripts
def test_an_assembler_that_leaves_nothing(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("PTXKIT_PTXAS", str(fake_tool(tmp_path, "pass")))
    with pytest.raises(AssembleError, match=r"exited with status 0, but what it left \(0 bytes\) is not a whole cubin"):
        toolchain.assemble(planted.CLEAN)


@scripts
def test_an_assembler_that_leaves_what_is_whole(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("PTXKIT_PTXAS", str(leaving(tmp_path, WHOLE)))
    assert toolchain.assemble(planted.CLEAN).cubin == WHOLE
    assert Cache(tmp_path / "cache").size()[0] == 1


def test_a_temporary_folder_that_cannot_be_written_to(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("PTXKIT_PTXAS", str(fake_tool(tmp_path, "pass")))
    environment.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(AssembleError, match=r"cannot write a temporary file \(.*nowhere.*\): TMPDIR names another folder"):
        toolchain.assemble(planted.CLEAN)


@pytest.mark.ptxas
@pytest.mark.parametrize("poison", [lambda cubin: b"", lambda cubin: cubin[:2048], lambda cubin: cubin[:-1],
                                    lambda cubin: small(b"code", "other")])
def test_a_poisoned_entry_is_made_again(poison: Callable[[bytes], bytes], environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = toolchain.assemble(planted.CLEAN)
    path, = (tmp_path / "cache").glob("??/*.cubin")
    path.write_bytes(cache._pack(Entry(poison(first.cubin), first.log)))
    assert toolchain.assemble(planted.CLEAN).cubin == first.cubin
    assert cache._unpack(path.read_bytes()).cubin == first.cubin


# ------------------------------------------------------------------------------------------------ the driver


@pytest.mark.parametrize("name", sorted(set(BROKEN) - {"of another kernel", "without code"}))
def test_the_driver_is_not_handed_what_is_broken(name: str) -> None:
    """With or without a GPU: it would read on behind the end of the bytes."""
    with pytest.raises(AssembleError, match="the code to load is "):
        driver.load(BROKEN[name])
