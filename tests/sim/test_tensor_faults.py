"""What bulk and tensor copies must be given: each mistake in a small kernel, told with its rule and place, and its corrected twin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxkit import Reg, TensorMap, if_, kernel, sim, smem, tid
from ptxkit.idioms import wait
from ptxkit.ptx import cp, mbarrier
from ptxkit.types import f32, u32

from . import kernels

tensor_load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

PARAMETERS = ".param .align 64 .b8 map[128], .param .u64 out"
SHARED = ".shared .align 128 .b8 tile[4096];\n.shared .align 8 .b64 bar;\n"
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
REDUCE = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.{}.tile.bulk_group"
PREFETCH = "cp.async.bulk.prefetch.tensor.2d.L2.global.tile"
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {};\n"
WAIT = "W:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;\n@!%p1 bra W;\n"
DRAIN = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"

BEGIN = """mov.b64 %rd20, map;
cvta.param.u64 %rd20, %rd20;
ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r30, tile;
mov.u32 %r31, bar;
setp.eq.u32 %p5, %r0, 0;
mov.u32 %r10, 0;
"""
INIT = """@%p5 mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0;
"""
FILL = """shl.b32 %r1, %r0, 4;
add.u32 %r2, %r30, %r1;
mov.u32 %r3, 1;
st.shared.v4.u32 [%r2], {%r3, %r3, %r3, %r3};
st.shared.v4.u32 [%r2+512], {%r3, %r3, %r3, %r3};
fence.proxy.async;
bar.sync 0;
"""
CLUSTER = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
PEERS = """mov.u32 %r20, %cluster_ctarank;
xor.b32 %r21, %r20, 1;
mapa.shared::cluster.u32 %r22, %r30, %r21;
mapa.shared::cluster.u32 %r23, %r31, %r21;
"""


def edited(edit: str, at: str = "%rd10") -> str:
    """A kernel that copies its map to shared memory, edits it there, hands it over through `out` and loads from it."""
    return INIT + f"""ld.param.u64 %rd10, [out];
shl.b32 %r1, %r0, 2;
cvt.u64.u32 %rd2, %r1;
add.u64 %rd3, %rd20, %rd2;
ld.u32 %r2, [%rd3];
add.u32 %r3, %r30, %r1;
st.shared.u32 [%r3+2048], %r2;
bar.warp.sync 0xffffffff;
add.u32 %r4, %r30, 2048;
cvt.u64.u32 %rd12, %r4;
cvta.shared.u64 %rd13, %rd12;
@%p5 tensormap.replace.tile.{edit}
bar.warp.sync 0xffffffff;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd10], [%rd12], 128;
fence.proxy.tensormap::generic.acquire.gpu [%rd10], 128;
@!%p5 bra E;
{EXPECT.format(512)}!{LOAD} [%r30], [{at}, {{%r10, %r10}}], [%r31];
E:
{WAIT}"""


@dataclass(frozen=True)
class Case:
    """`|wrong|right|` stands in the body for what is the mistake and what corrects it; `!` before the line where it is due."""

    rule: str
    name: str
    body: str
    words: str
    dtype: Any = np.float32
    box: tuple[int, int] = (8, 16)
    cluster: int = 1
    pads: tuple[int, int] | None = None
    """Bytes of a parameter before the map, which is then aligned to 16 only."""
    swizzle: int = 0

    def __str__(self) -> str:
        return f"{self.rule}: {self.name}"

    def text(self, right: bool) -> tuple[str, int]:
        """The module, and the line of the mistake."""
        pieces = (BEGIN + self.body).split("|")
        body = "".join(piece for i, piece in enumerate(pieces) if i % 3 == 0 or i % 3 == 1 + right)
        directives = f".reqntid 32\n.reqnctapercluster {self.cluster}" if self.cluster > 1 else ".reqntid 32"
        parameters = PARAMETERS
        if self.pads is not None:
            parameters = f".param .align 16 .b8 pad[{self.pads[right]}], " + PARAMETERS.replace("64 .b8", "16 .b8")
        made = kernels.kernel(body, parameters, before=SHARED, directives=directives).replace("\t!", "!")
        line = next(number for number, line in enumerate(made.splitlines(), 1) if line.startswith("!"))
        return made.replace("\n!", "\n\t"), line

    def run(self, right: bool, check: bool) -> tuple[sim.Report, int]:
        array = np.ones((32, 64), self.dtype)
        out = np.zeros(1024, np.uint32)
        given = TensorMap(array, box=self.box, swizzle=self.swizzle)
        pad = () if self.pads is None else (bytes(self.pads[right]),)
        text, line = self.text(right)
        return sim.run(text, grid=self.cluster, block=32, args=(*pad, given, out), check=check), line


def load(at: str, opcode: str = LOAD, bytes: int = 512, to: str = "%r30") -> str:
    return INIT + f"mov.u32 %r1, {at};\n@!%p5 bra E;\n{EXPECT.format(bytes)}!{opcode} [{to}], [%rd20, {{%r1, %r10}}], [%r31];\nE:\n{WAIT}"


def store(at: str, opcode: str = STORE) -> str:
    return FILL + f"mov.u32 %r1, {at};\n@!%p5 bra E;\n!{opcode} [%rd20, {{%r1, %r10}}], [%r30];\n{DRAIN}E:"


SIDE = INIT + CLUSTER + PEERS
CASES = [
    Case("tensor-coordinate", "a load", load("|346|344|"), "346 of its f32 elements is 1,384 bytes, 8 beyond"),
    Case("tensor-coordinate", "before the array", load("|-1|-4|"), "-1 of its f32 elements is -4 bytes, 12 beyond"),
    Case("tensor-coordinate", "behind it", load("|1001|1000|"), "{1001, 0}"),
    Case("tensor-coordinate", "bytes", load("|8|16|", bytes=128), "8 of its u8 elements", np.uint8),
    Case("tensor-coordinate", "halves", load("|-4|-8|", bytes=256), "-4 of its f16 elements", np.float16),
    Case("tensor-coordinate", "doubles", load("|1|2|", bytes=1024), "1 of its f64 elements", np.float64),
    Case("tensor-coordinate", "with a swizzle", load("|12|8|"), "12 of its u16 elements is 24 bytes, 8", np.uint16, (8, 32), swizzle=64),
    Case("tensor-coordinate", "a store", store("|3|4|"), "begin the box at element 0 (a multiple of 4); or"),
    Case("tensor-coordinate", "a sum", store("|3|4|", REDUCE.format("add")), "begin the box at element 0"),
    Case("tensor-coordinate", "a prefetch", f"mov.u32 %r1, |6|8|;\n!{PREFETCH} [%rd20, {{%r1, %r10}}];\n", "6 of its f32 elements"),
    Case("tensor-coordinate", "one lane of many", f"shl.b32 %r1, %r0, |1|2|;\n!{PREFETCH} [%rd20, {{%r1, %r10}}];\n", "{2, 0}"),
    Case("tensor-coordinate", "of a multicast", SIDE + "mov.u32 %r1, |2|0|;\nmov.u16 %h1, 3;\n" + "@!%p5 bra E;\n" + EXPECT.format(512)
         + "setp.ne.u32 %p6, %r20, 0;\n@%p6 bra E;\n"
         + f"!{LOAD}.multicast::cluster [%r30], [%rd20, {{%r1, %r10}}], [%r31], %h1;\nE:\n{WAIT}{CLUSTER}", "`map` at {2, 0}", cluster=2),
    Case("bad-tensormap", "a coordinate too few", INIT + f"@!%p5 bra E;\n{EXPECT.format(512)}!{LOAD.replace('2d', '|1d|2d|')} "
         f"[%r30], [%rd20, {{%r10||, %r10|}}], [%r31];\nE:\n{WAIT}", "has 2 dimensions"),
    Case("bad-tensormap", "not aligned", load("0"), "a multiple of 64 bytes", pads=(48, 64)),
    Case("bad-tensormap", "in shared memory", edited("fill_mode.shared::cta.b1024.b32 [%rd12], 0;", "|%rd13|%rd10|"),
         "lies in shared memory"),
    Case("bad-tensormap", "an address between", "add.u64 %rd14, %rd0, |264|272|;\n" + edited(
        "global_address.shared::cta.b1024.b64 [%rd12], %rd14;"), "is not a multiple of 16 bytes"),
    Case("bad-tensormap", "no lines", edited("global_dim.shared::cta.b1024.b32 [%rd12], 1, |0|1|;"), "extent 0 of dimension 1"),
    Case("bad-tensormap", "a stride between", "mov.u64 %rd14, |248|240|;\n" + edited(
        "global_stride.shared::cta.b1024.b64 [%rd12], 0, %rd14;"), "the stride of dimension 1 is 248"),
    Case("bad-tensormap", "wider than the swizzle", edited("swizzle_mode.shared::cta.b1024.b32 [%rd12], |1|2|;"), "32-byte swizzle"),
    Case("reduction-type", "the least of floats", store("0", REDUCE.format("|min|add|")), "f32 elements, which `min` does not"),
    Case("reduction-type", "halves of words", store("0", REDUCE.format("|or|add|")), "`or` takes u32, s32, u64 elements", np.float16),
    *[Case("reduction-type", f"{operation} of floats", store("0", REDUCE.format(f"|{operation}|add|")),
           f"f32 elements, which `{operation}` does not combine; `{operation}` takes u32, s32, u64")
      for operation in ("and", "or", "xor")],
    Case("reduction-type", "signed steps", store("0", REDUCE.format("|inc|max|")), "`inc` takes u32", np.int32),
    Case("reduction-type", "long sums", store("0", REDUCE.format("|add|max|")), "`add` takes u32, s32", np.int64),
    Case("misaligned", "the tile", load("0", to="%r30+|64|128|"), "multiple of 128 bytes"),
    Case("misaligned", "a prefetch's size", "mov.u32 %r1, |24|32|;\n!cp.async.bulk.prefetch.L2.global [%rd0], %r1;\n", "multiple of 16"),
    Case("misaligned", "a prefetch's begin", "!cp.async.bulk.prefetch.L2.global [%rd0+|8|16|], 32;\n", "not a multiple of 16 bytes"),
    Case("multicast-mask", "nobody", SIDE + "mov.u16 %h1, |0|3|;\n@!%p5 bra E;\n" + EXPECT.format(64)
         + "setp.ne.u32 %p6, %r20, 0;\n@%p6 bra E;\n" + f"!{BULK}.multicast::cluster [%r30], [%rd0], 64, [%r31], %h1;\nE:\n{WAIT}{CLUSTER}",
         "names no CTA at all", cluster=2),
    Case("multicast-mask", "beyond the cluster", SIDE + "mov.u16 %h1, |5|3|;\n@!%p5 bra E;\n" + EXPECT.format(64)
         + "setp.ne.u32 %p6, %r20, 0;\n@%p6 bra E;\n" + f"!{BULK}.multicast::cluster [%r30], [%rd0], 64, [%r31], %h1;\nE:\n{WAIT}{CLUSTER}",
         "names CTA 2 of a cluster of 2", cluster=2),
    Case("bulk-barrier", "the other's bytes, my mbarrier", SIDE + "@!%p5 bra E;\n" + EXPECT.format(512)
         + f"!{LOAD} [%r22], [%rd20, {{%r10, %r10}}], [|%r31|%r23|];\nE:\n{WAIT}{CLUSTER}", "signals an mbarrier of", cluster=2),
    Case("bulk-barrier", "my bytes, the other's mbarrier", SIDE + "@!%p5 bra E;\n" + EXPECT.format(64)
         + f"!{BULK} [%r30], [%rd0], 64, [|%r23|%r31|];\nE:\n{WAIT}{CLUSTER}", "signals an mbarrier of", cluster=2),
    Case("out-of-bounds", "the other's memory for one's own", SIDE + "@!%p5 bra E;\n" + EXPECT.format(512)
         + f"!{LOAD.replace('shared::cluster', 'shared::cta')} [|%r22|%r30|], [%rd20, {{%r10, %r10}}], [|%r23|%r31|];\nE:\n{WAIT}{CLUSTER}",
         ".shared::cta", cluster=2),
    Case("out-of-bounds", "a store out of the other's memory", SIDE + FILL + CLUSTER + "@!%p5 bra E;\n"
         + f"!{STORE} [%rd20, {{%r10, %r20}}], [|%r22|%r30|];\n{DRAIN}E:\n{CLUSTER}", ".shared::cta", box=(1, 64), cluster=2),
    Case("bulk-destination", "to itself", SIDE + FILL + CLUSTER + "mapa.shared::cluster.u32 %r24, %r30, |%r20|%r21|;\n"
         + "mapa.shared::cluster.u32 %r25, %r31, |%r20|%r21|;\n@!%p5 bra E;\n" + EXPECT.format(64)
         + f"!cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r24+1024], [%r30], 64, [%r25];\nE:\n{WAIT}{CLUSTER}",
         "its own CTA", cluster=2),
    Case("bulk-barrier", "a word", SIDE + "@!%p5 bra E;\n" + EXPECT.format(4)
         + f"!st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r22], %r0, [|%r31|%r23|];\nE:\n{WAIT}{CLUSTER}",
         "signals an mbarrier of", cluster=2),
    Case("mbarrier-tx-overflow", "bytes that nobody announces", INIT + "@!%p5 bra E;\n"
         + "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 1048575;\n|mov.u32 %r1, 0;|"
         + "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16;|\n!mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16;\nE:",
         "nothing has announced"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_planted_mistake_and_its_twin(case: Case) -> None:
    for check in (False, True):
        report, line = case.run(False, check)
        assert report.verdict == "error", str(report)
        first = report.findings[0]
        assert (first.rule, first.severity) == (case.rule, "error"), str(report)
        assert case.words in f"{first.message}; {first.fix}", str(report)
        assert first.fix
        assert first.position is not None
        assert first.position.line == line, str(report)
    report, _ = case.run(True, True)
    assert not [finding for finding in report.findings if finding.severity == "error"], str(report)


def test_a_word_for_a_cluster_of_one() -> None:
    case = Case("", "", SIDE.partition("mov.u32 %r20")[0] + "mov.u32 %r20, %cluster_ctarank;\nmapa.shared::cluster.u32 %r22, %r30, %r20;\n"
                "mapa.shared::cluster.u32 %r23, %r31, %r20;\n"
                "!st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r22], %r0, [%r23];\n", "")
    report, _ = case.run(True, True)
    assert [finding.rule for finding in report.findings[:1]] == ["bulk-destination"]


def test_a_prefetch_may_reach_beyond_a_buffer() -> None:
    case = Case("", "", "add.u64 %rd1, %rd0, 65536;\n!cp.async.bulk.prefetch.L2.global [%rd1], 64;\nmov.u32 %r1, 4096;\n"
                f"{PREFETCH} [%rd20, {{%r1, %r1}}];\n", "")
    report, _ = case.run(True, True)
    assert report.findings == ()


@kernel(block=32)
def shifted(source: TensorMap, column: Reg[u32], *, ROW: int = 0) -> None:
    """Loads a box that begins at any column."""
    box = smem.tile(f32, (8, 16), swizzle=0, name="box")
    full = smem.mbarrier(1, name="full")
    with if_(tid.x == 0):
        mbarrier.init.shared__cta.b64(full[0], 1)
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], box.layout.bytes)
        tensor_load(box[0], source, (column, ROW), full[0])
        wait(full[0], 0)


def test_the_place_is_the_authors_line() -> None:
    """Of a kernel object the finding names the Python line of the copy, and the parameter."""
    array = np.ones((32, 64), np.float32)
    (finding,) = shifted.simulate(1, array, 21).findings
    line = 1 + next(i for i, text in enumerate(Path(__file__).read_text().splitlines()) if "tensor_load(box[0]" in text)
    assert finding.position is not None
    assert (finding.rule, finding.position.line) == ("tensor-coordinate", line)
    assert str(finding.position.file).endswith("test_tensor_faults.py")
    assert "the tensor map `source` at {21, 0}" in finding.message
    assert shifted.simulate(1, array, 20).findings == ()


def test_a_load_that_is_all_out_of_bounds_looks_at_the_address_in_its_map() -> None:
    """Where the map begins before its array: a box that is partly inside is right, one that is all outside faults on an H100."""
    array = np.ones((32, 64), np.float32)
    before = TensorMap(array, box=(8, 16), swizzle=0, shape=(40, 64), strides=(64, 1), offset=-8 * 64 * 4)
    assert shifted.simulate(1, before, 0, ROW=8).findings == ()
    (finding,) = shifted.simulate(1, before, 64, ROW=8).findings
    assert finding.rule == "out-of-bounds"
    assert "a GPU looks there for such a box" in finding.message
    assert shifted.simulate(1, TensorMap(array, box=(8, 16), swizzle=0), 64, ROW=8).findings == ()
