"""ptxkit: write, check and run PTX for NVIDIA Hopper from Python. One opcode call is one instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import smem
from .dsl.kernel import Kernel, func, kernel
from .dsl.reg import Ptr, Reg, Special, Vec, sink
from .dsl.special import (
    clock,
    clock64,
    cluster_ctaid,
    cluster_ctarank,
    cluster_nctaid,
    cluster_nctarank,
    clusterid,
    ctaid,
    globaltimer,
    laneid,
    nclusterid,
    nctaid,
    ntid,
    smid,
    tid,
    warpid,
)
from .dsl.tensormap import TensorMap
from .errors import PtxkitError
from .flow import Ring, for_range, if_, label, loop, ring
from .layout import Layout
from .smem import MBarrier, MBarriers, Shared, Tile

if TYPE_CHECKING:
    from .runtime.joining import join, link
    from .runtime.launch import device_array
    from .runtime.toolchain import assemble

_LAZY = {"device_array": "runtime.launch", "assemble": "runtime.toolchain", "link": "runtime.joining", "join": "runtime.joining"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    if name == "sim":
        from importlib import import_module

        return import_module(".sim", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"
__all__ = [
    "Kernel", "Layout", "MBarrier", "MBarriers", "Ptr", "PtxkitError", "Reg", "Ring", "Shared", "Special", "TensorMap", "Tile", "Vec",
    "assemble", "clock", "clock64", "cluster_ctaid", "cluster_ctarank", "cluster_nctaid", "cluster_nctarank", "clusterid", "ctaid",
    "device_array", "for_range", "func", "globaltimer", "if_", "join", "kernel", "label", "laneid", "link", "loop", "nclusterid",
    "nctaid", "ntid", "ring", "sink", "smem", "smid", "tid", "warpid",
]
