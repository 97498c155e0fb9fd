"""What tensor and bulk copies move at the ends of lines, on a Hopper GPU: a store writes whole chunks of 16 bytes, a load fills elements.

    python -m tests.sim.gpu_chunks [FILE] [--only reduce] [--dry]

A line per probe on stdout, and in FILE: its name, and the elements that the GPU changed, or where it trapped. Before the name stands
nothing where every byte of the array and of the output is as the CPU device has it, or it faults too; else `!`, and the exit status is 1.
With `--dry` there is no GPU: the texts are assembled, and the elements are those of the CPU device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit import TensorMap, sim
from ptxkit.types import TYPES

from . import kernels
from .gpu_tensor_faults import FINE, Answer, apart, gpu, verdict
from .test_tensor_faults import BEGIN, BULK, DRAIN, EXPECT, INIT, PARAMETERS, SHARED, WAIT

PITCH, LINES, START = 64, 4, 1024
"""Bytes from line to line, lines of an array, and bytes of the buffer before it."""

SIZE = 4096
"""Bytes of the buffer, of the box's place in shared memory, and of the output."""

FILL = "".join(f"""add.u64 %rd2, %rd3, {512 * i};
ld.global.v4.u32 {{%r3, %r4, %r5, %r6}}, [%rd2];
add.u32 %r2, %r1, {512 * i};
st.shared.v4.u32 [%r2], {{%r3, %r4, %r5, %r6}};
""" for i in range(SIZE // 512))
SHOW = "".join(f"""add.u32 %r2, %r1, {512 * i};
ld.shared.v4.u32 {{%r3, %r4, %r5, %r6}}, [%r2];
add.u64 %rd2, %rd3, {512 * i};
st.global.v4.u32 [%rd2], {{%r3, %r4, %r5, %r6}};
""" for i in range(SIZE // 512))
PLACES = """shl.b32 %r1, %r0, 4;
cvt.u64.u32 %rd3, %r1;
add.u64 %rd3, %rd3, %rd0;
add.u32 %r1, %r1, %r30;
"""


@dataclass(frozen=True)
class Probe:
    """A kernel `k` of a tensor map and an output: the array's elements of `type` are in a buffer of `SIZE` bytes, of which `extents` say
    what is an array (slowest first).
    """

    name: str
    body: str
    type: str
    extents: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    fill: str = "zeros"
    steps: tuple[int, ...] | None = None
    numbers: str = "many"
    """Those of the array and what is combined with them: "many" different ones, "less" for smaller ones, "apart" without a common bit."""
    shows: bool = False
    """Whether the output changes, and not the array."""

    @property
    def item(self) -> int:
        return TYPES[self.type].bits // 8

    @property
    def ptx(self) -> str:
        return kernels.kernel(BEGIN + PLACES + self.body, PARAMETERS, before=SHARED.replace("128", "1024"), directives=".reqntid 32")

    def arguments(self) -> tuple[TensorMap, Any]:
        """The array, whose elements are from 1 on, and the output, which the stores take theirs from: other elements, all from 65 on."""
        dtype = np.dtype(f"u{self.item}")
        count = SIZE // self.item
        there, source = 1 + np.arange(count) % 31, 65 + np.arange(count) % 61
        if self.type in ("f16", "f32", "f64", "bf16", "tf32"):
            there, source = (_floats(each, self.type) for each in (there, source))
        elif self.numbers == "less":
            there, source = source, there
        elif self.numbers == "apart":
            there, source = there * 0 + 0x15, source * 0 + 0x2A
        pitches = [PITCH // self.item]
        for extent in reversed(self.extents[1:-1]):
            pitches.insert(0, pitches[0] * extent)
        strides = (*pitches[:len(self.extents) - 1], 1)
        array = np.ascontiguousarray(there.astype(dtype))
        return TensorMap(array, box=self.box, swizzle=self.swizzle, dtype=self.type, shape=self.extents, strides=strides, offset=START,
                         fill=self.fill, element_strides=self.steps), np.ascontiguousarray(source.astype(dtype)).view(np.uint32)

    def changed(self, answer: Answer) -> str:
        """Which elements changed (those that a load filled with zeros left out), counted from the start of the array or the output."""
        given, out = self.arguments()
        before, start = (out.tobytes(), 0) if self.shows else (given.array.tobytes(), START)
        after = answer.array[SIZE:] if self.shows else answer.array[:SIZE]
        old, new = (np.frombuffer(each, np.uint8).reshape(-1, self.item) for each in (before, after))
        return _ranges(np.flatnonzero((old != new).any(1) & (new.any(1) | (not self.shows))) - start // self.item)


def _floats(values: Any, type: str) -> Any:
    """The bits of the numbers; those of bf16 and tf32 are the first of an f32's."""
    if type == "bf16":
        return values.astype(np.float32).view(np.uint32) >> 16
    kind = {"f16": np.float16, "f64": np.float64}.get(type, np.float32)
    return values.astype(kind).view(f"u{np.dtype(kind).itemsize}")


def _ranges(places: Any) -> str:
    words, start = [], None
    for i, place in enumerate(places):
        start = place if start is None else start
        if i + 1 == len(places) or places[i + 1] != place + 1:
            words.append(f"{start}..{place}" if place > start else f"{place}")
            start = None
    return (", ".join(words[:5]) + ", ..." * (len(words) > 5)) or "none"


# ---------------------------------------------------------------------------------------------------- probes


def at(rank: int, inner: int) -> tuple[str, str]:
    """(the coordinates, what puts the innermost where it belongs)."""
    return "{" + ", ".join(["%r40"] + ["%r10"] * (rank - 1)) + "}", f"mov.u32 %r40, {inner};\n"


def storing(rank: int, inner: int = 0, operation: str = "") -> str:
    where, moved = at(rank, inner)
    opcode = f"cp.{'reduce.' * bool(operation)}async.bulk.tensor.{rank}d.global.shared::cta{operation and '.' + operation}.tile.bulk_group"
    return f"{FILL}fence.proxy.async;\nbar.sync 0;\n{moved}@!%p5 bra E;\n{opcode} [%rd20, {where}], [%r30];\n{DRAIN}E:"


def loading(rank: int, bytes: int, inner: int = 0) -> str:
    where, moved = at(rank, inner)
    opcode = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    return (f"{FILL}fence.proxy.async;\n{INIT}{moved}@!%p5 bra E;\n{EXPECT.format(bytes)}{opcode} [%r30], [%rd20, {where}], [%r31];\n"
            f"E:\n{WAIT}{SHOW}")


def probes() -> list[Probe]:
    return [*stores(), *places(), *before(), *ranks(), *swizzles(), *reductions(), *loads(), *bulks()]


def inner(type: str, most: int = 32) -> int:
    return most // (TYPES[type].bits // 8)


def stores() -> Iterator[Probe]:
    for types, extents in ((("u8",), (1, 5, 15, 16, 17, 31)), (("u16",), (1, 5, 7, 8, 9, 10, 11, 12, 13, 15)), (("f16", "bf16"), (3, 11)),
                           (("u32", "s32", "f32", "tf32"), (1, 3, 4, 5, 7)), (("u64", "s64", "f64"), (1, 2, 3))):
        for type in types:
            for extent in extents:
                yield Probe(f"store {type}, extent {extent}", storing(2), type, (3, extent), (4, inner(type)))


def places() -> Iterator[Probe]:
    for inner_at, extent, wide in ((8, 11, 16), (16, 11, 16), (8, 8, 8), (8, 5, 8), (0, 11, 8), (0, 24, 8), (16, 19, 16)):
        yield Probe(f"store u16 at {inner_at}, extent {extent}, box of {wide}", storing(2, inner_at), "u16", (3, extent), (4, wide))
    yield Probe("store u16, extent 11, every second line", storing(2), "u16", (4, 11), (4, 16), steps=(2, 1))
    yield Probe("store f32, extent 5, a box higher than the array", storing(2), "f32", (2, 5), (16, 8))


def before() -> Iterator[Probe]:
    """Boxes that begin before the array: an H200 traps where they are stored."""
    for type, inner_at in (("u16", -8), ("u16", -16), ("u8", -16), ("f32", -4), ("u64", -32)):
        yield Probe(f"store {type} at {inner_at}, extent 11", storing(2, inner_at), type, (3, 11), (4, inner(type)))
    yield Probe("store u16 1d at -8, extent 11", storing(1, -8), "u16", (11,), (16,))
    yield Probe("reduce add f16 at -8, extent 11", storing(2, -8, "add"), "f16", (3, 11), (4, 16))
    for rank in (2, 3, 5):
        for axis in range(1, rank):
            for verb, body in (("store", storing(rank)), ("reduce add", storing(rank, operation="add")),
                               ("load", loading(rank, 2 ** (rank + 4)))):
                where = ", ".join("%r41" if i == axis else "%r40" if not i else "%r10" for i in range(rank))
                moved = body.replace(at(rank, 0)[0], "{" + where + "}").replace("mov.u32 %r40", "mov.u32 %r41, -1;\nmov.u32 %r40")
                yield Probe(f"{verb} u32 {rank}d at -1 of dimension {axis}", moved, "u32", (*(2,) * (rank - 1), 8), (*(2,) * (rank - 1), 8),
                            shows=verb == "load")


def ranks() -> Iterator[Probe]:
    for type, extents in (("u16", (5, 11)), ("u8", (3,)), ("f32", (5,))):
        for extent in extents:
            for rank in range(1, 6):
                lead = (2,) * (rank - 1)
                yield Probe(f"store {type} {rank}d, extent {extent}", storing(rank), type, (*lead, extent), (*lead, inner(type)))


def swizzles() -> Iterator[Probe]:
    for swizzle in (32, 64, 128):
        for type, extent in (("u16", 11), ("f32", 5), ("u8", 17)):
            yield Probe(f"store {type}, extent {extent}, swizzle {swizzle}", storing(2), type, (4, extent),
                        (8, inner(type, swizzle)), swizzle)


def reductions() -> Iterator[Probe]:
    for type in ("u32", "s32", "u64", "f32", "f16", "bf16", "f64"):
        for extent in (1, 3, 5) if inner(type) > 4 else (1, 3):
            yield Probe(f"reduce add {type}, extent {extent}", storing(2, operation="add"), type, (3, extent), (4, inner(type)))
    for operation, numbers, types in (("add", "many", "s64"), ("min", "less", "u32 s64 u64 bf16"), ("max", "many", "s32 u64 f16 bf16"),
                                      ("inc", "many", "u32"), ("dec", "many", "u32"), ("and", "apart", "u32 s64 u64"),
                                      ("or", "apart", "u32 s32 s64 u64"), ("xor", "apart", "u32 s64 u64")):
        for type in types.split():
            yield Probe(f"reduce {operation} {type}, extent 5", storing(2, operation=operation), type, (3, 5), (4, inner(type)),
                        numbers=numbers)
    for rank in (1, 3, 4, 5):
        lead = (2,) * (rank - 1)
        yield Probe(f"reduce add u32 {rank}d, extent 5", storing(rank, operation="add"), "u32", (*lead, 5), (*lead, 8))
    yield Probe("reduce add f32, extent 5, swizzle 64", storing(2, operation="add"), "f32", (4, 5), (8, 16), 64)
    yield Probe("reduce add f16 at 8, extent 11", storing(2, 8, "add"), "f16", (3, 11), (4, 8))


def loads() -> Iterator[Probe]:
    for type, extents in (("u8", (1, 5, 17)), ("u16", (1, 5, 11)), ("bf16", (11,)), ("u32", (1, 5)), ("f32", (5,)), ("tf32", (5,)),
                          ("u64", (1, 3))):
        for extent in extents:
            yield Probe(f"load {type}, extent {extent}", loading(2, 4 * 32), type, (3, extent), (4, inner(type)), shows=True)
    for type in ("f16", "bf16", "f32", "tf32", "f64"):
        yield Probe(f"load {type}, extent 1, filled with NaN", loading(2, 4 * 32), type, (3, 1), (4, inner(type)), fill="nan", shows=True)
    yield Probe("load u16 at -8, extent 11", loading(2, 4 * 32, -8), "u16", (3, 11), (4, 16), shows=True)
    yield Probe("load u16, extent 11, swizzle 32", loading(2, 8 * 32), "u16", (4, 11), (8, 16), 32, shows=True)
    for rank in (1, 3, 4, 5):
        lead = (2,) * (rank - 1)
        yield Probe(f"load u16 {rank}d, extent 5", loading(rank, 32 * 2 ** (rank - 1)), "u16", (*lead, 5), (*lead, 16),
                    shows=True)


def bulks() -> Iterator[Probe]:
    """Copies without a tensor map move what their size says."""
    for size in (16, 32, 48, 80):
        for name, opcode in (("store", "cp.async.bulk.global.shared::cta.bulk_group"),
                             ("reduce", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32")):
            yield Probe(f"bulk {name} of {size} bytes", f"{FILL}fence.proxy.async;\nbar.sync 0;\n@!%p5 bra E;\n"
                        f"mov.u32 %r41, {size};\n{opcode} [%rd0+1024], [%r30], %r41;\n{DRAIN}E:", "u32", (4, 4), (4, 4), shows=True)
    for size in (16, 48):
        yield Probe(f"bulk load of {size} bytes", f"{FILL}fence.proxy.async;\n{INIT}mov.u32 %r41, {size};\n@!%p5 bra E;\n"
                    f"{EXPECT.format(size)}{BULK} [%r30], [%rd0+1024], %r41, [%r31];\nE:\n{WAIT}{SHOW}", "u32", (4, 4), (4, 4), shows=True)


# ---------------------------------------------------------------------------------------------------- answers


def simulated(probe: Probe, check: bool = False) -> Answer:
    given, out = probe.arguments()
    report = sim.run(probe.ptx, grid=1, block=32, args=(given, out), check=check)
    errors = [finding for finding in report.findings if finding.severity == "error"]
    return Answer(errors[0].rule) if errors else Answer(FINE, given.array.tobytes() + out.tobytes())


def measured(probe: Probe) -> Answer:
    from ptxkit.runtime import driver, launch, launcher

    given, out = probe.arguments()
    data, result = launch.device_array(given.array), launch.device_array(out)
    encoded = launcher.encode_tiled(given.fields(data.shape, data.strides, TYPES[data.dtype]), data.pointer + given.offset)
    run = launcher.Launcher(driver.load(probe.ptx).kernel("k"), ("tensormap", "u64"), block=(32, 1, 1))
    run(launch.LEGACY_STREAM, (1, 1, 1), (result.pointer,), (encoded,))
    driver.synchronize()
    return Answer(FINE, data.numpy().tobytes() + result.numpy().tobytes())


def main(arguments: list[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--only", default="", help="probes with this in their name")
    parser.add_argument("--dry", action="store_true", help="no GPU: assemble the texts")
    options = parser.parse_args(arguments)
    chosen = [each for each in probes() if options.only in each.name]
    if options.dry:
        from ptxkit.runtime import toolchain

        for each in chosen:
            toolchain.assemble(each.ptx)
            answer = simulated(each)
            print(f"  {each.name:52} {each.changed(answer) if answer.words == FINE else answer.words}")
        return 0
    (where,) = apart(gpu, [None])
    if where.words != FINE:
        print(where.words, file=sys.stderr)
        return 2
    lines = [f"python -m tests.sim.gpu_chunks, on an {where.array.decode()}: the elements that a copy changed, counted from the start of "
             f"the array (lines of {PITCH} bytes) or of shared memory; ! where the CPU device has other bytes:"]
    wrong = 0
    for each, there in zip(chosen, apart(measured, chosen), strict=True):
        same = verdict(each.name, simulated(each), there)[0] == " "
        wrong += not same
        lines.append(f"{' ' if same else '!'} {each.name:52} {each.changed(there) if there.words == FINE else there.words}")
    lines.append(f"{len(chosen)} probes: {len(chosen) - wrong} agree, {wrong} differ")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.file is not None:
        options.file.write_text(text, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
