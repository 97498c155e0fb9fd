"""Opcodes of PTX ISA 9.0 for later GPUs. They are recognised in text, so that the finding can say which target they need.

A row has no operands. `example` holds the operands of a line that its target accepts. The certification assembles that line.
"""

from __future__ import annotations

from dataclasses import replace

from ..schema import Form, form

_RND = {"rnd": "rn rz rm rp"}
_GROUP = {"cta_group": "cta_group::1 cta_group::2"}
_KIND = {"kind": "kind::f16 kind::tf32 kind::f8f6f4"}
_SIX = "e4m3 e5m2 e3m2 e2m3 e2m1"


def _later(opcode: str, example: str, target: str = "sm_100", since: str = "8.6", **slots: str) -> Form:
    return form(opcode, slots=slots, since=since, target=target, section=opcode.partition(".")[0], example=example)


def _lanes(type: str, count: int) -> str:
    return "{" + ", ".join(f"%{type}_{n}" for n in range(count)) + "}"


def _fragments(shape: str, *more: str) -> str:
    """The fragments of m16n8k64 and m16n8k32 with packed small floats."""
    a, b = {"k32": (4, 2), "k64": (4, 2)}[shape]
    return ", ".join((_lanes("f32", 4), _lanes("b32", a), _lanes("b32", b), _lanes("f32", 4), *more))


def _boxes(mode: str, dim: str, coordinates: int, offsets: str) -> tuple[Form, ...]:
    """Tensor loads of four rows, and of a box with a halo in its width. A cache policy and a CTA mask are further operands."""
    start = f"[%b64_1], [%b64_2, {_lanes('s32', coordinates or int(dim[0]))}], [%b64_3]{offsets}"
    line = f"cp.async.bulk.tensor.{dim}.{{}}.global.{mode}.mbarrier::complete_tx::bytes{{}}{{}}{{}}"
    return tuple(_later(line.format(space, multicast, group, hint), start + ", %b16_3" * bool(multicast) + ", %b64_4" * bool(hint),
                        "sm_100a" if group or space == "shared::cluster" or mode.endswith("128") else "sm_100", **(_GROUP if group else {}))
                 for space, multicast in (("shared::cta", ""), ("shared::cluster", ""), ("shared::cluster", ".multicast::cluster"))
                 for group in ("", ".cta_group") for hint in ("", ".L2::cache_hint"))


_SCALES = ("%b32_1", "{0, 0}", "%b32_2", "{0, 0}")
_T5 = "[%b32_1]"
_MMA = "[%b32_1], %b64_1, %b64_2, %b32_2, %pred_1"
_MMA_SP = "[%b32_1], %b64_1, %b64_2, [%b32_3], %b32_2, %pred_1"


def _loads(mnemonic: str, *operands: str) -> tuple[Form, ...]:
    """Accesses of 256 bits: eight lanes of 32 or four of 64."""
    first = {"ld": "{0}, [%b64_39]", "st": "[%b64_39], {0}"}[mnemonic]
    return tuple(_later(f"{mnemonic}.global{{.L1}}{{.L2}}{shape}", first.format(_lanes(type, count)), "sm_100", "8.8",
                        L1="L1::evict_normal L1::evict_first L1::evict_last L1::no_allocate",
                        L2="L2::evict_normal L2::evict_first L2::evict_last")
                 for shape, type, count in ((".v8.b32", "b32", 8), (".v8.f32", "f32", 8), (".v8.u32", "u32", 8), (".v8.s32", "s32", 8),
                                            (".v4.b64", "b64", 4), (".v4.f64", "f64", 4), (".v4.u64", "u64", 4), (".v4.s64", "s64", 4)))


FORMS: tuple[Form, ...] = (
    _later("tcgen05.alloc.cta_group.sync.aligned{.shared::cta}.b32", "[%b64_1], 32", "sm_100a", **_GROUP),
    _later("tcgen05.dealloc.cta_group.sync.aligned.b32", "%b32_1, 32", "sm_100a", **_GROUP),
    _later("tcgen05.relinquish_alloc_permit.cta_group.sync.aligned", "", "sm_100a", **_GROUP),
    _later("tcgen05.fence", "", "sm_100a", fence="fence::before_thread_sync fence::after_thread_sync"),
    _later("tcgen05.op.sync.aligned", "", "sm_100a", op="wait::ld wait::st"),
    *(_later(f"tcgen05.ld.sync.aligned.{shape}.{num}{{.pack::16b}}.b32", f"{_lanes('b32', count)}, {_T5}{half}", "sm_100a")
      for shape, each, half in (("16x64b", 1, ""), ("16x128b", 2, ""), ("16x256b", 4, ""), ("32x32b", 1, ""), ("16x32bx2", 1, ", 0"))
      for num, count in ((f"x{2**n}", each * 2**n) for n in range(8)) if count <= 128),
    *(_later(f"tcgen05.st.sync.aligned.{shape}.{num}{{.unpack::16b}}.b32", f"{_T5}{half}, {_lanes('b32', count)}", "sm_100a")
      for shape, each, half in (("16x64b", 1, ""), ("16x128b", 2, ""), ("16x256b", 4, ""), ("32x32b", 1, ""), ("16x32bx2", 1, ", 0"))
      for num, count in ((f"x{2**n}", each * 2**n) for n in range(8)) if count <= 128),
    _later("tcgen05.shift.cta_group.down", _T5, "sm_100a", **_GROUP),
    _later("tcgen05.cp.cta_group.shape", f"{_T5}, %b64_1", "sm_100a", **_GROUP, shape="128x256b 4x256b 128x128b"),
    _later("tcgen05.cp.cta_group.64x128b.multicast", f"{_T5}, %b64_1", "sm_100a", **_GROUP, multicast="warpx2::02_13 warpx2::01_23"),
    _later("tcgen05.cp.cta_group.32x128b.warpx4", f"{_T5}, %b64_1", "sm_100a", **_GROUP),
    _later("tcgen05.commit.cta_group.mbarrier::arrive::one{.shared::cluster}.b64", "[%b64_1]", "sm_100a", **_GROUP),
    _later("tcgen05.commit.cta_group.mbarrier::arrive::one{.shared::cluster}.multicast::cluster.b64", "[%b64_1], %b16_1", "sm_100a",
           **_GROUP),
    _later("tcgen05.mma.cta_group.kind", _MMA, "sm_100a", **_GROUP, **_KIND),
    _later("tcgen05.mma.cta_group.kind::i8", _MMA, "sm_100a", **_GROUP),
    _later("tcgen05.mma.sp.cta_group.kind", _MMA_SP, "sm_100a", **_GROUP, **_KIND),
    _later("tcgen05.mma.sp.cta_group.kind::i8", _MMA_SP, "sm_100a", **_GROUP),
    _later("tcgen05.mma.ws.cta_group::1.kind", _MMA, "sm_100a", **_KIND),
    _later("tcgen05.mma.ws.sp.cta_group::1.kind", _MMA_SP, "sm_100a", **_KIND),
    *(_later(f"tcgen05.mma{sp}.cta_group.{kind}.block_scale{scale}",
             f"[%b32_1], %b64_1, %b64_2, {meta}%b32_2, [%b32_4], [%b32_5], %pred_1", "sm_100a", since, **_GROUP)
      for sp, meta in (("", ""), (".sp", "[%b32_3], "))
      for kind, scale, since in (
          ("kind::mxf8f6f4", ".scale_vec::1X", "8.6"), ("kind::mxf8f6f4", "", "8.8"), ("kind::mxf4", ".scale_vec::2X", "8.6"),
          ("kind::mxf4", "", "8.8"), ("kind::mxf4nvf4", ".scale_vec::2X", "8.7"), ("kind::mxf4nvf4", ".scale_vec::4X", "8.7"))),

    _later("clusterlaunchcontrol.try_cancel.async{.shared::cta}.mbarrier::complete_tx::bytes.b128", "[%b64_1], [%b64_2]"),
    _later("clusterlaunchcontrol.try_cancel.async{.shared::cta}.mbarrier::complete_tx::bytes.multicast::cluster::all.b128",
           "[%b64_1], [%b64_2]", "sm_100a"),
    _later("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128", "%pred_1, %b128_1"),
    _later("clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128", "{%b32_1, %b32_2, %b32_3, _}, %b128_1"),
    _later("clusterlaunchcontrol.query_cancel.first.b32.b128", "%b32_1, %b128_1",
           first="get_first_ctaid::x get_first_ctaid::y get_first_ctaid::z"),

    *(_later(f"{opcode}{{.rnd}}{{.ftz}}.f32x2", "%b64_1, %b64_2, %b64_3", **_RND) for opcode in ("add", "sub", "mul")),
    _later("fma.rnd{.ftz}.f32x2", "%b64_1, %b64_2, %b64_3, %b64_4", **_RND),
    *(_later(f"{opcode}{{.rnd}}{{.sat}}.f32.type", "%f32_1, %b16_2, %f32_3", **_RND, type="f16 bf16") for opcode in ("add", "sub")),
    _later("fma.rnd{.sat}.f32.type", "%f32_1, %b16_2, %b16_3, %f32_4", **_RND, type="f16 bf16"),
    _later("redux.sync.op{.abs}{.NaN}.f32", "%f32_1, %f32_2, %b32_3", "sm_100a", op="min max"),

    _later("cvt.rs{.relu}{.satfinite}.type.f32", "%b32_1, %f32_2, %f32_3, %b32_4", "sm_100a", "8.7", type="f16x2 bf16x2"),
    _later("cvt.rs{.relu}.satfinite.type.f32", "%b32_1, {%f32_2, %f32_3, %f32_4, %f32_5}, %b32_4", "sm_100a", "8.7",
           type="e4m3x4 e5m2x4 e2m3x4 e3m2x4"),
    _later("cvt.rs{.relu}.satfinite.e2m1x4.f32", "%b16_1, {%f32_2, %f32_3, %f32_4, %f32_5}, %b32_4", "sm_100a", "8.7"),
    _later("cvt.rn.satfinite{.relu}.type.f32", "%b16_1, %f32_2, %f32_3", "sm_100a", type="e2m3x2 e3m2x2"),
    _later("cvt.rn.satfinite{.relu}.e2m1x2.f32", "%b8_1, %f32_2, %f32_3", "sm_100a"),
    _later("cvt.rn{.relu}.f16x2.type", "%b32_1, %b16_2", "sm_100a", type="e2m3x2 e3m2x2"),
    _later("cvt.rn{.relu}.f16x2.e2m1x2", "%b32_1, %b8_2", "sm_100a"),
    _later("cvt.rnd{.satfinite}.ue8m0x2.f32", "%b16_1, %f32_2, %f32_3", "sm_100a", rnd="rz rp"),
    _later("cvt.rnd{.satfinite}.ue8m0x2.bf16x2", "%b16_1, %b32_2", "sm_100a", rnd="rz rp"),
    _later("cvt.rn.bf16x2.ue8m0x2", "%b32_1, %b16_2", "sm_100a"),

    *_loads("ld"),
    *_loads("st"),
    _later("st.bulk{.weak}{.shared::cta}", "[%b64_1], 16, 0"),
    *(_later(f"ldmatrix.sync.aligned.m16n16.{num}.trans{{.ss}}.b8", f"{_lanes('b32', count)}, [%b64_1]", "sm_100a", ss="shared shared::cta")
      for num, count in (("x1", 2), ("x2", 4))),
    *(_later(f"ldmatrix.sync.aligned.m8n16.{num}{{.ss}}.b8x16.source", f"{_lanes('b32', count)}, [%b64_1]", "sm_100a",
             ss="shared shared::cta", source="b6x16_p32 b4x16_p64") for num, count in (("x1", 1), ("x2", 2), ("x4", 4))),
    *(_later(f"ldmatrix.sync.aligned.m16n16.{num}.trans{{.ss}}.b8x16.source", f"{_lanes('b32', count)}, [%b64_1]", "sm_100a",
             ss="shared shared::cta", source="b6x16_p32 b4x16_p64") for num, count in (("x1", 2), ("x2", 4))),
    *(_later(f"stmatrix.sync.aligned.m16n8.{num}.trans{{.ss}}.b8", f"[%b64_1], {_lanes('b32', count)}", "sm_100a", ss="shared shared::cta")
      for num, count in (("x1", 1), ("x2", 2), ("x4", 4))),

    _later("multimem.ld_reduce{.global}.op.type", "%b32_1, [%b64_2]", "sm_100a", op="add min max", type="e4m3x4 e5m2x4"),
    _later("multimem.ld_reduce{.global}.add.acc::f16.type", "%b32_1, [%b64_2]", "sm_100a", type="e4m3x4 e5m2x4"),
    _later("tensormap.replace.tile.swizzle_atomicity{.ss}.b1024.b32", "[%b64_1], 0", "sm_100a", ss="global shared::cta"),
    _later("red.async{.mmio}.release.scope{.global}.add.type", "[%b64_1], %b32_2", since="8.7", scope="gpu sys", type="u32 s32"),
    _later("st.async{.mmio}.release.scope{.global}.type", "[%b64_1], %b32_2", since="8.7", scope="gpu sys", type="b32 u32 s32"),
    _later("cp.async.bulk.global.shared::cta.bulk_group.cp_mask", "[%b64_1], [%b64_2], 16, %b16_3"),
    _later("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.cp_mask", "[%b64_1], [%b64_2], 16, %b64_9, %b16_3"),
    _later("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group",
           "[%b64_1, {%s32_1, %s32_2, %s32_3, %s32_4, %s32_5}], [%b64_3]", "sm_100a"),
    *(row for mode, dims, coordinates, offsets in (
        ("tile::gather4", ("2d",), 5, ""), ("im2col::w", ("3d", "4d", "5d"), 0, ", {%b16_1, %b16_2}"),
        ("im2col::w::128", ("3d", "4d", "5d"), 0, ", {%b16_1, %b16_2}"))
      for dim in dims for row in _boxes(mode, dim, coordinates, offsets)),

    replace(_later("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.atype.btype.f32", _fragments("k32"), "sm_120a", "8.6",
                   atype=_SIX, btype=_SIX), needs={"e3m2": "8.7", "e2m3": "8.7", "e2m1": "8.7"}),
    _later("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale{.scale_vec::2X}.f32.e2m1.e2m1.f32.ue8m0", _fragments("k64", *_SCALES),
           "sm_120a", "8.7"),
    _later("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
           _fragments("k64", *_SCALES), "sm_120a", "8.7"),
    _later("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale{.scale_vec::1X}.f32.atype.btype.f32.ue8m0",
           _fragments("k32", *_SCALES), "sm_120a", "8.7", atype=_SIX, btype=_SIX),
)
