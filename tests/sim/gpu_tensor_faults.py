"""Tensor and bulk copies at the edge of what the CPU device faults, on a Hopper GPU: does it trap where the CPU device says "fault"?

    python -m tests.sim.gpu_tensor_faults [FILE] [--only reduce] [--dry]

A line per probe on stdout, and in FILE: its name, what the CPU device says, what the GPU did. Before the name stands nothing where the two
agree, also on what the array holds afterwards; `~` where they differ and PTX defines nothing (`UNDEFINED`); else `!`, and the exit status
is 1. With `--dry` there is no GPU: the texts are assembled.

A trap ends the context, so every probe has a process of its own. Waits give up, so that nothing hangs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit import TensorMap, sim

from .test_tensor_faults import BULK, CASES, DRAIN, EXPECT, INIT, LOAD, PREFETCH, REDUCE, STORE, WAIT, Case, load, store

FINE, ENDLESS, TRAP = "fine", "never completes", "cuCtxSynchronize: CUDA_ERROR"
AT_ONCE, SECONDS = 10, 30
"""Processes, and how long each may take."""

LOOKS, COUNTED = 300, 1000
"""How often a wait looks, 10 us apart, and the word of the output that counts it."""

_WAIT = WAIT.strip().replace("\n", "\n\t")
_BOUNDED = f"""\tmov.u32 %r60, 0;
W:
\tnanosleep.u32 10000;
\tmbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], 0;
\tadd.u32 %r60, %r60, 1;
\tsetp.gt.u32 %p9, %r60, {LOOKS};
\tor.pred %p1, %p1, %p9;
\t@!%p1 bra W;
\tred.global.max.u32 [%rd0+{4 * COUNTED}], %r60;"""

UNDEFINED = frozenset({
    "bad-tensormap: a stride between", "misaligned: a prefetch's size", "bulk-barrier: the other's bytes, my mbarrier",
    "bulk-barrier: my bytes, the other's mbarrier", "bulk-barrier: a word", "out-of-bounds: the other's memory for one's own",
    "bulk-destination: to itself", "mbarrier-tx-overflow: bytes that nobody announces", "cache policy 0xFFFFFFFFFFFFFFFF"})
"""Where an H200 differs: it goes on with what PTX leaves undefined. The last: it traps, and the CPU device looks at no cache policy."""


@dataclass(frozen=True)
class Probe:
    """A kernel `k` of a tensor map and an output. The array is ones, or full of elements with these `bits`."""

    name: str
    ptx: str
    dtype: Any = np.float32
    shape: tuple[int, ...] = (32, 64)
    box: tuple[int, ...] = (8, 16)
    swizzle: int = 0
    cluster: int = 1
    type: str | None = None
    bits: int = 0

    @property
    def bounded(self) -> str:
        """The text whose waits give up."""
        return self.ptx.replace(_WAIT, _BOUNDED)

    def arguments(self) -> tuple[TensorMap, Any]:
        array = np.full(self.shape, self.bits or 1, self.dtype)
        return TensorMap(array, box=self.box, swizzle=self.swizzle, dtype=self.type), np.zeros(1024, np.uint32)


@dataclass(frozen=True)
class Answer:
    """What became of a probe: fine, with the bytes of its array afterwards, or else."""

    words: str
    array: bytes = b""


# ---------------------------------------------------------------------------------------------------- probes


def probes() -> list[Probe]:
    return [*planted(), *coordinates(), *ranks(), *reductions(), *sums(), *maps(), *policies(), *bulks()]


def written(name: str, body: str, **how: Any) -> Probe:
    return Probe(name, Case("", name, body, "").text(False)[0], **how)


def planted() -> Iterator[Probe]:
    """The mistakes of the tests, each with its corrected twin; without those that shift the parameters."""
    for case in CASES:
        if case.pads is None:
            for right, suffix in ((False, ""), (True, " (corrected)")):
                yield Probe(f"{case}{suffix}", case.text(right)[0], case.dtype, box=case.box, swizzle=case.swizzle, cluster=case.cluster)


def loading(name: str, at: int, **how: Any) -> Probe:
    bytes = int(np.prod(how.get("box", (8, 16)))) * np.dtype(how.get("dtype", np.float32)).itemsize
    return written(name, load(str(at), bytes=bytes), **how)


def coordinates() -> Iterator[Probe]:
    for swizzle, inner in ((32, 8), (64, 16), (128, 32)):
        for at in (2, 4):
            yield loading(f"f32 load at {at}, swizzle {swizzle}", at, box=(8, inner), swizzle=swizzle)
    for at in (-2, -4, 62, 60, 66, 64, 1000002, 1000000, -1000002):
        yield loading(f"f32 load at {at} of 64 columns", at)
    for dtype, ats in ((np.uint8, (1, 4, 8, 12, 16)), (np.int16, (1, 2, 4, 8)), (np.float64, (1, 2)), (np.uint64, (1, 2))):
        for at in ats:
            yield loading(f"{np.dtype(dtype)} load at {at}", at, dtype=dtype)
    for at in (6, 8):
        yield written(f"prefetch at {at}", f"mov.u32 %r1, {at};\n!{PREFETCH} [%rd20, {{%r1, %r10}}];\n")


def ranks() -> Iterator[Probe]:
    for at in (2, 4):
        line = load(str(at), bytes=64).replace(".2d.", ".1d.").replace("{%r1, %r10}", "{%r1}")
        yield written(f"1d load at {at}", line, shape=(64,), box=(16,))
    yield written("3d form with a map of 2 dimensions", load("0").replace(".2d.", ".3d.").replace("{%r1, %r10}", "{%r1, %r10, %r10}"))
    yield written("2d form with a map of 3 dimensions", load("0"), shape=(2, 32, 64), box=(1, 8, 16))


def reductions() -> Iterator[Probe]:
    for dtype, operations in ((np.uint8, ("add",)), (np.int16, ("add",)), (np.int32, ("inc", "or")), (np.uint32, ("inc", "dec", "xor")),
                              (np.int64, ("add", "min", "and")), (np.uint64, ("add", "or")), (np.float16, ("or",)),
                              (np.float32, ("add", "min", "max", "and", "or", "xor")), (np.float64, ("add", "min", "or"))):
        for operation in operations:
            yield written(f"reduce {operation} of {np.dtype(dtype)}", store("0", REDUCE.format(operation)), dtype=dtype)
    yield written("reduce add of tf32", store("0", REDUCE.format("add")), type="tf32")


def sums() -> Iterator[Probe]:
    """Sums that tell how they are rounded, and what becomes of the bits that tf32 has not and of subnormal numbers."""
    for name, type, there, added in (
            ("sum of f16", "f16", 0x3C01, 0x1200), ("sum of bf16", "bf16", 0x3F81, 0x3BC0), ("sum of f32", "f32", 0x3F800001, 0x33C00000),
            ("sum of f64", "f64", 0x3FF0000000000001, 0x3CA8000000000000), ("sum of subnormal f32", "f32", 1, 3),
            ("sum of tf32", "tf32", 0x3F800002, 0x3F800800)):
        size = {"f16": 2, "bf16": 2, "f64": 8}.get(type, 4)
        low, high = np.frombuffer(added.to_bytes(size, "little") * (8 // size), np.uint32)
        words = f"mov.u32 %r3, {low};\nmov.u32 %r4, {high};"
        body = store("0", REDUCE.format("add")).replace("mov.u32 %r3, 1;", words).replace("{%r3, %r3, %r3, %r3}", "{%r3, %r4, %r3, %r4}")
        yield written(name, body, dtype=np.dtype(f"u{size}"), type=type, bits=there)
    yield written("load of tf32, stored again", load("0") + f"mov.u32 %r11, 8;\n@%p5 {STORE} [%rd20, {{%r1, %r11}}], [%r30];\n{DRAIN}",
                  dtype=np.dtype("u4"), type="tf32", bits=0x3F800800)


def maps() -> Iterator[Probe]:
    """Copies of the map in the output, at less aligned places."""
    acquire = "fence.proxy.tensormap::generic.acquire.gpu [%rd11], 128;\n"
    for offset in (0, 16, 32, 64):
        second = f"add.u64 %rd11, %rd11, 128;\n{acquire}" if offset else ""
        yield written(f"a map at {offset} mod 128 of global memory", INIT + f"""add.u64 %rd10, %rd0, {2048 + offset};
shl.b32 %r1, %r0, 2;
cvt.u64.u32 %rd2, %r1;
add.u64 %rd3, %rd20, %rd2;
ld.u32 %r2, [%rd3];
add.u64 %rd4, %rd10, %rd2;
st.global.u32 [%rd4], %r2;
bar.sync 0;
fence.proxy.tensormap::generic.release.gpu;
add.u64 %rd11, %rd10, {-offset};
{acquire}{second}@!%p5 bra E;
{EXPECT.format(512)}!{LOAD} [%r30], [%rd10, {{%r10, %r10}}], [%r31];
E:
{WAIT}""")


def policies() -> Iterator[Probe]:
    for policy in ("0", "1", "0x1000000000000000", "0x14F0000000000000", "0x123456789ABCDEF0", "0xFFFFFFFFFFFFFFFF"):
        yield written(f"cache policy {policy}", INIT + f"mov.b64 %rd15, {policy};\n@!%p5 bra E;\n{EXPECT.format(512)}"
                    f"!{LOAD}.L2::cache_hint [%r30], [%rd20, {{%r10, %r10}}], [%r31], %rd15;\nE:\n{WAIT}")


def bulks() -> Iterator[Probe]:
    for name, to, source, size in (("of 24 bytes", "%r30", "%rd0", 24), ("from +8", "%r30", "%rd0+8", 32), ("to +8", "%r30+8", "%rd0", 32)):
        yield written(f"bulk load {name}", INIT + f"mov.u32 %r1, {size};\n@!%p5 bra E;\n{EXPECT.format(size)}"
                    f"!{BULK} [{to}], [{source}], %r1, [%r31];\nE:\n{WAIT}")
    for at in (16, 32, 64, 128):
        yield written(f"box to shared +{at}", load("0", to=f"%r30+{at}"))


# ---------------------------------------------------------------------------------------------------- answers


def simulated(probe: Probe) -> Answer:
    given, out = probe.arguments()
    report = sim.run(probe.ptx, grid=probe.cluster, block=32, args=(given, out), check=False)
    return Answer(report.findings[0].rule) if report.findings else Answer(FINE, given.array.tobytes())


def measured(probe: Probe) -> Answer:
    from ptxkit.runtime import driver, launch, launcher
    from ptxkit.types import TYPES

    given, out = probe.arguments()
    data, result = launch.device_array(given.array), launch.device_array(out)
    encoded = launcher.encode_tiled(given.fields(data.shape, data.strides, TYPES[data.dtype]), data.pointer)
    run = launcher.Launcher(driver.load(probe.bounded).kernel("k"), ("tensormap", "u64"), block=(32, 1, 1), cluster=(probe.cluster, 1, 1))
    run(launch.LEGACY_STREAM, (probe.cluster, 1, 1), (result.pointer,), (encoded,))
    driver.synchronize()
    return Answer(ENDLESS) if result.numpy()[COUNTED] > LOOKS else Answer(FINE, data.numpy().tobytes())


def gpu(_: None) -> Answer:
    """The name of the GPU. Asked in a process of its own too: CUDA does not survive a fork."""
    from ptxkit.runtime import driver

    driver.require_target("sm_90a", 0)
    return Answer(FINE, driver.device(0).name.encode())


def _answer(function: Callable[[Any], Answer], given: Any, there: Connection) -> None:
    sys.unraisablehook = lambda _: None     # what frees memory behind a trap
    try:
        answer = function(given)
    except Exception as error:
        answer = Answer(" ".join(f"{error or repr(error)}".split())[:110])
    there.send(answer)
    os._exit(0)


def apart(function: Callable[[Any], Answer], given: Sequence[Any], seconds: float = SECONDS) -> list[Answer]:
    """The function of each, every one in a process of its own, which may take so many seconds."""
    context = multiprocessing.get_context("fork")
    answers: dict[int, Answer] = {}
    running: dict[Any, tuple[int, Any, float]] = {}
    todo = list(enumerate(given))[::-1]
    while todo or running:
        while todo and len(running) < AT_ONCE:
            number, each = todo.pop()
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_answer, args=(function, each, there))
            process.start()
            there.close()
            running[here] = number, process, time.monotonic() + seconds
        ready = wait(list(running), 0.1)
        for here, (number, process, until) in list(running.items()):
            if here in ready or time.monotonic() > until:
                try:
                    answers[number] = here.recv() if here in ready else Answer(f"no answer in {seconds} s")
                except EOFError:
                    answers[number] = Answer("died without an answer")
                process.kill()
                process.join()
                here.close()
                del running[here]
    return [answers[number] for number in range(len(given))]


def verdict(name: str, here: Answer, there: Answer) -> tuple[str, str]:
    """(the mark, what the GPU did), of the answers of the CPU device and of the GPU."""
    traps = there.words.startswith((TRAP, ENDLESS))
    if there.words != FINE and not traps:
        return "!", f"no measurement: {there.words}"
    if traps == (here.words != FINE):
        return (" ", there.words) if here.array == there.array else ("!", f"other numbers: {_numbers(there)} for {_numbers(here)}")
    return "~" if name in UNDEFINED else "!", there.words


def _numbers(answer: Answer) -> str:
    """Which words are in an array."""
    words = np.unique(np.frombuffer(answer.array, np.uint32))
    return ", ".join(f"{word:#x}" for word in words[:4]) + (", ..." if len(words) > 4 else "")


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
            toolchain.assemble(each.bounded)
            print(f"  {each.name:64} {simulated(each).words}")
        return 0
    (where,) = apart(gpu, [None])
    if where.words != FINE:
        print(where.words, file=sys.stderr)
        return 2
    lines = [f"python -m tests.sim.gpu_tensor_faults, on an {where.array.decode()}: what the CPU device says of a tensor or bulk copy, "
             "and what the GPU did (! where they differ, ~ where PTX defines nothing):"]
    found = apart(measured, chosen)
    marks = []
    for each, there in zip(chosen, found, strict=True):
        here = simulated(each)
        mark, words = verdict(each.name, here, there)
        marks.append(mark)
        lines.append(f"{mark} {each.name:64} {here.words:22} {words}")
    lines.append(f"{len(marks)} probes: {marks.count(' ')} agree, {marks.count('~')} differ where PTX defines nothing, "
                 f"{marks.count('!')} differ")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.file is not None:
        options.file.write_text(text, encoding="utf-8")
    return 1 if "!" in marks else 0


if __name__ == "__main__":
    sys.exit(main())
