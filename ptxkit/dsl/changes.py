"""What a `with` body takes from containers and iterators of before, and changes in objects: Python does so once, while tracing.

A loop's body must not take from them, nor read a number and then change it. What an `if_` body changes must not be read after it.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from types import FrameType
from typing import Any

from ..errors import TraceError
from .bytecode import closed_over, loaded, loads_between, local
from .held import FUNCTION, INSIDE, ITERATOR, MAPPING, OBJECT, SEQUENCE, SET, Held, Holder, contents, position, stored
from .plain import changed
from .reg import Value
from .source import line_at
from .taken import ended, grown, is_own, keys, lost
from .touched import ATTRIBUTE, ITEM, NAME, Body, methods_of, read_first
from .uncalled import Handle

Refuse = Callable[[str, Any, Any, int | None], None]
"""What raises: the path, the value before, the value now, the line."""
_REBOUND = {SEQUENCE, MAPPING, OBJECT}
_TAKE = {"next", "__next__", "send"}


def check_changes(frame: FrameType, begin: int, held: Held, changes: Sequence[Holder], numbers: Mapping[str, Any],
                  own: Mapping[str, Any], refuse: Refuse, *, after: bool = False, loop: bool = True) -> None:
    """Call `refuse` for a number that the body reads and then changes, or, with `after`, changes and that is read after it. Raise where a
    loop's body takes from what was there before the loop. `numbers` are Python's own values that names held before it. What a `loop` has
    counted in an object or an array may be read after it: it is about the trace."""
    code, all_ = frame.f_code, frame.f_globals
    if begin >= frame.f_lasti:
        return
    unknown = [holder for holder in held.holders if holder.kind == ITERATOR and holder.parts is None]
    rebound = [holder for holder in held.holders if holder.kind in _REBOUND and own.get(holder.path, holder.object) is not holder.object
               and local(code, holder.path)]
    shared = {name: now for name, old in numbers.items()
              if (now := own.get(name, all_.get(name, old))) is not old and not local(code, name)}
    if changes or unknown or rebound or shared:
        found = _Changes(frame, begin, held.holders, own, refuse, after, counted=after and loop)
        for name, now in shared.items():
            found.slot(name, numbers[name], now, name, NAME)
        for holder in rebound:
            found.rebound(holder)
        for holder in (*changes, *unknown):
            found.changed(holder)


class _Changes:
    """What a body has changed, and the code that may have read it: that of a loop's body, or what follows that of an `if_`."""

    def __init__(self, frame: FrameType, begin: int, holders: Sequence[Holder], own: Mapping[str, Any], refuse: Refuse,
                 after: bool, *, counted: bool) -> None:
        self.frame, self.code, self.begin, self.own = frame, frame.f_code, begin, own
        self.refuse = refuse
        self.after, self.counted = after, counted
        first, last = (frame.f_lasti, len(frame.f_code.co_code)) if after else (begin, frame.f_lasti)
        self.body = Body(self.code, first, last, {**frame.f_globals, **own},
                         methods_of(each.object for each in holders if each.kind == OBJECT))

    def changed(self, holder: Holder) -> None:
        if holder.kind == ITERATOR:
            self._iterator(holder)
        elif holder.kind in (SEQUENCE, MAPPING, SET):
            self._container(holder)
        else:
            self._attributes(holder)

    def rebound(self, holder: Holder) -> None:
        """A local name that stands for another object now."""
        path, value, kind, old = holder
        other = self.own[path]
        if loaded(self.code, path, self.body.begin, self.body.end) is None or type(other) is not type(value):
            return
        new = contents(other, kind)
        if hasattr(old, "dtype"):
            self._array(path, old, new)
        elif kind == OBJECT:
            self._parts(holder, new)
        elif kind == MAPPING and all(map(is_own, (*old.values(), *new.values()))):
            if any(key not in new or changed(value, new[key]) for key, value in old.items()):
                self.refuse(path, old, new, stored(self.frame, self.begin, path))
        elif kind == SEQUENCE and (self._other(old, new) or _turned(old, new)):
            self.refuse(path, old, new, None)

    def _other(self, old: Sequence[Any], new: Sequence[Any]) -> bool:
        """Whether a sequence of Python's own values is another one, which has not only grown or been sorted."""
        return all(map(is_own, (*old, *new))) and not grown(old, new) and not (
            "sorted" in loads_between(self.code, self.begin, self.frame.f_lasti) and Counter(keys(old)) == Counter(keys(new)))

    def _iterator(self, holder: Holder) -> None:
        path, iterator, _, before = holder
        line = loaded(self.code, path, self.begin, self.frame.f_lasti) if path.isidentifier() else None
        if self.after or (before is None and (line is None or not local(self.code, path))):
            return                                   # what is taken in a branch numbers what it emits; or nothing is known
        if line is not None and not _TAKE & loads_between(self.code, self.begin, self.frame.f_lasti) and ended(iterator):
            return                                   # a `for` takes all, in every iteration
        self._taken(path)

    def _container(self, holder: Holder) -> None:
        path, value, kind, old = holder
        new = contents(value, kind)
        if hasattr(old, "dtype"):
            self._array(path, old, new)
            return
        own = all(map(is_own, old.values() if kind == MAPPING else old))
        if kind == SEQUENCE:
            took, turned = len(new) < len(old) and lost(old, new), len(new) >= len(old) and lost(old, new)
        elif kind == MAPPING:
            took, turned = not old.keys() <= new.keys(), list(old) != [key for key in new if key in old]
        else:
            took, turned = not old <= new, False
        takes = own and not self.after and (took or turned) and not self._remade(holder)
        if takes and took:
            self._taken(path)
        if kind != SET:
            self._parts(holder, new)
        if takes and read_first(self.body, _last(path), ITEM) is not None:
            self._taken(path)

    def _attributes(self, holder: Holder) -> None:
        path, value, _, old = holder
        new = contents(value, holder.kind)
        if not self.after and hasattr(type(value), "__next__") and any(
                is_own(each) and changed(old.get(name, getattr(type(value), name, None)), each) for name, each in new.items()):
            self._taken(path)
        self._parts(holder, new)

    def _parts(self, holder: Holder, new: Any) -> None:
        """The items of a container, the attributes of an object or the variables of a function that are other ones now."""
        path, value, kind, old = holder
        whole = {FUNCTION: NAME, SEQUENCE: ITEM, MAPPING: ITEM}.get(kind, ATTRIBUTE)
        before: Mapping[Any, Any] = dict(enumerate(old)) if kind == SEQUENCE else old
        now: Mapping[Any, Any] = dict(enumerate(new)) if kind == SEQUENCE else new
        if kind == OBJECT:
            before = {**{name: vars(type(value)).get(name) for name in now if name not in before}, **before}
        for name, each in before.items():
            other = now.get(name, each)
            if other is each:
                continue
            word = ATTRIBUTE if kind == FUNCTION and name in value.__dict__ else whole
            inner = f"{path}[{name!r}]" if word == ITEM else f"{path}{INSIDE if kind == FUNCTION else '.'}{name}"
            key = _last(path) if word == ITEM else name
            if not isinstance(each, list | deque | dict | set):
                self.slot(inner, each, other, key, word)
            elif isinstance(each, list | deque) and isinstance(other, list | deque) and not self.after and all(map(is_own, each)) \
                    and lost(each, other) and read_first(self.body, key, word) is not None:
                self._taken(inner)

    def _array(self, path: str, old: Any, new: Any) -> None:
        if not self.counted and (old.shape != new.shape or not (old == new).all()) and read_first(self.body, _last(path), ITEM) is not None:
            self.refuse(path, old.tolist(), new.tolist(), None)

    def slot(self, path: str, old: Any, new: Any, word: str, kind: int) -> None:
        """An attribute, an item or a variable that holds another value now."""
        own = is_own(old) or isinstance(old, Handle)
        if not own or not changed(old, new) or (self.after and (isinstance(new, Value) or old is None)):
            return
        grew = type(old) is type(new) is int and new > old
        if not (self.counted and grew) and read_first(self.body, word, kind, counts=grew, made=old is None) is not None:
            name = path.rpartition(INSIDE)[2]
            self.refuse(name, old, new, stored(self.frame, self.begin, name) or self._at(path))

    def _remade(self, holder: Holder) -> bool:
        """Whether the path leads to another container now, which contains what the first one did."""
        return any(each.path == holder.path and each.object is not holder.object and each.parts == holder.parts
                   for each in Held(self.frame, self.own).holders if each.kind == holder.kind)

    def _at(self, path: str) -> int | None:
        """The line of the body that names what leads to a path."""
        root = re.split(r"\W", path, maxsplit=1)[0]
        begin, end = self.begin, self.frame.f_lasti
        return loaded(self.code, root, begin, end) or closed_over(self.code, root, begin, end) or line_at(self.code, begin)

    def _taken(self, path: str) -> None:
        name = path.rpartition(INSIDE)[2]
        raise TraceError(
            f"`{name}` was made before this loop, and its body takes from it. Python does so once, while tracing: on the GPU every "
            "iteration has what was taken first. Python's own `for` in the place of this loop takes each in turn and emits its body as "
            "often; what changes on the GPU is in a register; what every iteration shares is taken before the loop; what Python alone "
            "needs is made in the body", position(self.frame, self._at(path)))


def _turned(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Whether tiles, barriers and the like are in another order now."""
    return any(isinstance(each, Handle) for each in old) and sorted(map(id, old)) == sorted(map(id, new)) and not all(map(is_, old, new))


def _last(path: str) -> str:
    """The last name of a path: of `state.queues[0]` it is `queues`."""
    return str(re.findall(r"\w+", re.sub(r"\[[^]]*\]", "", path))[-1])


__all__ = ["check_changes"]
