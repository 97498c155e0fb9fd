"""The cache of assembled kernels on disk: one file per entry, safe for any number of processes.

The name of an entry is the sha256 of everything that determines its bytes. An entry is written to another file and moved into place by one
`os.replace`. A reader therefore sees a whole entry or none, and two writers of one key write the same bytes. The cache stores and returns
only whole cubins: an assembler with a full disk may have left a part of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ..errors import PtxkitError
from ..sass.cubin import require_whole
from ..settings import settings

_LOG = logging.getLogger("ptxkit")
_MAGIC = b"ptxkit-cubin-1\n"
_DEBUG_LINE = re.compile(r"\s*\.(?:loc|file)\s")


def strip_lines(ptx: str) -> tuple[str, tuple[int, ...]]:
    """The text without its `.loc` and `.file` lines, and the number of each remaining line in the full text."""
    kept = [(number, line) for number, line in enumerate(ptx.splitlines(), 1) if not _DEBUG_LINE.match(line)]
    return "\n".join(line for _, line in kept), tuple(number for number, _ in kept)


def key(stripped: str, *recipe: str) -> str:
    """The key of an assembled text. `recipe` is the assembler's tool, version and flags; the text comes from `strip_lines`."""
    return hashlib.sha256("\0".join((*recipe, stripped)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """A cubin and the assembler's log."""

    cubin: bytes
    log: str


@dataclass(frozen=True, slots=True)
class Cache:
    """A directory of entries."""

    directory: Path

    def get(self, name: str, entries: Collection[str] = ()) -> Entry | None:
        """The entry with that name, or None. A file that is not a whole cubin with these kernel entries is removed."""
        path = self._path(name)
        try:
            if not path.is_file():  # reading a pipe or a device would never end
                return None
            data = path.read_bytes()
        except OSError:
            return None
        try:
            entry = _unpack(data)
            require_whole(entry.cubin, "what it holds", entries)
        except PtxkitError as error:
            _LOG.warning("cache entry %s is damaged (%s); it is made again", path, error)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return entry

    def put(self, name: str, entry: Entry) -> None:
        """Store the entry. If the directory cannot be written, it only logs that: the cache only saves time.

        Raises PtxkitError for bytes that are not a whole cubin.
        """
        require_whole(entry.cubin, "what is to be kept in the cache")
        path = self._path(name)
        aside = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".aside-")
            with os.fdopen(handle, "wb") as file:
                file.write(_pack(entry))
            os.replace(aside, path)
        except OSError as error:
            _LOG.warning("cannot write to the cache: %s", error)
            if aside is not None:
                with contextlib.suppress(OSError):
                    os.unlink(aside)

    def clear(self) -> int:
        """Remove every entry. Returns their number."""
        removed = 0
        for path in self._entries():
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
        return removed

    def size(self) -> tuple[int, int]:
        """The number of entries and their bytes."""
        sizes = []
        for path in self._entries():
            with contextlib.suppress(OSError):
                sizes.append(path.stat().st_size)
        return len(sizes), sum(sizes)

    def _entries(self) -> list[Path]:
        return list(self.directory.glob("??/*.cubin"))

    def _path(self, name: str) -> Path:
        return self.directory / name[:2] / f"{name}.cubin"


def cache() -> Cache | None:
    """The cache of the settings; None if it is off."""
    directory = settings().cache_dir
    return None if directory is None else Cache(directory)


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
