"""Two linear layers over several GPUs: the columns of the first and the rows of the second on each, with one all-reduce each way.

    python -m examples.tensor_parallel                       # 2 GPUs, by NCCL; --processes N
    python -m examples.tensor_parallel --cpu                 # 2 processes on the CPU device, by gloo
    torchrun --nproc-per-node 2 -m examples.tensor_parallel
"""
from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist

from examples.ranks import Clock, apart, arguments, launch, say, worst

ops = torch.ops.ptxkit
WITHIN = 2.0 ** -7                                           # of bfloat16 sums whose parts are rounded


class Copy(torch.autograd.Function):
    """What every device has, as it is. Its gradient is the sum of the devices'."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, clock: Clock) -> torch.Tensor:
        ctx.clock = clock
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradient.contiguous()
        with ctx.clock.communication():
            dist.all_reduce(gradient)
        return gradient, None


class Sum(torch.autograd.Function):
    """The sum of the devices' parts. Its gradient is that of each part."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, clock: Clock) -> torch.Tensor:
        with clock.communication():
            dist.all_reduce(part)
        ctx.mark_dirty(part)
        return part

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class ColumnParallel(torch.nn.Module):
    """activation(x W^T) with the rows of W [features out, features in], the columns of the result, divided among the devices."""

    def __init__(self, weight: torch.Tensor, clock: Clock, activation: str | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.chunk(dist.get_world_size(), 0)[dist.get_rank()].clone())
        self.clock, self.activation = clock, activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.gemm(Copy.apply(x, self.clock), self.weight.T, activation=self.activation)


class RowParallel(torch.nn.Module):
    """x W^T with the columns of W, and of x, divided among the devices: the products of the parts are summed."""

    def __init__(self, weight: torch.Tensor, clock: Clock) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.chunk(dist.get_world_size(), 1)[dist.get_rank()].contiguous())
        self.clock = clock

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Sum.apply(ops.gemm(x, self.weight.T), self.clock)


def work(options: argparse.Namespace, clock: Clock) -> None:
    """Compare the layers and their gradients with those of one device, then time them."""
    rank, count = dist.get_rank(), dist.get_world_size()
    rows, features, hidden = options.rows, options.features, options.hidden
    assert hidden % (8 * count) == 0, f"--hidden {hidden} is a multiple of 8 for each of {count} processes"
    generator = torch.Generator(clock.device).manual_seed(0)                     # the same numbers in every process

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=clock.device).bfloat16()

    x, up, down, gradient = drawn(rows, features), drawn(hidden, features) / features ** 0.5, drawn(features, hidden) / hidden ** 0.5, \
        drawn(rows, features)
    layers = torch.nn.Sequential(ColumnParallel(up, clock, "gelu"), RowParallel(down, clock))
    mine, whole = x.clone().requires_grad_(), [each.clone().requires_grad_() for each in (x, up, down)]
    y = layers(mine)
    y.backward(gradient)
    expected = ops.gemm(ops.gemm(whole[0], whole[1].T, activation="gelu"), whole[2].T)
    expected.backward(gradient)
    of_up, of_down = whole[1].grad.chunk(count, 0)[rank], whole[2].grad.chunk(count, 1)[rank]
    error = worst({"y": apart(y, expected), "x": apart(mine.grad, whole[0].grad), "up": apart(layers[0].weight.grad, of_up),
                   "down": apart(layers[1].weight.grad, of_down)}, WITHIN, clock.device)

    def step() -> None:
        layers(mine).backward(gradient)

    say(f"tensor_parallel: {rows} x {features} x {hidden} on {count} {'processes' if options.cpu else 'GPUs'}: as on one, gradients too "
        f"(relative error {error:.1e}); {clock.words(step, options.repeats)}")


if __name__ == "__main__":
    launch(work, arguments(__doc__.splitlines()[0] if __doc__ else None, rows=(8192, 16), features=(8192, 32), hidden=(28672, 64)))
