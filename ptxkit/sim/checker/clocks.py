"""Happens-before: who is known to have done what, per lane, in several views.

An *agent* is a lane of the cluster or something asynchronous that completes in order: the copies that signal an mbarrier (clock: its
completed phases), a warpgroup's wgmma groups, the bulk copies of a lane (their reads, their writes), the cp.async of a lane. A *stamp* is
an (agent, clock). A `View` says, per agent, up to which clock its events are known: executed (row `DONE`), visible to generic accesses
(`SEEN`), and visible to the async proxy in global memory and in the shared memory of the cluster's CTA r (`GLOBAL`, `SHARED` + r: what was
visible at a proxy fence for it). `PUBLISHED` is what has been released to the tensormap proxy; `MAPS` stands for what that has acquired,
which goes by the map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..values import Array, indices
from .agents import LANE_WORDS, NOBODY, WARP_WORDS, Agent, Ended, WarpClock

if TYPE_CHECKING:
    from ..cta import Cluster
    from ..fragment import Fragment

DONE, SEEN, GLOBAL, PUBLISHED, SHARED = range(5)
MAPS = -1
ROOM = 128
"""Asynchronous agents that a new view has room for."""


class Home:
    """What the checker knows of one cluster. Its agents are its lanes first, then asynchronous ones as they appear. `state` holds what
    the rules keep of its warps, CTAs and barriers.
    """

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.state: dict[Any, Any] = {}
        self.ended: Ended | None = None
        machine = cluster.machine
        self.cluster = cluster
        self.number = number
        self.warps_per_cta = -(-machine.threads // 32)
        self.lanes = 32 * self.warps_per_cta * len(cluster.ctas)
        self.width = self.lanes + ROOM
        self.reach = self.lanes
        """How many agents may be lanes."""
        self.others: list[Agent] = []
        self.known: dict[Any, int] = {}
        self.generic: list[int] = []
        """First agents of the warps' cp.async, which belong to the generic proxy."""
        self.doubles: list[tuple[int, int]] = []
        """First agents of the warps that stand for elected lanes, with the ranks of their CTAs."""
        self.rows = SHARED + len(cluster.ctas)
        self.warps = [WarpClock(32 * i, cluster.ctas[i // self.warps_per_cta].warps[i % self.warps_per_cta], self.rows - GLOBAL)
                      for i in range(self.lanes // 32)]

    def end(self) -> Ended:
        """The cluster has ended: hold nothing of it but names, and the agents of words (the grid before), of which others have learnt."""
        self.ended = Ended(self)
        self.known = {key: agent for key, agent in self.known.items() if isinstance(key, str)}
        self.state, self.warps, self.others = {}, [], []
        return self.ended

    def warp(self, f: Fragment) -> WarpClock:
        return self.warps[f.cta.rank * self.warps_per_cta + f.warp.index]

    def agent(self, key: Any, kind: str, words: str, of: tuple[str | int, ...] = (), count: int = 1) -> int:
        """The agent of a key, made when it is new; `count` neighbouring ones."""
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.lanes + len(self.others)
            self.others += [Agent(kind, words, of)] * count
            while self.lanes + len(self.others) > self.width:
                self.width += ROOM
        return found

    def double(self, f: Fragment, members: int) -> WarpClock:
        """The clock of a lane that these members of a warp elect."""
        key = "elected", f.warp, members
        if key not in self.known:
            self.others += [NOBODY] * (-len(self.others) % 32)
            base = self.agent(key, "lane", f"the elected lane of {WARP_WORDS}", (f.cta.index, f.warp.index), 32)
            self.generic.append(base)
            self.doubles.append((base, f.cta.rank))
            self.reach = base + 32
            self.state[key] = WarpClock(base, f.warp, self.rows - GLOBAL, elected=True)
        found: WarpClock = self.state[key]
        return found

    def describe(self, agent: int) -> Agent:
        if self.ended is not None:
            return self.ended.describe(agent)
        if agent >= self.lanes:
            return self.others[agent - self.lanes]
        warp = self.warps[agent // 32].warp
        return Agent("lane", LANE_WORDS, (warp.cta.index, warp.index, agent % 32))

    def new(self) -> View:
        return View(self, np.zeros((self.rows, self.width), np.int32))


class View:
    """Clocks known, by agent; `far` holds what is known of other clusters."""

    __slots__ = ("a", "far", "home")

    def __init__(self, home: Home, a: Array, far: dict[Home, Array] | None = None) -> None:
        self.home = home
        self.a = a
        self.far = far

    def copy(self) -> View:
        return View(self.home, self.a.copy(), dict(self.far) if self.far else None)

    def fit(self) -> Array:
        """The clocks, wide enough for every agent."""
        missing = self.home.width - self.a.shape[1]
        if missing:
            self.a = np.pad(self.a, ((0, 0), (0, missing)))
        return self.a

    def join(self, other: View) -> View:
        if other.home is self.home:
            a, b = self.pair(other)
            np.maximum(a, b, out=a)
        else:
            self._far(other.home, other.a)
        if other.far:
            for home, a in other.far.items():
                if home is self.home:
                    self.join(View(home, a))
                else:
                    self._far(home, a)
        return self

    def pair(self, other: View) -> tuple[Array, Array]:
        """Both clocks, equally wide."""
        a, b = self.a, other.a
        return (a, b) if a.shape[1] == b.shape[1] else (self.fit(), other.fit())

    def _far(self, home: Home, a: Array) -> None:
        self.far = self.far or {}
        kept = View(home, self.far[home].copy() if home in self.far else np.zeros_like(a))
        self.far[home] = kept.join(View(home, a)).a

    def of(self, number: int) -> Array | None:
        """The clocks of another cluster, by its number."""
        return next((a for home, a in self.far.items() if home.number == number), None) if self.far else None

    def join_done(self, other: View) -> None:
        """Learn what has been executed, not what is visible."""
        if other.home is self.home:
            a, b = self.pair(other)
            done = a[DONE]
            np.maximum(done, b[DONE], out=done)

    def join_all_done(self, other: View) -> View:
        """`join_done`, of other clusters too."""
        zeroed = View(other.home, other.fit().copy(), {home: _only_done(a) for home, a in (other.far or {}).items()})
        zeroed.a[SEEN:] = 0
        return self.join(zeroed)

    def keep(self, other: View) -> None:
        """Of what is known here, what `other` knows too."""
        np.minimum(self.fit(), other.fit(), out=self.a)
        far = {}
        for home, a in (self.far or {}).items():
            theirs = (other.far or {}).get(home)
            if theirs is not None:
                both = View(home, a.copy())
                both.keep(View(home, theirs))
                far[home] = both.a
        self.far = far or None

    def complete(self, agent: int, clock: int) -> None:
        """An asynchronous agent's events are over: they are visible everywhere."""
        a = self.fit()
        if a.item(DONE, agent) < clock:
            a[:, agent] = clock                                  # nothing is known in another row that has not been done
        elif a.item(SEEN, agent) < clock:
            a[:, agent] = np.maximum(a[:, agent], clock)


def _only_done(a: Array) -> Array:
    found = np.zeros_like(a)
    found[DONE] = a[DONE]
    return found


@dataclass(frozen=True, slots=True)
class Published:
    """What a release (or a relaxed write after a fence) publishes: what has been done, and what is visible to who acquires it in the same
    CTA, in another one of the cluster, in another cluster (None: nothing).
    """

    done: View
    seen: tuple[View | None, View | None, View | None]

    def and_before(self, before: Published) -> Published:
        """An atomic goes on with what those before it have published."""
        both = [b if a is None else a if b is None else a.copy().join(b) for a, b in zip(self.seen, before.seen, strict=True)]
        return Published(self.done.copy().join_all_done(before.done), (both[0], both[1], both[2]))


@dataclass(slots=True, eq=False)
class Double:
    """The lane that lanes `among` have elected, as a thread of its own: which of them it is, is open. What it does alone, it does as its
    `agent`, and knows what all of the lanes know. What all of them do together, it does with them.
    """

    among: int
    lane: int
    lanes: Lanes

    @property
    def mask(self) -> int:
        return 1 << self.lane

    @property
    def agent(self) -> int:
        return self.lanes.warp.base + self.lane


class Lanes:
    """What the lanes of a fragment know: groups of lanes (mask, view), one group unless lanes have learnt different things.

    `pending` is what relaxed reads have seen (lanes, how far its writer is, view), which the next acquiring fence of that scope makes
    visible; `sealed` what the last releasing fence of each scope covered (lanes, view). `doubles` stand for lanes that these have elected.
    """

    __slots__ = ("doubles", "groups", "pending", "sealed", "warp")

    def __init__(self, warp: WarpClock, groups: list[tuple[int, View]]) -> None:
        self.warp = warp
        self.groups = groups
        self.pending: list[tuple[int, int, View]] = []
        self.sealed: list[tuple[int, View] | None] = [None, None, None]
        self.doubles: tuple[Double, ...] = ()

    def elected(self, mask: int) -> list[Double]:
        """The elected lanes that do what these lanes do, whichever they are."""
        return [double for double in self.doubles if not double.among & ~mask] if self.doubles else []

    def part(self, mask: int) -> Lanes:
        """Lanes that leave, with what they know."""
        other = Lanes(self.warp, [(m & mask, view.copy()) for m, view in self.groups if m & mask])
        self.groups = [(m & ~mask, view) for m, view in self.groups if m & ~mask]
        other.pending = [(m & mask, apart, view) for m, apart, view in self.pending if m & mask]
        other.sealed = self.sealed.copy()
        other.doubles = self.doubles
        return other

    def adopt(self, others: list[Lanes]) -> None:
        """Lanes come back; those that know the same are one group."""
        for other in others:
            self.groups += other.groups
            self.pending += other.pending
            if other.doubles is not self.doubles:
                self.doubles = (*self.doubles, *(double for double in other.doubles if double not in self.doubles))
            self.sealed = [theirs if mine is None or (theirs and theirs[0] & ~mine[0]) else mine
                           for mine, theirs in zip(self.sealed, other.sealed, strict=True)]
        self.tidy()

    def tidy(self) -> None:
        if len(self.groups) == 1:
            return
        kept: list[tuple[int, View]] = []
        for mask, view in self.groups:
            a = view.fit()
            for i, (m, other) in enumerate(kept):
                if np.array_equal(other.fit(), a) and not other.far and not view.far:
                    kept[i] = m | mask, other
                    break
            else:
                kept.append((mask, view))
        self.groups = kept

    def view(self, mask: int) -> View:
        """What any of these lanes knows; not to be written to."""
        if len(self.groups) == 1 and not self.elected(mask):
            return self.groups[0][1]
        found: View | None = None
        for m, view in self.groups:
            if m & mask:
                found = view if found is None else found.copy().join(view)
        assert found is not None
        for double in self.elected(mask):
            found = found.copy().join(double.lanes.view(double.mask))
        return found

    def common(self, mask: int) -> View:
        """What all of these lanes know."""
        found: View | None = None
        for m, view in self.groups:
            if m & mask:
                if found is None:
                    found = view.copy()
                else:
                    found.keep(view)
        assert found is not None
        return found

    def release(self, mask: int, *, visible: bool = True) -> View:
        """What these lanes publish: all they know and have done. Not `visible`: only that they have done it (a relaxed arrival)."""
        warp = self.warp
        out = self.view(mask).copy()
        a = out.fit()
        if not visible:
            a[SEEN:] = 0
        own, lanes = warp.places(mask)
        epoch = warp.tick()
        a[DONE, own] = epoch
        if visible:
            a[SEEN, own] = epoch
            a[GLOBAL:, own] = warp.fenced[:, lanes]
            if warp.copies >= 0:
                self._copies(a, indices(mask))
        for double in self.elected(mask):
            out.join(double.lanes.release(double.mask, visible=visible))
        return out

    def publish(self, mask: int, scope: int, *, visible: bool) -> Published:
        """A strong write of that scope: with release semantics (`visible`), or with those of the fences before it."""
        out = self.release(mask, visible=visible)
        seen: list[View | None] = [None, None, None]
        for apart in range(scope + 1):
            sealed = self.sealed[apart]
            if visible:
                seen[apart] = out
            elif sealed is not None and not mask & ~sealed[0]:
                seen[apart] = sealed[1] if mask == sealed[0] else self._own_part(mask, *sealed)
        return Published(out, (seen[0], seen[1], seen[2]))

    def _own_part(self, mask: int, others: int, sealed: View) -> View:
        """What a fence of more lanes has covered of these: not what the others have done."""
        out = sealed.copy()
        own, _ = self.warp.places(others & ~mask)
        out.fit()[:, own] = np.minimum(out.fit()[:, own], self.view(mask).fit()[:, own])
        return out

    def seal(self, mask: int, scope: int) -> None:
        """A releasing fence."""
        made = mask, self.release(mask)
        for apart in range(scope + 1):
            self.sealed[apart] = made
        for double in self.elected(mask):
            double.lanes.seal(double.mask, scope)

    def unseal(self, mask: int, scope: int) -> None:
        """An acquiring fence."""
        kept: list[tuple[int, int, View]] = []
        before, self.pending = self.pending, []
        for lanes, apart, view in before:
            if apart <= scope and lanes & mask:
                self.acquire(lanes & mask, view)
            left = lanes & ~mask if apart <= scope else lanes
            if left:
                kept.append((left, apart, view))
        self.pending = kept
        for double in self.elected(mask):
            double.lanes.unseal(double.mask, scope)

    def release_copies(self, mask: int) -> View:
        """What an arrival of these lanes' cp.async publishes: that all copies so far are complete, and what the lanes have done."""
        out = self.release(mask, visible=False)
        if self.warp.copies >= 0:
            out.fit()[:GLOBAL, indices(mask) + self.warp.copies] = self.warp.issued_copies
        for double in self.elected(mask):
            out.join(double.lanes.release_copies(double.mask))
        return out

    def _copies(self, a: Array, lanes: Array) -> None:
        at = lanes + self.warp.copies
        a[:GLOBAL, at] = np.maximum(a[:GLOBAL, at], self.warp.copied[lanes])

    def meet(self, mask: int) -> None:
        """bar.warp.sync: the lanes know what each has done."""
        met = self.release(mask)
        self.warp.met(mask)
        self.groups = [(m & ~mask, view) for m, view in self.groups if m & ~mask] + [(mask, met)]
        for double in self.elected(mask):
            double.lanes.groups = [(double.mask, met.copy())]

    def meet_done(self, mask: int) -> None:
        """Lanes execute something together that orders no memory accesses."""
        warp = self.warp
        if self.doubles and any(double.lanes.warp.used for double in self.elected(mask)):
            self._meet_elected(mask)
        if not warp.used:
            return
        epoch = warp.tick()
        warp.met(mask)
        own, _ = warp.places(mask)
        if len(self.groups) == 1:
            self.groups[0][1].fit()[DONE, own] = epoch
            return
        done = self.view(mask).copy().fit()[DONE]
        done[own] = epoch
        for m, view in self.groups:
            if m & mask:
                view.fit()[DONE] = done

    def _meet_elected(self, mask: int) -> None:
        done = self.release(mask, visible=False)
        self.learn(mask, done)

    def acquire(self, mask: int, other: View, *, visible: bool = True, apart: int = 0) -> None:
        """Learn what `other` publishes; not `visible`: once a fence of a scope that reaches as far as its writer follows."""
        if visible and len(self.groups) == 1 and not self.doubles and not self.groups[0][0] & ~mask:
            self.groups[0][1].join(other)
            return
        self._separate(mask)
        for m, view in self.groups:
            if m & mask:
                if visible:
                    view.join(other)
                else:
                    view.join_done(other)
        if not visible:
            same = [i for i, (m, a, _) in enumerate(self.pending) if m == mask and a == apart]
            if same:
                self.pending[same[0]] = mask, apart, self.pending[same[0]][2].copy().join(other)
            else:
                self.pending.append((mask, apart, other))
        self.tidy()
        for double in self.elected(mask):
            double.lanes.acquire(double.mask, other, visible=visible, apart=apart)

    def learn(self, mask: int, other: View) -> None:
        """What `other` says has been executed."""
        self._separate(mask)
        for m, view in self.groups:
            if m & mask:
                view.join_done(other)
        for double in self.elected(mask):
            double.lanes.learn(double.mask, other)

    def complete(self, mask: int, agent: int, clock: int) -> None:
        self._separate(mask)
        for m, view in self.groups:
            if m & mask:
                view.complete(agent, clock)
        for double in self.elected(mask):
            double.lanes.complete(double.mask, agent, clock)

    def _separate(self, mask: int) -> None:
        """Lanes of one group that learn different things become two groups."""
        for i, (m, view) in enumerate(self.groups):
            if m & mask and m & ~mask:
                self.groups[i] = m & mask, view
                self.groups.append((m & ~mask, view.copy()))

    def fence_proxy(self, mask: int, rows: list[int]) -> None:
        """What is visible to these lanes is, from here on, visible to the async proxy."""
        warp = self.warp
        self._separate(mask)
        chosen = indices(mask)
        for row in rows:
            warp.fenced[row - GLOBAL, chosen] = warp.epoch
            for m, view in self.groups:
                if m & mask:
                    a = view.fit()
                    np.maximum(a[row], a[SEEN], out=a[row])
                    if warp.copies >= 0:
                        at = chosen + warp.copies
                        a[row, at] = np.maximum(a[row, at], warp.copied[chosen])
        warp.epoch += 1
        for double in self.elected(mask):
            double.lanes.fence_proxy(double.mask, rows)

    def asynchronous(self, mask: int, row: int, *, writes: bool) -> Array:
        """What an asynchronous operation issued by these lanes may rely on. One that writes needs of other asynchronous ones no more than
        that they are over.
        """
        warp = self.warp
        a = self.view(mask).fit()
        home = self.view(mask).home
        found: Array = a[row].copy()
        if writes:
            np.maximum(found[home.lanes:], a[DONE, home.lanes:], out=found[home.lanes:])
            for first in home.generic:
                found[first:first + 32] = a[row, first:first + 32]
        if mask & mask - 1 == 0:
            lane = mask.bit_length() - 1
            found[warp.base + lane] = warp.fenced[row - GLOBAL, lane]
        else:
            np.maximum(found[warp.own], warp.fenced[row - GLOBAL], out=found[warp.own])
        for double in self.elected(mask):
            found[double.agent] = double.lanes.warp.fenced.item(row - GLOBAL, double.lane)
        return found
