"""What is wrong is said in one sentence, when the product is traced where that is possible."""

from __future__ import annotations

import ctypes
import inspect
import os
from pathlib import Path
from typing import Any

import pytest

from ptxkit.errors import LaunchError, PtxkitError
from ptxkit.gemm.tools.bench import stub
from ptxkit.settings import Settings
from tests.conftest import why_no_gpu
from tests.jax import wanted

jax = wanted(__name__)

import jax.numpy as jnp  # noqa: E402

import ptxkit.jax  # noqa: E402
from ptxkit.jax import (  # noqa: E402
    attention,
    combine,
    cpu,
    cpu_device,
    gated_gemm,
    gemm,
    grouped_gemm,
    handler,
    plans,
    product,
    scaled_gemm,
    scaled_grouped_gemm,
    weight_gradient,
)
from tests.jax.test_dense import drawn  # noqa: E402

A, W = drawn(0, (8, 16), jnp.bfloat16), drawn(1, (16, 24), jnp.bfloat16)
X, E, OFFS = drawn(2, (8, 16), jnp.bfloat16), drawn(3, (2, 24, 16), jnp.bfloat16), jnp.asarray([3, 8], jnp.int32)
HEADS, PLACE = drawn(5, (1, 5, 3, 64), jnp.bfloat16), jnp.asarray([[0, 1], [2, 3], [4, 5], [6, 7]], jnp.int32)
ONE = jnp.ones(1, jnp.float32)
NEEDED = {
    gemm: {"a": A, "b": W}, scaled_gemm: {"a": A, "b": W, "scale_a": ONE, "scale_b": ONE}, gated_gemm: {"a": A, "b": W},
    grouped_gemm: {"a": X, "b": E, "offs": OFFS}, scaled_grouped_gemm: {"a": X, "b": E, "scale_a": ONE, "scale_b": ONE, "offs": OFFS},
    combine: {"y": X, "place": PLACE}, weight_gradient: {"a": X, "b": X, "offs": OFFS}, attention: {"q": HEADS, "k": HEADS, "v": HEADS},
}
"""The arguments without defaults of each function of arrays."""
Q, ONE = drawn(4, (8, 128), jnp.float8_e4m3fn), jnp.ones(1)
WRONG: dict[str, tuple[Any, str]] = {
    "shapes": (lambda: gemm(A, W.T), r"a has shape \(8, 16\) and b \(24, 16\): a is \[M, K\] and b \[K, N\]"),
    "types": (lambda: gemm(A, W.astype(jnp.float16)), "a has elements of bf16 and b of f16"),
    "complex": (lambda: gemm(A.astype(jnp.complex64), W), "a has elements of complex64: a product has float16"),
    "a number": (lambda: gemm(jnp.ones(()), W), "a is a number"),
    "a turned vector": (lambda: gemm(A[0], W, transpose_a=True), "a is a vector, and transpose_a says"),
    "bias": (lambda: gemm(A, W, jnp.ones(3)), r"bias has shape \(3,\): it is \(24,\)"),
    "residual": (lambda: gemm(A, W, residual=A), r"residual has shape \(8, 16\)"),
    "activation": (lambda: gemm(A, W, activation="tanh"), "activation='tanh': it is one of relu, gelu, silu; apply"),
    "alpha": (lambda: jax.jit(lambda alpha: gemm(A, W, alpha=alpha))(2.0), "alpha is .*Tracer: it is a number that is known"),
    "out_dtype": (lambda: gemm(A, W, out_dtype=jnp.int8), "out_dtype"),
    "scales": (lambda: scaled_gemm(Q, Q.T, jnp.ones(3), ONE), r"a_scale has shape \(3,\)"),
    "no fp8 and scales of rows": (lambda: scaled_gemm(A, W, jnp.ones(8), ONE), "are those of fp8 operands"),
    "a gradient of fp8": (lambda: jax.grad(lambda q: scaled_gemm(q, Q.T, ONE, ONE).astype(jnp.float32).sum())(Q),
                          "scaled_gemm has no gradients: multiply dequantised operands with gemm"),
    "a gradient of fp8 groups": (lambda: jax.grad(lambda q: scaled_grouped_gemm(q, Q[None], ONE, ONE, OFFS[1:], transpose_b=True).astype(
        jnp.float32).sum())(Q), "scaled_grouped_gemm has no gradients"),
    **{f"a gradient of fp8 {name}": (lambda call=call, transform=transform: transform(lambda q: call(q).sum())(Q),
                                     f"{what} has operands of float8_e4m3fn, and there are gradients of float32, bfloat16 and float16")
       for name, what, call, transform in (
           ("products", "gemm", lambda q: gemm(q, Q.T, out_dtype=jnp.float32), jax.grad),
           ("products under jit", "gemm", lambda q: gemm(q, Q.T, out_dtype=jnp.float32), lambda f: jax.jit(jax.grad(f))),
           ("second operands", "gemm", lambda q: gemm(Q.T, q, out_dtype=jnp.float32), jax.grad),
           ("biases", "gemm", lambda q: gemm(Q, Q.T, q[0].astype(jnp.float32), out_dtype=jnp.float32), jax.grad),
           ("batches", "gemm", lambda q: gemm(q, Q.T, out_dtype=jnp.float32),
            lambda f: lambda q: jax.vmap(jax.grad(f))(jnp.stack([q, q]))),
           ("tangents", "gemm", lambda q: gemm(q, Q.T, out_dtype=jnp.float32), lambda f: lambda q: jax.jvp(f, (q,), (q,))),
           ("gates", "gated_gemm", lambda q: gated_gemm(q, Q.T, out_dtype=jnp.float32), jax.grad),
           ("grouped rows", "grouped_gemm", lambda q: grouped_gemm(q, Q[None], OFFS[1:], transpose_b=True, out_dtype=jnp.float32),
            jax.grad))},
    "a gradient of an fp8 result": (lambda: jax.grad(lambda a: gemm(a, W, out_dtype=Q.dtype).astype(jnp.float32).sum())(A),
                                    "gemm has a result of float8_e4m3fn, whose gradient would be rounded to 8 bits: take another"),
    "fp8 results of groups": (lambda: grouped_gemm(X, E, OFFS, transpose_b=True, out_dtype=Q.dtype), "out_dtype is float8_e4m3fn: results"),
    "fp8 results of gates": (lambda: gated_gemm(A, W, out_dtype=Q.dtype), "take bfloat16, float16 or float32 here"),
    **{f"{name} of {function.__name__}": (lambda function=function, name=name: function(**NEEDED[function], **{name: jnp.ones(2)}),
                                          f"{name}=Array.*: it is True or False")
       for function in NEEDED for name, parameter in inspect.signature(function).parameters.items()
       if isinstance(parameter.default, bool) and function is not attention},
    "a word for a flag": (lambda: gemm(A, W, transpose_b="no"), "transpose_b='no': it is True or False"),
    "a word for alpha": (lambda: gemm(A, W, alpha="2"), "alpha is str: it is a number"),
    "beyond f32": (lambda: gemm(A, W, alpha=10 ** 400), r"alpha=1000.*: it is a number as f32 has it"),
    "no out_dtype": (lambda: weight_gradient(A, A, OFFS, out_dtype=3), "out_dtype=3: the result is f16"),
    "activations": (lambda: gemm(A, W, activation=["relu"]), r"activation=\['relu'\]: it is one of"),
    "a key": (lambda: gemm(jax.random.key(0), W), r"a has elements of key<fry>, such as keys of jax\.random"),
    "a word for platforms": (lambda: ptxkit.jax.export(gemm, platforms="cpu"), "platforms='cpu': products run on these"),
    "a number of platforms": (lambda: ptxkit.jax.export(gemm, platforms=3), "platforms=3: products run on these"),
    "lists of platforms": (lambda: ptxkit.jax.export(gemm, platforms=[["cpu"]]), r"platforms=\[\[.cpu.\]\]: products run on these"),
    "no platform": (lambda: ptxkit.jax.export(gemm, platforms=[]), r"platforms=\[\]: products run on these"),
    "a word for check": (lambda: ptxkit.jax.cpu_device(check="no").__enter__(), "check"),
    "another platform": (lambda: ptxkit.jax.export(gemm, platforms=["tpu"]), "given as a sequence: cpu, cuda"),
    "groups of matrices": (lambda: grouped_gemm(X, E[0], OFFS), r"groups of rows are a \[M, K\] and b \[G, K, N\]"),
    "too few offs": (lambda: grouped_gemm(X, E, OFFS[:1], transpose_b=True), r"offs has shape \(1,\): for 2 groups it is \(2,\)"),
    "offs of another type": (lambda: grouped_gemm(X, E, OFFS.astype(jnp.float32), transpose_b=True),
                             "offs has elements of float32: it must be int32"),
    "groups' activation": (lambda: grouped_gemm(X, E, OFFS, activation="silu"), "it is 'silu_and_mul' or None"),
    "groups of f32": (lambda: grouped_gemm(X.astype(jnp.float32), E.astype(jnp.float32), OFFS, transpose_b=True), "x has elements of f32"),
    "rows along K": (lambda: weight_gradient(X, X[:3], OFFS), "as many in a as in b"),
    "offs along K": (lambda: weight_gradient(X, X, OFFS.astype(jnp.float32)), "offs has elements of float32: it must be int32"),
    "fp8 along K": (lambda: weight_gradient(Q, Q, OFFS), "a has elements of e4m3"),
    "numbers of rows": (lambda: grouped_gemm(X, E, OFFS, transpose_b=True, gather=jnp.ones(4)), r"gather is float32 \(4,\): it is int32"),
    "back alone": (lambda: grouped_gemm(X, E, OFFS, transpose_b=True, back=PLACE), "back says which rows .* give gather as well"),
    "another back": (lambda: grouped_gemm(X, E, OFFS, transpose_b=True, gather=PLACE[:, 0], back=PLACE),
                     r"back is int32 \(4, 2\): it is int32 \[8, choices of a row\]"),
    "places": (lambda: combine(X, PLACE.astype(jnp.float32)), "place has elements of f32"),
    "places of no rows": (lambda: combine(X, PLACE[0]), r"place has shape \(2,\): it is int32 \[rows of the result, choices"),
    "weights": (lambda: combine(X, PLACE, jnp.ones(4)), r"weights has shape \(4,\)"),
    "a sum's back": (lambda: combine(X, PLACE, back=PLACE), r"the choices that take each row of y, -1 for none"),
    "sums of fp8": (lambda: combine(Q, PLACE), "y has elements of e4m3"),
    "a head dim": (lambda: attention(HEADS[..., :32], HEADS[..., :32], HEADS[..., :32]), "q has head dim 32: attention takes 64, 128"),
    "heads": (lambda: attention(HEADS, HEADS[:, :, :2], HEADS[:, :, :2]), "q has 3 heads and k 2: the heads of k divide those of q"),
    "ranks": (lambda: attention(HEADS[0], HEADS[0], HEADS[0]), r"q has shape \(5, 3, 64\): attention takes \[B, S, H, D\]"),
    "other values": (lambda: attention(HEADS, HEADS, HEADS[:, :4]), r"k has shape .* and v .*: they have one shape"),
    "attention of f32": (lambda: attention(*(HEADS.astype(jnp.float32),) * 3), "q has elements of f32: q, k, v and out are all bf16"),
    "a negative scale": (lambda: attention(HEADS, HEADS, HEADS, scale=-1.0), "scale is -1.0: .* so scale is positive"),
    "a traced scale": (lambda: jax.jit(lambda s: attention(HEADS, HEADS, HEADS, scale=s))(1.0), "scale is an array that jax traces"),
    "a mask": (lambda: attention(HEADS, HEADS, HEADS, is_causal=jnp.ones((5, 5))), "is_causal has the type .*attention has no other masks"),
    "cu_seqlens": (lambda: attention(HEADS[0], HEADS[0], HEADS[0], cu_seqlens=jnp.ones(3)), "cu_seqlens has elements of float32"),
}


@pytest.mark.parametrize("case", WRONG)
def test_one_sentence(case: str) -> None:
    call, sentence = WRONG[case]
    with cpu_device(), pytest.raises(LaunchError, match=sentence) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("call", NEEDED, ids=lambda call: call.__name__)
@pytest.mark.parametrize("wrong", [None, "x", object(), [[1.0], [1.0, 2.0]]], ids=["None", "text", "object", "ragged"])
def test_what_is_no_array_is_named(call: Any, wrong: Any) -> None:
    """Every argument of every function that has no default."""
    given = NEEDED[call]
    assert set(given) == {name for name, one in inspect.signature(call).parameters.items() if one.default is inspect.Parameter.empty}
    kind = "None" if wrong is None else type(wrong).__name__
    for name in given:
        with pytest.raises(LaunchError, match=f"^{name} is {kind}: it must be an array$"):
            call(**{**given, name: wrong})


def test_the_functions_of_arrays_are_all_asked() -> None:
    assert {call.__name__ for call in NEEDED} == set(ptxkit.jax.__all__) - {"cpu_device", "deserialize", "export"}


def test_arrays_on_the_cpu_are_refused_outside_of_blocks() -> None:
    compiled = jax.jit(gemm)
    with jax.default_device(jax.devices("cpu")[0]):
        a, w = jnp.asarray(A), jnp.asarray(W)
        with cpu_device():
            gemm(a, w)
            compiled(a, w)
        for run in (gemm, compiled):
            with pytest.raises(LaunchError, match=r"on the CPU: .* inside `with ptxkit\.jax\.cpu_device\(\):`"):
                run(a, w)


KINDS = (ValueError, jax.errors.JaxRuntimeError)       # of a program that runs within the call, and of one that does not


def test_a_failure_on_the_cpu_device_is_xlas_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str, pointers: Any) -> None:
        raise LaunchError("the kernel failed")

    monkeypatch.setattr(cpu, "run", fails)
    with jax.default_device(jax.devices("cpu")[0]), cpu_device(), pytest.raises(KINDS, match="the kernel failed"):
        gemm(A, W).block_until_ready()


# ----------------------------------------------------------------------------------------------------------- the C file


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(handler, "settings", lambda: Settings(tmp_path / "cache"))
    return tmp_path / "cache" / "jax"


def test_the_c_file_is_built_once_and_without_warnings(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "FLAGS", (*handler.FLAGS, "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"))
    path = handler.build(cache)
    assert [each.name for each in cache.iterdir()] == [path.name]
    assert (cache.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o700)
    assert ctypes.CDLL(str(path)).ptxkit_jax_cuda
    built: list[Path] = []
    monkeypatch.setattr(handler, "_compile", lambda compiler, include, path: built.append(path))
    assert (handler.build(cache), built) == (path, [])
    path.chmod(0o722)                                       # others may have written to it
    assert (handler.build(cache), built) == (path, [path])


@pytest.mark.parametrize(("given", "sentence"), [
    ("", "ptxkit.jax compiles a C file at its first use, and cc, gcc and clang are not there: install a C compiler, or name one in CC"),
    ("no-compiler -m64", "ptxkit.jax compiles a C file at its first use, and CC='no-compiler -m64' is no command: install a C compiler, or "
                         "name one in CC")])
def test_a_missing_compiler_is_one_sentence(cache: Path, monkeypatch: pytest.MonkeyPatch, given: str, sentence: str) -> None:
    monkeypatch.setenv("CC", given)
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(LaunchError) as error:
        handler.build(cache)
    assert str(error.value) == sentence
    assert not cache.exists()


def test_where_the_cache_cannot_be_written_to_the_library_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert handler.kept_in() == cache
    monkeypatch.setattr(handler.os, "access", lambda folder, mode: (folder, mode) != (cache, os.W_OK))
    assert handler.kept_in() is None

    def refused(folder: Path, below: Path | None) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.undo()
    monkeypatch.setattr(handler, "settings", lambda: Settings(cache.parent))
    monkeypatch.setattr(handler, "make_folder", refused)
    assert handler.kept_in() is None
    monkeypatch.setattr(handler, "settings", lambda: Settings(None))
    assert handler.kept_in() is None


def test_a_compiler_that_fails_is_one_sentence(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "handler.c"
    source.write_text("int f(void) { return nothing; }\n")
    monkeypatch.setattr(handler, "SOURCE", source)
    with pytest.raises(LaunchError, match=r"does not compile the C file of ptxkit\.jax: .*nothing.*; name another compiler in CC") as error:
        handler.build(cache)
    assert "\n" not in str(error.value)
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(not why_no_gpu(), reason="there is a driver")
def test_without_a_driver_a_gpus_product_is_one_sentence() -> None:
    """When it is lowered for a GPU; and from the C file, where a program that was compiled elsewhere runs."""
    with pytest.raises(PtxkitError) as error:
        jax.export.export(jax.jit(gemm), platforms=["cuda"])(A, W)
    assert "\n" not in str(error.value)
    said, message = b'{"kind": "dense", "arrays": [], "options": {}, "clears": false, "checked": false}', ctypes.create_string_buffer(2048)
    apart, found = (ctypes.c_uint8 * plans.MOST_BUFFERS)(), ctypes.c_void_p()
    assert handler.prepare(ctypes.cast(said, ctypes.c_void_p), len(said), 0, ctypes.cast(apart, ctypes.c_void_p), ctypes.byref(found),
                           ctypes.cast(message, ctypes.c_void_p)) == 1
    assert message.value.decode() == str(error.value)
    assert called_on_the_cpu(A, W).endswith(str(error.value))


def called_on_the_cpu(a: Any, w: Any, workspace: int = 0) -> str:
    """What the handler of a GPU answers where XLA has no stream of one."""
    target, out = "ptxkit_jax_product_of_a_gpu", jax.ShapeDtypeStruct((a.shape[0], w.shape[1]), a.dtype)
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler.load().ptxkit_jax_cuda), platform="cpu")
    said = product.words(product.Product("dense", ("a", "b"), "bf16"), (a, w))
    results = [out, *([jax.ShapeDtypeStruct((workspace,), jnp.uint8)] if workspace else [])]
    with jax.default_device(jax.devices("cpu")[0]), pytest.raises(KINDS) as error:
        jax.block_until_ready(jax.jit(lambda a, w: jax.ffi.ffi_call(target, results)(a, w, call=said))(jnp.asarray(a), jnp.asarray(w)))
    return str(error.value).split("\n-----")[0]


@pytest.mark.ptxas
def test_the_handler_of_a_gpu_has_a_plan_before_it_has_a_stream() -> None:
    """By a driver that does nothing: a product without a workspace comes as far as XLA's stream, one with it says what it lacks."""
    deep, narrow = drawn(5, (8, 32768), jnp.bfloat16), drawn(6, (32768, 128), jnp.bfloat16)
    with stub.installed():
        plans.plan.cache_clear()
        assert "GPU context is not available" in called_on_the_cpu(A, W)
        lacks = called_on_the_cpu(deep, narrow)
        needs = plans.known(product.words(product.Product("dense", ("a", "b"), "bf16"), (deep, narrow))).workspace_bytes
        assert f"this product needs a workspace of {needs} bytes on device 0 and has 0: it was compiled for another device" in lacks
        assert f"and has {needs - 1}:" in called_on_the_cpu(deep, narrow, needs - 1)
        assert "GPU context is not available" in called_on_the_cpu(deep, narrow, needs)
    plans.plan.cache_clear()
