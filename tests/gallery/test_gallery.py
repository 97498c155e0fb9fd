"""Every kernel of the gallery: right and certified on the CPU device, right on a GPU, and good machine code."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import gallery as benchmark
from examples.host.gallery import GALLERY, Shape
from examples.host.problem import Problem, launched, narrow, simulated, taken, wide
from examples.products import int8, sparse, w4a16
from examples.rows import norms, quantise, softmax, topk
from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.tools.bench import stub
from tests.test_docs import blocks, run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gallery.md"
CASES = [pytest.param(name, shape, id=f"{name}-{'x'.join(map(str, shape))}") for name, kernel in GALLERY.items() for shape in kernel.small]
CASES += [pytest.param(name, shape, id=f"{name}-{'x'.join(map(str, shape))}", marks=pytest.mark.sweep)
          for name, kernel in GALLERY.items() for shape in kernel.more]
GLOBAL = re.compile(r"\b((?:LDG|STG)\.E\S*)")


def of(problem: Problem) -> dict[str, np.ndarray]:
    return {name: np.array(bits) for name, (_, bits) in problem.operands.items()}


@pytest.mark.thinned(5)
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_kernel_is_right_and_certified(name: str, shape: Shape) -> None:
    share, reports = simulated(GALLERY[name].problem(*shape))
    assert share <= 1
    assert {report.verdict for report in reports} <= {"clean", GALLERY[name].verdict}, reports
    if GALLERY[name].verdict == "clean":
        assert all(report.every_schedule for report in reports), reports


@pytest.mark.parametrize(("shape", "sms"), [((13, 192, 2048), 2), ((1, 448, 1280), 4), ((8, 128, 640), 1)])
def test_w4a16_of_more_bands_than_sms_has_two_a_cta(shape: Shape, sms: int) -> None:
    """The last CTA of an odd number has one, with more stages than its ring has."""
    problem = GALLERY["w4a16"].problem(*shape)
    arrays = of(problem)
    (step,) = w4a16.steps(*arrays.values(), H200.with_sms(sms))
    assert step.config["PARTS"] == 2
    report = step.simulate()
    assert (report.verdict, report.every_schedule) == ("clean", True), report
    assert problem.share(arrays) <= 1


@pytest.mark.parametrize(("change", "sentence"), [
    ({"q": (64, 100)}, "not uint8 of 0 to 0 with 64 and 100"), ({"q": (60, 128)}, "N is a multiple of 64 and K of 128"),
    ({"q": (128,)}, r"q has shape \[128\]: it is \[N, K\]"), ({"largest": 16}, "q has integers of 0 to 15, .*, not uint8 of 0 to 16"),
    ({"type": np.int8, "largest": -1}, "not int8 of -1 to 0"), ({"type": np.float32}, "not float32 of 0.0 to 0.0"),
    ({"scale": (60, 1)}, "scale has the bits of bf16 in uint16, and N is a multiple of 64, not uint16 with 60"),
    ({"scale": (64, 1), "bits": np.float32}, "not float32 with 64: `narrow` makes bits"), ({"scale": (64,)}, r"scale has shape \[64\]")])
def test_weights_that_are_not_of_4_bits_are_refused(change: dict[str, Any], sentence: str) -> None:
    """Bits past the fourth would change other weights."""
    q, scale = np.zeros(change.get("q", (64, 128)), change.get("type", np.uint8)), np.zeros(change.get("scale", (64, 1)), np.uint16)
    q[-1:] = change.get("largest", 0)
    with pytest.raises(ValueError, match=sentence):
        w4a16.pack_scales(scale.astype(change.get("bits", np.uint16))) if "scale" in change else w4a16.pack_weights(q)


def test_bands_of_w4a16_fill_waves() -> None:
    """Two bands a CTA where one band a CTA is no fewer waves and bands; never where all CTAs are one wave."""
    assert [w4a16.parts(64 * bands, 132) for bands in (1, 132, 133, 172, 264, 265, 396, 448, 896)] == [1, 1, 2, 2, 2, 1, 1, 2, 1]


@pytest.mark.parametrize("columns", [36, 128])
def test_topk_orders_zeros_and_nans_as_torch_does(columns: int) -> None:
    """0 and -0 are equal, a NaN is above all whatever its bits are, and a row of one value has its first columns."""
    torch = pytest.importorskip("torch")
    for word in (0x80000000, 0xFFFFFFFF, 0xFF800000, 0x7FC00001, 1):
        bits = np.zeros((3, columns), np.uint32)
        bits[0], bits[1, 1::2], bits[2, columns - 2] = word, word, word
        x = bits.view(np.float32)
        values, places = np.zeros((3, 9), np.float32), np.zeros((3, 9), np.uint32)
        (step,) = topk.steps(x, values, places)
        assert step.simulate().verdict == "clean"
        right = torch.sort(torch.from_numpy(x), dim=1, descending=True, stable=True)
        assert np.array_equal(places, right.indices[:, :9].numpy()), hex(word)
        assert np.array_equal(values, right.values[:, :9].numpy(), equal_nan=True)


def test_sums_of_int8_stay_within_s32() -> None:
    """128 x 128 x 131,072 is 2^31."""
    for k, fits in ((131_056, True), (131_072, False)):
        a, scale, d = np.zeros((8, k), np.int8), np.zeros(8, np.float32), np.zeros((8, 8), np.uint16)
        if fits:
            assert int8.steps(a, a, scale, scale, d)
        else:
            with pytest.raises(ValueError, match=r"K is below 131,072, so that no sum of products .*, not 131,072: split K, and add"):
                int8.steps(a, a, scale, scale, d)


@pytest.mark.filterwarnings("ignore:invalid value")        # an infinite scale times 0
def test_a_block_that_is_not_finite_is_nan() -> None:
    x = narrow(np.ones((1, 384), np.float32))
    x[0, 3], x[0, 200] = 0x7FC0, 0xFF80
    q, scale = np.zeros(x.shape, np.uint8), np.zeros((1, 3), np.float32)
    (step,) = quantise.steps(x, q, scale)
    assert step.simulate().verdict == "clean"
    assert np.isnan((wide("e4m3", q) * scale.astype(np.float64).repeat(128, 1)).reshape(3, 128)).all(1).tolist() == [True, True, False]


@pytest.mark.parametrize(("given", "sentence"), [
    ({"kind": "group"}, "a norm is \"rms\", without a bias, or \"layer\", not 'group'"), ({"bias": 8}, "not 'rms' with one"),
    ({"kind": "layer"}, "bias is a NoneType, not an array"), ({"h": 8}, "residual is a NoneType, not an array")])
def test_what_a_norm_does_not_use_is_refused(given: dict[str, Any], sentence: str) -> None:
    x, weight, y, more = np.zeros((1, 8), np.uint16), np.zeros(8, np.uint16), np.zeros((1, 8), np.uint16), dict(given)
    kind = more.pop("kind", "rms")
    with pytest.raises(ValueError, match=sentence):
        norms.steps(kind, x, weight, y, **{name: np.zeros(size, np.uint16) for name, size in more.items()})


@pytest.mark.parametrize("seed", range(2))
def test_a_scan_is_right_in_other_orders(seed: int) -> None:
    share, (_, report) = simulated(GALLERY["scan"].problem(2 * 16_384 + 77, seed), schedule="random", seed=seed)
    assert share == 0
    assert {finding.rule for finding in report.findings} == {"order-dependence"}      # the tickets, and what a look back finds


@pytest.mark.parametrize("name", GALLERY)
def test_a_wrong_result_is_noticed(name: str) -> None:
    problem = GALLERY[name].problem(*GALLERY[name].small[0])
    assert not problem.share(of(problem)) <= 1                                     # what the outputs hold before the launch
    (first, *_), said = problem.right, problem.mismatches(of(problem), most=3)
    assert re.match(rf"{first} \[.*\]: [\d,]+ of [\d,]+ elements are wrong", said[0])
    assert said[1].startswith(f"{first}[0")


@pytest.mark.parametrize(("name", "shape", "way_out"), [
    ("softmax", (2, 1001), "a row has a multiple of 8 elements, 8 to 32,768, .*, not 1,001: pad it, or split it"),
    ("softmax", (1, 32_776), "not 32,776"), ("rotary", (2, 2, 96), "a head has 64, 128 or 256 elements, .*, not 96"),
    ("quantise", (2, 192), "columns are whole blocks of 128, not 192: `ptxkit.gemm.quantize` takes any number"),
    ("topk", (2, 1028), "finds 1 to 32 of them, not 1 of 1,028: pad the row with -inf"),
    ("f32", (4, 6), "N and K multiples of 4, .*, not 4 x 6 and 1 x 1"),
    ("int8", (4, 24), "K is a multiple of 16 and N of 8, .*, not 24 and 1"),
    ("sparse", (4, 12), "K is a multiple of 16 and N of 8, .*, not 24 and 1"),
    ("w4a16", (17, 128), "M is 1 to 16, N a multiple of 64 and K of 128, not 17, 1 and 128: `ptxkit.gemm.gemm` takes more rows"),
    ("transpose", (8, 12), "rows and columns are multiples of 8, .*, not 8 x 12")])
def test_a_shape_that_is_not_taken_is_refused(name: str, shape: tuple[int, ...], way_out: str) -> None:
    steps = import_module(f"examples.{GALLERY[name].module}").steps
    given = [np.zeros(shape, np.uint16), *(np.zeros((1, 1), np.uint16) for _ in range(len(signature(steps).parameters) - 1))]
    with pytest.raises(ValueError, match=way_out):
        steps(*given)


MAPPED = {"transpose": "x y", "f32": "a b", "int8": "a b d", "sparse": "kept b d"}
"""Operands that tensor copies read or write: their lines may have gaps."""


@pytest.mark.parametrize("name", GALLERY)
def test_arrays_that_do_not_go_together_are_refused(name: str) -> None:
    """A kernel would read or write past an operand that is short, and miss the elements of one that has gaps."""
    problem = GALLERY[name].problem(*GALLERY[name].small[0])
    operands = of(problem)
    for number, (operand, array) in enumerate(operands.items()):
        short = array[:-1] if len(array) > 1 else array.repeat(2, 0)
        gaps = array.repeat(2, -1)[..., ::2]
        for other in [short] * (number > 0) + [gaps] * (array.size > 1 and operand not in MAPPED.get(name, "").split()):
            with pytest.raises(ValueError, match=r"has shape|has gaps|not |goes with"):
                problem.steps({**operands, operand: other})


@pytest.mark.parametrize("name", GALLERY)
def test_what_is_no_array_of_these_axes_is_refused(name: str) -> None:
    """By one sentence that begins with the operand's name, or names the shape that is taken."""
    problem = GALLERY[name].problem(*GALLERY[name].small[0])
    operands = of(problem)
    for operand, array in operands.items():
        for other in (array[None], array[0] if array.ndim > 1 else array[:1].reshape(()), array.tolist(), None):
            with pytest.raises(ValueError, match=rf"^{operand} (has shape|is a) |goes with|not \[") as raised:
                problem.steps({**operands, operand: other})
            assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", GALLERY)
def test_a_result_has_memory_of_its_own(name: str) -> None:
    """As everywhere: in one CTA a kernel may be right in place, in several it is not."""
    problem = GALLERY[name].problem(*GALLERY[name].small[0])
    operands = of(problem)
    for result in problem.right:
        for operand in operands.keys() - {result}:
            memory = np.zeros(max(operands[result].nbytes, operands[operand].nbytes), np.uint8)
            both = {key: memory[:operands[key].nbytes].view(operands[key].dtype).reshape(operands[key].shape) for key in (result, operand)}
            with pytest.raises(LaunchError, match=rf"({result} and {operand}|{operand} and {result}) share memory"):
                problem.steps({**operands, **both})


@pytest.mark.parametrize("name", GALLERY)
def test_elements_of_a_result_share_no_memory(name: str) -> None:
    """Rows of a tensor map may lie on one another, and what is left there would depend on the order of the stores."""
    problem = GALLERY[name].problem(*GALLERY[name].small[0])
    operands = of(problem)
    for result in problem.right:
        array = operands[result]
        if array.size > 1:
            one = np.lib.stride_tricks.as_strided(array, array.shape, (0, *array.strides[1:]))
            with pytest.raises((ValueError, LaunchError), match=rf"{result} has .*(must not overlap|gaps between its elements)"):
                problem.steps({**operands, result: one})


@pytest.mark.parametrize("name", ["transpose", "f32", "int8", "sparse"])
def test_operands_of_tensor_copies_have_the_type_that_is_copied(name: str) -> None:
    """Of other types of its width the bits were taken; a transpose takes all of 16 bits."""
    problem = GALLERY[name].problem(*GALLERY[name].small[0])
    operands = of(problem)
    for operand in MAPPED[name].split():
        kind = {1: np.uint8, 2: np.float16, 4: np.int32}[operands[operand].itemsize]
        (step,) = problem.steps({**operands, operand: operands[operand].view(kind)})
        if name == "transpose":
            assert step.simulate().verdict == "clean"
        else:
            with pytest.raises(LaunchError, match=r"has elements of (u8|f16|s32), the kernel copies (s8|bf16|f32)"):
                step.simulate()


def test_what_is_no_card_is_refused() -> None:
    problem = GALLERY["sparse"].problem(*GALLERY["sparse"].small[0])
    for sms in (0, 1, 2.5, "x"):
        with pytest.raises(ValueError, match=f"sms is {sms!r}: a cluster has an SM for each of 2 CTAs"):
            sparse.steps(*of(problem).values(), sms=sms)
    with pytest.raises(ValueError, match=r"card is a str: it is a Card of ptxkit\.cards, or None"):
        w4a16.steps(*of(GALLERY["w4a16"].problem(*GALLERY["w4a16"].small[0])).values(), "H200")


def test_numbers_of_numpy_are_numbers() -> None:
    x, weight, y = narrow(np.ones((1, 8), np.float32)), narrow(np.ones(8, np.float32)), np.zeros((1, 8), np.uint16)
    (step,) = norms.steps("rms", x, weight, y, eps=np.float32(3))
    assert step.simulate().verdict == "clean"
    assert np.array_equal(wide("bf16", y), np.full((1, 8), 0.5))


@pytest.mark.parametrize("name", GALLERY)
def test_arrays_without_elements_are_refused(name: str) -> None:
    """Whichever axes of the operands are empty: there is no launch without CTAs, and no tensor map without elements."""
    problem = GALLERY[name].problem(*GALLERY[name].small[0])
    operands = of(problem)
    for axis in range(max(array.ndim for array in operands.values())):
        empty = {key: array[(slice(None),) * axis + (slice(0),)] if axis < array.ndim else array for key, array in operands.items()}
        with pytest.raises(ValueError, match=r"without elements there is nothing to launch|, not .*\b0\b"):
            problem.steps(empty)


def test_an_array_of_a_gpu_begins_at_16_bytes() -> None:
    with stub.installed():
        taken(x=(stub.array("f32", 4, 8), (4, 8)))
        for field, value in (("pointer", 4), ("strides", (16, 1))):
            other = stub.array("f32", 4, 8)
            setattr(other, field, value)
            with pytest.raises(ValueError, match="x has gaps between its elements, or begins at no multiple of 16 bytes: pass a copy"):
                taken(x=(other, (4, 8)))


def test_results_on_a_gpu_have_memory_of_their_own() -> None:
    with stub.installed():
        x, y = stub.array("bf16", 4, 64), stub.array("bf16", 4, 64)
        assert softmax.steps(x, y)
        y.pointer = x.pointer + 256
        with pytest.raises(LaunchError, match="y and x share memory"):
            softmax.steps(x, y)
        with pytest.raises(ValueError, match=r"x has shape \[64\]: it is \[rows, columns\]"):
            softmax.steps(stub.array("bf16", 64), y)


@pytest.mark.parametrize("name", GALLERY)
def test_launches_are_made_where_there_is_a_card(name: str) -> None:
    problem = GALLERY[name].problem(*GALLERY[name].small[0])
    with stub.installed():
        assert problem.steps(of(problem))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_kernel_is_right_on_the_gpu(name: str, shape: Shape) -> None:
    assert launched(GALLERY[name].problem(*shape)) <= 1


def kernels(name: str) -> Iterator[tuple[str, str, int]]:
    """Name, machine code and spilled bytes of what the last small problem launches."""
    problem = GALLERY[name].problem(*GALLERY[name].small[-1])
    for step in problem.steps(of(problem)):
        (resources,) = step.kernel.assemble(**step.config).resources.values()
        yield resources.name, step.kernel.sass(**step.config), resources.spill_stores + resources.spill_loads + resources.stack


@pytest.mark.ptxas
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", GALLERY)
def test_the_machine_code_spills_nothing_and_has_accesses_of_16_bytes(name: str) -> None:
    for kernel, sass, spilled in kernels(name):
        assert spilled == 0, kernel
        found = {access.replace(".NA", "").replace(".CONSTANT", "") for access in GLOBAL.findall(sass)}
        assert {access for access in found if not access.endswith(".128")} <= GALLERY[name].narrow.keys(), kernel


@pytest.mark.ptxas
def test_the_f32_product_is_a_stream_of_ffma() -> None:
    """Four steps along K have 24 loads for 512 FFMA, and nearly all FFMA leave an operand in the reuse cache."""
    sass = import_module("examples.products.f32").f32_gemm.sass()
    products = re.findall(r"FFMA (.*?);", sass)
    assert (len(products), sass.count("LDS.128"), len(re.findall(r"\bLDS\b(?!\.128)", sass))) == (4096, 192, 0)
    assert sum(".reuse" in product for product in products) > 0.9 * len(products)
    assert crowded(products) < 0.3 * len(products)


def crowded(products: list[str]) -> int:
    """FFMA that read two registers or more of one bank, except what the one before has left in the reuse cache."""
    found, cache = 0, ["", "", ""]
    for product in products:
        operands = [word.strip() for word in product.split(",")[1:]]
        names = [word.partition(".")[0] for word in operands]
        reads = {name for name, kept in zip(names, cache, strict=True) if name not in (kept, "RZ")}
        found += max(sum(int(name[1:]) % 2 == bank for name in reads) for bank in range(2)) > 1
        cache = [name if ".reuse" in word else "" for name, word in zip(names, operands, strict=True)]
    return found


def test_packed_weights_are_the_operands_of_mma() -> None:
    module = import_module("examples.products.w4a16")
    q = np.random.default_rng(0).integers(0, 16, (128, 256), np.uint8)
    words, found = module.pack_weights(q), np.zeros_like(q)
    for band, group, tile, block, lane, word, i in np.ndindex(*words.shape, 8):
        half, pair, element = i & 1, i >> 1 & 1, i >> 2
        row, column = 64 * band + 16 * tile + 8 * half + lane // 4, 128 * group + 64 * block + 16 * (lane % 4)
        found[row, column + 4 * word + 2 * pair + element] = words[band, group, tile, block, lane, word] >> 4 * i & 15
    assert np.array_equal(found, q)


def test_compressed_values_are_at_the_places_that_the_metadata_says() -> None:
    module = import_module("examples.products.sparse")
    a = module.prune(np.random.default_rng(0).integers(0, 1 << 16, (150, 80)).astype(np.uint16))
    a[::3, 8:12], a[1, 4:8], a[2, 4:8] = 0, (0, 0, 0, 7), (0x8000, 0, 5, 0)               # no value, one, and one beside -0
    kept, metadata = module.compress(a)
    found = np.zeros_like(a)
    for row, chunk in np.ndindex(150, 20):
        stage, group, warp, eight, r = chunk // 16, row % 128 // 64, row % 64 // 16, row % 16 // 8, row % 8
        selector, half = chunk % 16 // 8, chunk % 8 // 4
        bits = metadata[row // 128, stage, 128 * group + 32 * warp + 4 * r + 2 * selector + half] >> (16 * eight + 4 * (chunk % 4)) & 15
        assert bits & 3 < bits >> 2
        found[row, 4 * chunk + (bits & 3)], found[row, 4 * chunk + (bits >> 2)] = kept[row, 2 * chunk:2 * chunk + 2]
    assert np.array_equal(found & 0x7FFF == 0, a & 0x7FFF == 0)
    assert np.array_equal(found[a & 0x7FFF != 0], a[a & 0x7FFF != 0])
    assert metadata.shape == (2, 2, 256)
    assert set(metadata[:, 1, 2::4].ravel().tolist()) == {0x44444444}   # columns 96 to 111 are past K


def test_what_is_not_sparse_is_refused() -> None:
    module = import_module("examples.products.sparse")
    a = np.zeros((3, 32), np.uint16)
    a[2, 20:23] = 1
    with pytest.raises(ValueError, match=r"row 2 has 3 values that are not zero in columns 20 to 23, .*: `prune` drops the smaller ones"):
        module.compress(a)
    for prepare in (module.prune, module.compress):
        with pytest.raises(ValueError, match=r"K is a multiple of 16, .*, not 24: pad it with zeros"):
            prepare(a[:, :24])
        with pytest.raises(ValueError, match="a has the bits of bf16 in uint16, not float32: `narrow` makes them"):
            prepare(wide("bf16", a).astype(np.float32))
    kept, metadata = module.compress(module.prune(a))
    with pytest.raises(ValueError, match=r"kept 3 x 16 goes with b \[N, 32\], d \[3, N\] and metadata \[2, 1, 256\], not with \[8, 48\]"):
        module.steps(kept, metadata, np.zeros((8, 48), np.uint16), np.zeros((3, 8), np.uint16))


@pytest.mark.parametrize("kind", ["bf16", "e4m3"])
def test_bits_and_values_agree(kind: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    if kind == "bf16":
        values = np.random.default_rng(0).standard_normal(5000, dtype=np.float32) * 2.0 ** np.arange(-25, 25).repeat(100).astype(np.float32)
        assert np.array_equal(narrow(values), values.astype(ml_dtypes.bfloat16).view(np.uint16))
        assert np.array_equal(wide("bf16", narrow(values)), values.astype(ml_dtypes.bfloat16).astype(np.float64))
    else:
        bits = np.arange(256, dtype=np.uint8)
        assert np.array_equal(wide("e4m3", bits), bits.view(ml_dtypes.float8_e4m3fn).astype(np.float64), equal_nan=True)


def test_what_the_page_shows_is_printed() -> None:
    found, names = blocks(PAGE), {"__name__": "page"}
    assert [block.language for block in found] == ["python", "text"] * 2
    for block, shown in zip(found[::2], found[1::2], strict=True):
        assert run(block, PAGE, names).strip() == shown.text.strip(), f"docs/gallery.md:{block.line + 1}"


def test_the_page_lists_every_kernel() -> None:
    page = PAGE.read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\(\.\./examples/(\w+/\w+)\.py\)", page))
    files = {path.relative_to(ROOT / "examples").with_suffix("").as_posix() for folder in ("rows", "layouts", "sums", "products")
             for path in (ROOT / "examples" / folder).glob("*.py")}
    assert files - listed == set()
    assert {kernel.module.replace(".", "/") for kernel in GALLERY.values()} <= listed
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+`): \[", page, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(GALLERY)
    assert "](docs/gallery.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_rows_are_kept_when_a_kernel_raises_and_when_time_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    def row(_torch: object, _timer: object, name: str, shape: Shape, problem: Problem, _rounds: int, _pool: Executor) -> dict[str, object]:
        assert problem.bytes == GALLERY[name].problem(*shape).bytes
        if name == "scan":
            raise ValueError("no such card\nand more")
        return {"kernel": name, "shape": shape, "us": {"ours": 2.0}, "gbs": 3.0, "of_copy": 0.5}

    def nothing() -> None:
        pass

    cuda = SimpleNamespace(empty_cache=nothing, get_device_name=lambda: "card")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(compiler=SimpleNamespace(reset=nothing), cuda=cuda))
    monkeypatch.setattr(benchmark.driver, "available", lambda: True)
    monkeypatch.setattr(benchmark, "row", row)
    monkeypatch.setattr(benchmark, "GALLERY", {name: replace(kernel, large=kernel.small) for name, kernel in GALLERY.items()})
    out = tmp_path / "rows.json"
    asked = ["--shapes", "0", "-o", str(out)]
    assert benchmark.main(["--kernel", "scan", "--kernel", "topk", *asked]) == 1
    first, second = json.loads(out.read_text())["rows"]
    assert (first["error"], second["kernel"]) == ("ValueError: no such card", "topk")
    assert benchmark.main(["--kernel", "topk", *asked]) == 0
    capsys.readouterr()
    assert benchmark.main(["--kernel", "topk", "--seconds", "-1", *asked]) == 0
    assert capsys.readouterr().out == "0 of 1 rows: -1 seconds are over\n"
