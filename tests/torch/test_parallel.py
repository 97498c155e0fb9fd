"""The examples of several GPUs: two processes, each compared with one device. What docs/parallel.md shows is printed."""

from __future__ import annotations

import runpy
import shlex
import subprocess
import sys
from typing import Any

import pytest

from tests.test_docs import ROOT, blocks
from tests.test_export_page import agrees
from tests.test_prove_page import shown
from tests.torch import wanted

torch = wanted(__name__)

PAGE = ROOT / "docs" / "parallel.md"
STEPS = [step for block in blocks(PAGE) if block.language == "text" for step in shown(block.text)]

pytestmark = [pytest.mark.timeout(200),
              pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")]


def ran(*arguments: str) -> Any:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("command", "output"), STEPS, ids=[command.split()[2] for command, _ in STEPS])
def test_a_command_prints_what_the_page_shows(command: str, output: str) -> None:
    python, *arguments = shlex.split(command)
    assert python == "python"
    done = ran(*arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    assert agrees(output.splitlines(), done.stdout.splitlines()), done.stdout


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["tensor_parallel", "expert_parallel"])
def test_two_gpus(name: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"torch sees {torch.cuda.device_count()} GPU")
    done = ran("-m", f"examples.{name}", "--repeats", "3")
    assert done.returncode == 0, done.stderr[-4000:]
    assert all("as on one, gradients too" in line for line in done.stdout.splitlines())


@pytest.mark.skipif(torch.cuda.device_count() >= 99, reason="there are as many GPUs")
def test_too_few_gpus_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends with it, so that its status is 1."""
    monkeypatch.setattr(sys, "argv", ["tensor_parallel", "--processes", "99"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("examples.tensor_parallel", run_name="__main__")
    assert end.value.code == (f"99 processes need as many GPUs, and torch sees {torch.cuda.device_count()}: give --processes, or "
                              "--cpu for small shapes on the CPU device")


def test_a_wrong_part_is_noticed() -> None:
    """By the comparison with one device, of which all the examples' lines depend."""
    from examples.ranks import apart, worst

    one = torch.ones(4)
    assert apart(one, one) == 0
    with pytest.raises(AssertionError, match=r"'y': 0\.5"):
        worst({"y": apart(one * 1.5, one)}, 2.0 ** -7, one.device)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gemm", "gemm, all fused", "grouped_gemm", "grouped_gemm, along K", "scaled_gemm, blocks", "combine"])
def test_a_gpu_that_is_not_current_gives_the_same_bits(name: str) -> None:
    """Forward and backward, on the stream of the tensors' own device."""
    from tests.torch.test_operators import calls, ops

    if torch.cuda.device_count() < 2:
        pytest.skip(f"torch sees {torch.cuda.device_count()} GPU")
    found, (operator, of_cpu, by_name, _) = [], calls("cpu")[name]
    for device in ("cuda:0", "cuda:1"):
        def there(each: Any, device: str = device) -> Any:
            return each.detach().to(device).requires_grad_(each.requires_grad) if isinstance(each, torch.Tensor) else each

        given, named = [there(each) for each in of_cpu], {key: there(value) for key, value in by_name.items()}
        leaves = [each for each in (*given, *named.values()) if isinstance(each, torch.Tensor) and each.is_leaf and each.requires_grad]
        y = getattr(ops, operator)(*given, **named)
        assert y.device == torch.device(device)
        found.append([y, *(torch.autograd.grad(y, leaves, torch.ones_like(y)) if leaves else ())])
    assert torch.cuda.current_device() == 0
    assert all(torch.equal(one.cpu(), other.cpu()) for one, other in zip(*found, strict=True))
