"""Results that are kept: one JSON file for a card, an entry for each kernel, space and key. A file has one writer at a time, and readers
find it whole.

The name of an entry is the sha256 of what it depends on: the kernel's source and PTX, the points of the space, the key, the regime, the
versions of ptxkit and of the assembler. So what another version or another text was tuned to is not found. The card is the file's.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..cards import Card
from ..errors import NoToolError
from ..files import WRONG_DATA, folder_of, make_folder, read_kept
from ..grammar.errors import printable
from ..measure.files import rounded, write_aside
from ..runtime import toolchain
from ..runtime.cache import strip_lines
from ..settings import settings
from .locks import locked
from .names import own_name
from .space import Point, spelled

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel

SCHEMA = 1
MOST_KEPT = 4096
"""Entries of a file. The oldest are dropped: those of kernels that have changed since are never asked for again."""
_LOG = logging.getLogger("ptxkit")


def path_of(card: Card, wish: str | Path | None = None) -> Path | None:
    """The file of a card: in the cache directory, at the path that is wished, or in that folder. None when the cache is off."""
    if wish is None:
        folder = folder_of(settings().cache_dir, "kernels")
        return folder and folder / own_name(card)
    path = Path(wish).expanduser().absolute()
    return path if path.suffix == ".json" else path / own_name(card)


def text_hash(kernel: Kernel[...], point: Point) -> str:
    """Of the PTX of a point, without lines of sources."""
    return hashlib.sha256(strip_lines(kernel.ptx(**dict(point)))[0].encode()).hexdigest()


def source_hash(kernel: Kernel[...]) -> str:
    """Of the function's source with its decorators; of its byte code where there is no source."""
    function = inspect.unwrap(kernel.function)
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = repr((function.__code__.co_code.hex(), function.__code__.co_consts, function.__code__.co_names))
    return hashlib.sha256(source.encode()).hexdigest()


def assembler() -> str:
    """The version of the assembler; "driver" where the driver assembles."""
    try:
        return toolchain.ptxas().version
    except NoToolError:
        return "driver"


def name_of(kernel: Kernel[...], first: Point, space: str, key: str, how: str) -> str:
    """The name of an entry. `first` is a point that can be traced, `space` the digest of all, `how` what the result is best for."""
    parts = (kernel.__module__, kernel.name, kernel.target, source_hash(kernel), text_hash(kernel, first), space, key, how, __version__,
             assembler())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read(path: Path | None, card: Card) -> dict[str, dict[str, Any]]:
    """The entries of a file; none of what is no such file, or of another card, which is said once."""
    if path is None or not path.is_file():
        return {}
    try:
        data = read_kept(path)
        if data["schema"] != SCHEMA:
            _say(f"{path} has results of schema {data['schema']}, this version reads {SCHEMA}: they are not used")
            return {}
        device, sms, entries = str(data["device"]), int(data["sms"]), dict(data["entries"])
    except WRONG_DATA as error:
        _say(f"{path} is no file of tuned kernels ({error!r}): it is not used")
        return {}
    if (device, sms) != (card.name, card.sms):
        _say(f"{path} has results of {device} with {sms} SMs: they are not used on {card.name} with {card.sms}")
        return {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def find(path: Path | None, card: Card, name: str, kernel: Kernel[...], points: list[Point]) -> tuple[Point, dict[str, Any]] | None:
    """The point that an entry names, with the entry; None where there is none, or where the PTX of that point is another by now."""
    entry = read(path, card).get(name)
    if entry is None:
        return None
    for point in points:
        if [[key, spelled(value)] for key, value in point] == entry.get("point"):
            return (point, entry) if text_hash(kernel, point) == entry.get("ptx") else None
    return None


def keep(path: Path | None, card: Card, name: str, kernel: Kernel[...], point: Point, about: Mapping[str, Any]) -> None:
    """Adds an entry to a file, which may have entries of other processes by now. Where it cannot be written, that is said once."""
    if path is None:
        return
    entry = {"kernel": f"{kernel.__module__}.{kernel.name}", "point": [[key, spelled(value)] for key, value in point],
             "ptx": text_hash(kernel, point), "version": __version__, "assembler": assembler(), "when": int(time.time()), **about}
    try:
        make_folder(path.parent, settings().cache_dir)
        with locked(path):
            if _is_anothers(path, card):
                return
            entries = read(path, card)
            entries[name] = entry
            newest = sorted(entries.items(), key=lambda item: item[1].get("when", 0))[-MOST_KEPT:]
            write(path, card, dict(newest))
    except OSError as error:
        _say(f"cannot write to {path} ({error.strerror or error}): what is tuned is used by this process alone")


def write(path: Path, card: Card, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """An entry a line, sorted by kernel, so that two files can be compared."""
    ordered = sorted(entries.items(), key=lambda item: (str(item[1].get("kernel", "")), item[0]))
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(rounded(entry))}" for name, entry in ordered)
    about = f' "schema": {SCHEMA},\n "device": {json.dumps(card.name)},\n "sms": {card.sms},\n'
    write_aside(path, f'{{\n{about} "entries": {{\n{rows}\n }}\n}}\n')


def _is_anothers(path: Path, card: Card) -> bool:
    """Whether a file must be left alone: it has the results of another card. What is no such file is put aside."""
    if not os.path.lexists(path):
        return False
    try:
        data = read_kept(path)
        if data["schema"] == SCHEMA:
            if (data["device"], data["sms"]) == (card.name, card.sms):
                return False
            _say(f"{path} is a file of {data['device']}: what is tuned on {card.name} with {card.sms} SMs is not kept; give a folder, "
                 "which has a file for each card")
            return True
    except WRONG_DATA:
        pass
    aside = path.with_name(f"{path.stem}.old{path.suffix}")
    _say(f"{path} is no file of tuned kernels of this version: it is put aside as {aside.name}")
    with suppress(OSError):
        os.replace(path, aside)
    return False


@functools.cache
def _say(sentence: str) -> None:
    """Once."""
    _LOG.warning("%s", printable(sentence))


__all__ = ["assembler", "find", "keep", "name_of", "path_of", "read", "source_hash", "text_hash", "write"]
