"""The store's port on a database that runs the deciding code's statements."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from romancy.clock import Clock, SystemClock
from romancy.codec import Coder
from romancy.errors import ConfigurationError, StoreError
from romancy.model.history import Attempt, Entry
from romancy.model.instance import Inbox, Loaded, Query, Row, Standing, Stored, WorkerRow
from romancy.model.operators import (
    BatchRow,
    Census,
    ChannelState,
    Content,
    Deeded,
    Line,
    Minute,
    SeenEvent,
    SubscriberState,
    Survey,
    Surveyed,
    Tally,
    Vitals,
)
from romancy.model.outbox import OutboxRow, Settled
from romancy.model.status import Status
from romancy.model.talk import Said
from romancy.model.transition import Answer, Create, Deposit, Ending, Left, Refused, Write
from romancy.store.port import JournalEntry, Pulse, Runnable, Swept
from romancy.store.sql import deposits, desk, outbox, ownership, reads, rollup, staging, survey
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.database import Database, Work

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
        self._turn = 0

    def encode_with(self, coder: Coder) -> None:
        """Encode what is made here: the bodies of events and messages, what waits match. The rest comes encoded."""
        self._database.coder = coder

    def now(self) -> int:
        """The time in microseconds."""
        return self._clock.now()

    async def certain_time(self) -> int | None:
        """The database's time, asked now; None while it may be wrong."""
        await self._database.ask_time()
        return self.now() if not isinstance(self._clock, SystemClock) or self._clock.certain else None

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
    def on_foreign_commit(self) -> Callable[[], None] | None:
        """Called on the event loop when another process (or connection) has written: look for work."""
        return self._database.foreign

    @on_foreign_commit.setter
    def on_foreign_commit(self, call: Callable[[], None] | None) -> None:
        self._database.foreign = call

    # --- writing

    @property
    def lanes(self) -> int:
        """How many batches it is worth to have under way at a time."""
        return self._database.lanes

    @property
    def patience(self) -> float:
        """Seconds within which a call is answered, be it by an error."""
        return self._database.patience

    async def commit(self, batch: Sequence[Write]) -> builtins.list[Answer | StoreError]:
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
    ) -> builtins.list[Row]:
        """Take up to `limit` unowned instances that are due; each kind of workflow gets its turn."""
        self._turn += 1
        turn = self._turn

        def take(cursor: Cursor) -> list[Row]:
            if blocked:
                found = ownership.blocked(cursor, runnable, ids, before=blocked_before, limit=limit, turn=turn)
            else:
                found = ownership.due(cursor, worker, runnable, ids, now=now, limit=limit, turn=turn)
            return ownership.take(cursor, worker, found, now=now)

        return await self._database.write(take, point="claim", in_turn=False)

    async def release(self, worker: str, *, now: int) -> int:
        """Give back everything the worker owns, at once claimable, and strike the worker off."""
        return await self._database.write(partial(ownership.release, worker=worker, now=now))

    async def sweep(self, dead: Sequence[tuple[str, int]], *, now: int, limit: int, max_losses: int | None = None) -> Swept:
        """Free up to `limit` instances of workers whose heartbeat still is the one given, and of no workers at all."""
        work = partial(ownership.sweep, dead=dead, now=now, limit=limit, max_losses=max_losses)
        return await self._database.write(work)

    async def strand(self, kinds: Sequence[Runnable], *, due_before: int, now: int, limit: int) -> int:
        """Block up to `limit` instances of kinds that nobody can run and that have been due since before a time."""
        return await self._database.write(
            partial(ownership.strand, kinds=kinds, due_before=due_before, now=now, limit=limit)
        )

    async def enlist(self, worker: WorkerRow) -> None:
        """Record a worker's incarnation."""
        await self._database.write(partial(ownership.enlist, worker=worker), in_turn=False)

    async def save_source(
        self, code: str, workflow: str, version: str, source: str, *, now: int, replace: bool = False
    ) -> None:
        """Keep a workflow's source, once for each fingerprint; `replace`: the last one."""
        values = (code, workflow, version, source, now)
        await self._database.write(partial(ownership.save_source, values=values, replace=replace), in_turn=False)

    async def save_handlers(self, handlers: Sequence[tuple[str, str, bool]], *, now: int) -> None:
        """Note which workflows (name, version) handle events, and which do not."""
        await self._database.write(partial(ownership.save_handlers, handlers=handlers, now=now), in_turn=False)

    async def prune(self, *, ended_before: int, limit: int) -> int:
        """Delete up to `limit` instances that ended before a time, with everything of theirs."""
        return await self._database.write(partial(ownership.prune, ended_before=ended_before, limit=limit), in_turn=False)

    async def trim(self, *, over_before: int, limit: int) -> int:
        """Delete up to `limit` archived generations that were over before a time."""
        return await self._database.write(partial(ownership.trim, over_before=over_before, limit=limit), in_turn=False)

    async def forget(self, *, events_before: int, messages_before: int, limit: int) -> int:
        """Delete up to `limit` events accepted, and as many unclaimed messages written, before a time."""
        work = partial(ownership.forget, events_before=events_before, messages_before=messages_before, limit=limit)
        return await self._database.write(work)

    # --- activities' own transactions

    def engine(self) -> AsyncEngine:
        """An engine of SQLAlchemy on the same database, for activities' own tables."""
        return self._database.engine()

    async def begin_on(self, connection: object, create: Create) -> Answer:
        """A new instance in somebody's transaction; it is there when that commits."""
        return await self._on(connection, partial(staging.begin, create=create))

    async def say_on(self, connection: object, deed: Said, *, now: int) -> Refused | None:
        """Say something in somebody's transaction; it is heard when that commits."""
        say = staging.stage if self._database.stages else staging.say
        return await self._on(connection, partial(say, deed=deed, now=now))

    async def drain(self) -> None:
        """Say what was left by transactions that have committed."""
        await self._database.drain()

    async def _on(self, connection: Any, work: Work[T]) -> T:
        if hasattr(connection, "run_sync"):
            return cast(T, await connection.run_sync(self._inside(work)))
        if hasattr(connection, "exec_driver_sql") or hasattr(connection, "get_bind"):
            return self._inside(work)(connection)
        return await self._database.run_on(connection, work)

    def _inside(self, work: Work[T]) -> Callable[[Any], T]:
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

    async def deposit(self, session: AsyncSession, deposit: Deposit) -> Left | Refused:
        """Leave a result in an activity's own transaction; it counts when that is committed."""
        return await self._on(session, partial(deposits.leave, deposit=deposit))

    async def deposited(self, deposit: Deposit) -> int | None:
        """The mail of a deposit whose COMMIT was not answered, if it was committed."""
        return await self._database.write(partial(deposits.find, deposit=deposit), in_turn=False)

    # --- the outbox

    async def claim_outbox(
        self, broker: str, claimant: str, *, now: int, until: int, limit: int
    ) -> builtins.list[OutboxRow]:
        """Take up to `limit` rows of a broker that are due."""
        work = partial(outbox.claim, broker=broker, claimant=claimant, now=now, until=until, limit=limit)
        return await self._database.write(work, in_turn=False)

    async def settle_outbox(self, claimant: str, settled: Sequence[Settled]) -> None:
        """Write what became of claimed rows."""
        await self._database.write(partial(outbox.settle, claimant=claimant, settled=settled), in_turn=False)

    async def requeue_outbox(self, ids: Sequence[int] | None, *, now: int, limit: int) -> int:
        """Let dead rows be due again."""
        return await self._database.write(partial(outbox.requeue, ids=ids, now=now, limit=limit), in_turn=False)

    async def prune_outbox(self, broker: str, *, dead_before: int, limit: int) -> int:
        """Delete up to `limit` rows of a broker that died before a time."""
        work = partial(outbox.prune, broker=broker, dead_before=dead_before, limit=limit)
        return await self._database.write(work, in_turn=False)

    async def next_outbox(self, broker: str) -> int | None:
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
        return await self._database.read(partial(outbox.listed, dead=dead, after=after, limit=limit))

    # --- reading, for the engine

    async def load(self, instance_id: str) -> Loaded | None:
        """Everything a cold replay needs."""
        return await self._database.read(partial(reads.load, instance_id=instance_id), snapshot=True)

    async def inbox(self, instance_id: str) -> Inbox:
        """What has arrived for an instance, oldest first, and the signal counter it belongs to."""
        return await self._database.read(partial(reads.inbox, instance_id=instance_id))

    async def arrivals(self, worker: str) -> builtins.list[str]:
        """The worker's instances for which something arrived that they have not seen."""
        return await self._database.read(partial(reads.arrivals, worker=worker))

    async def owned(self, worker: str) -> builtins.list[str]:
        """The instances a worker owns."""
        return await self._database.read(partial(reads.owned, worker=worker))

    async def upcoming(self, runnable: Sequence[Runnable], *, until: int, limit: int) -> builtins.list[tuple[str, int]]:
        """Unowned instances and when they are due, up to a time, soonest first."""
        return await self._database.read(partial(reads.upcoming, runnable=runnable, until=until, limit=limit))

    async def kinds_waiting(self) -> builtins.list[tuple[str, str]]:
        """Each workflow and version that unowned instances wait for."""
        return await self._database.read(reads.kinds_waiting)

    async def workers(self) -> builtins.list[WorkerRow]:
        """Every worker that has not been struck off."""
        return await self._database.read(reads.workers)

    async def statuses(self, ids: Sequence[str]) -> dict[str, Status]:
        """The status of each instance that exists."""
        return await self._database.read(partial(reads.statuses, ids=ids))

    async def endings(self, ids: Sequence[str]) -> dict[str, tuple[Status, Ending] | None]:
        """How each instance that exists has ended; None: it has not."""
        return await self._database.read(partial(reads.endings, ids=ids))

    async def standings(self, ids: Sequence[str]) -> dict[str, Standing]:
        """Where each instance that exists stands."""
        return await self._database.read(partial(reads.standings, ids=ids))

    def pulse(self, worker: str) -> Pulse:
        """The worker's heartbeat."""
        return self._database.pulse(worker)

    # --- reading, for people

    async def get(self, instance_id: str, generation: int | None = None) -> Stored | None:
        """One instance with its payloads, as it is or as it was in an archived generation."""
        return await self._database.read(partial(reads.get, instance_id=instance_id, generation=generation))

    async def members(self, group: str) -> builtins.list[str]:
        """Who is in a group, in the order they joined."""
        return await self._database.read(partial(reads.members, group=group))

    async def undeliverable(self, *, after: int, limit: int) -> builtins.list[tuple[int, int, bytes]]:
        """Addressed events whose instance does not exist or has ended: place, time and the event."""
        return await self._database.read(partial(reads.undeliverable, after=after, limit=limit))

    async def list(self, query: Query) -> builtins.list[Stored]:
        """Instances, newest first."""
        return await self._database.read(partial(reads.list_rows, query=query))

    async def history(self, instance_id: str, generation: int, *, after: int, limit: int) -> builtins.list[Entry]:
        """Entries of one generation with `seq` above `after`, in order."""
        return await self._database.read(
            partial(reads.history, instance_id=instance_id, generation=generation, after=after, limit=limit)
        )

    async def attempts(self, instance_id: str, generation: int) -> builtins.list[Attempt]:
        """Failed and open attempts of one generation, by operation and number."""
        return await self._database.read(partial(reads.attempts, instance_id=instance_id, generation=generation))

    async def journal(self, instance_id: str) -> builtins.list[JournalEntry]:
        """Who owned the instance when, cold replays, operators' deeds; oldest first."""
        return await self._database.read(partial(reads.journal, instance_id=instance_id))

    async def source(self, code: str) -> str | None:
        """The source of a workflow by its fingerprint."""
        return await self._database.read(partial(reads.source, code=code))

    # --- for operators

    async def survey(self, wanted: Survey) -> Surveyed:
        """Instances without their payloads, newest first, as far as was looked."""
        return await self._database.read(partial(survey.survey, wanted=wanted))

    async def lines(self, ids: Sequence[str]) -> builtins.list[Line]:
        """The given instances without their payloads, newest first."""
        return await self._database.read(partial(survey.lines, ids=ids))

    async def ids_by_prefix(self, prefix: str, *, limit: int) -> builtins.list[str]:
        """Up to `limit` ids that begin with a text."""
        return await self._database.read(partial(survey.ids_by_prefix, prefix=prefix, limit=limit))

    async def ids_by_wait(self, key: str, *, limit: int) -> builtins.list[str]:
        """Up to `limit` of those who wait for an event of a type, or a message of a channel."""
        return await self._database.read(partial(survey.ids_by_wait, key=key, limit=limit))

    async def ids_by_due(self, *, before: int, limit: int) -> builtins.list[str]:
        """Up to `limit` of those that have been due since before a time, and that nobody has taken up."""
        return await self._database.read(partial(survey.ids_by_due, before=before, limit=limit))

    async def contents(self, ids: Sequence[str]) -> dict[str, Content]:
        """The arguments and errors of the given instances, if they are not too large to be looked through."""
        return await self._database.read(partial(survey.contents, ids=ids))

    async def errors(self, ids: Sequence[str]) -> dict[str, bytes]:
        """What the given instances failed with."""
        return await self._database.read(partial(survey.errors, ids=ids))

    async def census(self, *, failed_since: int, due_before: int, most: int) -> Census:
        """How many there are of what operators ask about, each counted up to `most`."""
        return await self._database.read(partial(survey.census, failed_since=failed_since, due_before=due_before, most=most))

    async def tally(self, *, most: int) -> Tally:
        """How many instances of each workflow are in flight, looking at `most` of each status."""
        return await self._database.read(partial(survey.tally, most=most))

    async def owned_by(self, workers: Sequence[str], *, most: int) -> dict[str, int]:
        """How many instances each of the workers has in hand, counted up to `most`."""
        return await self._database.read(partial(survey.owned_by, workers=workers, most=most))

    async def channels(self, *, after: str, limit: int, most: int) -> builtins.list[ChannelState]:
        """Channels that have subscribers or messages for anybody, by name; counted up to `most`."""
        return await self._database.read(partial(survey.channels, after=after, limit=limit, most=most))

    async def channel(self, name: str, *, most: int) -> ChannelState:
        """One channel."""
        return await self._database.read(partial(survey.channel, name=name, most=most))

    async def subscribers(self, channel: str, *, after: str, limit: int, most: int) -> builtins.list[SubscriberState]:
        """Who has subscribed to a channel, by id."""
        return await self._database.read(partial(survey.subscribers, name=channel, after=after, limit=limit, most=most))

    async def is_subscribed(self, channel: str, instance_id: str) -> bool:
        """Whether an instance has subscribed to a channel."""
        return await self._database.read(partial(survey.is_subscribed, name=channel, instance_id=instance_id))

    async def groups(self, *, after: str, limit: int, most: int) -> builtins.list[tuple[str, int]]:
        """Groups by name, and how many are in each, counted up to `most`."""
        return await self._database.read(partial(survey.groups, after=after, limit=limit, most=most))

    async def page_of_members(self, group: str, *, after: str, limit: int) -> builtins.list[str]:
        """Who is in a group, by id."""
        return await self._database.read(partial(survey.members, name=group, after=after, limit=limit))

    async def last_events(self, kind: str, instance_id: str, *, limit: int) -> builtins.list[SeenEvent]:
        """The last events of a type that were for everybody or for one instance, newest first."""
        return await self._database.read(partial(survey.last_events, kind=kind, instance_id=instance_id, limit=limit))

    async def outbox_lag(self) -> int | None:
        """Since when the event of the outbox has been waiting that waits longest."""
        return await self._database.read(survey.outbox_lag)

    async def note_deeds(self, lines: Sequence[Deeded]) -> None:
        """Write down who did what; the numbers are the store's."""
        await self._database.write(partial(desk.note, lines=lines), in_turn=False)

    async def forget_deeds(self, *, before: int, limit: int) -> int:
        """Delete those of the `limit` oldest lines about deeds that were written before a time; how many."""
        return await self._database.write(partial(desk.forget, before=before, limit=limit), in_turn=False)

    async def deeds(self, *, instance_id: str | None, before: int | None, limit: int) -> builtins.list[Deeded]:
        """What was done, newest first: to one instance, or all; below a number."""
        return await self._database.read(partial(desk.notes, instance_id=instance_id, before=before, limit=limit))

    async def add_batch(self, batch: BatchRow) -> None:
        """A batch begins."""
        await self._database.write(partial(desk.add_batch, batch=batch), in_turn=False)

    async def batch(self, batch_id: str) -> BatchRow | None:
        """One batch."""
        return await self._database.read(partial(desk.batch, batch_id=batch_id))

    async def batches(self, *, limit: int) -> builtins.list[BatchRow]:
        """The last batches, newest first."""
        return await self._database.read(partial(desk.batches, limit=limit))

    async def take_batch(self, claimant: str, *, now: int, until: int) -> BatchRow | None:
        """The oldest batch that nobody works on, claimed until a time; None if there is none."""
        if not await self._database.read(partial(desk.is_any_open, now=now)):
            return None  # most often, and nothing need be written to know it
        return await self._database.write(partial(desk.take_batch, claimant=claimant, now=now, until=until), in_turn=False)

    async def save_batch(self, batch: BatchRow, claimant: str, *, until: int) -> bool:
        """How far a batch has come; the claim goes on until a time. Not if it is lost, or the batch is over."""
        return await self._database.write(
            partial(desk.save_batch, batch=batch, claimant=claimant, until=until), in_turn=False
        )

    async def abort_batch(self, batch_id: str, *, now: int) -> bool:
        """A batch goes no further. Not if it is over."""
        return await self._database.write(partial(desk.abort_batch, batch_id=batch_id, now=now), in_turn=False)

    async def roll_up(self, *, until: int, limit: int, forget_before: int) -> int:
        """Count about `limit` of what ended before a time and is not counted yet; how many. Only one does at a time."""
        if not await self._database.read(partial(rollup.is_behind, until=until)):
            return 0
        work = partial(rollup.advance, until=until, limit=limit, forget_before=forget_before)
        return await self._database.write(work, in_turn=False)

    async def minutes(self, *, since: int) -> builtins.list[Minute]:
        """What is counted of the minutes from a time on."""
        return await self._database.read(partial(rollup.minutes, since=since))

    async def vitals(self) -> Vitals:
        """How the database itself is."""
        return await self._database.vitals()
