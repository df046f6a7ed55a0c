"""`SqlStore`: the store's port on a `TransactionRunner` that runs named SQL statements in transactions."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from romancy.clock import Clock, SystemClock
from romancy.codec import Codec
from romancy.errors import ConfigurationError, StoreError
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
from romancy.model.transition import CreateInstance, Ending, Refused, ResultStored, TransactionalResult, Write, WriteResult
from romancy.store.port import HeartbeatConnection, JournalEntry, Runnable, SweepResult
from romancy.store.sql import activity_results, admin_queries, audit, outbox, ownership, queries, rollup, staging
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.transaction_runner import TransactionRunner, Work

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

T = TypeVar("T")


class SqlStore:
    """Implements `Store`: each operation is one transaction, or one read, on a `TransactionRunner`."""

    def __init__(self, database: TransactionRunner, *, clock: Clock, auto_migrate: bool = True) -> None:
        self._database = database
        self._clock = clock
        self._auto_migrate = auto_migrate
        self._claim_offset = 0

    def encode_with(self, codec: Codec) -> None:
        """Encode the payloads that the SQL layer itself writes: bodies of events and messages, `match` values of waits.

        All other payloads arrive encoded, by `EncodingStore`.
        """
        self._database.codec = codec

    def now(self) -> int:
        """The database's time in microseconds, as the clock follows it."""
        return self._clock.now()

    async def verified_time(self) -> int | None:
        """Synchronise the clock with the database and return the time; None while it may be wrong."""
        await self._database.sync_clock()
        return self.now() if not isinstance(self._clock, SystemClock) or self._clock.is_certain else None

    async def migrations(self) -> builtins.list[tuple[str, bool]]:
        """List the schema's migrations by name, each with whether it has been applied."""
        return await self._database.migrations()

    async def open(self) -> None:
        """Connect, and bring the schema up to date (or check that it is up to date). Raises `StoreError`."""
        await self._database.open(auto_migrate=self._auto_migrate, now=self.now())

    async def close(self) -> None:
        """Finish queued calls and disconnect. Safe to call twice."""
        await self._database.close()

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        """Called on the event loop after a commit by another process or connection: there may be new work."""
        return self._database.on_remote_commit

    @on_remote_commit.setter
    def on_remote_commit(self, callback: Callable[[], None] | None) -> None:
        self._database.on_remote_commit = callback

    # --- writing

    @property
    def concurrent_batches(self) -> int:
        """How many batches the committer should have in flight at a time."""
        return self._database.concurrent_batches

    @property
    def call_timeout(self) -> float:
        """Seconds within which every call returns or raises."""
        return self._database.call_timeout

    async def commit(self, batch: Sequence[Write]) -> builtins.list[WriteResult | StoreError]:
        """Write a batch; return one result for each write, in order."""
        if not batch:
            return []
        return await self._database.commit(batch)

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
    ) -> builtins.list[InstanceRow]:
        """Claim up to `limit` unowned instances that are due (or blocked), round robin over the kinds of workflows."""
        self._claim_offset += 1
        offset = self._claim_offset

        def claim_found(cursor: Cursor) -> list[InstanceRow]:
            if blocked:
                found = ownership.find_blocked(cursor, runnable, ids, before=blocked_before, limit=limit, offset=offset)
            else:
                found = ownership.find_due(cursor, worker, runnable, ids, now=now, limit=limit, offset=offset)
            return ownership.claim(cursor, worker, found, now=now)

        return await self._database.write(claim_found, point="claim", serialized=False)

    async def release(self, worker: str, *, now: int) -> int:
        """Release every instance that the worker owns, so that it can be claimed at once, and deregister the worker."""
        return await self._database.write(partial(ownership.release, worker=worker, now=now))

    async def sweep(
        self, dead: Sequence[tuple[str, int]], *, now: int, limit: int, max_losses: int | None = None
    ) -> SweepResult:
        """Free up to `limit` instances of workers whose heartbeat has not changed, and of owners that are not registered."""
        work = partial(ownership.sweep, dead=dead, now=now, limit=limit, max_losses=max_losses)
        return await self._database.write(work)

    async def mark_unrunnable(self, kinds: Sequence[Runnable], *, due_before: int, now: int, limit: int) -> int:
        """Block up to `limit` instances of kinds that no worker can run and that have been due since before `due_before`."""
        return await self._database.write(
            partial(ownership.mark_unrunnable, kinds=kinds, due_before=due_before, now=now, limit=limit)
        )

    async def register_worker(self, worker: WorkerRow) -> None:
        """Register this incarnation of a worker process."""
        await self._database.write(partial(ownership.register_worker, worker=worker), serialized=False)

    async def save_source(
        self, code: str, workflow: str, version: str, source: str, *, now: int, replace: bool = False
    ) -> None:
        """Save a workflow's source under its fingerprint; an existing source is overwritten only with `replace`."""
        values = (code, workflow, version, source, now)
        await self._database.write(partial(ownership.save_source, values=values, replace=replace), serialized=False)

    async def save_handlers(self, handlers: Sequence[tuple[str, str, bool]], *, now: int) -> None:
        """Record which workflows (name, version) handle events of their name and which do not."""
        await self._database.write(partial(ownership.save_handlers, handlers=handlers, now=now), serialized=False)

    async def prune_instances(self, *, ended_before: int, limit: int) -> int:
        """Delete up to `limit` instances that ended before `ended_before`, with all their rows; return how many."""
        return await self._database.write(
            partial(ownership.prune_instances, ended_before=ended_before, limit=limit), serialized=False
        )

    async def prune_generations(self, *, over_before: int, limit: int) -> int:
        """Delete up to `limit` archived generations that ended before `over_before`; return how many."""
        return await self._database.write(
            partial(ownership.prune_generations, over_before=over_before, limit=limit), serialized=False
        )

    async def prune_messaging(self, *, events_before: int, messages_before: int, limit: int) -> int:
        """Delete up to `limit` old events, and up to `limit` old messages that no instance has taken."""
        work = partial(ownership.prune_messaging, events_before=events_before, messages_before=messages_before, limit=limit)
        return await self._database.write(work)

    # --- activities' own transactions

    def engine(self) -> AsyncEngine:
        """Return an SQLAlchemy engine on the same database, for activities' own tables."""
        return self._database.engine()

    async def create_on(self, connection: object, create: CreateInstance) -> WriteResult:
        """Create an instance in the caller's transaction; it exists once that transaction commits."""
        return await self._run_on(connection, partial(staging.create_instance, create=create))

    async def emit_on(self, connection: object, effect: Sendable, *, now: int) -> Refused | None:
        """Send an event or a message in the caller's transaction; it is delivered after that transaction commits."""
        emit = staging.stage if self._database.has_staging else staging.emit
        return await self._run_on(connection, partial(emit, effect=effect, now=now))

    async def emit_staged(self) -> None:
        """Deliver the events and messages that were staged by callers' transactions and have been committed."""
        await self._database.emit_staged()

    async def _run_on(self, connection: Any, work: Work[T]) -> T:
        if hasattr(connection, "run_sync"):
            return cast(T, await connection.run_sync(self._on_sync_connection(work)))
        if hasattr(connection, "exec_driver_sql") or hasattr(connection, "get_bind"):
            return self._on_sync_connection(work)(connection)
        return await self._database.run_on(connection, work)

    def _on_sync_connection(self, work: Work[T]) -> Callable[[Any], T]:
        """Return a function that does the work on a synchronous connection or session of SQLAlchemy."""

        def inside(given: Any) -> T:
            connection: Connection = given if hasattr(given, "exec_driver_sql") else given.connection()
            name = connection.dialect.name
            if name.replace("mariadb", "mysql") != self._database.dialect:
                raise ConfigurationError(
                    f"using() got a connection to a {name} database, but the app's database is {self._database.dialect}: "
                    "use a connection to the app's own database."
                )
            return work(self._database.cursor_on(connection))

        return inside

    async def store_result(self, session: AsyncSession, result: TransactionalResult) -> ResultStored | Refused:
        """Store an activity's result in the activity's own transaction; it takes effect when that transaction commits."""
        return await self._run_on(session, partial(activity_results.store_result, result=result))

    async def stored_result(self, result: TransactionalResult) -> int | None:
        """Return the inbox item of a transactional result whose COMMIT got no response, or None if it was not committed."""
        return await self._database.write(partial(activity_results.find_result, result=result), serialized=False)

    # --- the outbox

    async def claim_outbox(
        self, broker: str, claimant: str, *, now: int, until: int, limit: int
    ) -> builtins.list[OutboxRow]:
        """Claim up to `limit` due rows of a broker."""
        work = partial(outbox.claim, broker=broker, claimant=claimant, now=now, until=until, limit=limit)
        return await self._database.write(work, serialized=False)

    async def record_outbox(self, claimant: str, outcomes: Sequence[DeliveryOutcome]) -> None:
        """Record the outcomes of claimed rows."""
        await self._database.write(partial(outbox.record_outcomes, claimant=claimant, outcomes=outcomes), serialized=False)

    async def requeue_outbox(self, ids: Sequence[int] | None, *, now: int, limit: int) -> int:
        """Make dead rows due again; return how many."""
        return await self._database.write(partial(outbox.requeue, ids=ids, now=now, limit=limit), serialized=False)

    async def prune_outbox(self, broker: str, *, dead_before: int, limit: int) -> int:
        """Delete up to `limit` rows of a broker that were dead-lettered before `dead_before`; return how many."""
        work = partial(outbox.prune, broker=broker, dead_before=dead_before, limit=limit)
        return await self._database.write(work, serialized=False)

    async def next_outbox_due(self, broker: str) -> int | None:
        """Return when the next row of a broker is due or its claim expires."""
        return await self._database.read(partial(outbox.next_due, broker=broker))

    async def count_outbox(self, broker: str, *, most: int) -> tuple[int, int]:
        """Count the waiting and the dead rows of a broker, up to `most` each."""
        return await self._database.read(partial(outbox.count, broker=broker, most=most))

    async def oldest_outbox(self, broker: str, *, most: int) -> int | None:
        """Return when the oldest waiting row of a broker was enqueued, of the `most` rows that are due first."""
        return await self._database.read(partial(outbox.oldest, broker=broker, most=most))

    async def list_outbox(self, *, dead: bool | None, after: int, limit: int) -> builtins.list[OutboxRow]:
        """List rows with `seq` above `after`, in order."""
        return await self._database.read(partial(outbox.list_rows, dead=dead, after=after, limit=limit))

    # --- reading, for the engine

    async def load(self, instance_id: str) -> LoadedInstance | None:
        """Load everything a cold replay needs."""
        return await self._database.read(partial(queries.load, instance_id=instance_id), snapshot=True)

    async def inbox(self, instance_id: str) -> Inbox:
        """Return the inbox items of an instance, oldest first, and the inbox version they belong to."""
        return await self._database.read(partial(queries.inbox, instance_id=instance_id))

    async def with_unread_inbox(self, worker: str) -> builtins.list[str]:
        """List the worker's instances whose inbox version is newer than the one they have seen."""
        return await self._database.read(partial(queries.with_unread_inbox, worker=worker))

    async def owned(self, worker: str) -> builtins.list[str]:
        """List the instances that a worker owns."""
        return await self._database.read(partial(queries.owned, worker=worker))

    async def upcoming(self, runnable: Sequence[Runnable], *, until: int, limit: int) -> builtins.list[tuple[str, int]]:
        """List unowned instances that are due before `until` and their due times, soonest first."""
        return await self._database.read(partial(queries.upcoming, runnable=runnable, until=until, limit=limit))

    async def kinds_waiting(self) -> builtins.list[tuple[str, str]]:
        """List the workflows and versions of unowned instances."""
        return await self._database.read(queries.kinds_waiting)

    async def workers(self) -> builtins.list[WorkerRow]:
        """List the workers that have not been deregistered."""
        return await self._database.read(queries.workers)

    async def statuses(self, ids: Sequence[str]) -> dict[str, Status]:
        """Return the status of each instance that exists."""
        return await self._database.read(partial(queries.statuses, ids=ids))

    async def endings(self, ids: Sequence[str]) -> dict[str, tuple[Status, Ending] | None]:
        """Return how each instance that exists has ended; None if it has not ended."""
        return await self._database.read(partial(queries.endings, ids=ids))

    async def progress(self, ids: Sequence[str]) -> dict[str, InstanceProgress]:
        """Return the generation, history length and status of each instance that exists."""
        return await self._database.read(partial(queries.progress_of, ids=ids))

    def heartbeat(self, worker: str) -> HeartbeatConnection:
        """Return the heartbeat connection of a worker."""
        return self._database.heartbeat(worker)

    # --- reading, for clients

    async def get(self, instance_id: str, generation: int | None = None) -> StoredInstance | None:
        """Return one instance with its payloads, as it is or as it was in an archived generation."""
        return await self._database.read(partial(queries.get, instance_id=instance_id, generation=generation))

    async def members(self, group: str) -> builtins.list[str]:
        """List the members of a group, in the order they joined."""
        return await self._database.read(partial(queries.members, group=group))

    async def undeliverable(self, *, after: int, limit: int) -> builtins.list[tuple[int, int, bytes]]:
        """List events whose target does not exist or has ended: sequence number, time and encoded event."""
        return await self._database.read(partial(queries.undeliverable, after=after, limit=limit))

    async def list(self, query: InstanceFilter) -> builtins.list[StoredInstance]:
        """List instances, newest first."""
        return await self._database.read(partial(queries.list_rows, query=query))

    async def history(self, instance_id: str, generation: int, *, after: int, limit: int) -> builtins.list[Entry]:
        """List the history entries of one generation with `seq` above `after`, in order."""
        return await self._database.read(
            partial(queries.history, instance_id=instance_id, generation=generation, after=after, limit=limit)
        )

    async def attempts(self, instance_id: str, generation: int) -> builtins.list[AttemptRow]:
        """List the failed and open attempts of one generation, ordered by operation and number."""
        return await self._database.read(partial(queries.attempts, instance_id=instance_id, generation=generation))

    async def journal(self, instance_id: str) -> builtins.list[JournalEntry]:
        """List changes of ownership, cold replays and operators' actions of an instance, oldest first."""
        return await self._database.read(partial(queries.journal, instance_id=instance_id))

    async def source(self, code: str) -> str | None:
        """Return the source of a workflow by its fingerprint."""
        return await self._database.read(partial(queries.source, code=code))

    # --- for operators

    async def scan_instances(self, query: InstanceQuery) -> InstanceScan:
        """List instances without their payloads, newest first; the result says how far the scan went."""
        return await self._database.read(partial(admin_queries.scan_instances, query=query))

    async def rows_by_id(self, ids: Sequence[str]) -> builtins.list[InstanceListRow]:
        """List the given instances without their payloads, newest first."""
        return await self._database.read(partial(admin_queries.rows_by_id, ids=ids))

    async def ids_by_prefix(self, prefix: str, *, limit: int) -> builtins.list[str]:
        """List up to `limit` ids that begin with `prefix`."""
        return await self._database.read(partial(admin_queries.ids_by_prefix, prefix=prefix, limit=limit))

    async def ids_by_wait(self, key: str, *, limit: int) -> builtins.list[str]:
        """List up to `limit` instances that wait for an event of this type or a message of this channel."""
        return await self._database.read(partial(admin_queries.ids_by_wait, key=key, limit=limit))

    async def ids_by_due(self, *, before: int, limit: int) -> builtins.list[str]:
        """List up to `limit` instances that have been due since before `before` and that no worker has claimed."""
        return await self._database.read(partial(admin_queries.ids_by_due, before=before, limit=limit))

    async def contents(self, ids: Sequence[str]) -> dict[str, Content]:
        """Return the arguments and errors of the given instances, if they are not too large to be searched."""
        return await self._database.read(partial(admin_queries.contents, ids=ids))

    async def errors(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the errors that the given instances failed with."""
        return await self._database.read(partial(admin_queries.errors, ids=ids))

    async def count_instances(self, *, failed_since: int, due_before: int, most: int) -> InstanceCounts:
        """Count instances by status, retrying and overdue ones, and dead outbox rows; each count up to `most`."""
        return await self._database.read(
            partial(admin_queries.count_instances, failed_since=failed_since, due_before=due_before, most=most)
        )

    async def workflow_counts(self, *, most: int) -> WorkflowCounts:
        """Count the instances in flight of each workflow, reading up to `most` rows of each status."""
        return await self._database.read(partial(admin_queries.workflow_counts, most=most))

    async def count_owned(self, workers: Sequence[str], *, most: int) -> dict[str, int]:
        """Count the instances that each of the workers owns, up to `most`."""
        return await self._database.read(partial(admin_queries.count_owned, workers=workers, most=most))

    async def channels(self, *, after: str, limit: int, most: int) -> builtins.list[ChannelState]:
        """List channels that have subscribers or pooled messages, by name, with counts up to `most`."""
        return await self._database.read(partial(admin_queries.channels, after=after, limit=limit, most=most))

    async def channel(self, name: str, *, most: int) -> ChannelState:
        """Return the state of one channel, with counts up to `most`."""
        return await self._database.read(partial(admin_queries.channel, name=name, most=most))

    async def subscribers(self, channel: str, *, after: str, limit: int, most: int) -> builtins.list[SubscriberState]:
        """List the subscribers of a channel, ordered by id."""
        return await self._database.read(
            partial(admin_queries.subscribers, name=channel, after=after, limit=limit, most=most)
        )

    async def is_subscribed(self, channel: str, instance_id: str) -> bool:
        """Return whether an instance has subscribed to a channel."""
        return await self._database.read(partial(admin_queries.is_subscribed, name=channel, instance_id=instance_id))

    async def groups(self, *, after: str, limit: int, most: int) -> builtins.list[tuple[str, int]]:
        """List groups by name, and the number of their members, counted up to `most`."""
        return await self._database.read(partial(admin_queries.groups, after=after, limit=limit, most=most))

    async def page_of_members(self, group: str, *, after: str, limit: int) -> builtins.list[str]:
        """List members of a group, ordered by id."""
        return await self._database.read(partial(admin_queries.page_of_members, name=group, after=after, limit=limit))

    async def last_events(self, kind: str, instance_id: str, *, limit: int) -> builtins.list[RecentEvent]:
        """List the last events of a type that were broadcast or addressed to this instance, newest first."""
        return await self._database.read(partial(admin_queries.last_events, kind=kind, instance_id=instance_id, limit=limit))

    async def outbox_lag(self) -> int | None:
        """Return the enqueue time of the oldest undelivered outbox row."""
        return await self._database.read(admin_queries.outbox_lag)

    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        """Add rows to the audit log. The store assigns their ids."""
        await self._database.write(partial(audit.add_audit, rows=rows), serialized=False)

    async def prune_audit(self, *, before: int, limit: int) -> int:
        """Delete those of the `limit` oldest rows of the audit log that were written before `before`; return how many."""
        return await self._database.write(partial(audit.prune_audit, before=before, limit=limit), serialized=False)

    async def audit(self, *, instance_id: str | None, before: int | None, limit: int) -> builtins.list[AuditRow]:
        """List the audit log, newest first: of one instance or of all, rows with an id below `before`."""
        return await self._database.read(partial(audit.list_audit, instance_id=instance_id, before=before, limit=limit))

    async def add_bulk_action(self, action: BulkActionRow) -> None:
        """Add a bulk action."""
        await self._database.write(partial(audit.add_bulk_action, action=action), serialized=False)

    async def bulk_action(self, action_id: str) -> BulkActionRow | None:
        """Return one bulk action."""
        return await self._database.read(partial(audit.bulk_action, action_id=action_id))

    async def bulk_actions(self, *, limit: int) -> builtins.list[BulkActionRow]:
        """List the last bulk actions, newest first."""
        return await self._database.read(partial(audit.bulk_actions, limit=limit))

    async def claim_bulk_action(self, claimant: str, *, now: int, until: int) -> BulkActionRow | None:
        """Claim the oldest running bulk action that is not claimed, until `until`; None if there is none."""
        if not await self._database.read(partial(audit.has_open_bulk_action, now=now)):
            return None  # the usual case: a read avoids a write transaction each time
        return await self._database.write(
            partial(audit.claim_bulk_action, claimant=claimant, now=now, until=until), serialized=False
        )

    async def save_bulk_action(self, action: BulkActionRow, claimant: str, *, until: int) -> bool:
        """Save the progress of a bulk action and extend its claim; False if the claim is lost or the action is over."""
        return await self._database.write(
            partial(audit.save_bulk_action, action=action, claimant=claimant, until=until), serialized=False
        )

    async def abort_bulk_action(self, action_id: str, *, now: int) -> bool:
        """Abort a bulk action; return False if it is over already."""
        return await self._database.write(partial(audit.abort_bulk_action, action_id=action_id, now=now), serialized=False)

    async def roll_up(self, *, until: int, limit: int, forget_before: int) -> int:
        """Add about `limit` instances that ended before `until` to the counts of their minutes; return how many.

        Each instance is counted once, even if several workers call this at the same time.
        """
        if not await self._database.read(partial(rollup.is_behind, until=until)):
            return 0
        work = partial(rollup.advance, until=until, limit=limit, forget_before=forget_before)
        return await self._database.write(work, serialized=False)

    async def minutes(self, *, since: int) -> builtins.list[Minute]:
        """Return the counts of the minutes from `since` on."""
        return await self._database.read(partial(rollup.minutes, since=since))

    async def vitals(self) -> Vitals:
        """Measure the database itself: product, latency, clock difference."""
        return await self._database.vitals()
