"""What an H200 moved at the ends of lines, as recorded, is what the CPU device moves; and what the checker says of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ptxkit import TensorMap, sim

from .gpu_chunks import SIZE, main, probes, simulated
from .gpu_tensor_faults import FINE, TRAP
from .kernels import kernel

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "2026-11-25-h200-chunks.txt"
LINE = re.compile(r"[ !] (?P<name>.{52}) (?P<there>\S.*)")
PROBES = {probe.name: probe for probe in probes()}


def recorded() -> dict[str, str]:
    return {row["name"].strip(): row["there"] for line in RECORD.read_text(encoding="utf-8").splitlines()
            if (row := LINE.fullmatch(line))}


@pytest.mark.pure
@pytest.mark.timeout(60)
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.sweep)])
def test_the_record(step: int) -> None:
    """The same elements change on both; the CPU device faults where the GPU trapped. Of every third probe, and in a sweep of all."""
    rows = recorded()
    assert rows.keys() == PROBES.keys()
    for name, there in list(rows.items())[::step]:
        here = simulated(PROBES[name])
        assert (here.words == FINE) is not there.startswith(TRAP), name
        if here.words == FINE:
            assert PROBES[name].changed(here) == there, name
    assert {"0..15, 32..47, 64..79", "0..7, 32..39, 64..71"} <= set(rows.values())
    assert 20 < sum(there.startswith(TRAP) for there in rows.values()) < 40


@pytest.mark.pure
def test_the_bytes_beyond_come_from_shared_memory() -> None:
    probe = PROBES["store u16, extent 11"]
    _, out = probe.arguments()
    array, source = simulated(probe).array[:SIZE], out.view(np.uint16)
    assert list(np.frombuffer(array, np.uint16)[512:528]) == list(source[:16])


@pytest.mark.ptxas
@pytest.mark.timeout(120)
def test_the_probes_are_ptx(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry", "--only", " 3"]) == 0
    assert "store u16 3d, extent 5" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------- findings

STORE = """mov.u32 %r0, %tid.x;
mov.u32 %r1, tile;
mov.b64 %rd1, map;
cvta.param.u64 %rd1, %rd1;
ld.param.u64 %rd0, [out];
shl.b32 %r2, %r0, 3;
add.u32 %r3, %r1, %r2;
st.shared.v2.u32 [%r3], {%r0, %r0};
fence.proxy.async;
bar.sync 0;
mov.u32 %r10, 0;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra E;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r10, %r10}], [%r1];
E:
"""
NEIGHBOUR = "setp.ne.u32 %p2, %r0, 32;\n@%p2 bra F;\ncvt.u16.u32 %h0, %r0;\nst.global.u16 [%rd0+{}], %h0;\nF:\n"
END = "@%p1 bra G;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nG:\n"


def stored(extent: int, neighbour: str = "", whole: bool = True) -> sim.Report:
    """A store of 8 lines of 16 halves into `extent` columns of an array with 16, and what another warp does to the first line."""
    array = np.zeros((8, 16), np.uint16)
    if not whole:
        array = array.reshape(-1)[:7 * 16 + extent].copy()
    given = TensorMap(array, box=(8, 16), shape=(8, extent), strides=(16, 1))
    text = kernel(STORE + neighbour + END, ".param .align 64 .b8 map[128], .param .u64 out", before=".shared .align 128 .b8 tile[512];\n")
    return sim.run(text, grid=1, block=64, args=(given, array))


@pytest.mark.pure
def test_a_store_beyond_the_extent_is_named() -> None:
    (finding,) = stored(12).findings
    assert (finding.rule, finding.severity) == ("tensor-padding", "review")
    assert "the tensor map `map` also writes columns 12 to 15" in finding.message
    assert "inner extent is 12 elements of 2 bytes" in finding.message
    assert "behind the end" not in finding.message
    (finding,) = stored(15).findings
    assert "also writes column 15," in finding.message
    (finding,) = stored(12, whole=False).findings
    assert finding.message.endswith("the last of them lie behind the end of the buffer")
    assert stored(16).verdict == stored(8).verdict == "clean"


@pytest.mark.pure
def test_a_neighbour_of_what_is_stored_races() -> None:
    assert {f.rule for f in stored(12, NEIGHBOUR.format(2 * 13)).findings} == {"tensor-padding", "global-race"}
    assert {f.rule for f in stored(8, NEIGHBOUR.format(2 * 13)).findings} == set()
    assert {f.rule for f in stored(7, NEIGHBOUR.format(2 * 8)).findings} == {"tensor-padding"}
