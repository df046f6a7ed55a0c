"""The formats in which brokers send events, and checks and texts that the brokers share.

structured   the whole event as JSON
binary       the data as the body, all other attributes in headers
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
# A header may contain all printable ASCII characters except the space, the quotation mark and the percent sign.
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def check_mode(mode: Mode, broker: str) -> Mode:
    """Return the mode. Raises `ConfigurationError` for any other value."""
    if mode not in ("structured", "binary"):
        raise ConfigurationError(f'{broker}(mode={mode!r}): give "structured" or "binary".')
    return mode


def structured(event: Event) -> bytes:
    """Return the whole event in the JSON format of CloudEvents."""
    return event_json(event)


def attributes(event: Event) -> dict[str, str]:
    """Return the event's attributes and extensions as strings, without its data and the type of its data."""
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
    """Return the media type of the event's data; None if it has no data."""
    if event.datacontenttype is not None or event.data is None:
        return event.datacontenttype
    return "application/octet-stream" if event.binary else "application/json"


def quoted(text: str) -> str:
    """Percent-encode a text for a header."""
    return quote(text, safe=_SAFE)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- arguments and error texts

_MAX_ERROR_TEXT = 200
"""The number of characters of a receiver's text that an error shows."""


def positive(broker: str, name: str, value: Any, *, whole: bool = False) -> Any:
    """Return a number above 0. Raises `ConfigurationError` for any other value."""
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < float("inf"):
        raise ConfigurationError(f"{broker}({name}={value!r}): give a {'whole ' if whole else ''}number greater than 0.")
    return value


def sanitize(text: str, secrets: Iterable[str] = ()) -> str:
    """Shorten a text from the receiver to one line, without secrets that it may repeat."""
    for secret in secrets:
        text = text.replace(secret, "***")
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= _MAX_ERROR_TEXT else f"{line[:_MAX_ERROR_TEXT]}..."


def describe_error(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return the type of an error, and its text if it has one."""
    text = sanitize(str(error), secrets)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
