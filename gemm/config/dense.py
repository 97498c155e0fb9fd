"""The builder: what the kernel can be specialised to, what that takes of an SM, and which specialisation a problem gets."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from ptxkit.errors import PtxkitError
from ptxkit.layout import Major
from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import Scalar, f16, f32

from ..collective.atoms import ROWS, WARPGROUP
from ..collective.epilogue import BUFFERS, span_bytes
from ..collective.epilogue_ops import ACTIVATIONS, PLAIN_SUM, Fusion
from ..collective.mainloop import UNROLLED, at_once
from ..collective.registers import fragment_registers
from ..collective.scale_factors import bulk_count, scale_count
from ..collective.split_k import columns_per_split
from ..collective.thread_scales import BLOCK
from ..kernels.dense import REGISTERS
from ..scheduler.dynamic import Tickets
from ..scheduler.static import Raster

OPERANDS = {"f16": ("f16",), "bf16": ("bf16",), "f32": ("f32",), "e4m3": ("e4m3", "e5m2"), "e5m2": ("e4m3", "e5m2")}
RESULTS = ("f16", "bf16", "f32", "e4m3", "e5m2")
L2_PROMOTION = 256          # bytes that the L2 fetches at once
L2_PROMOTIONS = (64, 128, 256)
LINE, AHEAD = 128, 4        # where everybody waits for weights: bytes of a line of the L2, and stages that a CTA asks for ahead
SPAN = 128                  # bytes of depth of the narrowest stage
BARRIER_BYTES = 16          # a full and an empty mbarrier a stage
MAX_STAGES = 16
MAX_SPLITS = 16
MAX_CLUSTER = 8             # CTAs, without asking for a non-portable size
SPARE_REGISTERS = {1: 40, 2: 40, 3: 32}     # of a consumer thread, beside its accumulators, by consumer warpgroups
WITH_A = {1: 160, 2: 160, 3: 96}            # registers for sums and A by consumer warpgroups, before ptxas serialises wgmma (C7512)
ONE_OF_THREE = 96           # ptxas holds one instruction to the 128 registers that 512 threads have at entry, whatever setmaxnreg asks for


class ConfigError(PtxkitError, ValueError):
    """A configuration that the kernel cannot have."""


@dataclass(frozen=True, slots=True)
class Config:
    """One specialisation of the kernel; see `gemm.dense.gemm` for the parameters. 0 or None is "auto".

    BK counts elements of depth a stage (auto: 128 bytes). A_ROWS, where it is given, is how many rows of a tile A has at all: of few
    rows only those are loaded. STAGES auto is the deepest ring that shared memory holds. CONSUMERS auto is
    a warpgroup for every 64 rows up to 3, and 2 when they take turns or the tile has 256 rows. STORE auto is "staged" where a tile's
    row has whole 32-byte spans and the depth is not split. BUFFERS auto are two a warpgroup, and where sums are promoted as many as it
    stores boxes and there is room for. AHEAD are stages of B's first tile that a CTA asks for before the kernel before this one has ended
    (none with a Hilbert curve, with stream-K, and where a leader loads); L2_PROMOTION are bytes that the L2 fetches at once.
    """

    a: type[Scalar]
    out: type[Scalar]
    b: type[Scalar] | None = None
    accumulator: type[Scalar] = f32
    a_major: Major = "k"
    b_major: Major = "k"
    BM: int = 128
    BN: int = 256
    BK: int = 0
    A_ROWS: int = 0
    STAGES: int = 0
    CONSUMERS: int = 0
    PINGPONG: bool = False
    CLUSTER_M: int = 1
    CLUSTER_N: int = 1
    MULTICAST: Literal["split", "leader"] = "split"
    SPLITS: int = 1
    REDUCE: Literal["cluster", "workspace"] = "workspace"
    GROUP: int = 8
    RASTER: Raster = "along_m"
    SERPENTINE: bool = False
    TICKET: bool = False
    STREAM_K: bool = False
    A_REGISTERS: bool = False
    STORE: Literal["staged", "direct"] | None = None
    BUFFERS: int = 0
    PROMOTE: bool = False
    OVERLAP: bool = False
    STAGGER: bool = False
    BLOCK_SCALES: bool = False
    SCALE_MAP: bool = False
    SCALE_BULK: bool = False
    BATCHED: bool = False
    STREAM_B: bool = False
    AHEAD: int = 0
    L2_PROMOTION: int = L2_PROMOTION
    FUSION: Fusion = PLAIN_SUM

    def __post_init__(self) -> None:
        auto: dict[str, Any] = {}
        auto["b"] = self.b or self.a
        auto["BK"] = self.BK or SPAN * 8 // self.a.bits
        auto["CONSUMERS"] = self.CONSUMERS or (2 if self.PINGPONG or self.BM == 256 else max(1, min(3, self.BM // ROWS)))
        stageable = self.BN * self.out.bits % 256 == 0 and self.out.bits > 8 and self.SPLITS == 1
        auto["STORE"] = self.STORE or ("staged" if stageable else "direct")
        if self.RASTER == "hilbert" or self.STREAM_K or self.MULTICAST == "leader":
            auto["AHEAD"] = 0
        for name, value in auto.items():
            object.__setattr__(self, name, value)
        problem = self._shape_problem()
        buffers = self.BUFFERS
        object.__setattr__(self, "BUFFERS", buffers or BUFFERS)
        if problem is None and not self.STAGES:
            object.__setattr__(self, "STAGES", self.stages_that_fit)
        if problem is None and not buffers and self.PROMOTE and self.STORE == "staged":
            object.__setattr__(self, "BUFFERS", max(BUFFERS, min(self.boxes, self.buffers_that_fit)))
        problem = problem or self._budget_problem()
        if problem:
            raise ConfigError(problem)

    @property
    def slabs(self) -> int:
        """Slabs of 64 rows that one consumer warpgroup multiplies."""
        return self.BM // ROWS if self.PINGPONG else self.BM // ROWS // self.CONSUMERS

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.CLUSTER_M * self.CLUSTER_N * (self.SPLITS if self.SPLITS > 1 and self.REDUCE == "cluster" else 1)

    @property
    def threads(self) -> int:
        return WARPGROUP * (1 + self.CONSUMERS)

    @property
    def buffer_bytes(self) -> int:
        """One staging buffer of every consumer warpgroup."""
        return self.CONSUMERS * ROWS * span_bytes(self.BN, self.out)

    @property
    def boxes(self) -> int:
        """Boxes that a warpgroup stores of a tile."""
        return self.slabs * self.BN * self.out.bits // 8 // span_bytes(self.BN, self.out)

    @property
    def buffers_that_fit(self) -> int:
        """Staging buffers a warpgroup that shared memory holds beside the ring."""
        return self.BUFFERS + (SHARED_LIMIT - self.smem_bytes) // self.buffer_bytes

    @property
    def stage_bytes(self) -> int:
        """One stage of A and B."""
        assert self.b is not None
        return (self.BM * self.a.bits + self.BN * self.b.bits) // 8 * self.BK

    @property
    def fixed_bytes(self) -> int:
        """Shared memory beside the ring: staging, partial sums, barriers, and the alignment between them at most."""
        bytes = 0
        if self.STORE == "staged":
            bytes += self.BUFFERS * self.buffer_bytes
        if self.SPLITS > 1 and self.REDUCE == "cluster":
            bytes += self.SPLITS * columns_per_split(self.BN, self.SPLITS) * 8 * self.BM * 4 + 8
        return bytes + (16 if self.PINGPONG else 0) + (Tickets.BYTES if self.TICKET else 0)

    @property
    def smem_bytes(self) -> int:
        """Shared memory of one CTA."""
        return self._bytes(self.STAGES)

    def _bytes(self, stages: int) -> int:
        ring = stages * (self.stage_bytes + BARRIER_BYTES)
        if self.BLOCK_SCALES:
            ring += stages * -(-self.BM // 32) * 128 if self.SCALE_MAP else -(-stages * self.BM // 4) * 16
            ring += stages * 4 * bulk_count(self.BN) if self.SCALE_BULK else -(-stages * scale_count(self.BN, BLOCK) // 2) * 8
        return ring + self.fixed_bytes

    @property
    def stages_that_fit(self) -> int:
        """The deepest ring that shared memory holds beside the rest."""
        most = min(MAX_STAGES, max(0, SHARED_LIMIT - self.fixed_bytes) // (self.stage_bytes + BARRIER_BYTES))
        return next((stages for stages in range(most, 0, -1) if self._bytes(stages) <= SHARED_LIMIT), 0)

    @property
    def accumulator_registers(self) -> int:
        """32-bit registers a consumer thread for its sums."""
        sums = self.slabs * self.BN // (2 if self.accumulator is f32 else 4)
        if not self.PROMOTE:
            return sums
        if self.OVERLAP:
            return 3 * sums
        slabs, columns = at_once(self.slabs, self.BN)
        return sums + slabs * columns // 2

    @property
    def by_halves(self) -> bool:
        """Whether sums are promoted by halves of the columns."""
        return self.PROMOTE and not self.OVERLAP and at_once(self.slabs, self.BN)[1] < self.BN

    @property
    def consumer_registers(self) -> int:
        return REGISTERS[self.CONSUMERS][1] if self.CONSUMERS in REGISTERS else 255

    @property
    def parameters(self) -> dict[str, Any]:
        """The kernel's compile-time parameters: all but what the maps say."""
        return {field.name.upper(): getattr(self, field.name) for field in fields(self) if field.name != "L2_PROMOTION"}

    def with_(self, **changes: Any) -> Config:
        """The same with changes; what was derived and not given is derived again."""
        return replace(self, **{"STAGES": 0, "CONSUMERS": 0, "STORE": None, "BUFFERS": 0, **changes})

    def __str__(self) -> str:
        """One line: tile, ring, schedule."""
        words = [f"{self.BM}x{self.BN}x{self.BK}" + (f" of {self.A_ROWS} rows" if self.A_ROWS else ""), f"{self.STAGES} stages",
                 "pingpong" if self.PINGPONG else f"{self.CONSUMERS} consumer{'s' if self.CONSUMERS > 1 else ''}"]
        if self.CLUSTER_M * self.CLUSTER_N > 1:
            words.append(f"cluster {self.CLUSTER_M}x{self.CLUSTER_N}" + (" with leaders" if self.MULTICAST == "leader" else ""))
        if self.SPLITS > 1:
            words.append(f"split-K {self.SPLITS} in the {self.REDUCE}")
        if self.RASTER == "hilbert":
            words.append("along a Hilbert curve")
        else:
            words.append(f"{self.RASTER.replace('_', ' ')} by {self.GROUP}" + (" serpentine" if self.SERPENTINE else ""))
        words += ["overlapped promotion"] * self.OVERLAP + ["staggered promotion"] * self.STAGGER
        words += ["by ticket"] * self.TICKET + ["stream-K"] * self.STREAM_K + ["A in registers"] * self.A_REGISTERS
        words += [f"{self.AHEAD} stages ahead"] * (self.AHEAD > 0)
        words += [f"L2 by {self.L2_PROMOTION} bytes"] * (self.L2_PROMOTION != L2_PROMOTION)
        return ", ".join(words + ["direct stores"] * (self.STORE == "direct"))

    def describe(self) -> str:
        """The budget: stages, bytes, registers, barriers."""
        fewest = f"{self.readers // (self.CLUSTER_M + self.CLUSTER_N - 1)} to " if self.MULTICAST == "leader" else ""
        barriers = f"full {self.STAGES} x 1 arrival, empty {self.STAGES} x {fewest}{self.readers} arrivals"
        return "\n".join([str(self), f"threads             {self.threads}", f"stage               {self.stage_bytes:,} bytes",
                          f"shared memory       {self.smem_bytes:,} of {SHARED_LIMIT:,} bytes",
                          f"accumulators        {self.accumulator_registers} of {self.consumer_registers} registers a consumer thread",
                          f"mbarriers           {barriers}"])

    @property
    def readers(self) -> int:
        """Arrivals that empty a stage, of a CTA that loads for others."""
        return (1 if self.PINGPONG else self.CONSUMERS) * (self.CLUSTER_M + self.CLUSTER_N - 1)

    def _shape_problem(self) -> str | None:
        """A sentence when the kernel cannot have these types and this tile."""
        assert self.b is not None
        if self.a.__name__ not in OPERANDS or self.b.__name__ not in OPERANDS[self.a.__name__]:
            return f"{self.a.__name__} times {self.b.__name__} is not multiplied: f16, bf16, f32 (as tf32), and e4m3 or e5m2 with either"
        if self.out.__name__ not in RESULTS:
            return f"the result is {', '.join(RESULTS)}, not {self.out.__name__}"
        if self.accumulator not in (f32, f16) or (self.accumulator is f16 and self.a is not f16):
            return f"sums are f32, or f16 of f16 operands, not {self.accumulator.__name__} of {self.a.__name__}"
        if self.a.bits != 16 and "mn" in (self.a_major, self.b_major):
            return f"operands of {self.a.__name__} are K-major, since wgmma transposes 16-bit types only: pass contiguous K"
        if self.BM not in (64, 128, 192, 256):
            return f"BM is 64, 128, 192 or 256, not {self.BM}"
        if self.BN % 8 or not 8 <= self.BN <= 256:
            return f"BN is a multiple of 8 up to 256, not {self.BN}: take {max(8, min(256, round(self.BN / 8) * 8))}"
        for name, major, extent in (("BM", self.a_major, self.BM), ("BN", self.b_major, self.BN)):
            if major == "mn" and extent % 64:
                return f"{name} is a multiple of 64 for an operand that is contiguous along {name[1]}, not {extent}"
        if self.BK * self.a.bits // 8 % SPAN or not self.BK:
            return f"BK is a multiple of {SPAN * 8 // self.a.bits} for {self.a.__name__}, not {self.BK}"
        if self.A_ROWS and (self.A_ROWS % 8 or not 8 <= self.A_ROWS < 64 or self.BM != 64 or self.a_major != "k" or self.CONSUMERS != 1
                            or self.CLUSTER_N > 1):
            return f"A_ROWS={self.A_ROWS}: 8 to 56 rows of K-major tiles of 64, for one consumer warpgroup that shares A with nobody"
        if self.PINGPONG and (self.CONSUMERS != 2 or self.SPLITS > 1 or self.BM > 128):
            return "two warpgroups that take turns have a tile of 64 or 128 rows each, and a depth that is not split"
        if not 1 <= self.CONSUMERS <= 3 or (not self.PINGPONG and self.BM % (ROWS * self.CONSUMERS)):
            return f"{self.CONSUMERS} consumer warpgroups cannot share {self.BM} rows in slabs of {ROWS}"
        if self.PROMOTE and (self.PINGPONG or self.BK * self.a.bits // 8 != SPAN or self.accumulator is not f32):
            return "sums are promoted after each stage of 128 bytes by warpgroups that share a tile"
        if self.OVERLAP and not self.PROMOTE:
            return "OVERLAP is between products and their promotion: it needs PROMOTE"
        if self.STAGGER and (not self.PROMOTE or self.OVERLAP or self.CONSUMERS < 2):
            return "STAGGER keeps the warpgroups that share a tile from promoting at the same time: it goes with PROMOTE, without OVERLAP"
        if self.A_REGISTERS and (self.a.bits != 16 or self.a_major != "k" or self.PROMOTE):
            return "A goes through registers where it is K-major, of 16-bit elements, and its sums are not promoted: take A_REGISTERS=False"
        if self.SCALE_MAP and not self.BLOCK_SCALES:
            return "SCALE_MAP is a tensor map of A's block scales: it needs BLOCK_SCALES"
        if self.SCALE_BULK and not self.SCALE_MAP:
            return "SCALE_BULK, bulk copies of B's block scales, goes with those of A by a tensor map: it needs SCALE_MAP"
        if self.BLOCK_SCALES and not (self.PROMOTE and self.a.bits == 8):
            return "block scales are those of fp8 operands, with PROMOTE"
        if self.L2_PROMOTION not in L2_PROMOTIONS:
            return f"the L2 fetches {', '.join(map(str, L2_PROMOTIONS))} bytes at once, not {self.L2_PROMOTION}: that is L2_PROMOTION"
        if not 0 <= self.AHEAD <= MAX_STAGES:
            return f"0 to {MAX_STAGES} stages of B are asked for ahead, not AHEAD={self.AHEAD}"
        return self._sharing_problem() or self._epilogue_problem()

    def _sharing_problem(self) -> str | None:
        for name, count in (("CLUSTER_M", self.CLUSTER_M), ("CLUSTER_N", self.CLUSTER_N)):
            if count not in (1, 2, 4):
                return f"{name} is 1, 2 or 4, not {count}"
        if not 1 <= self.SPLITS <= MAX_SPLITS:
            return f"a depth is split 1 to {MAX_SPLITS} ways, not {self.SPLITS}"
        if self.SPLITS > 1 and self.REDUCE == "cluster" and (self.CLUSTER_M * self.CLUSTER_N > 1 or self.BATCHED):
            return "a cluster shares either operands or the depth of one tile of one product: take REDUCE=\"workspace\""
        if self.SPLITS > 1 and self.REDUCE == "workspace" and self.CLUSTER_M * self.CLUSTER_N > 1:
            return "a depth that is split through the workspace has CTAs on their own: take CLUSTER_M=1 and CLUSTER_N=1"
        if self.RASTER not in get_args(Raster) or not 1 <= self.GROUP < 1 << 16:
            return f"tiles go {', '.join(get_args(Raster))}, in groups of 1 to 65,535, not RASTER={self.RASTER!r}, GROUP={self.GROUP}"
        if self.TICKET and (self.cluster > 1 or self.SPLITS > 1):
            return "tickets are drawn for whole tiles, by CTAs on their own: take CLUSTER_M=1, CLUSTER_N=1 and SPLITS=1"
        if self.STREAM_K and (self.TICKET or self.SPLITS > 1 or self.accumulator is not f32):
            return "stream-K shares the depth out by itself, in turns fixed beforehand, and adds f32 sums: take SPLITS=1, TICKET=False"
        if self.cluster > MAX_CLUSTER:
            return f"a cluster has at most {MAX_CLUSTER} CTAs, not {self.cluster}"
        if self.MULTICAST not in ("split", "leader") or (self.MULTICAST == "leader" and self.CLUSTER_M * self.CLUSTER_N == 1):
            return f"MULTICAST={self.MULTICAST!r}: the CTAs of a cluster split what they share, or a leader loads it; take CLUSTER_M=2"
        for name, major, extent, by in (("A", self.a_major, self.BM, self.CLUSTER_N), ("B", self.b_major, self.BN, self.CLUSTER_M)):
            unit = 8 if major == "k" else 64
            if self.MULTICAST == "split" and extent % (unit * by):
                return f"{by} CTAs cannot share {name} tiles of {extent} lines in parts of {unit}: take MULTICAST=\"leader\""
        return None

    def _epilogue_problem(self) -> str | None:
        if self.STORE == "staged" and (self.BN * self.out.bits % 256 or self.out.bits == 8 or self.SPLITS > 1):
            return "staged stores are of whole 32-byte spans of 16- or 32-bit results, of a depth that is not split: take STORE=\"direct\""
        activation = self.FUSION.activation
        if isinstance(activation, str) and activation not in ACTIVATIONS:
            return f"activation is {', '.join(ACTIVATIONS)} or a function, not {activation!r}"
        return None

    def _budget_problem(self) -> str | None:
        """A sentence when an SM does not have what it takes."""
        if self.BUFFERS < 1 or (self.PINGPONG and self.BUFFERS < BUFFERS):
            return (f"a warpgroup has {BUFFERS} staging buffers or more, or 1 where warpgroups share a tile, not {self.BUFFERS}: one is "
                    "written while a copy reads another")
        if self.STAGES < 2 or self.STAGES > MAX_STAGES:
            fit = max(self.stages_that_fit, 0)
            return (f"a ring has 2 to {MAX_STAGES} stages, not {self.STAGES}" +
                    (f": {fit} of {self.stage_bytes:,} bytes fit, take a smaller tile" if fit < 2 else ""))
        if self.by_halves and self.STAGES < UNROLLED:
            return (f"sums promoted by halves of {self.BN} columns spill in a ring of {self.STAGES} stages: take {UNROLLED}, or "
                    f"BN={self.BN // 2}")
        if self.smem_bytes > SHARED_LIMIT:
            return (f"{self.STAGES} stages of {self.stage_bytes:,} bytes take {self.smem_bytes:,} of {SHARED_LIMIT:,} bytes; "
                    f"{self.stages_that_fit} fit")
        if self.CONSUMERS == 3 and self.BN * self.accumulator.bits // 64 > ONE_OF_THREE:
            return f"one wgmma of {self.BN} columns takes more registers than a thread of 512 has at entry: take BN=192 or fewer consumers"
        room = self.consumer_registers - SPARE_REGISTERS[self.CONSUMERS]
        with_a = self.accumulator_registers + fragment_registers(self.slabs, self.BK) if self.A_REGISTERS else 0
        if with_a > WITH_A[self.CONSUMERS]:
            return (f"the sums of {self.BM}x{self.BN} and two stages of A take {with_a} registers of a consumer thread, and with more than "
                    f"{WITH_A[self.CONSUMERS]} wgmma is serialised: take a smaller tile or A_REGISTERS=False")
        if self.accumulator_registers > room:
            return (f"the sums of {self.BM}x{self.BN} take {self.accumulator_registers} registers of a consumer thread, which has "
                    f"{self.consumer_registers} and can keep {room} for them: take a smaller tile or more consumers")
        return None


__all__ = ["Config", "ConfigError"]
