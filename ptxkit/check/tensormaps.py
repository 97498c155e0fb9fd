"""Tensor maps edited by the kernel: the fences between an edit and the copies that use the map."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar.errors import Finding
from .analysis import Analysis
from .flow import Flow, State
from .program import Site

RULES = {"tensormap-fence": "a tensor map is edited and then used without the fence of the tensormap proxy"}


def findings(analysis: Analysis) -> Iterator[Finding]:
    yield from _Edits(analysis).findings()


class _Edits(Flow):
    """("edited", edit): not yet handed over with a release; ("released", edit): not yet acquired by those that use it.

    ("given", edit), ("taken", edit): on some path it was: kernels edit and fence under a condition that comes again.
    """

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self.edits = any(site.mnemonic == "tensormap" and "replace" in site.tokens for site in analysis.sites)
        self._said: set[tuple[str, int]] = set()

    def relevant(self, site: Site) -> bool:
        return self.edits and (site.mnemonic == "tensormap" or site.effects.fence == ("generic", "tensormap") or self._uses(site))

    @staticmethod
    def _uses(site: Site) -> bool:
        return site.mnemonic == "cp" and any(access.proxy == "tensormap" for access in site.effects.memory)

    def step(self, site: Site, threads: int, state: State) -> None:
        if "replace" in site.tokens:
            state["edited", site.index] = self.everyone
        elif "acquire" in site.tokens:
            for fact in [fact for fact in state if fact[0] == "released"]:
                state["taken", fact[1]] = state.pop(fact)
        elif site.effects.fence == ("generic", "tensormap"):
            for fact in [fact for fact in state if fact[0] == "edited"]:
                state["released", fact[1]] = state["given", fact[1]] = state.pop(fact)

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        if not self._uses(site):
            return
        address = self.analysis.tensormap(site)
        if address is not None and address.symbol in {parameter.name for parameter in self.analysis.routine.function.parameters}:
            return  # a parameter of the kernel cannot be edited
        for fact in sorted(fact for fact in state if fact[0] in ("edited", "released")):
            if ("given" if fact[0] == "edited" else "taken", fact[1]) in state:
                continue
            edit = self.analysis.routine.sites[fact[1]]
            if (fact[0], edit.block) not in self._said:
                self._said.add((fact[0], edit.block))
                missing = ("tensormap.cp_fenceproxy (or fence.proxy.tensormap::generic.release.gpu)" if fact[0] == "edited"
                           else "fence.proxy.tensormap::generic.acquire.gpu [map], 128")
                yield self.analysis.report(
                    "tensormap-fence", site, f"`{site.name}` may use a tensor map that {edit.place} edits, and no "
                    f"{'release' if fact[0] == 'edited' else 'acquire'} fence of the tensormap proxy stands between", f"{missing} between")
