"""Files and folders that other programs can spoil: whole writes, careful reads, directories of the user's own, temporary folders.

`write_whole` writes a file or leaves it as it was. `read_text` and `read_json` refuse a file without an end. `read_regular` never waits for
a pipe or reads a device. `is_private` says whether others can write to a directory. `temporary_folder` makes a folder that is removed
even if this process is killed: the next one removes it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import logging
import operator
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

_LOG = logging.getLogger("ptxkit")
_POSIX = os.name == "posix"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_BLIND = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
ASIDE = ".aside-"
"""How the name of a file begins that is being written."""
OLD_S = 3600.0
"""Files of a writer that has been gone for so long are removed."""
ABROAD_S = 86_400.0
"""So are temporary folders of processes that cannot be asked for: of another system or container."""
MOST_BYTES = 1 << 28
"""Of a file that a user names more is not read."""
WRONG_DATA = OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError
"""What it raises to read a file, and values out of JSON of any form."""


# ------------------------------------------------------------------------------------------------ reading and writing


def write_whole(path: Path, data: bytes) -> None:
    """Write the whole file, or leave it as it was. Devices and pipes are written to; a link still points where it did. Raises OSError,
    which names the file."""
    try:
        _write_whole(Path(path), data)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _write_whole(path: Path, data: bytes) -> None:
    try:
        before = path.stat()
    except FileNotFoundError:
        before = None
    if (before is not None and not stat.S_ISREG(before.st_mode)) or path.is_relative_to("/dev") or path.is_relative_to("/proc"):
        path.write_bytes(data)
        return
    target = Path(os.path.realpath(path))
    if before is not None and not os.access(target, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(path))
    aside = target.with_name(f"{ASIDE}{os.urandom(8).hex()}")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BLIND, 0o666)  # the umask applies
    except PermissionError:
        if before is None:
            raise
        path.write_bytes(data)  # the file may be written to, its folder may not
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if before is not None:
            os.chmod(aside, stat.S_IMODE(before.st_mode))
        os.replace(aside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def read_text(path: str | os.PathLike[str], most: int | None = None) -> str:
    """The UTF-8 text of a file or a pipe. Raises OSError, also where there is more of it: a device may have no end."""
    most = MOST_BYTES if most is None else most
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB", os.fspath(path))
    return data.decode()


def read_json(path: str | os.PathLike[str], most: int | None = None) -> Any:
    """What a JSON file says. Raises OSError as `read_text` does, and ValueError, also where it is nested too deeply for Python."""
    try:
        return json.loads(read_text(path, most))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def encoded(ptx: str) -> bytes:
    """The bytes of a PTX text as they were read: what is no UTF-8, in a comment say, stands in the text as Python escapes it."""
    return ptx.encode("utf-8", "surrogateescape")


def read_kept(path: Path) -> Any:
    """What a JSON file says that programs keep for themselves: as `read_json`, but a pipe or a device is not waited for. Links are
    followed."""
    found = read_regular(Path(os.path.realpath(path)), MOST_BYTES)
    if found is None:
        raise OSError(errno.EINVAL, f"it is no regular file of at most {MOST_BYTES >> 20} MiB", str(path))
    try:
        return json.loads(found[0].decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_regular(path: Path, most: int) -> tuple[bytes, os.stat_result] | None:
    """The bytes of a regular file of at most that size, and what it is; None for a link, a pipe, a device, a folder or a larger file."""
    try:
        handle = os.open(path, os.O_RDONLY | _BLIND)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            return None
        with open(handle, "rb", closefd=False) as file:
            return file.read(most), status
    except OSError:
        return None
    finally:
        os.close(handle)


# ------------------------------------------------------------------------------------------------ directories of one's own


def strange(status: os.stat_result) -> str:
    """Why a file or a directory is not this user's own, as "can be written by others"; empty if it is. Root's are trusted."""
    if not _POSIX:
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to another user (uid {status.st_uid})"
    return "can be written by others" if status.st_mode & _OTHERS else ""


def is_private(directory: Path, *below: str) -> bool:
    """Whether nobody else can write to a directory, to a folder in it, to one in that, and so on. If others can, that is logged once.

    A directory that is not there is private: `make_private` makes it so.
    """
    for path in accumulate((directory, *below), operator.truediv):
        try:
            status = path.stat()
        except OSError:
            return True
        if not stat.S_ISDIR(status.st_mode):
            return True
        why = strange(status)
        if why:
            _warn(directory, path, why)
            return False
    return True


def make_private(directory: Path, *below: str) -> None:
    """Make a directory, a folder in it, one in that, and so on, with access for this user alone. Raises OSError."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    for path in accumulate((directory, *below), operator.truediv):
        path.mkdir(mode=0o700, exist_ok=True)


def folder_of(cache: Path | None, name: str) -> Path | None:
    """A folder of the cache directory. None if there is no cache, or if others can write to it."""
    return cache / name if cache is not None and is_private(cache, name) else None


def make_folder(folder: Path, cache: Path | None) -> None:
    """Make a folder and those above it: with access for this user alone in the cache directory, as the umask says elsewhere."""
    if cache is not None and folder.is_relative_to(cache):
        make_private(cache, *folder.relative_to(cache).parts)
    else:
        folder.mkdir(parents=True, exist_ok=True)


_told: set[Path] = set()
"""The directories of which it has been said that they are not used."""


def _warn(directory: Path, path: Path, why: str) -> None:
    if directory in _told:
        return
    _told.add(directory)
    way_out = (f"`chmod -R go-w {directory}` makes it yours alone, if nobody else has written there" if "others" in why
               else "set PTXKIT_CACHE_DIR to a directory of yours, or to off")
    _LOG.warning("%s is not used as the cache, because %s %s: %s", directory, "it" if path == directory else path, why, way_out)


# ------------------------------------------------------------------------------------------------ temporary folders

_FOLDER = re.compile(r"ptxkit-(\d+)-(\d+)-(\d+)-\w+")


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder of its own, removed afterwards; if this process is killed, by the next that makes one. Raises OSError."""
    import tempfile  # with what it imports it takes as long as a tenth of importing `kernel`

    base = tempfile.gettempdir()
    _sweep(base)
    with tempfile.TemporaryDirectory(prefix=f"ptxkit-{_namespace()}-{os.getpid()}-{_started(os.getpid())}-", dir=base,
                                     ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@functools.cache
def _sweep(base: str) -> None:
    """Remove what processes of this user left that are gone. Once a process."""
    try:
        with os.scandir(base) as entries:
            left = [entry.path for entry in entries if _is_left(entry)]
    except OSError:
        return
    import shutil

    for path in left:
        shutil.rmtree(path, ignore_errors=True)


def _is_left(entry: os.DirEntry[str]) -> bool:
    named = _FOLDER.fullmatch(entry.name)
    if named is None:
        return False
    namespace, process, started = map(int, named.groups())
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode) or (_POSIX and status.st_uid != os.geteuid()):
        return False
    if namespace and namespace == _namespace():
        return _started(process) != started
    return time.time() - status.st_mtime > ABROAD_S


@functools.cache
def _namespace() -> int:
    """The number of this system's or container's table of processes; 0 where there is none to ask."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _started(process: int) -> int:
    """When a process started, in ticks since the system did; 0 if there is no such process, or no such table."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        said = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return 0
    return int(said.rpartition(b")")[2].split()[19])


__all__ = ["ASIDE", "OLD_S", "WRONG_DATA", "encoded", "folder_of", "is_private", "make_folder", "make_private", "read_json", "read_kept",
           "read_regular", "read_text", "strange", "temporary_folder", "write_whole"]
