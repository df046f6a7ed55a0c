"""The records that operators see, as JSON in the API, as pages in the viewer, and as tables on the command line."""

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
    """The health of an instance."""

    HEALTHY = "healthy"
    SLOW = "slow"
    STUCK = "stuck"
    ENDED = "ended"


class InputError(PayloadError):
    """The input of a workflow is not valid."""

    def __init__(self, message: str, fields: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.fields = fields or {}
        """The problems by dotted path, which begins with the parameter; the empty path stands for the whole input."""


class ActionKind(StrEnum):
    """An action that an operator can apply to instances."""

    CANCEL = "cancel"
    RETRY = "retry"
    PAUSE = "pause"
    RESUME = "resume"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class Count:
    """A number that is counted up to a limit."""

    value: int
    more: bool = False
    """There are more than `value`: the limit was reached."""

    def __str__(self) -> str:
        """Format the number: `10,000+`."""
        return f"{self.value:,}{'+' if self.more else ''}"


@dataclass(frozen=True, slots=True)
class InstanceSummary:
    """An instance in a list, without its payloads."""

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
    """The current step in one line: `waiting for event payment.completed, subject 42`."""
    error: str | None = None
    """Type and message, truncated to one line."""


@dataclass(frozen=True, slots=True)
class InstancePage:
    """A page of instances, newest first."""

    items: list[InstanceSummary]
    next_page_token: str | None = None
    searched_back_to: datetime | None = None
    """The creation time that the search had reached at its time limit; the token continues it."""


@dataclass(frozen=True, slots=True)
class InstanceDetail:
    """An instance with all its data except the history."""

    summary: InstanceSummary
    input: Any
    output: Any
    error: Error | None
    generations: int
    """The number of the latest generation. Earlier generations are archived, unless they have been deleted."""
    code: str
    """The fingerprint of its code."""
    python: str
    deadline_at: datetime | None
    attempts: list[AttemptEntry]
    journal: list[JournalLine]
    actions: list[ActionKind]
    """The actions that its status allows."""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of the history of one generation, in order."""

    items: list[HistoryEntry]
    next_after: int | None = None


@dataclass(frozen=True, slots=True)
class WakeCondition:
    """Something that will change the status of an instance."""

    kind: str
    """event, message, timer, retry, claim, lease, operator."""
    key: str
    since: datetime | None = None
    due: datetime | None = None
    evidence: tuple[str, ...] = ()
    """Known facts, one sentence each: events that did not match, a backlog, a silent worker."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A suggestion for the operator."""

    name: str
    """The name of an action, or `send_event`, `publish`, `deploy`."""
    label: str
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """The values with which a form is filled in."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason for the status of an instance, and what will change it."""

    instance_id: str
    status: Status
    verdict: Health
    because: str
    wakes: tuple[WakeCondition, ...] = ()
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A period of an instance's timeline. Times are in microseconds since 1970."""

    row: str
    """The id of the operation: all spans of one operation share a row."""
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
    """When an open wait or back-off ends at the latest."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of one generation: spans in the order in which their operations began, and marks from the journal."""

    begun_at: int
    ended_at: int | None
    now: int
    spans: list[TimelineSpan]
    marks: list[JournalLine]
    cut: bool = False
    """The history has more entries than are drawn."""


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """The numbers of instances that ended in one minute."""

    at: datetime
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class WorkflowSummary:
    """A workflow, with statistics of the instances that ended in the last hour."""

    name: str
    versions: tuple[str, ...]
    """The versions that live workers have."""
    in_flight: Count
    completed: int
    """The instances that completed in the last hour."""
    failed: int
    p50: float | None
    """The approximate median of the seconds from start to end, in the last hour."""
    p95: float | None
    points: list[ChartPoint]
    event_handler: bool = False
    startable: bool = False
    """The process that returned this record has the code of the workflow."""


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
    """A subscription of a channel."""

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
    """A page of channels, by name."""

    items: list[ChannelSummary]
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriberPage:
    """A page of the subscribers of a channel, by instance id."""

    items: list[Subscriber]
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of groups, by name."""

    items: list[GroupSummary]
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class MemberPage:
    """A page of the members of a group, by instance id."""

    items: list[str]
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class OutboxPage:
    """A page of the outbox, oldest event first."""

    items: list[OutboxEntry]
    next_after: int | None = None


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """Something that needs the attention of an operator, and the filter that finds it."""

    what: str
    """failed, retrying, overdue, compensating, dead_letters, unclaimable, silent_workers."""
    count: Count
    filter: str


@dataclass(frozen=True, slots=True)
class Overview:
    """The data of the viewer's first page."""

    attention: list[AttentionItem]
    in_flight: dict[str, Count]
    """The instances in flight by status."""
    points: list[ChartPoint]
    """The numbers of all workflows together."""
    workers: list[WorkerSummary]
    workflows: list[str]


@dataclass(frozen=True, slots=True)
class StartResult:
    """The result of a start: the new instance, or the existing one with the same id."""

    instance_id: str


@dataclass(frozen=True, slots=True)
class SendResult:
    """The result of sending an event or a message: it was accepted."""

    instance_ids: tuple[str, ...] = ()
    """The instances that it woke or started."""
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action on one instance."""

    instance_id: str
    ok: bool
    error: str | None = None
    error_type: str | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The effects that an action would have on an instance."""

    action: ActionKind
    instance_id: str
    effects: tuple[str, ...]
    """Each effect as one line: `compensates reserve_stock (reserve_stock:1)`."""


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An action that an app applies in the background to every instance that matches a filter."""

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
    """The first hundred failures."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit: an action, and its actor."""

    number: int
    at: datetime
    actor: str
    action: str
    instance_id: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A page of the audit, newest entry first."""

    items: list[AuditEntry]
    next_before: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of `romancy doctor`."""

    name: str
    level: str
    """ok, warning, error."""
    says: str
    remedy: str = ""
