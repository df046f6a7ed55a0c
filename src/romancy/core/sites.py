"""Where in the user's code an operation was asked for: `module:function:line:column`."""

from __future__ import annotations

import itertools
import sys
from types import CodeType, FrameType

_INSIDE = ("asyncio", "romancy", "contextlib", "anyio")
_known: dict[tuple[CodeType, int], str] = {}
_KNOWN_LIMIT = 10_000


def call_site(depth: int) -> str:
    """The place of the nearest caller that is the user's, `depth` frames up or further."""
    caller = sys._getframe(depth)
    site = _known.get((caller.f_code, caller.f_lasti))
    if site is not None:
        return site  # the common case: only the user's own places are known
    frame: FrameType | None = caller
    while frame is not None and _is_inside(frame):
        frame = frame.f_back
    if frame is None:
        return ""
    key = (frame.f_code, frame.f_lasti)
    site = _known.get(key)
    if site is None:
        if len(_known) >= _KNOWN_LIMIT:
            _known.clear()
        site = _known[key] = _describe(frame)
    return site


def _is_inside(frame: FrameType) -> bool:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] in _INSIDE and not name.startswith(("romancy.demo", "romancy.testing"))


def _describe(frame: FrameType) -> str:
    code = frame.f_code
    position = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), None)
    column = position[2] if position is not None and position[2] is not None else 0
    return f"{frame.f_globals.get('__name__', '?')}:{code.co_qualname}:{frame.f_lineno}:{column + 1}"
