"""The module of a kernel while it is traced: shared memory, device functions, tensor-map records and versions."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Position, TraceError
from ..grammar import forms, tree
from ..smem import SharedPlan
from ..types import ScalarType
from .descriptor import TensorMapFields

if TYPE_CHECKING:
    from .dropped import Result
    from .marks import Table
    from .tensormap import TensorMapParameter


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """The copies through one tensor-map parameter: element type, box (contiguous dimension first) and swizzle in bytes."""

    type: ScalarType
    box: tuple[int, ...]
    swizzle: int

    def fields(self, dims: tuple[int, ...], strides: tuple[int, ...]) -> TensorMapFields:
        """The map of an array with these extents (contiguous dimension first) and byte strides."""
        return TensorMapFields(self.type, dims, strides, self.box, swizzle=self.swizzle)

    def __str__(self) -> str:
        return f"box {'x'.join(map(str, self.box))} {self.type.__name__}, swizzle {self.swizzle or 'none'}"


class Copies:
    """The copy records of a kernel, by parameter name."""

    def __init__(self) -> None:
        self.records: dict[str, CopyRecord] = {}

    def record(self, tensormap: TensorMapParameter, type: ScalarType, box: tuple[int, ...], swizzle: int) -> None:
        new = CopyRecord(type, box, swizzle)
        old = self.records.setdefault(tensormap.name, new)
        if old != new:
            raise TraceError(
                f"`{tensormap.name}` already copies {old}; one tensor map has one box: this copy has {new}, so pass a second map"
            )


class ModuleBuilder:
    """The module around one kernel while it is traced."""

    def __init__(self, name: str, target: str, block: tuple[int, int, int] | None, cluster: tuple[int, int, int],
                 shared: SharedPlan, files: dict[str, int] | None = None) -> None:
        self.name = name
        self.target = target
        self.block = block
        self.barriers = {0}                                          # named barriers that are taken: 0 is that of bar.sync(0)
        self.threads = None if block is None else block[0] * block[1] * block[2]
        self.layers = 1 if block is None else block[1] * block[2]    # threads with the same %tid.x
        self.cluster = cluster
        self.shared = shared
        self.copies = Copies()
        self.functions: dict[Any, tree.Function] = {}
        self.open: list[Any] = []                                    # device functions whose trace has begun but not ended
        self.variables: list[tree.Variable] = []
        self.setmaxnreg: list[tuple[str, int, int | None, Position | None]] = []
        self.since = (8, 0)
        self.dropped: list[Result] = []
        self.guarded: list[Result] = []
        self.marks: Table | None = None
        self.joined = False  # whether labels that control flow makes at one place are one
        self._files: dict[str, int] = {} if files is None else files

    @property
    def cluster_size(self) -> int:
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    def need(self, signature: forms.Signature) -> None:
        """Raise the module's `.version` to the one that the instruction needs. Raises TraceError if the target does not support it."""
        if signature.since > self.since:
            self.since = signature.since
        if not has(self.target, signature.target):
            raise TraceError(f"`{signature.opcode}` needs {signature.target}, this kernel's target is {self.target}: "
                             f"say @kernel(target=\"{signature.target}\")")

    def file_index(self, path: str) -> int:
        """The `.file` number of a Python file."""
        return self._files.setdefault(path, len(self._files) + 1)

    @property
    def files(self) -> dict[int, str]:
        """Python files by `.file` number."""
        return {index: path for path, index in self._files.items()}

    def file_directives(self) -> tuple[tree.Directive, ...]:
        """`.file` of each author's file. ptxas takes ASCII alone: other characters of a path are escaped."""
        return tuple(tree.Directive("file", (index, tree.Text(package_path(path).encode("ascii", "backslashreplace").decode())))
                     for index, path in self.files.items())


@cache
def has(target: str, needed: str) -> bool:
    """Whether code for `target` may use an instruction that needs `needed`: `sm_90a` has all of `sm_90`, but not the other way round."""
    if needed.endswith("a"):
        return target == needed
    return int(target.strip("sm_af")) >= int(needed.strip("sm_af"))


def package_path(path: str) -> str:
    """A Python file relative to the package root, so that every machine writes the same PTX.

    The root is the first parent folder without `__init__.py`, or one on `sys.path`.
    """
    root = folder = os.path.dirname(path)
    while os.path.exists(os.path.join(root, "__init__.py")) and os.path.dirname(root) != root:
        root = os.path.dirname(root)
    if root == folder:
        root = next((str(parent) for parent in Path(folder).parents if str(parent) in sys.path), root)
    return Path(path).relative_to(root).as_posix()
