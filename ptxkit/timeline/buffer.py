"""The buffer of marks: its size for a launch, and the slices that a launch has written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dsl.arguments import counted, needed
from ..dsl.marks import BUFFER, COUNT, EVENT, HEADER, LOST, MOST, POINT, SLICE_BYTES, WARP_BYTES, WHO
from ..dsl.parameters import flat, values
from ..errors import LaunchError

if TYPE_CHECKING:
    from ..dsl.marks import Named
    from ..dsl.traced import Traced

Array = np.ndarray[Any, Any]
EVENT_TYPE = np.dtype([("clock", "<u8"), ("clocks", "<u4"), ("id", "<u4")])
MOST_BYTES = 1 << 32
CPU = "the CPU device, whose clocks count warp instructions"


@dataclass(frozen=True, slots=True)
class Slice:
    """What a warp wrote in one role. Clocks are the SM's, `time` is globaltimer in ns, each at the begin and at the end (0: it never came
    to its end). `count` are the events of the writer; `events` are those for which there was room. `most` is the most of any lane, `lost`
    are events of single threads that are not the writer.
    """

    cta: int
    warp: int
    role: int
    sm: int
    clock: tuple[int, int]
    time: tuple[int, int]
    count: int
    most: int
    lost: int
    events: Array

    def clocks_of(self, named: Named, name: str) -> Array:
        """The clocks of its spans of that name."""
        number = named.names.index(name) if name in named.names else POINT
        found: Array = self.events["clocks"][self.events["id"] == number]
        return found


@dataclass(frozen=True, slots=True)
class Plan:
    """The buffer of one launch: so many warps, each with a slice for each role, with room for so many events."""

    warps: int
    roles: int
    events: int

    @classmethod
    def of(cls, named: Named, grid: int | tuple[int, ...], block: tuple[int, int, int], events: int) -> Plan:
        if isinstance(events, bool) or not isinstance(events, int) or events < 1:
            raise LaunchError(f"a warp has room for a positive number of events, not {events!r}")
        ctas = int(np.prod(grid, dtype=np.int64))
        made = cls(ctas * -(-block[0] * block[1] * block[2] // 32), len(named.roles), events)
        if made.bytes > MOST_BYTES * 4 or made.warp_bytes >= MOST_BYTES:
            raise LaunchError(f"marks of {made.warps:,} warps in {made.roles} roles with {events:,} events each take {made.bytes:,} bytes: "
                              "give events= a smaller number, or marks= the names that you need")
        return made

    @property
    def slice_bytes(self) -> int:
        return HEADER + EVENT * self.events

    @property
    def warp_bytes(self) -> int:
        return self.slice_bytes * self.roles

    @property
    def bytes(self) -> int:
        return self.warp_bytes * self.warps

    def arguments(self, buffer: Any) -> dict[str, Any]:
        """The launch arguments that marks add, by name."""
        return {BUFFER: buffer, SLICE_BYTES: self.slice_bytes, WARP_BYTES: self.warp_bytes}

    def slices(self, buffer: Array) -> Iterator[Slice]:
        """The slices that were begun, in the order of CTAs, warps and roles."""
        rows = buffer.view(np.uint8).reshape(-1, self.slice_bytes)
        heads = np.ascontiguousarray(rows[:, :HEADER])
        longs, words = heads.view("<u8"), heads.view("<u4")
        for index in np.flatnonzero(longs[:, 0]).tolist():
            long, word = longs[index].tolist(), words[index].tolist()
            ended = long[2] != 0
            events = rows[index, HEADER:].view(EVENT_TYPE)
            count = word[COUNT // 4] if ended else int((events["clock"] != 0).sum())
            cta, warp, role, sm = word[WHO // 4:WHO // 4 + 4]
            yield Slice(cta, warp, role, sm, (long[0], long[2]), (long[1], long[3]), count, max(word[MOST // 4], count), word[LOST // 4],
                        events[:min(count, self.events)])


def own_arguments(traced: Traced, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a kernel besides those of its marks. Raises LaunchError if there are too few or too many."""
    signature = traced.signature[:-3]
    given = values(signature, args, named)
    counted(traced.name, [needed(parameter) for parameter in flat(signature)], len(given))
    return given


def is_point(events: Array) -> Array:
    """Which events are of `mark`, not of `span`."""
    found: Array = (events["id"] & np.uint32(POINT)) != 0
    return found
