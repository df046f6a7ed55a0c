"""JSON as markup: exact, escaped, folded below two levels, and truncated if it is long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from romancy.viewer.html_text import Markup, escaped

LIMIT = 64 * 1024
"""Most characters of a value that are shown."""
_OPEN = 2
"""Levels that are initially open."""
_DEEP = 60
"""Levels that are shown as a tree; deeper values are shown as text."""


@dataclass(frozen=True, slots=True)
class RenderedValue:
    """A value as markup."""

    markup: Markup
    cut: bool
    length: int
    """Length of the full value, in characters of JSON."""


def show(value: Any, limit: int = LIMIT) -> RenderedValue:
    """Render a value as markup."""
    drawing = _ValueRenderer(limit)
    markup = Markup("").join(drawing.value(value, 0))
    return RenderedValue(markup, drawing.left < 0, len(plain(value)) if drawing.left < 0 else limit - drawing.left)


def plain(value: Any, indent: int | None = None) -> str:
    """Return the JSON text of a value. Lone surrogates are escaped, because they cannot be encoded."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return json.dumps(value, indent=indent, default=str) if any("\ud800" <= char <= "\udfff" for char in text) else text


class _ValueRenderer:
    def __init__(self, limit: int) -> None:
        self.left = limit

    def value(self, value: Any, depth: int) -> Iterator[Markup]:
        if self.left < 0:
            yield Markup('<span class="cut">…</span>')
        elif isinstance(value, dict) and value and depth < _DEEP:
            fields = ((self._key(key), one) for key, one in value.items())
            yield from self._many(fields, "{}", f"{len(value):,} field{'s' if len(value) != 1 else ''}", depth)
        elif isinstance(value, list | tuple) and value and depth < _DEEP:
            items = ((Markup(""), one) for one in value)
            yield from self._many(items, "[]", f"{len(value):,} item{'s' if len(value) != 1 else ''}", depth)
        else:
            yield self._leaf(value)

    def _many(self, parts: Iterator[tuple[Markup, Any]], pair: str, size: str, depth: int) -> Iterator[Markup]:
        opened = Markup(" open") if depth < _OPEN else ""
        yield Markup('<details class="json"{}><summary>{}<span class="fold">{}</span>{}</summary><ul>').format(
            opened, pair[0], size, pair[1]
        )
        for head, value in parts:
            yield Markup("<li>{}").format(head)
            yield from self.value(value, depth + 1)
            yield Markup("</li>")
            if self.left < 0:
                break
        yield Markup("</ul></details>")

    def _key(self, key: Any) -> Markup:
        text = self._consume(plain(str(key)))
        return Markup('<bdi class="key">{}</bdi>: ').format(escaped(text))

    def _leaf(self, value: Any) -> Markup:
        kind = "text" if isinstance(value, str) else "word" if value is None or isinstance(value, bool) else "number"
        return Markup('<bdi class="{}">{}</bdi>').format(kind, escaped(self._consume(plain(value))))

    def _consume(self, text: str) -> str:
        room = max(self.left, 0)
        self.left -= len(text) + 2
        return text if len(text) <= room else text[:room] + "…"
