"""The cache of assembled kernels on disk: one file per entry, safe for any number of processes.

The name of an entry is the sha256 of everything that determines its bytes. An entry is written to another file and moved into place by one
`os.replace`. A reader therefore sees a whole entry or none, and two writers of one key write the same bytes. The cache stores and returns
only whole cubins: an assembler with a full disk may have left a part of one. It is used only while nobody else can write to its directory.
Entries that were not used for longest are removed when all of them are larger than its limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import PtxkitError
from ..files import ASIDE, OLD_S, encoded, is_private, make_private, read_regular, strange
from ..sass.cubin import require_whole
from ..settings import DEFAULT_MB, settings

_LOG = logging.getLogger("ptxkit")
_MAGIC = b"ptxkit-cubin-1\n"
_DEBUG_LINE = re.compile(r"\s*\.(?:loc|file)\s")


def strip_lines(ptx: str) -> tuple[str, tuple[int, ...]]:
    """The text without its `.loc` and `.file` lines, and the number of each remaining line in the full text."""
    kept = [(number, line) for number, line in enumerate(ptx.splitlines(), 1) if not _DEBUG_LINE.match(line)]
    return "\n".join(line for _, line in kept), tuple(number for number, _ in kept)


def key(stripped: str, *recipe: str) -> str:
    """The key of an assembled text. `recipe` is the assembler's tool, version and flags; the text comes from `strip_lines`."""
    return hashlib.sha256(encoded("\0".join((*recipe, stripped)))).hexdigest()


PLACINGS = 5
"""So often an entry is put in its place while others remove and make its folder."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A cubin and the assembler's log."""

    cubin: bytes
    log: str


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the cache: when it was last used, in ns, its bytes, and its place."""

    used: int
    bytes: int
    path: Path

    @property
    def is_entry(self) -> bool:
        return not self.path.name.startswith(ASIDE)


@dataclass(frozen=True, slots=True)
class Cache:
    """A directory of entries of at most `limit` bytes in all."""

    directory: Path
    limit: int = DEFAULT_MB * 1_000_000

    def get(self, name: str, entries: Collection[str] = ()) -> Entry | None:
        """The entry with that name, or None. A file that is not a whole cubin with these kernel entries is removed."""
        path = self._path(name)
        found = read_regular(path, self.limit) if self.usable(path.parent.name) else None
        if found is None:
            return None
        data, status = found
        try:
            if why := strange(status):
                raise PtxkitError(f"it {why}")
            entry = _unpack(data)
            require_whole(entry.cubin, "what it holds", entries)
        except PtxkitError as error:
            _LOG.warning("cache entry %s is damaged (%s); it is made again", path, error)
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of its last use
        return entry

    def usable(self, *below: str) -> bool:
        """Whether nobody else can write to the directory and to these folders in it. If others can, that is logged once."""
        return is_private(self.directory, *below)

    def put(self, name: str, entry: Entry) -> None:
        """Store the entry. If the directory cannot be written, it only logs that: the cache only saves time.

        Raises PtxkitError for bytes that are not a whole cubin.
        """
        require_whole(entry.cubin, "what is to be kept in the cache")
        path, data = self._path(name), _pack(entry)
        if len(data) > self.limit or not self.usable(path.parent.name):
            return
        for left in reversed(range(PLACINGS)):
            try:
                self._place(path, data)
                break
            except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
                if not left:  # it is no process that clears the cache meanwhile, but a place where nothing can be
                    self._tell(error)
                    return
            except OSError as error:
                self._tell(error)
                return
        self._wrote(len(data))

    def _place(self, path: Path, data: bytes) -> None:
        """Write an entry aside, and put it in its place. Raises OSError, and leaves nothing behind."""
        self._make_room(path)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=ASIDE)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise

    def _tell(self, error: OSError) -> None:
        """Log why the directory cannot be written to, once a process."""
        if self.directory not in _told:
            _told.add(self.directory)
            _LOG.warning("cannot write to the cache: %s: each process assembles its kernels again; "
                         "set PTXKIT_CACHE_DIR to a directory of yours, or to off", error)

    def _make_room(self, path: Path) -> None:
        """Make the folder of an entry. What stands in the way, there or in the entry's own place, is removed."""
        if path.parent.is_symlink() or (path.parent.exists() and not path.parent.is_dir()):
            path.parent.unlink()
        make_private(self.directory, path.parent.name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)

    def _wrote(self, size: int) -> None:
        """Count what this process has written. The whole directory is looked at when it first writes, and after each 1/64 of the limit."""
        written = _written.get(self.directory)
        if written is None or written + size > self.limit // 64:
            self.trim()
            written = -size
        _written[self.directory] = written + size

    def trim(self) -> None:
        """Remove entries, those first that were not used for longest, until 63/64 of the limit hold the rest; and what killed processes
        left more than an hour ago."""
        left = []
        for file in sorted(self._files(), key=lambda file: file.used):
            if not file.is_entry and file.used < time.time_ns() - OLD_S * 1e9:
                _remove(file.path)
            else:
                left.append(file)
        total = sum(file.bytes for file in left)
        for file in left:
            if total <= self.limit - self.limit // 64:
                break
            if file.is_entry:
                _remove(file.path)
                total -= file.bytes

    def clear(self) -> int:
        """Remove every entry, and what killed processes left. Returns the number of entries."""
        files = list(self._files())
        for file in files:
            _remove(file.path)
        return sum(file.is_entry for file in files)

    def size(self) -> tuple[int, int]:
        """The number of entries, and their bytes with those that killed processes left."""
        files = list(self._files())
        return sum(file.is_entry for file in files), sum(file.bytes for file in files)

    def _files(self) -> Iterator[_File]:
        """The entries, and what writers have left beside them. Links are not followed."""
        for folder in _scanned(self.directory):
            if folder.is_dir(follow_symlinks=False):
                for file in _scanned(folder.path):
                    if file.name.startswith(ASIDE) or (file.name.endswith(".cubin") and len(folder.name) == 2):
                        with contextlib.suppress(OSError):
                            status = file.stat(follow_symlinks=False)
                            yield _File(_used(status), status.st_size, Path(file.path))

    def _path(self, name: str) -> Path:
        return self.directory / name[:2] / f"{name}.cubin"


def cache() -> Cache | None:
    """The cache of the settings; None if it is off."""
    directory = settings().cache_dir
    return None if directory is None else Cache(directory, settings().cache_mb * 1_000_000)


_told: set[Path] = set()
"""The directories of which it has been said that they cannot be written to."""

_written: dict[Path, int] = {}
"""The bytes that this process has written to a cache since it looked at all of it."""


def _used(status: os.stat_result) -> int:
    """When a file was last used. A time to come, of a clock that was set back since, says nothing: it counts as long ago."""
    return status.st_mtime_ns if status.st_mtime_ns < time.time_ns() + OLD_S * 1e9 else 0


def _scanned(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _pack(entry: Entry) -> bytes:
    log = entry.log.encode()
    body = len(log).to_bytes(8, "little") + log + entry.cubin
    return _MAGIC + hashlib.sha256(body).digest() + body


def _unpack(data: bytes) -> Entry:
    digest, body = data[len(_MAGIC):len(_MAGIC) + 32], data[len(_MAGIC) + 32:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
        raise PtxkitError("its bytes are not those that were written")
    length = int.from_bytes(body[:8], "little")
    return Entry(body[8 + length:], body[8:8 + length].decode(errors="replace"))
