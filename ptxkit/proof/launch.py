"""A launch as a value: what runs, in which shape, and with which arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cards import H200, Card
from ..dsl.parameters import values
from ..dsl.tensormap import TensorMap
from ..dsl.traced import Traceable, Traced
from ..grammar import parse, tree
from ..sim import Report, SimulationError, Struct
from ..sim.arguments import storage
from ..sim.limits import LIMITS, Limits
from ..sim.program import entry_of
from ..sim.run import Simulation, prepare

if TYPE_CHECKING:
    from ..sim.observer import Observer
    from ..sim.policy import Policy

Dim = int | tuple[int, ...]


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

    def run(self, schedule: str | Policy = "fifo", seed: int = 0, *, check: bool = True, max_steps: int | None = None, card: Card = H200,
            observers: Sequence[Observer] = ()) -> Report:
        """Execute it once. The arrays are updated in place."""
        return self.prepared(schedule, seed, check=check, max_steps=max_steps, card=card, observers=observers).run()

    def prepared(self, schedule: str | Policy, seed: int = 0, *, check: bool = True, max_steps: int | None = None, card: Card = H200,
                 limits: Limits = LIMITS, observers: Sequence[Observer] = ()) -> Simulation:
        """One run of it, before it begins."""
        return prepare(self.source, self.name, grid=self.grid, block=self.block, cluster=self.cluster, dynamic_smem=self.dynamic_smem,
                       args=self.args, schedule=schedule, seed=seed, check=check, max_steps=max_steps, card=card, limits=limits,
                       observers=observers, previous=self.previous, names=self.names or None)

    def copy(self, contents: Mapping[str, Any] | None = None) -> Launch:
        """The same launch of arrays of its own. `contents` are the bytes (as `storage` gives them) of arrays by name, where they differ."""
        names = list(self.arrays)
        made = fresh([*self.args, *self.arrays.values()])
        arrays = dict(zip(names, made[len(self.args):], strict=True))
        for name, bytes_ in (contents or {}).items():
            storage(arrays[name])[:] = bytes_
        return replace(self, args=tuple(made[:len(self.args)]), arrays=arrays)


def launch_of(kernel: Any, grid: Any, args: Sequence[Any], *, entry: str | None = None, block: Dim | None = None,
              cluster: Dim | None = None, dynamic_smem: int | None = None, config: Mapping[str, Any] | None = None) -> Launch:
    """The launch of a ptxkit kernel, of a trace, of PTX text or of a tree. `config` has compile-time parameters and arguments by name."""
    config = config or {}
    if isinstance(kernel, Traceable):
        named = {name: value for name, value in config.items() if name in kernel.arguments}
        traced = kernel.trace(**{name: value for name, value in config.items() if name not in named})
        source: tree.Module | Traced = traced
        args = values(traced.signature, args, named)
    elif isinstance(kernel, str | tree.Module | Traced):
        if config:
            raise SimulationError(f"{', '.join(config)}: compile-time parameters are for kernels, and this is PTX")
        source = parse(kernel) if isinstance(kernel, str) else kernel
    else:
        raise SimulationError(f"{kernel!r} is neither a kernel nor PTX text")
    module = source.module if isinstance(source, Traced) else source
    function = entry_of(module, entry or (source.name if isinstance(source, Traced) else None))
    if grid is None:
        raise SimulationError(f"`{function.name}` does not say its grid: give the number of CTAs")
    args = tuple(map(own, args))
    names = tuple(parameter.name for parameter in function.parameters)
    return Launch(function.name, source, grid, args, block or most_threads(function), cluster, dynamic_smem, arrays_of(names, args),
                  text=kernel if isinstance(kernel, str) else "")


def most_threads(function: tree.Function) -> tuple[int, ...] | None:
    """The block of an entry that says only how many threads it has at most, as nvcc writes __launch_bounds__; None for others."""
    said = {directive.name: directive.arguments for directive in function.directives}
    if "reqntid" in said or "maxntid" not in said:
        return None
    return tuple(extent for extent in said["maxntid"] if isinstance(extent, int))


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
