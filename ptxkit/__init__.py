"""ptxkit: write, check and run PTX for NVIDIA Hopper from Python. One opcode call is one instruction.

Importing it loads nothing more: a name is imported from its module when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import sim, smem
    from .dsl import debug
    from .dsl.descriptor import TensorMapFields
    from .dsl.function import func
    from .dsl.kernel import Kernel, kernel
    from .dsl.marks import mark, role, span
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
        dynamic_smem_size,
        globaltimer,
        laneid,
        lanemask_eq,
        lanemask_ge,
        lanemask_gt,
        lanemask_le,
        lanemask_lt,
        nclusterid,
        nctaid,
        nsmid,
        ntid,
        nwarpid,
        smid,
        tid,
        total_smem_size,
        warpid,
    )
    from .dsl.tensormap import TensorMap
    from .dsl.traced import Traced
    from .errors import PtxkitError
    from .flow import Ring, else_, for_range, if_, label, loop, ring
    from .layout import Layout
    from .pipeline import NamedBarrier, NamedBarriers, Pipeline
    from .proof.prove import prove
    from .runtime.joining import join, link
    from .runtime.launch import device_array
    from .runtime.toolchain import assemble
    from .smem import MBarrier, MBarriers, Shared, Tile
    from .tuning.auto import autotune
    from .tuning.space import Space

    # Said again and not imported: a type checker would read all bundled kernels with it.
    def attention_decode(q: Any, k_cache: Any, v_cache: Any, page_table: Any, lengths: Any, *, scale: float | None = None,
                         return_lse: bool = False, out: Any = None, lse: Any = None, splits: int | None = None, workspace: Any = None,
                         stream: Any = None) -> Any:
        """softmax(scale q k^T) v of one query for each sequence and head, over a paged cache: see `ptxkit.attention`."""

__version__ = "0.1.0"
__all__ = [
    "Kernel", "Layout", "MBarrier", "MBarriers", "NamedBarrier", "NamedBarriers", "Pipeline", "Ptr", "PtxkitError", "Reg", "Ring",
    "Shared", "Space", "Special", "TensorMap", "TensorMapFields", "Tile", "Traced", "Vec", "assemble", "attention_decode", "autotune",
    "clock", "clock64", "cluster_ctaid", "cluster_ctarank", "cluster_nctaid", "cluster_nctarank", "clusterid", "ctaid", "debug",
    "device_array", "dynamic_smem_size", "else_", "for_range", "func", "globaltimer", "if_", "join", "kernel", "label", "laneid",
    "lanemask_eq", "lanemask_ge", "lanemask_gt", "lanemask_le", "lanemask_lt", "link", "loop", "mark", "nclusterid", "nctaid", "nsmid",
    "ntid", "nwarpid", "prove", "ring", "role", "sim", "sink", "smem", "smid", "span", "tid", "total_smem_size", "warpid",
]

_NAMES = {
    ".attention.launch.decode": "attention_decode",
    ".dsl.descriptor": "TensorMapFields",
    ".dsl.function": "func",
    ".dsl.kernel": "Kernel kernel",
    ".dsl.marks": "mark role span",
    ".dsl.reg": "Ptr Reg Special Vec sink",
    ".dsl.special": "clock clock64 cluster_ctaid cluster_ctarank cluster_nctaid cluster_nctarank clusterid ctaid dynamic_smem_size "
                    "globaltimer laneid lanemask_eq lanemask_ge lanemask_gt lanemask_le lanemask_lt nclusterid nctaid nsmid ntid nwarpid "
                    "smid tid total_smem_size warpid",
    ".dsl.tensormap": "TensorMap",
    ".dsl.traced": "Traced",
    ".errors": "PtxkitError",
    ".flow": "Ring else_ for_range if_ label loop ring",
    ".layout": "Layout",
    ".pipeline": "NamedBarrier NamedBarriers Pipeline",
    ".proof.prove": "prove",
    ".runtime.joining": "join link",
    ".runtime.launch": "device_array",
    ".runtime.toolchain": "assemble",
    ".smem": "MBarrier MBarriers Shared Tile",
    ".tuning.auto": "autotune",
    ".tuning.space": "Space",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}
_ROOMS = ("attention", "check", "copies", "diff", "dsl", "errors", "explain", "flow", "fragments", "gemm", "grammar", "idioms", "inspect",
          "layout", "lift", "measure", "pipeline", "ptx", "reductions", "runtime", "sass", "sim", "smem", "timeline", "tuning", "types")
_MODULES = {"debug": ".dsl.debug", **{name: f".{name}" for name in _ROOMS}}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(import_module(_WHERE[name], __name__), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name], __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_MODULES})
