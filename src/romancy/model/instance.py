"""What the store tells: rows for the engine, and the views users and operators read."""

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
    """The hot row of an instance, as the engine needs it."""

    instance_id: str
    workflow: str
    version: str
    status: Status
    generation: int
    round: int
    """How often the instance was retried after compensation: a part of every idempotency key."""
    epoch: int
    owner: str | None
    wake_at: int | None
    inbox_version: int
    length: int
    """The highest `seq` of the current generation's history; 0 in what people read."""
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
    """Something that arrived for an instance from outside."""

    id: int
    kind: str
    op: str
    body: bytes | None
    at: int


class Inbox(NamedTuple):
    """What has arrived for an instance."""

    inbox_version: int
    """The counter it belongs to."""
    items: tuple[InboxItem, ...]
    matched_waits: tuple[str, ...]
    """The waits for which something has come."""


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
    """How many workers it has lost since it last recorded anything."""


@dataclass(frozen=True, slots=True)
class StoredInstance:
    """An instance with its payloads, as `get` and `list` read it."""

    row: InstanceRow
    input: bytes
    output: bytes | None
    error: bytes | None
    waits: tuple[Wait, ...]


class InstanceProgress(NamedTuple):
    """Where an instance stands: enough to see that it has moved."""

    generation: int
    seq: int
    """Of the last entry of its history."""
    status: Status
    updated_at: int


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """What to list: newest first, by key."""

    status: tuple[Status, ...] = ()
    workflow: str | None = None
    instance_id: str | None = None
    created_after: int | None = None
    created_before: int | None = None
    before: tuple[int, str] | None = None
    """Continue below this (created_at, id)."""
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
    """The workflows and versions it knows, as JSON."""
    started_at: int
    heartbeat_at: int


@dataclass(frozen=True, slots=True)
class Error:
    """What went wrong, as people read it."""

    type: str
    message: str
    trace: str = ""

    def __str__(self) -> str:
        """Type and message."""
        return f"{self.type}: {self.message}"


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """What an instance waits for, as people read it."""

    kind: str
    key: str
    since: datetime
    due: datetime | None
    activity_id: str
    subject: str | None = None
    match: Any = None
    site: str = ""
    """Where in the code it waits."""


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
    """One thing that happened in an instance."""

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
    """False for what stands beside the run: compensations, effects, results set aside by a retry."""


@dataclass(frozen=True, slots=True)
class AttemptEntry:
    """An attempt that failed, was cut off with its worker, or has been running for a notable time."""

    activity_id: str
    name: str
    attempt: int
    open: bool
    """It is running now."""
    error: Error | None
    worker_id: str
    epoch: int
    scheduled_at: datetime
    started_at: datetime
    ended_at: datetime | None
    next_at: datetime | None
    """When the next attempt starts, or started."""
    heartbeat_at: datetime | None
    site: str


@dataclass(frozen=True, slots=True)
class JournalLine:
    """What happened to an instance from outside its code: claims, takeovers, cold replays, operators' requests."""

    at: datetime
    kind: str
    detail: str
    worker_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """Where an instance stands: its status, and its output or error once it has ended."""

    instance_id: str
    status: Status
    output: Any = None
    error: Error | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows of a list, and the token of the next."""

    items: list[T]
    next_page_token: str | None = None

    @property
    def has_more(self) -> bool:
        """There are more rows behind this page."""
        return self.next_page_token is not None
