"""Attention decode: one query a sequence and head, keys and values in a paged cache, split over CTAs."""

from __future__ import annotations

from dataclasses import dataclass

from ptxkit import Ptr, Reg, Vec, ctaid, for_range, if_, kernel, laneid, nctaid, smem, tid
from ptxkit.gemm.scheduler.fast_divmod import ceil_div
from ptxkit.ptx import add, bar, ld, mov, mul, opcode, st
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.types import Scalar, b32, bf16, f32, s32, u32

from ..collective.cache import Cache, Heads, Keys, Values
from ..collective.merge import Merge
from ..collective.softmax import OnlineSoftmax, mask_columns, over_row, pack_weights, rescale
from ..config.decode import BLOCK, RESIDENT, ROWS, WARPS

WARP = 32


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


@kernel(target="sm_90a", block=WARPS * WARP, min_ctas=RESIDENT)
def decode(q: Heads, k: Cache, v: Cache, table: Table, out: Heads, sums: Ptr[f32], parts: Parts, shape: DecodeShape, scale: Reg[f32], *,
           head: int = 128, page: int = 16, type: type[Scalar] = bf16, split: bool = False, lse: bool = False) -> None:
    """out = softmax(scale q K^T) V for q and out [B, H, head], pages [page, H / group, head] of k and v; `scale` has the factor log2 e.

    The grid is B x (heads of keys x slices) x splits. A CTA has up to 16 heads of queries that share a head of keys, as the rows of mma,
    and an equal part of the sequence's keys. Its warps take blocks of 16 keys in turn, each with an online softmax of its own.

    A lane loads operands straight from the cache, 16 bytes at a time: no shared memory, no barrier. The values of a block and the keys of
    the next one are under way while scores and softmax are computed. At the end the warps' parts meet in shared memory. One barrier stands
    between their stores and the loads. With `split` the CTA's part goes to `parts`, and `combine` puts the parts together.
    """
    multiply = opcode(f"mma.sync.aligned.m16n8k16.row.col.f32.{type.__name__}.{type.__name__}.f32")
    values_of = smem.array(f32, WARPS * ROWS * head, name="weighted sums of a warp")
    tops_of, totals_of = (smem.array(f32, WARPS * ROWS, name=name) for name in ("maxima", "sums of weights"))

    thread, lane = mov.u32(tid.x), mov.u32(laneid)
    warp, g, t = thread >> 5, lane >> 2, lane & 3
    batch, part = mov.u32(ctaid.x), mov.u32(ctaid.z)
    kv_head = mov.u32(ctaid.y) // shape.slices
    skipped = (ctaid.y - kv_head * shape.slices) * ROWS
    first_head, rows = kv_head * shape.group + skipped, min_.u32(shape.group - skipped, ROWS)

    signed = min_.s32(max_.s32(ld.global_.nc.s32(table.lengths.at(batch)), 0), table.limit)
    length: Reg[u32] = mov.b32(signed)
    blocks = ceil_div(length, BLOCK)
    each = ceil_div(blocks, mov.u32(nctaid.z)) if split else blocks
    begin = part * each
    end = min_.u32(begin + each, blocks)

    queries = [[Vec([mov.b32(0) for _ in range(4)]) for _ in range(head // 32)] for _ in range(2)]
    for half, words in enumerate(queries):
        place = q.at(batch, first_head + g + 8 * half).at(t * 16).cast(b32)
        for number, four in enumerate(words):
            ld.global_.nc.v4.b32(four, place + 16 * number, pred=g + 8 * half < rows)
    keys, values = Keys(k, kv_head, g, t, head), Values(v, kv_head, g, t, head)
    output = [Vec([mov.f32(0.0) for _ in range(4)]) for _ in range(head // 8)]
    whole = Vec([register for tile in output for register in tile])
    softmax = OnlineSoftmax(scale)
    weights = [Vec([mov.b32(0) for _ in range(4)])]
    of_sequence, blocks_of_page = table.pages.at(mul.wide.u32(batch, table.row)), page // BLOCK

    def page_of(number: Reg[u32], found: Reg[u32]) -> None:
        """The page of a block, if this warp has it."""
        ld.global_.nc.u32(found, of_sequence.at(number // blocks_of_page), pred=number < end)
        min_.u32(found, found, table.last)

    def row_of(number: Reg[u32]) -> Reg[u32]:
        return (number & 0) if blocks_of_page == 1 else (number - number // blocks_of_page * blocks_of_page) * BLOCK

    first, here = begin + warp, mov.u32(0)
    page_of(first, here)
    keys.load(here, row_of(first), first < end)
    with for_range(end, start=first, step=WARPS) as block:
        following, ahead = block + WARPS, mov.u32(0)
        page_of(following, ahead)
        left = length - block * BLOCK
        lines = values.load(here, row_of(block), left)
        scores = [Vec([mov.f32(0.0) for _ in range(4)]) for _ in range(2)]
        for step in range(head // 16):
            rows_a = [list(words[step // 2])[step % 2 * 2 + at] for at in range(2) for words in queries]
            for half, score in enumerate(scores):
                multiply(score, rows_a, keys.operand(half, step), score)
        keys.load(ahead, row_of(following), following < end)
        mov.u32(here, ahead)
        both = Vec([register for score in scores for register in score])
        limit: Reg[s32] = mov.b32(left - t * 2)
        mask_columns(both, [limit, limit])
        rescale(whole, softmax.weigh(both))
        pack_weights(type, both, weights)
        for tile, sum_ in enumerate(output):
            multiply(sum_, weights[0], values.operand(lines, tile // 8, tile % 8), sum_)

    for half in range(2):
        row = warp * ROWS + g + 8 * half
        total = over_row(add.rn.f32, softmax.total[half])
        with if_(t == 0):
            st.shared__cta.f32(tops_of.at(row), mul.rn.f32(softmax.top[half], scale))
            st.shared__cta.f32(totals_of.at(row), total)
        own = values_of.at(row * head + t * 16)
        for span in range(head // 64):
            for number in range(4):                                     # a lane has columns 16 t to 16 t + 15 of each 64
                tiles = output[8 * span + number % 2 * 4:][:4]
                st.shared__cta.v4.f32(own + (64 * span + 4 * number), Vec([list(tile)[2 * half + number // 2] for tile in tiles]))
    bar.sync(0)
    lines_of_round = WARPS * WARP // head
    column, line = thread & (head - 1), thread // head
    for start in range(0, ROWS, lines_of_round):
        row = line + start
        with if_(row < rows):
            merge = Merge()
            tops = [ld.shared__cta.f32(tops_of.at(row) + other * ROWS) for other in range(WARPS)]
            for top in tops:
                merge.raise_to(top)
            for other, top in enumerate(tops):
                merge.add(top, ld.shared__cta.f32(totals_of.at(row) + other * ROWS),
                          ld.shared__cta.f32(values_of.at(row * head + column) + other * ROWS * head))
            of_row = batch * shape.heads + (first_head + row)
            if split:
                found = mul.wide.u32(part, mov.u32(nctaid.x) * shape.heads) + mul.wide.u32(of_row, 1)
                st.global_.f32(parts.values.at(found * head).at(column), merge.value)
                with if_(column == 0):
                    st.global_.f32(parts.tops.at(found), merge.top)
                    st.global_.f32(parts.totals.at(found), merge.total)
            else:
                merge.store(type, out.at(batch, first_head + row), column, sums.at(of_row) if lse else None)


@kernel(target="sm_90a", block=lambda config: config["head"])
def combine(parts: Parts, out: Heads, sums: Ptr[f32], splits: Reg[u32], *, head: int = 128, type: type[Scalar] = bf16,
            lse: bool = False) -> None:
    """Put the parts of each row together, in their order. The grid is B x heads; a thread has one element."""
    column, batch, of_head = mov.u32(tid.x), mov.u32(ctaid.x), mov.u32(ctaid.y)
    number, every = batch * nctaid.y + of_head, mov.u32(nctaid.x) * nctaid.y
    merge = Merge()
    with for_range(splits) as part:
        merge.raise_to(ld.global_.nc.f32(parts.tops.at(mul.wide.u32(part, every)).at(number)))
    with for_range(splits) as part:
        place = mul.wide.u32(part, every) + mul.wide.u32(number, 1)
        merge.add(ld.global_.nc.f32(parts.tops.at(place)), ld.global_.nc.f32(parts.totals.at(place)),
                  ld.global_.nc.f32(parts.values.at(place * head).at(column)))
    merge.store(type, out.at(batch, of_head), column, sums.at(number) if lse else None)


__all__ = ["DecodeShape", "Parts", "Table", "combine", "decode"]
