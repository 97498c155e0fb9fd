"""The kernels of the gallery: where each is, shapes that show it right on the CPU device, and shapes that are timed."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from examples.host.problem import Problem

Shape = tuple[Any, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel of the gallery. `small` and `large` are arguments of the module's `problem`. `more` are those that take the CPU device long.

    `narrow` says why the machine code has accesses of global memory of less than 16 bytes: {access: reason}.
    """

    module: str
    small: tuple[Shape, ...]
    large: tuple[Shape, ...]
    narrow: Mapping[str, str] = field(default_factory=dict)
    verdict: str = "clean"
    more: tuple[Shape, ...] = ()

    def problem(self, *arguments: Any) -> Problem:
        """A problem of these arguments."""
        found: Problem = import_module(f"examples.{self.module}").problem(*arguments)
        return found


ROWS = ((16_384, 1024), (16_384, 2048), (16_384, 4096), (16_384, 8192), (8192, 16_384))


def norms(kind: str, residual: bool) -> Kernel:
    """A norm. The small rows are of a warp, of a few warps, and of many."""
    return Kernel("rows.norms", ((9, 520, kind, residual), (2, 2056, kind, residual)),
                  tuple((*shape, kind, residual) for shape in ROWS),
                  more=tuple((*shape, kind, residual) for shape in ((1, 8192), (3, 32_768), (10, 1000), (2, 16_392))))


GALLERY = {
    "softmax": Kernel("rows.softmax", ((9, 520), (1, 8), (4, 72, 1e37), (2, 2056)), ROWS,
                      more=((1, 16_384), (17, 1024), (3, 32_768), (11, 1000))),
    "rms_norm": norms("rms", False),
    "add_rms_norm": norms("rms", True),
    "layer_norm": norms("layer", False),
    "add_layer_norm": norms("layer", True),
    "rotary": Kernel("rows.rotary", ((5, 6, 64), (7, 9, 128), (3, 1, 256)), ((16_384, 32, 128), (16_384, 16, 64), (8192, 40, 128)),
                     {"LDG.E": "the position of the token"}),
    "quantise": Kernel("rows.quantise", ((3, 768), (2, 128, 1e-39), (1, 128)), ROWS,
                       {"STG.E.64": "eight e4m3 for 16 bytes of bf16", "STG.E": "the scale of a block"}, more=((65, 256), (7, 1920))),
    "transpose": Kernel("layouts.transpose", ((72, 136), (8, 200)), ((4096, 4096), (8192, 8192), (16_384, 4096), (8200, 4104)),
                        more=((64, 64), (200, 72))),
    "topk": Kernel("rows.topk", ((9, 100, 5), (3, 4, 4), (5, 36, 32, 1.0), (2, 320, 32)),
                   ((65_536, 256, 8), (65_536, 128, 4), (65_536, 64, 6)),
                   {"STG.E": "k results of a row, from neighbouring lanes"}, more=((2, 1024, 32), (20, 64, 6))),
    "reduction": Kernel("sums.reduction", ((66_001,), (3,)), ((1 << 28,), (1 << 26,), ((1 << 24) + 3,)),
                        {"LDG.E": "the last values, and the sums of chunks", "STG.E": "a sum"}, more=((1000,), (262_147,))),
    "scan": Kernel("sums.scan", ((33_001,), (16_384,)), ((1 << 26,), (1 << 28,), ((1 << 24) + 3,)),
                   dict.fromkeys(("LDG.E", "STG.E", "LDG.E.64.STRONG.GPU", "STG.E.64", "STG.E.64.STRONG.GPU"),
                                 "the last tile, tickets and states"), verdict="incomplete", more=((3,), (200_001,), (560_000,))),
    "histogram": Kernel("sums.histogram", ((20_001,), (7,)), ((1 << 28,), (1 << 28, "same"), (1 << 26,)),
                        {"LDG.E.U8": "the last 15 bytes"}, more=((40_000, "same"), (280_000,))),
    "f32": Kernel("products.f32", ((8, 12, 36), (3, 4, 32)), ((4096, 4096, 4096), (8192, 8192, 8192), (2048, 6144, 4096)),
                  more=((130, 264, 228),)),
    "w4a16": Kernel("products.w4a16", ((5, 64, 384), (9, 64, 128), (16, 64, 2048), (3, 64, 24_576)),
                    ((1, 4096, 4096), (16, 4096, 4096), (8, 8192, 8192), (16, 8192, 8192), (16, 14_336, 4096)),
                    {"STG.E.64": "four results of a token"},
                    more=((1, 192, 1280), (13, 128, 4096))),
    "int8": Kernel("products.int8", ((72, 136, 144),), ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 14_336, 4096)),
                   {"LDG.E": "row scales", "LDG.E.64": "pairs of column scales"}, more=((130, 8, 16), (136, 520, 1040))),
    "sparse": Kernel("products.sparse", ((72, 136, 144), (130, 264, 336, 2)),
                     ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 14_336, 4096)),
                     more=((8, 8, 16), (264, 264, 80, 4), (520, 1032, 336, 8))),
}
