"""Kernels that were traced and assembled before, as they are launched: each a cubin and what a launch needs of its trace, in the cache.

The name of an image is the sha256 of what decides it: the package's own sources (their names, sizes and times of change), the kernel, its
compile-time parameters and the assembler. So an image spares the trace. It serves kernels of the package itself; for others, and where a
parameter is not a plain value, the kernel is traced.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dsl.module import CopyRecord
from ..dsl.parameters import Parameter
from ..dsl.values import FieldError, named, to_json
from ..files import WRONG_DATA
from ..settings import settings
from ..types import TYPES
from . import cache, driver, toolchain

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel
    from ..dsl.traced import Traced

ROOT = Path(__file__).parents[1]
SOURCES = (".py", ".lark")
FOLDERS = ("", "dsl", "grammar", "gemm", "attention")
"""Of the package, whose sources decide what a kernel of it is; "" is the package's own folder without those within."""
FORMAT = "image-1"


@dataclass(frozen=True, slots=True)
class Copies:
    """The copy records of a kernel, by parameter name."""

    records: Mapping[str, CopyRecord]


@dataclass(frozen=True, slots=True)
class Image:
    """What a launch needs of a trace (`ptxkit.dsl.traced.Traced`)."""

    name: str
    parameters: tuple[Parameter, ...]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_smem: int
    copies: Copies

    @property
    def signature(self) -> tuple[Parameter, ...]:
        """The parameters: records are taken apart."""
        return self.parameters


def load(kernel: Kernel[...], parameters: Mapping[str, Any], ordinal: int) -> tuple[Image, driver.Library] | None:
    """The image of a specialisation, loaded on a device; None where there is none."""
    store, name = cache.cache(), key(kernel, parameters)
    entry = store.get(name) if store is not None and name is not None else None
    if entry is None:
        return None
    try:
        image = read(entry.log)
    except (*WRONG_DATA, RecursionError):
        return None
    driver.require_target(kernel.target, ordinal)
    return image, driver.load(entry.cubin, ordinal=ordinal)


def keep(kernel: Kernel[...], parameters: Mapping[str, Any], traced: Traced) -> None:
    """Keeps the image of a specialisation that has just been assembled without remarks."""
    store, name = cache.cache(), key(kernel, parameters)
    if store is None or name is None or any(parameter.declaration is not None for parameter in traced.parameters):
        return
    assembly = toolchain.assemble(traced.ptx(locs=True), traced.module.target[0], lines=traced.positions())     # out of the cache
    if not assembly.findings and traced.block is not None:
        store.put(name, cache.Entry(assembly.cubin, write(traced)))


def write(traced: Traced) -> str:
    """What a launch needs of a trace, as JSON."""
    return json.dumps({
        "name": traced.name, "block": traced.block, "cluster": traced.cluster, "dynamic_smem": traced.dynamic_smem,
        "parameters": [(p.name, p.kind, p.type and p.type.__name__) for p in traced.parameters],
        "records": {name: (record.type.__name__, record.box, record.swizzle) for name, record in traced.copies.records.items()}})


def read(text: str) -> Image:
    """What `write` has written. Raises an error of WRONG_DATA for anything else."""
    data = json.loads(text)
    parameters = tuple(Parameter(name, kind, TYPES[word] if word else None) for name, kind, word in data["parameters"])
    records = {name: CopyRecord(TYPES[word], tuple(box), swizzle) for name, (word, box, swizzle) in data["records"].items()}
    block, cluster = (tuple(data[name]) for name in ("block", "cluster"))
    return Image(data["name"], parameters, block, cluster, int(data["dynamic_smem"]), Copies(records))


def key(kernel: Kernel[...], parameters: Mapping[str, Any]) -> str | None:
    """The name of an image; None where a kernel has none: another package's, parameters that are no plain values, the driver's assembler,
    or files that are to be kept of each assembly."""
    tool = toolchain.stamp()
    if not kernel.__module__.startswith("ptxkit.") or not tool or settings().keep or settings().check == "error":
        return None
    try:
        given = {name: named(value) if is_dataclass(value) and not isinstance(value, type) else to_json(value)
                 for name, value in parameters.items()}
    except FieldError:
        return None
    return cache.key(json.dumps(given), FORMAT, stamp(), tool, kernel.__module__, kernel.name, kernel.target)


@functools.cache
def stamp() -> str:
    """What tells this state of the package's sources from others."""
    found = hashlib.sha256()
    for folder in FOLDERS:
        for path, status in sorted(_files(ROOT / folder, deep=bool(folder))):
            found.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return found.hexdigest()


def _files(folder: Path, *, deep: bool) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SOURCES):
                found.append((os.path.relpath(entry.path, ROOT), entry.stat()))
            elif deep and entry.is_dir() and entry.name != "__pycache__":
                found += _files(Path(entry.path), deep=True)
    return found


__all__ = ["Copies", "Image", "keep", "key", "load", "read", "stamp", "write"]
