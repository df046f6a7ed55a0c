"""Users' texts on a page: always shown, never obeyed."""

from __future__ import annotations

import re

from markupsafe import Markup as Markup

_UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_BREAKS = re.compile(r"[\t\n]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
LINE = 300
"""Characters of a text that stands in a line."""


def visible(text: str) -> str:
    """With escapes for what cannot be seen: control characters, marks that turn the direction, halves of characters."""
    return _UNSEEN.sub(_code, text)


def escaped(json: str) -> str:
    """JSON text with the escapes of JSON for what cannot be seen: it stays the same value."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", json)


def line(text: object, limit: int = LINE) -> Markup:
    """A text in a line of its own direction, cut if it is long."""
    whole = str(text)
    shown = _BREAKS.sub(_code, visible(whole[:limit]))
    rest = Markup('<span class="cut">… {:,} characters</span>').format(len(whole)) if len(whole) > limit else ""
    return Markup("<bdi>{}</bdi>{}").format(shown, rest)


def block(text: object, limit: int = 64 * 1024) -> Markup:
    """A text of several lines."""
    whole = str(text)
    rest = Markup('\n<span class="cut">… {:,} characters in all</span>').format(len(whole)) if len(whole) > limit else ""
    return Markup("{}{}").format(visible(whole[:limit]), rest)


def attribute(text: object, limit: int = LINE) -> str:
    """A text for a label or a tooltip, where no markup can keep its direction apart."""
    whole = str(text)
    shown = _BREAKS.sub(" ", visible(whole[:limit]))
    return f"{shown}…" if len(whole) > limit else shown


def _code(found: re.Match[str]) -> str:
    char = found.group()
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")
