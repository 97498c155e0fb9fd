"""A product as a primitive of jax: its result when it is traced, its batches, and the calls that XLA makes for it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ptxkit.errors import LaunchError

from . import cpu, handler, plans
from .framework import batching, core, ffi, jax, jnp, mlir
from .product import Product, by_columns, check, divided, words

_product: Any = core.Primitive("ptxkit_product")
_product.multiple_results = True


def multiply(product: Product, **operands: Any) -> Any:
    """The one result of these operands, of which those that are None are left out."""
    (found,) = compute(product, **operands)
    return found


def compute(product: Product, **operands: Any) -> list[Any]:
    """The results of these operands. Where there is nothing to compute they are zeros."""
    given = {name: jnp.asarray(operand) for name, operand in operands.items() if operand is not None}
    product = replace(product, names=tuple(given))
    for name, operand in given.items():
        if not all(isinstance(extent, int) for extent in operand.shape):
            raise LaunchError(f"{name} has shape {operand.shape}, which is symbolic: a kernel is chosen for numbers; trace or export the "
                              "product for each shape")
    results, computes = check(product, [jax.typeof(operand) for operand in given.values()])
    if computes:
        return list(_product.bind(*varying_alike(*given.values()), product=product))
    return [jnp.zeros(shape, dtype) for shape, dtype in results]


def varying_alike(*operands: Any) -> tuple[Any, ...]:
    """The operands, within shard_map all varying over the mesh axes that one of them varies over: so the gradient of one that does not is
    summed over them."""
    varying = [_varying(operand) for operand in operands]
    every = frozenset().union(*varying)
    return tuple(jax.lax.pcast(operand, tuple(sorted(every - own, key=str)), to="varying") if every - own else operand
                 for operand, own in zip(operands, varying, strict=True))


def _varying(operand: Any) -> frozenset[Any]:
    seen = jax.typeof(operand)
    return frozenset(seen.mat.varying if hasattr(seen, "mat") else seen.vma)


def _traced(*avals: Any, product: Product) -> list[Any]:
    """The results' types. Within shard_map they vary as the operands do; on a mesh with explicit axes they are whole on each device."""
    def result(shape: tuple[int, ...], dtype: Any) -> Any:
        whole = jax.sharding.NamedSharding(avals[0].sharding.mesh, jax.sharding.PartitionSpec(*(None,) * len(shape)))
        return avals[0].update(shape=shape, dtype=dtype, weak_type=False, sharding=whole)

    return [result(*each) for each in check(product, avals)[0]]


@functools.cache
def _compiled(product: Product) -> Any:
    return jax.jit(functools.partial(_product.bind, product=product))


# ------------------------------------------------------------------------------------------------------------ lowering


def _minor_to_major(product: Product, name: str, aval: Any) -> tuple[int, ...]:
    order = list(reversed(range(len(aval.shape))))
    if by_columns(product, name, aval.dtype, aval.shape):
        order[:2] = order[1::-1]
    return tuple(order)


def _call(context: Any, operands: Sequence[Any], product: Product, said: str, workspace: int) -> Any:
    results = [*context.avals_out, *([jax.core.ShapedArray((workspace,), jnp.uint8)] if workspace else [])]
    layouts = [_minor_to_major(product, name, aval) for name, aval in zip(product.names, context.avals_in, strict=True)]
    rule = ffi.ffi_lowering(handler.NAME, operand_layouts=layouts)
    return list(rule(context.replace(avals_out=results), *operands, call=said))[:len(context.avals_out)]


def _on_cpu(context: Any, *operands: Any, product: Product) -> Any:
    said = words(product, context.avals_in, checked=cpu.checked())
    handler.register("cpu")
    return _call(context, operands, product, said, 0)


def _on_gpu(context: Any, *operands: Any, product: Product) -> Any:
    said = words(product, context.avals_in)
    handler.register("CUDA")
    plans.tune(said)
    return _call(context, operands, product, said, plans.known(said).workspace_bytes)


# ------------------------------------------------------------------------------------------------------------ batching


def _batched(operands: Sequence[Any], dims: Sequence[Any], *, product: Product) -> tuple[list[Any], list[int]]:
    """Dense products and attention have batches of their own, and rows of several batches are rows of a group that has all. Of the others
    each is computed after the one before."""
    mapped = [(jax.typeof(operand).sharding, dim) for operand, dim in zip(operands, dims, strict=True) if dim is not None]
    part, mesh = mapped[0][0].spec[mapped[0][1]], mapped[0][0].mesh
    given = {name: divided(operand if dim is None else jnp.moveaxis(operand, dim, 0))
             for name, operand, dim in zip(product.names, operands, dims, strict=True)}
    along = {name for name, dim in zip(product.names, dims, strict=True) if dim is not None}
    scales = {name for name in ("a_scale", "b_scale") if name in given}
    if product.whole and along == {"x"}:
        x = given["x"]
        rows = given | {"x": x.reshape(-1, x.shape[-1]), "lengths": given["lengths"] * len(x)}
        found = multiply(product, **rows)
        results = [found.reshape(*x.shape[:2], found.shape[-1])]
    elif product.kind == "attention" and "cu_seqlens" not in given:
        results = _more_batches(given, along, product)
    elif product.kind == "dense" and not scales & along and all(given[name].size == 1 for name in scales):
        results = [_as_batch(given, along, product)]
    else:
        results = _one_by_one(given, along, product)
    return [divided(result, part, mesh) for result in results], [0] * len(results)


def _one_by_one(given: dict[str, Any], along: set[str], product: Product) -> list[Any]:
    fixed = {name: operand for name, operand in given.items() if name not in along}

    def one(some: dict[str, Any]) -> Any:
        every = fixed | some
        return _product.bind(*(every[name] for name in product.names), product=product)

    return list(jax.lax.map(one, {name: given[name] for name in along}))


def _more_batches(given: dict[str, Any], along: set[str], product: Product) -> list[Any]:
    """Attention, whose first extent is the batch: both batches as one."""
    count = given[next(iter(along))].shape[0]
    every = {name: operand if name in along else jnp.broadcast_to(operand, (count, *operand.shape)) for name, operand in given.items()}
    found = compute(product, **{name: operand.reshape(-1, *operand.shape[2:]) for name, operand in every.items()})
    return [each.reshape(count, -1, *each.shape[1:]) for each in found]


def _as_batch(given: dict[str, Any], along: set[str], product: Product) -> Any:
    """One product with another batch extent before the others. A bias of each batch is added as c is."""
    count = given[next(iter(along))].shape[0]
    if not along & {"a", "b"}:
        given["a"] = jnp.broadcast_to(given["a"], (count, *given["a"].shape))
        along = along | {"a"}
    ranks = {name: given[name].ndim - (name in along) for name in ("a", "b")}
    for name in along & {"a", "b"}:
        missing = max(ranks.values()) - ranks[name]
        given[name] = given[name].reshape((count, *(1,) * missing, *given[name].shape[1:]))
    one = {name: jax.typeof(given[name]) for name in ("a", "b")}
    ((shape, _),), _ = check(Product("dense", ("a", "b"), "f32", turned=product.turned), tuple(one.values()))
    for name in {"c", "residual"} & given.keys() - along:
        given[name] = jnp.broadcast_to(given[name], shape)
    if "bias" in along:
        bias = given.pop("bias").astype(jnp.float32)
        last = bias.shape[1:] if bias.ndim == 3 else (1, *bias.shape[1:])
        added = jnp.broadcast_to(bias.reshape((count, *(1,) * (len(shape) - 3), *last)), shape)
        options = dict(product.options)
        if "c" in given and options.get("beta"):
            added = added + options["beta"] * given["c"].astype(jnp.float32)
        given["c"], options["beta"] = added, 1.0
        product = replace(product, options=tuple(options.items()))
    return multiply(product, **given)


def _called(*operands: Any, product: Product) -> list[Any]:
    """The product outside of a trace. It has no other form than a compiled one: `jax.disable_jit` does not reach it."""
    with jax.disable_jit(False):
        return list(_compiled(product)(*operands))


_product.def_impl(_called)
_product.def_abstract_eval(_traced)
batching.primitive_batchers[_product] = _batched
mlir.register_lowering(_product, _on_cpu, platform="cpu")
mlir.register_lowering(_product, _on_gpu, platform="cuda")

__all__ = ["compute", "multiply", "varying_alike"]
