"""Named sequences of instructions that Hopper kernels repeat; each docstring gives the PTX it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from . import ptx
from .dsl.ambient import current
from .dsl.division import fast_div, inverse
from .dsl.reg import Reg
from .errors import TraceError
from .flow import loop
from .smem import MBarrier, MBarriers
from .types import pred, u32

if TYPE_CHECKING:
    from .dsl.tensormap import TensorMap

FULL_WARP = 0xFFFFFFFF


def wait(barrier: MBarrier, parity: Reg[u32] | int, *, cluster: bool = False) -> None:
    """Spin until the barrier's phase of this parity has completed: mbarrier.try_wait.parity in a loop.

    With `cluster` (.acquire.cluster), what threads of other CTAs did before their arrive.release.cluster is visible afterwards.
    """
    how = ptx.mbarrier.try_wait.parity
    with loop() as spin:
        spin.break_if(how.acquire.cluster.shared__cta.b64(barrier, parity) if cluster else how.shared__cta.b64(barrier, parity))


def elect() -> Reg[pred]:
    """A predicate that holds in one lane of the (converged) warp: elect.sync."""
    _, elected = ptx.elect.sync(FULL_WARP)
    return elected


def init_barriers(*counts: tuple[MBarriers, Reg[u32] | int]) -> None:
    """In one thread: mbarrier.init on every barrier of each (barriers, count), then the fence that the cluster's other CTAs need."""
    for barriers, count in counts:
        for i in range(len(barriers)):
            ptx.mbarrier.init.shared__cta.b64(barriers[i], count)
    ptx.fence.mbarrier_init.release.cluster()


@overload
def remote(barriers: MBarriers, cta: Reg[u32] | int) -> MBarriers: ...
@overload
def remote(barriers: MBarrier, cta: Reg[u32] | int) -> MBarrier: ...
def remote(barriers: MBarriers | MBarrier, cta: Reg[u32] | int) -> MBarriers | MBarrier:
    """The barrier, or array of barriers, at the same place in another CTA of the cluster, for `.shared::cluster` operations: one mapa."""
    first = barriers[0] if isinstance(barriers, MBarriers) else barriers
    address = ptx.mapa.shared__cluster.u32(first.register(), cta)
    return barriers.at(address) if isinstance(barriers, MBarriers) else MBarrier(barriers.array, 0, address, remote=True)


def arrive_remote(barrier: MBarrier, cta: Reg[u32] | int, **how: Any) -> None:
    """Arrive once on the barrier of CTA `cta` of the cluster: mapa, mbarrier.arrive.shared::cluster."""
    ptx.mbarrier.arrive.shared__cluster.b64(remote(barrier, cta), **how)


def cluster_start(*, own: bool = False) -> None:
    """Every thread of the cluster, after `init_barriers`: no thread continues before all barriers are initialised.

    barrier.cluster.arrive.relaxed, barrier.cluster.wait.acquire. The arrival need not release, since `init_barriers` ends with the fence
    that other CTAs need; ptxas makes a MEMBAR.ALL.GPU in every warp of one that does. With `own`, a bar.sync 0 in between also makes
    visible what threads of this CTA wrote.
    """
    ptx.barrier.cluster.arrive.relaxed.aligned()
    if own:
        ptx.bar.sync(0)
    ptx.barrier.cluster.wait.acquire.aligned()


def cluster_sync() -> None:
    """Every thread of the cluster arrives and waits: barrier.cluster.arrive, barrier.cluster.wait."""
    ptx.barrier.cluster.arrive.release.aligned()
    ptx.barrier.cluster.wait.acquire.aligned()


def prefetch_tensormaps(*maps: TensorMap) -> None:
    """In one thread: prefetch.tensormap of each map, so that the first copies find them."""
    for tensormap in maps:
        ptx.prefetch.tensormap(tensormap)


def multicast_mask(ctas: int | range) -> int:
    """The ctaMask of the cluster's CTAs: a count (the first n) or a range of ranks."""
    ranks = range(ctas) if isinstance(ctas, int) else ctas
    size = current().module.cluster_size
    if not len(ranks) or ranks[0] < 0 or ranks[-1] >= size:
        raise TraceError(f"CTAs {ranks} are not all in a cluster of {size}")
    return sum(1 << rank for rank in ranks)


__all__ = [
    "arrive_remote",
    "cluster_start",
    "cluster_sync",
    "elect",
    "fast_div",
    "init_barriers",
    "inverse",
    "multicast_mask",
    "prefetch_tensormaps",
    "remote",
    "wait",
]
