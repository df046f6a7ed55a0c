"""Describes where user code issued an operation: `module:function:line:column`.

If that is in a helper function, the call sites of its callers follow, the nearest first, separated by `|`: one line of a
helper is another call site for each of its callers. The chain ends where the run, or a task of it, begins.
"""

from __future__ import annotations

import itertools
import sys
from types import CodeType, FrameType

_LIBRARY_PACKAGES = ("asyncio", "romancy", "contextlib", "anyio")
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_MOST_CALLERS = 6
_KNOWN_LIMIT = 10_000
_USER_CODE, _COMPREHENSION, _LIBRARY_CODE, _RUN_BOUNDARY = range(4)
_known: dict[tuple[int, int], str] = {}
"""Descriptions by the id of the code object and the offset: hashing a code object takes as long as the rest."""
_kinds: dict[int, int] = {}
"""The kind of code by the id of its code object. `_RUN_BOUNDARY` is the loop that runs tasks: no workflow calls it."""
_known_codes: dict[int, CodeType] = {}
"""The code objects of the ids above: as long as they are referenced, no other object gets their ids."""


def call_site(depth: int) -> str:
    """The call site of the nearest caller in user code, `depth` frames up or further, and those of its callers."""
    caller = sys._getframe(depth)
    outer = caller.f_back
    if outer is not None and _kinds.get(id(outer.f_code)) == _RUN_BOUNDARY:
        site = _known.get((id(caller.f_code), caller.f_lasti))
        if site is not None:
            return site  # the common case: issued by the workflow function itself (`_known` has user code only)
    return _chain(caller)


def _chain(caller: FrameType) -> str:
    found: list[str] = []
    before = _LIBRARY_CODE
    frame: FrameType | None = caller
    while frame is not None and len(found) <= _MOST_CALLERS:
        kind = _kinds.get(id(frame.f_code))
        if kind is None:
            kind = _kind(frame)
        if kind == _RUN_BOUNDARY:
            return "|".join(found)
        if kind != _LIBRARY_CODE:
            if before != _COMPREHENSION:  # the function around a comprehension is not a caller of it
                found.append(_known.get((id(frame.f_code), frame.f_lasti)) or _user_site(frame))
            before = kind
        frame = frame.f_back
    if frame is not None:
        return "|".join(found)
    return found[0] if found else ""  # not in a run: the callers do not matter


def _kind(frame: FrameType) -> int:
    kind = _classify(frame)
    _kinds[_remember_code(frame.f_code)] = kind
    return kind


def _remember_code(code: CodeType) -> int:
    if len(_known_codes) >= _KNOWN_LIMIT or len(_known) >= _KNOWN_LIMIT:
        _known.clear()
        _kinds.clear()
        _known_codes.clear()
    _known_codes[id(code)] = code
    return id(code)


def _classify(frame: FrameType) -> int:
    module: str = frame.f_globals.get("__name__", "")
    name = frame.f_code.co_name
    if module == "romancy.core.loop" and name == "_drain":
        return _RUN_BOUNDARY
    if module.partition(".")[0] in _LIBRARY_PACKAGES and not module.startswith(("romancy.demo", "romancy.testing")):
        return _LIBRARY_CODE
    return _COMPREHENSION if name in _COMPREHENSIONS else _USER_CODE


def _user_site(frame: FrameType) -> str:
    site = _describe(frame)
    _known[_remember_code(frame.f_code), frame.f_lasti] = site
    return site


def _describe(frame: FrameType) -> str:
    code = frame.f_code
    position = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), None)
    column = position[2] if position is not None and position[2] is not None else 0
    return f"{frame.f_globals.get('__name__', '?')}:{code.co_qualname}:{frame.f_lineno}:{column + 1}"
