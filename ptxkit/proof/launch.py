"""A launch as a value: what runs, in which shape, and with which arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..cards import H200, Card
from ..dsl.tensormap import TensorMap
from ..dsl.traced import Traced
from ..grammar import tree
from ..sim import Report, Struct, run
from ..sim.asked import Dim, ObserverBase, PolicyBase
from ..sim.storage import storage


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel with its shape and its arguments, in the order of PTX. A grid counts CTAs.

    `arrays` are those whose contents a proof compares, by the name that messages give them. What a compiler adds for itself (scratch) is
    not among them. `compiler` says what wrote the PTX, and `text` is that PTX where it was given as text. `previous` is what the grid
    before still uses, by parameter: see `ptxkit.sim.run`. `names` are the parameters as their author calls them, where PTX has other names.
    """

    name: str
    source: tree.Module | Traced
    grid: Dim
    args: tuple[Any, ...]
    block: Dim | None = None
    cluster: Dim | None = None
    dynamic_smem: int | None = None
    arrays: Mapping[str, Any] = field(default_factory=dict)
    compiler: str = ""
    text: str = ""
    previous: Mapping[str, Sequence[str | int]] | None = None
    names: tuple[str, ...] = ()

    def run(self, schedule: str | PolicyBase = "fifo", seed: int = 0, *, check: bool = True, max_steps: int | None = None,
            card: Card = H200, observers: Sequence[ObserverBase] = ()) -> Report:
        """Execute it once. The arrays are updated in place."""
        return run(self.source, self.name, schedule=schedule, seed=seed, check=check, max_steps=max_steps, card=card, observers=observers,
                   **self.asked())

    def asked(self) -> dict[str, Any]:
        """What `ptxkit.sim.run` is asked for besides the source and the entry, by keyword."""
        return {"grid": self.grid, "block": self.block, "cluster": self.cluster, "dynamic_smem": self.dynamic_smem, "args": self.args,
                "previous": self.previous, "names": self.names or None}

    def copy(self, contents: Mapping[str, Any] | None = None) -> Launch:
        """The same launch of arrays of its own. `contents` are the bytes (as `storage` gives them) of arrays by name, where they differ."""
        names = list(self.arrays)
        made = fresh([*self.args, *self.arrays.values()])
        arrays = dict(zip(names, made[len(self.args):], strict=True))
        for name, bytes_ in (contents or {}).items():
            storage(arrays[name])[:] = bytes_
        return replace(self, args=tuple(made[:len(self.args)]), arrays=arrays)


def own(value: Any) -> Any:
    """The argument, or a copy that a run may write to if it is a read-only array."""
    if isinstance(value, np.ndarray) and value.ndim and not value.flags.writeable:
        return value.copy()
    return value


def arrays_of(names: Sequence[str], args: Sequence[Any]) -> dict[str, Any]:
    """The arrays among arguments, by the name of the first parameter that has them."""
    found: dict[str, Any] = {}
    for name, value in [each for pair in zip(names, args, strict=False) for each in _parts(*pair)]:
        array = value.array if isinstance(value, TensorMap) else value
        if isinstance(array, np.ndarray) and array.ndim and not any(array is other for other in found.values()):
            found[name] = array
    return found


def _parts(name: str, value: Any) -> list[tuple[str, Any]]:
    """The argument, or what is placed in it if it is a Struct."""
    return [(f"{name}+{at}", part) for at, part, _ in value.parts()] if isinstance(value, Struct) else [(name, value)]


def fresh(args: Sequence[Any]) -> list[Any]:
    """Copies: arrays that share memory share it again, and a view stays a view of the copy of its owner."""
    owners: dict[int, Any] = {}
    dense: dict[int, Any] = {}

    def own(array: Any) -> Any:
        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        if id(base) not in owners:
            owners[id(base)] = base.copy(order="K")
            owners[id(base)].flags.writeable = base.flags.writeable
        made = owners[id(base)]
        if array is base:
            return made
        if made.strides != base.strides:  # a strided owner of memory that is not its own: its copy is dense
            return dense.setdefault(id(array), array.copy(order="K"))
        offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return np.ndarray(array.shape, array.dtype, buffer=made.reshape(-1, order="A").view(np.uint8), offset=offset,
                          strides=array.strides)

    def one(value: Any) -> Any:
        if isinstance(value, Struct):
            return value.with_parts([one(part) for _, part, _ in value.parts()])
        if isinstance(value, TensorMap):
            made = copy(value)
            made.array = own(value.array)
            return made
        return own(value) if isinstance(value, np.ndarray) else value

    return [one(value) for value in args]
