"""The innermost coordinate of kernel objects, whose element types are known."""

from __future__ import annotations

from typing import Any

import pytest

from ptxkit import Reg, TensorMap, ctaid, for_range, if_, kernel, smem, tid
from ptxkit.check import check
from ptxkit.idioms import wait
from ptxkit.ptx import cp, mbarrier, mov, selp
from ptxkit.types import TYPES, u32

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes


@kernel(block=32)
def copy(source: TensorMap, n: Reg[u32], *, TYPE: str, HOW: str, AT: int) -> None:
    """Loads a box, or in a loop several, that begin where HOW and AT say."""
    box = smem.tile(TYPES[TYPE], (8, 256 // TYPES[TYPE].bits), swizzle=0, name="box")
    full = smem.mbarrier(1, name="full")
    with if_(tid.x == 0):
        mbarrier.init.shared__cta.b64(full[0], 1)
        with for_range(n if HOW == "loop" else 1) as i:
            column: Any = mov.s32(AT)
            if HOW == "loop":
                column = i * 16 + AT
            elif HOW == "times":
                column = ctaid.x * 16 + AT
            elif HOW == "one":
                column = ctaid.x + AT
            elif HOW == "any":
                column = n + AT
            elif HOW == "either":
                column = selp.b32(AT, 16, n == 0)
            mbarrier.arrive.expect_tx.shared__cta.b64(full[0], box.layout.bytes)
            load(box[0], source, (column, 0), full[0])
            wait(full[0], i & 1)


def judged(**config: Any) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in check(copy.trace(**config)) if finding.rule == "tensor-coordinate"]


@pytest.mark.parametrize("TYPE", ["e4m3", "bf16", "f32", "u64"])
@pytest.mark.parametrize("HOW", ["number", "loop", "times"])
def test_what_is_known_of_a_coordinate_decides(TYPE: str, HOW: str) -> None:
    """In numbers, and in multiples of 16 with something added; negative ones too."""
    unit = 128 // TYPES[TYPE].bits
    for at in range(-unit, 2 * unit + 1):
        assert judged(TYPE=TYPE, HOW=HOW, AT=at) == [("tensor-coordinate", "error")] * (at % unit != 0), at


def test_what_is_not_known_is_left_to_the_cpu_device() -> None:
    for how in ("any", "one"):
        assert judged(TYPE="f32", HOW=how, AT=2) == []


def test_one_of_two_paths_earns_a_review() -> None:
    assert judged(TYPE="f32", HOW="either", AT=6) == [("tensor-coordinate", "review")]
    assert judged(TYPE="f32", HOW="either", AT=8) == []


def test_it_names_the_line_the_parameter_and_the_way_out() -> None:
    (finding,) = (finding for finding in check(copy.trace(TYPE="f32", HOW="number", AT=346)) if finding.rule == "tensor-coordinate")
    assert "the innermost coordinate 346 of the f32 elements of `source` is no multiple of 16 bytes" in finding.message
    assert "a multiple of 4 elements" in finding.fix
    assert finding.position is not None
    assert str(finding.position.file).endswith("test_tensors.py")
