"""The builder of the group kernel: a tile as of the dense kernel, and how it meets the groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import Scalar, e4m3

from ..collective.atoms import ROWS
from ..collective.epilogue import BUFFERS
from ..collective.epilogue_quantize import kept_bytes, passes
from ..collective.mainloop import UNROLLED
from ..collective.scale_factors import bulk_count, parts_of
from ..collective.thread_scales import BLOCK
from ..scheduler.dynamic import ClusterTickets, Tickets
from ..scheduler.fast_divmod import SmallInverses
from ..scheduler.group_table import COUNTED, GroupTable, Layout
from ..scheduler.grouped import ORDERS, Order, Tails
from ..scheduler.tile_cost import Tiles
from ..scheduler.two_kernels import Choice
from .dense import Config, ConfigError

CAPACITIES = (32, 64, 128, 256, 1024)
"""Groups that a table has room for."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One specialisation of the group kernel. `tile` is that of A B: of X W^T, or TRANSPOSED of W X^T.

    `tile.STAGES` 0 is the deepest ring that shared memory holds beside the table of GROUPS groups; `tile.AHEAD` are stages of the weights
    that a CTA asks for before the lengths are known: its first ones if every group has one tile of tokens. TAILS is how staged stores leave
    the next group's rows alone; direct ones are predicated. PIECES, where warpgroups share a tile: x is loaded by a copy for each of them,
    and only for those that have rows. STEP (TRANSPOSED): a tile multiplies only as many columns as it has tokens, rounded up to STEP, and
    PIECES are of 32 rows or more. LONGEST_FIRST: groups in the order of their lengths instead of their own. FROM_END (of tickets): so many
    CTAs begin with the last group. STREAM_W: weights that one tile of tokens needs are evict-first. OTHER is a second kernel for the same
    product (see `Choice`).
    """

    tile: Config
    TRANSPOSED: bool = False
    GROUPS: int = 256
    ORDER: Order = "linear"
    LAYOUT: Layout = "offsets"
    STREAM_W: bool = False
    SCALED: bool = False
    GATED: bool = False
    TAILS: Tails = "ragged"
    BLOCK_SCALES: bool = False
    CHOICE: Choice | None = None
    OTHER: GroupConfig | None = None
    PIECES: bool = False
    REST: int = 0
    STEP: int = 0
    LONGEST_FIRST: bool = False
    FROM_END: int = 0

    @property
    def kernels(self) -> tuple[GroupConfig, ...]:
        """What is launched: one kernel, or two, of which one has all groups or each some."""
        return (self,) if self.OTHER is None else (self, self.OTHER)

    @property
    def alone(self) -> GroupConfig:
        """This kernel, which works whatever the lengths."""
        return replace(self, CHOICE=None, OTHER=None)

    def or_(self, own: Tiles, other: GroupConfig, others: Tiles, between: int | None = None) -> GroupConfig:
        """This configuration or another, by the lengths, or each for some groups: given what their tiles take, and a CTA's way from one
        kernel to the other (None: all groups are the same one's)."""
        choice = Choice(own, others, between, is_first=True)
        return replace(self, CHOICE=choice, OTHER=replace(other, CHOICE=replace(choice, is_first=False)))

    def tiles(self, wave: int) -> Tiles:
        """This configuration's, which take `wave`, or so long for each STEP."""
        return Tiles(self.tokens, self.features, self.STEP or self.tokens, wave)

    def chosen(self, lengths: Sequence[int], n: int, ctas: int) -> GroupConfig:
        """The kernel that takes less time for groups of these lengths and results of `n` columns, if only one of them works."""
        return self if self.OTHER is None or self.CHOICE is None or self.CHOICE.alone(lengths, n, ctas) else self.OTHER

    def own(self, lengths: Sequence[int], n: int, ctas: int) -> tuple[int, ...]:
        """The lengths of the groups on which this kernel works, and 0 for others, for results of `n` columns."""
        return tuple(lengths) if self.CHOICE is None else self.CHOICE.own(lengths, n, ctas)

    @property
    def ring(self) -> bool:
        """Whether block scales come through shared memory, a stage's with its operands; else each thread reads its own a stage ahead."""
        return self.tile.BLOCK_SCALES

    def __post_init__(self) -> None:
        if self.tile.STORE == "direct" and self.TAILS == "ragged":
            object.__setattr__(self, "TAILS", "predicated")
        if self.FROM_END and self.ORDER != "ticket":
            object.__setattr__(self, "FROM_END", 0)
        apart = self.tile.CLUSTER_N == 1 and self.LAYOUT != "rows"
        if self.REST and (not self.PIECES or self.TRANSPOSED or self.tile.PINGPONG or not apart or self.LAYOUT == "pointers"):
            object.__setattr__(self, "REST", 0)
        if self.PIECES and not self.STEP and not (apart and (self._in_parts or self.REST)):
            object.__setattr__(self, "PIECES", False)
        problem = self._problem()
        if problem:
            raise ConfigError(problem)

    @classmethod
    def of(cls, x: type[Scalar], w: type[Scalar], out: type[Scalar], *, TRANSPOSED: bool = False, GROUPS: int = 256,
           ORDER: Order = "linear", LAYOUT: Layout = "offsets", STREAM_W: bool = False, SCALED: bool = False, GATED: bool = False,
           TAILS: Tails = "ragged", RING: bool = False, BLOCK_SCALES: bool = False, PIECES: bool = False, REST: int = 0,
           STEP: int = 0, LONGEST_FIRST: bool = False, FROM_END: int = 0, **tile: Any) -> GroupConfig:
        """From types and the parameters of the tile."""
        a, b = (w, x) if TRANSPOSED else (x, w)
        wanted = tile.pop("STAGES", 0)
        tile["BLOCK_SCALES"] = RING
        TAILS = "updated" if LAYOUT == "pointers" else TAILS
        if TRANSPOSED or (GATED and tile.get("BN", 256) * out.bits % 512):
            tile["STORE"] = "direct"
        made = Config(a, out, b, STAGES=wanted, **tile)
        if not wanted:
            made = _fitted(made, GROUPS, LAYOUT, LONGEST_FIRST, GATED)
        return cls(made, TRANSPOSED, GROUPS, ORDER, LAYOUT, STREAM_W, SCALED, GATED, TAILS, BLOCK_SCALES, PIECES=PIECES, REST=REST,
                   STEP=STEP, LONGEST_FIRST=LONGEST_FIRST, FROM_END=FROM_END)

    @property
    def tokens(self) -> int:
        """Rows of x in a tile."""
        return self.tile.BN if self.TRANSPOSED else self.tile.BM

    @property
    def features(self) -> int:
        """Columns of y in a unit of work: a tile's, or those of tiles in turn that make up 128."""
        lines = self.tile.BM if self.TRANSPOSED else self.tile.BN
        lines = lines // 2 if self.GATED else lines
        return lines * passes(lines) if self.quantised else lines

    @property
    def piece(self) -> int:
        """Rows of a tile that one copy loads where it is loaded in PIECES: those of a warpgroup, or a multiple of STEP."""
        whole = max(self.STEP, gcd(self.tile.BN, LEAST_PIECE)) if self.STEP else self.tile.slabs * ROWS
        return whole if self.PIECES else 0

    @property
    def even(self) -> int:
        """The rows by which a group's tiles share its rows evenly, or 0: of 4 slabs of 64 rows, tiles of three warpgroups have 2 each."""
        tile = self.tile
        if self.STEP:
            return self.STEP
        of_three = self._in_parts and tile.slabs == 1 and tile.BM > 2 * ROWS and tile.CLUSTER_M == 1
        return ROWS if of_three and self.LAYOUT != "rows" else 0

    @property
    def _in_parts(self) -> bool:
        """Whether each of several warpgroups has rows of its own in a tile."""
        return not (self.TRANSPOSED or self.tile.PINGPONG or self.tile.CONSUMERS == 1)

    @property
    def _counted(self) -> bool:
        """Whether the kernel itself makes the table, of groups that are rows of one matrix."""
        return self.LAYOUT in COUNTED and self.TAILS != "updated"

    @property
    def quantised(self) -> bool:
        """Whether every 128 columns of a row of y have a scale of their own."""
        return self.tile.out.bits == 8

    @property
    def parameters(self) -> dict[str, Any]:
        """The kernel's compile-time parameters."""
        tile = self.tile
        names = ("BM", "BN", "BK", "STAGES", "CONSUMERS", "PINGPONG", "CLUSTER_M", "CLUSTER_N", "GROUP", "RASTER", "SERPENTINE", "STORE",
                 "BUFFERS", "PROMOTE", "OVERLAP", "STAGGER", "SCALE_MAP", "SCALE_BULK", "AHEAD")
        own = ("TRANSPOSED", "GROUPS", "ORDER", "LAYOUT", "STREAM_W", "SCALED", "GATED", "TAILS", "BLOCK_SCALES", "CHOICE", "STEP",
               "LONGEST_FIRST", "FROM_END", "REST")
        x, w = (tile.b, tile.a) if self.TRANSPOSED else (tile.a, tile.b)
        return {"X": x, "W": w, "OUT": tile.out, **{name: getattr(tile, name) for name in names},
                **{name: getattr(self, name) for name in own}, "RING": self.ring, "EVEN": self.even,
                "PIECE": self.piece, "KEPT": kept_bytes(tile, self.GATED)}

    @property
    def update(self) -> dict[str, Any]:
        """Those of the kernel that makes the groups' maps."""
        tile = self.tile
        along = tile.CLUSTER_N if self.TRANSPOSED else tile.CLUSTER_M
        names = ("X", "W", "OUT", "BK", "GROUPS", "LAYOUT", "LONGEST_FIRST")
        return {**{name: self.parameters[name] for name in names}, "UNIT": self.tokens * along, "FEATURES": self.features}

    @property
    def needs_workspace(self) -> bool:
        """Whether the kernel uses global memory of its own."""
        return self.TAILS == "updated" or self.ORDER == "ticket"

    def __str__(self) -> str:
        tile = self.tile
        words = [str(tile), "transposed" if self.TRANSPOSED else "", "" if self.ORDER == "linear" else self.ORDER,
                 "gated" if self.GATED else "", "quantised" if self.quantised else "", "streamed weights" if self.STREAM_W else "",
                 "scales through shared memory" if self.ring else "", "rows in pieces" if self.PIECES else "",
                 f"the last by {self.REST}" if self.REST else "",
                 f"columns in steps of {self.STEP}" if self.STEP else "", "longest groups first" if self.LONGEST_FIRST else "",
                 f"{self.FROM_END} from the end" if self.FROM_END else "",
                 f"{self.TAILS} tails" if self.TAILS != "ragged" and tile.STORE == "staged" else ""]
        said = ", ".join(word for word in words if word)
        return said if self.OTHER is None else f"{said}; or by the lengths {self.OTHER}"

    def _problem(self) -> str | None:
        tile = self.tile
        if tile.a_major != "k" or tile.b_major != "k" or tile.BATCHED or tile.SPLITS > 1 or tile.A_ROWS or not tile.FUSION.nothing:
            return "a group product has operands with contiguous K, and no batches, fusions or split depth"
        if tile.A_REGISTERS:
            return "both operands of group products are read from shared memory: take A_REGISTERS=False"
        if tile.TICKET or tile.STREAM_K or tile.MULTICAST != "split":
            return ("tiles of groups are whole, drawn by ORDER=\"ticket\", and loaded in parts by those who share them: take TICKET=False, "
                    "STREAM_K=False and MULTICAST=\"split\"")
        if tile.RASTER == "hilbert":
            return "tiles of groups have no table: RASTER is along_m or along_n"
        if self.GROUPS not in CAPACITIES:
            return f"the table of groups has room for {', '.join(map(str, CAPACITIES))}, not {self.GROUPS}"
        if self.ORDER not in ORDERS:
            return f"ORDER is {', '.join(ORDERS)}, not {self.ORDER!r}"
        if self.GATED and (tile.slabs % 2 if self.TRANSPOSED else tile.BN % 16):
            return "a gated tile has halves: of columns in pieces of 8, or (TRANSPOSED) of each warpgroup's slabs"
        if self.GATED and not self.TRANSPOSED and tile.STORE == "staged" and tile.BN // 2 * tile.out.bits % 256:
            return "staged stores are of whole 32-byte spans: take STORE=\"direct\""
        if self.GATED and (tile.CLUSTER_M > 1 or tile.CLUSTER_N > 1) and (ROWS if self.TRANSPOSED else tile.BN // 2) % 16:
            return "CTAs share halves of a gated tile in parts of 8 lines"
        columns = tile.BN // 2 if self.GATED else tile.BN
        if self.quantised and (self.TRANSPOSED or self.LAYOUT == "pointers" or tile.out is not e4m3 or columns not in (64, 128, 256)
                               or (columns == 64 and tile.PINGPONG)):
            return ("results are quantised to e4m3 where tokens are rows of one matrix, in tiles of 64, 128 or 256 columns, those of 64 by "
                    "warpgroups that share a tile")
        if self.ring and (not self.BLOCK_SCALES or self.TRANSPOSED or tile.PINGPONG or (self.GATED and not tile.SCALE_BULK)):
            return ("block scales come through shared memory where tokens are rows, in tiles that warpgroups share, and with a gate where "
                    "the producer copies them (SCALE_MAP and SCALE_BULK)")
        if tile.OVERLAP and self.BLOCK_SCALES and not self.ring:
            return "promotion that overlaps takes block scales from shared memory: take RING=True, or OVERLAP=False"
        if self.SCALED and self.BLOCK_SCALES:
            return "scales are those of blocks or those of groups"
        if self.BLOCK_SCALES and (tile.BK != BLOCK or not tile.PROMOTE):
            return f"block scales go with BK={BLOCK} and PROMOTE=True"
        if self.BLOCK_SCALES and self.TRANSPOSED and tile.BN > 128:
            return f"block scales of {tile.BN} tokens a tile are too many for a thread: take BN=128"
        if self.CHOICE is not None and (not self._counted or (tile.CLUSTER_N if self.TRANSPOSED else tile.CLUSTER_M) > 1):
            return ("two kernels of one product count the tiles themselves: tokens of one matrix, no maps of each group, no clusters "
                    "that share weights")
        if self.REST not in RESTS:
            return f"REST is {', '.join(map(str, RESTS))} rows, not {self.REST}"
        layout = self._layout_problem()
        if layout:
            return layout
        if shared_bytes(tile, self.GROUPS, self.LAYOUT, self.LONGEST_FIRST, self.GATED) > SHARED_LIMIT:
            return (f"{tile.STAGES} stages of {tile.stage_bytes:,} bytes and the table of {self.GROUPS} groups take more than "
                    f"{SHARED_LIMIT:,} bytes")
        return None

    def _layout_problem(self) -> str | None:
        """What the layout and the way of the last rows do not go with."""
        tile, pair = self.tile, self.tile.CLUSTER_M * self.tile.CLUSTER_N > 1
        own_matrices = self.LAYOUT == "pointers"
        listed = self._counted or own_matrices                  # in a table with the lengths of all
        if self.STEP and (self.STEP not in STEPS or tile.BN % self.STEP):
            return f"STEP is {', '.join(map(str, STEPS))} and divides BN={tile.BN}, not {self.STEP}"
        if self.STEP and (not self.TRANSPOSED or not listed or tile.PROMOTE or tile.PINGPONG or pair):
            return ("STEP is for tokens that are columns (TRANSPOSED) and rows of groups whose lengths are given, in tiles that warpgroups "
                    "share, without promoted sums and clusters")
        if tile.AHEAD and (pair or self.LAYOUT not in COUNTED):
            return "weights are asked for ahead by CTAs of their own, of groups whose lengths are given: take AHEAD=0"
        if self.LONGEST_FIRST and not listed:
            return ("the longest groups come first where the kernel reads their lengths, or they have matrices of their own: take "
                    "LONGEST_FIRST=False")
        if self.TAILS == "updated" and tile.STORE != "staged" and not own_matrices:
            return "maps of each group are for staged stores; direct ones, such as those of TRANSPOSED, need none"
        if self.LAYOUT == "rows" and (pair or ROWS_ALIGNED % self.tokens or self.TAILS == "updated"):
            return (f"rows that say their group come in blocks of {ROWS_ALIGNED}: tiles of a divisor of that, no clusters, and no maps of "
                    "each group")
        if own_matrices and (self.GATED or pair or self.BLOCK_SCALES or self.TAILS != "updated" or self.ORDER == "across"):
            return "groups with matrices of their own go by TAILS=\"updated\", no clusters, no gate and no block scales"
        return None


STEPS = (8, 16, 32, 64)
"""By how many columns tiles differ whose columns are those of their tokens."""
LEAST_PIECE = 32
"""Rows that one copy of such a tile loads, at least: copies of fewer take longer than what they do not load."""
RESTS = (0, 8, 16, 32)
"""Rows at a time that come of a warpgroup's which are not all there (0: all of them)."""
ROWS_ALIGNED = 128
"""Rows of a block that has one group, where rows say their group: DeepGEMM's alignment."""


def shared_bytes(tile: Config, groups: int, layout: Layout, longest_first: bool = False, gated: bool = False) -> int:
    """Shared memory of one CTA: the tile's, scales of rows before its first one and of the other projection, quantised values that are
    kept, the table of groups, the inverses of small numbers, the tickets and their alignment."""
    scales = tile.STAGES * parts_of(tile.BM) * 128 if tile.SCALE_MAP else 0
    if gated and tile.SCALE_BULK:
        scales += tile.STAGES * 4 * (bulk_count(tile.BN, 2) - bulk_count(tile.BN))
    table = GroupTable.bytes(groups, layout, longest_first) if layout != "rows" else 0
    tickets = ClusterTickets.BYTES if tile.cluster > 1 else Tickets.BYTES
    return tile.smem_bytes + scales + kept_bytes(tile, gated) + table + tickets + SmallInverses.BYTES + 16


def _fitted(tile: Config, groups: int, layout: Layout, longest_first: bool, gated: bool) -> Config:
    """With the deepest ring that fits, and then as many staging buffers."""
    fewest, least = (UNROLLED, 1) if tile.by_halves else (2, BUFFERS)
    for stages in range(tile.STAGES, fewest - 1, -1):
        for buffers in range(tile.BUFFERS, least - 1, -1):
            found = replace(tile, STAGES=stages, BUFFERS=buffers)
            if shared_bytes(found, groups, layout, longest_first, gated) <= SHARED_LIMIT:
                return found
    return replace(tile, STAGES=1, BUFFERS=BUFFERS)             # which is refused


__all__ = ["CAPACITIES", "ROWS_ALIGNED", "GroupConfig", "shared_bytes"]
