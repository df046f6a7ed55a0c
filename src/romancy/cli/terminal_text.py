"""Text for terminals. Stored text comes from users, so it must not control the terminal."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from romancy.clock import SystemClock, to_micros

# Control characters could control the terminal; direction marks could make a text look like another one, and so could
# invisible characters.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_LONG = 200


def escape(value: object) -> str:
    """Escape the unsafe characters of a text."""
    return _UNSAFE.sub(_escaped, str(value))


def escape_lines(value: object) -> str:
    """Escape the unsafe characters of a text, except for its line breaks."""
    return "\n".join(escape(line) for line in str(value).splitlines())


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shorten(text: str, most: int = _LONG) -> str:
    """Truncate a text, so that it fits into one line."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def compact(value: Any) -> str:
    """Return a value as JSON in one line, truncated if it is long."""
    return shorten(json.dumps(value))


def format_age(when: datetime | None) -> str:
    """Format the time since or until a moment: `5 s`, `3 h`, `in 2 d`."""
    if when is None:
        return ""
    seconds = (SystemClock().now() - to_micros(when)) / 1_000_000
    return f"in {format_duration(-seconds)}" if seconds < -1 else format_duration(max(0.0, seconds))


def format_duration(seconds: float | None) -> str:
    """Format a duration in its largest unit."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def format_time(when: datetime | None) -> str:
    """Format a time in UTC, to the second."""
    return "" if when is None else when.strftime("%Y-%m-%d %H:%M:%S")
