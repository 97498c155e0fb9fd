"""Descriptors, tensor maps and swizzles against the layouts that make them and against the CPU device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxkit.dsl import descriptor
from ptxkit.errors import PtxkitError
from ptxkit.explain import matrix, swizzle, tensormap
from ptxkit.layout import Layout
from ptxkit.sim import tensormap as device
from ptxkit.sim.warpgroup import chunks
from ptxkit.types import bf16, f16, f32, tf32

pytestmark = pytest.mark.pure


# ------------------------------------------------------------------------------------------------ matrix descriptors


@given(st.integers(0, (1 << 64) - 1))
def test_bits_round_trip(bits: int) -> None:
    made = matrix.decode(bits)
    assert made.bits == bits
    assert f"{bits:#018x}" in matrix.text(bits)


def layouts() -> list[Layout]:
    found = []
    for type, major, span, rows, columns in itertools.product((bf16, f16, tf32), ("k", "mn"), (128, 64, 32, 16), (64, 128), (64, 128)):
        if major == "k" or type.bits == 16:
            found.append(Layout.of(type, rows, columns, major=major, swizzle=span))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("layout", layouts(), ids=str)
def test_a_layouts_descriptor(layout: Layout) -> None:
    """What the fields are said to step over is what the layout has: eight rows, the next span, the next eight of K."""
    made = matrix.decode(descriptor.template(layout) | 0x400 >> 4)
    assert made.address == 0x400
    assert made.swizzle == (layout.swizzle if layout.swizzle > 16 else 0)
    assert not made.other
    assert matrix.remarks(made) == ()
    steps = {"to the next 16 bytes along K": (0, layout.span), "to the next 8 rows of M or N": (8, 0), "to the next 8 of K": (0, 8),
             f"to the next {layout.swizzle} bytes along M or N": (layout.span, 0), "to the next 16 bytes along M or N": (layout.span, 0)}
    for said, found in zip(matrix.meaning(made, layout.major), (made.leading, made.stride), strict=True):
        if said != "not used":
            row, column = steps[said]
            inner, outer = (column, row) if layout.major == "k" else (row, column)
            linear = inner // layout.span * layout.span_stride + outer * layout.span_bytes
            assert found == linear, said


@pytest.mark.parametrize("layout", [made for made in layouts() if made.type is bf16], ids=str)
def test_a_descriptor_reads_what_the_fields_say(layout: Layout) -> None:
    """The chunks that the CPU device reads behind the descriptor lie where the decoded fields put them."""
    bits = descriptor.template(layout)
    made = matrix.decode(bits)
    transposed = int(layout.major == "mn")
    index, base = chunks((bits,), 64, transposed)
    places = (np.asarray(index) + base) * 16
    for first, second in np.ndindex(places.shape):
        if transposed:
            row, column = second * 8, first
        else:
            row, column = first, second * 8
        assert places[first, second] == layout.offset(row, column)
    assert made.span == layout.span_bytes


def test_remarks_say_what_is_wrong() -> None:
    good = descriptor.template(Layout.of(bf16, 64, 64))
    assert matrix.remarks(matrix.decode(good)) == ()
    assert "masked" in matrix.remarks(matrix.decode(good | 1 << 14))[0]
    assert "128 bytes behind a multiple of 1024" in matrix.remarks(matrix.decode(good | 0x80 >> 4))[0]
    assert "stride" in matrix.remarks(matrix.decode(good ^ (64 ^ 8) << 32))[0]
    assert any("stride of 0" in said for said in matrix.remarks(matrix.decode(0)))
    assert "no meaning" in matrix.remarks(matrix.decode(8 << 32 | 1 << 49))[0]


# ------------------------------------------------------------------------------------------------ swizzles


@pytest.mark.parametrize("span", [128, 64, 32, 16])
@pytest.mark.parametrize("rows", [1, 7, 8, 16, 24])
def test_a_drawing_is_the_layout(span: int, rows: int) -> None:
    drawing = swizzle.draw(span, rows)
    layout = Layout.of(bf16, rows, span // 2, swizzle=span)
    seen = set()
    for line, cells in enumerate(drawing.lines):
        for at, cell in enumerate(cells):
            if cell is not None:
                row, chunk = cell
                assert layout.offset(row, chunk * 8) == line * 128 + at * 16
                seen.add(cell)
    assert seen == set(itertools.product(range(rows), range(span // 16)))


@pytest.mark.parametrize("span", [128, 64, 32])
def test_a_drawing_is_what_a_tensor_copy_writes(span: int) -> None:
    rows = 16
    memory = np.zeros(rows * span // 16, np.complex128)
    data = np.arange(rows * span // 16).repeat(16).astype(np.uint8)
    device.scatter(memory, 0, data, span)
    landed = memory.view(np.uint8)[::16]
    flat = [cell for cells in swizzle.draw(span, rows).lines for cell in cells]
    assert [row * (span // 16) + chunk for row, chunk in flat] == list(landed)  # type: ignore[misc]


@pytest.mark.parametrize(("span", "plain"), [(128, 8), (64, 4), (32, 2), (16, 1)])
def test_a_column_of_eight_rows_has_no_conflict(span: int, plain: int) -> None:
    drawing = swizzle.draw(span, 8)
    assert (drawing.column, drawing.plain) == (1, plain)


def test_spans_and_rows() -> None:
    assert [swizzle.span_of(word) for word in ("128B", "64", "32b", "none", "0", "16B")] == [128, 64, 32, 16, 16, 16]
    for call in (lambda: swizzle.span_of("256B"), lambda: swizzle.span_of(""), lambda: swizzle.draw(128, 0), lambda: swizzle.draw(64, 999)):
        with pytest.raises(PtxkitError):
            call()


# ------------------------------------------------------------------------------------------------ tensor maps


@given(st.lists(st.integers(1, 64), min_size=1, max_size=5), st.sampled_from([bf16, f32]), st.sampled_from([0, 32, 64, 128]), st.data())
def test_a_box_has_the_bytes_that_the_device_moves(box: list[int], type: object, span: int, data: st.DataObject) -> None:
    rank = len(box)
    dims = data.draw(st.lists(st.integers(1, 1000), min_size=rank, max_size=rank))
    steps = data.draw(st.lists(st.integers(1, 8), min_size=rank, max_size=rank))
    words = [f"type={type.__name__}", f"dims={','.join(map(str, dims))}", f"box={','.join(map(str, box))}",  # type: ignore[attr-defined]
             f"swizzle={span}", f"element_strides={','.join(map(str, steps))}"]
    fields = tensormap.of_words(words)
    made = tensormap.note(fields)
    assert made.problem == fields.problem()
    assert made.box_bytes == device.of_fields(fields, 0).box_bytes
    assert (made.problem or "one copy moves") in tensormap.text(made)


def test_the_devices_own_bytes_decode() -> None:
    fields = tensormap.of_words(["type=bf16", "dims=4096,512", "box=64,128", "swizzle=128B"])
    page = tensormap.of_bytes(device.of_fields(fields, 0x1000).encode().hex())
    assert "4,096 x 512 elements" in page
    assert "16,384 bytes" in page


@pytest.mark.parametrize("words", [["dims=1"], ["type=b9", "dims=1", "box=1"], ["type=bf16", "dims=x", "box=1"], ["sort=1"], ["type"],
                                   ["type=bf16", "dims=8", "box=8", "swizzle=17"], ["type=bf16", "dims=8", "box=8", "swizzle=wide"]])
def test_words_that_are_no_fields(words: list[str]) -> None:
    with pytest.raises(PtxkitError):
        tensormap.of_words(words)


@pytest.mark.parametrize("digits", ["zz", "00", "00" * 128, "0x" + "ab" * 128])
def test_bytes_that_are_no_map(digits: str) -> None:
    with pytest.raises(PtxkitError):
        tensormap.of_bytes(digits)
