"""Control flow, the stack, and what stops or delays a thread."""

from __future__ import annotations

from ..schema import ANY, Effects, Form, Operand, Range, form, imm, r, w

_BRANCH, _CALL, _STACK = Effects(control="branch"), Effects(control="call"), Effects(sync=("stack",))

_RETURNS = Operand("arguments", access="w")
_ARGUMENTS = Operand("arguments")
_FUNCTION = Operand("function")
_POINTER = r("u64")
# The label of a `.calltargets` or `.callprototype`, or the name of a table of functions.
_PROTOTYPE = Operand("label")

FORMS: tuple[Form, ...] = (
    form("bra{.uni} tgt", effects=_BRANCH, section="bra", tgt=Operand("label")),
    form("brx.idx{.uni} index, tlist", effects=_BRANCH, section="brx.idx", index=r("u32", imm=Range(0)), tlist=Operand("label")),
    form("call{.uni} func", effects=_CALL, section="call", func=_FUNCTION),
    form("call{.uni} func, (param_list)", effects=_CALL, section="call", func=_FUNCTION, param_list=_ARGUMENTS),
    form("call{.uni} (ret_param), func, (param_list)", effects=_CALL, section="call",
         ret_param=_RETURNS, func=_FUNCTION, param_list=_ARGUMENTS),
    form("call{.uni} fptr, fproto", effects=_CALL, section="call", fptr=_POINTER, fproto=_PROTOTYPE),
    form("call{.uni} fptr, (param_list), fproto", effects=_CALL, section="call",
         fptr=_POINTER, param_list=_ARGUMENTS, fproto=_PROTOTYPE),
    form("call{.uni} (ret_param), fptr, (param_list), fproto", effects=_CALL, section="call",
         ret_param=_RETURNS, fptr=_POINTER, param_list=_ARGUMENTS, fproto=_PROTOTYPE),
    form("ret{.uni}", effects=Effects(control="return"), section="ret"),
    form("exit", effects=Effects(control="exit"), section="exit"),
    form("trap", effects=Effects(control="trap"), section="trap"),
    form("alloca.type ptr, size{, immAlign}", slots={"type": "u32 u64"}, effects=_STACK, section="alloca",
         ptr=w("type"), size=r("type", imm=Range(0)), immAlign=imm(Range(choices=tuple(2**n for n in range(24))))),
    form("stacksave.type d", slots={"type": "u32 u64"}, effects=_STACK, section="stacksave", d=w("type")),
    form("stackrestore.type a", slots={"type": "u32 u64"}, effects=_STACK, section="stackrestore", a=r("type")),
    form("brkpt", effects=Effects(sync=("breakpoint",)), section="brkpt"),
    form("nanosleep.u32 t", effects=Effects(sync=("sleep",)), section="nanosleep", t=r("u32", imm=ANY)),
    form("pmevent a", effects=Effects(sync=("pmevent",)), section="pmevent", a=imm(Range(0, 15))),
    form("pmevent.mask a", effects=Effects(sync=("pmevent",)), section="pmevent", a=imm(Range(0, 65535))),
)
