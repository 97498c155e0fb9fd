"""The product with a gate and its gradients beside float64 of the same rounded operands, under jax's transforms, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit.errors import LaunchError
from tests.jax import wanted

jax = wanted(__name__)

import jax.numpy as jnp  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from ptxkit.jax import gated_gemm, gemm, grouped_gemm  # noqa: E402
from tests.jax.oracle import activated, exact, near, sums, unit  # noqa: E402
from tests.jax.test_dense import drawn  # noqa: E402
from tests.jax.test_groups import SLOPE  # noqa: E402
from tests.jax.test_transforms import ROUNDED, close, mesh  # noqa: E402, F401


def beside(a: Any, w: Any) -> Any:
    """silu(gate) * up in float64; w is [2 N, K]."""
    gate, up = np.split(exact(a) @ exact(w).T, 2, -1)
    return activated("silu", gate)[0] * up


@pytest.mark.parametrize(("shape", "columns"), [((2, 8, 32), 24), ((5,), 3), ((3, 1, 7, 13), 20)], ids=str)
@pytest.mark.parametrize("turned", [True, False], ids=["transpose_b", "plain"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=["bf16", "f16"])
@pytest.mark.thinned(4)
def test_the_gate_and_its_gradients(device: Any, shape: tuple[int, ...], columns: int, turned: bool, dtype: Any) -> None:
    k = shape[-1]
    a, w = drawn(0, shape, dtype), drawn(1, (2 * columns, k), dtype) / 4
    dy = drawn(2, (*shape[:-1], columns), dtype)
    given = w if turned else w.T
    y, back = jax.vjp(jax.jit(lambda a, b: gated_gemm(a, b, transpose_b=turned)), a, given)
    da, db = back(dy)
    assert (da.shape, db.shape) == (a.shape, given.shape)
    x, z, g = exact(a).reshape(-1, k), exact(w), exact(dy).reshape(-1, columns)
    of, size = x @ z.T, np.abs(x) @ np.abs(z).T
    off = sums(k, dtype) * size + 4e-6
    (gate, up), (gate_off, up_off) = np.split(of, 2, 1), np.split(off, 2, 1)
    value, slope = activated("silu", gate)
    near(y.reshape(-1, columns), value * up, SLOPE * gate_off * (np.abs(up) + up_off) + np.abs(value) * up_off + 4e-6 * np.abs(up), dtype)
    dz = np.concatenate([g * up * slope, g * value], 1)
    rounded = 2 * unit(dtype) * np.abs(dz) + 1e-3 * np.abs(np.tile(g, 2)) * (1 + np.abs(of))
    near(da.reshape(-1, k), dz @ z, rounded @ np.abs(z), dtype)
    near(db if turned else db.T, dz.T @ x, rounded.T @ np.abs(x) + 1e-6, dtype)


def test_a_batch_of_rows_is_one_product(device: Any) -> None:
    """Under vmap over a alone; mapped weights are products one after another; and gradients of either."""
    a, w = drawn(0, (3, 8, 16), jnp.bfloat16), drawn(1, (3, 24, 16), jnp.bfloat16) / 4
    mapped = jax.vmap(lambda a: gated_gemm(a, w[0], transpose_b=True))
    text = str(jax.make_jaxpr(mapped)(a))
    assert text.count("ptxkit_product") == 1
    assert "scan" not in text
    close(mapped(a), beside(a, w[0]), 2 * ROUNDED)
    each = jax.vmap(lambda a, w: gated_gemm(a, w, transpose_b=True))(a, w)
    for found, x, of in zip(each, a, w, strict=True):
        assert (found == gated_gemm(x, of, transpose_b=True)).all()

    def loss(a: Any, w: Any) -> Any:
        return gated_gemm(a, w, transpose_b=True).astype(jnp.float32).sum()

    whole = jax.grad(lambda a: jax.vmap(loss, (0, None))(a, w[0]).sum())(a)
    one_by_one = jax.vmap(jax.grad(loss), (0, None))(a, w[0])
    assert (whole == one_by_one).all()


def test_gradients_of_gradients(device: Any) -> None:
    a, w = drawn(0, (8, 16), jnp.bfloat16), drawn(1, (8, 16), jnp.bfloat16) / 4

    def loss(product: Any) -> Any:
        return jax.grad(lambda a: jnp.square(jax.grad(lambda a: product(a).astype(jnp.float32).sum())(a).astype(jnp.float32)).sum())

    found = loss(lambda a: gated_gemm(a, w, transpose_b=True))(a)
    x, b = a.astype(jnp.float32), w.astype(jnp.float32)
    plain = loss(lambda a: jax.nn.silu(a @ b[:4].T) * (a @ b[4:].T))(x)
    close(found, np.asarray(plain, np.float64), 8 * ROUNDED)


def test_columns_of_the_gate_on_each_device(mesh: Any) -> None:  # noqa: F811
    """A feed-forward layer divided over its hidden features: gate and up of the same ones on each device."""
    a, down = drawn(0, (8, 16), jnp.bfloat16), drawn(2, (32, 16), jnp.bfloat16) / 4
    w = drawn(1, (2, 32, 16), jnp.bfloat16) / 4                                      # gate and up

    def layer(a: Any, w: Any, down: Any) -> Any:
        return gemm(gated_gemm(a, w.reshape(-1, 16), transpose_b=True), down, out_dtype=jnp.float32)

    split = jax.shard_map(lambda *given: jax.lax.psum(layer(*given), "d"), mesh=mesh, in_specs=(P(), P(None, "d"), P("d")), out_specs=P())
    close(jax.jit(split)(a, w, down), exact(layer(a, w, down)), 1e-5)
    found, wanted = (jax.jit(jax.grad(lambda *given, of=of: jnp.square(of(*given)).sum(), (0, 1, 2)))(a, w, down)
                     for of in (split, layer))
    for one, other in zip(found, wanted, strict=True):
        close(one, exact(other), 2 * ROUNDED)


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(device: Any, rows: int) -> None:
    a, w = drawn(0, (rows, 16), jnp.bfloat16), drawn(1, (24, 16), jnp.bfloat16)
    assert gated_gemm(a, w, transpose_b=True).shape == (rows, 12)
    assert jax.grad(lambda w: gated_gemm(a, w, transpose_b=True).astype(jnp.float32).sum())(w).shape == w.shape


def test_a_batch_of_nothing_and_no_jit(device: Any) -> None:
    w = drawn(1, (16, 24), jnp.bfloat16)
    for product, columns in ((gated_gemm, 12), (gemm, 24)):
        assert jax.vmap(product, (0, None))(drawn(0, (0, 4, 16), jnp.bfloat16), w).shape == (0, 4, columns)
        a = drawn(0, (4, 16), jnp.bfloat16)
        with jax.disable_jit():
            plain = product(a, w)
        assert (plain == product(a, w)).all()


def test_what_it_does_not_take_is_one_sentence(device: Any) -> None:
    a = drawn(0, (8, 16), jnp.bfloat16)
    for b, turned in (((15, 16), False), ((15, 16), True), ((16, 15), False), ((2, 16, 16), False), ((16,), True)):
        with pytest.raises(LaunchError, match="the gate and then the up projection") as error:
            gated_gemm(a, drawn(1, b, jnp.bfloat16), transpose_b=turned)
        assert "\n" not in str(error.value)
    with pytest.raises(LaunchError, match=r"float32|f32"):
        gated_gemm(a.astype(jnp.float32), drawn(1, (16, 16), jnp.float32))


def test_an_exported_program_runs_elsewhere(device: Any) -> None:
    """Its bytes name shapes and options, no kernel; and it has gradients."""
    from ptxkit.jax import deserialize, export

    a, w = drawn(0, (8, 16), jnp.bfloat16), drawn(1, (24, 16), jnp.bfloat16) / 4
    offs = jnp.asarray((3, 8), jnp.int32)

    def model(a: Any, w: Any) -> Any:
        x = gated_gemm(a, w, transpose_b=True)
        return grouped_gemm(jnp.pad(x, ((0, 0), (0, 4))), jnp.stack([w, w]), offs, transpose_b=True)

    made = export(model)(a, w)
    assert (made.call(a, w) == model(a, w)).all()
    pytest.importorskip("flatbuffers", reason="jax writes exported programs by flatbuffers: pip install flatbuffers")
    data = made.serialize(vjp_order=1)
    assert b"sm_90" not in data
    read = deserialize(data)
    found, wanted = (jax.vjp(run, a, w) for run in (read.call, model))
    assert (found[0] == wanted[0]).all()
    for one, other in zip(found[1](wanted[0]), wanted[1](wanted[0]), strict=True):
        assert (one == other).all()


def test_a_symbolic_shape_is_refused(device: Any) -> None:
    from ptxkit.jax import export

    (rows,) = jax.export.symbolic_shape("n")
    with pytest.raises(LaunchError, match=r"a has shape \(n, 16\), which is symbolic"):
        export(lambda a: gemm(a, a[:16]))(jax.ShapeDtypeStruct((rows, 16), jnp.bfloat16))
