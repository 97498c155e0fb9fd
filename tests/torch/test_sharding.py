"""DTensors: two processes with the rules of the operators, and what the rules say without any."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.test_docs import ROOT
from tests.torch import wanted

torch = wanted(__name__)

pytestmark = [pytest.mark.timeout(300),
              pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")]

NAMES = ["two_matrices_are_divided_as_by_torch_mm", "what_is_added_is_divided_as_the_result_is", "a_rule_looks_at_all_arguments",
         "batches_and_vectors", "fp8_with_scales", "layers_under_parallelize_module", "sequences_with_whole_weights",
         "meshes_of_two_extents", "under_autocast_and_inference_mode", "refusals_are_one_sentence"]


def ran(*arguments: str) -> Any:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


FEW = [name for name in NAMES if name not in ("what_is_added_is_divided_as_the_result_is", "batches_and_vectors", "fp8_with_scales")]


@pytest.mark.parametrize(("where", "names"), [(("--cpu", "--gradients-of-every", "4"), FEW),
                                              pytest.param(("--cpu",), NAMES, marks=pytest.mark.sweep),
                                              pytest.param((), NAMES, marks=pytest.mark.gpu)], ids=["few", "cpu", "cuda"])
def test_two_processes(where: tuple[str, ...], names: list[str]) -> None:
    if not where and torch.cuda.device_count() < 2:
        pytest.skip(f"torch sees {torch.cuda.device_count()} GPU")
    done = ran("-m", "tests.torch.sharded", *where, *names)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == [f"{name}: as whole ones" for name in names]


FORK = """
import os, sys, torch
for number, program in enumerate(sys.argv[2:]):
    if os.fork() == 0:
        for stream in (1, 2):
            os.dup2(os.open(f"{sys.argv[1]}/{number}.{stream}", os.O_WRONLY | os.O_CREAT), stream)
        exec(program, {})
        sys.exit()
    os.wait()
"""
RULED = """
from torch.distributed.tensor import DTensor
print(before, torch.ops.ptxkit.gemm.default in DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs)
"""
PROGRAMS = {
    "before": f"""
import sys, torch, ptxkit.torch
before = 'torch.distributed.tensor' in sys.modules
import torch.distributed.tensor
{RULED}""",
    "after": f"""
import torch.distributed.tensor, ptxkit.torch
before = False
{RULED}""",
    "no rule": """
import torch
import torch.distributed.tensor._op_schema as schema
del schema.RuntimeSchemaInfo
import ptxkit.torch
from torch.distributed.tensor import DTensor
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
mesh = torch.distributed.init_device_mesh("cpu", (1,))
a = DTensor.from_local(torch.zeros(8, 8, dtype=torch.bfloat16), mesh)
try:
    torch.ops.ptxkit.gemm(a, a)
except Exception as error:
    print(type(error).__name__, error)
"""}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each program says on its two streams, in a child of one process that has imported torch alone."""
    folder = tmp_path_factory.mktemp("said")
    done = ran("-c", FORK, str(folder), *PROGRAMS.values())
    assert done.returncode == 0, done.stderr
    return {name: [(folder / f"{number}.{stream}").read_text(encoding="utf-8") for stream in (1, 2)]
            for number, name in enumerate(PROGRAMS)}


@pytest.mark.parametrize("name", ["before", "after"])
def test_rules_come_with_the_module_that_uses_them(said: dict[str, list[str]], name: str) -> None:
    """Importing ptxkit.torch does not import it; whichever is imported first, the operators then have their rules."""
    assert said[name][0] == "False True\n", said[name][1]


def test_a_torch_that_takes_no_rule_still_imports(said: dict[str, list[str]]) -> None:
    """What tells torch a rule is experimental. Without it the operators refuse DTensors, and a line of the log says why."""
    out, log = said["no rule"]
    assert out.startswith("LaunchError an argument of gemm is a DTensor, and gemm has no rule that divides it"), log
    assert "takes no rule that divides ptxkit::gemm among devices; the operator refuses DTensors: cannot import name" in log


def test_an_action_follows_an_import_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxkit.torch.sharding import when_imported

    (tmp_path / "late_one.py").write_text("made = []\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    when_imported("late_one", lambda: sys.modules["late_one"].made.append("after"))
    assert "late_one" not in sys.modules
    assert importlib.import_module("json") is not None
    module = importlib.import_module("late_one")
    assert (module.made, sys.meta_path) == (["after"], finders)
    when_imported("late_one", lambda: module.made.append("now"))
    assert module.made == ["after", "now"]
    when_imported("late_two", lambda: module.made.append("never"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("late_two")
    assert (module.made, sys.meta_path) == (["after", "now"], finders)


def spec(*shape: int, size: int = 2) -> Any:
    """What a rule sees of a tensor."""
    return SimpleNamespace(shape=shape, ndim=len(shape), placements=(), mesh=SimpleNamespace(size=lambda: size))


@pytest.mark.parametrize(("m", "n", "k", "scale_a", "scale_b", "divided"), [
    (8, 512, 512, (8, 4), (4, 4), {"m", "n", "k"}), (8, 384, 512, (8, 4), (4, 3), {"m", "k"}), (8, 512, 384, (8, 3), (3, 4), {"m", "n"}),
    (8, 384, 384, (8, 3), (3, 3), {"m"}), (8, 64, 64, (8, 1), (1, 1), {"m"}), (8, 384, 384, (8, 1), (1, 384), {"m", "n", "k"}),
    (8, 384, 384, (1,), (1,), {"m", "n", "k"})])
def test_blocks_are_not_divided(m: int, n: int, k: int, scale_a: tuple[int, ...], scale_b: tuple[int, ...], divided: set[str]) -> None:
    from torch.distributed.tensor import Partial, Shard

    from ptxkit.torch.sharding import scaled_gemm

    ways = scaled_gemm(spec(m, k), spec(k, n), spec(*scale_a), spec(*scale_b))
    found = {"m": Shard(0), "n": Shard(1), "k": Partial()}
    results = [of_result for (of_result,), (a, b, *_) in ways if not (a.is_partial() or b.is_partial())]
    assert {extent for extent, place in found.items() if place in results} == divided
    for (of_result,), (a, b, of_a, of_b, *_) in ways:
        if of_result.is_shard(1):
            assert (of_a.is_replicate(), of_b.is_shard()) == (True, len(scale_b) == 2 and scale_b[1] > 1)
        if a.is_shard(1):
            assert b.is_shard(0)
            assert of_a.is_shard(1) == (len(scale_a) == 2 and scale_a[1] > 1)


@pytest.mark.parametrize(("n", "k", "scale", "divided"), [
    (512, 512, (4, 8, 4), {0, 1, 2}), (512, 384, (4, 8, 3), {0, 1}), (512, 400, (4, 8, 4), {0, 1}), (512, 512, (32, 4), set())])
def test_blocks_of_a_batch_are_not_divided(n: int, k: int, scale: tuple[int, ...], divided: set[int]) -> None:
    """Halves of K = 400 have two scales of four each, and those are not theirs."""
    from ptxkit.torch.sharding import scaled_gemm

    ways = scaled_gemm(spec(4, 8, k), spec(k, n), spec(*scale), spec(-(-k // 128), 4))
    found = {a.dim: of_a for _, (a, b, of_a, *_) in ways if a.is_shard()}
    assert found.keys() == divided
    assert all(of_a.is_shard(axis) for axis, of_a in found.items())


@pytest.mark.parametrize(("scale", "axes"), [((4, 8), {0: 0, 1: 1}), ((4, 8, 1), {0: 0, 1: 1}), ((32,), {}), ((32, 1), {}),
                                             ((1,), {0: None, 1: None})], ids=str)
def test_scales_of_the_rows_of_a_batch(scale: tuple[int, ...], axes: dict[int, int | None]) -> None:
    """They are divided with the rows, or nothing is; one scale is everywhere."""
    from ptxkit.torch.sharding import scaled_gemm

    ways = scaled_gemm(spec(4, 8, 16), spec(16, 16), spec(*scale), spec(1))
    found = {a.dim: getattr(of_a, "dim", None) for _, (a, b, of_a, *_) in ways if a.is_shard() and a.dim < 2}
    assert found == axes
