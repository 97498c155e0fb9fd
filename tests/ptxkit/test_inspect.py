"""What `inspect` counts."""

from __future__ import annotations

from ptxkit.grammar import tree
from ptxkit.inspect import count_instructions, report

OPCODES = {
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16": "wgmma",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes": "tma_load",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes": "tma_load",
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group": "tma_store",
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group": "tma_reduce",
    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile": "tma_prefetch",
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes": "dsmem_copy",
    "cp.async.bulk.commit_group": "",
    "cp.async.bulk.wait_group.read": "",
    "mbarrier.try_wait.parity.shared::cta.b64": "mbarrier",
    "fence.proxy.async.shared::cta": "fence",
    "membar.gl": "fence",
    "setmaxnreg.dec.sync.aligned.u32": "setmaxnreg",
    "wgmma.fence.sync.aligned": "",
    "add.u32": "",
}


def entry(*body: tree.Statement) -> tree.Function:
    return tree.Function("entry", "k", body=body)


def test_each_kind_of_instruction() -> None:
    for opcode, kind in OPCODES.items():
        function = entry(tree.Instruction(opcode))
        counts = count_instructions(tree.Module((8, 0), ("sm_90a",), 64, (function,)), function)
        assert {word for word, count in counts.items() if count} == {"instructions", kind} - {""}, opcode


def test_blocks_and_called_functions_count_once() -> None:
    barrier = tree.Instruction("mbarrier.inval.shared.b64")
    called = tree.Function("func", "f", body=(barrier, tree.Instruction("call.uni", (tree.Name("f"),))))
    call = tree.Instruction("call.uni", (tree.Name("f"),))
    function = entry(tree.Block((barrier, tree.Block((barrier,)))), call, call)
    module = tree.Module((8, 0), ("sm_90a",), 64, (called, function))
    counts = count_instructions(module, function)
    assert (counts["mbarrier"], counts["instructions"]) == (3, 6)
    made, = report(module)
    assert (made.name, made.resources, made.setmaxnreg) == ("k", None, None)
