"""The outbox: events that have not been delivered to their brokers.

enqueued ──► due ──► claimed ──► delivered: the row is deleted
              ▲         │
              │         ├──────► failed: due again later
              │         ├──────► its relay died: due again when the claim expires
              │         ▼
              └─────── dead: not sent again until it is requeued
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from romancy.model.messaging import ReceivedEvent


class OutboxRow(NamedTuple):
    """A row of the outbox: an event for one broker."""

    seq: int
    broker: str
    body: bytes
    """The event in the JSON format of CloudEvents."""
    created_at: int
    since: int
    """The time from which its retries are counted: when it was enqueued, or requeued."""
    attempts: int
    next_at: int | None
    """When it is due or, if it is claimed, when the claim expires; None if it is dead."""
    claimed_by: str | None
    last_error: str | None
    dead_at: int | None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The broker has received the event."""

    seq: int


@dataclass(frozen=True, slots=True)
class Delayed:
    """The delivery failed; the next attempt is at `next_at`."""

    seq: int
    next_at: int
    error: str


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The delivery was given up."""

    seq: int
    at: int
    error: str


@dataclass(frozen=True, slots=True)
class Returned:
    """The claim was given back without an attempt: the row is due at once, for any relay of the broker."""

    seq: int


DeliveryOutcome: TypeAlias = Delivered | Delayed | DeadLettered | Returned
"""The outcome for a claimed row."""


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """An event that a broker has not received yet, or whose delivery was given up."""

    id: int
    broker: str
    event: ReceivedEvent[Any]
    created_at: datetime
    attempts: int
    next_at: datetime | None
    """When the next attempt is due; None if the event is dead."""
    claimed_by: str | None
    """The app that is delivering the event; no other app sends it before `next_at`."""
    last_error: str | None
    dead_at: datetime | None
