"""An event as it travels, and what the brokers have in common.

structured   the whole event as JSON
binary       its data as they are, everything else in headers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from romancy.errors import ConfigurationError
from romancy.model.messaging import Event
from romancy.serde.messaging import event_json

Mode: TypeAlias = Literal["structured", "binary"]
STRUCTURED = "application/cloudevents+json; charset=UTF-8"
# Everything printable in ASCII but the space, the quote and the percent sign may stand in a header.
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def check_mode(mode: Mode, broker: str) -> Mode:
    """One of the two."""
    if mode not in ("structured", "binary"):
        raise ConfigurationError(f'{broker}(mode={mode!r}): give "structured" or "binary".')
    return mode


def structured(event: Event) -> bytes:
    """The whole event in the JSON format of CloudEvents."""
    return event_json(event)


def attributes(event: Event) -> dict[str, str]:
    """Everything but the data and their type, as text."""
    named: dict[str, str | int | bool | None] = {
        "specversion": event.specversion,
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": event.time,
        "dataschema": event.dataschema,
    }
    every: Mapping[str, str | int | bool | None] = {**named, **event.extensions}
    return {name: _text(value) for name, value in every.items() if value is not None}


def content_type(event: Event) -> str | None:
    """What kind of data the event has, if it has any."""
    if event.datacontenttype is not None or event.data is None:
        return event.datacontenttype
    return "application/octet-stream" if event.binary else "application/json"


def quoted(text: str) -> str:
    """A text as it may stand in a header."""
    return quote(text, safe=_SAFE)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- what may be given, and shown

_MAX_ERROR_TEXT = 200
"""Characters of what the other side said that an error shows."""


def positive(broker: str, name: str, value: Any, *, whole: bool = False) -> Any:
    """A number above 0."""
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < float("inf"):
        raise ConfigurationError(f"{broker}({name}={value!r}): give a {'whole ' if whole else ''}number above 0.")
    return value


def sanitize(text: str, secrets: Iterable[str] = ()) -> str:
    """What the other side said, on one line, without our own secrets if it repeats them."""
    for secret in secrets:
        text = text.replace(secret, "***")
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= _MAX_ERROR_TEXT else f"{line[:_MAX_ERROR_TEXT]}..."


def describe_error(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """The kind of an error, and its text if it has one."""
    text = sanitize(str(error), secrets)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
