"""Instances: the rows that the store reads for the engine, and the records that users read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from romancy.model.history import AttemptRow, Entry
from romancy.model.status import Status
from romancy.model.transition import Wait

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """The row of an instance that every transition writes, as the engine needs it."""

    instance_id: str
    workflow: str
    version: str
    status: Status
    generation: int
    round: int
    """The number of retries of the instance after compensation: a part of every idempotency key."""
    epoch: int
    owner: str | None
    wake_at: int | None
    inbox_version: int
    length: int
    """The highest `seq` of the current generation's history; 0 in records for users."""
    deadline_at: int | None
    created_at: int
    started_at: int | None
    updated_at: int
    ended_at: int | None
    retrying_since: int | None = None
    code: str = ""
    python: str = ""
    blocked_by: str | None = None


@dataclass(frozen=True, slots=True)
class InboxItem:
    """A row that arrived for an instance from outside: a request, or the result of an activity with a session."""

    id: int
    kind: str
    op: str
    body: bytes | None
    at: int


class Inbox(NamedTuple):
    """The inbox items of an instance, and its waits that were matched."""

    inbox_version: int
    """The inbox version at which the inbox was read."""
    items: tuple[InboxItem, ...]
    matched_waits: tuple[str, ...]
    """The operations whose waits an event or a message has matched."""


@dataclass(frozen=True, slots=True)
class LoadedInstance:
    """Everything a cold replay needs."""

    row: InstanceRow
    input: bytes
    history: tuple[Entry, ...]
    attempts: tuple[AttemptRow, ...]
    waits: tuple[str, ...]
    inbox: tuple[InboxItem, ...]
    begun_at: int
    """When the generation began."""
    losses: int = 0
    """The number of workers that the instance has lost since its last progress."""


@dataclass(frozen=True, slots=True)
class StoredInstance:
    """An instance with its payloads and waits, as the store's `get` and `list` return it."""

    row: InstanceRow
    input: bytes
    output: bytes | None
    error: bytes | None
    waits: tuple[Wait, ...]


class InstanceProgress(NamedTuple):
    """The state of an instance, as far as it shows progress between two readings."""

    generation: int
    seq: int
    """The `seq` of the last entry of its history."""
    status: Status
    updated_at: int


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """Which instances to list; the newest are listed first."""

    status: tuple[Status, ...] = ()
    workflow: str | None = None
    instance_id: str | None = None
    created_after: int | None = None
    created_before: int | None = None
    before: tuple[int, str] | None = None
    """The page begins below this key: (created_at, id)."""
    limit: int = 50


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One incarnation of a worker process."""

    id: str
    label: str
    service: str
    hostname: str
    pid: int
    python: str
    workflows: str
    """The workflows and versions that it has, as JSON."""
    started_at: int
    heartbeat_at: int


@dataclass(frozen=True, slots=True)
class Error:
    """An error, as users read it."""

    type: str
    message: str
    trace: str = ""

    def __str__(self) -> str:
        """Return the type and the message."""
        return f"{self.type}: {self.message}"


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """A wait of an instance, as users read it."""

    kind: str
    key: str
    since: datetime
    due: datetime | None
    activity_id: str
    subject: str | None = None
    match: Any = None
    site: str = ""
    """The call site of the wait in the code."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One execution of a workflow."""

    instance_id: str
    workflow_name: str
    version: str | None
    status: Status
    generation: int
    continued_from: int | None
    input: dict[str, Any]
    output: Any
    error: Error | None
    waiting_for: tuple[WaitingFor, ...]
    worker_id: str | None
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry of an instance's history, as users read it."""

    seq: int
    kind: str
    activity_id: str
    name: str
    outcome: str
    attempt: int
    input: Any
    result: Any
    error: Error | None
    worker_id: str
    at: datetime
    scheduled_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    epoch: int = 0
    site: str = ""
    replayed: bool = True
    """False for entries that a replay does not feed to the run: compensations, effects, entries from before a retry."""


@dataclass(frozen=True, slots=True)
class AttemptEntry:
    """An attempt that has failed, was cut off with its worker, or has been running for a notable time."""

    activity_id: str
    name: str
    attempt: int
    open: bool
    """The attempt is running."""
    error: Error | None
    worker_id: str
    epoch: int
    scheduled_at: datetime
    started_at: datetime
    ended_at: datetime | None
    next_at: datetime | None
    """When the next attempt begins, or began."""
    heartbeat_at: datetime | None
    site: str


@dataclass(frozen=True, slots=True)
class JournalLine:
    """Something that happened to an instance from outside its code: a claim, a takeover, a cold replay, a request."""

    at: datetime
    kind: str
    detail: str
    worker_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """The status of an instance, and its output or error if it has ended."""

    instance_id: str
    status: Status
    output: Any = None
    error: Error | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list, and the token of the next page."""

    items: list[T]
    next_page_token: str | None = None

    @property
    def has_more(self) -> bool:
        """There is a next page."""
        return self.next_page_token is not None
