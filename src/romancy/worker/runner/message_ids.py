"""Gives the events and messages of an instance their ids, sender and time."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar
from zlib import crc32

from romancy.authoring.events import rfc3339
from romancy.model.messaging import Effect, Event, Message, Publish, SendEvent, SendTo, SendToGroup

D = TypeVar("D", bound=Effect)


def with_ids(effect: D, key: str, instance_id: str, now: int) -> D:
    """Add an id that is derived from `key`, so that repeated sends have the same id, and the sender and time."""
    match effect:
        case SendEvent():
            return replace(effect, event=_event(effect.event, key, now))
        case Publish() | SendTo() | SendToGroup():
            return replace(effect, message=_message(effect.message, key, instance_id))
        case _:
            return effect


def _event(event: Event, key: str, now: int) -> Event:
    # The id includes the content: if a retry of the instance sends other content, that is another event.
    content = crc32(b"\0".join((event.type.encode(), event.source.encode(), event.data or b"")))
    return replace(event, id=event.id or f"{key}:{content:08x}", time=event.time or rfc3339(now))


def _message(message: Message, key: str, instance_id: str) -> Message:
    return replace(message, id=message.id or key, sender=message.sender or instance_id)
