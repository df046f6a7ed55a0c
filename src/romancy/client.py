"""The calls of an app without a worker: start workflows, look at instances, steer them."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Never, ParamSpec, TypeVar, overload

from romancy.auth import Visitors
from romancy.authoring.durations import Duration, micros
from romancy.authoring.signatures import refuse_unknown
from romancy.authoring.workflow import Workflow, WorkflowRef
from romancy.brokers.base import BrokerOption
from romancy.clock import MICROS, Clock, to_micros
from romancy.codec import CodecOption, is_encoded, not_decoded
from romancy.core.matcher import input_matches
from romancy.errors import (
    CodecError,
    ConfigurationError,
    InvalidWorkflowStateError,
    StoreError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowNotCancellableError,
    WorkflowNotFoundError,
    WorkflowTerminatedError,
    WorkflowTimeoutError,
)
from romancy.handle import WorkflowHandle
from romancy.ids import Ids
from romancy.messaging import MessagingClient, page_limit
from romancy.model.admin import AuditRow, ConcurrencyStall
from romancy.model.instance import (
    AttemptEntry,
    Error,
    HistoryEntry,
    Instance,
    InstanceFilter,
    JournalLine,
    Page,
    StoredInstance,
    WorkflowResult,
)
from romancy.model.status import Status
from romancy.model.transition import ControlKind, ControlRequest, CreateInstance, Existing, Refused
from romancy.presenters import (
    attempt_of,
    error_of,
    history_of,
    instance_of,
    journal_of,
    make_page_token,
    parse_page_token,
    value_of,
)
from romancy.registry.creation import creation
from romancy.runtime import refuse_in_workflow
from romancy.serde.failure import decode_failure
from romancy.serde.payload import ValueCodec
from romancy.transaction import TransactionalClient, check_same_start

P = ParamSpec("P")
R = TypeVar("R")

_SCAN_WINDOW = 200
_SCAN_LIMIT = 20_000
"""How many instances one search by input looks at before it gives back a token to go on from."""
_HISTORY_PAGE = 200
_audit = logging.getLogger("romancy.audit")


class Client(MessagingClient):
    """The same calls as an `App`, without a worker: what it starts runs where an app does.

    >>> client = Client("sqlite:///orders.db")  # async with client: await client.start_workflow(...)
    """

    _visitors: Visitors | None = None
    """Known to an app, which can be served over HTTP."""

    def _concurrency_stall(self) -> ConcurrencyStall | None:
        """What holds every slot for activities in this process; a client has no worker."""
        return None

    def __init__(
        self,
        database: str | None = None,
        *,
        workflows: Sequence[Workflow[..., Any]] | None = None,
        auto_migrate: bool | None = None,
        broker: BrokerOption | None = None,
        codec: CodecOption | str | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown("Client", unknown, Client)
        given = {"database": database, "auto_migrate": auto_migrate, "broker": broker, "codec": codec}
        self._configure(given, workflows, clock, ids)

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
    async def start_workflow(self, wf: str | WorkflowRef, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]: ...
    async def start_workflow(self, wf: Any, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]:
        """Start a workflow; returns when the instance is durable.

        With `wf.with_options(instance_id=...)` the same id, workflow and arguments give the one instance, also after it
        ended. Raises `InstanceConflictError` when the id is taken by others, `PayloadError` naming the argument that
        cannot be stored.
        """
        create, workflow = self._creation(wf, args, kwargs)
        answer = await self._require_committer().submit(create)
        if isinstance(answer, Existing):
            check_same_start(create, answer, workflow, hidden=self._hides_payloads)
        return self._handle(create.instance_id, workflow)

    def _creation(
        self, wf: Any, args: tuple[Any, ...], kwargs: dict[str, Any], owner: str | None = None
    ) -> tuple[CreateInstance, Workflow[..., Any] | None]:
        now = self._clock.now()
        try:
            workflow = self._registry.resolve(wf)
        except WorkflowNotFoundError:
            if not isinstance(wf, str | WorkflowRef) or not self._may_start_unknown:
                raise
            return self._creation_by_name(wf, args, kwargs, now), None
        try:
            raw = workflow.codec.encode(args, kwargs)
        except TypeError as error:
            if "instance_id" in kwargs and "instance_id" not in workflow.codec.parameters:
                raise TypeError(
                    f"{error}. To choose the id: start_workflow({workflow.name}.with_options(instance_id=...), ...)"
                ) from error
            raise
        return creation(self._registry, workflow, raw, self._ids, now=now, owner=owner), workflow

    _may_start_unknown = True
    """A client may start workflows whose code is elsewhere."""

    def _creation_by_name(
        self, wf: str | WorkflowRef, args: tuple[Any, ...], kwargs: dict[str, Any], now: int
    ) -> CreateInstance:
        name, instance_id = (wf, None) if isinstance(wf, str) else (wf.name, wf.instance_id)
        if args:
            raise ConfigurationError(
                f"Workflow {name!r} is not known here, so its parameters have no order: pass the arguments by name, or give "
                "the client the workflow (workflows=[...])."
            )
        raw = ValueCodec(dict[str, Any], what=f"arguments of workflow {name!r}").encode(kwargs)
        return CreateInstance(instance_id or self._ids.instance_id(now), name, "", raw, raw[:0], now)

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

    # --- in transactions of others

    def using(self, connection: object) -> TransactionalClient:
        """Start workflows and send things in a transaction of yours: they take effect when you commit.

        `connection` is a connection or session of SQLAlchemy on the same database, or a connection of asyncpg, psycopg,
        sqlite3, mysqlclient or PyMySQL. Nothing of the engine is locked until you commit. It need not run for this: what is
        started runs where an app does.
        """
        return TransactionalClient(self, connection)

    # --- looking

    async def get_instance(self, instance_id: str, *, generation: int | None = None) -> Instance | None:
        """One instance, as it is or as it was in an earlier generation; None if there is no such."""
        stored = await self._store.get(instance_id, generation)
        return None if stored is None else (await self._to_instances([stored]))[0]

    async def _to_instances(self, found: Sequence[StoredInstance]) -> list[Instance]:
        return [instance_of(stored, await self._blocked_reason(stored)) for stored in found]

    async def _blocked_reason(self, stored: StoredInstance) -> Error | None:
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

    async def _require(self, instance_id: str) -> StoredInstance:
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
        query = InstanceFilter(
            status=_check_statuses(status),
            workflow=workflow_name,
            instance_id=instance_id,
            created_after=_check_datetime("created_after", created_after),
            created_before=_check_datetime("created_before", created_before),
            before=parse_page_token(page_token) if page_token is not None else None,
            limit=page_limit(limit),
        )
        return await (self._page(query) if input is None else self._search(query, _check_filters(input)))

    async def find_instances(self, input: Mapping[str, Any], **filters: Any) -> Page[Instance]:
        """Instances whose arguments have these values: `{"customer.id": "c1", "items.0.sku": "x"}`.

        Paths start at a parameter's name, or at a field of the only argument; the other filters are `list_instances`'s. A
        page may hold fewer instances than asked for, or none, and still have a successor: a search looks at a bounded number
        of instances at a time.
        """
        return await self.list_instances(input=input, **filters)

    async def _page(self, query: InstanceFilter) -> Page[Instance]:
        found = await self._store.list(replace(query, limit=query.limit + 1))
        items = found[: query.limit]
        token = make_page_token(items[-1].row.created_at, items[-1].row.instance_id) if len(found) > query.limit else None
        return Page(await self._to_instances(items), token)

    async def _search(self, query: InstanceFilter, criteria: Mapping[str, Any]) -> Page[Instance]:
        hits: list[StoredInstance] = []
        before, scanned = query.before, 0
        while scanned < _SCAN_LIMIT:
            found = await self._store.list(replace(query, before=before, limit=_SCAN_WINDOW))
            for stored in found:
                scanned += 1
                before = (stored.row.created_at, stored.row.instance_id)
                if input_matches(value_of(stored.input), criteria):
                    hits.append(stored)
                    if len(hits) == query.limit:
                        return Page(await self._to_instances(hits), make_page_token(*before))
            if len(found) < _SCAN_WINDOW:
                return Page(await self._to_instances(hits))
        assert before is not None
        return Page(await self._to_instances(hits), make_page_token(*before))

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

    # --- steering; `actor` says who asks, for the audit

    async def cancel_workflow(self, instance_id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Ask for cancellation; returns when the request is durable.

        Raises `WorkflowNotCancellableError` after the end, `WorkflowNotFoundError` for an unknown id.
        """
        await self._submit_audited_request(instance_id, ControlKind.CANCEL, reason, actor)

    async def pause_workflow(self, instance_id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Let nothing new start in an instance until it is resumed; running attempts finish."""
        await self._submit_audited_request(instance_id, ControlKind.PAUSE, reason, actor)

    async def resume_workflow(self, instance_id: str, *, actor: str | None = None) -> None:
        """Let a paused instance go on; a blocked one is tried again."""
        await self._submit_audited_request(instance_id, ControlKind.RESUME, None, actor)

    async def terminate_workflow(self, instance_id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """End an instance at once, without compensation."""
        await self._submit_audited_request(instance_id, ControlKind.TERMINATE, reason, actor)

    async def retry_workflow(self, instance_id: str, *, actor: str | None = None) -> None:
        """Run a failed instance again from where it failed, with the code of now; what was compensated runs again."""
        await self._submit_audited_request(instance_id, ControlKind.RETRY, None, actor)

    async def _submit_audited_request(
        self, instance_id: str, kind: ControlKind, reason: str | None, actor: str | None
    ) -> None:
        """Ask something of an instance, and write down who did."""
        actor = actor or self._default_actor()
        await self._submit_request(instance_id, kind, reason, actor, audited=True)
        _audit.info("%s by %r: %r %r", kind.value, actor, instance_id, reason or "")

    def _default_actor(self) -> str:
        """Who steers where nobody is named: this program."""
        return f"{self._options['service_name'] or 'program'}@{socket.gethostname()}"

    async def _record_audit(self, actor: str, action: str, lines: Iterable[tuple[str | None, str]]) -> None:
        """Write down who did what. What was done is done: that it cannot be written down does not undo it."""
        now = self._clock.now()
        rows = [AuditRow(0, now, actor, action, instance_id, detail) for instance_id, detail in lines]
        for row in rows:  # as literals: no line breaks of strangers
            _audit.info("%s by %r: %r %r", action, actor, row.instance_id, row.detail)
        try:
            if rows:
                await self._store.add_audit(rows)
        except StoreError as error:
            _audit.warning("%s by %r could not be written into the database: %s", action, actor, error)

    async def _submit_request(
        self, instance_id: str, kind: ControlKind, reason: str | None, by: str, *, audited: bool = False
    ) -> None:
        request = ControlRequest(instance_id, kind, self._clock.now(), reason, by, audited)
        answer = await self._require_committer().submit(request, partial(self._on_emitted, ()))
        if isinstance(answer, Refused):
            raise _refusal(instance_id, kind, answer.status)
        self._on_requested(instance_id, kind)

    def _on_requested(self, instance_id: str, kind: ControlKind) -> None:
        """A request is durable."""

    def _on_bulk_action_added(self) -> None:
        """There is an effect to do for many instances: an app does it."""

    # --- results

    async def _await_result(self, instance_id: str, timeout: Duration | None) -> bytes:
        refuse_in_workflow()
        results = self._results
        if results is None:
            raise self._not_running()
        future = results.watch(instance_id)
        try:
            ended = await self._await_end(instance_id, future, timeout)
        finally:
            results.unwatch(instance_id, future)
        if ended is None:
            stored = await self._require(instance_id)  # mostly to say that there is none
            status, output, error = stored.row.status, stored.output, stored.error
        else:
            status, ending = ended
            output, error = ending.output, ending.error
        for raw in (output, error):
            if raw is not None and is_encoded(raw):
                raise CodecError(not_decoded(f"The end of {instance_id}", raw))
        if status is Status.COMPLETED:
            return output if output is not None else b"null"
        raise await self._build_failure(instance_id, status, error)

    async def _await_end(self, instance_id: str, future: asyncio.Future[Any], timeout: Duration | None) -> Any:
        # Not while a test restarts it: then the future is answered by the first look afterwards.
        restarting = self._open_store is None
        if self._results is not None and not restarting and not self._runs_here(instance_id):
            self._results.check_soon(instance_id)
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

    async def _build_failure(self, instance_id: str, status: Status, raw: bytes | None) -> Exception:
        cause = decode_failure(raw) if raw is not None else None
        info = error_of(raw)
        if status is Status.CANCELLED:
            detail = f": {info.message}" if info is not None and info.message else ""
            return WorkflowCancelledError(f"{instance_id} was cancelled{detail}.")
        if status is Status.TERMINATED:
            return WorkflowTerminatedError(f"{instance_id} was terminated by an operator.")
        kind = WorkflowTimeoutError if isinstance(cause, WorkflowTimeoutError) else WorkflowFailedError
        what = f": {info.type.rpartition('.')[2]}: {info.message}" if info is not None else ""
        error = kind(f"{instance_id} failed{what}")
        error.__cause__ = cause
        return error


def _not_found(instance_id: str) -> WorkflowNotFoundError:
    return WorkflowNotFoundError(f"There is no instance {instance_id!r} in this database.")


def _refusal(instance_id: str, kind: ControlKind, status: Status | None) -> Exception:
    if status is None:
        return _not_found(instance_id)
    if kind is ControlKind.CANCEL:
        why = "it is compensating after a failure" if status is Status.COMPENSATING else f"it is {status.value}"
        return WorkflowNotCancellableError(f"{instance_id} cannot be cancelled: {why}.")
    return InvalidWorkflowStateError(f"{instance_id} is {status.value}: {_REFUSALS[kind]}")


_REFUSALS = {
    ControlKind.PAUSE: "only an instance that runs or waits can be paused.",
    ControlKind.RESUME: "only a paused or blocked instance can be resumed.",
    ControlKind.TERMINATE: "it has ended already.",
    ControlKind.RETRY: "only a failed instance can be retried, after its compensation.",
}


def _check_statuses(status: Status | str | Sequence[Status | str] | None) -> tuple[Status, ...]:
    if status is None:
        return ()
    given = (status,) if isinstance(status, str) else tuple(status)
    try:
        return tuple(Status(one) for one in given)
    except ValueError as error:
        raise ConfigurationError(f"status={status!r}: {error}. There are: {', '.join(Status)}.") from error


def _check_datetime(name: str, when: datetime | None) -> int | None:
    if when is None:
        return None
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise ConfigurationError(f"{name}={when!r}: give an aware datetime, e.g. datetime.now(UTC).")
    return to_micros(when)


def _check_filters(criteria: Mapping[str, Any]) -> Mapping[str, Any]:
    for path, value in criteria.items():
        if not isinstance(path, str) or not path:
            raise ConfigurationError(f"{path!r} is no path: give dotted names, e.g. 'customer.id' or 'items.0.sku'.")
        if value is not None and not isinstance(value, str | int | float | bool):
            raise ConfigurationError(f"{path!r}: {value!r} cannot be searched for: give a text, number, boolean or None.")
    return criteria
