"""Products under jax.vmap, jax.shard_map, loops and checkpoints."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.jax import DEVICES, wanted

jax = wanted(__name__)

import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from ptxkit.jax import attention, combine, cpu_device, gated_gemm, gemm, grouped_gemm, scaled_gemm, weight_gradient  # noqa: E402
from tests.jax.oracle import activated, exact  # noqa: E402
from tests.jax.test_dense import drawn  # noqa: E402

ROUNDED = 2.0 ** -8             # of a bfloat16 result, relative to its norm


def close(found: Any, wanted: Any, within: float = ROUNDED) -> None:
    assert found.shape == wanted.shape
    assert np.linalg.norm(exact(found) - wanted) <= within * np.linalg.norm(wanted)


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (2, 1)], ids=str)
@pytest.mark.thinned(2)
def test_a_mapped_product_is_a_batch(device: Any, axes: Any) -> None:
    shapes = [(8, 16), (16, 24)]
    a, b = (drawn(n, shape if axis is None else (*shape[:axis], 3, *shape[axis:]), jnp.bfloat16)
            for n, (shape, axis) in enumerate(zip(shapes, axes, strict=True)))
    mapped = jax.vmap(gemm, axes)
    x, y = (exact(each) if axis is None else np.moveaxis(exact(each), axis, 0) for each, axis in zip((a, b), axes, strict=True))
    close(jax.jit(mapped)(a, b), x @ y)
    text = str(jax.make_jaxpr(mapped)(a, b))
    assert text.count("ptxkit_product") == 1
    assert "scan" not in text
    nested = jax.vmap(jax.vmap(gemm, (0, None)), (None, 0))
    p, q = drawn(4, (2, 8, 16), jnp.bfloat16), drawn(5, (3, 16, 24), jnp.bfloat16)
    close(nested(p, q), exact(p)[None] @ exact(q)[:, None])


@pytest.mark.parametrize("bias", [(3, 24), (3, 8, 1)], ids=str)
@pytest.mark.thinned(9)
def test_a_mapped_fusion(device: Any, bias: tuple[int, ...]) -> None:
    a, b = drawn(0, (3, 8, 16), jnp.bfloat16), drawn(1, (16, 24), jnp.bfloat16)
    c, given = drawn(2, (8, 24), jnp.float32), drawn(3, bias, jnp.float32)

    def one(a: Any, bias: Any) -> Any:
        return gemm(a, b, bias, c=c, beta=0.5, activation="silu", residual=c, out_dtype=jnp.float32)

    added = exact(given)[:, None] if given.ndim == 2 else exact(given)
    close(jax.vmap(one)(a, given), activated("silu", exact(a) @ exact(b) + 0.5 * exact(c) + added)[0] + exact(c), 1e-5)
    close(jax.vmap(lambda bias: gemm(a[0], b, bias))(given), exact(a[0]) @ exact(b) + added)


def test_the_gradient_of_a_mapped_product(device: Any) -> None:
    a, b = drawn(0, (3, 8, 16), jnp.bfloat16), drawn(1, (16, 24), jnp.bfloat16)
    found = jax.grad(lambda b: jax.vmap(gemm, (0, None))(a, b).astype(jnp.float32).sum())(b)
    close(found, np.repeat(exact(a).sum((0, 1))[:, None], 24, 1), 2 * ROUNDED)
    of_one = jax.vmap(jax.grad(lambda a: gemm(a, b).astype(jnp.float32).sum()))(a)
    close(of_one, np.broadcast_to(exact(b).sum(1), (3, 8, 16)), 2 * ROUNDED)


def test_what_has_no_batch_is_mapped_one_after_another(device: Any) -> None:
    x, w = drawn(0, (2, 12, 32), jnp.bfloat16), drawn(1, (2, 16, 32), jnp.bfloat16)
    offs = jnp.asarray([[4, 12], [7, 7]], jnp.int32)
    found = jax.vmap(lambda x, offs: grouped_gemm(x, w, offs, transpose_b=True))(x, offs)
    for one, rows, ends in zip(found, x, offs, strict=True):
        assert (one == grouped_gemm(rows, w, ends, transpose_b=True)).all()
    q = drawn(2, (2, 16, 128), jnp.float8_e4m3fn)
    rows = jnp.asarray([[0.5] * 16, [2.0] * 16], jnp.float32)
    whole = jax.vmap(scaled_gemm, (0, None, 0, None))(q, q[0].T, rows, jnp.ones(1))
    close(whole, exact(rows)[..., None] * (exact(q) @ exact(q[0]).T))


def test_loops_and_checkpoints(device: Any) -> None:
    x, w = drawn(0, (16, 16), jnp.bfloat16), drawn(1, (3, 16, 16), jnp.bfloat16) / 4

    def model(w: Any, layer: Any) -> Any:
        return jax.lax.scan(lambda y, one: (layer(y, one), None), x, w)[0].astype(jnp.float32).sum()

    plain, again = (jax.jit(jax.grad(lambda w, layer=layer: model(w, layer)))(w) for layer in (gemm, jax.checkpoint(gemm)))
    y, upstream = [exact(x)], np.ones((16, 16))
    for one in exact(w):
        y.append(y[-1] @ one)
    wanted = np.zeros((3, 16, 16))
    for n in (2, 1, 0):
        wanted[n] = y[n].T @ upstream
        upstream = upstream @ exact(w)[n].T
    close(plain, wanted, 6 * ROUNDED)
    assert (plain == again).all()


def _float(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def _int(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


GRADIENTS = pytest.mark.parametrize(("function", "floats", "integers"), [
    (lambda a, b, bias, c: gemm(a, b, bias, c=c, residual=c, beta=0.5, activation="gelu"),
     [_float(2, 8, 16), _float(16, 24), _float(24), _float(2, 8, 24)], []),
    (lambda a, b: gated_gemm(a, b), [_float(2, 8, 16), _float(16, 24)], []),
    (lambda a, b, offs, gather: grouped_gemm(a, b, offs, activation="silu_and_mul", gather=gather), [_float(8, 16), _float(2, 16, 24)],
     [_int(2), _int(9)]),
    (weight_gradient, [_float(8, 16), _float(8, 13)], [_int(3)]),
    (lambda y, weights, place: combine(y, place, weights), [_float(8, 16), jax.ShapeDtypeStruct((5, 2), jnp.float32)], [_int(5, 2)]),
    (lambda q, k: attention(q, k, k, is_causal=True, return_lse=True), [_float(1, 9, 4, 64), _float(1, 9, 2, 64)], []),
    (lambda q, k, starts: attention(q, k, k, cu_seqlens=starts, return_lse=True), [_float(9, 4, 64), _float(9, 2, 64)], [_int(3)]),
], ids=["gemm", "gated", "groups", "along k", "combine", "attention", "packed"])
"""Functions with gradients, and their arguments."""


@GRADIENTS
def test_gradients_promote_no_ranks_and_no_types(function: Any, floats: list[Any], integers: list[Any]) -> None:
    """Programs may forbid both; what jax then refuses is refused while it traces."""
    def loss(*given: Any) -> Any:
        return sum(each.astype(jnp.float32).sum() for each in jax.tree.leaves(function(*given)))

    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        found = jax.eval_shape(jax.grad(loss, tuple(range(len(floats)))), *floats, *integers)
    assert [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in floats]


# ------------------------------------------------------------------------------------------------------- several devices


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def mesh(request: pytest.FixtureRequest) -> Any:
    """Two devices of a platform."""
    try:
        devices = jax.devices(request.param)
    except RuntimeError as error:
        pytest.skip(f"jax has no {request.param} here: {error}")
    if len(devices) < DEVICES:
        pytest.skip(f"jax has {len(devices)} device of {request.param}, and this needs {DEVICES}: set XLA_FLAGS before jax is imported")
    with cpu_device():
        yield jax.make_mesh((DEVICES,), ("d",), axis_types=(AxisType.Auto,), devices=devices[:DEVICES])


@pytest.mark.parametrize("check", [True, False])
def test_rows_on_each_device(mesh: Any, check: bool) -> None:
    x, w = drawn(0, (32, 16), jnp.bfloat16), drawn(1, (16, 24), jnp.bfloat16)
    run = jax.jit(jax.shard_map(gemm, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"), check_vma=check))
    y = run(x, w)
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, P("d")), 2)
    close(y, exact(x) @ exact(w))


def test_a_column_and_a_row_parallel_layer_and_their_gradients(mesh: Any) -> None:
    """The gradient of what all devices have is the sum of theirs."""
    x, up, down = drawn(0, (16, 16), jnp.bfloat16), drawn(1, (16, 32), jnp.bfloat16) / 4, drawn(2, (32, 16), jnp.bfloat16) / 4

    def layers(x: Any, up: Any, down: Any) -> Any:
        return gemm(gemm(x, up, activation="silu"), down, out_dtype=jnp.float32)

    whole = layers(x, up, down)
    split = jax.shard_map(lambda x, up, down: jax.lax.psum(layers(x, up, down), "d"), mesh=mesh, in_specs=(P(), P(None, "d"), P("d")),
                          out_specs=P())
    close(jax.jit(split)(x, up, down), exact(whole), 1e-5)
    found, wanted = (jax.jit(jax.grad(lambda *given, of=of: jnp.square(of(*given)).sum(), (0, 1, 2)))(x, up, down)
                     for of in (split, layers))
    for one, other in zip(found, wanted, strict=True):
        close(one, exact(other), 2 * ROUNDED)


def test_sharded_arguments_outside_of_shard_map_are_gathered(mesh: Any) -> None:
    x, w = drawn(0, (32, 16), jnp.bfloat16), drawn(1, (16, 24), jnp.bfloat16)
    close(jax.jit(gemm)(jax.device_put(x, NamedSharding(mesh, P("d"))), jax.device_put(w, NamedSharding(mesh, P()))), exact(x) @ exact(w))


@GRADIENTS
def test_gradients_are_divided_as_their_arguments_on_a_mesh_with_explicit_axes(mesh: Any, function: Any, floats: list[Any],
                                                                               integers: list[Any]) -> None:
    explicit = jax.make_mesh((DEVICES,), ("d",), axis_types=(AxisType.Explicit,), devices=mesh.devices.flatten())

    def split(each: Any, first: bool = False) -> Any:
        """Along the first extent that can be, or the last."""
        axes = [axis for axis, extent in enumerate(each.shape) if extent % DEVICES == 0]
        at = axes[0 if first else -1] if axes else None
        return jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=NamedSharding(explicit, P(*("d" if axis == at else None
                                                                                                 for axis in range(len(each.shape))))))

    def loss(*given: Any) -> Any:
        return sum(each.astype(jnp.float32).sum() for each in jax.tree.leaves(function(*given)))

    with jax.set_mesh(explicit):
        for first in (True, False):
            given = [split(each, first) for each in (*floats, *integers)]
            found = jax.jit(jax.grad(loss, tuple(range(len(floats))))).trace(*given).out_info
            assert [each.sharding.spec for each in found] == [each.sharding.spec for each in given[:len(floats)]]


def test_a_divided_batch_of_products_on_a_mesh_with_explicit_axes(mesh: Any) -> None:
    explicit = jax.make_mesh((DEVICES,), ("d",), axis_types=(AxisType.Explicit,), devices=mesh.devices.flatten())
    x, w = drawn(0, (2, 8, 16), jnp.bfloat16), drawn(1, (16, 24), jnp.bfloat16)
    with jax.set_mesh(explicit):
        found = jax.jit(jax.grad(lambda x: jax.vmap(lambda x: gemm(x, w))(x).astype(jnp.float32).sum()))(jax.device_put(x, P("d")))
    assert found.sharding.spec == P("d", None, None)
    close(found, np.broadcast_to(exact(w).sum(1), (2, 8, 16)))


def test_a_program_may_end_before_its_products() -> None:
    program = """
import jax, jax.numpy as jnp
import ptxkit.jax
with ptxkit.jax.cpu_device():
    run = jax.jit(lambda x: [x := ptxkit.jax.gemm(x, x) for _ in range(50)][-1])
    run(jnp.ones((64, 64), jnp.float16))
print("end")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr[-2000:]
