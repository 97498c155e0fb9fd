"""Checks of single instructions during a trace, and records that are checked when the kernel is complete."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import TraceError
from ..grammar import forms, tree
from ..smem import MBarrier, MBarriers, Shared, SharedAddress, TileView
from ..types import TYPES, ScalarType, bf16, f16, f32, f64
from .descriptor import Descriptor
from .reg import Ptr, Reg
from .signs import check_constant
from .source import user_position
from .tensormap import TensorMapParameter
from .trace import Builder


def observe(builder: Builder, signature: forms.Signature, values: Sequence[Any]) -> None:
    """Check and record one emitted instruction. `values` are the Python operands, one per parameter."""
    mnemonic = signature.form.mnemonic
    if mnemonic == "mapa" or (builder.remote and mnemonic in MOVES):
        _mapped(builder, mnemonic, values)
    if mnemonic in ("ld", "st"):
        _vector(signature.opcode, values)
    if mnemonic in ("ld", "st", "atom", "red"):
        _element(signature.opcode, values)
    if mnemonic in ("setp", "set", "min", "max", "div", "rem"):
        for parameter, value in zip(signature.parameters, values, strict=True):
            if type(value) is int:
                check_constant(signature.opcode, parameter.name, value)
    if mnemonic in ("cp", "st", "red", "tensormap", "prefetch") and "async" in signature.opcode:
        _copy(builder, signature, values)
    elif mnemonic == "mbarrier":
        _mbarrier(builder, signature, values)
    elif mnemonic == "bra":
        builder.branched(values[0] if isinstance(values[0], str) else values[0].name)
    elif mnemonic == "setmaxnreg":
        _setmaxnreg(builder, signature, values)
    elif signature.opcode.startswith("wgmma.mma_async"):
        _operands_of_mma(signature, values)


MOVES = ("mov", "add", "sub", "mad", "cvt", "selp", "or", "xor")
"""What an address goes through."""


def _mapped(builder: Builder, mnemonic: str, values: Sequence[Any]) -> None:
    """Record the registers that hold an address of mapa. Of the executing CTA's own rank it is an address like any other."""
    result, *sources = values
    if mnemonic == "mapa":
        rank = sources[-1]
        if type(rank) is int and 1 < builder.module.cluster_size <= rank:
            raise TraceError(f"mapa of CTA {rank} in a cluster of {builder.module.cluster_size}: ranks are 0 to "
                             f"{builder.module.cluster_size - 1}; @kernel(cluster=...) says how many CTAs it has")
        ranks = {str(getattr(source, "name", "")) for source in sources[1:]}
        remote = "%cluster_ctarank" not in ranks | {
            operand.name for i in builder.body if isinstance(i, tree.Instruction) and i.opcode in ("mov.u32", "mov.b32")
            and isinstance(written := i.operands[0], tree.Name) and written.name in ranks
            and isinstance(operand := i.operands[1], tree.Name)}
        if isinstance(result, Reg):
            (builder.remote.add if remote else builder.remote.discard)(result.name)
    elif isinstance(result, Reg):
        builder.moved(mnemonic, result.name, [tree.Integer(source) if type(source) is int else tree.Name(getattr(source, "name", "_"))
                                              for source in sources])


def _copy(builder: Builder, signature: forms.Signature, values: Sequence[Any]) -> None:
    named = {p.name: (p, v) for p, v in zip(signature.parameters, values, strict=True)}
    if "multicast::cluster" in signature.opcode and builder.module.cluster_size == 1:
        raise TraceError(
            f"`{signature.opcode}` multicasts to the CTAs of a cluster, and this kernel has none: declare @kernel(cluster=2) or "
            "leave `.multicast::cluster` out"
        )
    if signature.opcode.startswith("cp.async.mbarrier.arrive"):
        _arrived(builder, values[0], 1)
    tensormap = next((v for p, v in named.values() if p.operand.tag == "tensormap"), None)
    place = next((v for p, v in named.values() if isinstance(v, SharedAddress) and not isinstance(v, MBarrier)), None)
    if place is not None and "bulk" in signature.opcode:
        _aligned(builder, signature.opcode, place, 128 if tensormap is not None else 16)
    if not isinstance(tensormap, TensorMapParameter):
        return
    operand, coordinates = next((p.operand, v) for p, v in named.values() if p.operand.kind == "coordinates")
    rank = operand.count
    assert isinstance(rank, int)
    if isinstance(place, TileView):
        _begins_whole(signature.opcode, coordinates[0], place.layout.type, tensormap)
        _whole_span(place, tensormap)
        builder.module.copies.record(tensormap, place.layout.type, (*place.box, *(1,) * (rank - 2))[:rank], place.layout.swizzle & ~16)
    elif isinstance(place, Shared) and place.count is not None and rank == 1:
        _begins_whole(signature.opcode, coordinates[0], place.type, tensormap)
        builder.module.copies.record(tensormap, place.type, (place.count,), 0)


def _begins_whole(opcode: str, innermost: Any, type: ScalarType, tensormap: TensorMapParameter) -> None:
    """A box must begin at a multiple of 16 bytes; otherwise the hardware traps. Only constant coordinates can be checked here."""
    if isinstance(innermost, int) and innermost * type.bits // 8 % 16:
        unit = 128 // type.bits
        raise TraceError(
            f"`{opcode}` at the innermost coordinate {innermost} of `{tensormap.name}`: a box of {type.__name__} begins at a multiple of "
            f"16 bytes, here of {unit} elements; begin it at {innermost // unit * unit} and use it from element {innermost % unit} on, or "
            "describe the array so that this coordinate is an outer one"
        )


def _aligned(builder: Builder, opcode: str, place: SharedAddress, bytes: int) -> None:
    """A bulk copy needs an address aligned to 16 bytes, a tensor copy to 128. Only constant addresses can be checked here."""
    allocation = next((a for a in builder.shared.allocations if a.offset <= place.offset < a.offset + a.bytes), None)
    if place.dynamic is None and allocation is not None and (place.offset % bytes or allocation.align % bytes):
        raise TraceError(
            f"`{opcode}` needs shared memory aligned to {bytes} bytes: offset {place.offset} is in `{allocation.what}`, which is "
            f"aligned to {allocation.align}: give it align={bytes} and copy at multiples of it"
        )


def _element(opcode: str, values: Sequence[Any]) -> None:
    """Floats of another width than the array's: indices would count its elements, and bits of several would be one float."""
    place = next((value for value in values if isinstance(value, Ptr | Shared)), None)
    kind = TYPES.get(opcode.rpartition(".")[2])
    if place is None or kind is None or kind.bits == place.type.bits:
        return
    if kind in FLOATS and place.type in FLOATS:
        held, asked = place.type.__name__, kind.__name__
        what, way = (f"a pointer to {held}", f"`p.cast({asked})` where the memory holds {asked}") if isinstance(place, Ptr) else \
            (f"an array of {held}", f"make it an array of {asked}")
        raise TraceError(f"`{opcode}` at {what}: an index counts elements of {place.type.bits // 8} bytes, and the access has "
                         f"{kind.bits // 8}. Access `.{held if held in ('f32', 'f64') else 'b16'}` and convert, or {way}")


FLOATS = (f16, bf16, f32, f64)


def _vector(opcode: str, values: Sequence[Any]) -> None:
    """An access lies at a multiple of its own bytes. Only constant places in shared memory can be checked here."""
    place = next((value for value in values if isinstance(value, SharedAddress)), None)
    if place is None or place.dynamic is not None:
        return
    words = opcode.split(".")
    count = int(next((word[1:] for word in words if word in ("v2", "v4", "v8")), 1))
    bytes = count * (TYPES[words[-1]].bits if words[-1] in TYPES else 8) // 8
    if place.offset % bytes:
        raise TraceError(f"`{opcode}` at byte {place.offset} of shared memory: {bytes} bytes lie at a multiple of {bytes}, or the hardware "
                         "traps; use fewer or smaller elements, or another place")


def _whole_span(view: TileView[Any], tensormap: TensorMapParameter) -> None:
    if view.inner > view.layout.span:
        raise TraceError(
            f"the swizzle span is smaller than the inner box: {view.inner * view.layout.element_bytes} bytes of a tile with "
            f"{view.layout.span_bytes}-byte spans do not fit one copy through {tensormap!r}; copy `tile[stage].span(i)` for i in "
            f"range({view.layout.spans})"
        )
    if max(view.box) > 256:
        raise TraceError(
            f"a box of {view.box[0]}x{view.box[1]} through {tensormap!r}: no extent may exceed 256; "
            "copy `tile[stage].lines(start, 256)` in parts"
        )


def _mbarrier(builder: Builder, signature: forms.Signature, values: Sequence[Any]) -> None:
    named = {p.name: v for p, v in zip(signature.parameters, values, strict=True)}
    barrier = next((v for v in values if isinstance(v, MBarrier)), None)
    if barrier is None or barrier.array is None:
        return
    if signature.opcode.startswith("mbarrier.init"):
        count = named.get("count")
        barrier.array.initial.append(count if isinstance(count, int) else None)
    elif ".arrive" in signature.opcode:
        count = named.get("count", 1)
        _arrived(builder, barrier, 1 if count is None else count)
    elif "_wait" in signature.opcode:
        barrier.array.waited = True


def _arrived(builder: Builder, barrier: Any, count: Any) -> None:
    if isinstance(barrier, MBarrier) and barrier.array is not None:
        population = builder.population()
        if isinstance(count, int):
            barrier.array.counts.append((count, user_position()))
        at_most = count * population * builder.module.cluster_size if isinstance(count, int) and population is not None else None
        barrier.array.arrivals.append(at_most)


def _setmaxnreg(builder: Builder, signature: forms.Signature, values: Sequence[Any]) -> None:
    direction = signature.opcode.split(".")[1]
    builder.module.setmaxnreg.append((direction, int(values[0]), builder.population(), user_position()))


def _operands_of_mma(signature: forms.Signature, values: Sequence[Any]) -> None:
    """The descriptors' tiles must hold what the instruction reads: 64 rows of A, and the shape's number of columns of B.

    A row has 32 bytes, and 64 in B of a sparse product.
    """
    columns = re.search(r"\.m64n(\d+)k", signature.opcode)
    a_type, b_type = (TYPES.get(name) for name in signature.opcode.split(".")[-2:])
    if columns is None or a_type is None or b_type is None:
        return
    for parameter, value in zip(signature.parameters, values, strict=True):
        if isinstance(value, Descriptor):
            is_a = parameter.name.startswith("a")
            bytes = 64 if ".sp." in signature.opcode and not is_a else 32
            problem = value.problem(64 if is_a else int(columns[1]), a_type if is_a else b_type, bytes)
            if problem:
                raise TraceError(f"`{signature.opcode}`: operand `{parameter.name}` {problem}")


def check_barriers(barriers: Sequence[MBarriers]) -> None:
    """Raise TraceError if a barrier is used without init, or if its arrivals can never reach its count."""
    for array in barriers:
        if not array.checked:
            continue
        if not array.initial:
            if array.waited or array.arrivals:
                raise TraceError(
                    f"the barriers `{array.name}` are used but never initialised: mbarrier.init.shared__cta.b64(barrier, count)",
                    array.position)
            continue
        known = [count for count in array.initial if count is not None]
        for count, position in array.counts:
            if len(known) == len(array.initial) and count > max(known):
                raise TraceError(f"one arrive counts {count}, but the barriers `{array.name}` expect {max(known)} a phase: "
                                 "init them to the arrivals of a whole phase", position)
        if not array.waited or None in array.initial or None in array.arrivals:
            continue
        most, counts = sum(c for c in array.arrivals if c), sorted({c for c in array.initial if c})
        if counts and counts[0] > most:
            raise TraceError(
                f"the barriers `{array.name}` expect {counts[0]} arrivals a phase, but the arrives in this kernel make at most {most}: "
                "no phase can complete (init the count to the threads that arrive, or pass smem.mbarrier(..., check=False) if a "
                "thread arrives more than once a phase)",
                array.position,
            )


def check_setmaxnreg(sites: Sequence[tuple[str, int, int | None, Any]], threads: int, registers: int) -> None:
    """Raise TraceError if setmaxnreg asks for more registers than the CTA has at entry (`registers` per thread)."""
    pool = registers * threads
    incs = [site for site in sites if site[0] == "inc"]
    if not incs:
        return
    taken = others = 0
    for _, count, population, _ in sites:
        if population is None:
            return
        taken += population * count
        others += population
    taken += max(0, threads - others) * 24
    if taken > pool:
        listed = ", ".join(f"{direction} {count} on {population} threads" for direction, count, population, _ in sites)
        raise TraceError(
            f"setmaxnreg exceeds the pool: {listed} need {taken:,} registers, the CTA has {threads} x {registers} = {pool:,} at entry",
            incs[0][3],
        )


def entry_registers(threads: int, largest: int) -> int:
    """The registers per thread that ptxas gives a kernel of `threads` threads and one CTA per SM. `largest` is its largest setmaxnreg."""
    limit = min(255, 65536 // threads // 8 * 8)
    return min(limit, largest) if largest else limit


__all__ = ["check_barriers", "check_setmaxnreg", "entry_registers", "observe"]
