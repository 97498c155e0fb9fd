"""Looking at memory: tiles as matrices without their swizzle, arrays, raw bytes."""

from __future__ import annotations

import re
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from ..proof.launch import arrays_of
from ..sim.errors import SimulationError
from ..sim.spaces import RESERVED_SHARED
from ..sim.tensormap import gather
from ..smem import Shared, Tile
from .values import Matrix, digits_of, element_bytes, elements
from .views import offset_in_plan

if TYPE_CHECKING:
    from ..dsl.named import Names
    from ..dsl.traced import Traced
    from ..layout import Layout
    from ..sim.cta import Cta
    from ..sim.simulation import Simulation
    from ..sim.values import Array
    from .events import Events


class MemoryView:
    """Reads the memory of a run that stands. Offsets into shared memory count from the first byte that a kernel may use."""

    def __init__(self, simulation: Simulation, events: Events, names: Names | None) -> None:
        self.simulation = simulation
        self.machine = simulation.machine
        self.traced: Traced | None = simulation.traced
        self.events = events
        self.names = names

    # ------------------------------------------------------------------------------------------- tiles

    def tiles(self) -> dict[str, tuple[int, Tile[Any] | Shared[Any]]]:
        """The tiles and arrays of the kernel's plan, with their offset in the CTA's shared memory, by the author's names."""
        found: dict[str, tuple[int, Tile[Any] | Shared[Any]]] = {}
        for allocation, content in self.traced.shared.contents if self.traced is not None else ():
            name = allocation.name
            if name.startswith("#") and self.names is not None:
                name = self.names.places.get(allocation.offset, name)
            found[name] = offset_in_plan(self.machine, self.traced, allocation.offset), content
        return found

    def tile(self, name: str, cta: Cta, stage: int = 0) -> Matrix:
        """A tile of the plan, an array, or what the last tensor copy has left at an offset; as (rows, columns) without the swizzle."""
        self._alive(cta)
        known = self.tiles()
        if name in known:
            offset, content = known[name]
            if isinstance(content, Tile):
                return self._tile(name, cta, offset, content, stage)
            count = content.count or 1
            return Matrix(f"{name}: {count} {content.type.__name__} of {cta!r}", self._elements(cta, offset, count, content.type.__name__),
                          digits_of(content.type.__name__))
        return self._box(name, cta, known)

    def laid_out(self, layout: Layout, cta: Cta, offset: int, what: str = "") -> Matrix:
        """A tile of any layout at an offset."""
        self._alive(cta)
        start = RESERVED_SHARED + offset
        self._within(cta, start, layout.bytes)
        return Matrix(what or f"{_said(layout)} at +{offset:#x} of {cta!r}", unswizzled(cta.shared[start:start + layout.bytes], layout),
                      digits_of(layout.type.__name__))

    def _tile(self, name: str, cta: Cta, offset: int, tile: Tile[Any], stage: int) -> Matrix:
        if not isinstance(stage, Integral) or not 0 <= stage < tile.stages:
            raise SimulationError(f"tile `{name}` has {tile.stages} stages, 0 to {tile.stages - 1}, not {stage!r}")
        stages = f" stage {stage} of {tile.stages}" if tile.stages > 1 else ""
        return self.laid_out(tile.layout, cta, offset - RESERVED_SHARED + stage * tile.stage_bytes,
                             f"{name}{stages}: {_said(tile.layout)}, {cta!r}")

    def _box(self, name: str, cta: Cta, known: Any) -> Matrix:
        offset = self.offset(name, cta)
        box = self.events.boxes.get((cta.cluster.index, cta.start + offset))
        if box is None:
            tiles = ", ".join(key for key, (_, content) in known.items() if isinstance(content, Tile))
            raise SimulationError(f"there is no tile `{name}`, and no tensor copy has landed there; tiles: {tiles or 'none are known'}. "
                                  "A layout may be given: tile +0x400 bf16 64x64 swizzle=128")
        map = box.map
        data = gather(cta.chunks, offset >> 4, map.box_bytes, map.swizzle)
        shape = tuple(reversed(map.extents[:map.rank]))
        type_ = map.type.partition(".")[0]
        return Matrix(f"the box of {' x '.join(map.extents[:map.rank].__str__()[1:-1].split(', '))} {type_} that was copied to "
                      f"{self.machine.name_of(offset)}, swizzle {map.swizzle}, {cta!r}",
                      elements(data.reshape(*shape[:-1], -1), type_), digits_of(type_))

    # ------------------------------------------------------------------------------------------- raw memory

    def offset(self, text: str, cta: Cta) -> int:
        """The offset in a CTA's shared memory of `name`, `name+16`, `+0x400` or `1024`."""
        found = re.fullmatch(r"\s*([A-Za-z_$%][\w$.\[\]]*)?\s*\+?\s*(0x[0-9a-fA-F]+|\d+)?\s*", str(text))
        if found is None or not (found[1] or found[2]):
            raise SimulationError(f"{text!r} is no place in shared memory: write a name, name+16 or +0x400")
        more = int(found[2], 0) if found[2] else 0
        if not found[1]:
            return RESERVED_SHARED + more
        return self._named(found[1]) + more

    def _named(self, name: str) -> int:
        known = self.tiles()
        if name in known:
            return known[name][0]
        if self.traced is not None:
            for barriers in self.traced.shared.barriers:
                if barriers.name == name:
                    return offset_in_plan(self.machine, self.traced, barriers.offset)
        symbols = {s.name: self.machine.program.layout.address(s) for s in self.machine.program.layout.placed if s.space == "shared"}
        if name not in symbols:
            there = ", ".join([*known, *symbols]) or "no names"
            raise SimulationError(f"there is nothing called `{name}` in shared memory; there are {there}")
        return int(symbols[name])

    def shared(self, text: str, cta: Cta, count: int, type_: str) -> Matrix:
        """Elements of shared memory as they lie."""
        self._alive(cta)
        offset = self.offset(text, cta)
        return Matrix(f"{str(text).strip()} of {cta!r}: {count} {type_}", self._elements(cta, offset, count, type_), digits_of(type_))

    def array(self, name: str) -> Matrix:
        """An array among the arguments, as global memory has it now."""
        arrays = self.arrays()
        if name not in arrays:
            raise SimulationError(f"no argument is called `{name}`; the arrays are {', '.join(arrays) or 'none'}")
        return Matrix(f"{name}: {' x '.join(map(str, arrays[name].shape))} {arrays[name].dtype}", arrays[name],
                      3 if arrays[name].dtype.kind not in "biufc" else 6)

    def arrays(self) -> dict[str, Array]:
        """The arrays among the arguments, copies of what global memory has now."""
        arguments = self.simulation.arguments
        found = {}
        for name, array in arrays_of(arguments.names, self.simulation.given).items():
            of = arguments.place_of(array)
            if of is not None:
                low = _low(array)
                offset = of[1] + int(array.__array_interface__["data"][0]) - low
                found[name] = np.ndarray(array.shape, array.dtype, buffer=self.machine.memory.data, offset=offset,
                                         strides=array.strides).copy()
        return found

    def globals(self, name: str, offset: int, count: int, type_: str) -> Matrix:
        """Elements of a buffer or variable in global memory as they lie, from a byte of it on."""
        for allocation in self.machine.memory.allocations:
            if allocation.name == name:
                start, size = allocation.start + offset, count * element_bytes(type_)
                if offset < 0 or start + size > allocation.stop:
                    raise SimulationError(f"`{name}` has {allocation.stop - allocation.start:,} bytes")
                return Matrix(f"{name}+{offset}: {count} {type_}", elements(self.machine.memory.data[start:start + size].copy(), type_))
        raise SimulationError(f"no buffer in global memory is called `{name}`; "
                              f"there are {', '.join(a.name for a in self.machine.memory.allocations) or 'none'}")

    # ------------------------------------------------------------------------------------------- parts

    def _elements(self, cta: Cta, start: int, count: int, type_: str) -> Array:
        size = count * element_bytes(type_)
        self._within(cta, start, size)
        return elements(cta.shared[start:start + size].copy(), type_)

    def _within(self, cta: Cta, start: int, size: int) -> None:
        if start < 0 or start + size > self.machine.shared_bytes:
            raise SimulationError(f"{size:,} bytes at +{start - RESERVED_SHARED:#x} are beyond the shared memory of {cta!r}, which has "
                                  f"{self.machine.shared_bytes - RESERVED_SHARED:,}")

    def _alive(self, cta: Cta) -> None:
        if not len(cta.shared):
            raise SimulationError(f"{cta!r} has exited: its shared memory is gone. `back` goes back to where it was there")


def unswizzled(data: Array, layout: Layout) -> Array:
    """A tile's bytes as its (rows, columns) elements."""
    size = layout.element_bytes
    places = layout.offset(np.arange(layout.rows)[:, None], np.arange(layout.columns)[None, :])  # type: ignore[arg-type]
    gathered = data[np.asarray(places)[..., None] + np.arange(size)]
    return elements(gathered, layout.type.__name__)[..., 0]


def _said(layout: Layout) -> str:
    swizzle = f"swizzle {layout.swizzle}" if layout.swizzle > 16 else "no swizzle"
    return f"{layout.rows} x {layout.columns} {layout.type.__name__}, {layout.major}-major, {swizzle}"


def _low(array: Any) -> int:
    bounds = np.lib.array_utils.byte_bounds if hasattr(np.lib, "array_utils") else np.byte_bounds  # type: ignore[attr-defined]
    return int(bounds(array)[0])
