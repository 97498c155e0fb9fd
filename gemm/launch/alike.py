"""Arrays that differ from others before in their addresses alone: what these became of, by which the next are launched at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxkit.runtime.arrays import ArrayView

from ..problem.dense import PLAIN, Arrays, Options

ALIGNMENT = 15                  # the bits of an address that decide how arrays are loaded
APART = 1 << 48                 # of addresses that stand for those of a call


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the arrays of a call become those of its one product.

    `plan`: the key of its plan. `kept`: the product's arrays, whose addresses are those of other ones. `sources`: for each of them which of
    the call's arrays has its address, and how many bytes before; None where there is no array.
    """

    plan: tuple[Any, ...]
    kept: Arrays
    sources: tuple[tuple[int, int] | None, ...]

    @classmethod
    def of(cls, plan: tuple[Any, ...], arrays: Arrays, products: Callable[[Arrays], list[Arrays]]) -> Recipe | None:
        """The recipe of a call that `products` makes one product of, if the addresses of that are those of the call."""
        told = Arrays(**{name: array._replace(pointer=(Arrays._fields.index(name) + 1) * APART + (array.pointer & ALIGNMENT))
                         for name, array in arrays.named()})
        part, *others = products(told)
        if others:
            return None
        sources: list[tuple[int, int] | None] = []
        for array in part:
            place = array.pointer // APART - 1 if array is not None else 0
            given = told[place] if 0 <= place < len(told) else None
            if array is not None and given is None:
                return None
            sources.append(None if array is None or given is None else (place, array.pointer - given.pointer))
        return cls(plan, part, tuple(sources))

    def arrays(self, given: Arrays) -> Arrays:
        """The product's arrays for those of another call."""
        return Arrays(*[None if source is None else ArrayView(given[source[0]][0] + source[1], *kept[1:])  # type: ignore[index,arg-type]
                        for kept, source in zip(self.kept, self.sources, strict=True)])


def likeness(arrays: Arrays, options: Options) -> tuple[Any, ...]:
    """What arrays have in common whose launches differ in addresses alone. Most products are plain: a shorter key is faster."""
    a, b, out = arrays[:3]
    if options is PLAIN and arrays[3:] == _NOTHING:
        return a[1:5], b[1:5], out[1:5], a[0] & ALIGNMENT, b[0] & ALIGNMENT, out[0] & ALIGNMENT
    return (*(array and array[1:5] for array in arrays), *(array and array[0] & ALIGNMENT for array in arrays), options)


_NOTHING: tuple[None, ...] = (None,) * 5


__all__ = ["Recipe", "likeness"]
