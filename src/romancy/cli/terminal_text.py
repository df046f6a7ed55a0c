"""Texts for a terminal: nothing that users stored may steer it."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from romancy.clock import SystemClock, to_micros

# Control characters steer a terminal; those that change the direction of text make it show something else than it holds.
# And some cannot be seen, so that two texts look like one.
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_LONG = 200


def escape(value: object) -> str:
    """A text as it can be shown: what would steer the terminal is written as an escape."""
    return _STEERING.sub(_escaped, str(value))


def escape_lines(value: object) -> str:
    """The same for a text of several lines."""
    return "\n".join(escape(line) for line in str(value).splitlines())


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shorten(text: str, most: int = _LONG) -> str:
    """A text that fits into a line."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def compact(value: Any) -> str:
    """A value in one line."""
    return shorten(json.dumps(value))


def format_age(when: datetime | None) -> str:
    """How long ago, or in what time: `5 s`, `3 h`, `in 2 d`."""
    if when is None:
        return ""
    seconds = (SystemClock().now() - to_micros(when)) / 1_000_000
    return f"in {format_duration(-seconds)}" if seconds < -1 else format_duration(max(0.0, seconds))


def format_duration(seconds: float | None) -> str:
    """A duration in its largest unit."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def format_time(when: datetime | None) -> str:
    """A time to the second, UTC."""
    return "" if when is None else when.strftime("%Y-%m-%d %H:%M:%S")
