"""Encodes events and messages as JSON, and decodes them.

An event is written in the JSON format of CloudEvents: its attributes and extensions side by side, its data as `data`, or as
`data_base64` if it is bytes. A message is written in a similar way. An event or a message that a workflow has consumed is
recorded in this form, and is read by the same function live and in a replay.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_core import from_json, to_json

from romancy.clock import to_datetime
from romancy.errors import PayloadError
from romancy.model.messaging import Event, Message, ReceivedEvent, ReceivedMessage
from romancy.serde.external import read_as
from romancy.serde.payload import complaint, without_order
from romancy.serde.schema import has_long_number

ATTRIBUTES = frozenset({"id", "source", "type", "specversion", "subject", "time", "datacontenttype", "dataschema"})
"""The attributes that CloudEvents defines; all other names are extensions."""
DATA, BASE64 = "data", "data_base64"

_MAX_DEPTH = 150
_NUMBERS = frozenset({int, bool, type(None)})
_BYTES = (bytes, bytearray, memoryview)
_SECRETS = (SecretStr, SecretBytes, Secret)


class EncodedData(NamedTuple):
    """The data of an event or a message as it is sent: JSON, or any bytes."""

    raw: bytes
    binary: bool
    ordered: bool = True
    """Equal values have equal bytes. False if there are sets, which are written in the order of their hashes."""


def external_data(value: Any, what: str) -> EncodedData:
    """Encode data to send: bytes as they are, any other value as pydantic's JSON.

    `what` is the name of the data in errors, such as "the data of event 'order.paid'". Raises `PayloadError` for a value
    that JSON cannot represent.
    """
    if isinstance(value, _BYTES):
        return EncodedData(bytes(value), binary=True)
    checker = _DataChecker()
    try:
        checker.check(value, 0)
        raw = to_json(value)
        if has_long_number(raw):
            from_json(raw)  # raises an error that describes the problem
        return EncodedData(raw, binary=False, ordered=checker.ordered)
    except _UnencodableError as error:
        path = "".join(f".{step}" for step in error.path)
        raise PayloadError(f"{what} cannot be stored: {path.removeprefix('.') or 'it'} {error.why}") from error
    except Exception as error:  # a user's serializer may raise anything
        raise PayloadError(f"{what} cannot be stored: {complaint(error)}") from error


class _UnencodableError(Exception):
    """JSON cannot represent the part of a value that is at `path`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[object] = []


class _DataChecker:
    """Finds values that pydantic would silently change in writing: NaN becomes null, a secret becomes asterisks."""

    def __init__(self) -> None:
        self.ordered = True

    def check(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind is str:
            if not value.isascii():
                _check_text(value)
        elif kind not in _NUMBERS:
            self._inside(value, depth)

    def _inside(self, value: Any, depth: int) -> None:
        if isinstance(value, float) and not math.isfinite(value):
            raise _UnencodableError(f"is {value}, which JSON cannot represent")
        if isinstance(value, _SECRETS):
            raise _UnencodableError(f"is a {type(value).__name__}: it would be sent as asterisks")
        if depth > _MAX_DEPTH:
            raise _UnencodableError(f"is nested deeper than {_MAX_DEPTH} levels, or contains itself")
        for step, part in self._parts(value):
            try:
                if step is None:
                    raise _UnencodableError('has the key None, which would be read back as "None"')
                if type(step) is str and not step.isascii():
                    _check_text(step)
                self.check(part, depth + 1)
            except _UnencodableError as error:
                error.path.insert(0, step if not isinstance(step, str) or step.isprintable() else repr(step))
                raise

    def _parts(self, value: Any) -> Any:
        parts: Any = value  # `value` itself would be narrowed to a collection of unknown types
        if isinstance(value, Mapping):
            return parts.items()
        if isinstance(value, list | tuple):
            return enumerate(parts)
        if isinstance(value, set | frozenset):
            self.ordered = False
            return (("(a member)", member) for member in parts)
        if isinstance(value, BaseModel):
            return {**value.__dict__, **(value.__pydantic_extra__ or {})}.items()
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
        return ()


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _UnencodableError("contains a lone surrogate, which UTF-8 cannot encode") from error


def digest_of(raw: bytes, *, ordered: bool = True) -> bytes:
    """Return a digest of the arguments of an effect or a store call: eight bytes, as for the arguments of an activity."""
    return blake2b(raw if ordered else without_order(raw), digest_size=8).digest()


# -- encoding ---------------------------------------------------------------------------------------------------------


def with_data(head: Mapping[str, Any], data: bytes | None, *, binary: bool) -> bytes:
    """Return a JSON object with data in it. JSON data is inserted as it is, without parsing, since it may be large."""
    if data is None:
        return to_json(head)
    if binary:
        return to_json({**head, BASE64: base64.b64encode(data).decode()})
    return b'%s,"%s":%s}' % (to_json(head)[:-1], DATA.encode(), data)


def event_json(event: Event) -> bytes:
    """Return an event in the JSON format of CloudEvents."""
    named = {
        "specversion": event.specversion,
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": event.time,
        "datacontenttype": event.datacontenttype,
        "dataschema": event.dataschema,
    }
    head = {name: value for name, value in named.items() if value is not None}
    return with_data({**head, **event.extensions}, event.data, binary=event.binary)


_EVENT_INPUT = b'{"$event":'


def event_input(event: Event) -> bytes:
    """Return the input of an instance that an event starts in a process without the workflow's code."""
    return _EVENT_INPUT + event_json(event) + b"}"


def event_of_input(raw: bytes) -> Event | None:
    """Return the event in an input that `event_input` wrote; None if it is an input of another kind."""
    return event_of(raw[len(_EVENT_INPUT) : -1]) if raw.startswith(_EVENT_INPUT) else None


def message_json(message: Message, created_at: int) -> bytes:
    """Return a message as JSON, with the time at which it was published (given in microseconds)."""
    head = {
        "id": message.id,
        "channel": message.channel,
        "sender": message.sender,
        "created_at": to_datetime(created_at).isoformat(),
        "metadata": from_json(message.metadata),
    }
    return with_data(head, message.data, binary=message.binary)


# -- decoding ---------------------------------------------------------------------------------------------------------


def event_of(raw: bytes) -> Event:
    """Decode an event in the JSON format of CloudEvents. Raises PayloadError if it is not in that format."""
    head, data, plain = _split_data(raw)
    named = {name: _attribute(head, name) for name in ATTRIBUTES}
    missing = [name for name in ("id", "source", "type") if not named[name]]
    if missing:
        raise PayloadError(f"the event has no {missing[0]}: CloudEvents requires id, source, type and specversion.")
    return Event(
        id=cast(str, named["id"]),
        source=cast(str, named["source"]),
        type=cast(str, named["type"]),
        data=to_json(data) if plain else cast(bytes | None, data),
        binary=not plain and data is not None,
        subject=named["subject"],
        time=named["time"],
        specversion=named["specversion"] or "1.0",
        datacontenttype=named["datacontenttype"],
        dataschema=named["dataschema"],
        extensions={name: _extension(name, value) for name, value in _extensions(head) if value is not None},
    )


def message_of(raw: bytes) -> Message:
    """Decode a message that `message_json` wrote."""
    head, data, plain = _split_data(raw)
    return Message(
        id=head["id"],
        channel=head["channel"],
        data=to_json(data) if plain else data,
        binary=not plain,
        metadata=to_json(head["metadata"]),
        sender=head["sender"],
    )


def received_event(raw: bytes, model: Any = None) -> ReceivedEvent[Any]:
    """Decode an event for the workflow that has consumed it. Raises PayloadError if its data does not fit the model."""
    head, data, plain = _split_data(raw)
    if model is not None:
        what = f"the data of event {head.get('type')!r} ({head.get('source')}, {head.get('id')})"
        data = read_as(model, data, plain=plain, what=what)
    return ReceivedEvent(
        id=head["id"],
        type=head["type"],
        source=head["source"],
        specversion=head["specversion"],
        subject=head.get("subject"),
        time=_time(head.get("time")),
        datacontenttype=head.get("datacontenttype"),
        dataschema=head.get("dataschema"),
        data=data,
        extensions=dict(_extensions(head)),
    )


def received_message(raw: bytes, model: Any = None) -> ReceivedMessage[Any]:
    """Decode a message for the workflow that has received it. Raises PayloadError if its data does not fit the model."""
    head, data, plain = _split_data(raw)
    if model is not None:
        what = f"the data of message {head.get('id')!r} of channel {head.get('channel')!r}"
        data = read_as(model, data, plain=plain, what=what)
    return ReceivedMessage(
        id=head["id"],
        channel=head["channel"],
        data=data,
        metadata=head["metadata"],
        sender_instance_id=head["sender"],
        created_at=datetime.fromisoformat(head["created_at"]),
    )


def _split_data(raw: bytes) -> tuple[dict[str, Any], Any, bool]:
    """Return the object without its data, the data, and whether the data is JSON (otherwise it is bytes or absent)."""
    try:
        head: Any = from_json(raw)
    except ValueError as error:
        raise PayloadError(f"this is not JSON: {error}") from error
    if not isinstance(head, dict):
        raise PayloadError("this is not a JSON object.")
    if BASE64 in head:
        return head, _decoded(head.pop(BASE64)), False
    plain = DATA in head
    return head, head.pop(DATA, None), plain


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise PayloadError(f"{BASE64} is not base64: {error}") from error


def _extensions(head: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in head.items() if name not in ATTRIBUTES)


def _attribute(head: dict[str, Any], name: str) -> str | None:
    value = head.get(name)
    if value is not None and not isinstance(value, str):
        raise PayloadError(f"the event's {name} is {value!r}: CloudEvents requires a string.")
    return value


def _extension(name: str, value: Any) -> str | int | bool:
    if isinstance(value, str | int):
        return value
    raise PayloadError(f"the event's extension {name} is {value!r}: CloudEvents requires a string, an integer or a boolean.")


def _time(text: str | None) -> datetime | None:
    """Parse an RFC 3339 time as an aware datetime. None if it is not one: the event must stay readable all the same."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
