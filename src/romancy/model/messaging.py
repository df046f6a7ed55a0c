"""Events, messages, channels and groups, and the effects and store calls that are about them.

An `Effect` is carried out by the commit that records it. A `StoreCall` is resolved by the commit: the store decides, and
writes its reply into the history in the same transaction. So nothing is consumed without being recorded, and nothing that
is recorded is repeated.
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
    """The modes of a channel: which subscribers receive its messages."""

    BROADCAST = "broadcast"
    """Every subscriber receives each message."""
    COMPETING = "competing"
    """One subscriber receives each message."""
    DIRECT = "direct"
    """A subscriber receives only the messages that are sent to it."""


@dataclass(frozen=True, slots=True)
class Event:
    """A CloudEvent. `data` is JSON text, or any bytes if `binary`; None if the event has no data."""

    id: str
    """If it is empty, the engine sets an id, which is the same for each repetition of the send."""
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
        """The id of the instance to which the event is addressed; None if it is not addressed."""
        target = self.extensions.get(TARGET)
        return None if target is None else str(target)


@dataclass(frozen=True, slots=True)
class Message:
    """A message for a channel. `data` is JSON text, or any bytes if `binary`; `metadata` is a JSON object."""

    id: str
    """If it is empty, the engine sets an id."""
    channel: str
    data: bytes
    binary: bool = False
    metadata: bytes = b"{}"
    sender: str | None = None


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Accept an event for the workflows of this database, and put it into the outbox for brokers."""

    event: Event
    starts: tuple[CreateInstance, ...] = ()
    """The instances that the event starts, unless it is a duplicate. The worker sets them."""
    fresh_id: str = ""
    """The id of the instance to start if only other processes have the workflow that handles it; empty: start none."""
    local: bool = True
    """False: the event is only for brokers."""
    brokers: tuple[str, ...] = ()
    """The names of the brokers that receive the event. The worker sets them."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Send a message to the subscribers of its channel."""

    message: Message


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send a message to one instance."""

    message: Message
    target: str


@dataclass(frozen=True, slots=True)
class SendToGroup:
    """Send a message to each member of a group."""

    message: Message
    group: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Receive the messages that are published to a channel from now on."""

    channel: str
    mode: ChannelMode


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Receive no more messages from a channel."""

    channel: str


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Become a member of a group."""

    group: str


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Leave a group; an error if the instance is not a member."""

    group: str


@dataclass(frozen=True, slots=True)
class ListMembers:
    """List the members of a group. The reply is a JSON array of instance ids."""

    group: str


@dataclass(frozen=True, slots=True)
class WaitSelector:
    """What a wait looks for: an event of a type, or a message of a channel (`key`)."""

    key: str
    subject: str | None = None
    match: bytes | None = None
    """Dotted paths and their values, as a JSON object."""


Sendable: TypeAlias = SendEvent | Publish | SendTo | SendToGroup
"""Effects that clients can send from outside a workflow."""
Effect: TypeAlias = SendEvent | Publish | SendToGroup | SendTo | Unsubscribe | JoinGroup
StoreCommand: TypeAlias = WaitSelector | SendTo | Subscribe | LeaveGroup | ListMembers


@dataclass(frozen=True, slots=True)
class StoreCall:
    """An operation that the store resolves, and records, in the commit that issues it."""

    entry: Entry
    """The history entry of the operation; the store sets `seq`, `outcome` and `value`."""
    command: StoreCommand
    due: int | None = None
    """For a wait: when it times out."""
    before: int | None = None
    """For a wait: only arrivals before this time are considered, since another operation is due then. The wait times out now
    if `due` is not later than this; if this is None, `due` is compared with the current time."""


@dataclass(frozen=True, slots=True)
class StoreReply:
    """The store's reply to a store call, as it is recorded in the history."""

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
    """The effect of an event that was sent; a duplicate has no effect."""

    id: str
    source: str
    duplicate: bool
    instance_ids: tuple[str, ...]
    """The instances that the event started, and those it woke; without those that an earlier event has woken already."""


@dataclass(frozen=True, slots=True)
class UndeliverableEvent:
    """An event that was addressed to an instance which does not exist, or which ended without consuming it."""

    instance_id: str
    event: ReceivedEvent[Any]
    accepted_at: datetime
