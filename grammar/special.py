"""The special registers of sm_90a and their types. Only `mov` and `cvt` may read them."""

from __future__ import annotations

_VECTORS = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_U32 = ("laneid", "warpid", "nwarpid", "smid", "nsmid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
        "clock", "clock_hi", "globaltimer_lo", "globaltimer_hi", "cluster_ctarank", "cluster_nctarank",
        "dynamic_smem_size", "total_smem_size", "aggr_smem_size", "reserved_smem_offset_begin", "reserved_smem_offset_end",
        "reserved_smem_offset_cap", "reserved_smem_offset_0", "reserved_smem_offset_1",
        *(f"pm{n}" for n in range(8)), *(f"envreg{n}" for n in range(32)))
_U64 = ("clock64", "globaltimer", "gridid", "current_graph_exec", *(f"pm{n}_64" for n in range(8)))

SPECIAL: dict[str, str] = {
    **{f"%{name}.{axis}": "u32" for name in _VECTORS for axis in "xyz"},
    **{f"%{name}": "u32" for name in _U32},
    **{f"%{name}": "u64" for name in _U64},
    "%is_explicit_cluster": "pred",
}
