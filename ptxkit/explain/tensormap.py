"""Tensor maps: what given fields mean, whether the hardware can have them, and what a copy of one box moves.

NVIDIA does not document the 128 bytes that cuTensorMapEncodeTiled writes: bytes of the driver are not decoded, those of the CPU device are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dsl.descriptor import TensorMapFields
from ..errors import PtxkitError
from ..types import TYPES

KEYS = ("type", "dims", "strides", "box", "element_strides", "swizzle", "interleave", "fill", "l2_promotion")
BYTES = 128


@dataclass(frozen=True, slots=True)
class MapNote:
    """Fields with what follows from them. `problem` is why the hardware cannot have them; `boxes` how many cover the array."""

    fields: TensorMapFields
    box_bytes: int
    boxes: int
    alignment: int
    problem: str | None


def note(fields: TensorMapFields) -> MapNote:
    size = fields.type.bits // 8
    rank = len(fields.dims)
    if len(fields.box) != rank:
        return MapNote(fields, 0, 0, 128, fields.problem())
    extents = [box if axis == 0 else -(-box // step) for axis, (box, step) in enumerate(zip(fields.box, _steps(fields), strict=True))]
    total, boxes = size, 1
    for axis, extent in enumerate(extents):
        total *= extent
        boxes *= -(-fields.dims[axis] // max(fields.box[axis], 1))
    return MapNote(fields, total, boxes, max(128, 8 * fields.swizzle), fields.problem())


def _steps(fields: TensorMapFields) -> tuple[int, ...]:
    return fields.element_strides if len(fields.element_strides) == len(fields.box) else (1,) * len(fields.box)


def of_words(words: Sequence[str]) -> TensorMapFields:
    """The fields of `key=value` words: `type=bf16 dims=4096,4096 box=64,128 swizzle=128`. Extents count elements, contiguous first."""
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in KEYS:
            raise PtxkitError(f"--tensormap {word}: write key=value with {', '.join(KEYS)}, or the 128 bytes as 256 hexadecimal digits")
        given[key] = value
    if missing := [key for key in ("type", "dims", "box") if key not in given]:
        raise PtxkitError(f"--tensormap needs {', '.join(f'{key}=' for key in missing)}")
    if given["type"] not in TYPES:
        raise PtxkitError(f"--tensormap type={given['type']}: the types are {', '.join(TYPES)}")
    type = TYPES[given["type"]]
    dims = _numbers("dims", given["dims"])
    if "strides" in given:
        strides = _numbers("strides", given["strides"])
    else:
        strides, step = (), type.bits // 8
        for extent in dims[:-1]:
            step *= extent
            strides = (*strides, step)
    fill = given.get("fill", "zeros")
    swizzle, interleave = _span("swizzle", given.get("swizzle", "0")), _span("interleave", given.get("interleave", "0"))
    if fill not in ("zeros", "nan") or swizzle not in (0, 32, 64, 128) or interleave not in (0, 16, 32):
        raise PtxkitError("--tensormap: swizzle is 0, 32, 64 or 128 bytes, interleave 0, 16 or 32, fill zeros or nan")
    box, steps = _numbers("box", given["box"]), _numbers("element_strides", given.get("element_strides", ""))
    return TensorMapFields(type, dims, strides, box, steps, swizzle, interleave, fill,
                           _span("l2_promotion", given.get("l2_promotion", "128")))


def _numbers(key: str, text: str) -> tuple[int, ...]:
    parts = text.replace("x", ",").split(",") if text else []
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise PtxkitError(f"--tensormap {key}={text}: write numbers with commas between")
    return tuple(map(int, parts))


def _span(key: str, text: str) -> int:
    bare = text.lower().removesuffix("b")
    if bare == "none":
        return 0
    if not bare.isdecimal():
        raise PtxkitError(f"--tensormap {key}={text}: write bytes, or none")
    return int(bare)


def of_bytes(text: str) -> str:
    """What 256 hexadecimal digits are, in words."""
    digits = "".join(text.split()).removeprefix("0x")
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        raise PtxkitError("--tensormap takes key=value words, or 128 bytes as 256 hexadecimal digits") from None
    if len(data) != BYTES:
        raise PtxkitError(f"a tensor map has {BYTES} bytes, these are {len(data)}")
    from ..sim.tensormap import decode

    made = decode(data)
    if made is None:
        raise PtxkitError("these bytes are not a tensor map of the CPU device, and NVIDIA does not document the driver's encoding: give "
                          f"the fields ({', '.join(f'{key}=' for key in KEYS)}), or see `ptxkit inspect` for the boxes of a traced kernel")
    rank = made.rank
    return (f"tensor map of the CPU device\n  base     {made.address:#x}\n  type     {made.type}\n"
            f"  dims     {_listed(made.dims[:rank])} elements, contiguous first\n  strides  {_listed(made.strides[:rank - 1])} bytes\n"
            f"  box      {_listed(made.box[:rank])} elements, "
            f"{made.box_bytes:,} bytes\n  steps    {_listed(made.steps[:rank])}\n  swizzle  {made.swizzle or 'none'}\n")


def _listed(numbers: Sequence[int]) -> str:
    return " x ".join(f"{number:,}" for number in numbers) or "none"


def text(made: MapNote) -> str:
    """The tensor map as a page of text."""
    fields = made.fields
    size = fields.type.bits // 8
    inner = fields.box[0] * size if fields.box else 0
    lines = [f"tensor map of {fields.type.__name__}, {len(fields.dims)} dimensions (contiguous first)", "",
             f"  dims      {_listed(fields.dims)} elements", f"  strides   {_listed(fields.strides)} bytes, of dimension 1 on",
             f"  box       {_listed(fields.box)} elements"]
    if made.problem:
        return "\n".join([*lines, "", f"the hardware cannot have it: {made.problem}"]) + "\n"
    pattern = f", for the swizzle to start where a wgmma descriptor has it (`ptxkit explain --swizzle {fields.swizzle}B`)"
    lines += [f"  swizzle   {f'{fields.swizzle} bytes' if fields.swizzle else 'none'}",
              f"  fill      out-of-bounds elements are {'zero' if fields.fill == 'zeros' else 'NaN'}", "",
              f"one copy moves {made.box_bytes:,} bytes in rows of {inner}: what mbarrier.arrive.expect_tx must say, also at the edges",
              f"{made.boxes:,} boxes cover the array",
              f"the shared address is a multiple of {made.alignment:,} bytes{pattern if fields.swizzle else ''}"]
    if fields.swizzle and inner < fields.swizzle:
        lines.append(f"look out: rows of {inner} bytes do not fill the {fields.swizzle}-byte span; a wgmma descriptor takes full spans")
    return "\n".join(lines) + "\n"
