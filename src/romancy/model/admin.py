"""What operators ask of the store, and what it tells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from romancy.model.instance import InstanceRow
from romancy.model.status import Status
from romancy.model.transition import Wait

InstanceKey: TypeAlias = tuple[int, str]
"""A place in a list of instances: when one was created, and its id."""


@dataclass(frozen=True, slots=True)
class InstanceQuery:
    """Which instances to look at, newest first. What the store does not decide, whoever asks does."""

    statuses: frozenset[Status] | None = None
    """None: any."""
    owned: bool = False
    """Only those that a worker has in hand."""
    retrying: bool = False
    """Only those of which something is being retried."""
    workflow: str | None = None
    """A part of the workflow's name."""
    instance: str | None = None
    """A part of the id."""
    created_after: int = 0
    before: InstanceKey | None = None
    """Continue below this."""
    window: int = 2000
    """How many are looked at where most may not fit."""
    limit: int = 50


class InstanceListRow(NamedTuple):
    """An instance without its payloads."""

    row: InstanceRow
    waits: tuple[Wait, ...] = ()


class InstanceScan(NamedTuple):
    """What was found, and where to go on; None: there is nothing more."""

    rows: list[InstanceListRow]
    end: InstanceKey | None


class Content(NamedTuple):
    """What an instance was given and what it failed with; None: nothing, or too much to look through."""

    input: bytes | None
    error: bytes | None


class InstanceCounts(NamedTuple):
    """How many there are of what is counted, each up to a bound."""

    statuses: dict[Status, int]
    """Those that have not ended, and `failed` for those that were created since a time."""
    retrying: int
    overdue: int
    dead_letters: int


class WorkflowCounts(NamedTuple):
    """How many instances of each workflow are in flight, of those that were looked at."""

    workflows: dict[str, int]
    complete: bool
    """All were looked at."""


class ChannelState(NamedTuple):
    """A channel. Numbers are counted up to a bound."""

    name: str
    mode: str | None
    subscribers: int
    backlog: int
    oldest_at: int | None


class SubscriberState(NamedTuple):
    """Who has subscribed to a channel."""

    instance_id: str
    mode: str
    since: int
    unread: int
    waits: bool


class RecentEvent(NamedTuple):
    """An event of a type that an instance waits for."""

    accepted_at: int
    target: str | None
    body: bytes | None
    """None: it is too large to be looked through."""
    consumed: bool
    """The instance has consumed it."""
    predates_instance: bool
    """It came before the instance was there."""


class AuditRow(NamedTuple):
    """Who did what."""

    number: int
    at: int
    actor: str
    action: str
    instance_id: str | None
    detail: str


class BulkActionRow(NamedTuple):
    """A effect for all instances that fit a filter."""

    id: str
    action: str
    filter: str
    reason: str | None
    actor: str
    status: str
    """running, done, aborted."""
    created_at: int
    ended_at: int | None = None
    done: int = 0
    failed: int = 0
    scanned: int = 0
    failures: str = "[]"
    """The first of them, as JSON."""
    cursor: str | None = None
    """Where the search goes on."""


class Minute(NamedTuple):
    """How many instances of a workflow ended in a minute in one way, and how long they took."""

    at: int
    """When the minute began."""
    workflow: str
    outcome: str
    ended: int
    buckets: dict[int, int]
    """How many took how long: by `bucket_of`."""


class Vitals(NamedTuple):
    """How the database itself is."""

    product: str
    latency: int
    """Microseconds of a look at it."""
    skew: int | None
    """Microseconds that this machine's clock is behind the database's; None: they are the same."""
    notes: dict[str, str]
    """What else is known, by its name."""


def bucket_of(micros: int) -> int:
    """The place of a duration in a histogram: four for each doubling."""
    size = max(1, micros)
    power = size.bit_length() - 1
    return 4 * power + ((size << 2) >> power) - 4


def bound_of(bucket: int) -> int:
    """The microseconds at which a place of the histogram ends."""
    power, quarter = divmod(bucket, 4)
    return ((5 + quarter) << power) >> 2


@dataclass(frozen=True, slots=True)
class ConcurrencyStall:
    """Every slot is held, and no attempt has begun for long: perhaps they wait for what cannot begin."""

    holders: tuple[tuple[str, int], ...]
    """The activities that hold the slots, and how many each; most first."""
    waiting: int
    """How many attempts wait for a slot."""
    since: int
    """When the last attempt began."""

    def __str__(self) -> str:
        """In words."""
        names = ", ".join(f"{name} ({count})" for name, count in self.holders)
        return f"{self.waiting} attempts wait for a slot, and every slot is held by {names}"
