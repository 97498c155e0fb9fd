"""What a bench measures: shapes in words, in files, in lists, and drawn at random."""

from __future__ import annotations

import json
import math

import pytest

from ptxkit.gemm.tools import problems
from ptxkit.gemm.tools.bench import shapes
from ptxkit.gemm.tools.bench.shapes import PRESETS, Problem, ShapeError, parse


def test_the_lists_are_those_that_the_numbers_are_promised_for():
    burst = PRESETS["burst"].problems
    assert len(burst) == len(set(burst)) == 7 + 1 + 5 * 7
    assert {p.m for p in burst if p.m == p.n == p.k} == {512, 1024, 2048, 4096, 6144, 8192, 16384}
    assert {p.m for p in burst if (p.n, p.k) == (576, 7168)} == {1, 16, 64, 128, 4096}
    assert len(PRESETS["sustained"].problems) == 7
    assert {p.layout for p in PRESETS["layouts"].problems} == set(shapes.LAYOUTS)
    assert all(p.memory_bound for p in PRESETS["memory"].problems)
    assert [p.block for p in PRESETS["fp8"].problems] == [False] * 2 + [True] * 4
    assert len(PRESETS["rowcol"].problems) == 40
    assert all(p.rowcol for p in PRESETS["rowcol"].problems)


def test_scales_of_a_list_are_replaced_where_it_is_fp8():
    for scales in shapes.SCALES:
        assert [p.scales for p in parse("64:e4m3,128:e4m3-block,256:bf16", scales=scales)] == [scales, scales, "one"]
    assert [p.scales for p in parse("64:e4m3,128:e4m3-rowcol", ["e5m2", "bf16"])] == ["one", "rowcol", "one", "one"]


def test_a_shape_with_scales_of_rows_and_columns_is_that_problem():
    problem = problems.described(shapes.problem("128x256x512:e4m3-rowcol"))
    assert problem.fusion.scale == "row_column"
    assert problems.described(shapes.problem("128x256x512:e4m3")).fusion.scale == "whole"
    assert problems.described(shapes.problem("128x256x512:e4m3-block")).block_scales


@pytest.mark.parametrize(("text", "problem"), [
    ("4096", Problem(4096, 4096, 4096)),
    ("1x2x3", Problem(1, 2, 3)),
    ("128X2112x7168:f16:tn", Problem(128, 2112, 7168, "f16", "tn")),
    ("64x64x128:nn", Problem(64, 64, 128, "bf16", "nn")),
    ("4096x4096x7168:e4m3-block", Problem(4096, 4096, 7168, "e4m3", "nt", True)),
    ("4096x4096x7168:e4m3-rowcol", Problem(4096, 4096, 7168, "e4m3", "nt", rowcol=True)),
])
def test_a_shape_in_words(text, problem):
    assert shapes.problem(text) == problem
    assert shapes.problem(str(problem)) == problem


@pytest.mark.parametrize("text", ["", "3x", "axbxc", "1x2", "1x2x3x4x5", "0x1x2x3", "0x1x1", "16:f64", "16:xx", "nosuch",
                                  "16:bf16-rowcol", "16:e4m3-rows", "2x16x16x16:e4m3-rowcol"])
def test_what_is_no_shape_says_so(text):
    with pytest.raises(ShapeError):
        parse(text)


def test_shapes_from_files_lists_and_with_other_types(tmp_path):
    wanted = (Problem(16, 32, 64), Problem(512, 512, 512, "f16", "nn"))
    (tmp_path / "shapes.txt").write_text("# M N K\n16 32 64\n\n512x512x512:f16:nn   # a cube\n")
    (tmp_path / "shapes.json").write_text(json.dumps([[16, 32, 64], "512:f16:nn"]))
    assert parse(str(tmp_path / "shapes.txt")) == parse(str(tmp_path / "shapes.json")) == parse("16x32x64,512:f16:nn") == wanted
    assert parse("512,512", ["bf16", "f16"], "tt") == tuple(Problem(512, 512, 512, dtype, "tt") for dtype in ("bf16", "f16"))
    assert parse("quick,512") == PRESETS["quick"].problems
    (tmp_path / "shapes.json").write_text("{}")
    with pytest.raises(ShapeError, match="is a list"):
        parse(str(tmp_path / "shapes.json"))


def test_bytes_and_flops():
    problem = Problem(128, 576, 7168, "e4m3")
    assert problem.bytes == 128 * 7168 + 576 * 7168 + 2 * 128 * 576
    assert problem.flops == 2 * 128 * 576 * 7168


@pytest.mark.parametrize(("kind", "unit"), [("aligned", 64), ("any8", 8), ("any", 1)])
@pytest.mark.parametrize("dtype", ["bf16", "e4m3", "f32"])
def test_random_shapes_are_log_uniform_and_the_same_for_a_seed(kind, unit, dtype):
    found = parse(f"random:7:400:{kind}", [dtype])
    assert found == parse(f"random:7:400:{kind}", [dtype])
    assert len(found) == 400
    assert found != parse(f"random:8:400:{kind}", [dtype])
    least = max(unit, 16 if kind == "any8" and dtype == "e4m3" else unit)
    for problem in found:
        assert 16 <= problem.m <= 10_000
        assert {128 <= extent <= 16_000 and extent % least == 0 for extent in (problem.n, problem.k)} == {True}
        assert problem.layout == "nt" or dtype == "bf16" or (dtype == "f32" and kind == "any")
        assert not problem.offset or (kind == "any" and dtype != "e4m3")
        assert shapes.problem(str(problem)) == problem
        assert problem.layout[0] == "n" or kind == "any" or problem.m % 8 == 0
    for name, low, high in (("m", 16, 10_000), ("n", 128, 16_000), ("k", 128, 16_000)):
        extents = [getattr(problem, name) for problem in found]
        logarithms = sorted(math.log(extent / low) / math.log(high / low) for extent in extents)
        distance = max(abs(value - (place + 0.5) / 400) for place, value in enumerate(logarithms))
        assert distance < 1.63 / math.sqrt(400)     # Kolmogorov and Smirnov, at 1 %


def test_random_shapes_join_others_and_what_is_none_says_so():
    assert parse("512,random:1:2,64x64x64") [:2] == (Problem(512, 512, 512), Problem(64, 64, 64))
    assert {problem.layout for problem in parse("random:1:40")} == set(shapes.LAYOUTS)
    assert {problem.dtype for problem in parse("random:1:40")} == {"bf16", "f16"}
    for text in ("random:", "random:1", "random:1:0", "random:x:3", "random:1:3:odd", "random:1:3:any:more"):
        with pytest.raises(ShapeError):
            parse(text)
