"""A product as a value: what XLA knows of it when it is traced, and what it says of it to the handler that runs it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptxkit.dsl.arguments import WORDS
from ptxkit.errors import LaunchError
from ptxkit.runtime.arrays import NUMPY_NAMES, ArrayView, contiguous_strides
from ptxkit.types import TYPES

from .framework import jax, jnp
from .kinds import KINDS, Name


@dataclass(frozen=True, slots=True)
class Product:
    """What is static of a product. Its operands are arrays with these names, as `ptxkit.gemm` and `ptxkit.attention` have them.

    `out` is ptxkit's name of the result's type. Operands in `turned` are given with their last two extents exchanged. `options` are those
    of `ptxkit.gemm`, by name. `clears`: the result is 0 where nothing is written. `whole`: there is one group, which has all rows.
    """

    kind: Name
    names: tuple[str, ...]
    out: str
    options: tuple[tuple[str, Any], ...] = ()
    turned: frozenset[str] = frozenset()
    clears: bool = False
    whole: bool = False


def word_of(dtype: Any, name: str) -> str:
    """ptxkit's name of a type of jax. Raises LaunchError for a type that no kernel has."""
    word = WORDS.get(jnp.dtype(dtype).name)
    if word is None:
        raise LaunchError(f"{name} has elements of {jnp.dtype(dtype).name}: a product has float16, bfloat16, float32, float8_e4m3fn or "
                          "float8_e5m2")
    return word


def arrays(needed: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Arguments as jax arrays, by name, which on a mesh with explicit axes are whole on each device. Optional ones that are None are left
    out. Raises LaunchError for what is no array."""
    found: dict[str, Any] = {}
    for name, value in (*needed.items(), *(pair for pair in (optional or {}).items() if pair[1] is not None)):
        try:
            found[name] = jnp.asarray(value)
        except (TypeError, ValueError):
            raise LaunchError(f"{name} is {'None' if value is None else type(value).__name__}: it must be an array") from None
        if jnp.issubdtype(found[name].dtype, jax.dtypes.extended):
            raise LaunchError(f"{name} has elements of {found[name].dtype}, such as keys of jax.random: they are no numbers")
        found[name] = divided(found[name])
    return found


def divided(array: Any, first: Any = None, mesh: Any = None) -> Any:
    """On a mesh with explicit axes the array with its first extent divided along this axis, None for none, and the others whole on each
    device. Its gradient is divided as it was. `mesh` None: that of the array."""
    seen = jax.typeof(array).sharding
    wanted = jax.sharding.PartitionSpec(*(first if axis == 0 else None for axis in range(array.ndim)))
    return array if seen.spec == wanted else jax.sharding.reshard(array, jax.sharding.NamedSharding(mesh or seen.mesh, wanted))


def check_integers(name: str, array: Any) -> None:
    """Raise LaunchError unless an array has elements of int32."""
    if array.dtype != jnp.int32:
        raise LaunchError(f"{name} has elements of {array.dtype.name}: it must be int32")


def dtype_of(word: str) -> Any:
    """The type of jax that ptxkit calls so."""
    return jnp.dtype(getattr(jnp, NUMPY_NAMES[word]))


def by_columns(product: Product, name: str, dtype: Any, shape: Sequence[int]) -> bool:
    """Whether the kernels read this operand column by column, as it is given: XLA then lays it out so. The kernels of groups and of fp8
    read lines along K, block scales of a lie along M and those of b along K; those of a batch follow one another as its rows do."""
    if len(shape) < 2 or product.kind not in ("dense", "groups"):
        return False
    fp8 = jnp.dtype(dtype).itemsize == 1
    if name in ("w", "w_scale"):
        return name in product.turned
    if name in ("a_scale", "x_scale", "b_scale"):
        return 1 not in shape and (product.kind == "groups" or len(shape) == 2)
    return fp8 and name in ("a", "b") and (name == "a") == (name in product.turned)


def heads_before_rows(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Extents [B, S, H, D] as [B, H, S, D], and the other way round; others as they are. jax has rows before heads, the kernels heads
    before rows."""
    return (extents[0], extents[2], extents[1], extents[3]) if len(extents) == 4 else extents


def view(product: Product, name: str, shape: Sequence[int], dtype: Any, pointer: int = 0, device: int = 0) -> ArrayView:
    """An operand as a launch sees it."""
    shape = tuple(shape)
    if product.kind == "attention":
        strides = heads_before_rows(contiguous_strides(shape))
        return ArrayView(pointer, heads_before_rows(shape), strides, word_of(dtype, name), device, "jax")
    if by_columns(product, name, dtype, shape):
        *outer, row, column = contiguous_strides((*shape[:-2], shape[-1], shape[-2]))
        strides = (*outer, column, row)
    else:
        strides = contiguous_strides(shape)
    if name in product.turned:
        shape, strides = (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])
    return ArrayView(pointer, shape, strides, word_of(dtype, name), device, "jax")


def views(product: Product, avals: Sequence[Any]) -> dict[str, ArrayView]:
    """The operands and then the results as a launch sees them, in the order of the handler's buffers."""
    found = {name: view(product, name, aval.shape, aval.dtype) for name, aval in zip(product.names, avals, strict=True)}
    return found | KINDS[product.kind].results(found, dict(product.options), product.out)


def check(product: Product, avals: Sequence[Any]) -> tuple[list[tuple[tuple[int, ...], Any]], bool]:
    """The shape and type of each result, and whether there is anything to compute. Raises the LaunchError that a launch would."""
    seen = views(product, avals)
    computes = KINDS[product.kind].check(seen, dict(product.options))
    results = list(seen.values())[len(avals):]
    shapes = [heads_before_rows(each.shape) if product.kind == "attention" else each.shape for each in results]
    return [(shape, dtype_of(each.dtype)) for shape, each in zip(shapes, results, strict=True)], computes


def words(product: Product, avals: Sequence[Any], *, checked: bool = False) -> str:
    """The product in words, for the handler. They hold in any process."""
    arrays = [(name, seen.shape, seen.strides, seen.dtype) for name, seen in views(product, avals).items()]
    return json.dumps({"kind": product.kind, "arrays": arrays, "options": dict(product.options), "clears": product.clears,
                       "checked": checked})


@dataclass(frozen=True, slots=True)
class Call:
    """What the words of a product say."""

    kind: Name
    arrays: tuple[ArrayView, ...]
    names: tuple[str, ...]
    options: dict[str, Any]
    clears: bool
    checked: bool

    def named(self, pointers: Sequence[int], device: int = 0) -> dict[str, ArrayView]:
        """The arrays at these addresses."""
        return {name: array._replace(pointer=pointer, device=device)
                for name, array, pointer in zip(self.names, self.arrays, pointers, strict=True)}


def read(text: str) -> Call:
    """What `words` has written."""
    said = json.loads(text)
    arrays = tuple(ArrayView(0, tuple(shape), tuple(strides), word, 0, "jax") for _, shape, strides, word in said["arrays"])
    return Call(said["kind"], arrays, tuple(name for name, *_ in said["arrays"]), said["options"], said["clears"], said["checked"])


def nbytes(array: ArrayView) -> int:
    """The bytes of an array without gaps."""
    return math.prod(array.shape) * TYPES[array.dtype].bits // 8


__all__ = ["Call", "Product", "arrays", "by_columns", "check", "check_integers", "divided", "dtype_of", "heads_before_rows", "nbytes",
           "read", "view", "views", "word_of", "words"]
