"""PTX's special registers by name: `mov.u32(tid.x)` reads one."""

from __future__ import annotations

from typing import Any

from .reg import Special
from .types import Scalar, u32, u64


class Dim3:
    """A special register with components: `tid.x`, `tid.y`, `tid.z`."""

    __slots__ = ("x", "y", "z")

    def __init__(self, name: str) -> None:
        self.x: Special[u32] = Special(f"%{name}.x", u32)
        self.y: Special[u32] = Special(f"%{name}.y", u32)
        self.z: Special[u32] = Special(f"%{name}.z", u32)


tid, ntid, ctaid, nctaid = Dim3("tid"), Dim3("ntid"), Dim3("ctaid"), Dim3("nctaid")
clusterid, nclusterid = Dim3("clusterid"), Dim3("nclusterid")
cluster_ctaid, cluster_nctaid = Dim3("cluster_ctaid"), Dim3("cluster_nctaid")


def _special(name: str, type: type[Scalar]) -> Special[Any]:
    return Special(f"%{name}", type)


laneid: Special[u32] = _special("laneid", u32)
warpid: Special[u32] = _special("warpid", u32)
nwarpid: Special[u32] = _special("nwarpid", u32)
smid: Special[u32] = _special("smid", u32)
nsmid: Special[u32] = _special("nsmid", u32)
cluster_ctarank: Special[u32] = _special("cluster_ctarank", u32)
cluster_nctarank: Special[u32] = _special("cluster_nctarank", u32)
lanemask_eq: Special[u32] = _special("lanemask_eq", u32)
lanemask_le: Special[u32] = _special("lanemask_le", u32)
lanemask_lt: Special[u32] = _special("lanemask_lt", u32)
lanemask_ge: Special[u32] = _special("lanemask_ge", u32)
lanemask_gt: Special[u32] = _special("lanemask_gt", u32)
clock: Special[u32] = _special("clock", u32)
clock64: Special[u64] = _special("clock64", u64)
globaltimer: Special[u64] = _special("globaltimer", u64)
dynamic_smem_size: Special[u32] = _special("dynamic_smem_size", u32)
total_smem_size: Special[u32] = _special("total_smem_size", u32)
