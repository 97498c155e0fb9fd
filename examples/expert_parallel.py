"""A mixture of experts over several GPUs: tokens go to the devices of their experts and back by all-to-all, in two modes.

`fixed`: each device has room for so many rows of each other one. Lengths stay on the device, nothing waits for it, and rows that find no
room are dropped. `exact`: rows are sent as they are counted. The counts are copied to the host once a layer, and no row is dropped.

    python -m examples.expert_parallel                       # 2 GPUs, by NCCL; --processes N
    python -m examples.expert_parallel --cpu                 # 2 processes on the CPU device, by gloo
    torchrun --nproc-per-node 2 -m examples.expert_parallel
"""
from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from examples.ranks import Clock, apart, arguments, launch, say, worst
from ptxkit.torch.moe import by_expert

ops = torch.ops.ptxkit
WITHIN = 2.0 ** -7                                           # of bfloat16 sums whose parts are rounded
Sizes = list[int] | None


class AllToAll(torch.autograd.Function):
    """Rows to and from each device: `sent` and `received` to each, or as many to all. The gradient goes back."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, sent: Sizes, received: Sizes, clock: Clock) -> torch.Tensor:
        ctx.given = sent, received, clock
        return exchanged(rows, sent, received, clock)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        sent, received, clock = ctx.given
        return exchanged(gradient.contiguous(), received, sent, clock), None, None, None


def exchanged(rows: torch.Tensor, sent: Sizes, received: Sizes, clock: Clock) -> torch.Tensor:
    """What the other devices send for what is sent to them."""
    found = rows.new_empty((len(rows) if received is None else sum(received), *rows.shape[1:]))
    with clock.communication():
        dist.all_to_all_single(found, rows, received, sent)
    return found


class Route(NamedTuple):
    """Where the rows of a device go. Choices of experts are sorted by expert, so that those of one device follow one another."""

    choice: torch.Tensor            # [tokens * top]: the choice of each sorted row
    place: torch.Tensor             # its row among those that are sent
    kept: torch.Tensor              # whether it is sent
    experts: torch.Tensor           # of the rows that are received: the device's own, or their number where there is no row
    rows: int                       # that are sent
    sent: Sizes
    received: Sizes


def fixed(flat: torch.Tensor, own: int, capacity: int, clock: Clock) -> Route:
    """Room for `capacity` rows from each device to each other one."""
    count, device = dist.get_world_size(), flat.device
    ordered, choice = flat.sort(stable=True)
    starts = torch.searchsorted(ordered, torch.arange(count * own + 1, device=device))
    to = ordered // own                                                          # the device of each row
    nth = torch.arange(len(flat), device=device) - starts[to * own]              # of the rows to this device
    kept = nth < capacity
    place = torch.where(kept, to * capacity + nth, count * capacity)
    ends = (starts[1:].view(count, own) - starts[:-1:own, None]).clamp(max=capacity).contiguous()
    ends = exchanged(ends, None, None, clock)                                    # of each own expert among the rows of each device
    experts = torch.searchsorted(ends, torch.arange(capacity, device=device).expand(count, -1).contiguous(), right=True)
    return Route(choice, place, kept, experts.reshape(-1), count * capacity, None, None)


def exact(flat: torch.Tensor, own: int, capacity: int, clock: Clock) -> Route:
    """As many rows as there are. The host waits for the device once, for the counts."""
    count, device = dist.get_world_size(), flat.device
    ordered, choice = flat.sort(stable=True)
    starts = torch.searchsorted(ordered, torch.arange(count * own + 1, device=device))
    lengths = starts.diff().view(count, own)
    coming = exchanged(lengths, None, None, clock)
    sent, received = torch.stack([lengths.sum(1), coming.sum(1)]).tolist()       # the copy
    experts = torch.arange(own, device=device).repeat(count).repeat_interleave(coming.reshape(-1), output_size=sum(received))
    places = torch.arange(len(flat), device=device)
    return Route(choice, places, torch.ones_like(places, dtype=torch.bool), experts, len(flat), sent, received)


MODES = {"fixed": fixed, "exact": exact}


class Experts(torch.nn.Module):
    """The experts of a device, each down(silu(gate(x)) * up(x)). gate_up [own, 2 hidden, features], down [own, features, hidden]."""

    def __init__(self, gate_up: torch.Tensor, down: torch.Tensor) -> None:
        super().__init__()
        self.gate_up, self.down = torch.nn.Parameter(gate_up.clone()), torch.nn.Parameter(down.clone())

    def forward(self, rows: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        """Each row through its expert; rows of no expert are 0."""
        offs, choice, slot, _ = by_expert(experts[:, None], len(self.down))
        inner = ops.grouped_gemm(rows.index_select(0, choice), self.gate_up.mT, offs, activation="silu_and_mul", clear_rest=True)
        found = ops.grouped_gemm(inner, self.down.mT, offs, clear_rest=True)
        slot = slot.reshape(-1)
        return found.index_select(0, slot.clamp(min=0)) * (slot >= 0)[:, None]


def layer(experts: Experts, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor, mode: str, capacity: int,
          clock: Clock) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens x [T, features] through the experts chosen [T, top] of all devices, and which choices were kept."""
    top = chosen.shape[1]
    route = MODES[mode](chosen.reshape(-1), len(experts.down), capacity, clock)
    sent = x.new_zeros((route.rows + 1, x.shape[1])).index_copy(0, route.place, x.index_select(0, route.choice // top))[:-1]
    received = AllToAll.apply(sent, route.sent, route.received, clock)
    back = AllToAll.apply(experts(received, route.experts), route.received, route.sent, clock)
    back = back.index_select(0, route.place.clamp(max=route.rows - 1)) * route.kept[:, None]
    kept = torch.zeros_like(route.kept).index_copy(0, route.choice, route.kept)
    by_choice = torch.zeros_like(back).index_copy(0, route.choice, back).view(len(x), top, -1)
    return (by_choice.float() * weights[..., None]).sum(1).to(x.dtype), kept.view(chosen.shape)


def work(options: argparse.Namespace, clock: Clock) -> None:
    """Compare each mode and its gradients with one device that has all experts, then time it."""
    rank, count, own = dist.get_rank(), dist.get_world_size(), options.experts
    tokens, features, hidden, top = options.tokens, options.features, options.hidden, options.top

    def drawn(seed: int, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=torch.Generator(clock.device).manual_seed(seed), device=clock.device).bfloat16()

    every = Experts(drawn(1, count * own, 2 * hidden, features) / features ** 0.5, drawn(2, count * own, features, hidden) / hidden ** 0.5)
    mine = Experts(*(weight.detach().chunk(count)[rank] for weight in (every.gate_up, every.down)))
    x, gradient = drawn(10 + rank, tokens, features).requires_grad_(), drawn(100 + rank, tokens, features)
    logits, chosen = (x.detach().float() @ drawn(3, features, count * own).float()).topk(top)
    weights, capacity = logits.softmax(1), -(-tokens * top * options.room // (100 * count))
    for mode in MODES:
        for leaf in (x, *every.parameters(), *mine.parameters()):
            leaf.grad = None
        y, kept = layer(mine, x, chosen, weights, mode, capacity, clock)
        y.backward(gradient)
        other = x.detach().clone().requires_grad_()
        expected = every(other.repeat_interleave(top, 0), chosen.reshape(-1)).view(tokens, top, -1)
        expected = (expected.float() * (weights * kept)[..., None]).sum(1).to(x.dtype)
        expected.backward(gradient)
        errors = {"y": apart(y, expected), "x": apart(x.grad, other.grad)}
        for name, leaf in every.named_parameters():
            total = leaf.grad.float()
            dist.all_reduce(total)                                               # of the tokens of all devices
            errors[name] = apart(mine.get_parameter(name).grad, total.chunk(count)[rank])
        error = worst(errors, WITHIN, clock.device)
        dropped = (~kept).sum()
        dist.all_reduce(dropped)

        def step(mode: str = mode) -> None:
            layer(mine, x, chosen, weights, mode, capacity, clock)[0].backward(gradient)

        say(f"expert_parallel, {mode}: {tokens} tokens a device, {top} of {count * own} experts on {count} "
            f"{'processes' if options.cpu else 'GPUs'}: as on one, gradients too (relative error {error:.1e}), {int(dropped)} rows "
            f"dropped; {clock.words(step, options.repeats)}")


if __name__ == "__main__":
    launch(work, arguments(__doc__.splitlines()[0] if __doc__ else None, tokens=(8192, 12), features=(4096, 32), hidden=(2048, 32),
                           experts=(16, 2), top=(4, 2), room=(125, 100)))
