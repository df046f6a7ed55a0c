"""What instances say to each other and to the world: events, messages, groups.

A `Effect` is done by being committed. An `Ask` is answered by the commit: the store decides, and writes the answer into the
history in the same transaction. So nothing is consumed without being recorded, and nothing recorded is done twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from romancy.model.history import Entry, Outcome

if TYPE_CHECKING:
    from romancy.model.transition import CreateInstance

T = TypeVar("T")

TARGET = "romancyinstanceid"
"""The CloudEvents extension that addresses an event to one instance."""


class ChannelMode(StrEnum):
    """How a channel hands out its messages."""

    BROADCAST = "broadcast"
    """Each message to every subscriber."""
    COMPETING = "competing"
    """Each message to one subscriber."""
    DIRECT = "direct"
    """Only what is sent to the subscriber itself."""


@dataclass(frozen=True, slots=True)
class Event:
    """A CloudEvent. `data` is JSON text, or any bytes if `binary`; None: it has none."""

    id: str
    """Empty: the engine gives it one that is the same however often the sending is repeated."""
    source: str
    type: str
    data: bytes | None = None
    binary: bool = False
    subject: str | None = None
    time: str | None = None
    specversion: str = "1.0"
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, str | int | bool] = field(default_factory=dict[str, str | int | bool])

    @property
    def target(self) -> str | None:
        """The instance it is addressed to, if it is."""
        target = self.extensions.get(TARGET)
        return None if target is None else str(target)


@dataclass(frozen=True, slots=True)
class Message:
    """What is published to a channel. `data` is JSON text, or any bytes if `binary`; `metadata` is a JSON object."""

    id: str
    """Empty: the engine gives it one."""
    channel: str
    data: bytes
    binary: bool = False
    metadata: bytes = b"{}"
    sender: str | None = None


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Accept an event for this database's workflows, and put it into the outbox for brokers."""

    event: Event
    starts: tuple[CreateInstance, ...] = ()
    """The instances it starts, unless it is a duplicate: the worker fills them in."""
    fresh_id: str = ""
    """The id of the instance to start if it is handled by a workflow that only others know; empty: start none."""
    local: bool = True
    """False: it is for the brokers only."""
    brokers: tuple[str, ...] = ()
    """The names of the brokers that get it: the worker fills them in."""


@dataclass(frozen=True, slots=True)
class Publish:
    """A message for whoever has subscribed to its channel."""

    message: Message


@dataclass(frozen=True, slots=True)
class SendTo:
    """A message for one instance."""

    message: Message
    target: str


@dataclass(frozen=True, slots=True)
class SendToGroup:
    """A message for each member of a group."""

    message: Message
    group: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Receive what is published to a channel from now on."""

    channel: str
    mode: ChannelMode


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Receive no more from a channel."""

    channel: str


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Become a member of a group."""

    group: str


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Cease to be a member of a group; an error for who is none."""

    group: str


@dataclass(frozen=True, slots=True)
class ListMembers:
    """Who is in a group: answered with a JSON array of instance ids."""

    group: str


@dataclass(frozen=True, slots=True)
class WaitSelector:
    """What a wait is for: an event of a type (`key`), or a message of a channel."""

    key: str
    subject: str | None = None
    match: bytes | None = None
    """Dotted paths and their values, as a JSON object."""


Sendable: TypeAlias = SendEvent | Publish | SendTo | SendToGroup
"""What can be said from outside."""
Effect: TypeAlias = SendEvent | Publish | SendToGroup | SendTo | Unsubscribe | JoinGroup
StoreCommand: TypeAlias = WaitSelector | SendTo | Subscribe | LeaveGroup | ListMembers


@dataclass(frozen=True, slots=True)
class StoreCall:
    """Something the store decides and records."""

    entry: Entry
    """What to record once it is decided; `seq`, `outcome` and `value` are the store's."""
    command: StoreCommand
    due: int | None = None
    """For a wait: when it is given up."""
    before: int | None = None
    """For a wait: only what came before this counts, since something else is due then. Its own time is over if it is due by
    then; without it, if it is due by now."""


@dataclass(frozen=True, slots=True)
class StoreReply:
    """What was decided, as it stands in the history."""

    op: str
    seq: int
    at: int
    outcome: Outcome
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ReceivedEvent(Generic[T]):
    """A CloudEvent that a workflow waited for."""

    id: str
    type: str
    source: str
    specversion: str
    subject: str | None
    time: datetime | None
    datacontenttype: str | None
    dataschema: str | None
    data: T
    extensions: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReceivedMessage(Generic[T]):
    """A message that a workflow received from a channel."""

    id: str
    channel: str
    data: T
    metadata: Mapping[str, Any]
    sender_instance_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AcceptedEvent:
    """What became of an event that was sent: nothing if it was a duplicate."""

    id: str
    source: str
    duplicate: bool
    instance_ids: tuple[str, ...]
    """The instances it started, and those it woke. Who has an earlier event to look at was woken by that."""


@dataclass(frozen=True, slots=True)
class UndeliverableEvent:
    """An event that was addressed to an instance which does not exist, or ended without taking it."""

    instance_id: str
    event: ReceivedEvent[Any]
    accepted_at: datetime
