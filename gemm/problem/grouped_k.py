"""What is asked for where groups lie along K: arrays checked, extents and strides; and the arguments of the kernel, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ptxkit.errors import LaunchError
from ptxkit.idioms import inverse
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import check_aligned, check_contiguous, check_dtype, check_shape
from ptxkit.types import TYPES

from ..collective.part_sums import COUNTER_WORDS
from ..collective.tensormaps import COUNTERS_WORDS
from ..config.grouped_k import GroupedKConfig, OperandsAlongK
from ..config.grouped_parts import CAPACITIES
from ..config.parts import Pingpong
from ..scheduler.work import TileDivmod
from .dense import MOST_EXTENT
from .lines import UNIT, Lines, check_forwards, mapped, result

OPERANDS = ("bf16", "f16")
RESULTS = ("bf16", "f16", "f32")
MOST_TILES = 1 << 31        # so that a CTA's next number stays below 2^32
MOST_WORKSPACE = 1 << 30    # bytes
COUNTERS_BYTES = 4 * (COUNTERS_WORDS + COUNTER_WORDS)       # at the start of a workspace; the sums of parts lie behind them


class ArraysAlongK(NamedTuple):
    """a [rows, M], b [rows, N], lengths [G + 1], out [G, M, N]."""

    a: ArrayView
    b: ArrayView
    lengths: ArrayView
    out: ArrayView

    def named(self) -> list[tuple[str, ArrayView]]:
        """They by name."""
        return list(zip(self._fields, self, strict=True))


class ProblemAlongK:
    """One launch, checked: everything of it but the pointers. Lengths stay unknown."""

    def __init__(self, arrays: ArraysAlongK, accumulate: bool = False) -> None:
        a, b, lengths, out = arrays
        self.groups, self.rows, self.m, self.n = extents(a, b, lengths)
        check_dtype("a", a, OPERANDS)
        if b.dtype != a.dtype:
            raise LaunchError(f"a has elements of {a.dtype} and b of {b.dtype}: groups along K have one type; convert one of them")
        check_dtype("out", out, ("f32",) if accumulate else RESULTS)
        check_shape("out", out, (self.groups, self.m, self.n))
        if lengths.dtype not in ("s32", "u32"):
            raise LaunchError(f"cu_seqlens has elements of {lengths.dtype}: it must be int32")
        check_contiguous("cu_seqlens", lengths)
        self.source, self.out, self.accumulate = TYPES[a.dtype], TYPES[out.dtype], accumulate
        self.a_lines = self.b_lines = self.d_lines = Lines((), ())
        if not self.empty:
            if out.shape[-1] > 1 and out.strides[-1] != 1 and out.strides[-2] == 1:
                raise LaunchError(f"out has strides {out.strides}: its rows must be contiguous; exchange a and b for the transposed "
                                  "result, or pass a contiguous one")
            self.d_lines = result("out", out)
            if not mapped(out):
                raise LaunchError(f"out has shape {out.shape} and strides {out.strides} at address {out.pointer:#x}: rows of groups along "
                                  f"K are multiples of {UNIT} bytes, and begin there; pad them")
        if not self.empty and self.rows:
            self.a_lines, self.b_lines = self._matrix("a", a), self._matrix("b", b)

    @property
    def empty(self) -> bool:
        """Whether there is no result."""
        return not (self.groups and self.m and self.n)

    @property
    def in_parts(self) -> bool:
        """Whether the groups are more than a table has room for, so that several launches have some of them each (`parts`)."""
        return self.groups > CAPACITIES[-1]

    @property
    def mean(self) -> float:
        """The mean length of a group if all rows belong to groups."""
        return self.rows / max(1, self.groups)

    @property
    def operands(self) -> OperandsAlongK:
        """What a configuration must have; and the smallest table that has room."""
        capacity = next((capacity for capacity in CAPACITIES if self.groups <= capacity), CAPACITIES[-1])
        return OperandsAlongK(self.source, self.out, self.accumulate, capacity)

    @staticmethod
    def _matrix(name: str, array: ArrayView) -> Lines:
        """A matrix for a tensor map: its extents, and the bytes from row to row."""
        rows, columns = array.shape
        size = TYPES[array.dtype].bits // 8
        check_forwards(name, array)
        check_aligned(name, array, UNIT)
        if columns > 1 and array.strides[1] != 1:
            raise LaunchError(f"{name} has strides {array.strides}: its rows must be contiguous; pass a contiguous copy")
        row = array.strides[0] * size if rows > 1 else -(-columns * size // UNIT) * UNIT
        if row % UNIT or row < columns * size:
            raise LaunchError(f"{name} has shape {array.shape} and strides {array.strides}: rows of groups along K begin at multiples of "
                              f"{UNIT} bytes, {UNIT // size} elements, and do not overlap; pad them")
        return Lines((columns, rows), (row,))

    def sources(self, config: GroupedKConfig) -> dict[str, Lines]:
        """A and B as the kernel's tensor maps describe them; see `DepthProducer`. Past the last row no copy has coordinates."""
        found = {}
        for name, lines in (("a", self.a_lines), ("b", self.b_lines)):
            (columns, rows), (row,) = lines.dims, lines.strides
            found[name] = Lines((columns, config.tile.BK, rows), (row, row))
        return found

    def tiles(self, config: GroupedKConfig) -> tuple[int, int]:
        """The cluster tiles of a group along M and N."""
        (m, n), cluster = config.tiles(self.m, self.n), config.scheduler.cluster
        return -(-m // cluster.m), -(-n // cluster.n)

    def work_tiles(self, config: GroupedKConfig) -> int:
        """The most work tiles of all groups, one for each cluster at a time."""
        m, n = self.tiles(config)
        return m * n * (self.groups + self.most_parts(config))

    def most_parts(self, config: GroupedKConfig) -> int:
        """The most parts of all groups that have several. A group of q to q + 1 times the rows of a part has q + 1 of them, so they are at
        most twice as many as there are whole parts in all rows."""
        return 2 * (self.rows // config.part) if config.part else 0

    def workspace_bytes(self, config: GroupedKConfig) -> int:
        """Bytes of a workspace: counters, which are zeros between launches, and the sums of parts."""
        if not config.part:
            return 4 * COUNTERS_WORDS if config.dynamic else 0
        m, n = self.tiles(config)
        tiles, sharing = m * n * config.cluster, 1 if isinstance(config.schedule, Pingpong) else config.warpgroups
        counters, parts = self.most_parts(config) // 2 * tiles * sharing, self.most_parts(config) * tiles
        bytes = COUNTERS_BYTES + 4 * parts * config.tile.BM * config.tile.BN
        if counters > COUNTER_WORDS or bytes > MOST_WORKSPACE:
            raise LaunchError(f"parts of {config.part} rows have {parts:,} tiles, whose sums take {bytes >> 20:,} MiB and {counters:,} "
                              f"counters: a workspace has {MOST_WORKSPACE >> 20:,} MiB and {COUNTER_WORDS:,} counters; take longer parts")
        return bytes

    def grid(self, config: GroupedKConfig, ctas: int) -> int:
        """CTAs of a launch on a device that holds so many."""
        count = self.work_tiles(config)
        if count >= MOST_TILES:
            raise LaunchError(f"{count:,} work tiles are too many for their 32-bit numbers: launch some of the groups at a time")
        return min(count, max(1, ctas // config.cluster)) * config.cluster

    def arguments(self, config: GroupedKConfig, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The arguments besides tensor maps of this configuration's kernel, by name. `pointer` maps the name of an array, or workspace,
        to what stands for its address."""
        (m, n), (rows, columns), order = config.tiles(self.m, self.n), self.tiles(config), config.scheduler.order
        divmod = TileDivmod.of(rows, columns, order.size, order.raster == "along_m")
        return {"groups": {"lengths": pointer("lengths"), "count": self.groups, "rows": self.rows, "m_tiles": m, "n_tiles": n,
                           "divmod": divmod, "part": config.part, "inverse_of_part": inverse(max(1, config.part)),
                           "most_parts": self.most_parts(config)}, "workspace": pointer("workspace")}


def extents(a: ArrayView, b: ArrayView, lengths: ArrayView) -> tuple[int, int, int, int]:
    """(groups, rows, M, N)."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[0]:
        raise LaunchError(f"a has shape {a.shape} and b {b.shape}: groups along K are rows of both, a [rows, M] and b [rows, N]")
    if len(lengths.shape) != 1 or not lengths.shape[0]:
        raise LaunchError(f"cu_seqlens has shape {lengths.shape}: it is [groups + 1], where each group begins, and the end of the last")
    if a.shape[0] >= MOST_EXTENT:
        raise LaunchError(f"a has {a.shape[0]} rows: a launch has fewer than {MOST_EXTENT}; launch parts of them")
    return lengths.shape[0] - 1, a.shape[0], a.shape[1], b.shape[1]


def parts(arrays: ArraysAlongK, groups: int) -> list[ArraysAlongK]:
    """The arrays of several launches that have some of the groups each."""
    found = []
    for first in range(0, groups, CAPACITIES[-1]):
        count = min(CAPACITIES[-1], groups - first)
        lengths, out = arrays.lengths, arrays.out
        size = TYPES[out.dtype].bits // 8
        found.append(arrays._replace(
            lengths=lengths._replace(shape=(count + 1,), pointer=lengths.pointer + 4 * first),
            out=out._replace(shape=(count, *out.shape[1:]), pointer=out.pointer + first * out.strides[0] * size)))
    return found


__all__ = ["ArraysAlongK", "ProblemAlongK", "extents", "parts"]
