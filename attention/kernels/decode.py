"""Attention decode: one query a sequence and head, keys and values in a paged cache, split over CTAs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, Vec, ctaid, for_range, if_, kernel, laneid, nctaid, smem, tid
from ptxkit.gemm.scheduler.fast_divmod import ceil_div
from ptxkit.ptx import add, bar, cp, griddepcontrol, ld, mov, mul, opcode, st, xor
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.types import Scalar, b32, bf16, f32, s32, u32

from ..collective.cache import Cache, Heads, Keys, Values
from ..collective.merge import QUAD, Merge
from ..collective.softmax import LEAST, OnlineSoftmax, mask_columns, over_row, pack_weights, rescale
from ..config.decode import BLOCK, RESIDENT, ROWS, WARPS, sides_of

WARP = 32
AHEAD = 2                   # blocks of a warp that are in the L2 when the launch before ends
HALF = 8 * WARP             # scores that a warp has of a block
AT_ONCE = 8                 # parts whose loads a thread of `combine` has under way


@dataclass(frozen=True, slots=True)
class Table:
    """The pages of each sequence, `row` from one to the next, and the keys of each. A sequence has at most `limit` keys, a page's number is
    at most `last`: what is more is cut off."""

    pages: Ptr[u32]
    row: Reg[u32]
    lengths: Ptr[s32]
    limit: Reg[s32]
    last: Reg[u32]


@dataclass(frozen=True, slots=True)
class Parts:
    """What CTAs found of their keys: weighted sums [splits, rows, head], and maxima and sums of weights [splits, rows], a row for each
    batch and head of queries."""

    values: Ptr[f32]
    tops: Ptr[f32]
    totals: Ptr[f32]


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """Heads of queries, those that share a head of keys, and the CTAs that a head of keys needs for them."""

    heads: Reg[u32]
    group: Reg[u32]
    slices: Reg[u32]


class SharedScores:
    """Scores that two warps share: each has the sum over its half of the head. A team has a named barrier, and two places in turn: a warp
    that comes to the barrier has read what was there before."""

    def __init__(self, team: Reg[u32], side: Reg[u32], lane: Reg[u32], teams: int) -> None:
        self.barrier, self.place = team + 1, mov.u32(0)
        words = smem.array(f32, 2 * teams * 2 * HALF, name="scores")
        self.own, self.other = (words.at(team * (2 * HALF) + which * HALF + lane * 4) for which in (side, 1 - side))
        self.turn = teams * 2 * HALF

    def add(self, scores: list[Vec[Any, Any]]) -> None:
        """Add the other warp's scores to these."""
        xor.b32(self.place, self.place, self.turn)
        for number, four in enumerate(scores):
            st.shared__cta.v4.f32(self.own.at(self.place) + number * 4 * WARP, four)
        bar.sync(self.barrier, b=2 * WARP)
        for number, four in enumerate(scores):
            for mine, theirs in zip(four, ld.shared__cta.v4.f32(self.other.at(self.place) + number * 4 * WARP), strict=True):
                add.rn.f32(mine, mine, theirs)


@kernel(target="sm_90a", block=WARPS * WARP, min_ctas=RESIDENT)
def decode(q: Heads, k: Cache, v: Cache, table: Table, out: Heads, sums: Ptr[f32], parts: Parts, shape: DecodeShape, scale: Reg[f32], *,
           head: int = 128, page: int = 16, type: type[Scalar] = bf16, split: bool = False, lse: bool = False) -> None:
    """out = softmax(scale q K^T) V for q and out [B, H, head], pages [page, H / group, head] of k and v; `scale` has the factor log2 e.

    The grid is B x (heads of keys x slices) x splits. A CTA has up to 16 heads of queries that share a head of keys, as the rows of mma.
    Blocks of 16 keys are dealt to the warps of all its splits in turn, each with an online softmax of its own. With head dim 256 two warps
    share a block, each with half of the head.

    A lane loads operands straight from the cache, 16 bytes at a time: no shared memory, no barrier. The values of a block and the keys of
    the next one are under way while scores and softmax are computed, and so is the page of the block after it. At the end the warps' parts
    meet in shared memory. One barrier stands between their stores and the loads. With `split` the CTA's part goes to `parts`, and `combine`
    puts the parts together.

    The next launch may begin at once, and waits for this one at its own griddepcontrol.wait. Before that a warp reads the lengths and the
    table, and prefetches its first blocks. What is read then only says what is prefetched, inside of the cache: it is read again after the
    wait.
    """
    multiply = opcode(f"mma.sync.aligned.m16n8k16.row.col.f32.{type.__name__}.{type.__name__}.f32")
    sides = sides_of(head)
    teams, width, pitch = WARPS // sides, head // sides, head + 16
    values_of = smem.array(f32, teams * ROWS * pitch, name="weighted sums of a team")
    tops_of, totals_of = (smem.array(f32, teams * ROWS, name=name) for name in ("maxima", "sums of weights"))

    thread, lane = mov.u32(tid.x), mov.u32(laneid)
    team, side, g, t = thread // (WARP * sides), (thread >> 5) & (sides - 1), lane >> 2, lane & 3
    batch, part = mov.u32(ctaid.x), mov.u32(ctaid.z)
    kv_head = mov.u32(ctaid.y) // shape.slices
    skipped = (ctaid.y - kv_head * shape.slices) * ROWS
    griddepcontrol.launch_dependents()
    first_head, rows = kv_head * shape.group + skipped, min_.u32(shape.group - skipped, ROWS)

    of_sequence, blocks_of_page = table.pages.at(mul.wide.u32(batch, table.row)), page // BLOCK
    first, stride = part * teams + team, mov.u32(nctaid.z) * teams
    reached: Reg[u32] = mov.b32(table.limit)
    most = ceil_div(reached, BLOCK)               # blocks of the longest sequence that the table has

    def length_of(found: Reg[s32]) -> Reg[u32]:
        cut: Reg[u32] = mov.b32(min_.s32(max_.s32(found, 0), table.limit))
        return cut

    def row_of(number: Reg[u32]) -> Reg[u32]:
        return (number & 0) if blocks_of_page == 1 else (number - number // blocks_of_page * blocks_of_page) * BLOCK

    def page_of(number: Reg[u32], found: Reg[u32]) -> None:
        """The page of a block as it is in the table, if the table has it."""
        ld.global_.u32(found, of_sequence.at(number // blocks_of_page), pred=number < most)

    reach = length_of(ld.relaxed.gpu.global_.s32(table.lengths.at(batch)))
    soon = [(first + stride * number, mov.u32(0)) for number in range(AHEAD)]
    for number, its_page in soon:
        ld.relaxed.gpu.global_.u32(its_page, of_sequence.at(number // blocks_of_page), pred=number < most)
    line = lane & (BLOCK - 1)
    for number, its_page in soon:
        min_.u32(its_page, its_page, table.last)
        there = number * BLOCK + line < reach
        for cache, whose in ((k, lane < BLOCK), (v, lane >= BLOCK)):    # a lane has a row of keys or of values
            of_head = cache.pointer.at(mul.wide.u32(kv_head, cache.head)).at(side * (width * 2))
            of_page = of_head.at(mul.wide.u32(its_page, cache.page))
            cp.async_.bulk.prefetch.L2.global_(of_page.at(mul.wide.u32(row_of(number) + line, cache.row)), width * 2, pred=there & whose)
    griddepcontrol.wait()

    here, ahead, later = (mov.u32(0) for _ in range(3))
    signed = ld.global_.s32(table.lengths.at(batch))
    page_of(first, here)
    page_of(first + stride, ahead)
    queries = [[Vec([mov.b32(0) for _ in range(4)]) for _ in range(width // 32)] for _ in range(2)]
    for half, words in enumerate(queries):
        place = q.at(batch, first_head + g + 8 * half).at(side * (width * 2) + t * 16).cast(b32)
        for at, four in enumerate(words):
            ld.global_.v4.b32(four, place + 16 * at, pred=g + 8 * half < rows)
    keys, values = Keys(k, kv_head, side * (width * 2), g, t, width), Values(v, kv_head, side * (width * 2), g, t, width)
    output = [Vec([mov.f32(0.0) for _ in range(4)]) for _ in range(width // 8)]
    whole = Vec([register for tile in output for register in tile])
    softmax = OnlineSoftmax(scale)
    shared = SharedScores(team, side, lane, teams) if sides > 1 else None
    weights = [Vec([mov.b32(0) for _ in range(4)])]

    for number in (here, ahead):
        min_.u32(number, number, table.last)
    length = length_of(signed)
    end = ceil_div(length, BLOCK)
    keys.load(here, row_of(first), first < end)
    with for_range(end, start=first, step=stride) as block:
        following = block + stride
        page_of(following + stride, later)
        left = length - block * BLOCK
        lines = values.load(here, row_of(block), left)
        scores = [Vec([mov.f32(0.0) for _ in range(4)]) for _ in range(2)]
        for step in range(width // 16):
            rows_a = [list(words[step // 2])[step % 2 * 2 + at] for at in range(2) for words in queries]
            for half, score in enumerate(scores):
                multiply(score, rows_a, keys.operand(half, step), score)
        keys.load(ahead, row_of(following), following < end)
        if shared is not None:
            shared.add(scores)
        both = Vec([register for score in scores for register in score])
        limit: Reg[s32] = mov.b32(left - t * 2)
        mask_columns(both, [limit, limit])
        rescale(whole, softmax.weigh(both))
        pack_weights(type, both, weights)
        for tile, sum_ in enumerate(output):
            multiply(sum_, weights[0], values.operand(lines, tile // 8, tile % 8), sum_)
        mov.u32(here, ahead)
        min_.u32(ahead, later, table.last)

    for half, exponent in enumerate(softmax.exponents()):
        row = team * ROWS + g + 8 * half
        total = over_row(add.rn.f32, softmax.total[half])
        with if_((side * 4 + t) == 0):
            st.shared__cta.f32(tops_of.at(row), exponent)
            st.shared__cta.f32(totals_of.at(row), total)
        own = values_of.at(row * pitch + side * width + t * 4)
        with if_(g + 8 * half < rows):
            for span in range(width // 64):
                for at in range(4):                                     # a lane has columns 16 t to 16 t + 15 of each 64
                    tiles = output[8 * span + at % 2 * 4:][:4]
                    st.shared__cta.v4.f32(own + (64 * span + 16 * at), Vec([list(tile)[2 * half + at // 2] for tile in tiles]))
    bar.sync(0)
    for item in range(0, ROWS * head // QUAD, WARPS * WARP):
        row, column = (thread + item) // (head // QUAD), ((thread + item) & (head // QUAD - 1)) * QUAD
        staged = (column & (head - 64)) + ((column & 12) << 2) + ((column >> 4 & 3) << 2)
        with if_(row < rows):
            merge = Merge()
            tops = [ld.shared__cta.f32(tops_of.at(row) + other * ROWS) for other in range(teams)]
            for top in tops:
                merge.raise_to(top)
            for other, top in enumerate(tops):
                merge.add(top, ld.shared__cta.f32(totals_of.at(row) + other * ROWS),
                          ld.shared__cta.v4.f32(values_of.at(row * pitch + staged) + other * ROWS * pitch))
            of_row = batch * shape.heads + (first_head + row)
            if split:
                found = mul.wide.u32(part, mov.u32(nctaid.x) * shape.heads) + mul.wide.u32(of_row, 1)
                st.global_.v4.f32(parts.values.at(found * head).at(column), Vec(merge.values))
                with if_(column == 0):
                    st.global_.f32(parts.tops.at(found), merge.top)
                    st.global_.f32(parts.totals.at(found), merge.total)
            else:
                merge.store(type, out.at(batch, first_head + row), column, sums.at(of_row) if lse else None)


@kernel(target="sm_90a", block=lambda config: config["head"])
def combine(parts: Parts, out: Heads, sums: Ptr[f32], splits: Reg[u32], *, head: int = 128, type: type[Scalar] = bf16,
            lse: bool = False) -> None:
    """Put the parts of each row together. The grid is B x heads. Each of four teams of threads has every fourth part, and the loads of some
    of them under way. Then the teams' sums are added in their order. A thread has four elements of the row."""
    threads = head // QUAD                                              # of a row
    values_of = smem.array(f32, QUAD * head, align=16, name="weighted sums of a team")
    tops_of, totals_of = (smem.array(f32, QUAD, name=name) for name in ("maxima", "sums of weights"))
    team, column = mov.u32(tid.x) // threads, (mov.u32(tid.x) & (threads - 1)) * QUAD
    batch, of_head = mov.u32(ctaid.x), mov.u32(ctaid.y)
    number, every = batch * nctaid.y + of_head, mov.u32(nctaid.x) * nctaid.y
    merge = Merge()
    griddepcontrol.launch_dependents()
    griddepcontrol.wait()
    with for_range(splits, start=team, step=QUAD * AT_ONCE) as first:
        loaded = []
        for offset in range(AT_ONCE):
            part = first + QUAD * offset
            there = part < splits
            place = mul.wide.u32(part, every) + mul.wide.u32(number, 1)
            top, total, four = mov.f32(LEAST), mov.f32(0.0), Vec([mov.f32(0.0) for _ in range(QUAD)])
            ld.global_.f32(top, parts.tops.at(place), pred=there)
            ld.global_.f32(total, parts.totals.at(place), pred=there)
            ld.global_.v4.f32(four, parts.values.at(place * head).at(column), pred=there)
            loaded.append((top, total, four))
        merge.join(loaded)
    st.shared__cta.v4.f32(values_of.at(team * head + column), Vec(merge.values))
    with if_(column == 0):
        st.shared__cta.f32(tops_of.at(team), merge.top)
        st.shared__cta.f32(totals_of.at(team), merge.total)
    bar.sync(0)
    with if_(team == 0):
        whole = Merge()
        found = [(ld.shared__cta.f32(tops_of.at(other)), ld.shared__cta.f32(totals_of.at(other)),
                  ld.shared__cta.v4.f32(values_of.at(column) + other * head)) for other in range(QUAD)]
        for top, _, _ in found:
            whole.raise_to(top)
        for each in found:
            whole.add(*each)
        whole.store(type, out.at(batch, of_head), column, sums.at(number) if lse else None)


__all__ = ["DecodeShape", "Parts", "Table", "combine", "decode"]
