"""Configurations that were measured to be the fastest, per device: `lookup` finds one, `Table` reads and writes them.

A table is a JSON file named after its device. Those in this folder ship with the package; the tuner writes to the cache directory,
and what is there goes first.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptxkit.errors import PtxkitError
from ptxkit.settings import settings

SCHEMA = 2
FOLDER = Path(__file__).parents[1] / "cards"
Shape = tuple[int, int, int]
Knobs = Mapping[str, Any]


class TableError(PtxkitError, ValueError):
    """A file that is not a table."""


class OldTableError(TableError):
    """A table of another version, whose configurations have other fields."""


@dataclass(slots=True)
class Table:
    """What was tuned on one device: by kind ("bf16/bf16/nt": operands, result, layout) and shape ("4096x4096x4096") an entry with
    "config" (the knobs of the configuration) and how it was measured."""

    device: str
    entries: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Table:
        """Raises TableError for a file that is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["schema"] != SCHEMA:
                raise OldTableError(f"{path} is a table of schema {data['schema']}, this version reads {SCHEMA}: its configurations are "
                                    "not used; measure them again with `ptxkit gemm tune`, which replaces the file")
            table = cls(data["device"], data["entries"])
            for kind, shapes in table.entries.items():
                for shape, entry in shapes.items():
                    if len(kind.split("/")) != 3 or not re.fullmatch(r"\d+x\d+x\d+", shape) or not isinstance(entry["config"], dict):
                        raise TableError(f"{path}: {kind} {shape} is no entry")
        except TableError:
            raise
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise TableError(f"{path} is no table of configurations: {error!r}") from None
        return table

    def put(self, kind: str, shape: Shape, entry: Mapping[str, Any]) -> None:
        self.entries.setdefault(kind, {})["x".join(map(str, shape))] = dict(entry)

    def merge(self, other: Table) -> None:
        """The other's entries go first."""
        for kind, shapes in other.entries.items():
            self.entries.setdefault(kind, {}).update(shapes)

    def write(self, path: Path) -> None:
        """Sorted by kind and size, an entry a line, so that a table can be read and compared. Written aside, then put in place."""
        path.parent.mkdir(parents=True, exist_ok=True)
        kinds = []
        for kind, shapes in sorted(self.entries.items()):
            ordered = sorted(shapes.items(), key=lambda item: extents(item[0]))
            rows = [f"   {json.dumps(shape)}: {json.dumps(entry)}" for shape, entry in ordered]
            kinds.append(f"  {json.dumps(kind)}: {{\n" + ",\n".join(rows) + "\n  }")
        head = f'{{\n "schema": {SCHEMA},\n "device": {json.dumps(self.device)},\n "entries": {{\n'
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".aside-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(head + ",\n".join(kinds) + "\n }\n}\n")
        os.chmod(aside, 0o644)
        os.replace(aside, path)


def extents(shape: str) -> Shape:
    m, n, k = map(int, shape.split("x"))
    return m, n, k


def file_name(device: str) -> str:
    """The file of a device's table: "NVIDIA H200" has h200.json."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower().removeprefix("nvidia ")).strip("-") + ".json"


def user_path(device: str) -> Path | None:
    """Where the tuner keeps its table; None when the cache is off."""
    directory = settings().cache_dir
    return None if directory is None else directory / "tuned" / file_name(device)


@functools.cache
def _known(device: str) -> dict[str, dict[Shape, Knobs]]:
    """Every entry for a device: the user's first, then the shipped ones. A file that is no table is as good as none."""
    merged = Table(device)
    for path in (FOLDER / file_name(device), user_path(device)):
        if path is not None and path.is_file():
            try:
                merged.merge(Table.read(path))
            except OldTableError as error:
                logging.getLogger("ptxkit").warning("%s", error)
            except TableError:
                continue
    return {kind: {extents(shape): entry["config"] for shape, entry in shapes.items()} for kind, shapes in merged.entries.items()}


def lookup(device: str, kind: str, m: int, n: int, k: int) -> Knobs | None:
    """The knobs tuned for a product of this kind ("bf16/bf16/nt") on this device, or for one with the same N and K and M within a factor
    of the square root of two (the nearest); None when there is none."""
    shapes = _known(device).get(kind)
    if not shapes:
        return None
    exact = shapes.get((m, n, k))
    if exact is not None:
        return exact
    near = [(max(m, other) / min(m, other), other) for other, width, depth in shapes if (width, depth) == (n, k)]
    if not near or min(near)[0] > 2 ** 0.5:
        return None
    return shapes[min(near)[1], n, k]


def forget() -> None:
    """The tables are read again at the next lookup."""
    _known.cache_clear()


__all__ = ["Table", "TableError", "file_name", "forget", "lookup", "user_path"]
