"""The shapes that operators see: of the API's JSON, of the viewer's pages, of the command line's tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from romancy.errors import PayloadError
from romancy.model.instance import AttemptEntry, Error, HistoryEntry, JournalLine, WaitingFor
from romancy.model.outbox import OutboxEntry
from romancy.model.status import Status


class Health(StrEnum):
    """How an instance fares."""

    HEALTHY = "healthy"
    SLOW = "slow"
    STUCK = "stuck"
    ENDED = "ended"


class InputError(PayloadError):
    """The input of a workflow does not fit it: what is wrong, by field."""

    def __init__(self, message: str, fields: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.fields = fields or {}
        """Dotted paths from the parameters, and what is wrong there; the empty path is the whole."""


class ActionKind(StrEnum):
    """What an operator can do to instances."""

    CANCEL = "cancel"
    RETRY = "retry"
    PAUSE = "pause"
    RESUME = "resume"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class Count:
    """How many there are, counted up to a bound."""

    value: int
    more: bool = False
    """There are more than `value`; nobody counted how many."""

    def __str__(self) -> str:
        """`10,000+`."""
        return f"{self.value:,}{'+' if self.more else ''}"


@dataclass(frozen=True, slots=True)
class InstanceSummary:
    """A line of a list of instances: no payloads."""

    instance_id: str
    workflow_name: str
    version: str | None
    status: Status
    generation: int
    worker_id: str | None
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    ended_at: datetime | None
    retrying_since: datetime | None
    waiting_for: tuple[WaitingFor, ...]
    doing: str
    """What it does now, in a line: `waiting for event payment.completed, subject 42`."""
    error: str | None = None
    """Type and message, cut to a line."""


@dataclass(frozen=True, slots=True)
class InstancePage:
    """Instances, newest first."""

    items: list[InstanceSummary]
    next_page_token: str | None = None
    searched_back_to: datetime | None = None
    """The search stopped here because its time was over; go on with the token."""


@dataclass(frozen=True, slots=True)
class InstanceDetail:
    """One instance with everything that fits on a page; the history comes in pages of its own."""

    summary: InstanceSummary
    input: Any
    output: Any
    error: Error | None
    generations: int
    """The generation it is in; earlier ones are archived if they are still there."""
    code: str
    """The fingerprint of its code."""
    python: str
    deadline_at: datetime | None
    attempts: list[AttemptEntry]
    journal: list[JournalLine]
    actions: list[ActionKind]
    """What can be done to it now."""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Entries of one generation, in order."""

    items: list[HistoryEntry]
    next_after: int | None = None


@dataclass(frozen=True, slots=True)
class WakeCondition:
    """One thing that will move an instance."""

    kind: str
    """event, message, timer, retry, claim, lease, operator."""
    key: str
    since: datetime | None = None
    due: datetime | None = None
    evidence: tuple[str, ...] = ()
    """What is known about it, a sentence each: near misses, a backlog, a silent worker."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that could be done about it."""

    name: str
    """An action, or `send_event`, `publish`, `deploy`."""
    label: str
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """What a form for it begins with."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an instance stands where it stands, and what will move it."""

    instance_id: str
    status: Status
    verdict: Health
    because: str
    wakes: tuple[WakeCondition, ...] = ()
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A stretch of an instance's time line. Times are microseconds since 1970."""

    row: str
    """The operation: all spans of one operation share a row."""
    name: str
    kind: str
    """activity, backoff, event, message, timer, compensation, queue, effect."""
    outcome: str
    """ok, error, cancelled, open."""
    start: int
    end: int | None
    attempt: int = 0
    worker_id: str = ""
    epoch: int = 0
    site: str = ""
    seq: int = 0
    note: str = ""
    due: int | None = None
    """Of an open wait or back-off: when it is over by itself."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """What to draw: spans in the order in which operations were asked for, and marks from the journal."""

    begun_at: int
    ended_at: int | None
    now: int
    spans: list[TimelineSpan]
    marks: list[JournalLine]
    cut: bool = False
    """There is more history than is drawn."""


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A minute of a workflow's life."""

    at: datetime
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class WorkflowSummary:
    """How a workflow fares, from what ended lately."""

    name: str
    versions: tuple[str, ...]
    """Those that live workers know."""
    in_flight: Count
    completed: int
    """In the last hour."""
    failed: int
    p50: float | None
    """Seconds from start to end in the last hour, about."""
    p95: float | None
    points: list[ChartPoint]
    event_handler: bool = False
    startable: bool = False
    """It can be started from here: its input is known."""


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """A worker process."""

    worker_id: str
    service: str
    host: str
    pid: int
    python: str
    started_at: datetime
    beat_at: datetime
    alive: bool
    owned: Count
    workflows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChannelSummary:
    """A channel with subscribers or unread messages."""

    name: str
    mode: str | None
    subscribers: Count
    backlog: Count
    oldest_at: datetime | None


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Who has subscribed to a channel."""

    instance_id: str
    mode: str
    since: datetime
    unread: Count
    waits: bool


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group."""

    name: str
    members: Count


@dataclass(frozen=True, slots=True)
class ChannelPage:
    """Channels by name."""

    items: list[ChannelSummary]
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriberPage:
    """Subscribers by instance."""

    items: list[Subscriber]
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Groups by name."""

    items: list[GroupSummary]
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class MemberPage:
    """Members of a group."""

    items: list[str]
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class OutboxPage:
    """Events in the outbox, oldest first."""

    items: list[OutboxEntry]
    next_after: int | None = None


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """Something that a person should look at, and the filter that finds it."""

    what: str
    """failed, retrying, overdue, compensating, dead_letters, unclaimable, silent_workers."""
    count: Count
    filter: str


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page."""

    attention: list[AttentionItem]
    in_flight: dict[str, Count]
    """By status."""
    points: list[ChartPoint]
    """Of all workflows together."""
    workers: list[WorkerSummary]
    workflows: list[str]


@dataclass(frozen=True, slots=True)
class StartResult:
    """A workflow was started, or the instance of that id was there already."""

    instance_id: str


@dataclass(frozen=True, slots=True)
class SendResult:
    """An event or a message was accepted."""

    instance_ids: tuple[str, ...] = ()
    """Whom it woke or started."""
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What became of an action for one instance."""

    instance_id: str
    ok: bool
    error: str | None = None
    error_type: str | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would do: told before it is done."""

    action: ActionKind
    instance_id: str
    effects: tuple[str, ...]
    """`compensates reserve_stock (op 2)`, `leaves charge_card as it is`."""


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An action for all instances that a filter finds: done by the app, whoever asked may go home."""

    batch_id: str
    action: ActionKind
    filter: str
    reason: str | None
    actor: str
    status: str
    """running, done, aborted."""
    created_at: datetime
    ended_at: datetime | None
    done: int
    failed: int
    looked_at: int
    failures: list[ActionResult]
    """The first hundred."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what."""

    number: int
    at: datetime
    actor: str
    action: str
    instance_id: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class AuditPage:
    """What was done, newest first."""

    items: list[AuditEntry]
    next_before: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of the doctor."""

    name: str
    level: str
    """ok, warning, error."""
    says: str
    remedy: str = ""
