"""What the caller's code says: which names a `with` binds, whether a name is loaded before it is stored again, how a body is left.

The trace sees values and no names. These questions are asked where two names of one value, or a value and its copy, must be told apart, and
where Python leaves a body that runs on the GPU.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType

from .source import line_at

LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
"""Instructions after which the next one is not executed."""
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_LEAVING = {dis.opmap[word] for word in ("RETURN_VALUE", "RETURN_CONST", "LOAD_CONST", "POP_TOP", "SWAP", "JUMP_BACKWARD", "NOP")
            if word in dis.opmap}
"""What may stand after the call of `__exit__` and its POP_TOP where a body is left by `return`, `break` or `continue`."""
_PREPARES, _FORWARD, _BACKWARD, _RETURNS, _SAME, _UNCONDITIONAL = (
    {dis.opmap[word] for word in words if word in dis.opmap} for words in (
        ("LOAD_CONST", "SWAP", "PRECALL", "NOP", "NOT_TAKEN"), ("JUMP_FORWARD",), ("JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
        ("RETURN_VALUE", "RETURN_CONST"), ("CALL", "POP_TOP"), LEAVES))
_left: dict[tuple[int, int], tuple[CodeType, bool]] = {}


@lru_cache(maxsize=128)
def steps_of(code: CodeType) -> list[dis.Instruction]:
    return [each for each in dis.get_instructions(code) if each.opname != "CACHE"]


def local(code: CodeType, name: str) -> bool:
    """Whether `name` is a variable of this function that no other function sees."""
    return name in code.co_varnames and name not in code.co_cellvars


def targets(code: CodeType, at: int) -> set[str]:
    """What is bound right after the instruction at an offset, after `as`, or by an assignment or a `for`: names, attributes as `.name`,
    and `[]` for an item."""
    found: set[str] = set()
    left = 1                                            # values that wait to be bound, and what leads to where they are
    for each in steps_of(code):
        if each.offset <= at or each.opname == "NOP":
            continue
        loads, stores = moves(each)
        if each.opname == "UNPACK_SEQUENCE":
            left += each.argval - 1
        elif each.opname in ("STORE_ATTR", "STORE_SUBSCR"):
            found.add(f".{each.argval}" if each.opname == "STORE_ATTR" else "[]")
            left -= 2 if each.opname == "STORE_ATTR" else 3
        elif loads or stores or each.opname.startswith("LOAD_CONST"):
            found.update(stores)
            left += (len(loads) or not stores) - len(stores)
        elif each.opname != "LOAD_ATTR":
            break
        if left < 1:
            break
    return found


def runs_on(code: CodeType, name: str, after: int, until: int) -> bool:
    """Whether a name is used between an offset and its last assignment, and not only asked whether it is None or given to itself."""
    last = last_store(code, name, after, until)
    steps = [each for each in steps_of(code) if each.opname not in ("TO_BOOL", "COPY")]
    for i, each in enumerate(steps):
        if last is None or not after < each.offset < last or name not in moves(each)[0]:
            continue
        following = steps[i + 1:i + 3]
        asked = "JUMP" in following[0].opname or any(one.opname == "IS_OP" for one in following)
        if not asked and name not in moves(following[0])[1]:
            return True
    return False


def loaded(code: CodeType, name: str, after: int, until: int | None = None) -> int | None:
    """The line where `name` is loaded before it is stored again, on some way from the instruction after an offset; None if it is not.

    With `until` the ways end after that offset. Functions inside this one are not read.
    """
    steps = steps_of(code)
    place = {each.offset: i for i, each in enumerate(steps)}
    waiting = [i for i, each in enumerate(steps) if each.offset > after][:1]
    seen: set[int] = set()
    while waiting:
        i = waiting.pop()
        if i in seen or i >= len(steps) or steps[i].offset <= after or (until is not None and steps[i].offset > until):
            continue
        seen.add(i)
        each = steps[i]
        loads, stores = moves(each)
        if name in loads:
            return line_at(code, each.offset) or code.co_firstlineno
        if name in stores:
            continue
        if each.opcode in _JUMPS:
            waiting.append(place[each.argval])
        if each.opname not in LEAVES:
            waiting.append(i + 1)
    return None


def moves(instruction: dis.Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(names loaded, names stored) of an instruction. One instruction may do two of these, the first name first."""
    word, value = instruction.opname, instruction.argval
    names = tuple(value) if isinstance(value, tuple) else (str(value),)
    if word == "STORE_FAST_LOAD_FAST":
        return names[1:], names[:1]
    if (word.startswith("LOAD_FAST") and word != "LOAD_FAST_AND_CLEAR") or word in ("LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME"):
        return names, ()
    if word.startswith("STORE_") and not word.startswith(("STORE_SUBSCR", "STORE_ATTR", "STORE_SLICE")):
        return (), names
    return (), names if word == "DELETE_FAST" else ()


def closed_over(code: CodeType, name: str, after: int, until: int) -> int | None:
    """The line between two offsets where a function inside this one is made that uses a name; None if there is none."""
    at = next((each.offset for each in steps_of(code)
               if after < each.offset < until and each.opname == "LOAD_CLOSURE" and each.argval == name), None)
    return None if at is None else line_at(code, at)


def loads_between(code: CodeType, after: int, until: int) -> set[str]:
    """The names and attributes that are loaded between two offsets."""
    between = [each for each in steps_of(code) if after < each.offset < until]
    return {name for each in between for name in moves(each)[0]} | {
        each.argval for each in between if each.opname in ("LOAD_ATTR", "LOAD_METHOD")}


def augmented(steps: list[dis.Instruction], i: int, name: str) -> bool:
    """Whether the instruction loads a name for `name += ...`."""
    for at in range(i + 1, min(len(steps), i + 16)):
        loads, stores = moves(steps[at])
        if name in stores or name in loads:
            return name in stores and steps[at - 1].opname == "BINARY_OP" and steps[at - 1].argrepr.endswith("=")
    return False


def last_store(code: CodeType, name: str, after: int, until: int) -> int | None:
    """The offset of the last assignment to a name between two offsets."""
    return max((each.offset for each in steps_of(code) if after < each.offset < until and name in moves(each)[1]), default=None)


@lru_cache(maxsize=128)
def _stores(code: CodeType) -> dict[str, list[int]]:
    """The offsets of the assignments to each name."""
    found: dict[str, list[int]] = {}
    for each in steps_of(code):
        if "STORE_" in each.opname:
            for name in moves(each)[1]:
                found.setdefault(name, []).append(each.offset)
    return found


def stored_outside(code: CodeType, name: str, after: int, until: int) -> bool:
    """Whether a local name is a parameter, or is assigned somewhere that is not between two offsets."""
    return name in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount] or any(
        not after < at < until for at in _stores(code).get(name, ()))


@lru_cache(maxsize=256)
def globals_stored(code: CodeType) -> tuple[str, ...]:
    """The global names that a function, or one inside it, assigns."""
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in globals_stored(each)]
    return (*(each.argval for each in steps_of(code) if each.opname == "STORE_GLOBAL"), *inner) if code.co_names else (*inner,)


def left_early(code: CodeType, begin: int, at: int) -> bool:
    """Whether `return`, `break` or `continue` ends a `with` body, and passes over what stands after it.

    `begin` and `at` are the places of the calls of `__enter__` and `__exit__`: one place in a frame that only calls the code with the
    `with`, and so cannot leave it. After an exception that `__exit__` swallows the code goes on behind the `with`: to that way the one that
    was taken is compared.
    """
    if begin == at:
        return False
    text = code.co_code
    here = _decoded(text, at)[2] + 2                 # after the POP_TOP of what `__exit__` returns
    if here >= len(text) or text[here] not in _LEAVING:
        return False                                 # the usual way, without a look at the rest
    found = _left.get((id(code), at))
    if found is None or found[0] is not code:
        found = _left[id(code), at] = code, _passes_over(code, begin, at)
    return found[1]


def _passes_over(code: CodeType, begin: int, at: int) -> bool:
    text = code.co_code
    body = _decoded(text, begin)[2]
    handlers = [entry for entry in dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
                if entry.start <= body < entry.end]
    if not handlers:
        return False
    i = min(handlers, key=lambda entry: entry.end - entry.start).target
    words, argument = list[str](), 0
    while not (words and words[-1].endswith("IF_TRUE")):
        opcode, argument, i = _decoded(text, i)
        words.append(dis.opname[opcode])
        if len(words) > 6 or opcode in _UNCONDITIONAL:
            return False
    if "WITH_EXCEPT_START" not in words:
        return False
    usual = i + 2 * argument                         # where an exception that was swallowed goes on
    while dis.opname[text[usual]] in ("POP_TOP", "POP_EXCEPT", "NOT_TAKEN"):
        usual = _decoded(text, usual)[2]
    return _parts(text, usual, _decoded(text, _decoded(text, at)[2])[2])


def _parts(text: bytes, one: int, other: int) -> bool:
    """Whether two ways part before both return or meet."""
    for _ in range(200):
        one, other = _onward(text, one), _onward(text, other)
        if one == other:
            return False
        (first, _, after), (second, _, then) = _decoded(text, one), _decoded(text, other)
        if first in _RETURNS and second in _RETURNS:
            return False
        if first != second or first not in _SAME:
            return True
        one, other = after, then
    return True


def _onward(text: bytes, i: int) -> int:
    """The first instruction from here on that is no jump and does not only prepare another."""
    while True:
        opcode, argument, after = _decoded(text, i)
        if opcode in _FORWARD:
            i = after + 2 * argument
        elif opcode in _BACKWARD:
            i = after - 2 * argument
        elif opcode in _PREPARES:
            i = after
        else:
            return i


def _decoded(text: bytes, i: int) -> tuple[int, int, int]:
    """(opcode, argument, the place of the next instruction)."""
    opcode, argument = text[i], text[i + 1]
    i += 2
    while opcode == dis.EXTENDED_ARG:
        opcode, argument = text[i], argument << 8 | text[i + 1]
        i += 2
    while i < len(text) and not text[i]:
        i += 2                                       # caches
    return opcode, argument, i


__all__ = ["augmented", "closed_over", "globals_stored", "last_store", "left_early", "loaded", "loads_between", "local", "moves", "runs_on",
           "steps_of", "stored_outside", "targets"]
