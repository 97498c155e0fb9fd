"""Barriers of a CTA and of a cluster, fences and proxies."""

from __future__ import annotations

from typing import Any, Literal

from ..schema import ANY, Access, Effects, Form, Range, at, form, imm, r, w

_BARRIER = r("u32", imm=Range(0, 15, wraps=True))
_THREADS = r("u32", imm=Range(32, multiple=32, wraps=True))
_CONDITION = r("pred", negate=True, imm=ANY)
_SCOPE = {"scope": "cta cluster gpu sys"}


def _cta(name: str, convergence: Literal["none", "warp"]) -> tuple[Form, ...]:
    """The rows of `bar`, `barrier` or `barrier.aligned`. A star in `name` marks the place of the operation."""
    base, _, aligned = name.partition("*")
    effects = Effects(sync=("cta.barrier",), convergence=convergence)
    how: dict[str, Any] = {"target": "sm_30", "section": "bar, barrier", "a": _BARRIER, "b": _THREADS}
    arrive = Effects(sync=("cta.arrive",), convergence=convergence)
    return (
        form(f"{base}{{.cta}}.sync{aligned} a{{, b}}", effects=effects, **how),
        form(f"{base}{{.cta}}.arrive{aligned} a, b", effects=arrive, **how),
        form(f"{base}{{.cta}}.red.popc{aligned}.u32 d, a{{, b}}, c", effects=effects, d=w("u32"), c=_CONDITION, **how),
        form(f"{base}{{.cta}}.red.op{aligned}.pred p, a{{, b}}, c", slots={"op": "and or"}, effects=effects,
             p=w("pred"), c=_CONDITION, **how),
    )


def _cluster(aligned: str, convergence: Literal["none", "warp"]) -> tuple[Form, ...]:
    return (
        form(f"barrier.cluster.arrive{{.sem}}{aligned}", slots={"sem": "release relaxed"}, section="barrier.cluster",
             effects=Effects(sync=("cluster.arrive",), convergence=convergence)),
        form(f"barrier.cluster.wait{{.acquire}}{aligned}", section="barrier.cluster",
             effects=Effects(sync=("cluster.wait",), convergence=convergence)),
    )


def _proxy(kind: str) -> Effects:
    return Effects(sync=("fence",), fence=("generic", kind))


_TENSORMAP_SIZE = imm(Range(choices=(128,)), default=128)

FORMS: tuple[Form, ...] = (
    *_cta("bar", "warp"),
    *_cta("barrier", "none"),
    *_cta("barrier*.aligned", "warp"),
    *_cluster("", "none"),
    *_cluster(".aligned", "warp"),

    form("fence{.sem}.scope", slots={"sem": "sc acq_rel acquire release", **_SCOPE},
         effects=Effects(sync=("fence",)), section="membar, fence"),
    form("fence.acquire.sync_restrict::shared::cluster.cluster", since="8.6", effects=Effects(sync=("fence",)), section="membar, fence"),
    form("fence.release.sync_restrict::shared::cta.cluster", since="8.6", effects=Effects(sync=("fence",)), section="membar, fence"),
    form("fence.mbarrier_init.release.cluster", effects=Effects(sync=("fence", "mbarrier.fence_init")), section="membar, fence"),
    form("fence.proxy.alias", target="sm_70", effects=_proxy("alias"), section="membar, fence"),
    form("fence.proxy.async{.space}", slots={"space": "global shared::cta shared::cluster"}, effects=_proxy("async"),
         section="membar, fence"),
    form("fence.proxy.tensormap::generic.release.scope", slots=_SCOPE, since="8.3", effects=_proxy("tensormap"), section="membar, fence"),
    form("fence.proxy.tensormap::generic.acquire.scope [addr], size", slots=_SCOPE, since="8.3",
         effects=Effects((Access("r", "addr", 128, "tensormap"),), sync=("fence",), fence=("generic", "tensormap"), depends="never"),
         section="membar, fence", addr=at(tag="tensormap"), size=_TENSORMAP_SIZE),
    form("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster", since="8.6", effects=_proxy("async"),
         section="membar, fence"),
    form("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster", since="8.6", effects=_proxy("async"),
         section="membar, fence"),
    form("membar.level", slots={"level": "cta gl sys"}, target="sm_20", effects=Effects(sync=("fence",)), section="membar, fence"),
    form("membar.proxy.alias", target="sm_70", effects=_proxy("alias"), section="membar, fence"),
)
