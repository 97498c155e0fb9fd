"""PTX's special registers by name: `mov.u32(tid.x)` reads one."""

from __future__ import annotations

from typing import TypeVar

from ..types import Scalar, u32, u64
from .reg import Special

S = TypeVar("S", bound=Scalar)


class Dim3:
    """A special register with components: `tid.x`, `tid.y`, `tid.z`."""

    __slots__ = ("x", "y", "z")

    def __init__(self, name: str) -> None:
        self.x = Special(f"%{name}.x", u32)
        self.y = Special(f"%{name}.y", u32)
        self.z = Special(f"%{name}.z", u32)

    def __repr__(self) -> str:
        return self.x.name[1:-2]


tid, ntid, ctaid, nctaid = Dim3("tid"), Dim3("ntid"), Dim3("ctaid"), Dim3("nctaid")
clusterid, nclusterid = Dim3("clusterid"), Dim3("nclusterid")
cluster_ctaid, cluster_nctaid = Dim3("cluster_ctaid"), Dim3("cluster_nctaid")


def _special(name: str, type: type[S]) -> Special[S]:
    return Special(f"%{name}", type)


laneid = _special("laneid", u32)
warpid = _special("warpid", u32)
nwarpid = _special("nwarpid", u32)
smid = _special("smid", u32)
nsmid = _special("nsmid", u32)
cluster_ctarank = _special("cluster_ctarank", u32)
cluster_nctarank = _special("cluster_nctarank", u32)
lanemask_eq = _special("lanemask_eq", u32)
lanemask_le = _special("lanemask_le", u32)
lanemask_lt = _special("lanemask_lt", u32)
lanemask_ge = _special("lanemask_ge", u32)
lanemask_gt = _special("lanemask_gt", u32)
clock = _special("clock", u32)
clock64 = _special("clock64", u64)
globaltimer = _special("globaltimer", u64)
dynamic_smem_size = _special("dynamic_smem_size", u32)
total_smem_size = _special("total_smem_size", u32)
