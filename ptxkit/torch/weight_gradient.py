"""The product of groups along K: the gradient of grouped weights. No kernel of this package is made for it yet."""

from __future__ import annotations

import itertools
from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.dense import gemm as launch_gemm

from . import cpu
from .framework import torch

ROWS = 8
"""torch's product of groups stops the device unless every group has a multiple of 16 bytes along K."""


def weight_gradient(a: Any, b: Any, offs: Any, dtype: Any, out: Any = None) -> Any:
    """out[g] = a[offs[g]:offs[g + 1]].T @ b[offs[g]:offs[g + 1]]: a [T, M] and b [T, N] give [G, M, N]. offs is int32 [G + 1].

    bfloat16 on a GPU is multiplied by torch's own kernel, on copies of a and b whose groups are filled up with rows of zeros: nothing
    waits for the device. float16, and everything on the CPU device, is one product for each group, for which the lengths are read back:
    on a GPU the host waits for the device.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[0]:
        raise LaunchError(f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}: groups along K are rows of both, as many in a as in b")
    if a.dtype is not b.dtype or a.dtype not in (torch.bfloat16, torch.float16):
        raise LaunchError(f"a has elements of {a.dtype} and b of {b.dtype}: groups along K are both bfloat16 or both float16")
    groups = offs.shape[0] - 1
    out = a.new_empty((groups, a.shape[1], b.shape[1]), dtype=dtype) if out is None else out
    if tuple(out.shape) != (groups, a.shape[1], b.shape[1]):
        raise LaunchError(f"out has shape {tuple(out.shape)}: {groups} groups along K give {(groups, a.shape[1], b.shape[1])}")
    if a.device.type == "cuda" and a.dtype is torch.bfloat16 and a.shape[1] % ROWS == b.shape[1] % ROWS == 0:
        return out.copy_(by_torch(a, b, offs))
    run = cpu.dense if a.device.type == "cpu" else launch_gemm
    ends = offs.tolist()
    for group, (start, end) in enumerate(itertools.pairwise(ends)):
        run(a[start:end].mT, b[start:end], out[group])
    return out


def by_torch(a: Any, b: Any, offs: Any) -> Any:
    """The same by torch._grouped_mm, for groups of any length."""
    (rows, groups), index = (a.shape[0], offs.shape[0] - 1), offs.long()
    lengths = index.diff()
    filled = (lengths.clamp(min=1) + ROWS - 1) // ROWS * ROWS       # an empty group is a product of zeros
    ends = filled.cumsum(0)
    row = torch.arange(rows, device=a.device)
    group = torch.searchsorted(index, row, right=True) - 1          # -1: before the first group; `groups`: after the last
    room = -(-(rows + ROWS * groups) // ROWS) * ROWS
    inside = (group >= 0) & (group < groups)
    own = group.clamp(0, groups - 1)
    place = torch.where(inside, row - index[own] + ends[own] - filled[own], room)
    padded = [each.new_zeros((room + 1, each.shape[1])).index_copy_(0, place, each)[:room] for each in (a, b)]
    return torch._grouped_mm(padded[0].mT, padded[1], offs=ends.int())


__all__ = ["by_torch", "weight_gradient"]
