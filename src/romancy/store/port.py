"""The store's port: the `Store` protocol, a set of coarse operations on frozen records, which every database implements.

Rules for every store:

- When a call returns, its changes have been committed. No result is returned before the commit.
- A batch is one transaction from the caller's view. A write that cannot be made (old epoch, wrong state, data that the
  database refuses) gets a result of its own; the other writes of the batch commit.
- The caller always passes `now`: the database's time in microseconds (`Store.now`). Tests can therefore control the clock.
- Failures of the database itself raise `StoreError`; `retryable` says whether the same call may succeed later. A server may
  run a batch as several transactions and fail between two of them. Writes that were not made get `NotWrittenError` then,
  and writes that were made get their usual results.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from romancy.errors import StoreError
from romancy.model.admin import (
    AuditRow,
    BulkActionRow,
    ChannelState,
    Content,
    InstanceCounts,
    InstanceListRow,
    InstanceQuery,
    InstanceScan,
    Minute,
    RecentEvent,
    SubscriberState,
    Vitals,
    WorkflowCounts,
)
from romancy.model.history import AttemptRow, Entry
from romancy.model.instance import (
    Inbox,
    InstanceFilter,
    InstanceProgress,
    InstanceRow,
    LoadedInstance,
    StoredInstance,
    WorkerRow,
)
from romancy.model.messaging import Sendable
from romancy.model.outbox import DeliveryOutcome, OutboxRow
from romancy.model.status import Status
from romancy.model.transition import (
    CreateInstance,
    Ending,
    JournalNote,
    Refused,
    ResultStored,
    TransactionalResult,
    Write,
    WriteResult,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession


@dataclass(frozen=True, slots=True)
class Runnable:
    """A workflow that this process can run: name, version and the fingerprint of its code."""

    workflow: str
    version: str
    code: str = ""


class SweepResult(NamedTuple):
    """How many instances of dead workers `Store.sweep` has freed, and which of them it has paused."""

    freed: int
    """Number of instances that have lost their owner, the paused ones included."""
    paused: tuple[tuple[str, str], ...] = ()
    """Instances that were paused because too many of their workers died: id and reason."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry of an instance's journal: a change of ownership, a cold replay or an operator's action."""

    at: int
    note: JournalNote
    worker: str
    epoch: int


class NotWrittenError(StoreError):
    """The result of a write that was not made because its batch failed before it. The write can be repeated.

    `cause` is the error that ended the batch.
    """

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.cause = why


class HeartbeatConnection(Protocol):
    """Renews a worker's heartbeat, on a dedicated connection. It is called from a dedicated thread."""

    def renew(self, now: int) -> bool:
        """Renew the worker's heartbeat. Return False if the worker was declared dead and its row is gone."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Store(Protocol):
    """Everything the engine, the client and the admin interfaces need of a database."""

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        """Called on the event loop after a commit by another process or connection: there may be new work."""
        ...

    @on_remote_commit.setter
    def on_remote_commit(self, callback: Callable[[], None] | None) -> None: ...

    def now(self) -> int:
        """The database's time in microseconds."""
        ...

    async def verified_time(self) -> int | None:
        """Read the database's time anew, for deleting old rows. None while it may be wrong: then nothing is deleted."""
        ...

    async def migrations(self) -> builtins.list[tuple[str, bool]]:
        """List the schema's migrations by name, each with whether it has been applied. The store need not be open."""
        ...

    async def open(self) -> None:
        """Connect, and bring the schema up to date (or check that it is up to date)."""
        ...

    async def close(self) -> None:
        """Finish queued calls and disconnect. Safe to call twice."""
        ...

    # --- writing
    @property
    def concurrent_batches(self) -> int:
        """How many batches the committer should have in flight at a time."""
        ...

    @property
    def call_timeout(self) -> float:
        """Seconds within which every call returns or raises."""
        ...

    async def commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        """Write a batch, each write completely or not at all; return one result for each write, in order."""
        ...

    async def claim(
        self,
        worker: str,
        runnable: Sequence[Runnable],
        *,
        now: int,
        limit: int,
        ids: Sequence[str] | None = None,
        blocked: bool = False,
        blocked_before: int = 0,
    ) -> list[InstanceRow]:
        """Claim up to `limit` unowned instances that are due, oldest first, and raise their epochs; only `ids` if given.

        With `blocked`, claim blocked instances instead: those that were blocked by other code than `runnable` names, and
        those that have been blocked since before `blocked_before`, whatever code blocked them.
        """
        ...

    async def release(self, worker: str, *, now: int) -> int:
        """Release every instance that the worker owns, so that it can be claimed at once, and deregister the worker."""
        ...

    async def sweep(
        self, dead: Sequence[tuple[str, int]], *, now: int, limit: int, max_losses: int | None = None
    ) -> SweepResult:
        """Free up to `limit` instances of dead workers; deregister those workers that own no instance any more.

        `dead` holds worker ids and heartbeats. A worker whose heartbeat has changed since is alive and is left alone. With
        `max_losses`, an instance that has lost so many workers without recording anything in between is paused.
        """
        ...

    async def mark_unrunnable(self, kinds: Sequence[Runnable], *, due_before: int, now: int, limit: int) -> int:
        """Block up to `limit` instances of kinds that no worker can run and that have been due since before `due_before`."""
        ...

    async def register_worker(self, worker: WorkerRow) -> None:
        """Register this incarnation of a worker process."""
        ...

    async def save_source(
        self, code: str, workflow: str, version: str, source: str, *, now: int, replace: bool = False
    ) -> None:
        """Save a workflow's source under its fingerprint; an existing source is overwritten only with `replace`."""
        ...

    async def save_handlers(self, handlers: Sequence[tuple[str, str, bool]], *, now: int) -> None:
        """Record which workflows (name, version) handle events of their name and which do not; the last call wins."""
        ...

    async def prune_instances(self, *, ended_before: int, limit: int) -> int:
        """Delete up to `limit` instances that ended before `ended_before`, with all their rows; return how many."""
        ...

    async def prune_generations(self, *, over_before: int, limit: int) -> int:
        """Delete up to `limit` archived generations that ended before `over_before`; return how many."""
        ...

    async def prune_messaging(self, *, events_before: int, messages_before: int, limit: int) -> int:
        """Delete up to `limit` old events and as many old messages that no instance has taken; return the larger count."""
        ...

    # --- activities' own transactions
    def engine(self) -> AsyncEngine:
        """Return an SQLAlchemy engine on the same database, for activities' own tables. Raises `ConfigurationError`."""
        ...

    async def create_on(self, connection: object, create: CreateInstance) -> WriteResult:
        """Create an instance in the caller's transaction; it exists once that transaction commits."""
        ...

    async def emit_on(self, connection: object, effect: Sendable, *, now: int) -> Refused | None:
        """Send an event or a message in the caller's transaction; it is delivered after that transaction commits."""
        ...

    async def emit_staged(self) -> None:
        """Deliver the events and messages that were staged by callers' transactions and have been committed."""
        ...

    async def store_result(self, session: AsyncSession, result: TransactionalResult) -> ResultStored | Refused:
        """Store an activity's result in the activity's own transaction; it takes effect when that transaction commits."""
        ...

    async def stored_result(self, result: TransactionalResult) -> int | None:
        """Return the inbox item of a transactional result whose COMMIT got no response, or None if it was not committed.

        A transaction that is still in flight is waited for.
        """
        ...

    # --- the outbox
    async def claim_outbox(self, broker: str, claimant: str, *, now: int, until: int, limit: int) -> list[OutboxRow]:
        """Claim up to `limit` due rows of a broker, the longest due first; no other relay gets them before `until`."""
        ...

    async def record_outbox(self, claimant: str, outcomes: Sequence[DeliveryOutcome]) -> None:
        """Record the outcomes of claimed rows. The outcome of a row that another relay has claimed since is ignored."""
        ...

    async def requeue_outbox(self, ids: Sequence[int] | None, *, now: int, limit: int) -> int:
        """Make dead rows due again: those of `ids`, or up to `limit` of all; return how many."""
        ...

    async def prune_outbox(self, broker: str, *, dead_before: int, limit: int) -> int:
        """Delete up to `limit` rows of a broker that were dead-lettered before `dead_before`; return how many."""
        ...

    async def next_outbox_due(self, broker: str) -> int | None:
        """Return when the next row of a broker is due or its claim expires."""
        ...

    async def count_outbox(self, broker: str, *, most: int) -> tuple[int, int]:
        """Count the waiting and the dead rows of a broker, up to `most` each."""
        ...

    async def oldest_outbox(self, broker: str, *, most: int) -> int | None:
        """Return when the oldest waiting row of a broker was enqueued, of the `most` rows that are due first."""
        ...

    async def list_outbox(self, *, dead: bool | None, after: int, limit: int) -> builtins.list[OutboxRow]:
        """List rows with `seq` above `after`, in order: only dead ones, only others, or (None) all."""
        ...

    # --- reading, for the engine
    async def load(self, instance_id: str) -> LoadedInstance | None:
        """Load everything a cold replay needs; the history in one query."""
        ...

    async def inbox(self, instance_id: str) -> Inbox:
        """Return the inbox items of an instance, oldest first, and the inbox version they belong to."""
        ...

    async def with_unread_inbox(self, worker: str) -> list[str]:
        """List the worker's instances whose inbox version is newer than the one they have seen."""
        ...

    async def owned(self, worker: str) -> builtins.list[str]:
        """List the instances that a worker owns."""
        ...

    async def upcoming(self, runnable: Sequence[Runnable], *, until: int, limit: int) -> list[tuple[str, int]]:
        """List unowned instances that are due before `until` and their due times, soonest first."""
        ...

    async def kinds_waiting(self) -> builtins.list[tuple[str, str]]:
        """List the workflows and versions of unowned instances."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """List the workers that have not been deregistered."""
        ...

    async def statuses(self, ids: Sequence[str]) -> dict[str, Status]:
        """Return the status of each instance that exists."""
        ...

    async def endings(self, ids: Sequence[str]) -> dict[str, tuple[Status, Ending] | None]:
        """Return how each instance that exists has ended; None if it has not ended."""
        ...

    def heartbeat(self, worker: str) -> HeartbeatConnection:
        """Return the heartbeat connection of a worker."""
        ...

    # --- reading, for clients
    async def progress(self, ids: Sequence[str]) -> dict[str, InstanceProgress]:
        """Return the generation, history length and status of each instance that exists."""
        ...

    async def get(self, instance_id: str, generation: int | None = None) -> StoredInstance | None:
        """Return one instance with its payloads, as it is or as it was in an archived generation."""
        ...

    async def members(self, group: str) -> builtins.list[str]:
        """List the members of a group, in the order they joined."""
        ...

    async def undeliverable(self, *, after: int, limit: int) -> builtins.list[tuple[int, int, bytes]]:
        """List events whose target does not exist or has ended: sequence number, time and encoded event; oldest first."""
        ...

    async def list(self, query: InstanceFilter) -> builtins.list[StoredInstance]:
        """List instances, newest first."""
        ...

    async def history(self, instance_id: str, generation: int, *, after: int, limit: int) -> builtins.list[Entry]:
        """List the history entries of one generation with `seq` above `after`, in order."""
        ...

    async def attempts(self, instance_id: str, generation: int) -> builtins.list[AttemptRow]:
        """List the failed and open attempts of one generation, ordered by operation and number."""
        ...

    async def journal(self, instance_id: str) -> builtins.list[JournalEntry]:
        """List changes of ownership, cold replays and operators' actions of an instance, oldest first."""
        ...

    async def source(self, code: str) -> str | None:
        """Return the source of a workflow by its fingerprint."""
        ...

    # --- for operators
    async def scan_instances(self, query: InstanceQuery) -> InstanceScan:
        """List instances without their payloads, newest first; the result says how far the scan went."""
        ...

    async def rows_by_id(self, ids: Sequence[str]) -> builtins.list[InstanceListRow]:
        """List the given instances without their payloads, newest first."""
        ...

    async def ids_by_prefix(self, prefix: str, *, limit: int) -> builtins.list[str]:
        """List up to `limit` ids that begin with `prefix`."""
        ...

    async def ids_by_wait(self, key: str, *, limit: int) -> builtins.list[str]:
        """List up to `limit` instances that wait for an event of this type or a message of this channel."""
        ...

    async def ids_by_due(self, *, before: int, limit: int) -> builtins.list[str]:
        """List up to `limit` instances that have been due since before `before` and that no worker has claimed."""
        ...

    async def contents(self, ids: Sequence[str]) -> dict[str, Content]:
        """Return the arguments and errors of the given instances, if they are not too large to be searched."""
        ...

    async def errors(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the errors that the given instances failed with."""
        ...

    async def count_instances(self, *, failed_since: int, due_before: int, most: int) -> InstanceCounts:
        """Count instances by status, retrying and overdue ones, and dead outbox rows; each count up to `most`."""
        ...

    async def workflow_counts(self, *, most: int) -> WorkflowCounts:
        """Count the instances in flight of each workflow, reading up to `most` rows of each status."""
        ...

    async def count_owned(self, workers: Sequence[str], *, most: int) -> dict[str, int]:
        """Count the instances that each of the workers owns, up to `most`."""
        ...

    async def channels(self, *, after: str, limit: int, most: int) -> builtins.list[ChannelState]:
        """List channels that have subscribers or pooled messages, by name, with counts up to `most`."""
        ...

    async def channel(self, name: str, *, most: int) -> ChannelState:
        """Return the state of one channel, with counts up to `most`."""
        ...

    async def subscribers(self, channel: str, *, after: str, limit: int, most: int) -> builtins.list[SubscriberState]:
        """List the subscribers of a channel, ordered by id."""
        ...

    async def is_subscribed(self, channel: str, instance_id: str) -> bool:
        """Return whether an instance has subscribed to a channel."""
        ...

    async def groups(self, *, after: str, limit: int, most: int) -> builtins.list[tuple[str, int]]:
        """List groups by name, and the number of their members, counted up to `most`."""
        ...

    async def page_of_members(self, group: str, *, after: str, limit: int) -> builtins.list[str]:
        """List members of a group, ordered by id."""
        ...

    async def last_events(self, kind: str, instance_id: str, *, limit: int) -> builtins.list[RecentEvent]:
        """List the last events of a type that were broadcast or addressed to this instance, newest first."""
        ...

    async def outbox_lag(self) -> int | None:
        """Return the enqueue time of the oldest undelivered outbox row."""
        ...

    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        """Add rows to the audit log. The store assigns their ids."""
        ...

    async def prune_audit(self, *, before: int, limit: int) -> int:
        """Delete those of the `limit` oldest rows of the audit log that were written before `before`; return how many."""
        ...

    async def audit(self, *, instance_id: str | None, before: int | None, limit: int) -> builtins.list[AuditRow]:
        """List the audit log, newest first: of one instance or of all, rows with an id below `before`."""
        ...

    async def add_bulk_action(self, action: BulkActionRow) -> None:
        """Add a bulk action."""
        ...

    async def bulk_action(self, action_id: str) -> BulkActionRow | None:
        """Return one bulk action."""
        ...

    async def bulk_actions(self, *, limit: int) -> builtins.list[BulkActionRow]:
        """List the last bulk actions, newest first."""
        ...

    async def claim_bulk_action(self, claimant: str, *, now: int, until: int) -> BulkActionRow | None:
        """Claim the oldest running bulk action that is not claimed, until `until`; None if there is none."""
        ...

    async def save_bulk_action(self, action: BulkActionRow, claimant: str, *, until: int) -> bool:
        """Save the progress of a bulk action and extend its claim; False if the claim is lost or the action is over."""
        ...

    async def abort_bulk_action(self, action_id: str, *, now: int) -> bool:
        """Abort a bulk action; return False if it is over already."""
        ...

    async def roll_up(self, *, until: int, limit: int, forget_before: int) -> int:
        """Add about `limit` instances that ended before `until` to the counts of their minutes; return how many.

        Each instance is counted once, even if several workers call this at the same time.
        """
        ...

    async def minutes(self, *, since: int) -> builtins.list[Minute]:
        """Return the counts of the minutes from `since` on."""
        ...

    async def vitals(self) -> Vitals:
        """Measure the database itself: product, latency, clock difference."""
        ...
