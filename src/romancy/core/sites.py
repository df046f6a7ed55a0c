"""Where in the user's code an operation was asked for: `module:function:line:column`.

In a helper, its callers follow, the nearest first, with `|` between them: the same line of a helper is another place in each
of its calls. The chain ends where the run, or a task of it, begins.
"""

from __future__ import annotations

import itertools
import sys
from types import CodeType, FrameType

_INSIDE = ("asyncio", "romancy", "contextlib", "anyio")
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_known: dict[tuple[CodeType, int], str] = {}
_KNOWN_LIMIT = 10_000
_MOST_CALLERS = 6
_beginnings: set[CodeType] = set()
"""The code of the loop that runs tasks: above it is no workflow."""


def call_site(depth: int) -> str:
    """The place of the nearest caller that is the user's, `depth` frames up or further, and of its callers."""
    caller = sys._getframe(depth)
    outer = caller.f_back
    if outer is not None and outer.f_code in _beginnings:
        site = _known.get((caller.f_code, caller.f_lasti))
        if site is not None:
            return site  # the common case: asked for by the workflow itself, and only the user's own places are known
    return _chain(caller)


def _chain(frame: FrameType | None) -> str:
    found: list[str] = []
    comprehension = False
    while frame is not None and not _begins(frame) and len(found) <= _MOST_CALLERS:
        if not _is_inside(frame):
            if not comprehension:  # what surrounds a comprehension is no caller of it
                found.append(_place(frame))
            comprehension = frame.f_code.co_name in _COMPREHENSIONS
        frame = frame.f_back
    if frame is None:
        return found[0] if found else ""  # not in a run: who has called is not of interest
    return "|".join(found)


def _begins(frame: FrameType) -> bool:
    if frame.f_code in _beginnings:
        return True
    if frame.f_code.co_name == "_drain" and frame.f_globals.get("__name__") == "romancy.core.loop":
        _beginnings.add(frame.f_code)
        return True
    return False


def _is_inside(frame: FrameType) -> bool:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] in _INSIDE and not name.startswith(("romancy.demo", "romancy.testing"))


def _place(frame: FrameType) -> str:
    key = (frame.f_code, frame.f_lasti)
    site = _known.get(key)
    if site is None:
        if len(_known) >= _KNOWN_LIMIT:
            _known.clear()
        site = _known[key] = _describe(frame)
    return site


def _describe(frame: FrameType) -> str:
    code = frame.f_code
    position = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), None)
    column = position[2] if position is not None and position[2] is not None else 0
    return f"{frame.f_globals.get('__name__', '?')}:{code.co_qualname}:{frame.f_lineno}:{column + 1}"
