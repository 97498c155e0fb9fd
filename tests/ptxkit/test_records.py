"""A dataclass as a kernel's parameter: its fields are PTX parameters, and a launch passes an instance, a mapping, or names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, kernel, tid
from ptxkit.errors import TraceError
from ptxkit.ptx import mov, st
from ptxkit.types import f32, u32

pytestmark = pytest.mark.pure


@dataclass(frozen=True)
class Scale:
    factor: Reg[u32] | int
    offset: Reg[u32] | int


@dataclass(frozen=True)
class Out:
    pointer: Ptr[u32]
    scale: Scale


@dataclass(frozen=True)
class Wrong:
    count: int


@kernel(block=32)
def line(out: Out, n: Reg[u32], *, TIMES: int = 1) -> None:
    """out[i] = (factor i + offset) n TIMES"""
    thread = mov.u32(tid.x)
    st.global_.u32(out.pointer.at(thread), (thread * out.scale.factor + out.scale.offset) * n * TIMES)


@kernel(block=32)
def line_of_scalars(out_pointer: Ptr[u32], out_scale_factor: Reg[u32], out_scale_offset: Reg[u32], n: Reg[u32]) -> None:
    thread = mov.u32(tid.x)
    st.global_.u32(out_pointer.at(thread), (thread * out_scale_factor + out_scale_offset) * n * 1)


def test_fields_are_parameters_in_their_order() -> None:
    assert line.ptx().replace("line", "line_of_scalars") == line_of_scalars.ptx()
    assert [parameter.name for parameter in line.trace().parameters] == ["out_pointer", "out_scale_factor", "out_scale_offset", "n"]


@pytest.mark.parametrize("given", [
    lambda out: ((Out(out, Scale(3, 7)), 5), {}),  # type: ignore[arg-type]
    lambda out: (({"pointer": out, "scale": {"offset": 7, "factor": 3}}, 5), {}),
    lambda out: (({"pointer": out, "scale": Scale(3, 7)},), {"n": 5}),
    lambda out: ((), {"n": 5, "out": {"pointer": out, "scale": Scale(3, 7)}}),
])
def test_a_launch_passes_an_instance_a_mapping_or_names(given: Any) -> None:
    out = np.zeros(32, np.uint32)
    args, named = given(out)
    assert line.simulate(1, *args, **named, TIMES=2).verdict == "clean"
    assert (out == (np.arange(32) * 3 + 7) * 10).all()


@pytest.mark.parametrize(("given", "sentence"), [
    ({"pointer": None}, "`out` is a Out of pointer, scale: `scale` is missing"),
    ({"pointer": None, "scale": Scale(1, 2), "stride": 1}, "there is no 'stride'"),
    ({"pointer": None, "scale": {"factor": 1}}, "`out_scale` is a Scale of factor, offset: `offset` is missing"),
    (7, "`out` is a Out: pass one, or a mapping of pointer, scale, not 7"),
])
def test_what_does_not_fit_is_named(given: Any, sentence: str) -> None:
    with pytest.raises(TraceError, match=sentence.replace("(", r"\(")):
        line.simulate(1, given, 5)


def test_a_record_holds_what_a_parameter_may_be() -> None:
    @kernel(block=32)
    def bad(wrong: Wrong) -> None:
        """Has no parameter to load."""

    with pytest.raises(TraceError, match="parameter `wrong_count` of kernel `bad`"):
        bad.ptx()


def test_an_argument_by_name_is_no_compile_time_parameter() -> None:
    @kernel(block=32)
    def two(n: Reg[f32], m: Reg[f32]) -> None:
        """Reads nothing."""

    assert two.simulate(1, m=2.0, n=1.0).verdict == "clean"
