"""The rules of the operators for DTensor: how a product is divided among the devices of a mesh, as torch.mm and torch.addmm have it.

torch asks a rule what each extent of a mesh may do, and takes the way that moves the fewest bytes. `torch.distributed.tensor` is imported
by programs that use it, since that takes time, and not by this package: the rules are there when it is.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import math
import sys
from collections.abc import Callable, Collection, Iterator
from importlib.abc import MetaPathFinder
from typing import Any, NamedTuple

from ptxkit.errors import LaunchError

from .framework import torch
from .products import in_blocks

_log = logging.getLogger("ptxkit")
BLOCK = 128
"""How many elements of an extent have one block scale."""

Extent = str | int
"""An extent of a product: "m", "n" and "k", and those of batches as numbers, the innermost as 0."""

Way = tuple[list[Any], list[Any]]
"""What an extent of a mesh may do: the placements of the result and of the arguments, None for one that is no tensor."""


class Array(NamedTuple):
    """An argument: what is known of the tensor, where it has which extents of the product, and whether it is added to the product."""

    spec: Any
    axes: dict[Extent, int]
    added: bool = False


NONE = Array(None, {})


def gemm(a: Any, b: Any, bias: Any = None, residual: Any = None, c: Any = None, alpha: float = 1.0, beta: float = 0.0,
         activation: str | None = None, *rest: Any) -> list[Way]:
    """What `gemm` may do."""
    out = _of_result(a, b)
    added = [Array(each, axes, added=True) for each, axes in ((bias, _of_bias(bias)), (residual, out), (c, out))]
    return list(_ways(out, [Array(a, _of_a(a)), Array(b, _of_b(b)), *added], linear=activation is None))


def scaled_gemm(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, out_dtype: Any = None, use_fast_accum: bool = False,
                residual: Any = None, activation: str | None = None, *rest: Any) -> list[Way]:
    """What `scaled_gemm` may do. Scales are divided as their operand is; one that is of blocks is divided between these."""
    out, of_a, of_b = _of_result(a, b), _of_a(a), _of_b(b)
    scales = [Array(scale, _of_scale(scale, operand, axes)) for scale, operand, axes in ((scale_a, a, of_a), (scale_b, b, of_b))]
    added = [Array(bias, _of_bias(bias), added=True), NONE, NONE, Array(residual, out, added=True)]
    whole = _undivided(a, b, scale_a, scale_b)
    return list(_ways(out, [Array(a, of_a), Array(b, of_b), *scales, *added], linear=activation is None, whole=whole))


def _ways(out: dict[Extent, int], arrays: list[Array], *, linear: bool, whole: Collection[Extent] = ()) -> Iterator[Way]:
    """All devices do everything; or an extent of the result is divided; or K is, and results are sums to be added; or an operand is such
    sums itself. The last two are for a product that is `linear` in its operands, and what is added to it then is sums, too. Extents of
    `whole` are not divided."""
    from torch.distributed.tensor import Partial, Replicate

    def way(result: Any, place: Callable[[Array], Any]) -> Way:
        return [result], [None if array.spec is None else place(array) for array in arrays]

    def divided(extent: Extent, shard: Callable[[int], Any], otherwise: Callable[[Array], Any]) -> Callable[[Array], Any]:
        return lambda array: shard(array.axes[extent]) if extent in array.axes else otherwise(array)

    def replicated(array: Array) -> Any:
        return Replicate()

    def parts(kind: str) -> Callable[[Array], Any]:
        return lambda array: Partial(kind) if array.added else Replicate()

    yield way(Replicate(), replicated)
    for shard in _shards(arrays):
        for extent, axis in out.items():
            if extent not in whole:
                yield way(shard(axis), divided(extent, shard, replicated))
        if linear and "k" not in whole:
            yield way(Partial(), divided("k", shard, parts("sum")))
    for kind, sums in itertools.product(("sum", "avg"), arrays[:2] if linear else ()):
        placements = [None if array.spec is None else Partial(kind) if array is sums else parts(kind)(array) for array in arrays]
        yield [Partial(kind)], placements


def _shards(arrays: list[Array]) -> list[Callable[[int], Any]]:
    """The ways to divide an extent: in as many pieces as there are devices, or in the pieces that a reshape left. A reshape leaves such
    pieces where it joined several extents, and one after the first was divided."""
    from torch.distributed.tensor import Shard

    placements = [placement for array in arrays if array.spec is not None for placement in array.spec.placements]
    apart = dict.fromkeys((type(placement), placement.split_factor) for placement in placements if hasattr(placement, "split_factor"))

    def pieces(kind: Any, factor: int) -> Callable[[int], Any]:
        return lambda axis: kind(axis, split_factor=factor)

    return [Shard, *(pieces(*each) for each in apart)]


def _of_a(a: Any) -> dict[Extent, int]:
    """The extents of a [..., M, K], or of a vector [K]."""
    return {"k": a.ndim - 1, **({"m": a.ndim - 2} if a.ndim > 1 else {}), **_batches(a)}


def _of_b(b: Any) -> dict[Extent, int]:
    """The extents of b [..., K, N], or of a vector [K]."""
    if b.ndim == 1:
        return {"k": 0}
    return {"k": b.ndim - 2, "n": b.ndim - 1, **_batches(b)}


def _batches(operand: Any) -> dict[Extent, int]:
    """The extents of batches but those of 1: they may be broadcast."""
    return {place: operand.ndim - 3 - place for place in range(operand.ndim - 2) if operand.shape[operand.ndim - 3 - place] != 1}


def _of_result(a: Any, b: Any) -> dict[Extent, int]:
    """The extents of a @ b."""
    matrix = [extent for extent, operand in (("m", a), ("n", b)) if operand.ndim > 1]
    outer = max(a.ndim, b.ndim, 2) - 2
    batches: dict[Extent, int] = {place: outer - 1 - place for place in range(outer) if place in _batches(a) or place in _batches(b)}
    return {**batches, **{extent: outer + place for place, extent in enumerate(matrix)}}


def _of_bias(bias: Any) -> dict[Extent, int]:
    """The extents of a bias [N], [1, N] or [M, 1]."""
    if bias is None or bias.ndim == 1:
        return {"n": 0}
    return {"n": 1} if bias.shape[0] == 1 else {"m": 0}


def _of_scale(scale: Any, operand: Any, axes: dict[Extent, int]) -> dict[Extent, int]:
    """The extents of the scales of an operand: one for all, one a row or column, with an extent of 1 for K or without it, or blocks."""
    if math.prod(scale.shape) == 1:
        return {}
    if scale.ndim == operand.ndim:
        return {extent: axis for extent, axis in axes.items() if scale.shape[axis] != 1}
    outer = {extent: axis - (axis > axes["k"]) for extent, axis in axes.items() if extent != "k"}
    return outer if tuple(scale.shape) == (*operand.shape[:axes["k"]], *operand.shape[axes["k"] + 1:]) else {}


def _undivided(a: Any, b: Any, scale_a: Any, scale_b: Any) -> set[Extent]:
    """The extents that scales forbid to divide: those that would be divided within blocks, and those of a batch whose rows' scales are one
    line."""
    whole: set[Extent] = set()
    for scale, operand, axes in ((scale_a, a, _of_a(a)), (scale_b, b, _of_b(b))):
        if math.prod(scale.shape) != 1 and not _of_scale(scale, operand, axes):
            whole |= axes.keys() - {"k"}
    if a.ndim > 1 and b.ndim == 2 and in_blocks(a, b, scale_a, scale_b):
        whole |= {extent for extent, length in (("n", b.shape[1]), ("k", a.shape[-1])) if length % (BLOCK * a.mesh.size())}
        whole |= {"k"} if scale_a.ndim != a.ndim else set()
    return whole


# ------------------------------------------------------------------------------------------------------- for DTensor


RULES: dict[str, Callable[..., list[Way]]] = {"gemm": gemm, "scaled_gemm": scaled_gemm}
"""The rules, by operator."""


def define(library: Any, overloads: list[Any]) -> None:
    """Give the operators their rules when `torch.distributed.tensor` is imported, or now if it has been. Others refuse DTensors."""
    def rules() -> None:
        from torch.distributed.tensor import DTensor

        for overload in overloads:
            name = overload._schema.name.removeprefix("ptxkit::")
            if overload._overloadname != "default" or name not in RULES or not _has_rule(overload, RULES[name]):
                torch.library.register_torch_dispatch(overload, DTensor, _refuse(overload), lib=library)

    when_imported("torch.distributed.tensor", rules)


def _has_rule(overload: Any, ways: Callable[..., list[Way]]) -> bool:
    """Tell torch a rule. Whether this torch takes one: what tells it is experimental, and no reason to fail an import of torch's."""
    try:
        _rule(overload, ways)
    except (ImportError, AttributeError, TypeError) as error:
        _log.warning("torch %s takes no rule that divides %s among devices; the operator refuses DTensors: %s", torch.__version__,
                     overload._schema.name, error)
        return False
    return True


def _rule(overload: Any, ways: Callable[..., list[Way]]) -> None:
    """Tell torch a rule. What it finds for a call it keeps for calls that look the same. They are told apart by the arguments after the
    operands as well, of which register_sharding alone leaves out fractions and words."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor.experimental import register_sharding

    register_sharding(overload)(ways)
    operands = sum(str(argument.type) == "Tensor" for argument in overload._schema.arguments)
    DTensor._op_dispatcher.sharding_propagator.op_to_schema_info[overload] = RuntimeSchemaInfo(operands)


def _refuse(overload: Any) -> Callable[..., Any]:
    name = overload._schema.name.removeprefix("ptxkit::")
    local = "call it on to_local(), as torch.distributed.tensor.experimental.local_map does"
    instead = f"call {name} without out" if name in RULES else local
    what = name if overload._overloadname == "default" else f"{name}.{overload._overloadname}"

    def refuse(*given: Any) -> Any:
        raise LaunchError(f"an argument of {what} is a DTensor, and {what} has no rule that divides it among devices: {instead}")

    return refuse


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Do something when a module has been imported: now, or at the end of its import."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Import(name, action))


class _Import(MetaPathFinder):
    """Finds one module as the other finders do, with an action after its own code, and is then gone."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name, self.action = name, action

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The module's spec; None for any other module."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_act(module: Any) -> None:
                run(module)
                self.action()

            spec.loader.exec_module = run_and_act  # type: ignore[method-assign]
        return spec


__all__ = ["RULES", "define", "gemm", "scaled_gemm", "when_imported"]
