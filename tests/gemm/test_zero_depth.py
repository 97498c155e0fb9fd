"""K = 0, empty groups and flipped arrays: the same on a GPU and on the CPU device, and one sentence for what cannot be had."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm import Adapter
from ptxkit.gemm.heuristic.grouped import heuristic
from ptxkit.gemm.kernels.clear_groups import clear_groups
from ptxkit.gemm.launch.on_cpu import bytes_of
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.launch.simulate_grouped import simulate as simulate_groups
from ptxkit.gemm.problem.dense import Arrays, Problem
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem, settled
from ptxkit.runtime.arrays import ArrayView, contiguous_strides

LAYOUTS = {"cu_seqlens": ([1, 3, 3, 6], (9,), {1, 2, 3, 4, 5}), "masked": ([2, 0, 4], (3, 4), {0, 1, 8, 9, 10, 11}),
           "contiguous": ([0, -1, 2, 2, -1, 1, -1], (7,), {0, 2, 3, 5})}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("gated", "gap", "dtype"), [(False, 0, np.float16), (False, 3, np.float32), (True, 8, np.float16)])
def test_only_the_rows_of_groups_are_cleared(layout, gated, gap, dtype):
    lengths, rows, cleared = LAYOUTS[layout]
    whole = np.full((*rows, 72 + gap), 7, dtype)
    out = whole[..., :72]
    x, w = np.zeros((*rows, 0), np.float16), np.zeros((3, 144 if gated else 72, 0), np.float16)
    report = simulate_groups(x, w, np.array(lengths, np.int32), out, layout=layout, gated=gated)
    assert report.verdict == "clean"
    flat = whole.reshape(-1, 72 + gap)
    for row in range(len(flat)):
        assert (flat[row, :72] == (0 if row in cleared else 7)).all(), row
        assert (flat[row, 72:] == 7).all()


@pytest.mark.parametrize("depth", [0, 64])
@pytest.mark.parametrize(("layout", "strides", "words"), [
    ("cu_seqlens", (1, 8), "last extent must be contiguous"), ("contiguous", (32, 2), "last extent must be contiguous"),
    ("cu_seqlens", (-16, 1), "not negative"), ("cu_seqlens", (8, 1), "would overlap"), ("masked", (100, 16, 1), "without gaps")])
def test_a_result_that_lies_otherwise_is_refused_without_depth_too(layout, strides, words, depth):
    """The kernel that clears rows reads the same strides as a product: whatever else lies between them would be written."""
    rows = (3, 4) if layout == "masked" else (6,)
    x, w, out = (seen(shape, contiguous_strides(shape)) for shape in ((*rows, depth), (3, 16, depth), (*rows, 16)))
    lengths = seen({"cu_seqlens": (4,), "masked": (3,), "contiguous": (6,)}[layout], (1,), "s32")
    with pytest.raises(LaunchError, match=f"out.*{words}"):
        GroupProblem(settled(GroupArrays(x, w, lengths, out._replace(strides=strides))), GroupOptions(layout))


def test_rows_far_apart_are_cleared():
    """Their distances have 64 bits."""
    out = np.zeros((2, 1 << 20), np.float32)[:, :8]
    out[...] = 7
    made = clear_groups.simulate(2, lengths=np.array([0, 2], np.uint32), out=bytes_of(out), groups=1, pitch=0, row_bytes=32,
                                 row_stride=out.strides[0], group_stride=1 << 40)
    assert made.verdict == "clean"
    assert (out == 0).all()


def test_no_rows_no_columns_and_no_groups_leave_everything():
    out = np.full((4, 64), 7, np.float16)
    simulate_groups(np.zeros((4, 0), np.float16), np.zeros((0, 64, 0), np.float16), np.array([0], np.int32), out)
    assert (out == 7).all()
    simulate_groups(np.zeros((4, 128), np.float16), np.zeros((0, 64, 128), np.float16), np.array([0], np.int32), out)
    assert (out == 7).all()


@pytest.mark.parametrize(("outer", "m", "n"), [((), 0, 16), ((), 16, 0), ((2,), 0, 8), ((0,), 16, 8), ((3, 0), 16, 8), ((2,), 0, 1)])
def test_what_is_added_to_a_product_without_elements_is_taken(outer, m, n):
    """NumPy gives empty arrays strides of 0. torch gives them the strides of the array that they are a part of."""
    x, w, out = (np.zeros((*outer, *shape), np.float32) for shape in ((m, 8), (8, n), (m, n)))
    for name in ("residual", "c"):
        simulate(x, w, out, beta=1.0, **{"c": out.copy(), name: out.copy()})
    views = [ArrayView(0, shape, contiguous_strides(shape), "f32", 0, "torch") for shape in (x.shape, w.shape, out.shape)]
    for strides in (tuple(range(out.ndim)), (7,) * out.ndim):
        assert Adapter.can_implement(*views, residual=views[2]._replace(strides=strides)) is None


def test_rows_that_are_gathered_from_none_are_zero():
    out = np.full((5, 64), 7, np.float16)
    report = simulate_groups(np.zeros((0, 128), np.float16), np.ones((1, 64, 128), np.float16), np.array([0, 5], np.int32), out,
                             gather=np.full(5, -1, np.int32))
    assert (out == 0).all()
    assert report.verdict == "clean"


def test_a_dense_product_without_depth_is_zero_or_refused():
    out = np.ones((64, 64), np.float16)
    simulate(np.zeros((64, 0), np.float16), np.zeros((0, 64), np.float16), out)
    assert (out == 0).all()
    for more in ({"bias": np.full(64, 5, np.float32)}, {"activation": "relu"}, {"alpha": 2.0}, {"residual": out}):
        with pytest.raises(LaunchError, match="K = 0 leaves nothing"):
            simulate(np.zeros((64, 0), np.float16), np.zeros((0, 64), np.float16), out, **more)


def seen(shape, strides, dtype="bf16", pointer=1 << 40):
    return ArrayView(pointer, shape, strides, dtype, 0, "cupy")


GOOD = {"a": seen((64, 64), (64, 1)), "b": seen((64, 64), (1, 64)), "out": seen((64, 64), (64, 1))}


@pytest.mark.parametrize("changed", [
    {"a": seen((64, 64), (-64, 1))}, {"a": seen((64, 64), (64, -1))}, {"a": seen((64, 64), (1, -64))}, {"b": seen((64, 64), (1, -64))},
    {"b": seen((64, 64), (-64, 1))}, {"out": seen((64, 64), (-64, 1))}, {"out": seen((64, 64), (64, -1))},
])
def test_a_flipped_array_is_refused_in_a_sentence_by_both(changed):
    arrays = {**GOOD, **changed}
    said = Adapter.can_implement(**arrays)
    assert said is not None
    assert next(iter(changed)) in said
    with pytest.raises(LaunchError) as error:
        Problem(Arrays(**arrays))
    assert str(error.value) == said
    assert Adapter.can_implement(**GOOD) is None


def test_flipped_batches_and_groups_are_refused_too():
    batch = {"a": seen((4, 64, 64), (4096, 64, 1)), "b": seen((4, 64, 64), (-4096, 64, 1)), "out": seen((4, 64, 64), (4096, 64, 1))}
    assert "not negative" in str(Adapter.can_implement(**batch))
    for name in ("x", "w"):
        arrays = {"x": seen((64, 64), (64, 1)), "w": seen((2, 64, 64), (4096, 64, 1)), "lengths": seen((3,), (1,), "s32"),
                  "out": seen((64, 64), (64, 1))}
        view = arrays[name]
        arrays[name] = view._replace(strides=(-view.strides[0], *view.strides[1:]))
        with pytest.raises(LaunchError, match="not negative"):
            GroupProblem(GroupArrays(**arrays), GroupOptions())


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_strides_of_groups_along_extents_of_1_mean_nothing(groups, rows):
    """Of masked groups of one row, which may be the first rows of larger ones, and of one group."""
    shapes = {"x": (groups, rows, 64), "w": (groups, 1, 64), "out": (groups, rows, 1), "lengths": (groups,), "x_scale": (groups, rows, 1),
              "w_scale": (groups, 1, 1)}
    types = {"x": "e4m3", "w": "e4m3", "lengths": "s32", "x_scale": "f32", "w_scale": "f32"}
    plain = {name: seen(shape, contiguous_strides(shape), types.get(name, "bf16"), 1 << 30 + place)
             for place, (name, shape) in enumerate(shapes.items())}
    junk = {name: array._replace(strides=tuple(stride if extent > 1 else -7 for extent, stride
                                               in zip(array.shape, array.strides, strict=True))) for name, array in plain.items()}
    found = []
    for arrays in (settled(GroupArrays(**plain)), settled(GroupArrays(**junk))):
        problem = GroupProblem(arrays, GroupOptions("masked"))
        found.append((problem.x_lines, problem.w_lines, problem.y_lines, problem.arguments(arrays, heuristic(problem), len)))
    assert found[0] == found[1]


def test_groups_of_one_row_may_be_the_first_rows_of_larger_ones():
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((3, 5, 64)).astype(np.float16), rng.standard_normal((3, 8, 64)).astype(np.float16)
    out = np.full((3, 4, 8), 7, np.float16)
    simulate_groups(x[:, :1], w, np.array([1, 0, 1], np.int32), out[:, :1], layout="masked", card=H200.with_sms(2))
    for group in (0, 2):
        assert np.abs(out[group, 0] - w[group].astype(np.float64) @ x[group, 0]).max() < 0.05
        out[group, 0] = 7
    assert (out == 7).all()


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_the_rows_of_groups_are_cleared_on_a_gpu(layout):
    torch = pytest.importorskip("torch")
    from ptxkit import gemm

    lengths, rows, cleared = LAYOUTS[layout]
    run = {"cu_seqlens": gemm.group_gemm, "masked": gemm.group_gemm_masked, "contiguous": gemm.group_gemm_contiguous}[layout]
    out = torch.full((*rows, 72), 7, dtype=torch.bfloat16, device="cuda")
    x, w = (torch.zeros(shape, dtype=torch.bfloat16, device="cuda") for shape in ((*rows, 0), (3, 72, 0)))
    run(x, w, torch.tensor(lengths, dtype=torch.int32, device="cuda"), out=out)
    for row, values in enumerate(out.reshape(-1, 72).float().cpu()):
        assert (values == (0 if row in cleared else 7)).all()
