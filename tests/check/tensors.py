"""Planted mistakes with the places at which boxes begin."""

from __future__ import annotations

from .barriers import either, loop
from .groups import COMMIT, READ_OUT
from .memory import FENCE, FILL
from .programs import EXPECT, TENSOR, Case, init, wait

BOX = f"{TENSOR} [%r1], [%rd9, {{%r6, %r7}}], [%r2];\n"
FROM_TILE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd9, {%r6, %r7}], [%r1];\n"
SUM = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd9, {%r6, %r7}], [%r1];\n"
ZERO = "mov.u32 %r7, 0;\n"
CTA = "mov.u32 %r11, %ctaid.x;\n"


def loaded(begin: str, box: str = BOX) -> str:
    return init(1) + ZERO + begin + f"@!%p0 bra w;\n{EXPECT} [%r2], 4096;\n!{box}" + wait("w")


TENSORS = [
    Case("tensor-coordinate", "a load", loaded(either("mov.u32 %r6, 3;\n", "mov.u32 %r6, 16;\n")), severity="review"),
    Case("tensor-coordinate", "before the array", loaded(either("mov.s32 %r6, -1;\n", "mov.s32 %r6, -16;\n")), severity="review"),
    Case("tensor-coordinate", "a store", FILL + FENCE + "bar.sync 0;\n" + ZERO + CTA + "shl.b32 %r6, %r11, 4;\n-add.u32 %r6, %r6, 1;\n"
         f"@!%p0 bra done;\n!{FROM_TILE}" + COMMIT + READ_OUT + "done:\n", severity="review"),
    Case("tensor-coordinate", "a sum on one of two paths", FILL + FENCE + "bar.sync 0;\n" + ZERO + "setp.gt.u32 %p10, %r9, 3;\n"
         + either("selp.b32 %r6, 5, 32, %p10;\n", "selp.b32 %r6, 16, 32, %p10;\n") + f"@!%p0 bra done;\n!{SUM}" + COMMIT + READ_OUT
         + "done:\n", severity="review"),
    Case("tensor-coordinate", "the first of a loop", ZERO + either("mov.u32 %r6, 1;\n", "mov.u32 %r6, 0;\n") + loop(
        "!@%p0 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd9, {%r6, %r7}];\nadd.u32 %r6, %r6, 64;\n"), severity="review"),
]
