"""The bug catalogue as edits. An identifier is a kind of mistake (P proxies, B barriers, W wgmma, D clusters, S bulk stores, R the rest)
and the subject it is planted in.

`expect` is what must be said of the mutant in every schedule: "error" (a finding of severity error: certain to fail, or wrong under the
memory model), "review" (a finding of review or error: convention, not provably right), "wrong" (legal, and the numbers are wrong or a
lint says so), "advice" (right, and slow). `every` False: only some schedule can show it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxkit.grammar import tree

from .edit import FIRST, LAST, Edit, ptx, written
from .subjects import SUBJECTS

Change = Callable[[Edit], Any]

@dataclass(frozen=True)
class Mutant:
    kind: str
    subject: str
    expect: str
    change: Change
    every: bool = True

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.subject}"

    def source(self) -> Any:
        """The mutated tree or trace."""
        subject = SUBJECTS[self.subject]
        edit = Edit(subject.original, subject.entry)
        self.change(edit)
        return edit.done()


MUTANTS: dict[str, Mutant] = {}
VARIANTS: dict[str, Mutant] = {}
"""Edits that leave a kernel right: they must earn no finding above review."""

def mutant(kind: str, *subjects: str, expect: str = "error", every: bool = True) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        for name in subjects:
            made = Mutant(kind, name, expect, change, every)
            assert made.name not in MUTANTS, made.name
            MUTANTS[made.name] = made
        return change

    return register


def variant(kind: str, *subjects: str) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        for name in subjects:
            made = Mutant(kind, name, "clean", change)
            VARIANTS[made.name] = made
        return change

    return register


# What edits have in common.


def operand(edit: Edit, match: str, which: int, index: int) -> str:
    """The text of one operand of a match."""
    words = written(edit.find(match)[which]).partition(" ")[2]  # type: ignore[arg-type]
    return words.rstrip(";").split(", ")[index]


def skip_wait(edit: Edit, which: int) -> None:
    """The waiting loop is gone: neither the try_wait nor the way back."""
    loops = edit.find(TRY_WAIT)
    statement = loops[which]
    assert isinstance(statement, tree.Instruction)
    done = next(iter(_after(edit, statement)))
    edit.delete(lambda s: s is statement)
    if isinstance(done, tree.Instruction) and done.mnemonic == "bra":
        edit.guard(lambda s: s is done, None)


def _after(edit: Edit, statement: Any) -> list[Any]:
    flat = edit.find(lambda s: isinstance(s, tree.Instruction | tree.Label))
    return flat[next(i for i, s in enumerate(flat) if s is statement) + 1:]


def without(match: str, which: Any = None) -> Change:
    return lambda edit: edit.delete(match, which)


def replaced(match: str, old: str, new: Any, which: Any = None) -> Change:
    return lambda edit: edit.text(match, old, new, which)


def both(*changes: Change) -> Change:
    return lambda edit: [change(edit) for change in changes]


TRY_WAIT = r"mbarrier\.try_wait"
COPY = r"cp\.async\.bulk\.tensor.*shared::cluster\.global"
STORE = r"cp\.async\.bulk\.tensor.*global\.shared::cta"
PROXY = r"fence\.proxy\.async"
EXPECT = r"mbarrier\.arrive\.expect_tx"
ARRIVE = r"mbarrier\.arrive\.(?!expect)"
FLIP = r"^@%p\d+ xor\.b32"
NAMED = r"^bar\.sync %r"
PRODUCTS = ("hgemm", "hgemm.alone", "hgemm.f32", "hgemm.mn")
PAIRS = ("hgemm", "hgemm.mn")


# P: proxies.

mutant("P1", *PRODUCTS)(without(PROXY))
mutant("P5", "staged_mma")(without(PROXY))
mutant("P5.late", "staged_mma")(lambda e: e.after(r"wgmma\.commit_group", e.take(PROXY)))
mutant("P6", "retarget")(without(PROXY))
mutant("P7.acquire", "retarget")(without(r"^fence\.proxy\.tensormap"))


@mutant("P7.release", "retarget")
def _copied_by_the_lanes(edit: Edit) -> None:
    """The edited map is copied word by word: nothing publishes it to the tensormap proxy."""
    to, source = (operand(edit, r"tensormap\.cp_fenceproxy", FIRST, i).strip("[]") for i in (0, 1))
    edit.change(r"tensormap\.cp_fenceproxy", lambda s: ptx(
        f"mov.u32 %q0, %tid.x;\nshl.b32 %q0, %q0, 2;\nmov.u32 %q1, {source};\nadd.u32 %q1, %q1, %q0;\nld.shared.u32 %q1, [%q1];\n"
        f"cvt.u64.u32 %q2, %q0;\nadd.u64 %q2, %q2, {to};\nst.global.u32 [%q2], %q1;\nbar.warp.sync 4294967295;"))
    edit.top(".reg .b32 %q0, %q1;\n.reg .b64 %q2;")


@mutant("P3", "hgemm", "hgemm.alone")
def _others_fence_after_the_barrier(edit: Edit) -> None:
    """Everybody but the issuer fences, after the barrier: nobody's stores are ordered before the copy."""
    edit.delete(PROXY)
    leader = edit.find(r"wait_group\.read")[0].guard.predicate  # type: ignore[union-attr]
    edit.after(NAMED, ptx(f"@!{leader} fence.proxy.async.shared::cta;"), range(1, 99, 2))


@mutant("P4", "hgemm", "hgemm.alone")
def _only_the_issuer_fences_before_the_barrier(edit: Edit) -> None:
    """The issuer's fence before the barrier orders its own stores only."""
    edit.guard(PROXY, edit.find(r"wait_group\.read")[0].guard.predicate)  # type: ignore[union-attr]


@variant("P3.right", "hgemm", "hgemm.alone")
def _everybody_fences_after_the_barrier(edit: Edit) -> None:
    edit.delete(PROXY)
    edit.after(NAMED, ptx("fence.proxy.async.shared::cta;"), range(1, 99, 2))


@variant("P4.right", "hgemm")
def _the_issuer_fences_before_the_copy(edit: Edit) -> None:
    edit.delete(PROXY)
    edit.before(STORE, ptx("fence.proxy.async.shared::cta;"))


UNFENCED = without(r"fence\.mbarrier_init")
BEGINS_RELAXED = replaced(r"barrier\.cluster\.arrive", r"\.release", ".relaxed", FIRST)
BEGINS_RELEASING = replaced(r"barrier\.cluster\.arrive", r"\.relaxed", ".release", FIRST)     # hgemm's is relaxed as it stands

mutant("P9", "hgemm")(UNFENCED)
mutant("P9", "cluster_multicast")(both(BEGINS_RELAXED, UNFENCED))
variant("P9.default", "cluster_multicast", "exchange")(UNFENCED)
variant("P9.default", "hgemm")(both(BEGINS_RELEASING, UNFENCED))
variant("P9.relaxed", "cluster_multicast")(BEGINS_RELAXED)
variant("P9.release", "hgemm")(BEGINS_RELEASING)
variant("P9.folklore", "tma_copy")(without(PROXY))

mutant("P1", "nvcc.add_one")(without(PROXY))


@mutant("P3", "nvcc.add_one")
def _fence_after_the_barrier_elsewhere(edit: Edit) -> None:
    fence = edit.take(PROXY)
    edit.before(r"^@%p\d+ bra", ptx(f"@%p1 {written(fence[0])}"), _branch_after(edit, r"^bar\.sync", LAST))  # type: ignore[arg-type]


def _branch_after(edit: Edit, match: str, which: int) -> int:
    """The number, among guarded branches, of the first one after a match."""
    branches = edit.find(r"^@%p\d+ bra")
    later = [s for s in _after(edit, edit.find(match)[which]) if isinstance(s, tree.Instruction) and s in branches]
    return next(i for i, s in enumerate(branches) if s is later[0])


# B: mbarriers.

EMPTY_INIT = {"hgemm": ", 4;", "hgemm.mn": ", 4;", "hgemm.alone": ", 2;", "hgemm.f32": ", 2;", "tile_gemm": ", 128;"}
for _subject, _count in EMPTY_INIT.items():
    _number = int(_count.strip(", ;"))
    mutant("B1", _subject)(replaced(r"mbarrier\.init.*" + _count, _count, f", {_number + 1};"))
    mutant("B2", _subject)(replaced(r"mbarrier\.init.*" + _count, _count, f", {_number - 1};"))
mutant("B1.full", "hgemm", "hgemm.alone", "tile_gemm", "cluster_multicast", "tma_copy")(
    replaced(r"mbarrier\.init.*, 1;", ", 1;", ", 2;"))
mutant("B1.one", "hgemm")(replaced(r"mbarrier\.init.*, 4;", ", 4;", ", 5;", FIRST))
mutant("B1", "exchange")(replaced(r"mbarrier\.init", ", 32;", ", 33;", LAST))
mutant("B2", "exchange")(replaced(r"mbarrier\.init", ", 32;", ", 31;", LAST))
mutant("B2.ready", "exchange")(replaced(r"mbarrier\.init", ", 32;", ", 31;", FIRST))
mutant("B1", "publish")(replaced(r"mbarrier\.init", ", 1;", ", 2;", LAST))
mutant("B1", "nvcc.matmul")(replaced(r"mov\.(u32|b32) .*, 128;", "128", "129"))
mutant("B2", "nvcc.matmul")(replaced(r"mov\.(u32|b32) .*, 128;", "128", "127"))


def _bytes(by: int) -> Change:
    def change(edit: Edit) -> None:
        last = operand(edit, EXPECT, FIRST, 2)
        if last.isdigit():
            edit.text(EXPECT, rf"{last};", f"{int(last) + by};")
        else:
            value = operand(edit, rf"mov\.\w32 {last}, \d", FIRST, 1)
            edit.before(EXPECT, ptx(f"mov.u32 %q9, {int(value) + by};"), FIRST)
            edit.text(EXPECT, rf"{last};", "%q9;", FIRST).top(".reg .b32 %q9;")

    return change


_EXPECTERS = ("hgemm", "hgemm.alone", "hgemm.mn", "tile_gemm", "cluster_multicast", "tma_copy", "nvcc.matmul", "nvcc.add_one")
mutant("B3", *_EXPECTERS)(_bytes(-16))
mutant("B4", *_EXPECTERS)(_bytes(16))
mutant("B6", "hgemm")(replaced(EXPECT, "24576;", "20480;"))
mutant("B6", "cluster_multicast")(replaced(EXPECT, "4096;", "1024;"))

mutant("B7.producer", "hgemm", "hgemm.alone", "tile_gemm")(without(FLIP, FIRST))
mutant("B7.consumer", "hgemm", "hgemm.alone", "tile_gemm")(without(FLIP, LAST))
mutant("B7", "exchange")(without(r"^xor\.b32 .*, 1;", LAST))
mutant("B7.producer", "nvcc.matmul")(without(r"^xor\.b32 (%r\d+), \1, %r", LAST))
mutant("B7.consumer", "nvcc.matmul")(without(r"^xor\.b32 (%r\d+), \1, %r", FIRST))


@mutant("B8", "hgemm", "hgemm.alone", "tile_gemm")
def _the_consumer_starts_with_the_other_parity(edit: Edit) -> None:
    parity = operand(edit, TRY_WAIT, LAST, 2)
    edit.text(rf"mov\.u32 {parity}, 0;", ", 0;", ", 1;")


@mutant("B8.producer", "hgemm", "tile_gemm")
def _the_producer_starts_with_the_other_parity(edit: Edit) -> None:
    edit.change(r"^xor\.b32 %r\d+, %r\d+, 1;", lambda s: ptx(written(s).replace("xor.b32", "or.b32").replace(", 1;", ", 0;")), FIRST)


mutant("B10", *PAIRS, "hgemm.alone", "hgemm.f32")(without(ARRIVE, LAST))
mutant("B10.all", "tile_gemm", "nvcc.matmul")(without(ARRIVE, LAST))
mutant("B11.twice", "hgemm", "tile_gemm", "publish")(lambda e: e.twice(ARRIVE, LAST))
mutant("B12.full", "publish")(without(r"bar\.warp\.sync", FIRST))
mutant("B12.empty", "publish")(without(r"bar\.warp\.sync", LAST))
mutant("B13", "publish")(lambda e: e.text(r"st\.shared", r"\]", "+8]"))
mutant("B13.again", "hgemm", "publish")(lambda e: e.twice(r"mbarrier\.init", FIRST))


def ignored(which: int) -> Change:
    """The way back of a waiting loop is gone: the answer of try_wait does not matter."""
    return lambda edit: edit.delete(r"^bra(\.uni)? \$loop", which)


mutant("B15.producer", "hgemm", "tile_gemm")(ignored(FIRST))
mutant("B15.consumer", "hgemm", "tile_gemm")(ignored(LAST))
mutant("B15", "cluster_multicast", "tma_copy")(ignored(LAST))


def relaxed(match: str, which: Any = None) -> Change:
    def change(edit: Edit) -> None:
        edit.text(match, r"(parity|arrive|expect_tx)\.((acquire|release)\.\w+\.)?(shared)", r"\1.relaxed.cluster.\4", which)

    return change


mutant("B16", "hgemm", "hgemm.alone", "tile_gemm", "cluster_multicast", "tma_copy")(relaxed(TRY_WAIT, LAST))
mutant("B16.wait", "publish", "exchange")(relaxed(TRY_WAIT, LAST))
mutant("B16.wait0", "publish")(relaxed(TRY_WAIT, FIRST))
mutant("B16.arrive", "publish", "exchange")(relaxed(ARRIVE, FIRST))
mutant("B17.wait", "exchange")(replaced(TRY_WAIT, r"\.acquire\.cluster", "", LAST))
mutant("B17.arrive", "exchange")(replaced(ARRIVE, r"\.release\.cluster", "", FIRST))


@mutant("B19", "hgemm.alone")
def _waits_for_the_other_stage(edit: Edit) -> None:
    (base,) = {operand(edit, TRY_WAIT, LAST, 1).strip("[]").partition("+")[0]}
    edit.text(TRY_WAIT, rf"\[{base}", "[%q0", LAST).before(TRY_WAIT, ptx(f"xor.b32 %q0, {base}, 8;"), LAST).top(".reg .b32 %q0;")


@mutant("B20", "hgemm.alone")
def _b_signals_the_other_stage(edit: Edit) -> None:
    base = operand(edit, COPY, LAST, -1).strip("[]").partition("+")[0]
    edit.text(COPY, rf"\[{base}\+(\d+)\];", r"[%q0+\1];", LAST).before(COPY, ptx(f"xor.b32 %q0, {base}, 8;"), LAST).top(".reg .b32 %q0;")


mutant("B21.release", "hgemm", "hgemm.mn", "hgemm.alone")(replaced(r"wgmma\.wait_group.* 1;", " 1;", " 2;"))
mutant("B21.tile", "hgemm", "hgemm.alone")(replaced(r"wgmma\.wait_group.* 0;", " 0;", " 1;"))
mutant("B21", "tile_gemm", "nvcc.matmul")(replaced(r"wgmma\.wait_group.* 0;", " 0;", " 1;"))
mutant("B22.producer", "hgemm", "hgemm.alone", "hgemm.mn", "tile_gemm", "publish", "exchange")(lambda e: skip_wait(e, FIRST))
mutant("B22.consumer", "hgemm", "hgemm.alone", "hgemm.mn", "tile_gemm", "publish", "exchange")(lambda e: skip_wait(e, LAST))
mutant("B22", "cluster_multicast", "tma_copy")(lambda e: skip_wait(e, LAST))


def no_way_back(which: int) -> Change:
    """nvcc's loop: the branch back after the selp is deleted with the try_wait's result unread."""
    def change(edit: Edit) -> None:
        statement = edit.find(TRY_WAIT)[which]
        back = next(s for s in _after(edit, statement) if isinstance(s, tree.Instruction) and s.mnemonic == "bra")
        edit.delete(lambda s: s is back)
        edit.change(lambda s: s is statement, lambda s: ptx(f"setp.eq.u32 {operand(edit, TRY_WAIT, which, 0)}, 0, 0;"))

    return change


mutant("B22.consumer", "nvcc.matmul", "nvcc.add_one")(no_way_back(LAST))
mutant("B22.consumer0", "nvcc.matmul")(no_way_back(FIRST))


@variant("B23.late", "hgemm", "hgemm.alone", "tile_gemm")
def _expect_after_the_copies(edit: Edit) -> None:
    """The phase cannot complete before the arrival that expects the bytes: they may come first."""
    edit.after(COPY, edit.take(EXPECT), LAST)


@mutant("B24", "hgemm.alone", "tile_gemm")
def _expect_counts_no_arrival(edit: Edit) -> None:
    edit.text(EXPECT, r"arrive\.expect_tx(\.shared::cta\.b64) _, ", r"expect_tx.relaxed.cta\1 ")


# W: wgmma.

MMA = r"wgmma\.mma_async"
mutant("W1", "hgemm", "hgemm.alone", "hgemm.f32")(
    lambda e: e.after(r"stmatrix|st\.shared", e.take(r"wgmma\.wait_group.* 0;"), LAST))
mutant("W2", "hgemm", "hgemm.alone", "hgemm.mn", "hgemm.f32")(without(r"wgmma\.wait_group.* 0;"))
mutant("W2", "tile_gemm", "nvcc.matmul", "staged_mma")(without(r"wgmma\.wait_group.* 0;"))
mutant("W5", "hgemm", "tile_gemm", "staged_mma", "nvcc.matmul")(without(r"wgmma\.fence"))


@mutant("W5.early", "staged_mma")
def _fence_before_a_is_loaded(edit: Edit) -> None:
    edit.before(r"ld\.global", edit.take(r"wgmma\.fence"), FIRST)


@mutant("W6", "staged_mma")
def _waits_after_the_loop(edit: Edit) -> None:
    edit.before(r"st\.global", edit.take(r"wgmma\.wait_group"), FIRST)


mutant("W7", "staged_mma")(without(r"^bar\.sync", FIRST))
mutant("W7.copies", "staged_mma")(without(r"cp\.async\.wait_group"))
mutant("W13", "hgemm", "hgemm.alone", "tile_gemm", "staged_mma", "nvcc.matmul")(without(r"wgmma\.commit_group"))

DESCRIPTOR = r"(add|or)\.b?u?64 .*, 46116862933\d+"


def descriptor(change_of: Callable[[int], int], which: Any) -> Change:
    def change(edit: Edit) -> None:
        def to(statement: Any) -> tuple[tree.Statement, ...]:
            text = written(statement)
            head, _, value = text.rstrip(";").rpartition(", ")
            return ptx(f"{head}, {change_of(int(value))};")

        edit.change(DESCRIPTOR, to, which)

    return change


_KS = ("hgemm", "hgemm.alone", "tile_gemm", "nvcc.matmul")
mutant("W8.mode", *_KS, expect="wrong")(descriptor(lambda v: v & ~(3 << 62) | 2 << 62, FIRST))
mutant("W8.none", *_KS, expect="wrong")(descriptor(lambda v: v & ~(3 << 62), FIRST))
mutant("W8.sbo", *_KS, expect="wrong")(descriptor(lambda v: v ^ (64 ^ 32) << 32, FIRST))
mutant("W8.step", "hgemm", "hgemm.alone", "tile_gemm", expect="wrong")(descriptor(lambda v: v + 2, LAST))


@mutant("W9", "nvcc.matmul", expect="wrong")
def _tiles_at_128_bytes(edit: Edit) -> None:
    """Another variable of 128 bytes stands first, and the tiles are aligned to as much."""
    def to(statement: Any) -> tuple[tree.Statement, ...]:
        import dataclasses

        first = dataclasses.replace(statement, name="pushes", shape=(128,), align=1024)
        return first, dataclasses.replace(statement, align=128)

    edit.change(lambda s: isinstance(s, tree.Variable) and s.space == "shared" and s.name.endswith("tiles"), to)


@mutant("W10", "hgemm", "hgemm.alone", expect="wrong")
def _the_next_tile_adds(edit: Edit) -> None:
    first = operand(edit, r"mov\.u32 .*, %(clusterid|ctaid)\.x", LAST, 0)
    tile = operand(edit, rf"mov\.u32 %r\d+, {first};", LAST, 0)
    kept = operand(edit, MMA, FIRST, -5)
    edit.text(MMA, rf"{kept},", "%q0,", FIRST)
    edit.before(MMA, ptx(f"setp.ne.u32 %q0, {tile}, {first};\nor.pred %q0, %q0, {kept};"), FIRST).top(".reg .pred %q0;")


@mutant("W11", "hgemm", "tile_gemm", "staged_mma", "nvcc.matmul")
def _one_warp_skips(edit: Edit) -> None:
    edit.before(MMA, ptx("mov.u32 %q1, %tid.x;\nshr.u32 %q1, %q1, 5;\nand.b32 %q1, %q1, 3;\nsetp.ne.u32 %q0, %q1, 2;"), 1)
    edit.guard(MMA, "%q0", 1).top(".reg .pred %q0;\n.reg .b32 %q1;")


mutant("W14", "nvcc.matmul")(without(r"^bar\.sync"))

# D: clusters.


def no_cluster_barrier(which: int, instead: str = "") -> Change:
    def change(edit: Edit) -> None:
        edit.delete(r"barrier\.cluster\.wait", which)
        edit.change(r"barrier\.cluster\.arrive", lambda s: ptx(instead) if instead else (), which)

    return change


mutant("D1", *PAIRS, "cluster_multicast", "exchange")(no_cluster_barrier(FIRST, "bar.sync 0;"))
mutant("D2", *PAIRS)(lambda e: skip_wait(e, 1))
mutant("D2", "exchange")(no_cluster_barrier(LAST))
mutant("D3.own", *PAIRS, "cluster_multicast")(replaced(r"multicast::cluster", r", (3|15);", ", 1;"))
mutant("D3.peer", "hgemm", "cluster_multicast")(replaced(r"multicast::cluster", r", (3|15);", ", 2;"))


@mutant("D4", "hgemm", "hgemm.mn")
def _releases_only_here(edit: Edit) -> None:
    lane = operand(edit, "mapa", FIRST, 2)
    edit.before("mapa", ptx("mov.u32 %q0, %cluster_ctarank;"), FIRST).text("mapa", rf"{lane};", "%q0;").top(".reg .b32 %q0;")
    edit.text(rf"setp\.lt\.u32 .*, {lane}, 2;", ", 2;", ", 1;").text(r"mbarrier\.init.*, 4;", ", 4;", ", 2;")


mutant("D5.first", "nvcc.around", "nvcc.distributed")(no_cluster_barrier(FIRST))
mutant("D5.last", "nvcc.around", "nvcc.distributed")(no_cluster_barrier(LAST))
mutant("D6", "nvcc.around", "exchange")(lambda e: _relaxed_cluster(e))


def _relaxed_cluster(edit: Edit) -> None:
    if edit.name == "exchange":
        edit.text(ARRIVE, r"\.release\.cluster", ".relaxed.cluster")
    else:
        edit.text(r"barrier\.cluster\.arrive", r"arrive(\.release)?", "arrive.relaxed", LAST)


# S: bulk stores.

READ = r"cp\.async\.bulk\.wait_group\.read"
DRAIN = r"cp\.async\.bulk\.wait_group 0"
mutant("S1", *PRODUCTS, "nvcc.add_one")(without(READ))
mutant("S1.more", "hgemm", "hgemm.alone", "hgemm.f32")(replaced(READ, " 0;", " 1;"))
mutant("S2", *PRODUCTS)(without(NAMED, range(0, 99, 2)))
mutant("S3", *PRODUCTS)(without(r"cp\.async\.bulk\.commit_group"))
mutant("S4", *PRODUCTS, "nvcc.add_one", "tma_copy", expect="review")(without(DRAIN))
variant("S4.read", "hgemm", "hgemm.f32", "nvcc.add_one", "tma_copy")(replaced(DRAIN, "wait_group 0", "wait_group.read 0"))
mutant("S6", *PRODUCTS)(without(NAMED, range(1, 99, 2)))
mutant("S6", "nvcc.add_one")(without(r"^bar\.sync", LAST))
mutant("S7", "tma_copy")(lambda e: (e.before(TRY_WAIT, [*e.take(STORE), *e.take(r"bulk\.commit_group")]), None))

# R: the rest.

mutant("R1", *PRODUCTS, "pool")(replaced(r"setmaxnreg\.inc", "232;", "240;"))
mutant("R1.dec", "hgemm", "pool")(without(r"setmaxnreg\.dec"))
mutant("R2.direction", "hgemm", "pool")(replaced(r"setmaxnreg\.inc", r"\.inc", ".dec"))


@mutant("R2.warp", "pool")
def _one_warp_takes_registers(edit: Edit) -> None:
    edit.guard(r"setmaxnreg\.inc", "%q0").before(r"setmaxnreg\.inc", ptx("mov.u32 %q1, %tid.x;\nsetp.lt.u32 %q0, %q1, 160;"))
    edit.top(".reg .pred %q0;\n.reg .b32 %q1;")


mutant("R3.count", "named")(replaced(r"bar\.arrive 1", "128", "96"))
mutant("R3.id", "named")(replaced(r"bar\.sync 1", "sync 1", "sync 3"))
mutant("R3.short", "named")(lambda e: e.text(r"bar\.(sync|arrive) 1", "128", "96"))


@mutant("R3.shared", "hgemm", "hgemm.alone")
def _both_warpgroups_use_one_barrier(edit: Edit) -> None:
    number = operand(edit, NAMED, FIRST, 0)
    edit.change(rf"^add\.u32 {number},", lambda s: ptx(f"mov.u32 {number}, 1;"))


@mutant("R4", "hgemm", "hgemm.alone")
def _only_the_leader_meets(edit: Edit) -> None:
    edit.guard(NAMED, edit.find(READ)[0].guard.predicate, 1)  # type: ignore[union-attr]


@mutant("R5", "publish", every=False)
def _lane_0_has_the_address(edit: Edit) -> None:
    base = operand(edit, ARRIVE, FIRST, 1).strip("[]").partition("+")[0]
    lane = operand(edit, r"mov\.u32 .*%laneid", FIRST, 0)
    edit.after(r"elect\.sync", ptx(f"setp.ne.u32 %q0, {lane}, 0;\n@%q0 add.u32 {base}, {base}, 4096;"), FIRST).top(".reg .pred %q0;")


mutant("R6", "nvcc.total")(without(r"^bar\.sync"))
mutant("R6", "named")(without(r"bar\.sync 1"))
mutant("R6.back", "named")(without(r"bar\.(sync|arrive) 2"))
mutant("R6", "transpose")(without(r"bar\.warp\.sync"))
mutant("R6.first", "nvcc.staged")(without(r"^bar\.sync", FIRST))
mutant("R6.second", "nvcc.staged")(without(r"^bar\.sync", 1))
mutant("R6.copies", "nvcc.staged")(without(r"cp\.async\.wait_group"))


@mutant("R7", "hgemm", "hgemm.alone")
def _the_first_product_adds(edit: Edit) -> None:
    edit.text(MMA, rf"{operand(edit, MMA, FIRST, -5)}, 1", "1, 1", FIRST)


mutant("R7.smem", "staged_mma")(without(r"^cp\.async\.cg", 3))
mutant("R7.part", "transpose")(without(r"st\.shared", 7))


__all__ = ["MUTANTS", "VARIANTS", "Mutant", "mutant", "variant"]
