"""What PTX has besides instructions since when: directives, types and other words of declarations (asked of ptxas 13.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

VERSIONS = frozenset((major, minor) for major, last in ((1, 5), (2, 3), (3, 2), (4, 3), (5, 0), (6, 5), (7, 8), (8, 8), (9, 0))
                     for minor in range(last + 1))
"""Every PTX up to the newest one that the table knows: there is no 7.9 and no 8.9."""
NEWEST = max(VERSIONS)
"""The newest PTX that the table was measured for."""


class Since(NamedTuple):
    """The lowest PTX, and the lowest target; "" is any."""

    version: tuple[int, int]
    target: str = ""


_CLUSTER, _ABI = Since((7, 8), "sm_90"), Since((9, 0), "sm_80")
FEATURES: Mapping[str, Since] = {
    ".noreturn": Since((6, 4)), ".explicitcluster": _CLUSTER, ".reqnctapercluster": _CLUSTER, ".maxclusterrank": _CLUSTER,
    ".blocksareclusters": Since((9, 0), "sm_90"), ".abi_preserve": _ABI, ".abi_preserve_control": _ABI, ".alias": Since((6, 3)),
    ".managed": Since((4, 0)), ".unified": Since((8, 0), "sm_90"), ".b128": Since((8, 3), "sm_70"), ".weak": Since((3, 1)),
    ".common": Since((5, 0)), "generic()": Since((3, 1)), "a mask of an address": Since((7, 1)),
}
LARGE_PARAMETERS = Since((8, 1), "sm_70")
"""Since when an entry may have 32,764 bytes of parameters instead of 4,352."""
