"""DTensors in several processes: each check compares products of divided tensors with those of whole ones, and says so in a line.

`python -m tests.torch.sharded --cpu` runs them on the CPU device; without `--cpu` each process has a GPU. Names of checks choose some.
`--gradients-of-every 4` takes the gradients of every fourth pair of placements.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from examples.ranks import Clock, apart, arguments, launch, say
from ptxkit.errors import LaunchError
from ptxkit.torch import Linear, swap_linear

ops = torch.ops.ptxkit
CHECKS: list[Callable[[Any], None]] = []
CLOSE = 2.0 ** -7
OF_EVERY = [1]


def check(function: Callable[[Any], None]) -> Callable[[Any], None]:
    CHECKS.append(function)
    return function


def divided(whole: Any, mesh: Any, *placements: Any) -> Any:
    """A DTensor that stands for a tensor: for sums each process but the first has numbers of its own, and the first what is missing."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not any(placement.is_partial() for placement in placements):
        return distribute_tensor(whole, mesh, placements, src_data_rank=None)
    assert mesh.ndim == 1
    others = [torch.randn(whole.shape, dtype=torch.float64).to(whole) for _ in range(mesh.size() - 1)]
    count = mesh.size() if placements[0].reduce_op == "avg" else 1
    parts = [(count * whole.double() - sum(other.double() for other in others)).to(whole), *others]
    return DTensor.from_local(parts[mesh.get_local_rank()], mesh, placements, run_check=False)


def kinds(*axes: int) -> list[Any]:
    from torch.distributed.tensor import Partial, Replicate, Shard

    return [Replicate(), Partial(), Partial("avg"), *(Shard(axis) for axis in axes)]


def randn(*shape: int, like: Any = None, dtype: Any = torch.bfloat16) -> Any:
    """The same numbers in all processes."""
    return torch.randn(shape, dtype=torch.float64).to(dtype).to(like.device_type)


def whole(found: Any) -> Any:
    return found.full_tensor() if hasattr(found, "full_tensor") else found


def close(found: Any, wanted: Any, times: float = 1.0) -> None:
    found = whole(found.detach())
    assert found.shape == wanted.shape
    assert apart(found, wanted) <= times * CLOSE, apart(found, wanted)


def product(a: Any, b: Any, bias: Any = None, residual: Any = None, c: Any = None, alpha: float = 1.0, beta: float = 0.0,
            activation: str | None = None) -> Any:
    """`gemm` of whole tensors in float64."""
    given = [None if each is None else each.double() for each in (a, b, bias, residual, c)]
    z = alpha * (given[0] @ given[1])
    z = z if given[4] is None else z + beta * given[4]
    z = z if given[2] is None else z + given[2]
    z = z if activation is None else getattr(nn.functional, activation)(z)
    return z if given[3] is None else z + given[3]


@check
def two_matrices_are_divided_as_by_torch_mm(mesh: Any) -> None:
    """Whatever the operands are, the result has the placement of torch.mm; gradients are those of whole tensors. Extents are no multiples
    of the number of devices."""
    a, b = randn(9, 19, like=mesh), randn(19, 11, like=mesh)
    gradient = randn(9, 11, like=mesh)
    exact = [each.double().requires_grad_() for each in (a, b)]
    wanted = exact[0] @ exact[1]
    gradients = torch.autograd.grad(wanted, exact, gradient.double())
    for number, (first, second) in enumerate(itertools.product(kinds(0, 1), repeat=2)):
        x, y = (divided(each, mesh, place).requires_grad_() for each, place in ((a, first), (b, second)))
        found = ops.gemm(x, y)
        assert found.placements == torch.mm(x, y).placements, (first, second, found.placements)
        assert found.shape == (9, 11)
        close(found, wanted, times=8)              # of sums with numbers that are larger than what they add up to
        if number % OF_EVERY[0]:
            continue
        for one, other in zip(torch.autograd.grad(found, (x, y), divided(gradient, mesh, *kinds()[:1])), gradients, strict=True):
            close(one, other, times=8)


@check
def what_is_added_is_divided_as_the_result_is(mesh: Any) -> None:
    """Biases of rows and columns, a residual and c, each divided in any way, with gradients of all."""
    from torch.distributed.tensor import Replicate, Shard

    a, b, c, residual = (randn(*shape, like=mesh) for shape in ((8, 18), (18, 12), (8, 12), (8, 12)))
    for first, second, (shape, of_bias), of_rest in (
            (Shard(1), Shard(0), ((12,), Replicate()), Replicate()), (Shard(1), Shard(0), ((8, 1), Shard(0)), Shard(1)),
            (Shard(0), Replicate(), ((8, 1), Replicate()), Shard(0)), (Replicate(), Shard(1), ((1, 12), Shard(1)), kinds()[1])):
        bias = randn(*shape, like=mesh)
        for activation in (None, "silu"):
            given = a, b, bias, residual, c
            exact = [each.double().requires_grad_() for each in given]
            wanted = product(*exact, alpha=0.5, beta=2.0, activation=activation)
            places = first, second, of_bias, of_rest, of_rest
            leaves = [divided(each, mesh, place).requires_grad_() for each, place in zip(given, places, strict=True)]
            found = ops.gemm(*leaves, alpha=0.5, beta=2.0, activation=activation)
            close(found, wanted, times=3)
            gradient = randn(8, 12, like=mesh)
            for one, other in zip(torch.autograd.grad(found, leaves, divided(gradient, mesh, Replicate())),
                                  torch.autograd.grad(wanted, exact, gradient.double()), strict=True):
                close(one, other, times=3)


@check
def a_rule_looks_at_all_arguments(mesh: Any) -> None:
    """torch keeps what a rule said: a call with as many arguments and another activation or type is another call."""
    from torch.distributed.tensor import DTensor, Partial, Shard
    from torch.distributed.tensor._op_schema import OpSchema

    a, b, more = randn(8, 18, like=mesh), randn(18, 8, like=mesh), randn(8, 8, like=mesh)
    x, y, z = divided(a, mesh, Shard(1)), divided(b, mesh, Shard(0)), divided(more, mesh, Shard(0))
    for _ in range(2):
        assert ops.gemm(x, y).placements == (Partial(),)
        for dtype in (torch.float32, torch.bfloat16):
            found = ops.gemm(x, y, out_dtype=dtype)
            assert found.dtype == whole(found).dtype == dtype
            found = ops.gemm(x, y, activation="relu", out_dtype=dtype)
            assert not found.placements[0].is_partial()
            close(found, product(a, b, activation="relu"))
        close(ops.gemm(x, y, residual=z), product(a, b, residual=more))
        close(ops.gemm(x, y, None, None, z, beta=2.0), product(a, b, c=more, beta=2.0))
        close(ops.gemm(x, y, alpha=3.0), product(a, b, alpha=3.0))
    known = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info[ops.gemm.default]
    one, other = (OpSchema(ops.gemm.default, (x._spec, y._spec, None, None, None, 1.0, 0.0, activation, torch.float32), {}, known)
                  for activation in ("silu", "relu"))
    assert one != other


@check
def batches_and_vectors(mesh: Any) -> None:
    """Any extent of either operand is divided, those of batches that are broadcast too."""
    shapes = [((16,), (16, 16)), ((4, 8, 16), (16,)), ((16,), (16,)), ((4, 8, 16), (16, 16)), ((4, 1, 8, 16), (3, 16, 16))]
    for of_a, of_b in shapes:
        a, b = randn(*of_a, like=mesh), randn(*of_b, like=mesh)
        pairs = itertools.product(*(kinds(*(axis for axis, extent in enumerate(shape) if extent > 1)) for shape in (of_a, of_b)))
        for activation, (first, second) in zip(itertools.cycle((None, "silu")), pairs, strict=False):
            found = ops.gemm(divided(a, mesh, first), divided(b, mesh, second), activation=activation)
            close(found, product(a, b, activation=activation), times=8)


@check
def fp8_with_scales(mesh: Any) -> None:
    """Scales of everything, of rows and columns, and of blocks of 128, which no device gets a part of."""
    from torch.distributed.tensor import Replicate, Shard

    def small(*shape: int) -> Any:
        return randn(*shape, like=mesh).to(torch.float8_e4m3fn)

    def scale(*shape: int) -> Any:
        return (torch.rand(shape) + 0.5).to(mesh.device_type)

    def spread(scale: Any, extent: int) -> Any:
        return scale.repeat_interleave(128, extent) if scale.shape[extent] > 1 else scale

    size = mesh.size()
    for m, n, k, of_a, of_b in ((8, 16, 32, (1,), (1,)), (8, 16, 32, (8,), (16,)), (8, 16, 32, (8, 1), (1, 16)), (8, 16, 32, (8, 1), (1,)),
                                (8, 128 * size, 128 * size, (8, size), (size, size)), (8, 192, 128, (8, 1), (1, 2)),
                                (8, 16, 192, (8, 2), (2, 1))):
        a, w, scale_a, scale_b = small(m, k), small(n, k), scale(*of_a), scale(*of_b)
        in_blocks = len(of_b) == 2 and of_b not in ((1, n), (1, 1))
        bias, residual = randn(n, like=mesh), randn(m, n, like=mesh)
        wide_a = spread(scale_a, 1)[:, :k] if in_blocks else scale_a.reshape(-1, 1)
        wide_b = spread(spread(scale_b, 0)[:k], 1)[:, :n] if in_blocks else scale_b.reshape(1, -1)
        exact = (a.double() * wide_a) @ (w.T.double() * wide_b)
        for (first, second), more in itertools.product(((Shard(0), Replicate()), (Replicate(), Shard(0)), (Shard(1), Shard(1))), (0, 1)):
            divides = not (in_blocks and ((first.is_shard(1) and k % (128 * size)) or (second.is_shard(0) and n % (128 * size))))
            if not divides and mesh.device_type == "cpu":
                continue                                # gloo brings no fp8 together
            scales = [divided(each, mesh, Replicate()) for each in (scale_a, scale_b)]
            placed = [divided(a, mesh, first), divided(w, mesh, second).t(), *scales]
            found = ops.scaled_gemm(*placed)
            close(found, exact)
            place = found.placements[0]
            if divides:
                assert place.is_partial() if first.is_shard(1) else place.is_shard(0 if first.is_shard() else 1)
            if more:
                activation = None if first.is_shard(1) else "relu"
                of_residual = Shard(0) if first.is_shard(0) else Replicate()    # so that what is brought together is no fp8
                found = ops.scaled_gemm(*placed, bias=divided(bias, mesh, Replicate()), residual=divided(residual, mesh, of_residual),
                                        activation=activation)
                wanted = exact + bias.double()
                close(found, (wanted.relu() if activation else wanted) + residual.double())


class Layers(nn.Module):
    def __init__(self, device: Any) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 24, device=device), nn.Linear(24, 16, device=device)
        self.bfloat16()

    def forward(self, x: Any) -> Any:
        return self.down(nn.functional.gelu(self.up(x)))


def trained(model: Any, x: Any) -> list[Any]:
    """The result and all gradients of a step."""
    x = x.detach().requires_grad_()
    y = model(x)
    y.square().sum().backward()
    return [whole(y.detach()), whole(x.grad), *(whole(parameter.grad) for parameter in model.parameters())]


@check
def layers_under_parallelize_module(mesh: Any) -> None:
    """Column by row, as tensor parallelism has it, with whole and with divided sequences; swapped before and after, and compiled."""
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(2)
    plain = Layers(mesh.device_type)
    columns, rows = ColwiseParallel(), RowwiseParallel()
    sequences = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1), use_local_output=False)
    for shape, (first, second), before, wrap in (
            ((8, 16), (columns, rows), True, lambda model: model), ((3, 8, 16), (columns, rows), False, lambda model: model),
            ((3, 8, 16), sequences, True, lambda model: model),
            ((8, 16), (columns, rows), True, lambda model: torch.compile(model, backend="aot_eager", fullgraph=True))):
        model, x = copy.deepcopy(plain), randn(*shape, like=mesh)
        if before:
            swap_linear(model)
        parallelize_module(model, mesh, {"up": first, "down": second})
        if not before:
            swap_linear(model)
        assert type(model.up) is type(model.down) is Linear
        given = distribute_tensor(x, mesh, [Shard(1)]) if first is sequences[0] else x
        for one, other in zip(trained(wrap(model), given), trained(copy.deepcopy(plain).double(), x.double()), strict=True):
            close(one, other)


@check
def sequences_with_whole_weights(mesh: Any) -> None:
    """The gradient of the weight is a sum of each device's tokens: their sequences are not brought together for it."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.debug import CommDebugMode

    for lead, axis in (((4, 6), 0), ((3, 8), 1)):
        x, w = randn(*lead, 16, like=mesh), randn(24, 16, like=mesh)
        given, weight = divided(x, mesh, Shard(axis)), divided(w, mesh, Replicate()).requires_grad_()
        with CommDebugMode() as talk:
            ops.gemm(given, weight.t()).backward(divided(torch.ones(*lead, 24).to(x), mesh, Shard(axis)))
        assert talk.get_total_counts() == 0
        assert weight.grad.placements == (Partial(),)
        close(weight.grad, torch.ones(24, x[..., 0].numel()).to(x).double() @ x.reshape(-1, 16).double())


@check
def meshes_of_two_extents(mesh: Any) -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard

    a, b = randn(8, 18, like=mesh), randn(18, 12, like=mesh)
    for extents in {(1, mesh.size()), (2, mesh.size() // 2)}:
        both = init_device_mesh(mesh.device_type, extents)
        for first, second, result in (((Shard(0), Shard(1)), (Replicate(), Shard(0)), (Shard(0), Partial())),
                                      ((Shard(0), Replicate()), (Replicate(), Shard(1)), (Shard(0), Shard(1))),
                                      ((Shard(1), Replicate()), (Shard(0), Shard(1)), (Partial(), Shard(1)))):
            found = ops.gemm(divided(a, both, *first), divided(b, both, *second))
            assert found.placements == result
            close(found, product(a, b))


@check
def under_autocast_and_inference_mode(mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard

    a, b = randn(8, 18, like=mesh, dtype=torch.float32), randn(18, 12, like=mesh, dtype=torch.float32)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = ops.gemm(divided(a, mesh, Shard(0)), divided(b, mesh, Replicate()))
            close(found, product(a, b))
    with torch.autocast(mesh.device_type, torch.bfloat16):
        found = ops.gemm(divided(a, mesh, Shard(0)), divided(b, mesh, Replicate()).requires_grad_())
    assert found.dtype is torch.bfloat16
    close(found, product(a, b))


@check
def refusals_are_one_sentence(mesh: Any) -> None:
    """Of every operator without a rule, of out variants, and what the operators themselves refuse."""
    from torch.distributed.tensor import Replicate, Shard

    from ptxkit.torch.operators import IN_PLACE, OPERATORS, OTHERS
    from ptxkit.torch.sharding import RULES

    x = divided(randn(8, 32, like=mesh), mesh, Shard(0))

    def refused(words: str, call: Callable[[], Any]) -> None:
        with pytest.raises(LaunchError, match=words) as error:
            call()
        assert "\n" not in str(error.value)

    for name in (*(operator.name for operator in (*OPERATORS, *IN_PLACE)), *OTHERS):
        packet = getattr(ops, name)
        for overload in packet.overloads():
            if overload == "default" and name in RULES:
                continue
            called = getattr(packet, overload)
            given = {argument.name: x if "Tensor" in str(argument.type) else {"int": 2, "str": "1x128"}[str(argument.type)]
                     for argument in called._schema.arguments if not argument.has_default_value()}
            for mode in (torch.enable_grad, torch.inference_mode):
                with mode():
                    refused("has no rule that divides it among devices", lambda called=called, given=given: called(**given))
    refused("pass a weight w of shape", lambda: ops.gemm(x, x))
    refused("it is one of relu", lambda: ops.gemm(x, x.t(), activation="tanh"))
    one = divided(torch.ones(1, device=mesh.device_type), mesh, Replicate())
    refused("have no gradients", lambda: ops.scaled_gemm(x.detach().requires_grad_(), x.t(), one, one))


def work(options: Any, clock: Clock) -> None:
    torch.manual_seed(0)
    OF_EVERY[0] = options.gradients_of_every
    mesh = init_device_mesh(clock.device.type, (dist.get_world_size(),))
    for one in (check for check in CHECKS if not options.checks or check.__name__ in options.checks):
        one(mesh)
        say(f"{one.__name__}: as whole ones")


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--gradients-of-every", type=int, default=1, metavar="N", help="of pairs of placements (default %(default)s)")
    parser.add_argument("checks", nargs="*", help="default: all")
    launch(work, parser)
