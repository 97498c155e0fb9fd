"""The address map. Windows of generic addresses are 2^40 bytes apart, so that bits 40 and up name the space.

shared (32 bits): the CTA's rank in its cluster << 24 | offset; offsets below 1,024 belong to the system, as on the hardware.
global: one arena from `GLOBAL` on. local, const, param: plain offsets.
"""

from __future__ import annotations

WINDOW_BITS = 40
SHARED = 1 << WINDOW_BITS
LOCAL = 2 << WINDOW_BITS
CONST = 3 << WINDOW_BITS
PARAM = 4 << WINDOW_BITS
FUNCTION = 5 << WINDOW_BITS
GLOBAL = 0x7F << WINDOW_BITS

RANK_BITS = 24
OFFSET_MASK = (1 << RANK_BITS) - 1
RESERVED_SHARED = 1024

WINDOWS = {"shared": SHARED, "shared::cta": SHARED, "shared::cluster": SHARED, "local": LOCAL, "const": CONST, "param": PARAM,
           "param::entry": PARAM, "global": 0}
SPACE_OF_WINDOW = {SHARED >> WINDOW_BITS: "shared", LOCAL >> WINDOW_BITS: "local", CONST >> WINDOW_BITS: "const",
                   PARAM >> WINDOW_BITS: "param", GLOBAL >> WINDOW_BITS: "global"}
