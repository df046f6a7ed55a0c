"""What an instance says, made ready to be written."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar
from zlib import crc32

from romancy.authoring.events import rfc3339
from romancy.model.talk import Deed, Event, Message, Publish, SendEvent, SendTo, SendToGroup

D = TypeVar("D", bound=Deed)


def identified(deed: D, key: str, instance_id: str, now: int) -> D:
    """Give what is sent an id that is the same however often the sending is repeated, its sender, and its time."""
    match deed:
        case SendEvent():
            return replace(deed, event=_event(deed.event, key, now))
        case Publish() | SendTo() | SendToGroup():
            return replace(deed, message=_message(deed.message, key, instance_id))
        case _:
            return deed


def _event(event: Event, key: str, now: int) -> Event:
    # With its content: said otherwise after a retry of the instance, it is another event.
    content = crc32(b"\0".join((event.type.encode(), event.source.encode(), event.data or b"")))
    return replace(event, id=event.id or f"{key}:{content:08x}", time=event.time or rfc3339(now))


def _message(message: Message, key: str, instance_id: str) -> Message:
    return replace(message, id=message.id or key, sender=message.sender or instance_id)
