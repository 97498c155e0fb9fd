"""The command `ptxkit explain`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from ..cli.errors import UsageError
from ..cli.numbers import positive
from ..errors import PtxkitError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("opcode", nargs="?", help="an opcode, its beginning (`wgmma.mma_async...`), its Python spelling, or a special "
                                                  "register; without anything, a list of all instructions")
    parser.add_argument("--descriptor", metavar="BITS", help="decode a wgmma matrix descriptor: 0x4000004000010040")
    parser.add_argument("--tensormap", nargs="+", metavar="K=V", help="explain a tensor map by its fields: type=bf16 dims=4096,4096 "
                                                                      "box=64,128 swizzle=128; or 128 bytes as hexadecimal digits")
    parser.add_argument("--swizzle", metavar="SPAN", help="draw a swizzle: 128B, 64B, 32B or none")
    parser.add_argument("--rows", type=positive, default=8, help="rows that --swizzle draws (8)")


def run(options: argparse.Namespace) -> int:
    """Explains one thing; 1 when it is a tensor map that the driver refuses."""
    asked = [options.opcode, options.descriptor, options.tensormap, options.swizzle]
    if sum(thing is not None for thing in asked) > 1:
        raise UsageError("explain takes one of an opcode, --descriptor, --tensormap and --swizzle")
    data, page = _explained(options)
    print(json.dumps(data, indent=2, default=str) if options.json else page, end="\n" if options.json else "")
    return 1 if options.tensormap is not None and data.get("problem") else 0


def _explained(options: argparse.Namespace) -> tuple[Any, str]:
    """(for JSON, as text)"""
    from . import instruction, matrix, swizzle, tensormap

    if options.descriptor is not None:
        bits = _bits(options.descriptor)
        made = matrix.decode(bits)
        return {**asdict(made), "bits": f"{bits:#018x}", "remarks": matrix.remarks(made)}, matrix.text(bits)
    if options.swizzle is not None:
        drawing = swizzle.draw(swizzle.span_of(options.swizzle), options.rows)
        return asdict(drawing), swizzle.text(drawing)
    if options.tensormap is not None:
        words: list[str] = options.tensormap
        if not any("=" in word for word in words):
            page = tensormap.of_bytes("".join(words))
            return {"text": page}, page
        note = tensormap.note(tensormap.of_words(words))
        fields = {key: getattr(note.fields, key) for key in tensormap.KEYS} | {"type": note.fields.type.__name__}
        return {"fields": fields, "box_bytes": note.box_bytes, "boxes": note.boxes, "alignment": note.alignment,
                "problem": note.problem}, tensormap.text(note)
    if options.opcode is None:
        chapters = instruction.overview()
        return chapters, instruction.overview_text(chapters)
    made_of = instruction.explain(options.opcode)
    return asdict(made_of), instruction.text(made_of)


def _bits(text: str) -> int:
    try:
        bits = int(text.rstrip("uUlL"), 0)
    except ValueError:
        raise PtxkitError(f"--descriptor {text}: write a 64-bit number, as 0x4000004000010040") from None
    if not -(1 << 63) <= bits < 1 << 64:
        raise PtxkitError(f"--descriptor {text}: a descriptor has 64 bits")
    return bits & (1 << 64) - 1
