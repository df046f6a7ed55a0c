"""The outbox: events on their way to brokers.

put in ──► due ──► claimed ──► delivered: the row is gone
            ▲         │
            │         ├──────► failed: due again later
            │         ├──────► its relay died: due again when the claim ends
            │         ▼
            └─────── dead: nobody tries again until it is requeued
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from romancy.model.messaging import ReceivedEvent


class OutboxRow(NamedTuple):
    """An event for one broker, as it is stored."""

    seq: int
    broker: str
    body: bytes
    """The event in the JSON format of CloudEvents."""
    created_at: int
    since: int
    """Since when it is tried: when it was put in, or requeued."""
    attempts: int
    next_at: int | None
    """When it is due; of a claimed one, when the claim ends; None: it is dead."""
    claimed_by: str | None
    last_error: str | None
    dead_at: int | None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The broker has it."""

    seq: int


@dataclass(frozen=True, slots=True)
class Delayed:
    """The broker did not take it: try again then."""

    seq: int
    next_at: int
    error: str


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """It is given up."""

    seq: int
    at: int
    error: str


@dataclass(frozen=True, slots=True)
class Returned:
    """It was not tried after all: it is due at once, for anybody."""

    seq: int


DeliveryOutcome: TypeAlias = Delivered | Delayed | DeadLettered | Returned
"""What became of a claimed row."""


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """An event that a broker has not got yet, or that was given up."""

    id: int
    broker: str
    event: ReceivedEvent[Any]
    created_at: datetime
    attempts: int
    next_at: datetime | None
    """When it is tried next; None: never, it is dead."""
    claimed_by: str | None
    """The app that is about to deliver it; until `next_at` no other tries."""
    last_error: str | None
    dead_at: datetime | None
