"""Classes of instructions, the same six for PTX and machine code: a page colours them alike."""

from __future__ import annotations

import re

CLASSES = {"t": "tensor cores", "c": "tensor copies", "b": "barriers", "m": "memory", "a": "arithmetic", "x": "control"}
"""The names of the classes by their letters."""

_PTX = {
    "t": ("wgmma", "mma", "wmma"),
    "b": ("mbarrier", "bar", "barrier", "fence", "membar", "griddepcontrol"),
    "m": ("ld", "ldu", "st", "ldmatrix", "stmatrix", "atom", "red", "cp", "prefetch", "prefetchu", "multimem", "movmatrix", "tex", "tld4",
          "txq", "suld", "sust", "sured", "suq", "discard", "applypriority", "createpolicy", "mapa", "getctarank", "isspacep", "cvta",
          "istypep", "alloca", "stacksave", "stackrestore"),
    "x": ("bra", "brx", "call", "ret", "exit", "trap", "brkpt", "nanosleep", "setmaxnreg", "pmevent", "elect", "activemask"),
}
_OF_PTX = {mnemonic: letter for letter, mnemonics in _PTX.items() for mnemonic in mnemonics}
_COPIES = ("cp.async.bulk", "cp.reduce.async.bulk", "prefetch.tensormap", "tensormap.", "fence.proxy.tensormap")

_SASS = {
    "t": ("HGMMA", "IGMMA", "QGMMA", "BGMMA", "HMMA", "IMMA", "QMMA", "DMMA", "BMMA", "WARPGROUP", "WARPGROUPSET"),
    "c": ("UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UTMACCTL", "UTMACMDFLUSH", "UBLKCP", "UBLKPF", "UBLKRED"),
    "b": ("SYNCS", "BAR", "MEMBAR", "FENCE", "WARPSYNC", "DEPBAR", "ERRBAR", "UCGABAR_ARV", "UCGABAR_WAIT", "CGAERRBAR", "LDGDEPBAR",
          "ARRIVES", "B2R", "ACQBULK", "PREEXIT"),
    "m": ("LD", "LDG", "LDS", "LDL", "LDC", "ULDC", "LDSM", "LDGSTS", "LDGMC", "LDTRAM", "ST", "STG", "STS", "STL", "STSM", "STAS", "ATOM",
          "ATOMG", "ATOMS", "RED", "REDAS", "REDG", "CCTL", "CCTLL", "CCTLT", "TEX", "TLD", "TLD4", "TXQ", "TMML", "SULD", "SUST", "SURED",
          "SUATOM", "SUQ", "QSPC", "MAPA", "MOVM"),
    "x": ("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "RET", "EXIT", "CALL", "BREAK", "BSSY", "BSYNC", "BMOV", "KILL", "NANOSLEEP", "NOP",
          "USETMAXREG", "YIELD", "BPT", "RPCMOV", "ELECT", "PMTRIG", "RTT", "ENDCOLLECTIVE"),
}
_OF_SASS = {mnemonic: letter for letter, mnemonics in _SASS.items() for mnemonic in mnemonics}
_SASS_GUARD = re.compile(r"@!?U?P\w+\s+")


def of_ptx(opcode: str) -> str:
    """The letter of a PTX opcode's class."""
    return "c" if opcode.startswith(_COPIES) else _OF_PTX.get(opcode.partition(".")[0], "a")


def of_sass(text: str) -> str:
    """The letter of the class of a machine instruction."""
    guard = _SASS_GUARD.match(text)
    mnemonic = re.split(r"[.\s]", text[guard.end() if guard else 0:], maxsplit=1)[0]
    return _OF_SASS.get(mnemonic, "a")


__all__ = ["CLASSES", "of_ptx", "of_sass"]
