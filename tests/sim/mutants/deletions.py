"""Every synchronising instruction of every subject deleted, one at a time, and what is known of those that may go."""

from __future__ import annotations

from typing import Any

from .edit import Edit
from .subjects import SUBJECTS

SYNC = (r"^(@!?%p\d+ )?(fence|membar|bar|barrier|mbarrier|wgmma\.(fence|commit|wait)|cp\.async\.(bulk\.)?(wait|commit)|setmaxnreg"
        r"|tensormap\.cp)")

INIT = "init is ordered by the barrier that follows; the fence is needed only with a relaxed one"
KEEPS = "more registers than are used: slower or spilling, but right"
DRAIN = "a CTA that exits with its stores in flight earns a review: PTX has no sentence against it"
NEXT = "the next instruction meets the lanes again"
UNUSED = "not executed with the five rounds of this launch"

HARMLESS: dict[str, dict[int, str]] = {
    "hgemm": {6: INIT, 13: KEEPS, 26: DRAIN},
    "hgemm.alone": {4: INIT, 10: KEEPS, 28: DRAIN},
    "hgemm.f32": {4: INIT, 10: KEEPS, 28: DRAIN},
    "hgemm.mn": {4: INIT, 11: KEEPS, 29: DRAIN},
    "tile_gemm": {8: INIT, 10: "with 256 threads the entry has all registers already", 13: KEEPS},
    "cluster_multicast": {2: INIT, 6: "each CTA waits for the copies into it", 7: "each CTA waits for the copies into it"},
    "tma_copy": {1: "a tensor copy uses its mbarrier through the generic proxy", 4: DRAIN, 5: DRAIN},
    "staged_mma": {7: "any warp's wait_group covers the operand reads of the whole warpgroup"},
    "exchange": {2: INIT},
    "publish": {4: INIT},
    "retarget": {1: INIT, 3: NEXT, 9: NEXT},
    "pool": {1: KEEPS},
    "nvcc.matmul": {4: INIT},
    "nvcc.add_one": {2: INIT, 11: DRAIN},
    "nvcc.staged": {16: "nothing follows the last round", 17: UNUSED, 18: UNUSED, 19: UNUSED, 20: UNUSED},
}
"""Deletions that earn no error, by the number of the synchronising instruction."""

MISSED: dict[str, dict[int, str]] = {}
"""Deletions that are mistakes and earn no error yet."""


def count(subject: str) -> int:
    """How many synchronising instructions there are."""
    return len(Edit(SUBJECTS[subject].original, SUBJECTS[subject].entry).find(SYNC))


def without(subject: str, number: int) -> Any:
    """The subject without one of them."""
    return Edit(SUBJECTS[subject].original, SUBJECTS[subject].entry).delete(SYNC, number).done()


__all__ = ["HARMLESS", "MISSED", "count", "without"]
