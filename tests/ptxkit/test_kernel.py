"""Kernels as a whole: specialisation, directives, source positions, shared memory, device functions, the same bytes everywhere."""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, TensorMap, if_, kernel, smem, tid
from ptxkit import func as device_function
from ptxkit.dsl.traced import Traced
from ptxkit.errors import TraceError
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import Tile
from ptxkit.gemm.kernels.dense import gemm
from ptxkit.grammar import parse, tree
from ptxkit.ptx import add, bar, cp, fence, mbarrier, mov, mul
from ptxkit.ptx import st as store
from ptxkit.types import b64, bf16, f32, s32, u16, u32, u64
from tests.ptxkit.machine import lines, opcodes, run, stored, trace

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).name


# --------------------------------------------------------------------------------------------------- specialisation


@kernel(block=lambda config: 32 * config["WARPS"], cluster=lambda config: config["CLUSTER"])
def specialised(out: Ptr[u32], *, WARPS: int = 1, CLUSTER: int = 1, UNROLL: int) -> None:
    for i in range(UNROLL):
        store.global_.u32(out + i, WARPS)


def test_a_configuration_is_traced_once() -> None:
    assert specialised.trace(UNROLL=2) is specialised.trace(UNROLL=2, WARPS=1)
    assert specialised.trace(UNROLL=2) is not specialised.trace(UNROLL=3)
    assert len(opcodes(specialised.trace(UNROLL=5))) == 5


def test_configurations_that_compare_equal_are_still_different() -> None:
    @kernel(block=32)
    def function(out: Ptr[u32], *, V: object) -> None:
        store.global_.u32(out, 5 if isinstance(V, bool) else 6)

    assert function.trace(V=1) is not function.trace(V=True)
    assert function.trace(V=1) is not function.trace(V=1.0)


def test_a_trace_that_fails_leaves_nothing_behind() -> None:
    @kernel(block=32)
    def function(n: Reg[u32], *, FAIL: bool) -> None:
        smem.array(u32, 4)
        if FAIL:
            raise KeyError("the user's own error")

    for _ in range(2):
        with pytest.raises(KeyError, match="the user's own error"):
            function.ptx(FAIL=True)
    assert function.trace(FAIL=False).shared.total == 16
    with pytest.raises(TraceError, match="can only be called while"):
        smem.array(u32, 4)


def test_a_trace_keeps_nothing_of_its_callers() -> None:
    @kernel(block=32)
    def function(out: Ptr[u32]) -> None:
        store.global_.u32(out, mov.u32(tid.x))

    class Tensor:
        pass

    def called() -> weakref.ref[Tensor]:
        tensor = Tensor()
        function.trace()
        return weakref.ref(tensor)

    gc.disable()
    try:
        assert called()() is None
    finally:
        gc.enable()


def test_directives_follow_the_configuration() -> None:
    text = specialised.ptx(UNROLL=1, WARPS=4, CLUSTER=2)
    assert ".reqntid 128, 1, 1\n.minnctapersm 1\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{" in text
    assert "cluster" not in specialised.ptx(UNROLL=1)

    def plain(n: Reg[u32]) -> None:
        mov.u32(n)

    assert "reqntid" not in trace(plain, block=None).ptx()
    assert ".maxnreg 64" in trace(plain, max_registers=64).ptx()
    assert ".reqntid 8, 4, 2" in trace(plain, block=(8, 4, 2)).ptx()
    assert "minnctapersm 2" in trace(plain, min_ctas=2).ptx()


def test_parameters_are_declared_as_annotated() -> None:
    def everything(a: TensorMap, p: Ptr[f32], i: Reg[u32], j: Reg[s32], x: Reg[f32], y: Reg[bf16], h: Reg[u16], w: Reg[u64]) -> None:
        pass

    text = trace(everything).ptx()
    for declared in (".align 64 .b8 a[128]", ".u64 .ptr .global .align 1 p", ".u32 i", ".s32 j", ".f32 x", ".b16 y", ".u16 h", ".u64 w"):
        assert f".param {declared}" in text


def test_the_text_parses_back_to_the_tree() -> None:
    for traced in (gemm.trace(**DenseConfig(Operands(out=f32)).parameters), specialised.trace(UNROLL=2)):
        assert parse(traced.ptx(locs=True)) == traced.module


def test_the_version_is_the_lowest_that_the_instructions_need() -> None:
    def old(n: Reg[u32]) -> None:
        add.u32(n, n, 1)

    def new(n: Reg[u32]) -> None:
        array, barrier = smem.array(u32, 4), smem.mbarrier(1, check=False)
        source = Ptr(mov.u64(0), u32)
        cp.async_.bulk.shared__cta.global_.mbarrier__complete_tx__bytes(array, source, 16, barrier[0])

    assert trace(old).module.version == (8, 0)
    assert trace(new).module.version == (8, 6)


# --------------------------------------------------------------------------------------------------- the same bytes everywhere

DIGEST = """
import hashlib, sys
sys.path.insert(0, {root!r})
from examples.tile_gemm import tile_gemm
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.kernels.dense import gemm
from ptxkit.types import f32
text = tile_gemm.ptx(locs=True) + gemm.ptx(locs=True, **DenseConfig(Operands(out=f32, a_major="mn")).parameters)
print(hashlib.sha256(text.encode()).hexdigest())
"""


def test_a_kernel_has_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    digests = set()
    for seed, folder in (("0", ROOT), ("1", tmp_path), ("4711", "/")):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", DIGEST.format(root=str(ROOT))], cwd=folder, env=environment, capture_output=True,
                              text=True, timeout=60, check=True)
        digests.add(done.stdout.strip())
    assert len(digests) == 1
    assert len(digests.pop()) == len(hashlib.sha256().hexdigest())


# --------------------------------------------------------------------------------------------------- source positions


def with_places(body: Iterable[tree.Statement], here: tree.Loc | None = None) -> Iterator[tuple[tree.Instruction, tree.Loc]]:
    """Every instruction with the `.loc` in effect."""
    for statement in body:
        if isinstance(statement, tree.Loc):
            here = statement
        elif isinstance(statement, tree.Block):
            for instruction, place in with_places(statement.body, here):
                yield instruction, place
                here = place
        elif isinstance(statement, tree.Instruction):
            assert here is not None, f"{statement} before the first .loc"
            yield statement, here


def marked(function: Any, mark: str) -> int:
    """The line of the function's source that ends in `# mark`."""
    source, first = inspect.getsourcelines(function)
    (at,) = [first + i for i, line in enumerate(source) if line.rstrip().endswith(f"# {mark}")]
    return at


def test_each_instruction_is_at_the_line_that_wrote_it() -> None:
    def helper(n: Reg[u32]) -> Reg[u32]:
        return mul.lo.u32(n, 3)                      # helper

    def function(out: Ptr[u32], n: Reg[u32]) -> None:
        array = smem.array(u32, 4)
        with if_(n == 4):                            # if
            store.shared__cta.u32(                   # call
                array.at(n),
                helper(n + 1),                       # argument
            )
        store.global_.u32(out, n)                    # last

    found: dict[str, int] = {}
    traced = trace(function)
    (entry,) = traced.module.entries
    for instruction, place in with_places(entry.body or ()):
        assert traced.files[place.file].endswith(HERE)
        found.setdefault(instruction.opcode, place.line)
    assert found["setp.eq.u32"] == found["bra"] == marked(function, "if")
    assert found["add.u32"] == marked(function, "argument")
    assert found["mul.lo.u32"] == marked(helper, "helper")
    assert found["st.shared::cta.u32"] == marked(function, "call")
    assert found["st.global.u32"] == marked(function, "last")


@device_function
def tripled(n: Reg[u32]) -> Reg[u32]:
    return mul.lo.u32(n, 3)


def calls(out: Ptr[u32], n: Reg[u32]) -> None:
    store.global_.u32(out, n)
    m = tripled(n)                                   # called
    store.global_.u32(out + 1, m)


def test_a_call_is_at_its_line() -> None:
    traced = trace(calls)
    (entry,) = traced.module.entries
    places = [place.line for instruction, place in with_places(entry.body or ()) if instruction.opcode == "call.uni"]
    assert places == [marked(calls, "called")]


@pytest.mark.parametrize("config", [
    DenseConfig(), DenseConfig(Operands(out=f32, a_major="mn", b_major="mn"), Tile(128, 128))], ids=str)
def test_no_instruction_is_at_a_line_of_ptxkit(config: DenseConfig) -> None:
    traced = gemm.trace(**config.parameters)
    for function in traced.module.functions:
        for instruction, place in with_places(function.body or ()):
            path = Path(traced.files[place.file])
            assert "gemm" in path.parts, (instruction, path)
            assert instruction.position is not None
            assert place.line == instruction.position.line
            assert 0 < place.line <= len(path.read_text().splitlines())
    assert all(not Path(name).is_absolute() for item in traced.module.items if isinstance(item, tree.Directive) and item.name == "file"
               for name in [item.arguments[1].value])  # type: ignore[union-attr]


def test_the_last_ret_is_in_the_kernel_whoever_asks() -> None:
    def empty() -> None:
        pass

    def ends_in_a_call(n: Reg[u32]) -> None:
        tripled(n)                                   # end

    for function, line in ((empty, empty.__code__.co_firstlineno), (ends_in_a_call, marked(ends_in_a_call, "end"))):
        traced = trace(function)
        (entry,) = traced.module.entries
        *_, (last, place) = with_places(entry.body or ())
        assert last.opcode == "ret"
        assert (traced.files[place.file], place.line) == (__file__, line)


def test_positions_give_every_line_of_text_its_python_line() -> None:
    traced = trace(calls)
    positions, text = traced.positions(), traced.ptx(locs=True).splitlines()
    for number, line in enumerate(text, 1):
        if line.strip().endswith(";") and not line.strip().startswith("."):
            assert number in positions, line
    (at,) = [number for number, line in enumerate(text, 1) if "call.uni" in line]
    assert positions[at].line == marked(calls, "called")
    assert positions[at].file == __file__


# --------------------------------------------------------------------------------------------------- shared memory


def budget(*tiles: tuple[int, int]) -> Traced:
    def function() -> None:
        for i, (elements, align) in enumerate(tiles):
            smem.array(u32, elements, align=align, name=f"part {i}")

    return trace(function)


@given(st.lists(st.tuples(st.integers(1, 3000), st.sampled_from([4, 16, 128, 1024])), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_allocations_are_aligned_and_do_not_overlap(parts: list[tuple[int, int]]) -> None:
    traced = budget(*parts)
    end = 0
    for allocation, (elements, align) in zip(traced.shared.allocations, parts, strict=True):
        assert allocation.offset >= end
        assert allocation.offset % align == 0
        assert allocation.bytes == 4 * elements
        end = allocation.offset + allocation.bytes
    assert traced.shared.total == end
    assert traced.shared.align == max(align for _, align in parts)
    dynamic = end > 49_152
    assert traced.dynamic_smem == (end if dynamic else 0)
    declared = f".align {traced.shared.align} .b8 function_smem[{'' if dynamic else end}];"
    assert f"{'.extern .shared' if dynamic else '.shared'} {declared}" in traced.ptx()


def test_shared_memory_can_be_forced_either_way() -> None:
    def function() -> None:
        smem.array(u32, 4)

    assert trace(function).dynamic_smem == 0
    assert trace(function, smem="dynamic").dynamic_smem == 16
    assert ".extern .shared" in trace(function, smem="dynamic").ptx()


def test_no_shared_memory_is_declared_where_none_is_used() -> None:
    assert ".shared" not in specialised.ptx(UNROLL=1)


def test_the_budget_is_printable() -> None:
    def function() -> None:
        smem.tile(bf16, (4, 64, 64), name="A")
        smem.array(f32, 100)
        smem.mbarrier(4, name="full")

    assert trace(function).shared.table().splitlines() == [
        "   offset     bytes  what",
        "        0    32,768  tile 4 x 64 x 64 bf16, k-major, swizzle 128  (A)",
        "   32,768       400  array 100 f32",
        "   33,168        32  mbarrier x 4  (full)",
        "    total    33,200  of 232,448, static",
    ]


def test_all_of_the_shared_memory_of_a_cta_may_be_used() -> None:
    def function() -> None:
        smem.array(u32, 232_448 // 4)

    assert trace(function).dynamic_smem == 232_448


# --------------------------------------------------------------------------------------------------- results that nobody reads


def test_the_state_of_an_arrive_that_nobody_reads_becomes_a_sink() -> None:
    def function() -> None:
        full = smem.mbarrier(1)
        mbarrier.init.shared__cta.b64(full[0], 128)
        mbarrier.arrive.shared__cta.b64(full[0])
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], 16)

    found = lines(trace(function))
    assert "mbarrier.arrive.shared::cta.b64 _, [function_smem];" in found
    assert "mbarrier.arrive.expect_tx.shared::cta.b64 _, [function_smem], 16;" in found


def test_a_state_that_is_read_stays() -> None:
    @device_function
    def keep(state: Reg[b64]) -> None:
        store.shared__cta.b64(smem.array(u64, 1), state)

    def waits() -> None:
        full = smem.mbarrier(1)
        mbarrier.init.shared__cta.b64(full[0], 128)
        state = mbarrier.arrive.shared__cta.b64(full[0])
        mbarrier.test_wait.shared__cta.b64(full[0], state)

    def passes() -> None:
        full = smem.mbarrier(1)
        mbarrier.init.shared__cta.b64(full[0], 128)
        keep(mbarrier.arrive.shared__cta.b64(full[0]))

    assert "mbarrier.arrive.shared::cta.b64 %rd0, [waits_smem];" in lines(trace(waits))
    assert "mbarrier.arrive.shared::cta.b64 %rd0, [passes_smem];" in lines(trace(passes))


# --------------------------------------------------------------------------------------------------- device functions and modules


@device_function
def scaled(n: Reg[u32], factor: Reg[u32]) -> Reg[u32]:
    return tripled(n * factor)


@device_function
def note(out: Reg[u64], value: Reg[u32]) -> None:
    store.global_.u32(Ptr(out, u32), value)


def uses_functions(out: Ptr[u32], n: Reg[u32]) -> None:
    note(out.reg, scaled(n, mov.u32(5)))
    note(out.reg, scaled(n, n))


def test_a_function_is_written_once_and_callees_come_first() -> None:
    module = trace(uses_functions).module
    assert [f.name for f in module.functions] == ["tripled", "scaled", "note", "uses_functions"]
    assert parse(trace(uses_functions).ptx()).functions == parse(trace(uses_functions).ptx(locs=False)).functions
    assert ".func (.param .b32 scaled_result) scaled(" in trace(uses_functions).ptx()
    assert trace(uses_functions).ptx().count("call.uni (result), scaled, (argument0, argument1);") == 2


def test_a_plain_function_is_inlined() -> None:
    def helper(n: Reg[u32]) -> Reg[u32]:
        return n + 1

    def function(out: Ptr[u32], n: Reg[u32]) -> None:
        store.global_.u32(out, helper(helper(n)))

    traced = trace(function)
    assert len(traced.module.functions) == 1
    assert stored(run(traced, {"out": 0, "n": 5})) == [7]


@kernel(block=32)
def first(out: Ptr[u32]) -> None:
    store.global_.u32(out, tripled(mov.u32(tid.x)))
    store.shared__cta.u32(smem.array(u32, 8), 1)


@kernel(block=64)
def second(out: Ptr[u32]) -> None:
    store.global_.u32(out, tripled(mov.u32(7)))
    store.shared__cta.u32(smem.array(u32, 16), 1)


def test_several_kernels_make_one_module() -> None:
    from ptxkit import join

    module = join([first, second])
    assert [f.name for f in module.functions] == ["tripled", "first", "second"]
    assert parse(_text(module)).functions == module.functions


def _text(module: tree.Module) -> str:
    from ptxkit.grammar.write import write

    return write(module)


# --------------------------------------------------------------------------------------------------- what it costs

IMPORTED = """
import json, sys
before = set(sys.modules)  # cuda-bindings 12.9 has `cuda` in it, by a .pth file
sys.path.insert(0, {root!r})
import ptxkit
from ptxkit import Layout, Ptr, TensorMap, Vec, func, if_, kernel, smem, tid
found = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(json.dumps([name for name in ("numpy", "lark", "cuda", "torch", "cupy", "jax") if name in found]))
"""


def test_importing_ptxkit_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED.format(root=str(ROOT))], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == []


def test_fences_and_barriers_are_plain_instructions() -> None:
    def function() -> None:
        fence.proxy.async_.shared__cta()
        fence.mbarrier_init.release.cluster()
        bar.sync(0)
        bar.sync(1, b=64)

    assert lines(trace(function)) == ["fence.proxy.async.shared::cta;", "fence.mbarrier_init.release.cluster;", "bar.sync 0;",
                                      "bar.sync 1, 64;", "ret;"]
