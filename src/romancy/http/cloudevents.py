"""CloudEvents 1.0 over HTTP: parses the headers and the body of a request into `Event` records.

    content type application/cloudevents+json         structured: one event, in the body
                 application/json                     the same, if the body has `specversion`
                 application/cloudevents-batch+json   batch: an array of events
                 anything else, with ce-* headers     binary: attributes in headers, data in the body

Parsing is strict, because an accepted event can no longer be refused: whatever the specification forbids is answered with
an error that tells the sender what to correct. The official Python SDK is not used: it accepts unknown versions of the
specification, duplicate keys, NaN, broken percent-encoding and invalid JSON (as text), and does not support batches. The
tests send events with it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote_to_bytes

from romancy.http import strict_json
from romancy.http.problems import BodyTooLargeError, MalformedEventError, UnsupportedContentTypeError
from romancy.model.messaging import TARGET, Event

MAX_BATCH = 1000
"""The maximum number of events in a batch: a batch is stored in one transaction, and delays all others."""
MAX_KEY = 1024
"""The maximum size in bytes of an indexed attribute: source and id together must fit into an index of every database."""
MAX_TEXT = 8192
"""The maximum size in bytes of any other attribute."""
MAX_EXTENSIONS = 200
"""The maximum number of extensions of an event."""

_KEYS = ("id", "source", "type", "subject", TARGET)
_REQUIRED = ("id", "source", "type")
_OPTIONAL = ("subject", "time", "datacontenttype", "dataschema")
_CORE = {"specversion", *_REQUIRED, *_OPTIONAL}
_BODY = ("data", "data_base64")

_NAME = re.compile(r"[a-z0-9]{1,64}")
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_MEDIA_TYPE = re.compile(r"[!#$%&'*+.^_`|~\w-]+/[!#$%&'*+.^_`|~\w-]+(?:[ \t]*;.*)?", re.ASCII)
_JSON = re.compile(r"[^/;]+/(?:[^;]+\+)?json[ \t]*(?:;|$)", re.IGNORECASE)
_CHARSET = re.compile(r';[ \t]*charset[ \t]*=[ \t]*"?([^";\s]+)', re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.IGNORECASE | re.ASCII)
_BROKEN_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_QUOTED_PAIR = re.compile(rb"\\(.)", re.DOTALL)
_HOW = (
    "Send a CloudEvent: the event as JSON with `Content-Type: application/cloudevents+json`, several of them with "
    "`application/cloudevents-batch+json`, or its data in the body and its attributes in ce-* headers."
)


def parse(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> list[Event]:
    """Return the events of a request.

    Raises `MalformedEventError`, `UnsupportedContentTypeError`, `BodyTooLargeError`.
    """
    headers = [(name.lower(), value) for name, value in headers]
    content_type = _content_type(headers)
    match content_type.partition(";")[0].strip().lower():
        case "application/cloudevents+json":
            _check_charset(content_type)
            return [_structured(_read(body, "The event"))]
        case "application/cloudevents-batch+json":
            _check_charset(content_type)
            return _batch(_read(body, "The batch"))
        case media if media.startswith("application/cloudevents"):
            raise UnsupportedContentTypeError(f"The content type {media!a} is not supported. {_HOW}")
        case media if any(name.startswith(b"ce-") for name, _ in headers):
            return [_binary(headers, content_type, body)]
        case "application/json" if (value := _read_event(body)) is not None:
            _check_charset(content_type)
            return [_structured(value)]
        case media:
            raise UnsupportedContentTypeError(f"The content type {media!a} does not indicate an event. {_HOW}")


# --- the three modes


def _structured(value: Any) -> Event:
    if not isinstance(value, dict):
        raise MalformedEventError(f"An event must be a JSON object, not {_kind(value)}.")
    if all(name in value for name in _BODY):
        raise MalformedEventError("An event can have either data or data_base64, not both.")
    attributes = {name: each for name, each in value.items() if name not in _BODY and each is not None}
    data, binary = _embedded(value, attributes.get("datacontenttype"))
    return _event(attributes, data, binary)


def _read_event(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in the body if it has `specversion`: many senders support only application/json."""
    try:
        value = strict_json.read(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "specversion" in value else None


def _batch(value: Any) -> list[Event]:
    if not isinstance(value, list):
        raise MalformedEventError(f"A batch must be a JSON array of events, not {_kind(value)}.")
    if len(value) > MAX_BATCH:
        raise BodyTooLargeError(f"A batch can have at most {MAX_BATCH} events, but this one has {len(value)}: split it.")
    return list(_numbered(value))


def _numbered(values: list[Any]) -> Iterator[Event]:
    for number, value in enumerate(values, 1):
        try:
            yield _structured(value)
        except MalformedEventError as problem:
            raise MalformedEventError(f"Event {number} of the batch: {problem}") from problem


def _binary(headers: list[tuple[bytes, bytes]], content_type: str, body: bytes) -> Event:
    attributes = dict[str, Any]()
    for name, value in _attribute_headers(headers):
        if name in attributes:
            raise MalformedEventError(f"The header ce-{name} appears twice.")
        attributes[name] = _header_text(f"ce-{name}", value)
    if content_type:
        attributes["datacontenttype"] = content_type
    if _JSON.match(content_type):
        _check_charset(content_type)
        return _event(attributes, _normalised(body), False)
    return _event(attributes, body or None, True)


def _attribute_headers(headers: list[tuple[bytes, bytes]]) -> Iterator[tuple[str, bytes]]:
    for header, value in headers:
        if not header.startswith(b"ce-"):
            continue
        name = header[3:].decode("latin-1")
        if name == "datacontenttype" or name in _BODY:
            raise MalformedEventError(
                f"The header ce-{name} is not allowed: send the content type in Content-Type, and the data in the body."
            )
        yield name, value


# --- data


def _embedded(value: Mapping[str, Any], content_type: Any) -> tuple[bytes | None, bool]:
    """Return the data of a structured event, and whether it is binary and not JSON."""
    if "data" in value:
        return _write(value["data"]), False
    if value.get("data_base64") is None:
        return None, False
    raw = _from_base64(value["data_base64"])
    if isinstance(content_type, str) and _JSON.match(content_type):
        return _normalised(raw), False
    return raw, True


def _from_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "=", validate=True)
    except ValueError as error:  # binascii.Error is a subclass; a string with other characters than ASCII raises this itself
        raise MalformedEventError("data_base64 is not valid base64 (with the standard alphabet and padding).") from error


def _normalised(raw: bytes) -> bytes | None:
    return _write(_read(raw, "data")) if raw else None


def _read(raw: bytes, what: str) -> Any:
    try:
        return strict_json.read(raw)
    except ValueError as error:
        raise MalformedEventError(f"{what} cannot be read: {error}.") from error


def _write(value: Any) -> bytes:
    try:
        return strict_json.write(value)
    except ValueError as error:
        raise MalformedEventError(f"data cannot be read: {error}.") from error


# --- attributes


def _event(attributes: Mapping[str, Any], data: bytes | None, binary: bool) -> Event:
    """Check every attribute, and return the event."""
    if attributes.get("specversion") != "1.0":
        raise MalformedEventError(f'specversion must be "1.0", but is {_describe(attributes.get("specversion"))}.')
    for name in _REQUIRED:
        if name not in attributes:
            raise MalformedEventError(f"The attribute {name} is missing.")
    texts = {name: _text(name, attributes[name]) for name in (*_REQUIRED, *_OPTIONAL) if name in attributes}
    _check_time(texts.get("time"))
    _check_media_type(texts.get("datacontenttype"))
    others = {name: value for name, value in attributes.items() if name not in _CORE}
    if len(others) > MAX_EXTENSIONS:
        raise MalformedEventError(f"An event can have at most {MAX_EXTENSIONS} extensions, but this one has {len(others)}.")
    extensions = {name: _extension(name, value) for name, value in others.items()}
    return Event(
        id=texts["id"],
        source=texts["source"],
        type=texts["type"],
        data=data,
        binary=binary and data is not None,
        subject=texts.get("subject"),
        time=texts.get("time"),
        datacontenttype=texts.get("datacontenttype"),
        dataschema=texts.get("dataschema"),
        extensions=extensions,
    )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise MalformedEventError(f"The attribute {name} must be a non-empty string, but is {_describe(value)}.")
    return _bounded(name, value)


def _bounded(name: str, value: str) -> str:
    found = _FORBIDDEN.search(value)
    if found:
        raise MalformedEventError(f"The attribute {name} contains U+{ord(found[0]):04X}, which is not allowed.")
    limit = MAX_KEY if name in _KEYS else MAX_TEXT
    if len(value.encode()) > limit:
        raise MalformedEventError(f"The attribute {name} is longer than {limit} bytes.")
    return value


def _extension(name: str, value: Any) -> str | int | bool:
    if not _NAME.fullmatch(name):
        raise MalformedEventError(f"{name[:100]!a} is not an attribute name: use up to 64 lower-case letters and digits.")
    if name == TARGET:
        return _text(name, value)
    if isinstance(value, str):
        return _bounded(name, value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    raise MalformedEventError(f"The extension {name} must be a string, an integer or a boolean, but is {_describe(value)}.")


def _check_time(time: str | None) -> None:
    if time is None:
        return
    try:
        datetime.fromisoformat(time.upper() if _TIME.fullmatch(time) else "")
    except ValueError as error:
        raise MalformedEventError(
            f"The attribute time must be as in 2026-01-31T12:00:00Z (RFC 3339), but is {_describe(time)}."
        ) from error


def _check_media_type(content_type: str | None) -> None:
    if content_type is not None and not _MEDIA_TYPE.fullmatch(content_type):
        raise MalformedEventError(f"datacontenttype must be a media type, but is {_describe(content_type)}.")


# --- headers


def _content_type(headers: list[tuple[bytes, bytes]]) -> str:
    found = [value for name, value in headers if name == b"content-type"]
    if len(found) > 1:
        raise MalformedEventError("The header Content-Type appears twice.")
    return found[0].decode("latin-1").strip() if found else ""


def _check_charset(content_type: str) -> None:
    charset = _CHARSET.search(content_type)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedContentTypeError(f"JSON must be in UTF-8; the charset {charset[1][:40]!a} is not supported.")


def _header_text(name: str, raw: bytes) -> str:
    """Return the text that a header value encodes: quotes are removed, then the rest is percent-decoded, once."""
    raw = raw.strip()
    if len(raw) > 1 and raw[:1] == raw[-1:] == b'"':
        raw = _QUOTED_PAIR.sub(rb"\1", raw[1:-1])
    if _BROKEN_PERCENT.search(raw):
        raise MalformedEventError(f"{name} has a percent sign without two hexadecimal digits: encode a percent sign as %25.")
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedEventError(f"{name} is not UTF-8.") from error


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "an object")


_KINDS = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}


def _describe(value: Any) -> str:
    return f"{value[:100]!a}" if isinstance(value, str) else _kind(value) if value is not None else "missing"
