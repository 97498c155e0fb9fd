"""What torch's own tools do with a layer, they do with the layers of this package: copies, hooks, frozen parts, sharding."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from ptxkit.errors import LaunchError
from tests.torch import wanted

torch = wanted(__name__)

from ptxkit.torch import GatedMLP, Linear, MoE, swap_linear  # noqa: E402
from tests.torch.test_operators import offs, ops, randn  # noqa: E402

nn = torch.nn
LAYERS = {"Linear": lambda **made: Linear(32, 24, **made), "GatedMLP": lambda **made: GatedMLP(32, 16, **made),
          "MoE": lambda **made: MoE(32, 16, 4, 2, **made)}


def layer(name: str, device: str, dtype: Any = torch.bfloat16) -> Any:
    torch.manual_seed(3)
    return LAYERS[name](device=device, dtype=dtype)


def near(found: Any, wanted: Any, within: float = 2.0 ** -6) -> None:
    assert found.shape == wanted.shape
    assert (found.double() - wanted.double()).norm() <= within * wanted.double().norm() + 1e-30


@pytest.mark.parametrize("name", LAYERS)
def test_copies_and_files_hold_the_same_layer(device: str, name: str) -> None:
    model, x, file = layer(name, device), randn(8, 32, device=device), io.BytesIO()
    y = model(x)
    torch.save(model, file)
    file.seek(0)
    twin = layer(name, device)
    twin.load_state_dict(model.state_dict())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False), twin):
        assert torch.equal(other(x), y)
    empty = LAYERS[name](device="meta", dtype=torch.bfloat16).to_empty(device=device)
    empty.load_state_dict(model.state_dict())
    assert torch.equal(empty(x), y)


def test_a_swapped_model_and_its_origin_read_each_others_state(device: str) -> None:
    def made() -> Any:
        return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16)).to(device, torch.bfloat16)

    ours, theirs, x = made(), made(), randn(8, 32, device=device)
    swap_linear(ours)
    ours.load_state_dict(theirs.state_dict())
    near(ours(x), theirs(x))
    again = made()
    again.load_state_dict(ours.state_dict())
    assert torch.equal(again(x), theirs(x))
    assert torch.equal(pickle.loads(pickle.dumps(ours))(x), ours(x))


def test_tied_weights_stay_tied_and_sum_their_gradients(device: str) -> None:
    table, head = nn.Embedding(64, 32, device=device, dtype=torch.bfloat16), nn.Linear(32, 64, bias=False, device=device,
                                                                                     dtype=torch.bfloat16)
    head.weight, numbers = table.weight, torch.arange(8, device=device)
    nn.functional.linear(table(numbers), head.weight).float().square().mean().backward()
    wanted, table.weight.grad = table.weight.grad, None
    swap_linear(nn.ModuleList([table, head]))
    assert head.weight is table.weight
    head(table(numbers)).float().square().mean().backward()
    near(table.weight.grad, wanted, 2.0 ** -5)


@pytest.mark.parametrize("name", LAYERS)
def test_frozen_parts_get_no_gradient_and_the_others_theirs(device: str, name: str) -> None:
    """Every choice of one parameter that learns, all and none, with tokens that learn and that do not."""
    model, x = layer(name, device), randn(8, 32, device=device)
    leaves = dict(model.named_parameters())
    whole = x.clone().requires_grad_()
    model(whole).float().sum().backward()
    wanted = {"x": whole.grad, **{key: leaf.grad for key, leaf in leaves.items()}}
    for learns, of_x in itertools.product((set(), *({key} for key in leaves), set(leaves)), (False, True)):
        for key, leaf in leaves.items():
            leaf.requires_grad_(key in learns)
            leaf.grad = None
        own = x.clone().requires_grad_(of_x)
        y = model(own)
        assert y.requires_grad == bool(learns or of_x)
        if y.requires_grad:
            y.float().sum().backward()
        for key, leaf in {"x": own, **leaves}.items():
            assert (leaf.grad is not None) == (of_x if key == "x" else key in learns)
            assert leaf.grad is None or torch.equal(leaf.grad, wanted[key])


def test_hooks_see_a_swapped_layer(device: str) -> None:
    model, seen = nn.Linear(32, 24, device=device, dtype=torch.bfloat16), []
    model.register_forward_pre_hook(lambda module, given: seen.append("before"))
    model.register_forward_hook(lambda module, given, y: seen.append("after"))
    model.register_full_backward_hook(lambda module, of_input, of_output: seen.append("backward"))
    model.weight.register_hook(lambda gradient: gradient * 2)
    model.weight.register_post_accumulate_grad_hook(lambda leaf: seen.append("accumulated"))
    swap_linear(model)
    x = randn(8, 32, device=device, grad=True)
    model(x).float().sum().backward()
    assert set(seen) == {"before", "after", "backward", "accumulated"}
    plain = x.detach().sum(0).expand(24, 32)
    near(model.weight.grad, 2 * plain, 2.0 ** -6)


def test_gradients_are_accumulated_where_they_are(device: str) -> None:
    model, x = layer("Linear", device), randn(8, 32, device=device)
    model(x).float().sum().backward()
    first, place = model.weight.grad.clone(), model.weight.grad.data_ptr()
    model(x).float().sum().backward()
    assert model.weight.grad.data_ptr() == place
    assert torch.equal(model.weight.grad, first + first)


def test_master_weights_of_float32(device: str) -> None:
    """Cast by hand or by autocast, nested as torch nests it: gradients are float32."""
    w, x = randn(24, 32, device=device, dtype=torch.float32, grad=True), randn(8, 32, device=device)
    ops.gemm(x, w.bfloat16().T).float().sum().backward()
    by_hand, w.grad = w.grad, None
    with torch.autocast(device, torch.bfloat16):
        y = ops.gemm(x.float(), w.T)
        with torch.autocast(device, enabled=False):
            assert ops.gemm(x.float(), w.T).dtype is torch.float32
        with torch.autocast(device, torch.float16):
            assert ops.gemm(x, w.T).dtype is torch.float16
        assert ops.gemm(x, w.T).dtype is torch.bfloat16
    y.float().sum().backward()
    assert w.grad.dtype is torch.float32
    assert torch.equal(w.grad, by_hand)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("rows", [0, 1])
def test_no_tokens_and_one(device: str, name: str, rows: int) -> None:
    model, x = layer(name, device), randn(rows, 32, device=device, grad=True)
    y = model(x)
    y.float().sum().backward()
    assert x.grad.shape == (rows, 32)
    for leaf in model.parameters():
        assert leaf.grad.shape == leaf.shape
        assert rows or not leaf.grad.any()


def test_no_expert_has_a_token(device: str) -> None:
    x, w = randn(8, 32, device=device, grad=True), randn(3, 16, 32, device=device, grad=True)
    y = ops.grouped_gemm(x, w.mT, offs(device, 0, 0, 0), clear_rest=True)
    y.float().sum().backward()
    assert not y.any()
    assert not x.grad.any()
    assert not w.grad.any()


VIEWS = {"columns": lambda x: x[:, ::2], "rows": lambda x: x[::2, :32], "past the first": lambda x: x[:, 1:33],
         "transposed": lambda x: x.T[:32].T,
         "expanded": lambda x: x[:1, :32].expand(8, 32), "of a batch": lambda x: x.view(2, 8, 64)[:, :, :32],
         "axes exchanged": lambda x: x.view(4, 8, 32)[:, :, :32].transpose(0, 1)}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_any_strides_and_their_gradients(device: str, name: str) -> None:
    x, w = randn(16, 64, device=device), randn(24, 32, device=device)
    seen = VIEWS[name](x).detach().requires_grad_()
    plain = seen.detach().clone().requires_grad_()
    for one, run in ((seen, lambda x: ops.gemm(x, w.T)), (plain, lambda x: x @ w.T)):
        run(one).float().square().sum().backward()
    near(ops.gemm(seen, w.T), plain @ w.T)
    near(seen.grad, plain.grad)


def test_functional_transforms(device: str) -> None:
    """functional_call, grad, vmap and jacrev, together."""
    from torch.func import functional_call, grad, jacrev, vmap

    model, x = layer("Linear", device), randn(3, 8, 32, device=device)
    leaves = dict(model.named_parameters())

    def loss(leaves: Any, x: Any) -> Any:
        return functional_call(model, leaves, (x,)).float().square().mean()

    mapped = vmap(grad(loss), (None, 0))(leaves, x)
    for at in range(3):
        for key, of_one in grad(loss)(leaves, x[at]).items():
            near(mapped[key][at], of_one)
    assert jacrev(lambda x: ops.gemm(x, leaves["weight"].T))(x[0, :2]).shape == (2, 24, 2, 32)
    weights, ends, bias = randn(1, 16, 32, device=device), offs(device, 8), randn(16, device=device)
    for run in (lambda x: ops.gated_gemm(x, weights[0].T), lambda x: ops.grouped_gemm(x, weights.mT, ends),
                lambda x: ops.gemm(x, weights[0].T, bias, activation="gelu")):
        assert torch.equal(vmap(run)(x), torch.stack([run(one) for one in x]))


def test_a_backward_pass_is_compiled(device: str) -> None:
    model, x = layer("Linear", device), randn(8, 32, device=device).requires_grad_()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
        model(x).float().square().sum().backward()
    wanted = torch.autograd.grad(model(x).float().square().sum(), (x, *model.parameters()))
    for one, other in zip((x, *model.parameters()), wanted, strict=True):
        assert torch.equal(one.grad, other)


MAPPED = {
    "rows": ((0, None), (3, 8, 32), (32, 16)),
    "rows inside": ((1, None), (8, 3, 32), (32, 16)),
    "weights": ((None, 2), (8, 32), (32, 16, 3)),
    "both": ((0, 0), (3, 8, 32), (3, 32, 16)),
    "batches": ((0, 0), (3, 2, 8, 32), (3, 32, 16)),
    "none": ((0, 0), (0, 8, 32), (0, 32, 16)),
    "vectors": ((0, None), (3, 32), (32, 16)),
    "dot": ((0, 0), (3, 32), (3, 32)),
    "vector by weights": ((0, 0), (3, 32), (3, 32, 16)),
    "biases": ((0, 0, 0), (3, 8, 32), (3, 32, 16), (3, 16)),
    "biases alone": ((None, None, 0), (8, 32), (32, 16), (3, 16)),
    "a bias": ((0, None, None), (3, 8, 32), (32, 16), (16,)),
    "biases of vectors": ((0, None, 0), (3, 32), (32, 16), (3, 16)),
    "a column": ((0, None, None), (3, 8, 32), (32, 16), (8, 1)),
    "a residual": ((0, None, None, None), (3, 8, 32), (32, 16), (16,), (8, 16)),
    "all": ((0, None, 0, 0, 0), (3, 8, 32), (32, 16), (3, 16), (3, 8, 16), (3, 8, 16)),
}


@pytest.mark.parametrize("name", MAPPED)
def test_vmap_is_a_product_for_each_element(device: str, name: str) -> None:
    """Forward and backward; one product where operands are mapped that make batches."""
    dims, *shapes = MAPPED[name]
    given = [randn(*shape, device=device) for shape in shapes]
    size = next(one.shape[dim] for one, dim in zip(given, dims, strict=True) if dim is not None)

    def loss(*given: Any) -> Any:
        return ops.gemm(*given, alpha=0.5, beta=2.0 if len(given) > 4 else 0.0, activation="silu")

    def element(at: int, given: Any) -> Any:
        return loss(*(one if dim is None else one.select(dim, at) for one, dim in zip(given, dims, strict=True)))

    def each(*given: Any) -> Any:
        return torch.stack([element(at, given) for at in range(size)]) if size else torch.vmap(torch.matmul)(*given)

    found: list[tuple[Any, ...]] = []
    for run in (torch.vmap(loss, dims), each):
        leaves = [one.clone().requires_grad_() for one in given]
        y = run(*leaves)
        found.append((y, *torch.autograd.grad(y.float().square().sum(), leaves)))
    assert found[0][0].dtype is found[1][0].dtype
    for one, other in zip(*found, strict=True):
        near(one, other)


def test_vmap_of_a_gated_product(device: str) -> None:
    x, w = randn(3, 8, 32, device=device), randn(3, 32, 16, device=device)
    both, rows, weights = torch.vmap(ops.gated_gemm), torch.vmap(ops.gated_gemm, (0, None)), torch.vmap(ops.gated_gemm, (None, 0))
    near(both(x, w), torch.stack([ops.gated_gemm(*each) for each in zip(x, w, strict=True)]))
    near(rows(x, w[0]), ops.gated_gemm(x, w[0]))
    near(weights(x[0], w), torch.stack([ops.gated_gemm(x[0], each) for each in w]))
    assert (both(x[:0], w[:0]).shape, rows(x[:0], w[0]).shape, weights(x[0], w[:0]).shape) == ((0, 8, 8),) * 3
    leaf = x.clone().requires_grad_()
    rows(leaf, w[0]).float().square().sum().backward()
    other = x.clone().requires_grad_()
    ops.gated_gemm(other, w[0]).float().square().sum().backward()
    near(leaf.grad, other.grad)


def test_vmap_refuses_what_a_product_refuses(device: str) -> None:
    a, b, biases = randn(3, 8, 32, device=device), randn(3, 32, 16, device=device), randn(3, 16, device=device)
    with pytest.raises(LaunchError, match="without c"):
        torch.vmap(lambda a, b, bias: ops.gemm(a, b, bias, beta=2.0))(a, b, biases)
    with pytest.raises(LaunchError, match="a is"):
        torch.vmap(ops.gemm)(a, b[:, 1:])
    assert torch.vmap(ops.gemm)(a[:0, 0], b[:0, :, 0]).shape == (0,)


def test_a_graph_of_any_number_of_tokens_is_exported(device: str) -> None:
    for name in LAYERS:
        model = layer(name, device)
        program = torch.export.export(model, (randn(8, 32, device=device),), dynamic_shapes=({0: torch.export.Dim("tokens")},))
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        x = randn(5, 32, device=device)
        assert torch.equal(torch.export.load(file).module()(x), model(x))


def test_a_size_that_depends_on_data_is_compiled(device: str) -> None:
    torch._dynamo.reset()

    def first(x: Any, w: Any, count: Any) -> Any:
        rows = count.item()
        torch._check(rows >= 2)
        torch._check(rows <= 16)
        return ops.gemm(x[:rows], w.T)

    x, w = randn(16, 32, device=device), randn(24, 32, device=device)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(first, fullgraph=True, backend="aot_eager")
        for rows in (5, 16):
            assert torch.equal(compiled(x, w, torch.tensor(rows)), ops.gemm(x[:rows], w.T))


# ---------------------------------------------------------------------------------------------------- of one process


@pytest.fixture
def group(device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Any]:
    """A process group of this process alone."""
    import torch.distributed as dist

    if not dist.is_available():
        pytest.skip("this torch has no torch.distributed")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("nccl" if device == "cuda" else "gloo", init_method=(tmp_path / "meeting").as_uri(), rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


def test_sharded_layers(device: str, group: Any) -> None:
    """FSDP frees the memory of whole parameters by resizing their storage: no operator may hold it."""
    from torch.distributed.fsdp import fully_shard

    model, x = nn.Sequential(layer("Linear", device), nn.Linear(24, 16, device=device, dtype=torch.bfloat16)), randn(8, 32, device=device)
    swap_linear(model)
    plain = copy.deepcopy(model)
    for part in (model[0], model):
        fully_shard(part)
    for _ in range(2):
        found, wanted = model(x), plain(x)
        assert torch.equal(found, wanted)
        for y in (found, wanted):
            y.float().sum().backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one.grad.full_tensor(), other.grad)
    wrapped = nn.parallel.DistributedDataParallel(copy.deepcopy(plain))
    assert torch.equal(wrapped(x), wanted)


def test_classes_of_tensors_without_a_rule_are_one_sentence(device: str, group: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    a, w = randn(8, 32, device=device), randn(24, 32, device=device)
    nested = [torch.nested.nested_tensor([a, a], layout=layout) for layout in (torch.strided, torch.jagged)]
    spread, weight = (distribute_tensor(each, init_device_mesh(device, (1,)), [Replicate()]) for each in (a, w))
    for operator, given, of, words in ((ops.gemm, nested[0], w, "nested tensor"), (ops.gemm, nested[1], w, "NestedTensor"),
                                       (ops.gated_gemm, spread, weight, "DTensor")):
        with pytest.raises(LaunchError, match=words) as error:
            operator(given, of.T)
        assert "\n" not in str(error.value)
    assert torch.equal(ops.gated_gemm(spread.to_local(), w.T), ops.gated_gemm(a, w.T))
    assert torch.equal(ops.gemm(spread, weight.T).to_local(), ops.gemm(a, w.T))


def test_every_operator_refuses_kinds_of_tensors_by_a_sentence(device: str) -> None:
    """Sparse and nested ones, wherever a tensor is taken; the operators are those that are there."""
    from ptxkit.torch.operators import IN_PLACE, OPERATORS, OTHERS

    names = {operator.name for operator in (*OPERATORS, *IN_PLACE)} | set(OTHERS)
    assert names == {name.split("::")[1].split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("ptxkit::")}
    dense = randn(8, 32, device=device)
    for name in names:
        arguments = getattr(ops, name).default._schema.arguments
        for kind in (dense.to_sparse(), torch.nested.nested_tensor([dense, dense])):
            given = [kind if "Tensor" in str(each.type) else each.default_value if each.has_default_value() else
                     {"int": 2, "str": "1x128"}[str(each.type)] for each in arguments]
            with pytest.raises(LaunchError, match="the operators take plain dense ones") as error:
                getattr(ops, name).default(*given)
            assert "\n" not in str(error.value)
