"""Decode on the CPU device: within the derived bound of float64, certified for every schedule, and only a sequence's own keys are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ptxkit import attention_decode
from ptxkit.attention import __main__ as command
from ptxkit.attention.config.decode import BLOCK, HEADS, RESIDENT, WARPS, DecodeConfig
from ptxkit.attention.heuristic import BESIDE, LEAST_BLOCKS, splits
from ptxkit.attention.kernels.decode import combine, decode
from ptxkit.attention.launch import decode as launch
from ptxkit.attention.launch.simulate_decode import decode_launches, simulate_decode
from ptxkit.attention.problem.decode import DecodeArrays, DecodeProblem
from ptxkit.attention.tools import bench_decode
from ptxkit.attention.tools.reference import expected, narrowed, widened
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.parts import ConfigError
from ptxkit.gemm.tools.bench import stub
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import TYPES

from .cases import NAN


@dataclass
class Decode:
    """Arrays of bits. Sequences have random pages; what no sequence has, in pages and of the table, is poisoned, and so are the outputs."""

    lengths: tuple[int, ...]
    heads: int
    kv_heads: int
    head: int = 64
    page: int = 16
    type: str = "bf16"
    table: int = 0                  # pages of a row of the table: as many as the longest sequence needs, and these
    growth: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        generator = np.random.default_rng(self.seed)
        needed = [-(-length // self.page) for length in self.lengths]
        pages, width, batches = sum(needed) + 3, max(needed) + self.table, len(self.lengths)
        order = generator.permutation(pages)
        self.page_table = np.full((batches, width), 1 << 30, np.int32)
        self.q = narrowed(generator.standard_normal((batches, self.heads, self.head)), self.type)
        self.k_cache, self.v_cache = (np.full((pages, self.page, self.kv_heads, self.head), NAN[self.type], np.uint16) for _ in range(2))
        self.own: list[tuple[Any, Any]] = []
        for batch, (length, count) in enumerate(zip(self.lengths, needed, strict=True)):
            own, order = order[:count], order[count:]
            self.page_table[batch, :count] = own
            growth = np.linspace(1, self.growth, length)[:, None, None]
            k, v = (narrowed(generator.standard_normal((length, self.kv_heads, self.head)) * by, self.type) for by in (growth, 1))
            for position in range(length):
                place = own[position // self.page], position % self.page
                self.k_cache[place], self.v_cache[place] = k[position], v[position]
            self.own.append((k, v))
        self.out, self.lse = np.full(self.q.shape, NAN[self.type], np.uint16), np.full(self.q.shape[:2], np.nan, np.float32)

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.q, self.k_cache, self.v_cache, self.page_table, np.array(self.lengths, np.int32), self.out

    def run(self, **more: Any) -> list[Any]:
        lengths = more.pop("lengths", self.arrays[4])
        return simulate_decode(*self.arrays[:4], lengths, self.out, lse=self.lse, dtype=self.type, **more)

    def share(self, scale: float | None = None) -> float:
        """The largest error of out and lse, as a share of its bound; NaN where an element was not stored."""
        worst = 0.0
        for batch, (k, v) in enumerate(self.own):
            out = widened(self.out[batch], self.type)[:, None]
            if not len(k):
                worst = max(worst, 0.0 if not out.any() and (self.lse[batch] == -np.inf).all() else np.inf)
                continue
            q = widened(self.q[batch], self.type)[:, None]
            right = expected(q, *(widened(x, self.type).swapaxes(0, 1) for x in (k, v)), self.type, scale=scale)
            for error in (np.abs(out - right.out) / right.out_bound, np.abs(self.lse[batch][:, None] - right.lse) / right.lse_bound):
                worst = float(error.max()) if not error.max() <= worst else worst
        return worst


CASES = {
    "one split, an empty sequence": (((80, 0), 2, 1), {}, 1),
    "pages of 64": (((150, 65), 8, 1), {"page": 64, "growth": 5}, 2),
    "head 128": (((90,), 2, 2), {"head": 128, "growth": 0.2}, 2),
    "head 256": (((100, 17), 3, 1), {"head": 256, "type": "f16"}, 2),
    "two slices of a group": (((40,), 20, 1), {"type": "f16"}, 3),
}
GROUPS = [(heads, kv_heads, page, head) for heads, kv_heads in ((2, 2), (8, 2), (8, 1)) for page in (16, 64) for head in HEADS]


def right(case: Decode, splits: int | None, **more: Any) -> None:
    reports = case.run(splits=splits, **more)
    for report in reports:
        assert (report.verdict, report.every_schedule) == ("clean", True), report
    assert case.share(more.get("scale")) <= 1


@pytest.mark.pure
@pytest.mark.parametrize("name", CASES)
def test_decode_is_softmax_over_the_sequences_own_keys(name: str) -> None:
    given, named, splits = CASES[name]
    right(Decode(*given, **named), splits)


@pytest.mark.pure
@pytest.mark.filterwarnings("ignore:invalid value")        # -inf times 0, in the reference
@pytest.mark.parametrize(("scale", "splits"), [(1.0, 1), (3.7, 2)])
def test_blocks_of_scores_of_minus_infinity_come_first(scale: float, splits: int) -> None:
    """All blocks of a warp, some of them, or none: the two sequences are one with more and fewer such keys."""
    case = Decode((310, 310), 2, 1)
    case.q[..., 0] = 0x3F80
    for batch, hidden in enumerate((135, 310)):
        (k, v), table = case.own[batch], case.page_table[batch]
        k[:hidden, :, 0] = 0xFF80
        for position in range(hidden):
            case.k_cache[table[position // 16], position % 16, 0, 0] = 0xFF80
        case.own[batch] = k[hidden:], v[hidden:]
    right(case, splits, scale=scale)


@pytest.mark.pure
@pytest.mark.parametrize("exponent", [20, 28])
def test_equal_scores_have_equal_weights_however_large(exponent: int) -> None:
    """A warp has five blocks, one after another, and one value for each of them."""
    case = Decode((320,), 1, 1)
    case.q[...], case.k_cache[...] = narrowed(np.full((1, 1, 64), 1.3 * 2.0**(exponent - 6)), "bf16"), narrowed(np.ones(1), "bf16")[0]
    for position in range(320):
        case.v_cache[case.page_table[0, position // 16], position % 16] = narrowed(np.full((1, 64), position // 64), "bf16")
    case.run(splits=1, scale=0.83)
    assert (widened(case.out, "bf16") == 2).all()


@pytest.mark.pure
@pytest.mark.thinned(12)
@pytest.mark.parametrize(("heads", "kv_heads", "page", "head"), GROUPS)
def test_groups_pages_and_heads(heads: int, kv_heads: int, page: int, head: int) -> None:
    """Sequences with more blocks than a CTA has warps, one that ends with a page, and one without keys."""
    right(Decode((3 * page + 17, 2 * page, 0), heads, kv_heads, head, page, seed=heads), None, schedule="random", seed=page)


@pytest.mark.gpu
@pytest.mark.parametrize("splits", [1, 3, None])
@pytest.mark.parametrize(("lengths", "heads", "kv_heads", "head", "page"), [
    ((2100, 0, 65), 4, 1, 128, 16), ((700, 1), 20, 1, 64, 48), ((333, 3000), 6, 2, 256, 64), ((17,) * 40, 8, 2, 128, 16)])
def test_decode_is_right_on_the_card(lengths: tuple[int, ...], heads: int, kv_heads: int, head: int, page: int, splits: int | None) -> None:
    """Twice: a launch leaves nothing behind that the next one would find."""
    torch = pytest.importorskip("torch")
    case = Decode(lengths, heads, kv_heads, head, page, seed=page)
    q, k, v, table, own, out = (torch.from_numpy(x.view(np.int16) if x.dtype == np.uint16 else x).cuda() for x in case.arrays)
    lse = torch.from_numpy(case.lse).cuda()
    for _ in range(2):
        attention_decode(*(x.view(torch.bfloat16) for x in (q, k, v)), table, own, out=out.view(torch.bfloat16), lse=lse, splits=splits)
    case.out, case.lse = out.cpu().numpy().view(np.uint16), lse.cpu().numpy()
    assert case.share() <= 1


@pytest.mark.pure
def test_a_scale_is_that_of_the_scores() -> None:
    case = Decode((20,), 1, 1)
    right(case, 1, scale=0.5)
    assert case.share() > 10                         # the bound can fail


@pytest.mark.pure
@pytest.mark.filterwarnings("ignore:invalid value")        # infinity minus infinity
@pytest.mark.parametrize("splits", [1, 2, 3])
@pytest.mark.parametrize(("hidden", "head"), [(range(16), 64), (range(59), 64), (range(60), 64), (range(16, 50), 256)])
def test_scores_of_minus_infinity_are_those_of_no_keys(hidden: range, head: int, splits: int) -> None:
    case, infinite = Decode((60,), 2, 1, head), narrowed(np.array(-np.inf), "bf16")
    case.q[..., 0] = narrowed(np.array(1.0), "bf16")
    for key in hidden:
        case.k_cache[case.page_table[0, key // 16], key % 16, :, 0] = infinite
    k, v = case.own[0]
    case.own[0] = tuple(np.delete(x, list(hidden), 0) for x in (k, v))
    right(case, splits)


@pytest.mark.pure
def test_lengths_and_pages_past_the_arrays_are_cut_off() -> None:
    """The CPU device refuses a load outside an array: these loads would be. Row 0 of the table has no spare page; row 1 names none."""
    case = Decode((32, 16), 2, 1)
    case.page_table[1] = -1, 1 << 30
    last = case.k_cache[-1], case.v_cache[-1]
    for cache in last:
        cache[...] = narrowed(np.random.default_rng(7).standard_normal(cache.shape), "bf16")
    case.own[1] = last[0].repeat(2, 0), last[1].repeat(2, 0)
    right(case, 2, lengths=np.array([99, (1 << 31) - 1], np.int32))
    case.own = [(case.k_cache[:0], case.v_cache[:0])] * 2
    right(case, 1, lengths=np.array([-1, -(1 << 31)], np.int32))


@pytest.mark.pure
def test_without_the_limits_loads_outside_are_seen() -> None:
    case = Decode((16,), 1, 1)
    case.page_table[0] = 99
    ((kernel, grid, named, chosen),) = decode_launches(*case.arrays, dtype="bf16", splits=1)
    named["table"]["last"] = 99
    assert kernel.simulate(grid, **named, **chosen).verdict == "error"


@pytest.mark.pure
def test_any_strides_of_16_bytes_and_no_pages_at_all() -> None:
    case = Decode((40, 9), 4, 2)
    for name in ("k_cache", "v_cache"):                                      # heads before keys, as some serving engines have them
        setattr(case, name, np.ascontiguousarray(getattr(case, name).swapaxes(1, 2)).swapaxes(1, 2))
    case.q = np.ascontiguousarray(case.q.swapaxes(0, 1)).swapaxes(0, 1)
    case.page_table = np.hstack([case.page_table, case.page_table])[:, :case.page_table.shape[1]]
    right(case, 2)
    case.k_cache, case.v_cache, case.own = case.k_cache[:0], case.v_cache[:0], [(case.k_cache[0, :0], case.v_cache[0, :0])] * 2
    right(case, None)


def views(**changed: Any) -> DecodeArrays:
    """Views of a call that is right but for what is changed: shapes as tuples, or whole views."""
    made = {}
    for name, shape, type_ in (("q", (3, 8, 64), "bf16"), ("k_cache", (9, 16, 2, 64), "bf16"), ("v_cache", (9, 16, 2, 64), "bf16"),
                               ("page_table", (3, 5), "s32"), ("lengths", (3,), "s32"), ("out", (3, 8, 64), "bf16"),
                               ("lse", (3, 8), "f32")):
        given = changed.get(name, shape)
        if not isinstance(given, ArrayView):
            given = ArrayView(0, given, tuple(int(np.prod(given[i + 1:])) for i in range(len(given))), type_, 0, "other")
        made[name] = given
    return DecodeArrays(**made)


@pytest.mark.pure
@pytest.mark.parametrize(("changed", "words"), [
    ({"q": (3, 8, 96)}, "64, 128 and 256"), ({"q": (3, 64)}, r"q has shape \(3, 64\): attention_decode takes \[B, H, D\]"),
    ({"k_cache": (9, 24, 2, 64), "v_cache": (9, 24, 2, 64)}, "multiple of 16"), ({"v_cache": (8, 16, 2, 64)}, "one shape"),
    ({"k_cache": (9, 16, 3, 64), "v_cache": (9, 16, 3, 64)}, "divide those of q"), ({"out": (3, 4, 64)}, "that of q"),
    ({"page_table": (2, 5)}, "page_table is s32"), ({"lengths": ArrayView(0, (3,), (1,), "s64", 0, "other")}, "lengths is s64"),
    ({"k_cache": ArrayView(0, (9, 16, 2, 64), (2176, 136, 68, 1), "bf16", 0, "other")}, "multiples of 16 bytes"),
    ({"q": ArrayView(8, (3, 8, 64), (512, 64, 1), "bf16", 0, "other")}, "address 0x8"), ({"lse": (8, 3)}, "f32 of shape"),
    ({"q": ArrayView(0, (3, 8, 64), (512, 64, 1), "f32", 0, "other")}, "all bf16 or all f16"),
])
def test_what_is_not_taken_is_one_sentence(changed: dict[str, Any], words: str) -> None:
    DecodeProblem.of(views())
    with pytest.raises(LaunchError, match=words) as raised:
        DecodeProblem.of(views(**changed))
    assert "\n" not in str(raised.value)
    with pytest.raises(LaunchError, match="positive and finite"):
        DecodeProblem.of(views(), 0.0)


@pytest.mark.pure
def test_a_configuration_that_cannot_be_says_why() -> None:
    for given, words in (({"head": 96}, "64, 128 or 256"), ({"page": 8}, "multiple of 16"), ({"type": TYPES["f32"]}, "bf16 or f16")):
        with pytest.raises(ConfigError, match=words):
            DecodeConfig(**given)  # type: ignore[arg-type]


@pytest.mark.pure
def test_splits_fill_the_card_and_leave_each_warp_its_blocks() -> None:
    for batches, kv_heads, max_pages in ((1, 8, 256), (1, 1, 4096), (64, 8, 256), (33, 2, 64), (1, 1, 1), (300, 8, 8)):
        problem = DecodeProblem.of(views(q=(batches, 8, 64), out=(batches, 8, 64), lse=(batches, 8), lengths=(batches,),
                                         page_table=(batches, max_pages), k_cache=(9, 16, kv_heads, 64), v_cache=(9, 16, kv_heads, 64)))
        count, blocks = splits(problem, 132), problem.keys // BLOCK
        least = blocks // (LEAST_BLOCKS * WARPS)
        assert count == 1 or count <= least
        filled = []
        for places in (132, 132 * RESIDENT):
            turns = -(-problem.units * count // places) * -(-blocks // (count * WARPS))
            filled.append(problem.units * blocks / (places * WARPS) / turns > 0.8 and (places > 132 or turns <= BESIDE))
        assert any(filled) or count == max(1, least)


@pytest.mark.pure
def test_few_keys_leave_room_for_the_next_launch() -> None:
    """One CTA for an SM up to 4,096 keys of a sequence with 8 heads, two with more."""
    found = {}
    for pages in (32, 64, 128, 256, 512, 1024):
        problem = DecodeProblem.of(views(q=(1, 32, 128), out=(1, 32, 128), lse=(1, 32), lengths=(1,), page_table=(1, pages),
                                         k_cache=(9, 16, 8, 128), v_cache=(9, 16, 8, 128)))
        found[problem.keys] = splits(problem, 132)
    assert found == {512: 8, 1024: 16, 2048: 16, 4096: 16, 8192: 32, 16384: 32}


@pytest.mark.pure
def test_no_static_rule_has_anything_to_say() -> None:
    config = DecodeConfig(64, 64, split=True, lse=True)
    assert decode.check(**config.parameters) == ()
    assert combine.check(**config.combining) == ()


@pytest.mark.ptxas
@pytest.mark.parametrize("head", HEADS)
def test_no_configuration_spills(head: int) -> None:
    for split in (False, True):
        (entry,) = decode.assemble(**DecodeConfig(head, split=split, lse=True).parameters).resources.values()
        assert (entry.spills, entry.stack) == (0, 0)
        assert entry.registers * WARPS * 32 * RESIDENT <= 65536


@pytest.mark.pure
def test_the_streaming_read_reads_all_of_both_arrays() -> None:
    """The xor of a thread's words is stored where it is `UNLIKELY`: each word that is made so must be seen."""
    words = 2 * bench_decode.PIECE // 4
    for array, place in ((0, 0), (0, words - 1), (1, words // 2), (1, words - 1)):
        given, sink = [np.zeros(words, np.uint32) for _ in range(2)], np.zeros(1, np.uint32)
        given[array][place] = bench_decode.UNLIKELY
        bench_decode.streaming_read.simulate(2, *given, sink, 2, check=False)
        assert sink[0] == bench_decode.UNLIKELY


@pytest.mark.pure
def test_the_bench_says_a_share_of_the_read(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"shape": 0, "bytes": 1_000_000, "us": {"ours": 2.0, "read": 1.0}, "of_read": 0.5}
    assert bench_decode.said(row) == "1 x 4096 keys in pages of 16: ours 2.0 us, read 1.0 us, 500 GB/s; 0.500 of a streaming read"
    assert bench_decode.said({"shape": 7, "wrong": True}).startswith("64 x 16384 keys in pages of 64: WRONG")
    assert command.main(["bench-decode", "--shapes", "8"]) == 2
    assert "shapes are 0 to 7" in capsys.readouterr().err


@pytest.mark.ptxas
def test_a_repeated_call_asks_the_driver_for_nothing_but_the_launches() -> None:
    with stub.installed() as card:
        launch._launches.clear()
        launch._plans.clear()
        given = [stub.array("bf16", 2, 8, 64), *[stub.array("bf16", 9, 16, 2, 64)] * 2, stub.array("s32", 2, 64), stub.array("s32", 2)]
        out, workspace = stub.array("bf16", 2, 8, 64), stub.array("f32", 4 * 2 * 8 * 66)
        for _ in range(2):
            card.calls.clear()
            assert attention_decode(*given, out=out, splits=4, workspace=workspace) is out
        assert card.calls == {}
        with pytest.raises(LaunchError, match="at least 5,280 elements"):
            attention_decode(*given, out=out, splits=5, workspace=workspace)
        with pytest.raises(LaunchError, match="takes workspace="):
            attention_decode(*given, out=out, splits=4, stream=0)
        for splits in (0, 2.0):
            with pytest.raises(LaunchError, match=f"splits is {splits}"):
                attention_decode(*given, out=out, splits=splits)  # type: ignore[arg-type]
        launch._launches.clear()
        launch._plans.clear()
