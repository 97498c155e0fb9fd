"""Recipes. Where the arrays of a call differ from those of an earlier call only in their addresses, both are launched in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit.runtime.arrays import ArrayView

from ..problem.dense import PLAIN, Arrays, Options
from ..problem.matmul import products

ALIGNMENT = 15                  # the bits of an address that decide how arrays are loaded
APART = 1 << 48                 # array i of a recipe has a made-up address of (i + 1) times this
NOTHING: tuple[None, ...] = (None,) * (len(Arrays._fields) - 3)     # besides operands and D


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to turn the arrays that a call is given into those that its kernel reads and writes. A call may, for instance, be computed as its
    transposed product.

    `plan`: the key of the plan. `kept`: the kernel's arrays, with made-up addresses. `places`: for each of them the index of the given
    array that it lies in; None where there is none.
    """

    plan: tuple[Any, ...]
    kept: Arrays
    places: tuple[int | None, ...]

    @classmethod
    def of(cls, plan: tuple[Any, ...], arrays: Arrays) -> Recipe | None:
        """The recipe of a call; None if it takes several launches."""
        told = {name: array._replace(pointer=(Arrays._fields.index(name) + 1) * APART + (array.pointer & ALIGNMENT))
                for name, array in arrays.named()}
        part, *others = products(Arrays(**told))
        return None if others else cls(plan, part, tuple(None if array is None else array.pointer // APART - 1 for array in part))

    def arrays(self, given: Arrays) -> Arrays:
        """The kernel's arrays of a call that is `given` these."""
        found: list[Any] = []
        for kept, place in zip(self.kept, self.places, strict=True):
            one: Any = None if place is None else given[place]
            found.append(one and kept and ArrayView(one.pointer, kept.shape, kept.strides, kept.dtype, kept.device, one.owner))
        return Arrays(*found)


def likeness(arrays: Arrays, options: Options) -> tuple[Any, ...]:
    """A key that two calls share if their launches differ in addresses alone. Most products are plain: a shorter key is faster."""
    a, b, out = arrays[:3]
    if options is PLAIN and arrays[3:] == NOTHING:
        return a[1:5], b[1:5], out[1:5], a.pointer & ALIGNMENT, b.pointer & ALIGNMENT, out.pointer & ALIGNMENT
    return (*(array and array[1:5] for array in arrays), *(array and array.pointer & ALIGNMENT for array in arrays), options)


__all__ = ["NOTHING", "Recipe", "likeness"]
