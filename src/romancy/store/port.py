"""The store's port: coarse verbs on frozen records.

Rules every store keeps:

- A call that returns has committed. Nothing is answered before.
- A batch is one transaction. A write that cannot be made (old epoch, wrong state, data the database refuses) is answered
  alone; its neighbours commit.
- `now` is always given by the caller and is the database's time in microseconds (`Store.now`), so that tests own the clock.
- Failures of the database itself are `StoreError`; `retryable` says whether the same call may succeed later. A batch may
  break off between two transactions: what is not written then is answered `Unwritten`, what is written as always.
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
    """A workflow this process can run: name, version and the fingerprint of its code."""

    workflow: str
    version: str
    code: str = ""


class SweepResult(NamedTuple):
    """What became of the instances of dead workers."""

    freed: int
    """How many are no longer theirs."""
    paused: tuple[tuple[str, str], ...] = ()
    """Those of them that have lost too many workers: their ids, and why each was paused."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A line of an instance's journal: who owned it when, cold replays, operators' effects."""

    at: int
    note: JournalNote
    worker: str
    epoch: int


class NotWrittenError(StoreError):
    """The answer to a write that was not made because its batch broke off. It can be made again, and why may be known."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.cause = why


class HeartbeatConnection(Protocol):
    """A worker's heartbeat, on a connection of its own; called from a thread of its own."""

    def renew(self, now: int) -> bool:
        """Renew the worker's life. False: the worker was declared dead, its row is gone."""
        ...

    def close(self) -> None:
        """Let the connection go."""
        ...


class Store(Protocol):
    """What the engine asks of a database."""

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        """Called on the event loop when another process (or connection) has written: look for work."""
        ...

    @on_remote_commit.setter
    def on_remote_commit(self, call: Callable[[], None] | None) -> None: ...

    def now(self) -> int:
        """The database's time in microseconds."""
        ...

    async def verified_time(self) -> int | None:
        """The same, asked anew: by it what is old is deleted. None while the date may be wrong: then nothing is."""
        ...

    async def migrations(self) -> builtins.list[tuple[str, bool]]:
        """Each migration of the schema by its name, and whether the database has it. The store need not be open."""
        ...

    async def open(self) -> None:
        """Connect, and bring the schema up to date (or check that it is)."""
        ...

    async def close(self) -> None:
        """Finish what is queued and disconnect. Safe to call twice."""
        ...

    # --- writing
    @property
    def concurrent_batches(self) -> int:
        """How many batches it is worth to have under way at a time."""
        ...

    @property
    def call_timeout(self) -> float:
        """Seconds within which a call is answered, be it by an error."""
        ...

    async def commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        """Write a batch, each write all or not at all; one answer for each write, in order."""
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
        """Take up to `limit` unowned instances that are due, oldest first, raising their epochs; only `ids` if given.

        With `blocked`, take instances that other code than ours could not run instead, and those that any code could not
        run before a time.
        """
        ...

    async def release(self, worker: str, *, now: int) -> int:
        """Give back everything the worker owns, at once claimable, and strike the worker off."""
        ...

    async def sweep(
        self, dead: Sequence[tuple[str, int]], *, now: int, limit: int, max_losses: int | None = None
    ) -> SweepResult:
        """Free up to `limit` instances of workers whose heartbeat still is the one given; strike off the empty ones.

        With `max_losses`, an instance that has lost so many workers without recording anything in between is paused.
        """
        ...

    async def mark_unrunnable(self, kinds: Sequence[Runnable], *, due_before: int, now: int, limit: int) -> int:
        """Block up to `limit` instances of kinds that nobody can run and that have been due since before a time."""
        ...

    async def register_worker(self, worker: WorkerRow) -> None:
        """Record a worker's incarnation."""
        ...

    async def save_source(
        self, code: str, workflow: str, version: str, source: str, *, now: int, replace: bool = False
    ) -> None:
        """Keep a workflow's source, once for each fingerprint; `replace`: the last one."""
        ...

    async def save_handlers(self, handlers: Sequence[tuple[str, str, bool]], *, now: int) -> None:
        """Note which workflows (name, version) handle events of their name, and which do not; the last word counts."""
        ...

    async def prune_instances(self, *, ended_before: int, limit: int) -> int:
        """Delete up to `limit` instances that ended before a time, with everything of theirs."""
        ...

    async def prune_generations(self, *, over_before: int, limit: int) -> int:
        """Delete up to `limit` archived generations that were over before a time."""
        ...

    async def prune_messaging(self, *, events_before: int, messages_before: int, limit: int) -> int:
        """Delete up to `limit` events accepted, and as many unclaimed messages written, before a time; the larger count."""
        ...

    # --- activities' own transactions
    def engine(self) -> AsyncEngine:
        """An engine of SQLAlchemy on the same database, for activities' own tables. Raises `ConfigurationError`."""
        ...

    async def create_on(self, connection: object, create: CreateInstance) -> WriteResult:
        """A new instance in somebody's transaction; it is there when that commits."""
        ...

    async def emit_on(self, connection: object, effect: Sendable, *, now: int) -> Refused | None:
        """Say something in somebody's transaction; it is heard when that commits."""
        ...

    async def emit_staged(self) -> None:
        """Say what was left by transactions that have committed."""
        ...

    async def store_result(self, session: AsyncSession, result: TransactionalResult) -> ResultStored | Refused:
        """Leave a result in an activity's own transaction; it counts when that is committed."""
        ...

    async def stored_result(self, result: TransactionalResult) -> int | None:
        """The mail of a deposit whose COMMIT was not answered, if it was committed. One under way is waited for."""
        ...

    # --- the outbox
    async def claim_outbox(self, broker: str, claimant: str, *, now: int, until: int, limit: int) -> list[OutboxRow]:
        """Take up to `limit` rows of a broker that are due, the longest due first; nobody else gets them until a time."""
        ...

    async def record_outbox(self, claimant: str, outcomes: Sequence[DeliveryOutcome]) -> None:
        """Write what became of claimed rows. What is said of a row that somebody else has claimed since is ignored."""
        ...

    async def requeue_outbox(self, ids: Sequence[int] | None, *, now: int, limit: int) -> int:
        """Let dead rows be due again: those of `ids`, or up to `limit` of all; how many."""
        ...

    async def prune_outbox(self, broker: str, *, dead_before: int, limit: int) -> int:
        """Delete up to `limit` rows of a broker that died before a time."""
        ...

    async def next_outbox_due(self, broker: str) -> int | None:
        """When the next row of a broker is due, or its claim ends."""
        ...

    async def count_outbox(self, broker: str, *, most: int) -> tuple[int, int]:
        """How many rows of a broker wait, and how many are dead; counted up to `most` each."""
        ...

    async def oldest_outbox(self, broker: str, *, most: int) -> int | None:
        """When the oldest row of a broker that waits was put in; only the `most` that are due first are looked at."""
        ...

    async def list_outbox(self, *, dead: bool | None, after: int, limit: int) -> builtins.list[OutboxRow]:
        """Rows with `seq` above `after`, in order: all, only the dead, or only the others."""
        ...

    # --- reading, for the engine
    async def load(self, instance_id: str) -> LoadedInstance | None:
        """Everything a cold replay needs; the history in one query."""
        ...

    async def inbox(self, instance_id: str) -> Inbox:
        """What has arrived for an instance, oldest first, and the signal counter it belongs to."""
        ...

    async def with_unread_inbox(self, worker: str) -> list[str]:
        """The worker's instances for which something arrived that they have not seen."""
        ...

    async def owned(self, worker: str) -> builtins.list[str]:
        """The instances a worker owns."""
        ...

    async def upcoming(self, runnable: Sequence[Runnable], *, until: int, limit: int) -> list[tuple[str, int]]:
        """Unowned instances and when they are due, up to a time, soonest first."""
        ...

    async def kinds_waiting(self) -> builtins.list[tuple[str, str]]:
        """Each workflow and version that unowned instances wait for."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """Every worker that has not been struck off."""
        ...

    async def statuses(self, ids: Sequence[str]) -> dict[str, Status]:
        """The status of each instance that exists."""
        ...

    async def endings(self, ids: Sequence[str]) -> dict[str, tuple[Status, Ending] | None]:
        """How each instance that exists has ended; None: it has not."""
        ...

    def heartbeat(self, worker: str) -> HeartbeatConnection:
        """The worker's heartbeat."""
        ...

    # --- reading, for people
    async def progress(self, ids: Sequence[str]) -> dict[str, InstanceProgress]:
        """Where each instance that exists stands."""
        ...

    async def get(self, instance_id: str, generation: int | None = None) -> StoredInstance | None:
        """One instance with its payloads, as it is or as it was in an archived generation."""
        ...

    async def members(self, group: str) -> builtins.list[str]:
        """Who is in a group, in the order they joined."""
        ...

    async def undeliverable(self, *, after: int, limit: int) -> builtins.list[tuple[int, int, bytes]]:
        """Addressed events whose instance does not exist or has ended: place, time and the event itself; oldest first."""
        ...

    async def list(self, query: InstanceFilter) -> builtins.list[StoredInstance]:
        """Instances, newest first."""
        ...

    async def history(self, instance_id: str, generation: int, *, after: int, limit: int) -> builtins.list[Entry]:
        """Entries of one generation with `seq` above `after`, in order."""
        ...

    async def attempts(self, instance_id: str, generation: int) -> builtins.list[AttemptRow]:
        """Failed and open attempts of one generation, by operation and number."""
        ...

    async def journal(self, instance_id: str) -> builtins.list[JournalEntry]:
        """Who owned the instance when, cold replays, operators' effects; oldest first."""
        ...

    async def source(self, code: str) -> str | None:
        """The source of a workflow by its fingerprint."""
        ...

    # --- for operators
    async def scan_instances(self, query: InstanceQuery) -> InstanceScan:
        """Instances without their payloads, newest first, as far as was looked."""
        ...

    async def rows_by_id(self, ids: Sequence[str]) -> builtins.list[InstanceListRow]:
        """The given instances without their payloads, newest first."""
        ...

    async def ids_by_prefix(self, prefix: str, *, limit: int) -> builtins.list[str]:
        """Up to `limit` ids that begin with a text."""
        ...

    async def ids_by_wait(self, key: str, *, limit: int) -> builtins.list[str]:
        """Up to `limit` of those who wait for an event of a type, or a message of a channel."""
        ...

    async def ids_by_due(self, *, before: int, limit: int) -> builtins.list[str]:
        """Up to `limit` of those that have been due since before a time, and that nobody has taken up."""
        ...

    async def contents(self, ids: Sequence[str]) -> dict[str, Content]:
        """The arguments and errors of the given instances, if they are not too large to be looked through."""
        ...

    async def errors(self, ids: Sequence[str]) -> dict[str, bytes]:
        """What the given instances failed with."""
        ...

    async def count_instances(self, *, failed_since: int, due_before: int, most: int) -> InstanceCounts:
        """How many there are of what operators ask about, each counted up to `most`."""
        ...

    async def workflow_counts(self, *, most: int) -> WorkflowCounts:
        """How many instances of each workflow are in flight, looking at `most` of each status."""
        ...

    async def count_owned(self, workers: Sequence[str], *, most: int) -> dict[str, int]:
        """How many instances each of the workers has in hand, counted up to `most`."""
        ...

    async def channels(self, *, after: str, limit: int, most: int) -> builtins.list[ChannelState]:
        """Channels that have subscribers or messages for anybody, by name; counted up to `most`."""
        ...

    async def channel(self, name: str, *, most: int) -> ChannelState:
        """One channel."""
        ...

    async def subscribers(self, channel: str, *, after: str, limit: int, most: int) -> builtins.list[SubscriberState]:
        """Who has subscribed to a channel, by id."""
        ...

    async def is_subscribed(self, channel: str, instance_id: str) -> bool:
        """Whether an instance has subscribed to a channel."""
        ...

    async def groups(self, *, after: str, limit: int, most: int) -> builtins.list[tuple[str, int]]:
        """Groups by name, and how many are in each, counted up to `most`."""
        ...

    async def page_of_members(self, group: str, *, after: str, limit: int) -> builtins.list[str]:
        """Who is in a group, by id."""
        ...

    async def last_events(self, kind: str, instance_id: str, *, limit: int) -> builtins.list[RecentEvent]:
        """The last events of a type that were for everybody or for one instance, newest first."""
        ...

    async def outbox_lag(self) -> int | None:
        """Since when the event of the outbox has been waiting that waits longest."""
        ...

    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        """Write down who did what; the numbers are the store's."""
        ...

    async def prune_audit(self, *, before: int, limit: int) -> int:
        """Delete those of the `limit` oldest lines about effects that were written before a time; how many."""
        ...

    async def audit(self, *, instance_id: str | None, before: int | None, limit: int) -> builtins.list[AuditRow]:
        """What was done, newest first: to one instance, or all; below a number."""
        ...

    async def add_bulk_action(self, action: BulkActionRow) -> None:
        """A batch begins."""
        ...

    async def bulk_action(self, action_id: str) -> BulkActionRow | None:
        """One batch."""
        ...

    async def bulk_actions(self, *, limit: int) -> builtins.list[BulkActionRow]:
        """The last batches, newest first."""
        ...

    async def claim_bulk_action(self, claimant: str, *, now: int, until: int) -> BulkActionRow | None:
        """The oldest batch that nobody works on, claimed until a time; None if there is none."""
        ...

    async def save_bulk_action(self, action: BulkActionRow, claimant: str, *, until: int) -> bool:
        """How far a batch has come; the claim goes on until a time. Not if it is lost, or the batch is over."""
        ...

    async def abort_bulk_action(self, action_id: str, *, now: int) -> bool:
        """A batch goes no further. Not if it is over."""
        ...

    async def roll_up(self, *, until: int, limit: int, forget_before: int) -> int:
        """Count about `limit` of what ended before a time and is not counted yet; how many. Only one does at a time."""
        ...

    async def minutes(self, *, since: int) -> builtins.list[Minute]:
        """What is counted of the minutes from a time on."""
        ...

    async def vitals(self) -> Vitals:
        """How the database itself is."""
        ...
