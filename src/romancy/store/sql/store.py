"""The store's port on a database that runs the deciding code's statements."""

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
from romancy.store.sql.transaction_runner import Database, Work

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

T = TypeVar("T")


class SqlStore:
    """Every verb is a transaction, or a read of one snapshot, on a database."""

    def __init__(self, database: Database, *, clock: Clock, auto_migrate: bool = True) -> None:
        self._database = database
        self._clock = clock
        self._auto_migrate = auto_migrate
        self._claim_offset = 0

    def encode_with(self, codec: Codec) -> None:
        """Encode what is made here: the bodies of events and messages, what waits match. The rest comes encoded."""
        self._database.codec = codec

    def now(self) -> int:
        """The time in microseconds."""
        return self._clock.now()

    async def verified_time(self) -> int | None:
        """The database's time, asked now; None while it may be wrong."""
        await self._database.sync_clock()
        return self.now() if not isinstance(self._clock, SystemClock) or self._clock.is_certain else None

    async def migrations(self) -> builtins.list[tuple[str, bool]]:
        """Each migration of the schema, and whether the database has it."""
        return await self._database.migrations()

    async def open(self) -> None:
        """Connect, and bring the schema up to date (or check that it is). Raises `StoreError`."""
        await self._database.open(auto_migrate=self._auto_migrate, now=self.now())

    async def close(self) -> None:
        """Finish what is queued and disconnect. Safe to call twice."""
        await self._database.close()

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        """Called on the event loop when another process (or connection) has written: look for work."""
        return self._database.on_remote_commit

    @on_remote_commit.setter
    def on_remote_commit(self, call: Callable[[], None] | None) -> None:
        self._database.on_remote_commit = call

    # --- writing

    @property
    def concurrent_batches(self) -> int:
        """How many batches it is worth to have under way at a time."""
        return self._database.concurrent_batches

    @property
    def call_timeout(self) -> float:
        """Seconds within which a call is answered, be it by an error."""
        return self._database.call_timeout

    async def commit(self, batch: Sequence[Write]) -> builtins.list[WriteResult | StoreError]:
        """Write a batch in one transaction; one answer for each write, in order."""
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
        """Take up to `limit` unowned instances that are due; each kind of workflow gets its turn."""
        self._claim_offset += 1
        offset = self._claim_offset

        def take(cursor: Cursor) -> list[InstanceRow]:
            if blocked:
                found = ownership.find_blocked(cursor, runnable, ids, before=blocked_before, limit=limit, offset=offset)
            else:
                found = ownership.find_due(cursor, worker, runnable, ids, now=now, limit=limit, offset=offset)
            return ownership.claim(cursor, worker, found, now=now)

        return await self._database.write(take, point="claim", serialized=False)

    async def release(self, worker: str, *, now: int) -> int:
        """Give back everything the worker owns, at once claimable, and strike the worker off."""
        return await self._database.write(partial(ownership.release, worker=worker, now=now))

    async def sweep(
        self, dead: Sequence[tuple[str, int]], *, now: int, limit: int, max_losses: int | None = None
    ) -> SweepResult:
        """Free up to `limit` instances of workers whose heartbeat still is the one given, and of no workers at all."""
        work = partial(ownership.sweep, dead=dead, now=now, limit=limit, max_losses=max_losses)
        return await self._database.write(work)

    async def mark_unrunnable(self, kinds: Sequence[Runnable], *, due_before: int, now: int, limit: int) -> int:
        """Block up to `limit` instances of kinds that nobody can run and that have been due since before a time."""
        return await self._database.write(
            partial(ownership.mark_unrunnable, kinds=kinds, due_before=due_before, now=now, limit=limit)
        )

    async def register_worker(self, worker: WorkerRow) -> None:
        """Record a worker's incarnation."""
        await self._database.write(partial(ownership.register_worker, worker=worker), serialized=False)

    async def save_source(
        self, code: str, workflow: str, version: str, source: str, *, now: int, replace: bool = False
    ) -> None:
        """Keep a workflow's source, once for each fingerprint; `replace`: the last one."""
        values = (code, workflow, version, source, now)
        await self._database.write(partial(ownership.save_source, values=values, replace=replace), serialized=False)

    async def save_handlers(self, handlers: Sequence[tuple[str, str, bool]], *, now: int) -> None:
        """Note which workflows (name, version) handle events, and which do not."""
        await self._database.write(partial(ownership.save_handlers, handlers=handlers, now=now), serialized=False)

    async def prune_instances(self, *, ended_before: int, limit: int) -> int:
        """Delete up to `limit` instances that ended before a time, with everything of theirs."""
        return await self._database.write(
            partial(ownership.prune_instances, ended_before=ended_before, limit=limit), serialized=False
        )

    async def prune_generations(self, *, over_before: int, limit: int) -> int:
        """Delete up to `limit` archived generations that were over before a time."""
        return await self._database.write(
            partial(ownership.prune_generations, over_before=over_before, limit=limit), serialized=False
        )

    async def prune_messaging(self, *, events_before: int, messages_before: int, limit: int) -> int:
        """Delete up to `limit` events accepted, and as many unclaimed messages written, before a time."""
        work = partial(ownership.prune_messaging, events_before=events_before, messages_before=messages_before, limit=limit)
        return await self._database.write(work)

    # --- activities' own transactions

    def engine(self) -> AsyncEngine:
        """An engine of SQLAlchemy on the same database, for activities' own tables."""
        return self._database.engine()

    async def create_on(self, connection: object, create: CreateInstance) -> WriteResult:
        """A new instance in somebody's transaction; it is there when that commits."""
        return await self._run_on(connection, partial(staging.create_instance, create=create))

    async def emit_on(self, connection: object, effect: Sendable, *, now: int) -> Refused | None:
        """Say something in somebody's transaction; it is heard when that commits."""
        say = staging.stage if self._database.has_staging else staging.emit
        return await self._run_on(connection, partial(say, effect=effect, now=now))

    async def emit_staged(self) -> None:
        """Say what was left by transactions that have committed."""
        await self._database.emit_staged()

    async def _run_on(self, connection: Any, work: Work[T]) -> T:
        if hasattr(connection, "run_sync"):
            return cast(T, await connection.run_sync(self._on_sync_connection(work)))
        if hasattr(connection, "exec_driver_sql") or hasattr(connection, "get_bind"):
            return self._on_sync_connection(work)(connection)
        return await self._database.run_on(connection, work)

    def _on_sync_connection(self, work: Work[T]) -> Callable[[Any], T]:
        """Work on a synchronous connection or session of SQLAlchemy."""

        def inside(given: Any) -> T:
            connection: Connection = given if hasattr(given, "exec_driver_sql") else given.connection()
            name = connection.dialect.name
            if name.replace("mariadb", "mysql") != self._database.dialect:
                raise ConfigurationError(
                    f"using() got a connection to a {name} database, and the app's is {self._database.dialect}: what is "
                    "started and said with it must be in the same database as the app's."
                )
            return work(self._database.cursor_on(connection))

        return inside

    async def store_result(self, session: AsyncSession, result: TransactionalResult) -> ResultStored | Refused:
        """Leave a result in an activity's own transaction; it counts when that is committed."""
        return await self._run_on(session, partial(activity_results.store_result, result=result))

    async def stored_result(self, result: TransactionalResult) -> int | None:
        """The mail of a deposit whose COMMIT was not answered, if it was committed."""
        return await self._database.write(partial(activity_results.find_result, result=result), serialized=False)

    # --- the outbox

    async def claim_outbox(
        self, broker: str, claimant: str, *, now: int, until: int, limit: int
    ) -> builtins.list[OutboxRow]:
        """Take up to `limit` rows of a broker that are due."""
        work = partial(outbox.claim, broker=broker, claimant=claimant, now=now, until=until, limit=limit)
        return await self._database.write(work, serialized=False)

    async def record_outbox(self, claimant: str, outcomes: Sequence[DeliveryOutcome]) -> None:
        """Write what became of claimed rows."""
        await self._database.write(partial(outbox.record_outcomes, claimant=claimant, outcomes=outcomes), serialized=False)

    async def requeue_outbox(self, ids: Sequence[int] | None, *, now: int, limit: int) -> int:
        """Let dead rows be due again."""
        return await self._database.write(partial(outbox.requeue, ids=ids, now=now, limit=limit), serialized=False)

    async def prune_outbox(self, broker: str, *, dead_before: int, limit: int) -> int:
        """Delete up to `limit` rows of a broker that died before a time."""
        work = partial(outbox.prune, broker=broker, dead_before=dead_before, limit=limit)
        return await self._database.write(work, serialized=False)

    async def next_outbox_due(self, broker: str) -> int | None:
        """When the next row of a broker is due, or its claim ends."""
        return await self._database.read(partial(outbox.next_due, broker=broker))

    async def count_outbox(self, broker: str, *, most: int) -> tuple[int, int]:
        """How many rows of a broker wait, and how many are dead; counted up to `most` each."""
        return await self._database.read(partial(outbox.count, broker=broker, most=most))

    async def oldest_outbox(self, broker: str, *, most: int) -> int | None:
        """When the oldest row of a broker that waits was put in; only the `most` that are due first are looked at."""
        return await self._database.read(partial(outbox.oldest, broker=broker, most=most))

    async def list_outbox(self, *, dead: bool | None, after: int, limit: int) -> builtins.list[OutboxRow]:
        """Rows with `seq` above `after`, in order."""
        return await self._database.read(partial(outbox.list_rows, dead=dead, after=after, limit=limit))

    # --- reading, for the engine

    async def load(self, instance_id: str) -> LoadedInstance | None:
        """Everything a cold replay needs."""
        return await self._database.read(partial(queries.load, instance_id=instance_id), snapshot=True)

    async def inbox(self, instance_id: str) -> Inbox:
        """What has arrived for an instance, oldest first, and the signal counter it belongs to."""
        return await self._database.read(partial(queries.inbox, instance_id=instance_id))

    async def with_unread_inbox(self, worker: str) -> builtins.list[str]:
        """The worker's instances for which something arrived that they have not seen."""
        return await self._database.read(partial(queries.with_unread_inbox, worker=worker))

    async def owned(self, worker: str) -> builtins.list[str]:
        """The instances a worker owns."""
        return await self._database.read(partial(queries.owned, worker=worker))

    async def upcoming(self, runnable: Sequence[Runnable], *, until: int, limit: int) -> builtins.list[tuple[str, int]]:
        """Unowned instances and when they are due, up to a time, soonest first."""
        return await self._database.read(partial(queries.upcoming, runnable=runnable, until=until, limit=limit))

    async def kinds_waiting(self) -> builtins.list[tuple[str, str]]:
        """Each workflow and version that unowned instances wait for."""
        return await self._database.read(queries.kinds_waiting)

    async def workers(self) -> builtins.list[WorkerRow]:
        """Every worker that has not been struck off."""
        return await self._database.read(queries.workers)

    async def statuses(self, ids: Sequence[str]) -> dict[str, Status]:
        """The status of each instance that exists."""
        return await self._database.read(partial(queries.statuses, ids=ids))

    async def endings(self, ids: Sequence[str]) -> dict[str, tuple[Status, Ending] | None]:
        """How each instance that exists has ended; None: it has not."""
        return await self._database.read(partial(queries.endings, ids=ids))

    async def progress(self, ids: Sequence[str]) -> dict[str, InstanceProgress]:
        """Where each instance that exists stands."""
        return await self._database.read(partial(queries.progress_of, ids=ids))

    def heartbeat(self, worker: str) -> HeartbeatConnection:
        """The worker's heartbeat."""
        return self._database.heartbeat(worker)

    # --- reading, for people

    async def get(self, instance_id: str, generation: int | None = None) -> StoredInstance | None:
        """One instance with its payloads, as it is or as it was in an archived generation."""
        return await self._database.read(partial(queries.get, instance_id=instance_id, generation=generation))

    async def members(self, group: str) -> builtins.list[str]:
        """Who is in a group, in the order they joined."""
        return await self._database.read(partial(queries.members, group=group))

    async def undeliverable(self, *, after: int, limit: int) -> builtins.list[tuple[int, int, bytes]]:
        """Addressed events whose instance does not exist or has ended: place, time and the event."""
        return await self._database.read(partial(queries.undeliverable, after=after, limit=limit))

    async def list(self, query: InstanceFilter) -> builtins.list[StoredInstance]:
        """Instances, newest first."""
        return await self._database.read(partial(queries.list_rows, query=query))

    async def history(self, instance_id: str, generation: int, *, after: int, limit: int) -> builtins.list[Entry]:
        """Entries of one generation with `seq` above `after`, in order."""
        return await self._database.read(
            partial(queries.history, instance_id=instance_id, generation=generation, after=after, limit=limit)
        )

    async def attempts(self, instance_id: str, generation: int) -> builtins.list[AttemptRow]:
        """Failed and open attempts of one generation, by operation and number."""
        return await self._database.read(partial(queries.attempts, instance_id=instance_id, generation=generation))

    async def journal(self, instance_id: str) -> builtins.list[JournalEntry]:
        """Who owned the instance when, cold replays, operators' effects; oldest first."""
        return await self._database.read(partial(queries.journal, instance_id=instance_id))

    async def source(self, code: str) -> str | None:
        """The source of a workflow by its fingerprint."""
        return await self._database.read(partial(queries.source, code=code))

    # --- for operators

    async def scan_instances(self, query: InstanceQuery) -> InstanceScan:
        """Instances without their payloads, newest first, as far as was looked."""
        return await self._database.read(partial(admin_queries.scan_instances, query=query))

    async def rows_by_id(self, ids: Sequence[str]) -> builtins.list[InstanceListRow]:
        """The given instances without their payloads, newest first."""
        return await self._database.read(partial(admin_queries.rows_by_id, ids=ids))

    async def ids_by_prefix(self, prefix: str, *, limit: int) -> builtins.list[str]:
        """Up to `limit` ids that begin with a text."""
        return await self._database.read(partial(admin_queries.ids_by_prefix, prefix=prefix, limit=limit))

    async def ids_by_wait(self, key: str, *, limit: int) -> builtins.list[str]:
        """Up to `limit` of those who wait for an event of a type, or a message of a channel."""
        return await self._database.read(partial(admin_queries.ids_by_wait, key=key, limit=limit))

    async def ids_by_due(self, *, before: int, limit: int) -> builtins.list[str]:
        """Up to `limit` of those that have been due since before a time, and that nobody has taken up."""
        return await self._database.read(partial(admin_queries.ids_by_due, before=before, limit=limit))

    async def contents(self, ids: Sequence[str]) -> dict[str, Content]:
        """The arguments and errors of the given instances, if they are not too large to be looked through."""
        return await self._database.read(partial(admin_queries.contents, ids=ids))

    async def errors(self, ids: Sequence[str]) -> dict[str, bytes]:
        """What the given instances failed with."""
        return await self._database.read(partial(admin_queries.errors, ids=ids))

    async def count_instances(self, *, failed_since: int, due_before: int, most: int) -> InstanceCounts:
        """How many there are of what operators ask about, each counted up to `most`."""
        return await self._database.read(
            partial(admin_queries.count_instances, failed_since=failed_since, due_before=due_before, most=most)
        )

    async def workflow_counts(self, *, most: int) -> WorkflowCounts:
        """How many instances of each workflow are in flight, looking at `most` of each status."""
        return await self._database.read(partial(admin_queries.workflow_counts, most=most))

    async def count_owned(self, workers: Sequence[str], *, most: int) -> dict[str, int]:
        """How many instances each of the workers has in hand, counted up to `most`."""
        return await self._database.read(partial(admin_queries.count_owned, workers=workers, most=most))

    async def channels(self, *, after: str, limit: int, most: int) -> builtins.list[ChannelState]:
        """Channels that have subscribers or messages for anybody, by name; counted up to `most`."""
        return await self._database.read(partial(admin_queries.channels, after=after, limit=limit, most=most))

    async def channel(self, name: str, *, most: int) -> ChannelState:
        """One channel."""
        return await self._database.read(partial(admin_queries.channel, name=name, most=most))

    async def subscribers(self, channel: str, *, after: str, limit: int, most: int) -> builtins.list[SubscriberState]:
        """Who has subscribed to a channel, by id."""
        return await self._database.read(
            partial(admin_queries.subscribers, name=channel, after=after, limit=limit, most=most)
        )

    async def is_subscribed(self, channel: str, instance_id: str) -> bool:
        """Whether an instance has subscribed to a channel."""
        return await self._database.read(partial(admin_queries.is_subscribed, name=channel, instance_id=instance_id))

    async def groups(self, *, after: str, limit: int, most: int) -> builtins.list[tuple[str, int]]:
        """Groups by name, and how many are in each, counted up to `most`."""
        return await self._database.read(partial(admin_queries.groups, after=after, limit=limit, most=most))

    async def page_of_members(self, group: str, *, after: str, limit: int) -> builtins.list[str]:
        """Who is in a group, by id."""
        return await self._database.read(partial(admin_queries.page_of_members, name=group, after=after, limit=limit))

    async def last_events(self, kind: str, instance_id: str, *, limit: int) -> builtins.list[RecentEvent]:
        """The last events of a type that were for everybody or for one instance, newest first."""
        return await self._database.read(partial(admin_queries.last_events, kind=kind, instance_id=instance_id, limit=limit))

    async def outbox_lag(self) -> int | None:
        """Since when the event of the outbox has been waiting that waits longest."""
        return await self._database.read(admin_queries.outbox_lag)

    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        """Write down who did what; the numbers are the store's."""
        await self._database.write(partial(audit.add_audit, rows=rows), serialized=False)

    async def prune_audit(self, *, before: int, limit: int) -> int:
        """Delete those of the `limit` oldest lines about effects that were written before a time; how many."""
        return await self._database.write(partial(audit.prune_audit, before=before, limit=limit), serialized=False)

    async def audit(self, *, instance_id: str | None, before: int | None, limit: int) -> builtins.list[AuditRow]:
        """What was done, newest first: to one instance, or all; below a number."""
        return await self._database.read(partial(audit.list_audit, instance_id=instance_id, before=before, limit=limit))

    async def add_bulk_action(self, action: BulkActionRow) -> None:
        """A batch begins."""
        await self._database.write(partial(audit.add_bulk_action, action=action), serialized=False)

    async def bulk_action(self, action_id: str) -> BulkActionRow | None:
        """One batch."""
        return await self._database.read(partial(audit.bulk_action, action_id=action_id))

    async def bulk_actions(self, *, limit: int) -> builtins.list[BulkActionRow]:
        """The last batches, newest first."""
        return await self._database.read(partial(audit.bulk_actions, limit=limit))

    async def claim_bulk_action(self, claimant: str, *, now: int, until: int) -> BulkActionRow | None:
        """The oldest batch that nobody works on, claimed until a time; None if there is none."""
        if not await self._database.read(partial(audit.has_open_bulk_action, now=now)):
            return None  # most often, and nothing need be written to know it
        return await self._database.write(
            partial(audit.claim_bulk_action, claimant=claimant, now=now, until=until), serialized=False
        )

    async def save_bulk_action(self, action: BulkActionRow, claimant: str, *, until: int) -> bool:
        """How far a batch has come; the claim goes on until a time. Not if it is lost, or the batch is over."""
        return await self._database.write(
            partial(audit.save_bulk_action, action=action, claimant=claimant, until=until), serialized=False
        )

    async def abort_bulk_action(self, action_id: str, *, now: int) -> bool:
        """A batch goes no further. Not if it is over."""
        return await self._database.write(partial(audit.abort_bulk_action, action_id=action_id, now=now), serialized=False)

    async def roll_up(self, *, until: int, limit: int, forget_before: int) -> int:
        """Count about `limit` of what ended before a time and is not counted yet; how many. Only one does at a time."""
        if not await self._database.read(partial(rollup.is_behind, until=until)):
            return 0
        work = partial(rollup.advance, until=until, limit=limit, forget_before=forget_before)
        return await self._database.write(work, serialized=False)

    async def minutes(self, *, since: int) -> builtins.list[Minute]:
        """What is counted of the minutes from a time on."""
        return await self._database.read(partial(rollup.minutes, since=since))

    async def vitals(self) -> Vitals:
        """How the database itself is."""
        return await self._database.vitals()
