"""What an export of a kernel holds, and the files that it has written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..dsl.parameters import Parameter
from ..errors import PtxkitError

TARGET = re.compile(r"sm_(\d+)(\d)([af]?)")


class ExportError(PtxkitError):
    """A kernel that cannot be exported, or a folder that cannot be written."""


@dataclass(frozen=True, slots=True)
class Box:
    """The part of a tensor map that the kernel decides. `box` has the contiguous dimension first; the numbers are the driver's."""

    type: int
    bytes: int
    box: tuple[int, ...]
    swizzle: int
    promotion: int

    @property
    def rank(self) -> int:
        return len(self.box)


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of the kernel in C: a scalar with its C type, a pointer with its alignment, or a tensor map with its box."""

    name: str
    parameter: Parameter
    c_type: str
    alignment: int = 1
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel as C launches it. Sizes are in threads, CTAs and bytes. `pdl`: it has griddepcontrol, so its launch may overlap with the
    one before."""

    name: str
    target: str
    tool: str
    cubin: bytes
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    static_shared: int
    arguments: tuple[Argument, ...]
    pdl: bool

    @property
    def capability(self) -> tuple[int, int, bool]:
        """Major and minor compute capability, and whether the code runs on exactly that one."""
        found = TARGET.fullmatch(self.target)
        assert found is not None
        return int(found[1]), int(found[2]), found[3] == "a"


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of an export, and what it holds."""

    name: str
    files: tuple[Path, ...]
    entry: Entry
    prototype: str

    def __str__(self) -> str:
        return "\n".join([*(f"{file}  {file.stat().st_size:,} bytes" for file in self.files), self.prototype])
