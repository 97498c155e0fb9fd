"""Memory barriers: phases that complete when every arrival and every announced byte is in."""

from __future__ import annotations

from ..limits import MBARRIER
from ..schema import ANY, Access, Depends, Effects, Form, Range, at, form, r, w

# The manual writes `.sem.scope` before the space in some lines and after it in others. The table always has it before.
_ORDER = {"sem": "release relaxed", "scope": "cta cluster"}
_LOCAL = {"space": "shared shared::cta"}
_BARRIER = at("space", tag="mbarrier")
_REMOTE = at("shared::cluster", tag="mbarrier")
_STATE = w("b64", tag="state", sink=True, float_ok=False)
_RELAXED = {"relaxed": "8.6"}


def _effects(*sync: str, mode: str = "rw", depends: Depends = "never") -> Effects:
    return Effects((Access("w" if mode == "w" else "rw", "addr", 8),), sync=sync, depends=depends)


def _arrivals(name: str, *words: str) -> tuple[Form, ...]:
    """The rows of `arrive` or `arrive_drop`. `arrive_drop` also lowers the expected count of later phases. `words`: the effects."""
    count = r("u32", imm=Range(1, MBARRIER))
    tx_count = r("u32", imm=Range(0, MBARRIER), tag="bytes")
    expects = ("mbarrier.expect_tx", *words)
    return (
        form(f"mbarrier.{name}{{.sem.scope}}{{.space}}.b64 state, [addr]{{, count}}", slots=_ORDER | _LOCAL, needs=_RELAXED,
             effects=_effects(*words, depends="phase"), section=f"mbarrier.{name}", state=_STATE, addr=_BARRIER, count=count),
        form(f"mbarrier.{name}{{.sem.scope}}.shared::cluster.b64 _, [addr]{{, count}}", slots=_ORDER, needs=_RELAXED,
             effects=_effects(*words), section=f"mbarrier.{name}", addr=_REMOTE, count=count),
        form(f"mbarrier.{name}.expect_tx{{.sem.scope}}{{.space}}.b64 state, [addr], tx_count", slots=_ORDER | _LOCAL, needs=_RELAXED,
             effects=_effects(*expects, depends="phase"), section=f"mbarrier.{name}", state=_STATE, addr=_BARRIER, tx_count=tx_count),
        form(f"mbarrier.{name}.expect_tx{{.sem.scope}}.shared::cluster.b64 _, [addr], tx_count", slots=_ORDER, needs=_RELAXED,
             effects=_effects(*expects), section=f"mbarrier.{name}", addr=_REMOTE, tx_count=tx_count),
        form(f"mbarrier.{name}.noComplete{{.release.cta}}{{.space}}.b64 state, [addr], count", slots=_LOCAL, target="sm_80",
             effects=_effects(*words, depends="phase"), section=f"mbarrier.{name}", state=_STATE, addr=_BARRIER, count=count),
    )


def _bytes(name: str) -> Form:
    return form(f"mbarrier.{name}{{.sem.scope}}{{.space}}.b64 [addr], tx_count",
                slots={"sem": "relaxed", "scope": "cta cluster", "space": "shared shared::cta shared::cluster"},
                effects=_effects(f"mbarrier.{name}"), section=f"mbarrier.{name}",
                addr=_BARRIER, tx_count=r("u32", imm=Range(0, MBARRIER), tag="bytes"))


def _waits(name: str, hint: str) -> tuple[Form, ...]:
    """A wait for a phase by its token, and one by its parity. Parity 0 is that of the first, third, fifth phase and so on."""
    slots = {"sem": "acquire relaxed", "scope": "cta cluster", "space": "shared shared::cta"}
    common = {"waitComplete": w("pred"), "addr": _BARRIER}
    if hint:
        common["suspendTimeHint"] = r("u32", imm=ANY, tag="hint")
    return (
        form(f"mbarrier.{name}{{.sem.scope}}{{.space}}.b64 waitComplete, [addr], state{hint}", slots=slots, needs=_RELAXED,
             effects=_effects("mbarrier.test", depends="phase"), section=f"mbarrier.{name}",
             state=r("b64", imm=ANY, tag="state", float_ok=False), **common),  # type: ignore[arg-type]
        form(f"mbarrier.{name}.parity{{.sem.scope}}{{.space}}.b64 waitComplete, [addr], phaseParity{hint}", slots=slots, needs=_RELAXED,
             effects=_effects("mbarrier.test", depends="phase"), section=f"mbarrier.{name}",
             phaseParity=r("u32", imm=Range(0, 1), tag="parity"), **common),  # type: ignore[arg-type]
    )


FORMS: tuple[Form, ...] = (
    form("mbarrier.init{.space}.b64 [addr], count", slots=_LOCAL, target="sm_80", effects=_effects("mbarrier.init", mode="w"),
         section="mbarrier.init", addr=_BARRIER, count=r("u32", imm=Range(1, MBARRIER))),
    form("mbarrier.inval{.space}.b64 [addr]", slots=_LOCAL, target="sm_80", effects=_effects("mbarrier.inval", mode="w"),
         section="mbarrier.inval", addr=_BARRIER),
    _bytes("expect_tx"),
    _bytes("complete_tx"),
    *_arrivals("arrive", "mbarrier.arrive"),
    *_arrivals("arrive_drop", "mbarrier.arrive", "mbarrier.drop"),
    *_waits("test_wait", ""),
    *_waits("try_wait", "{, suspendTimeHint}"),
    form("mbarrier.pending_count.b64 count, state", target="sm_80", section="mbarrier.pending_count",
         count=w("u32"), state=r("b64", imm=ANY, tag="state", float_ok=False)),
)
