"""The calls of an app without a worker: start workflows, look at instances, steer them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Never, ParamSpec, Self, TypeVar, overload

from romancy.authoring.channels import new_message
from romancy.authoring.context import OWN
from romancy.authoring.durations import Duration, micros
from romancy.authoring.events import check_local, new_event, rfc3339
from romancy.authoring.registry import Registry
from romancy.authoring.signatures import refuse_unknown
from romancy.authoring.starting import creation, starts_of
from romancy.authoring.workflow import Workflow
from romancy.broker import BrokerOption
from romancy.brokers.addresses import opened
from romancy.clock import MICROS, Clock, SystemClock, to_micros
from romancy.core.loop import Run
from romancy.core.matching import input_matches
from romancy.crash import CrashPoint
from romancy.errors import (
    ConfigurationError,
    InvalidWorkflowStateError,
    StoreError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowIOError,
    WorkflowNotCancellableError,
    WorkflowNotFoundError,
    WorkflowTerminatedError,
    WorkflowTimeoutError,
    no_recipient,
)
from romancy.handle import WorkflowHandle
from romancy.ids import Ids, RandomIds
from romancy.model.instance import (
    AttemptEntry,
    Error,
    HistoryEntry,
    Instance,
    JournalLine,
    Page,
    Query,
    Stored,
    WorkflowResult,
)
from romancy.model.outbox import OutboxEntry
from romancy.model.status import Status
from romancy.model.talk import AcceptedEvent, Event, Message, Publish, SendTo, SendToGroup, UndeliverableEvent
from romancy.model.transition import Accept, Accepted, Answer, Create, Existing, Post, Refused, Request, RequestKind
from romancy.options import resolve
from romancy.results import Results
from romancy.serde.failure import decode_failure
from romancy.serde.payload import ValueCodec
from romancy.store.committer import Committer
from romancy.store.open import Server, open_store
from romancy.store.port import Store
from romancy.using import Using, check_same
from romancy.views import (
    attempt_of,
    error_of,
    history_of,
    instance_of,
    journal_of,
    outbox_entry_of,
    page_position,
    token_of,
    undeliverable_of,
    value_of,
)

P = ParamSpec("P")
R = TypeVar("R")

_SCAN_WINDOW = 200
_SCAN_LIMIT = 20_000
"""How many instances one search by input looks at before it gives back a token to go on from."""
_HISTORY_PAGE = 200
_REQUEUE = 500
"""Events that are requeued in one transaction."""


class Client:
    """The same calls as an `App`, without a worker: what it starts runs where an app does.

    >>> client = Client("sqlite:///orders.db")  # async with client: await client.start_workflow(...)
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        workflows: Sequence[Workflow[..., Any]] | None = None,
        auto_migrate: bool | None = None,
        broker: BrokerOption | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown("Client", unknown, Client)
        given = {"database": database, "auto_migrate": auto_migrate, "broker": broker}
        self._configure(given, workflows, clock, ids)

    def _configure(
        self,
        given: dict[str, Any],
        workflows: Sequence[Workflow[..., Any]] | None,
        clock: Clock | None,
        ids: Ids | None,
    ) -> None:
        self._options = resolve(given)
        self._brokers = opened(self._options["broker"])
        self._registry = Registry(workflows)
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._inline = False
        self._crash_point: CrashPoint | None = None
        self._opened: Store | None = None
        self._committer: Committer | None = None
        self._results: Results | None = None
        self._changing: asyncio.Lock | None = None

    # --- life

    async def startup(self) -> None:
        """Connect. Safe to call again while running."""
        self._changing = self._changing or asyncio.Lock()
        async with self._changing:
            if self._opened is None:
                await self._start()

    async def _start(self) -> None:
        store = open_store(
            self._options["database"],
            clock=self._clock,
            auto_migrate=self._options["auto_migrate"],
            threads="inline" if self._inline else "threads",
            crash=self._crash_point,
            server=Server(*(self._options[name] for name in ("pool_size", "listen_notify", "listen_dsn"))),
        )
        await store.open()
        self._opened = store
        if self._results is None:
            self._results = Results(store)
        self._results.move_to(store)
        self._committer = Committer(store)
        self._committer.start()
        store.on_foreign_commit = self._heard

    def _heard(self) -> None:
        if self._results is not None:
            self._results.hear()

    async def shutdown(self) -> None:
        """Disconnect. Safe to call twice."""
        self._changing = self._changing or asyncio.Lock()
        async with self._changing:
            await self._stop()

    async def _stop(self) -> None:
        if self._opened is None:
            return
        store, self._opened = self._opened, None
        store.on_foreign_commit = None
        if self._results is not None:
            await self._results.stop()
            self._results = None
        if self._committer is not None:
            await self._committer.stop()
        await store.close()

    async def __aenter__(self) -> Self:
        await self.startup()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    @property
    def _store(self) -> Store:
        _refuse_in_workflow()
        if self._opened is None:
            raise self._not_running()
        return self._opened

    def _not_running(self) -> InvalidWorkflowStateError:
        name = type(self).__name__.lstrip("_")
        return InvalidWorkflowStateError(f"This {name} is not running: use `async with {name}(...)`, or `await startup()`.")

    def _write(self) -> Committer:
        """The committer of a running app."""
        own = OWN.get()
        if own is not None and own.shuts_out_writers:
            raise InvalidWorkflowStateError(
                "The session of this activity holds the write lock of the SQLite file: the app cannot write until the "
                "activity has returned. Say it with ctx (send_event(ctx, ...), publish(ctx, ...)), which commits with the "
                "session, or call the app in another activity."
            )
        assert self._store is not None
        assert self._committer is not None
        return self._committer

    # --- workflows

    def register(self, workflow: Workflow[..., Any], /) -> None:
        """Make a workflow known."""
        self._registry.add(workflow)

    def get_workflow(self, name: str) -> Workflow[..., Any]:
        """A workflow by name. Raises `WorkflowNotFoundError`."""
        return self._registry.resolve(name)

    @overload
    async def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(self, wf: str, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]: ...
    async def start_workflow(self, wf: Any, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]:
        """Start a workflow; returns when the instance is durable.

        With `wf.with_options(instance_id=...)` the same id, workflow and arguments give the one instance, also after it
        ended. Raises `InstanceConflictError` when the id is taken by others, `PayloadError` naming the argument that
        cannot be stored.
        """
        create, workflow = self._creation(wf, args, kwargs)
        answer = await self._write().submit(create)
        if isinstance(answer, Existing):
            check_same(create, answer)
        return self._handle(create.instance_id, workflow)

    def _creation(
        self, wf: Any, args: tuple[Any, ...], kwargs: dict[str, Any], owner: str | None = None
    ) -> tuple[Create, Workflow[..., Any] | None]:
        now = self._clock.now()
        try:
            workflow = self._registry.resolve(wf)
        except WorkflowNotFoundError:
            if not isinstance(wf, str) or not self._may_start_unknown:
                raise
            return self._creation_by_name(wf, args, kwargs, now), None
        raw = workflow.codec.encode(args, kwargs)
        return creation(self._registry, workflow, raw, self._ids, now=now, owner=owner), workflow

    _may_start_unknown = True
    """A client may start workflows whose code is elsewhere."""

    def _creation_by_name(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], now: int) -> Create:
        if args:
            raise ConfigurationError(
                f"Workflow {name!r} is not known here, so its parameters have no order: pass the arguments by name, or give "
                "the client the workflow (workflows=[...])."
            )
        raw = ValueCodec(dict[str, Any], what=f"arguments of workflow {name!r}").encode(kwargs)
        return Create(self._ids.instance_id(now), name, "", raw, raw[:0], now)

    def _handle(self, instance_id: str, workflow: Workflow[..., Any] | None) -> WorkflowHandle[Any]:
        return WorkflowHandle(self, instance_id, workflow.result.decode if workflow is not None else value_of)

    def get_handle(self, instance_id: str) -> WorkflowHandle[Any]:
        """A handle to an instance. Its calls raise `WorkflowNotFoundError` if there is none of that id.

        The result is of the workflow's type where the workflow is known here, else plain JSON.
        """
        return WorkflowHandle(self, instance_id, None)

    async def _decode_result(self, instance_id: str, raw: bytes) -> Any:
        row = (await self._require(instance_id)).row
        self._registry.refresh()
        workflow = self._registry.find(row.workflow, row.version)
        return value_of(raw) if workflow is None else workflow.result.decode(raw)

    # --- talking

    async def send_event(
        self,
        type: str,
        source: str,
        data: Any = None,
        *,
        subject: str | None = None,
        event_id: str | None = None,
        content_type: str | None = None,
        extensions: Mapping[str, str | int | bool] | None = None,
        local: bool = True,
    ) -> AcceptedEvent:
        """Send an event to the workflows that wait for it, now or later; returns when it is durable.

        The same source and `event_id` again is a duplicate and does nothing. An event with the extension
        `romancyinstanceid` is for that instance alone. With `broker=...` it also goes to the brokers; with `local=False` to
        them only.
        """
        check_local(local, has_broker=bool(self._brokers))
        event = new_event(
            type, source, data, subject=subject, event_id=event_id, content_type=content_type, extensions=extensions
        )
        now = self._clock.now()
        named = replace(event, id=event.id or self._ids.instance_id(now), time=rfc3339(now))
        return (await self._accept([named], local=local, brokers=tuple(self._brokers)))[0]

    async def accept_events(self, events: Sequence[Event]) -> list[AcceptedEvent]:
        """Accept events, all of them or none; returns when they are durable and those who wait for them are called.

        They come from outside, and are not handed to the brokers.
        """
        return await self._accept(events)

    async def _accept(
        self, events: Sequence[Event], *, local: bool = True, brokers: tuple[str, ...] = ()
    ) -> list[AcceptedEvent]:
        now = self._clock.now()
        starts = tuple(self._starts_of(event, now) if local else () for event in events)
        fresh = tuple(self._ids.instance_id(now) for _ in events)
        accept = Accept(tuple(events), now, starts, fresh, local, brokers)
        answer = await self._write().submit(accept, partial(self._said, starts))
        assert isinstance(answer, Accepted)
        if brokers:
            self._put_out()
        return list(answer.events)

    def _put_out(self) -> None:
        """Something is in the outbox, durably."""

    def _starts_of(self, event: Event, now: int) -> tuple[Create, ...]:
        return starts_of(self._registry, event, self._ids, now=now, owner=None)

    def _said(self, starts: tuple[tuple[Create, ...], ...], answer: Answer | StoreError) -> None:
        """Something was said, durably: whoever it called may be here."""

    async def publish(self, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Publish a message to a channel; returns its id when it is durable."""
        return await self._post(Publish(self._message(channel, data, metadata)))

    async def send_to(self, instance_id: str, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Send a message to one instance; returns its id when it is durable.

        Raises `WorkflowNotFoundError` for an unknown id, `InvalidWorkflowStateError` for an instance that has ended.
        """
        return await self._post(SendTo(self._message(channel, data, metadata), instance_id))

    async def send_to_group(self, name: str, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Send a message to each member of a group; returns its id when it is durable."""
        return await self._post(SendToGroup(self._message(channel, data, metadata), name))

    async def get_group_members(self, name: str) -> list[str]:
        """The ids of a group's members, in the order they joined."""
        return await self._store.members(name)

    def _message(self, channel: str, data: Any, metadata: Mapping[str, Any] | None) -> Message:
        return replace(new_message(channel, data, metadata=metadata), id=self._ids.instance_id(self._clock.now()))

    async def _post(self, deed: Publish | SendTo | SendToGroup) -> str:
        answer = await self._write().submit(Post(deed, self._clock.now()), partial(self._said, ()))
        if isinstance(answer, Refused):
            assert isinstance(deed, SendTo)
            raise no_recipient(deed.target, answer.status)
        return deed.message.id

    def using(self, connection: object) -> Using:
        """Start workflows and send things in a transaction of yours: they take effect when you commit.

        `connection` is a connection or session of SQLAlchemy on the same database, or a connection of asyncpg. Nothing of
        the engine is locked until you commit.
        """
        return Using(self, connection)

    async def list_undeliverable_events(self, *, limit: int = 50, page_token: str | None = None) -> Page[UndeliverableEvent]:
        """Events addressed to instances that do not exist or have ended without taking them; oldest first."""
        after = page_position(page_token)[0] if page_token is not None else 0
        found = await self._store.undeliverable(after=after, limit=_limit(limit) + 1)
        items = [undeliverable_of(at, raw) for _, at, raw in found[:limit]]
        return Page(items, token_of(found[limit - 1][0], "") if len(found) > limit else None)

    # --- the outbox

    async def list_outbox(
        self, *, dead: bool | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[OutboxEntry]:
        """Events that brokers have not got yet, oldest first: all, only those that were given up, or only the others."""
        if dead is not None and not isinstance(dead, bool):
            raise ConfigurationError(f"dead={dead!r}: give True, False or None.")
        after = page_position(page_token)[0] if page_token is not None else 0
        found = await self._store.list_outbox(dead=dead, after=after, limit=_limit(limit) + 1)
        return Page(
            [outbox_entry_of(row) for row in found[:limit]],
            token_of(found[limit - 1].seq, "") if len(found) > limit else None,
        )

    async def requeue_outbox(self, ids: Sequence[int] | None = None) -> int:
        """Let events that were given up be tried again: those of these ids, or all of them. Returns how many."""
        wanted = None if ids is None else _ids(ids)
        requeued, more = 0, True
        while more:
            portion = None if wanted is None else [wanted.pop() for _ in range(min(len(wanted), _REQUEUE))]
            done = await self._store.requeue_outbox(portion, now=self._clock.now(), limit=_REQUEUE)
            requeued += done
            more = bool(wanted) if wanted is not None else done == _REQUEUE
        self._put_out()
        return requeued

    # --- looking

    async def get_instance(self, instance_id: str, *, generation: int | None = None) -> Instance | None:
        """One instance, as it is or as it was in an earlier generation; None if there is no such."""
        stored = await self._store.get(instance_id, generation)
        return None if stored is None else (await self._views([stored]))[0]

    async def _views(self, found: Sequence[Stored]) -> list[Instance]:
        return [instance_of(stored, await self._blocked_reason(stored)) for stored in found]

    async def _blocked_reason(self, stored: Stored) -> Error | None:
        if stored.row.status is not Status.BLOCKED:
            return None
        journal = await self._store.journal(stored.row.instance_id)
        reasons = [line.note.detail for line in journal if line.note.kind == "blocked"]
        return Error("Blocked", reasons[-1]) if reasons else None

    async def get_result(self, instance_id: str) -> WorkflowResult:
        """Where an instance stands, at once."""
        stored = await self._require(instance_id)
        error = await self._blocked_reason(stored) or error_of(stored.error)
        return WorkflowResult(instance_id, stored.row.status, value_of(stored.output), error)

    async def _require(self, instance_id: str) -> Stored:
        stored = await self._store.get(instance_id)
        if stored is None:
            raise _not_found(instance_id)
        return stored

    async def list_instances(
        self,
        *,
        status: Status | str | Sequence[Status | str] | None = None,
        workflow_name: str | None = None,
        instance_id: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        input: Mapping[str, Any] | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[Instance]:
        """Instances, newest first. Name and id match in part; `input` as in `find_instances`."""
        query = Query(
            status=_statuses(status),
            workflow=workflow_name,
            instance_id=instance_id,
            created_after=_when("created_after", created_after),
            created_before=_when("created_before", created_before),
            before=page_position(page_token) if page_token is not None else None,
            limit=_limit(limit),
        )
        return await (self._page(query) if input is None else self._search(query, _filters(input)))

    async def find_instances(self, input: Mapping[str, Any], **filters: Any) -> Page[Instance]:
        """Instances whose arguments have these values: `{"customer.id": "c1", "items.0.sku": "x"}`.

        Paths start at a parameter's name, or at a field of the only argument; the other filters are `list_instances`'s. A
        page may hold fewer instances than asked for, or none, and still have a successor: a search looks at a bounded number
        of instances at a time.
        """
        return await self.list_instances(input=input, **filters)

    async def _page(self, query: Query) -> Page[Instance]:
        found = await self._store.list(replace(query, limit=query.limit + 1))
        items = found[: query.limit]
        token = token_of(items[-1].row.created_at, items[-1].row.instance_id) if len(found) > query.limit else None
        return Page(await self._views(items), token)

    async def _search(self, query: Query, wanted: Mapping[str, Any]) -> Page[Instance]:
        hits: list[Stored] = []
        before, looked = query.before, 0
        while looked < _SCAN_LIMIT:
            found = await self._store.list(replace(query, before=before, limit=_SCAN_WINDOW))
            for stored in found:
                looked += 1
                before = (stored.row.created_at, stored.row.instance_id)
                if input_matches(value_of(stored.input), wanted):
                    hits.append(stored)
                    if len(hits) == query.limit:
                        return Page(await self._views(hits), token_of(*before))
            if len(found) < _SCAN_WINDOW:
                return Page(await self._views(hits))
        assert before is not None
        return Page(await self._views(hits), token_of(*before))

    async def history(self, instance_id: str, *, generation: int | None = None) -> AsyncIterator[HistoryEntry]:
        """What happened in an instance so far, in order: in its generation now, or in an archived one."""
        row = (await self._require(instance_id)).row
        number = row.generation if generation is None else generation
        after = 0
        while True:
            entries = await self._store.history(instance_id, number, after=after, limit=_HISTORY_PAGE)
            for entry in entries:
                after = entry.seq
                yield history_of(entry)
            if len(entries) < _HISTORY_PAGE:
                return

    async def get_attempts(self, instance_id: str) -> list[AttemptEntry]:
        """Attempts of an instance's activities that failed, were cut off, or have been running for a notable time."""
        row = (await self._require(instance_id)).row
        return [attempt_of(one) for one in await self._store.attempts(instance_id, row.generation)]

    async def get_journal(self, instance_id: str) -> list[JournalLine]:
        """Who owned an instance when, cold replays, and what operators asked of it; oldest first."""
        await self._require(instance_id)
        return [journal_of(one) for one in await self._store.journal(instance_id)]

    # --- steering

    async def cancel_workflow(self, instance_id: str, reason: str | None = None) -> None:
        """Ask for cancellation; returns when the request is durable.

        Raises `WorkflowNotCancellableError` after the end, `WorkflowNotFoundError` for an unknown id.
        """
        await self._request(instance_id, RequestKind.CANCEL, reason)

    async def pause_workflow(self, instance_id: str, reason: str | None = None) -> None:
        """Let nothing new start in an instance until it is resumed; running attempts finish."""
        await self._request(instance_id, RequestKind.PAUSE, reason)

    async def resume_workflow(self, instance_id: str) -> None:
        """Let a paused instance go on; a blocked one is tried again."""
        await self._request(instance_id, RequestKind.RESUME, None)

    async def terminate_workflow(self, instance_id: str, reason: str | None = None) -> None:
        """End an instance at once, without compensation."""
        await self._request(instance_id, RequestKind.TERMINATE, reason)

    async def retry_workflow(self, instance_id: str) -> None:
        """Run a failed instance again from the activity that failed; what was compensated runs again."""
        await self._request(instance_id, RequestKind.RETRY, None)

    async def _request(self, instance_id: str, kind: RequestKind, reason: str | None) -> None:
        request = Request(instance_id, kind, self._clock.now(), reason)
        answer = await self._write().submit(request, partial(self._said, ()))
        if isinstance(answer, Refused):
            raise _refusal(instance_id, kind, answer.status)
        self._requested(instance_id, kind)

    def _requested(self, instance_id: str, kind: RequestKind) -> None:
        """A request is durable."""

    # --- results

    async def _await_result(self, instance_id: str, timeout: Duration | None) -> bytes:
        _refuse_in_workflow()
        results = self._results
        if results is None:
            raise self._not_running()
        future = results.watch(instance_id)
        try:
            ended = await self._await_end(instance_id, future, timeout)
        finally:
            results.unwatch(instance_id, future)
        if ended is None:
            stored = await self._require(instance_id)
            status, output, error = stored.row.status, stored.output, stored.error
        else:
            status, ending = ended
            output, error = ending.output, ending.error
        if status is Status.COMPLETED:
            return output if output is not None else b"null"
        raise await self._failure(instance_id, status, error)

    async def _await_end(self, instance_id: str, future: asyncio.Future[Any], timeout: Duration | None) -> Any:
        # Not while a test restarts it: then the future is answered by the first look afterwards.
        restarting = self._opened is None
        here = restarting or self._runs_here(instance_id)
        if not here and (await self._require(instance_id)).row.status.ended:
            return None
        if timeout is None:
            return await future
        seconds = micros(timeout, "The timeout given to result()") / MICROS
        done, _ = await asyncio.wait({future}, timeout=seconds)
        if not done:
            raise TimeoutError(f"{instance_id} has not ended within {seconds:g} s; it goes on.")
        return future.result()

    def _runs_here(self, instance_id: str) -> bool:
        """The end of this instance will be heard of in this process."""
        return False

    async def _failure(self, instance_id: str, status: Status, raw: bytes | None) -> Exception:
        cause = decode_failure(raw) if raw is not None else None
        told = error_of(raw)
        if status is Status.CANCELLED:
            detail = f": {told.message}" if told is not None and told.message else ""
            return WorkflowCancelledError(f"{instance_id} was cancelled{detail}.")
        if status is Status.TERMINATED:
            return WorkflowTerminatedError(f"{instance_id} was terminated by an operator.")
        kind = WorkflowTimeoutError if isinstance(cause, WorkflowTimeoutError) else WorkflowFailedError
        what = f": {told.type.rpartition('.')[2]}: {told.message}" if told is not None else ""
        error = kind(f"{instance_id} failed{what}")
        error.__cause__ = cause
        return error


def _refuse_in_workflow() -> None:
    if isinstance(asyncio._get_running_loop(), Run):
        raise WorkflowIOError(
            "Workflow code called the app. It would do so again on every replay, and could get another answer: move this "
            "into an activity."
        )


def _not_found(instance_id: str) -> WorkflowNotFoundError:
    return WorkflowNotFoundError(f"There is no instance {instance_id!r} in this database.")


def _refusal(instance_id: str, kind: RequestKind, status: Status | None) -> Exception:
    if status is None:
        return _not_found(instance_id)
    if kind is RequestKind.CANCEL:
        why = "it is compensating after a failure" if status is Status.COMPENSATING else f"it is {status.value}"
        return WorkflowNotCancellableError(f"{instance_id} cannot be cancelled: {why}.")
    return InvalidWorkflowStateError(f"{instance_id} is {status.value}: {_REFUSALS[kind]}")


_REFUSALS = {
    RequestKind.PAUSE: "only an instance that runs or waits can be paused.",
    RequestKind.RESUME: "only a paused or blocked instance can be resumed.",
    RequestKind.TERMINATE: "it has ended already.",
    RequestKind.RETRY: "only a failed instance can be retried, after its compensation.",
}


def _statuses(status: Status | str | Sequence[Status | str] | None) -> tuple[Status, ...]:
    if status is None:
        return ()
    wanted = (status,) if isinstance(status, str) else tuple(status)
    try:
        return tuple(Status(one) for one in wanted)
    except ValueError as error:
        raise ConfigurationError(f"status={status!r}: {error}. There are: {', '.join(Status)}.") from error


def _when(name: str, when: datetime | None) -> int | None:
    if when is None:
        return None
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise ConfigurationError(f"{name}={when!r}: give an aware datetime, e.g. datetime.now(UTC).")
    return to_micros(when)


def _limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
        raise ConfigurationError(f"limit={limit!r}: give a whole number from 1 to 1000.")
    return limit


def _ids(ids: Sequence[int]) -> list[int]:
    given = [] if isinstance(ids, str) else list(ids)
    if isinstance(ids, str) or not all(type(one) is int and 0 < one < 2**63 for one in given):
        raise ConfigurationError(f"ids={ids!r}: give the ids of entries of the outbox, or None for all that were given up.")
    return sorted(set(given), reverse=True)


def _filters(wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    for path, value in wanted.items():
        if not isinstance(path, str) or not path:
            raise ConfigurationError(f"{path!r} is no path: give dotted names, e.g. 'customer.id' or 'items.0.sku'.")
        if value is not None and not isinstance(value, str | int | float | bool):
            raise ConfigurationError(f"{path!r}: {value!r} cannot be searched for: give a text, number, boolean or None.")
    return wanted
