"""Events and messages to JSON and back.

An event is written in the JSON format of CloudEvents: its attributes and extensions side by side, its data as `data`, or as
`data_base64` when it is bytes. A message looks alike. What a workflow waited for is recorded so, and read by the same
function live and in replay.
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
"""The names that CloudEvents gives a meaning; all others are extensions."""
DATA, BASE64 = "data", "data_base64"

_MAX_DEPTH = 150
_NUMBERS = frozenset({int, bool, type(None)})
_BYTES = (bytes, bytearray, memoryview)
_SECRETS = (SecretStr, SecretBytes, Secret)


class EncodedData(NamedTuple):
    """What is said, as it travels: JSON, or any bytes."""

    raw: bytes
    binary: bool
    ordered: bool = True
    """Equal values have equal bytes. Not so where there are sets: they come in the order of their hashes."""


def external_data(value: Any, what: str) -> EncodedData:
    """A value as it is sent: bytes as they are, anything else as the JSON that pydantic gives.

    `what` is how errors call it: "the data of event 'order.paid'". Raises `PayloadError` for what JSON cannot say.
    """
    if isinstance(value, _BYTES):
        return EncodedData(bytes(value), binary=True)
    checker = _DataChecker()
    try:
        checker.check(value, 0)
        raw = to_json(value)
        if has_long_number(raw):
            from_json(raw)  # it says what is wrong
        return EncodedData(raw, binary=False, ordered=checker.ordered)
    except _UnencodableError as error:
        path = "".join(f".{step}" for step in error.path)
        raise PayloadError(f"{what} cannot be stored: {path.removeprefix('.') or 'it'} {error.why}") from error
    except Exception as error:  # a serializer of the user's may raise anything
        raise PayloadError(f"{what} cannot be stored: {complaint(error)}") from error


class _UnencodableError(Exception):
    """Something in a value has no JSON; `path` leads to it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[object] = []


class _DataChecker:
    """Looks for what pydantic would write differently than it is, without a word: NaN as null, a secret as stars."""

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
            raise _UnencodableError(f"is {value}, which JSON cannot say")
        if isinstance(value, _SECRETS):
            raise _UnencodableError(f"is a {type(value).__name__}: it would be sent as stars")
        if depth > _MAX_DEPTH:
            raise _UnencodableError(f"is nested deeper than {_MAX_DEPTH} levels, or contains itself")
        for step, part in self._parts(value):
            try:
                if step is None:
                    raise _UnencodableError("has a name that is None, which would be read as the text None")
                if type(step) is str and not step.isascii():
                    _check_text(step)
                self.check(part, depth + 1)
            except _UnencodableError as error:
                error.path.insert(0, step if not isinstance(step, str) or step.isprintable() else repr(step))
                raise

    def _parts(self, value: Any) -> Any:
        parts: Any = value  # `value` itself would be narrowed to a collection of unknown things
        if isinstance(value, Mapping):
            return parts.items()
        if isinstance(value, list | tuple):
            return enumerate(parts)
        if isinstance(value, set | frozenset):
            self.ordered = False
            return (("(a member)", one) for one in parts)
        if isinstance(value, BaseModel):
            return {**value.__dict__, **(value.__pydantic_extra__ or {})}.items()
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
        return ()


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _UnencodableError("holds half a character (a lone surrogate), which no text can hold") from error


def digest_of(raw: bytes, *, ordered: bool = True) -> bytes:
    """Eight bytes that tell what was asked apart, as those of a call do."""
    return blake2b(raw if ordered else without_order(raw), digest_size=8).digest()


# -- written ----------------------------------------------------------------------------------------------------------


def with_data(head: Mapping[str, Any], data: bytes | None, *, binary: bool) -> bytes:
    """A JSON object with data in it. JSON data is put in as it is: it may be large."""
    if data is None:
        return to_json(head)
    if binary:
        return to_json({**head, BASE64: base64.b64encode(data).decode()})
    return b'%s,"%s":%s}' % (to_json(head)[:-1], DATA.encode(), data)


def event_json(event: Event) -> bytes:
    """An event in the JSON format of CloudEvents."""
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
    """The input of an instance that an event starts before anybody with its code has seen it."""
    return _EVENT_INPUT + event_json(event) + b"}"


def event_of_input(raw: bytes) -> Event | None:
    """The event in an input that `event_input` wrote; None if it is an input of another kind."""
    return event_of(raw[len(_EVENT_INPUT) : -1]) if raw.startswith(_EVENT_INPUT) else None


def message_json(message: Message, created_at: int) -> bytes:
    """A message with the time it was published at, in microseconds."""
    head = {
        "id": message.id,
        "channel": message.channel,
        "sender": message.sender,
        "created_at": to_datetime(created_at).isoformat(),
        "metadata": from_json(message.metadata),
    }
    return with_data(head, message.data, binary=message.binary)


# -- read -------------------------------------------------------------------------------------------------------------


def event_of(raw: bytes) -> Event:
    """The event that `event_json` wrote, or anybody else in that format; PayloadError if it is none."""
    head, data, plain = _split_data(raw)
    named = {name: _attribute(head, name) for name in ATTRIBUTES}
    missing = [name for name in ("id", "source", "type") if not named[name]]
    if missing:
        raise PayloadError(f"the event has no {missing[0]}: CloudEvents asks for id, source, type and specversion.")
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
        extensions={name: _extension(name, value) for name, value in _others(head) if value is not None},
    )


def message_of(raw: bytes) -> Message:
    """The message that `message_json` wrote."""
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
    """The event a workflow waited for, its data validated if there is a model; PayloadError if it does not fit."""
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
        extensions=dict(_others(head)),
    )


def received_message(raw: bytes, model: Any = None) -> ReceivedMessage[Any]:
    """The message a workflow received, its data validated if there is a model; PayloadError if it does not fit."""
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
    """Everything but the data; the data; whether it is JSON's (otherwise it is bytes, or there is none)."""
    try:
        head: Any = from_json(raw)
    except ValueError as error:
        raise PayloadError(f"this is no JSON: {error}") from error
    if not isinstance(head, dict):
        raise PayloadError("this is no JSON object.")
    if BASE64 in head:
        return head, _decoded(head.pop(BASE64)), False
    plain = DATA in head
    return head, head.pop(DATA, None), plain


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise PayloadError(f"{BASE64} is no base64: {error}") from error


def _others(head: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in head.items() if name not in ATTRIBUTES)


def _attribute(head: dict[str, Any], name: str) -> str | None:
    value = head.get(name)
    if value is not None and not isinstance(value, str):
        raise PayloadError(f"the event's {name} is {value!r}: CloudEvents wants a text.")
    return value


def _extension(name: str, value: Any) -> str | int | bool:
    if isinstance(value, str | int):
        return value
    raise PayloadError(f"the event's extension {name} is {value!r}: CloudEvents wants a text, a whole number or a boolean.")


def _time(text: str | None) -> datetime | None:
    """RFC 3339 as an aware time; what is no such time is none: it was the sender's to say."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
