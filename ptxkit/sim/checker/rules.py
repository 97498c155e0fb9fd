"""The dynamic rules: their severity, and the way out."""

from __future__ import annotations

from dataclasses import dataclass

from ...grammar.errors import Kind, Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """`certificate`: what fails is a condition under which other schedules are known to be equivalent."""

    severity: Severity
    fix: str
    certificate: bool = False
    kind: Kind = "protocol"


RULES: dict[str, Rule] = {
    "shared-race": Rule("error", "order the two with a barrier or an mbarrier that both sides use"),
    "global-race": Rule("error", "order the two with a barrier, or with release and acquire at a scope that includes both"),
    "same-value": Rule("info", "nothing, if the values are meant to be equal: let one thread store, or order the two, to make it plain"),
    "nc-load": Rule("error", "ld.global without .nc"),
    "mixed-size": Rule("error", "access the word in one size, or order the accesses"),
    "discarded": Rule("error", "write it after the discard, or discard what nobody reads any more"),
    "lane-conflict": Rule("review", "let one lane write, or an atomic decide", True),
    "dependent-launch": Rule("error", "griddepcontrol.wait before the access, in the thread itself or in one that a barrier orders "
                             "before it"),
    "dependent-launch-unsaid": Rule("review", 'simulate(..., previous={"reads": [...], "writes": [...]}) with the arrays that the grid '
                                    "before uses, empty lists if it uses none of these", True),
    "proxy-fence": Rule("error", "fence.proxy.async in the writer before it releases, or in the issuer after it acquires"),
    "shared-uninitialised": Rule("error", "write it first, or wait for the copy that does"),
    "register-uninitialised": Rule("error", "write the register on every path that leads to its use"),
    "undefined-value": Rule("error", "let the lane that is read take part, or use the result only where it is defined"),
    "bulk-source-uninitialised": Rule("review", "write the whole box before it is stored"),
    "tensor-padding": Rule("review", "keep nothing in these columns; or give the array an inner extent of whole 16-byte chunks; or store "
                           "its last columns by st.global"),
    "wgmma-in-flight": Rule("error", "wgmma.wait_group for the group that uses the register first"),
    "wgmma-fence": Rule("error", "wgmma.fence.sync.aligned between the register's access and the wgmma"),
    "wgmma-uninitialised": Rule("error", "scale-d 0 on the first wgmma of a tile, or clear the accumulator"),
    "wgmma-uncommitted": Rule("review", "wgmma.commit_group and wgmma.wait_group before the thread exits"),
    "mbarrier-init": Rule("error", "order the init before the use: a barrier of the CTA, for other CTAs one of the cluster (a relaxed one "
                          "needs fence.mbarrier_init.release.cluster)"),
    "mbarrier-reinit": Rule("error", "mbarrier.inval before its storage is used again"),
    "mbarrier-overlap": Rule("error", "give the barrier 8 bytes of its own"),
    "mbarrier-arrival": Rule("error", "arrive only after waiting for the phase before, or after something that did", True),
    "mbarrier-wait": Rule("error", "every waiter must have seen a phase before the next one can complete: it must arrive, or be waited "
                          "for, on the way to that arrival", True),
    "mbarrier-early-wait": Rule("error", "a wait for a phase must come after the phase before is known to be complete", True),
    "mbarrier-unobserved": Rule("error", "a thread that waited for the phase must come before the next phase's first arrival", True),
    "mbarrier-ignored": Rule("error", "loop until it says yes: it may say no when its time is over"),
    "mbarrier-bytes": Rule("error", "announce exactly the bytes of the copies that signal the phase", True),
    "barrier-generation": Rule("error", "threads of one generation of a barrier must have passed the one before", True),
    "bulk-exit": Rule("review", "cp.async.bulk.wait_group.read 0 before the thread that committed exits"),
    "dsmem-entry": Rule("error", "a cluster barrier before the first access to another CTA's shared memory"),
    "dsmem-exit": Rule("error", "a cluster barrier (or a wait that implies it) between the last remote access and the CTA's exit"),
    "setmaxnreg-direction": Rule("error", ".inc to more registers than the warp has, .dec to fewer"),
    "setmaxnreg-participation": Rule("error", "all four warps of a warpgroup execute the same setmaxnreg"),
    "tensormap-fence": Rule("error", "publish the edited map with tensormap.cp_fenceproxy (or fence.proxy.tensormap::generic.release) and "
                            "fence.proxy.tensormap::generic.acquire it before the copy"),
    "order-dependence": Rule("review", "order the accesses, or let nothing that is stored depend on which comes first", True),
    "descriptor-layout": Rule("info", "take the copy's box and the descriptor from one layout", kind="advice"),
    "bank-conflict": Rule("info", "a swizzled layout or padding spreads the addresses over the banks", kind="advice"),
}
