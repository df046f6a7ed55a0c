"""Escaping of text from users: hidden characters become visible, and nothing is interpreted as markup."""

from __future__ import annotations

import re

from markupsafe import Markup as Markup

_UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_BREAKS = re.compile(r"[\t\n]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
LINE = 300
"""Most characters of a text that is shown in one line."""


def visible(text: str) -> str:
    """Replace invisible characters by escapes: control characters, direction marks, lone surrogates."""
    return _UNSEEN.sub(_code, text)


def escaped(json: str) -> str:
    """Replace invisible characters in JSON text by JSON escapes, which keep the value the same."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", json)


def line(text: object, limit: int = LINE) -> Markup:
    """Return a text for one line, isolated from the direction of its surroundings, and truncated if it is long."""
    whole = str(text)
    shown = _BREAKS.sub(_code, visible(whole[:limit]))
    rest = Markup('<span class="cut">… ({:,} characters)</span>').format(len(whole)) if len(whole) > limit else ""
    return Markup("<bdi>{}</bdi>{}").format(shown, rest)


def block(text: object, limit: int = 64 * 1024) -> Markup:
    """Return a text of several lines, truncated if it is long."""
    whole = str(text)
    rest = Markup('\n<span class="cut">… ({:,} characters)</span>').format(len(whole)) if len(whole) > limit else ""
    return Markup("{}{}").format(visible(whole[:limit]), rest)


def attribute(text: object, limit: int = LINE) -> str:
    """Return a text for a label or a tooltip, where no markup can isolate its direction."""
    whole = str(text)
    shown = _BREAKS.sub(" ", visible(whole[:limit]))
    return f"{shown}…" if len(whole) > limit else shown


def _code(found: re.Match[str]) -> str:
    char = found.group()
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")
