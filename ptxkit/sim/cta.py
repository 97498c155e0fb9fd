"""Clusters, CTAs and warps: what they own while they are resident."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..grammar.special import SPECIAL
from .barriers import ClusterBarrier, MBarrier, NamedBarrier
from .memory import Memory
from .spaces import RANK_BITS, RESERVED_SHARED
from .symbols import round_up
from .values import DTYPES, FULL, LANE, Array, frozen, indices, uniform

if TYPE_CHECKING:
    from .fragment import Fragment
    from .machine import Machine
    from .tasks import Group
    from .warpgroup import Warpgroup

POISON = 0xFF
"""Uninitialised shared and local memory: NaN in every floating type."""


class Warp:
    """`live` are the lanes that have not exited; `fragments` those that run, wait or are parked at a join."""

    def __init__(self, machine: Machine, cta: Cta, index: int, threads: int) -> None:
        self.machine = machine
        self.cta = cta
        self.index = index
        count = min(32, threads - 32 * index)
        self.lanes = self.live = (1 << count) - 1
        self.bulk: list[Group] = []
        self.copies: list[Group] = []
        self.meetings: dict[tuple[str, int], list[Fragment]] = {}
        """Fragments that wait for the other lanes of a `.sync`, by its qualifiers and lanes, or of an `.aligned` one, by its place."""
        self.leaders: dict[int, int] = {}
        """The lane that elections have chosen, by member mask: always the same."""
        self.cluster_phase: int | None = None
        """The phase of the cluster barrier that its threads arrived in last."""
        self.cluster_arrived = 0
        """The lanes that have arrived and not waited since."""
        self.registers = machine.registers_at_entry
        self._local: Memory | None = None

    @property
    def group(self) -> Warpgroup:
        return self.cta.warpgroups[self.index // 4]

    def special(self, name: str) -> Any:
        """A special register that keeps its value; None for one that does not."""
        found = _of_warp(self.machine.block, self.index).get(name)
        return self.cta.special(name) if found is None else found

    # ------------------------------------------------------------------------------------------- local memory

    @property
    def local(self) -> Memory:
        """Local memory of 32 lanes: lane l's byte a is at l * local_bytes + a."""
        if self._local is None:
            size = self.machine.local_memory()
            self._local = Memory(np.full(32 * size, POISON, np.uint8), "local", stride=size)
            self._local.traffic = self.machine.traffic["local"]
            if self.machine.watch is not None:
                self._local.shadow = np.zeros(32 * size, bool)
        return self._local

    def release_local(self) -> int:
        """Give local memory back; the bytes that it took."""
        size = 0 if self._local is None else len(self._local.data)
        self._local = None
        return size

    def copy_local(self, mask: int, to: int, source: int, size: int) -> None:
        rows = self.local.data.reshape(32, -1)
        chosen = indices(mask)
        rows[chosen, to:to + size] = rows[chosen, source:source + size]
        if self.local.shadow is not None:
            self.local.shadow.reshape(32, -1)[chosen, to:to + size] = True

    def store_local(self, mask: int, at: int, value: Any, bits: int) -> None:
        rows = self.local.data.reshape(32, -1)
        words = np.full(32, value, DTYPES[bits]) if type(value) is int else value
        size = bits // 8
        chosen = indices(mask)
        rows[chosen, at:at + size] = np.ascontiguousarray(words).view(np.uint8).reshape(32, size)[chosen]
        if self.local.shadow is not None:
            self.local.shadow.reshape(32, -1)[chosen, at:at + size] = True

    def load_local(self, mask: int, at: int, bits: int) -> Any:
        rows = self.local.data.reshape(32, -1)
        return uniform(np.ascontiguousarray(rows[:, at:at + bits // 8]).view(DTYPES[bits]).reshape(32))

    def __repr__(self) -> str:
        return f"{self.cta!r} warp {self.index}"


_ones = [(1 << lane) for lane in range(32)]
_LANE_MASKS = {
    "eq": np.array(_ones, np.uint64), "le": np.array([2 * bit - 1 for bit in _ones], np.uint64),
    "lt": np.array([bit - 1 for bit in _ones], np.uint64), "ge": np.array([FULL & ~(bit - 1) for bit in _ones], np.uint64),
    "gt": np.array([FULL & ~(2 * bit - 1) for bit in _ones], np.uint64)}


@lru_cache(maxsize=128)
def _of_warp(block: tuple[int, int, int], index: int) -> dict[str, Any]:
    """The special registers that only depend on the block and on the warp's place in it."""
    thread = LANE + np.uint32(32 * index)
    x, y, _ = block
    ids = {"x": thread % x, "y": thread // x % y, "z": thread // (x * y)}
    return {**{f"%tid.{axis}": uniform(frozen(value.astype(np.uint32))) for axis, value in ids.items()}, "%laneid": LANE, "%warpid": index,
            **{f"%lanemask_{word}": frozen(value.astype(np.uint32)) for word, value in _LANE_MASKS.items()}}


class Cta:
    """`rank` counts within its cluster, `index` within the grid. `window` is the shared address of its offset 0."""

    def __init__(self, machine: Machine, cluster: Cluster, rank: int, position: tuple[int, int, int]) -> None:
        from .warpgroup import Warpgroup

        self.machine = machine
        self.cluster = cluster
        self.rank = rank
        self.position = position
        x, y, _ = machine.grid
        self.index = position[0] + x * (position[1] + y * position[2])
        self.window = rank << RANK_BITS
        self.barriers: dict[int, NamedBarrier] = {}
        self._specials: dict[str, Any] | None = None
        self.threads = machine.threads
        count = -(-machine.threads // 32)
        self.pool = machine.registers_at_entry * 32 * round_up(count, 4)
        self.free = 0
        self.register_waiters: list[Any] = []
        self.warps = [Warp(machine, self, i, machine.threads) for i in range(count)]
        self.warpgroups = [Warpgroup(self, self.warps[i:i + 4]) for i in range(0, count, 4)]
        start = self.start
        self.shared: Array = cluster.shared.data[start:start + machine.shared_bytes]
        self.chunks: Array = self.shared.view(np.complex128)
        """The CTA's shared memory in chunks of 16 bytes."""

    @property
    def start(self) -> int:
        """Where its shared memory begins in the cluster's."""
        return self.rank * self.machine.shared_stride

    @property
    def live(self) -> bool:
        return any(warp.live for warp in self.warps)

    def named_barrier(self, index: int) -> NamedBarrier:
        barrier = self.barriers.get(index)
        if barrier is None:
            barrier = self.barriers[index] = NamedBarrier(self, index)
        return barrier

    def special(self, name: str) -> Any:
        """A special register that all threads of the CTA have alike, or None."""
        if self._specials is None:
            self._specials = self._known()
        return self._specials.get(name)

    def _known(self) -> dict[str, Any]:
        machine = self.machine
        size, count = machine.cluster, [g // c for g, c in zip(machine.grid, machine.cluster, strict=True)]
        within = [p % c for p, c in zip(self.position, size, strict=True)]
        of = [p // c for p, c in zip(self.position, size, strict=True)]
        found: dict[str, Any] = {}
        for name, values in (("ntid", machine.block), ("ctaid", self.position), ("nctaid", machine.grid), ("clusterid", of),
                             ("nclusterid", count), ("cluster_ctaid", within), ("cluster_nctaid", size)):
            found |= {f"%{name}.{axis}": value for axis, value in zip("xyz", values, strict=True)}
        ctas = size[0] * size[1] * size[2]
        total = machine.shared_bytes - RESERVED_SHARED
        found |= {"%cluster_ctarank": self.rank, "%cluster_nctarank": ctas, "%is_explicit_cluster": machine.explicit_cluster,
                  "%nwarpid": 64, "%smid": self.index % machine.resident, "%nsmid": machine.resident, "%gridid": 1,
                  "%dynamic_smem_size": machine.dynamic_smem, "%total_smem_size": total, "%aggr_smem_size": total,
                  "%reserved_smem_offset_begin": 0, "%reserved_smem_offset_end": RESERVED_SHARED, "%current_graph_exec": 0}
        found |= {name: 0 for name in SPECIAL if name.endswith(".w")}
        found |= {f"%envreg{n}": 0 for n in range(32)} | {f"%pm{n}": 0 for n in range(8)} | {f"%pm{n}_64": 0 for n in range(8)}
        return found

    def __repr__(self) -> str:
        return f"CTA {self.index}"


class Cluster:
    """The CTAs that share distributed shared memory: one buffer, CTA r's bytes from r * shared_stride on."""

    def __init__(self, machine: Machine, index: int, positions: list[tuple[int, int, int]]) -> None:
        self.machine = machine
        self.index = index
        size = machine.shared_stride * len(positions)
        self.shared = Memory(np.full(size, POISON, np.uint8), "shared", stride=machine.shared_stride, limit=machine.shared_bytes)
        self.shared.traffic = machine.traffic["shared"]
        self.mbarriers: dict[int, MBarrier] = {}
        self.barrier = ClusterBarrier(self)
        self.ctas = [Cta(machine, self, rank, position) for rank, position in enumerate(positions)]

    @property
    def live(self) -> bool:
        return any(cta.live for cta in self.ctas)

    def release(self) -> None:
        """Give its memory back: all threads have exited and nothing is in flight."""
        self.shared.release()
        for cta in self.ctas:
            cta.shared = self.shared.data
            cta.chunks = cta.shared.view(np.complex128)
            cta.warps, cta.warpgroups = [], []
        self.mbarriers = {}


def cta_of_place(cluster: Cluster, place: int) -> Cta:
    """The CTA that a place in the cluster's shared memory belongs to."""
    return cluster.ctas[place // cluster.machine.shared_stride]
