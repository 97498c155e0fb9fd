"""CuTe DSL functions that take a tensor map of some element type, box and swizzle, and do nothing with it."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_compact_tensor


@cute.kernel
def _nothing(load: cute.CopyAtom, source: cute.Tensor):
    pass


def loader(element: Any, box: tuple[int, ...], swizzle: int) -> Any:
    """Compiled for arrays of any extents that are multiples of 8, the last of 64."""
    strides = [1]
    for extent in box[:0:-1]:
        strides.append(strides[-1] * extent)

    @cute.jit
    def launch(source: cute.Tensor):
        layout = cute.make_layout(box, stride=tuple(reversed(strides)))
        if cutlass.const_expr(swizzle):
            layout = cute.make_composed_layout(cute.make_swizzle(swizzle.bit_length() - 5, 4, 3), 0, layout)
        load, far = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), source, layout, box)
        _nothing(load, far).launch(grid=[1, 1, 1], block=[32, 1, 1])

    rank = len(box)
    extents = tuple(cute.sym_int(divisibility=64 if axis == rank - 1 else 8) for axis in range(rank))
    return cute.compile(launch, make_fake_compact_tensor(element, extents, stride_order=tuple(range(rank))[::-1], assumed_align=128))
