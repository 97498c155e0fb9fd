"""The way of tokens to experts: the experts that logits choose with their weights, and the choices sorted by expert."""

from __future__ import annotations

import math
from typing import Any, Literal

from ptxkit import Ptr, Reg, ctaid, for_range, if_, kernel, laneid, lanemask_lt, loop, smem, tid
from ptxkit.ptx import add, bar, brev, clz, div, ex2, griddepcontrol, ld, mov, mul, popc, selp, setp, shfl, shr, st, sub, vote, xor
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.reductions import warp_reduce
from ptxkit.types import f32, pred, u32

WARPS, LANES = 8, 32
MOST_EXPERTS = 1024
"""That a warp keeps the logits of: 32 a lane."""
UNROLLED = 8                # loads of a thread that are under way together
ALL = NONE = 0xFFFFFFFF
LOG2_E = 1.4426950408889634


@kernel(target="sm_90a", block=WARPS * LANES)
def choose_experts(logits: Ptr[f32], weights: Ptr[f32], experts: Ptr[u32], tokens: Reg[u32], count: Reg[u32], top: Reg[u32], *,
                   each: Literal[1, 2, 4, 8, 16, 32] = 8, over_all: bool = False) -> None:
    """experts [tokens, top]: the columns of the largest logits [tokens, count], the largest first; of equal ones the lowest. weights:
    their softmax over those that were chosen, or `over_all` logits of the token.

    A warp has a token, and a lane `each` of its logits. They become keys whose order as integers is that of the values: all bits are
    flipped of a negative one, the sign of another. Adding 0 before makes -0 a 0, and each NaN the one without a sign, which is above
    all. No value has the key 0, that of what is taken. Each turn takes the largest key and the lowest column that has it, and lane r keeps
    what turn r found. Sums over lanes are added by halves: a token's bits depend on its logits alone.
    """
    lane, token = mov.u32(laneid), mov.u32(ctaid.x) * WARPS + (mov.u32(tid.x) >> 5)
    griddepcontrol.wait()
    griddepcontrol.launch_dependents()
    with if_(token < tokens):                                       # the same in all lanes of a warp
        row = logits.at(mul.wide.u32(token, count))
        columns = [lane + LANES * i if i else lane for i in range(each)]
        values = [mov.f32(-math.inf) for _ in columns]              # of -inf the token's own columns are lower
        for value, column in zip(values, columns, strict=True):
            ld.global_.nc.f32(value, row.at(column), pred=column < count)
        words = [mov.u32(mov.b32(add.rn.f32(value, 0.0))) for value in values]
        keys = [xor.b32(word, mov.u32(shr.s32(mov.s32(word), 31)) | 0x80000000) for word in words]
        if over_all:
            most = _value(warp_reduce(max_.u32, _over(max_.u32, keys)))
            terms = [selp.f32(_power(value, most), 0.0, column < count) for value, column in zip(values, columns, strict=True)]
            total = warp_reduce(add.rn.f32, _over(add.rn.f32, terms))
        found, where = mov.u32(0), mov.u32(0)
        with for_range(top) as turn:
            largest = warp_reduce(max_.u32, _over(max_.u32, keys))
            equal = [selp.u32(column, NONE, setp.eq.u32(key, largest)) for key, column in zip(keys, columns, strict=True)]
            winner = warp_reduce(min_.u32, _over(min_.u32, equal))
            mov.u32(found, largest, pred=lane == turn)
            mov.u32(where, winner, pred=lane == turn)
            for key, column in zip(keys, columns, strict=True):
                mov.u32(key, 0, pred=column == winner)              # taken
        if not over_all:
            most = _value(shfl.sync.idx.b32(found, 0, 31, ALL))
        power = selp.f32(_power(_value(found), most), 0.0, lane < top)
        if not over_all:
            total = warp_reduce(add.rn.f32, power)
        with if_(lane < top):
            at = mul.wide.u32(token, top)
            st.global_.f32(weights.at(at).at(lane), div.rn.f32(power, total))
            st.global_.u32(experts.at(at).at(lane), where)


def _value(key: Reg[u32]) -> Reg[f32]:
    """The number of a key."""
    return mov.b32(key ^ (~mov.u32(shr.s32(mov.s32(key), 31)) | 0x80000000))


def _power(value: Reg[f32], most: Reg[f32]) -> Reg[f32]:
    """e to the power of value - most."""
    return ex2.approx.ftz.f32(mul.rn.f32(sub.rn.f32(value, most), LOG2_E))


def _over(operation: Any, values: list[Any]) -> Any:
    """Reduce in pairs: chains of log2(n)."""
    while len(values) > 1:
        values = [operation(*values[i:i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
    return values[0]


@kernel(target="sm_90a", block=lambda config: config["threads"], min_ctas=2)
def sort_choices(experts: Ptr[u32], offs: Ptr[u32], choice: Ptr[u32], token: Ptr[u32], slot: Ptr[u32], count: Reg[u32], groups: Reg[u32],
                 top: Reg[u32], steps: Reg[u32], *, threads: Literal[128, 1024] = 1024, held: bool = True,
                 dense: bool = False) -> None:
    """`count` choices of `groups` experts, expert after expert, those of one expert in their order; choices of no expert come last.

    offs [groups + 1]: where each expert's begin. choice [count]: which choice each place has, and token [count]: the token that it is of,
    with `top` choices each. slot [count]: the place of each choice, -1 of no expert's.

    CTA e finds all choices of expert e, and the last CTA those of no expert. A warp looks at `steps` times 32 neighbours, in two passes:
    how many choices there are of this expert and of those before it, then where each lies. 32 times 32 choices are a mask a lane: lane l
    has those of step l. `held`: a warp looks at no more, and keeps them from one pass to the other. A lane writes the choices of its mask
    one after another; `dense`, for few experts: the lanes write those of a step together, so that neighbours write neighbours.

    As in `combine`, the next kernel is not launched before this one has ended.
    """
    warps = threads // LANES
    shared = smem.array(u32, 2 * warps, name="own and less of each warp")
    thread, lane, expert = mov.u32(tid.x), mov.u32(laneid), mov.u32(ctaid.x)
    warp = thread >> 5
    first = warp * steps * LANES
    griddepcontrol.wait()

    def look(begin: Reg[u32], less: Reg[u32] | None) -> Reg[u32]:
        """The mask of each lane, of at most 32 steps; adds to `less` the choices of experts before this one."""
        mask, of_round = mov.u32(0), min_.u32(steps, LANES) if held else mov.u32(LANES)
        end = min_.u32(count, first + steps * LANES)
        with for_range(of_round, step=UNROLLED) as step:
            values = []
            for number in range(UNROLLED):
                value, at = mov.u32(NONE), begin + (step + number) * LANES + lane
                inside: Reg[pred] = at < end
                ld.global_.nc.u32(value, experts.at(at), pred=inside)
                min_.u32(value, value, groups, pred=inside)
                values.append(value)
            for number, value in enumerate(values):
                found = vote.sync.ballot.b32(value == expert, ALL)
                mov.u32(mask, found, pred=lane == step + number)
                if less is not None:
                    add.u32(less, less, 1, pred=value < expert)
        return mask

    def write(position: Reg[u32], number: Reg[u32]) -> None:
        st.global_.u32(choice.at(position), number)
        st.global_.u32(token.at(position), number // top)
        st.global_.u32(slot.at(number), selp.u32(position, NONE, expert < groups))

    def put(mask: Reg[u32], begin: Reg[u32], before: Reg[u32]) -> Reg[u32]:
        """Write where the choices of these masks lie, `before` of which are before them; returns how many those are then."""
        if dense:
            with for_range(min_.u32(steps, LANES)) as step:
                found = shfl.sync.idx.b32(mask, step, 31, ALL)
                mine = shr.u32(found, lane) & 1
                with if_(mine != 0):
                    write(before + popc.b32(found & mov.u32(lanemask_lt)), begin + step * LANES + lane)
                add.u32(before, before, popc.b32(found))
            return before
        own = popc.b32(mask)
        upto = _scanned(own, lane)
        position, step = before + (upto - own), begin + lane * LANES
        with loop() as bits:
            bits.break_if(mask == 0)
            number = step + clz.b32(brev.b32(mask))
            mov.u32(mask, mask & (mask - 1))
            write(position, number)
            add.u32(position, position, 1)
        return before + shfl.sync.idx.b32(upto, LANES - 1, 31, ALL)

    less, own = mov.u32(0), mov.u32(0)
    if held:
        kept = look(first, less)
        mov.u32(own, popc.b32(kept))
    else:
        with for_range(steps, step=LANES) as step:
            add.u32(own, own, popc.b32(look(first + step * LANES, less)))
    own, less = warp_reduce(add.u32, own), warp_reduce(add.u32, less)
    with if_(lane == 0):
        st.shared__cta.u32(shared.at(warp), own)
        st.shared__cta.u32(shared.at(warp + warps), less)
    bar.sync(0)
    there: Reg[pred] = lane < warps
    owns, lesses = mov.u32(0), mov.u32(0)
    ld.shared__cta.u32(owns, shared.at(lane), pred=there & (lane < warp))
    ld.shared__cta.u32(lesses, shared.at(lane + warps), pred=there)
    start = warp_reduce(add.u32, lesses)
    before = start + warp_reduce(add.u32, owns)
    st.global_.u32(offs.at(expert), start, pred=thread == 0)
    if held:
        put(kept, first, before)
    else:
        with for_range(steps, step=LANES) as step:
            begin = first + step * LANES
            mov.u32(before, put(look(begin, None), begin, before))


def _scanned(value: Reg[u32], lane: Reg[u32]) -> Reg[u32]:
    """The inclusive scan over the lanes of a warp."""
    distance = 1
    while distance < LANES:
        other = shfl.sync.up.b32(value, distance, 0, ALL)
        value = value + selp.u32(other, 0, lane >= distance)
        distance *= 2
    return value


__all__ = ["LANES", "MOST_EXPERTS", "UNROLLED", "WARPS", "choose_experts", "sort_choices"]
