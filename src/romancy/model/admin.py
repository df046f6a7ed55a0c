"""Queries of operators to the store, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from romancy.model.instance import InstanceRow
from romancy.model.status import Status
from romancy.model.transition import Wait

InstanceKey: TypeAlias = tuple[int, str]
"""The sort key of an instance in a list: the time it was created, and its id."""


@dataclass(frozen=True, slots=True)
class InstanceQuery:
    """Which instances to read, newest first. The caller checks the conditions that are not among these fields."""

    statuses: frozenset[Status] | None = None
    """None: all statuses."""
    owned: bool = False
    """Only instances that a worker owns."""
    retrying: bool = False
    """Only instances that are retrying an activity or a compensation."""
    workflow: str | None = None
    """A part of the workflow's name."""
    instance: str | None = None
    """A part of the instance id."""
    created_after: int = 0
    before: InstanceKey | None = None
    """The page begins below this key."""
    window: int = 2000
    """The number of rows to read if the conditions may leave out most of them."""
    limit: int = 50


class InstanceListRow(NamedTuple):
    """An instance in a list: its row and its waits, without payloads."""

    row: InstanceRow
    waits: tuple[Wait, ...] = ()


class InstanceScan(NamedTuple):
    """The instances that were found, and the key at which the next page begins; None if there is no next page."""

    rows: list[InstanceListRow]
    end: InstanceKey | None


class Content(NamedTuple):
    """The payloads of an instance that a search reads; None if there is none, or if it is too large to search."""

    input: bytes | None
    error: bytes | None


class InstanceCounts(NamedTuple):
    """Numbers of instances and dead letters, each counted up to a limit."""

    statuses: dict[Status, int]
    """The instances by status: those that have not ended, and failed ones that were created since a time."""
    retrying: int
    overdue: int
    dead_letters: int


class WorkflowCounts(NamedTuple):
    """The number of instances of each workflow that have not ended, counted up to a limit."""

    workflows: dict[str, int]
    complete: bool
    """The limit was not reached."""


class ChannelState(NamedTuple):
    """The state of a channel. Numbers are counted up to a limit."""

    name: str
    mode: str | None
    subscribers: int
    backlog: int
    oldest_at: int | None


class SubscriberState(NamedTuple):
    """A subscription of a channel, with the number of messages that its instance has not read."""

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
    """None if it is too large to be compared."""
    consumed: bool
    """The instance has consumed it."""
    predates_instance: bool
    """The event was accepted before the instance was created."""


class AuditRow(NamedTuple):
    """One row of the audit: an action, and its actor."""

    number: int
    at: int
    actor: str
    action: str
    instance_id: str | None
    detail: str


class BulkActionRow(NamedTuple):
    """A bulk action: an action on every instance that matches a filter."""

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
    """The first failures, as JSON."""
    cursor: str | None = None
    """The position at which the search continues."""


class Minute(NamedTuple):
    """The number of instances of a workflow that ended in one minute with one outcome, and their durations."""

    at: int
    """When the minute began."""
    workflow: str
    outcome: str
    ended: int
    buckets: dict[int, int]
    """The number of instances in each bucket of durations (`bucket_of`)."""


class Vitals(NamedTuple):
    """Measurements of the database itself."""

    product: str
    latency: int
    """Microseconds that a query takes."""
    skew: int | None
    """Microseconds by which this machine's clock is behind the database's; None if the database uses the same clock."""
    notes: dict[str, str]
    """Other properties of the database, by name."""


def bucket_of(micros: int) -> int:
    """Return the bucket of a duration in a histogram with four buckets for each doubling."""
    size = max(1, micros)
    power = size.bit_length() - 1
    return 4 * power + ((size << 2) >> power) - 4


def bound_of(bucket: int) -> int:
    """Return the upper bound of a bucket, in microseconds."""
    power, quarter = divmod(bucket, 4)
    return ((5 + quarter) << power) >> 2


@dataclass(frozen=True, slots=True)
class ConcurrencyStall:
    """All slots of a worker are taken, and no attempt has begun for a long time: they may wait for attempts in the queue."""

    holders: tuple[tuple[str, int], ...]
    """The activities that hold the slots, and the number of slots of each, in descending order."""
    waiting: int
    """The number of attempts that wait for a slot."""
    since: int
    """When the last attempt began."""

    def __str__(self) -> str:
        """Describe the stall in a sentence."""
        names = ", ".join(f"{name} ({count})" for name, count in self.holders)
        attempts = "1 attempt is" if self.waiting == 1 else f"{self.waiting} attempts are"
        return f"{attempts} waiting for a slot, but every slot is held by {names}"
