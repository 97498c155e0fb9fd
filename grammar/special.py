"""The special registers of sm_90a and their types. Only `mov` and `cvt` may read them."""

from __future__ import annotations

from collections.abc import Mapping

from .features import Since
from .schema import Depends

FIRST_VECTORS = ("tid", "ntid", "ctaid", "nctaid")
"""Those that were 16 bits wide once, and may still be read so."""
_CLUSTER_VECTORS = ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_RESERVED = tuple(f"reserved_smem_offset_{place}" for place in ("begin", "end", "cap", "0", "1"))
_U32 = ("laneid", "warpid", "nwarpid", "smid", "nsmid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
        "clock", "clock_hi", "globaltimer_lo", "globaltimer_hi", "cluster_ctarank", "cluster_nctarank",
        "dynamic_smem_size", "total_smem_size", "aggr_smem_size", *_RESERVED,
        *(f"pm{n}" for n in range(8)), *(f"envreg{n}" for n in range(32)))
_U64 = ("clock64", "globaltimer", "gridid", "current_graph_exec", *(f"pm{n}_64" for n in range(8)))

SPECIAL: dict[str, str] = {
    **{f"%{name}.{axis}": "u32" for name in (*FIRST_VECTORS, *_CLUSTER_VECTORS) for axis in "xyz"},
    **{f"%{name}": "u32" for name in _U32},
    **{f"%{name}": "u64" for name in _U64},
    "%is_explicit_cluster": "pred",
    # The fourth component is 0 in each thread.
    **{f"%{name}.w": "u32" for name in (*FIRST_VECTORS, *_CLUSTER_VECTORS)},
}
VECTORS = {f"%{name}": tuple(f"%{name}.{axis}" for axis in "xyzw") for name in (*FIRST_VECTORS, *_CLUSTER_VECTORS)}
"""Special registers of four components: a move of a vector may read the whole."""
SPECIAL_BASES = frozenset(name.partition(".")[0] for name in SPECIAL)
"""The names that nothing outside of functions may have."""

_CLUSTER = Since((7, 8), "sm_90")
SPECIAL_SINCE: Mapping[str, Since] = {
    **{name: _CLUSTER for name in SPECIAL if name.partition(".")[0][1:] in (*_CLUSTER_VECTORS, "cluster_ctarank", "cluster_nctarank",
                                                                           "is_explicit_cluster")},
    **{name: _CLUSTER for name in VECTORS if name[1:] in _CLUSTER_VECTORS},
    "%clock_hi": Since((5, 0)), "%dynamic_smem_size": Since((4, 1)), "%total_smem_size": Since((4, 1)),
    "%aggr_smem_size": Since((8, 1), "sm_90"), "%current_graph_exec": Since((8, 0)),
    **{f"%{name}": Since((7, 6), "sm_80") for name in _RESERVED},
}
RESERVED = frozenset(("WARP_SZ", "function_name", "inlined_at"))
"""A constant and two words of `.loc`, which are no names."""


def readable_whole(name: str, bits: int) -> bool:
    """Whether the four components are read together as numbers of so many bits."""
    return name in VECTORS and (bits == 32 or (bits == 16 and name[1:] in FIRST_VECTORS))


def readable(name: str, bits: int, *, converted: bool = False) -> bool:
    """Whether a special register is read as so many bits: `cvt` cuts a wide one off, and %gridid had 32 bits once."""
    whole = {"pred": 1, "u32": 32, "u64": 64}[SPECIAL[name]]
    if converted:
        return bits <= whole != 1
    return bits == whole or (name == "%gridid" and bits in (16, 32)) or (bits == 16 and name[1:].partition(".")[0] in FIRST_VECTORS)

_TIME = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi", *(f"pm{n}" for n in range(8)),
         *(f"pm{n}_64" for n in range(8)))
_MACHINE = ("warpid", "nwarpid", "smid", "nsmid", "gridid", "current_graph_exec", "total_smem_size", "reserved_smem_offset_cap",
            *(f"envreg{n}" for n in range(32)))
_LAUNCH = (*(f"{name}.{axis}" for name in (*FIRST_VECTORS, *_CLUSTER_VECTORS) for axis in "xyzw"), "laneid", "lanemask_eq", "lanemask_le",
           "lanemask_lt", "lanemask_ge", "lanemask_gt", "cluster_ctarank", "cluster_nctarank", "dynamic_smem_size", "aggr_smem_size",
           "is_explicit_cluster", "reserved_smem_offset_begin", "reserved_smem_offset_end", "reserved_smem_offset_0",
           "reserved_smem_offset_1")

SPECIAL_DEPENDS: dict[str, Depends] = {
    **{f"%{name}": "time" for name in _TIME}, **{f"%{name}": "machine" for name in _MACHINE}, **{f"%{name}": "never" for name in _LAUNCH}}
"""Of each special register a key of `schema.DEPENDS`. "never": the launch and the thread's place in it decide."""
