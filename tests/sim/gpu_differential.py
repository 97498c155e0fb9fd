"""The simulator against a Hopper GPU, lane by lane, on every ordinary instruction of the table.

    python -m tests.sim.gpu_differential OUT.json [--seeds 1] [--seconds 110] [--only cvt]

Exact instructions must give the same bits (a NaN may differ in its bits where the ISA leaves them open: counted apart), approximate
ones must be inside the ISA's bound. The result is a JSON object; the exit status is 1 when anything disagrees.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .instructions import _KINDS, FLOATS, SLOTS, THREADS, Batch, Case, batches, cases, inputs

# Bounds of approximations by opcode and type: (relative, absolute); results are rounded, which adds half a unit in the last place.
_BOUNDS: dict[str, tuple[float, float]] = {
    "rcp f32": (2.0**-23, 0), "sqrt f32": (2.0**-23, 0), "rsqrt f32": (2.0**-22.9, 0), "div f32": (2.0**-22, 0),
    "sin f32": (0, 2.0**-20.5), "cos f32": (0, 2.0**-20.5), "lg2 f32": (2.0**-22, 2.0**-22), "ex2 f32": (2.0**-22, 0),
    "tanh f32": (2.0**-10.987, 0), "ex2 f16": (2.0**-9.9, 0), "ex2 bf16": (2.0**-7, 0), "tanh f16": (0, 2.0**-10.987),
    "tanh bf16": (0, 2.0**-8), "rcp f64": (2.0**-19, 0), "rsqrt f64": (2.0**-19, 0)}
_HALF_UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-20}


def numbers(words: Any, type: str) -> Any:
    """Result words as float64: of a packed type, two columns."""
    from ptxkit.sim.rounding import decode

    if type.endswith("x2"):
        halves = [words.astype(np.uint16), (words >> np.uint64(16)).astype(np.uint16)]
        return np.stack([decode(half, type[:-2]) for half in halves], 1)
    dtype = {16: np.uint16, 32: np.uint32, 64: np.uint64}[FLOATS[type]]
    return decode(words.astype(dtype), type)


def compare(case: Case, type: str, simulated: Any, measured: Any, arguments: Any) -> dict[str, Any] | None:
    """What differs between two rows of results."""
    different = simulated != measured
    nan = np.zeros(THREADS, bool)
    of = type.removesuffix("x2")
    if of in ("f16", "bf16", "f32", "f64", "tf32"):
        with np.errstate(all="ignore"):
            x, y = numbers(simulated, type), numbers(measured, type)
            same = (x == y) & (np.signbit(x) == np.signbit(y)) | np.isnan(x) & np.isnan(y)
            if case.approximate:
                relative, absolute = _BOUNDS[f"{case.opcode.split('.')[0]} {of}"]
                unit = 2 * _HALF_UNIT[of]
                smallest = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1022}[of]
                bound = (relative + unit) * np.maximum(np.abs(x), np.abs(y)) + absolute + smallest
                same |= np.abs(x - y) <= bound
                if case.opcode.startswith(("sin", "cos")):
                    same |= np.abs(numbers(arguments, "f32")) > 3.15  # the bound holds in one period
        same = same.all(1) if same.ndim == 2 else same
        different, nan = ~same, same & (simulated != measured) & ~np.bool_(case.approximate)
    if not different.any() and not nan.any():
        return None
    where = np.flatnonzero(different if different.any() else nan)[:4]
    return {"opcode": case.opcode, "type": type, "wrong": int(different.sum()), "nan_bits": int(nan.sum()),
            "lanes": [{"thread": int(t), "simulator": hex(int(simulated[t])), "gpu": hex(int(measured[t]))} for t in where]}


def measure(batch: Batch, code: bytes | str, words: Any) -> Any:
    from ptxkit.runtime import driver, launch, launcher

    run = launcher.Launcher(driver.load(code).kernel("batch"), ("u64", "u64"), block=(THREADS, 1, 1))
    source, out = launch.device_array(words), launch.device_array(np.zeros((len(batch.rows), THREADS), np.uint64))
    run(launch.LEGACY_STREAM, (1, 1, 1), (source.pointer, out.pointer))
    driver.synchronize()
    return out.numpy()


def _assembled(batch: Batch) -> bytes | str:
    """What the driver loads: a cubin, or where there is no ptxas the PTX itself."""
    from ptxkit.runtime import toolchain

    return toolchain.assemble(batch.ptx).cubin if toolchain.has_ptxas() else batch.ptx


def _attempt(batch: Batch) -> bytes | str | Exception:
    try:
        return _assembled(batch)
    except Exception as error:
        return error


_FILL = """.version 8.1
.target sm_90a
.address_size 64
.visible .entry fill(.param .u64 output) .reqntid 256 {
.reg .b64 %out; .reg .b32 %i, %n; .reg .b16 %x, %one, %d;
ld.param.u64 %out, [output];
mov.u32 %i, %tid.x; mov.u32 %n, %ctaid.x; mad.lo.u32 %i, %n, 256, %i;
cvt.u16.u32 %x, %i; mov.b16 %one, ONE;
fma.rn.oob.TYPE %d, %x, %one, %one;
mad.wide.u32 %out, %i, 2, %out;
st.global.b16 [%out], %d;
ret;
}
"""


def fills(type: str) -> list[str]:
    """The bits that `fma.oob` takes for what a tensor copy fills in: those NaN whose product counts as nothing."""
    from ptxkit.runtime import driver, launch, launcher

    text = _FILL.replace("TYPE", type).replace("ONE", "0x3C00" if type == "f16" else "0x3F80")
    run = launcher.Launcher(driver.load(text).kernel("fill"), ("u64",), block=(256, 1, 1))
    out = launch.device_array(np.zeros(1 << 16, np.uint16))
    run(launch.LEGACY_STREAM, (256, 1, 1), (out.pointer,))
    driver.synchronize()
    found = np.flatnonzero(out.numpy() == 0)
    return [hex(int(i)) for i in found]


def _fills() -> dict[str, Any]:
    try:
        return {type: fills(type) for type in ("f16", "bf16")}
    except Exception as error:
        return {"failed": str(error)[:600]}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=110)
    parser.add_argument("--only", default="", help="opcodes with this prefix")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    chosen = [case for case in cases() if case.opcode.startswith(options.only) and not _unsupported(case)]
    made = batches(chosen, 150)
    inputs_of = [inputs(seed) for seed in range(options.seeds)]
    findings: list[dict[str, Any]] = []
    failures: list[str] = []
    done = compared = 0
    with ThreadPoolExecutor(8) as pool:
        for batch, code in zip(made, pool.map(_attempt, made), strict=True):
            if time.monotonic() - start > options.seconds:
                failures.append("out of time")
                break
            if isinstance(code, Exception):
                failures.append(str(code)[:600])
                continue
            done += len(batch.cases)
            for seed, words in enumerate(inputs_of):
                try:
                    simulated, measured = batch.simulate(words), measure(batch, code, words)
                except Exception as error:
                    failures.append(f"{type(error).__name__}: {error}"[:600])
                    break
                for row, (case, index) in enumerate(batch.rows):
                    compared += THREADS
                    found = compare(case, case.results[index], simulated[row], measured[row], words[_KINDS.index("f32") * SLOTS])
                    if found is not None:
                        taken = words[batch.operands[batch.cases.index(case)]]
                        for lane in found["lanes"]:
                            lane["operands"] = [hex(int(v)) for v in taken[:, lane["thread"]]]
                        findings.append({**found, "seed": seed, "result": index})
    wrong = sorted({f["opcode"] for f in findings if f["wrong"]})
    summary = {"instructions": done, "of": len(chosen), "results_compared": compared, "disagreeing": len(wrong), "opcodes": wrong,
               "nan_bits": sorted({f["opcode"] for f in findings if not f["wrong"]}), "failures": failures,
               "fma_oob_zeros": _fills(), "seconds": round(time.monotonic() - start, 1)}
    options.out.write_text(json.dumps({"summary": summary, "findings": findings}, indent=1))
    print(json.dumps({**summary, "opcodes": wrong[:40], "nan_bits": len(summary["nan_bits"])}, indent=1))
    return 1 if wrong or failures else 0


def _unsupported(case: Case) -> bool:
    return case.opcode.startswith(("mma.sp", "mma.sync.aligned.m8n8k4")) and "f64" not in case.opcode


if __name__ == "__main__":
    sys.exit(main())
