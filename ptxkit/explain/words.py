"""What to look out for, and the words of the table in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from ..grammar.summaries import fitting

PITFALLS: Mapping[str, tuple[str, ...]] = {
    "atom": ("The default order is .relaxed: it orders nothing else. .acquire, .release or .acq_rel with a scope do.",
             "When the result is not used, `red` says so (and `_` stands for the result)."),
    "bar": ("A branch that only some threads of a warp take must not hold it: the count is of threads that come, in whole warps.",
            "Barrier 0 is what __syncthreads() is; two roles that wait apart need barriers of their own.",
            "It orders generic accesses only: memory that the copy engine or wgmma reads next needs fence.proxy.async before it."),
    "barrier": ("The thread count is a multiple of 32, and both sides must say the same one.",
                "It orders generic accesses only: memory that the copy engine or wgmma reads next needs fence.proxy.async before it."),
    "barrier.cluster": ("A CTA must not exit while others may still touch its shared memory: end with arrive and wait.",
                        "arrive.relaxed orders nothing: use it only with fence.mbarrier_init or where no data is handed over."),
    "cp.async": ("Its writes are visible to the other threads only after wait_group (or an mbarrier) and a barrier.",
                 "wait_group counts the calling thread's own groups."),
    "cp.async.bulk": ("Addresses and size are multiples of 16 bytes.",
                      "Start it in one thread: every thread that executes it starts another copy.",
                      "Before it reads shared memory that threads wrote: fence.proxy.async by the writers, then a barrier.",
                      "A copy into shared memory completes on an mbarrier that expects its bytes; one out of it needs commit_group and "
                      "wait_group, and "
                      "wait_group.read before its source is overwritten or the CTA exits."),
    "cp.async.bulk.commit_group": ("The group is the calling thread's: the thread that stores must be the one that commits and waits.",),
    "cp.async.bulk.tensor": ("The shared address is a multiple of 128 bytes, and of eight spans (1,024 bytes for 128-byte swizzle) for "
                             "the swizzle to "
                             "start where a wgmma descriptor has it.",
                             "Bytes outside the tensor are filled in and count: the mbarrier expects the whole box.",
                             "Coordinates count elements, the contiguous dimension first; they may be negative.",
                             "The tensor map is a 64-byte-aligned .param .b8[128] (__grid_constant__) or lies in global or constant "
                             "memory, and is named "
                             "by a generic address.",
                             "Swizzle codes differ: in a tensor map 1, 2, 3 are 32, 64, 128 bytes, in a wgmma descriptor 3, 2, 1."),
    "cp.async.bulk.wait_group": ("Without .read it waits until the writes are visible; .read is enough to reuse the source.",
                                 "It waits for the calling thread's groups only; other threads learn of it through a barrier."),
    "elect": ("Which lane it is, is not promised: elect once and keep the predicate where the same thread must act again "
              "(bulk groups, for one).",
              "All lanes of the mask must execute it together."),
    "ex2": ("Without .ftz subnormal inputs are kept for .f32.",),
    "exit": ("A CTA of a cluster that exits takes its shared memory with it: wait for its peers first.",),
    "fence": ("Without a barrier or flag between the threads it orders nothing that another can rely on.",),
    "fence.mbarrier_init": ("The waiting side is a cluster barrier: fence in the thread that initialised, then barrier.cluster arrive and "
                            "wait.",),
    "fence.proxy": ("It belongs into the threads that wrote, before the barrier that the copying thread waits at.",),
    "griddepcontrol": ("wait is what makes the grid before visible; without it reading its results is a race.",),
    "ld.global.nc": ("Undefined when the kernel (or another that runs beside it) writes the same memory.",),
    "ldmatrix": ("Every lane of the warp executes it; lanes 8i to 8i+7 give the rows of matrix i.",
                 "Rows are 16 bytes, 16-byte aligned; eight rows 128 bytes apart all lie in the same banks: swizzle or pad.",
                 "Braces stand around the destination even for one register."),
    "mapa": ("Only mbarrier.arrive, ld, st, atom, red of shared::cluster and bulk copies take the address; mbarrier waits are local.",),
    "mbarrier": ("It must be initialised by one thread and made visible (a barrier, in a cluster fence.mbarrier_init) before use.",),
    "mbarrier.arrive": ("The default order is .release at scope .cta: what other CTAs of the cluster read needs .release.cluster.",
                        "On shared::cluster no state comes back: write `_`.",
                        "expect_tx must not come after the bytes have completed a phase: arm the barrier before (or in the same thread "
                        "as) the copy."),
    "mbarrier.init": ("count is the number of arrivals, not of threads: one elected lane of each warp makes one each.",
                      "A second init of a live mbarrier is undefined: mbarrier.inval first."),
    "mbarrier.test_wait": ("Parity 0 asks for the first, third, ... phase: a fresh barrier passes a wait for parity 1 at once.",
                           "The result must be looked at, and asked again when it is false."),
    "mbarrier.try_wait": ("It may return false though nothing is wrong: loop on the predicate.",
                          "Parity 0 asks for the first, third, ... phase: a fresh barrier passes a wait for parity 1 at once.",
                          "The parity must flip every time the ring comes round."),
    "mma": ("All lanes of the warp execute it together, with the same shape.",),
    "multimem": ("The address is of a multicast object, not an ordinary pointer.",),
    "nanosleep": ("It does not order memory.",),
    "red.async": ("There is no f32 addition: a reduction over distributed shared memory copies, then adds.",),
    "setmaxnreg": ("ptxas ignores it without a register cap at entry: .maxntid or .reqntid with .minnctapersm, or .maxnreg.",
                   "It is dropped in anything that goes through a linker (nvJitLink, cuLink).",
                   "All warps of the warpgroup execute it; .inc waits until others have given registers back.",
                   "The pool is what the launch gave: the numbers times the threads of the warpgroups must not exceed it."),
    "shfl": ("Reading a lane outside the mask, or one that has exited, is undefined.",),
    "shl": ("Amounts over the width are clamped: the result is 0.",),
    "shr": ("Amounts over the width are clamped.",),
    "st.async": ("The destination is a shared::cluster address; the bytes count on the mbarrier there.",),
    "tensormap.replace": ("rank is the rank less one; elemtype numbers differ from CUtensorMapDataType from 8 on.",
                          "Tensor copies see the edit only after a release and an acquire fence of the tensormap proxy."),
    "trap": ("The whole grid is lost, not the thread.",),
    "vote": ("Lanes of the mask must all execute it.",),
    "wgmma": ("All four warps of the warpgroup execute it together, warps 4i to 4i+3.",),
    "wgmma.commit_group": ("A wgmma that no group holds is not covered by any wait.",),
    "wgmma.fence": ("It must stand between any write of the accumulators or of A in registers and the first wgmma that uses them.",),
    "wgmma.mma_async": ("wgmma.fence before it when registers were written; commit_group and wait_group before D, or A in registers, is "
                        "touched.",
                        "Shared memory that threads wrote needs fence.proxy.async and a barrier before it; tensor copies need only the "
                        "mbarrier wait.",
                        "A stage may be overwritten only when wait_group has covered the wgmma that reads it.",
                        "The depth steps inside a swizzled span by 32 bytes: 2 in the descriptor's address field.",
                        "ptxas serialises the whole function when registers are touched in between (C7510 and its kin): see `ptxkit "
                        "inspect`."),
    "wgmma.wait_group": ("It waits for the groups of this warp's warpgroup, in order.",),
}
"""What goes wrong, by prefix: those of the mnemonic and of the longest prefix that fits hold."""

KIND_OF: Mapping[str, str] = {"cp.async.bulk.tensor": "cp.async.bulk", "cp.reduce.async.bulk": "cp.async.bulk"}
"""Instructions for which the pitfalls of another hold too."""

SYNC: Mapping[str, str] = {
    "async.commit": "closes the thread's cp.async group",
    "async.issue": "starts a copy of the thread, which ends at cp.async.wait_group or on an mbarrier",
    "async.wait": "waits for the thread's cp.async copies",
    "breakpoint": "stops for a debugger",
    "bulk.commit": "closes the thread's bulk group",
    "bulk.issue": "starts a bulk operation of the thread's current group",
    "bulk.wait": "waits for the thread's bulk groups",
    "cache.priority": "changes what the cache keeps",
    "cluster.arrive": "arrives at the cluster's barrier",
    "cluster.wait": "waits at the cluster's barrier",
    "cta.arrive": "arrives at a barrier of the CTA without waiting",
    "cta.barrier": "waits at a barrier of the CTA",
    "fence": "orders memory accesses",
    "grid.launch_dependents": "lets the dependent grid start",
    "grid.wait": "waits for the grid before",
    "mbarrier.arrive": "arrives on the mbarrier",
    "mbarrier.arrive_async": "arrives on the mbarrier when the thread's copies have landed",
    "mbarrier.complete_tx": "completes its bytes on the mbarrier when it is done",
    "mbarrier.drop": "leaves the mbarrier for later phases",
    "mbarrier.expect_tx": "adds bytes that the mbarrier's phase waits for",
    "mbarrier.fence_init": "makes initialised mbarriers visible to the cluster",
    "mbarrier.init": "initialises the mbarrier",
    "mbarrier.inval": "ends the mbarrier",
    "mbarrier.test": "asks for a phase of the mbarrier",
    "pmevent": "triggers performance-monitor events",
    "prefetch": "fetches ahead; no value depends on it",
    "query": "asks what a texture, sampler or surface is like",
    "registers": "changes the register budget of the warpgroup",
    "sleep": "sleeps",
    "stack": "moves the thread's stack",
    "warp.barrier": "waits for the lanes of the mask",
    "wgmma.commit": "closes the warpgroup's wgmma group",
    "wgmma.fence": "orders registers with the wgmmas that follow",
    "wgmma.issue": "starts a matrix product, which ends at wgmma.wait_group",
    "wgmma.wait": "waits for the warpgroup's wgmma groups",
}

CONVERGENCE: Mapping[str, str] = {
    "warp": "all lanes of the warp (or of the mask) execute it together",
    "warpgroup": "all four warps of the warpgroup execute it together",
    "cta": "all threads of the CTA execute it together",
    "cluster": "all threads of the cluster execute it together",
}

CONTROL: Mapping[str, str] = {
    "branch": "goes on at a label", "call": "calls a function", "return": "returns", "exit": "ends the thread", "trap": "stops the kernel",
}

TAGS: Mapping[str, str] = {
    "descriptor": "a matrix descriptor (`ptxkit explain --descriptor`)",
    "transpose": "whether that operand is MN-major (1) or K-major (0)",
    "mbarrier": "the address of an mbarrier",
    "state": "a phase token of the mbarrier",
    "parity": "the parity of the phase waited for",
    "tensormap": "the address of a tensor map",
    "policy": "an L2 cache policy from createpolicy",
    "mask": "the CTAs of the cluster that take part, a bit each",
    "members": "the lanes that take part, a bit each",
    "bytes": "bytes",
    "hint": "a time in nanoseconds",
    "half": "%tid, %ntid, %ctaid, %nctaid and %gridid only: the low 16 bits",
    "converted": "the low bits of a wider one, too",
    "texture": "a texture",
    "sampler": "a sampler",
    "surface": "a surface",
}


def pitfalls(opcode: str) -> tuple[str, ...]:
    """What to look out for: of the mnemonic, of what the opcode is a kind of, and of itself."""
    keys = fitting(opcode, PITFALLS)
    words = opcode.split(".")
    general = [KIND_OF[key] for count in range(1, len(words) + 1) if (key := ".".join(words[:count])) in KIND_OF]
    found = dict.fromkeys((*(key for key in keys if key == words[0]), *general, *keys[-1:]))
    return tuple(sentence for key in found for sentence in PITFALLS[key])
