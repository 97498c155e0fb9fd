"""Every synchronising instruction of every subject deleted, one at a time, and what is known of those that may go."""

from __future__ import annotations

import re
from typing import Any

from ptxkit.grammar import tree

from .edit import Edit, written
from .subjects import SUBJECTS

SYNC = (r"^(@!?%p\d+ )?(fence|membar|bar|barrier|mbarrier|wgmma\.(fence|commit|wait)|cp\.async\.(bulk\.)?(wait|commit)|setmaxnreg"
        r"|tensormap\.cp)")

COMMON = {
    r"fence\.mbarrier_init": "init is ordered by the barrier that follows; the fence is needed only with a relaxed one",
    r"setmaxnreg": "fewer registers than it could use, or more than it does: slower, but right (what gives others theirs is waited for)",
    r"cp\.async\.bulk\.wait_group 0": "a CTA that exits with its stores in flight earns a review: PTX has no sentence against it"}
"""Deletions that earn no error, by the instruction's text, and why; those of setmaxnreg may."""

NEXT = "the next instruction meets the lanes again"
UNUSED = "not executed with the five rounds of this launch"

SPECIAL: dict[str, dict[int, str]] = {
    "cluster_multicast": {7: "each CTA waits for the copies into it"},
    "tma_copy": {1: "a tensor copy uses its mbarrier through the generic proxy", 4: "its store is in flight at exit, a review"},
    "staged_mma": {7: "any warp's wait_group covers the operand reads of the whole warpgroup"},
    "retarget": {3: NEXT, 9: NEXT},
    "outputs": {1: NEXT},
    "nvcc.staged": {16: "nothing follows the last round", 17: UNUSED, 18: UNUSED, 19: UNUSED, 20: UNUSED},
}
"""More of them, by the number of the synchronising instruction."""

THERE: dict[str, str] = {
    "gemm.split": r"^bar\.sync %r",                              # one launch does not use the workspace again
    "gemm.fp8": r"^wgmma\.(commit_group|wait_group\S* 1;)"}        # a group that only tells when most of a stage is multiplied
"""Of those that match, some are superfluous; which of them they are depends on the kernel's form."""


def harmless(subject: str, number: int) -> bool:
    """Whether the deletion may earn no error."""
    text = sites(subject)[number]
    patterns = [*COMMON, *([THERE[subject]] if subject in THERE else [])]
    return number in SPECIAL.get(subject, ()) or any(re.search(pattern, text) for pattern in patterns)


def sites(subject: str) -> list[str]:
    """The synchronising instructions, as text."""
    found = Edit(SUBJECTS[subject].original, SUBJECTS[subject].entry).find(SYNC)
    return [written(s) for s in found if isinstance(s, tree.Instruction)]


def count(subject: str) -> int:
    """How many synchronising instructions there are."""
    return len(sites(subject))


def without(subject: str, number: int) -> Any:
    """The subject without one of them."""
    return Edit(SUBJECTS[subject].original, SUBJECTS[subject].entry).delete(SYNC, number).done()


__all__ = ["COMMON", "SPECIAL", "count", "harmless", "sites", "without"]
