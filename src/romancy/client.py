"""The client: the calls of an app that start, read and control instances, without a worker."""

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
"""The number of instances that one search by input reads before it returns a page token to continue from."""
_HISTORY_PAGE = 200
_audit = logging.getLogger("romancy.audit")


class Client(MessagingClient):
    """A client: it has the calls of an `App`, but no worker. The workflows that it starts run in an app.

    >>> client = Client("sqlite:///orders.db")  # async with client: await client.start_workflow(...)
    """

    _visitors: Visitors | None = None
    """Set by an app, which can be served over HTTP."""

    def _concurrency_stall(self) -> ConcurrencyStall | None:
        """Return the activities that hold all slots of this process, if they do; None for a client, which has no worker."""
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
        """Register a workflow."""
        self._registry.add(workflow)

    def get_workflow(self, name: str) -> Workflow[..., Any]:
        """Return the registered workflow with this name. Raises `WorkflowNotFoundError`."""
        return self._registry.resolve(name)

    @overload
    async def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(self, wf: str | WorkflowRef, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]: ...
    async def start_workflow(self, wf: Any, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]:
        """Start a workflow; returns a handle when the instance is durable.

        With `wf.with_options(instance_id=...)` a call with the same id, workflow and arguments as an earlier one returns a
        handle to the existing instance, even after it has ended. Raises `InstanceConflictError` if the id is taken by
        another workflow or other arguments, and a `PayloadError` that names the argument that cannot be stored.
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
    """Whether workflows that are not registered here can be started by name: a client can, an app cannot."""

    def _creation_by_name(
        self, wf: str | WorkflowRef, args: tuple[Any, ...], kwargs: dict[str, Any], now: int
    ) -> CreateInstance:
        name, instance_id = (wf, None) if isinstance(wf, str) else (wf.name, wf.instance_id)
        if args:
            raise ConfigurationError(
                f"The parameters of workflow {name!r} are not known in this process: pass the arguments by name, or give "
                "the client the workflow (workflows=[...])."
            )
        raw = ValueCodec(dict[str, Any], what=f"arguments of workflow {name!r}").encode(kwargs)
        return CreateInstance(instance_id or self._ids.instance_id(now), name, "", raw, raw[:0], now)

    def _handle(self, instance_id: str, workflow: Workflow[..., Any] | None) -> WorkflowHandle[Any]:
        return WorkflowHandle(self, instance_id, workflow.result.decode if workflow is not None else value_of)

    def get_handle(self, instance_id: str) -> WorkflowHandle[Any]:
        """Return a handle to an instance. The calls of the handle raise `WorkflowNotFoundError` if no instance has this id.

        The result has the type of the workflow if the workflow is registered here; otherwise it is plain JSON.
        """
        return WorkflowHandle(self, instance_id, None)

    async def _decode_result(self, instance_id: str, raw: bytes) -> Any:
        row = (await self._require(instance_id)).row
        self._registry.refresh()
        workflow = self._registry.find(row.workflow, row.version)
        return value_of(raw) if workflow is None else workflow.result.decode(raw)

    # --- the caller's transactions

    def using(self, connection: object) -> TransactionalClient:
        """Return a client that starts workflows and sends events and messages in the caller's own transaction.

        They take effect when the caller commits; until then nothing of the engine is locked. `connection` is a connection or
        session of SQLAlchemy on the same database, or a connection of asyncpg, psycopg, sqlite3, mysqlclient or PyMySQL.
        This client need not be started for it: the instances run in an app.
        """
        return TransactionalClient(self, connection)

    # --- reading

    async def get_instance(self, instance_id: str, *, generation: int | None = None) -> Instance | None:
        """Return an instance, as it is now or as it was in an earlier generation; None if it does not exist."""
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
        """Return the status of an instance, with its output or error, without waiting for its end."""
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
        """List instances, newest first. `workflow_name` and `instance_id` match parts; `input` as in `find_instances`."""
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
        """List the instances whose arguments have these values: `{"customer.id": "c1", "items.0.sku": "x"}`.

        A path starts with the name of a parameter, or with a field of the only argument; the other filters are those of
        `list_instances`. A page may hold fewer instances than `limit`, or none, and still have a next page: one call reads a
        bounded number of instances.
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
        """Iterate over the history of an instance, in order: of its current generation, or of an archived one."""
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
        """Return the attempts of an instance that failed, were cut off, or have been running for a while."""
        row = (await self._require(instance_id)).row
        return [attempt_of(attempt) for attempt in await self._store.attempts(instance_id, row.generation)]

    async def get_journal(self, instance_id: str) -> list[JournalLine]:
        """Return the journal of an instance, oldest first: its owners, cold replays and requests."""
        await self._require(instance_id)
        return [journal_of(entry) for entry in await self._store.journal(instance_id)]

    # --- control; `actor` is the name for the audit

    async def cancel_workflow(self, instance_id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Request the cancellation of an instance; returns when the request is durable.

        Raises `WorkflowNotCancellableError` after the end, `WorkflowNotFoundError` for an unknown id.
        """
        await self._submit_audited_request(instance_id, ControlKind.CANCEL, reason, actor)

    async def pause_workflow(self, instance_id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Pause an instance: nothing new starts in it until it is resumed, and running attempts finish."""
        await self._submit_audited_request(instance_id, ControlKind.PAUSE, reason, actor)

    async def resume_workflow(self, instance_id: str, *, actor: str | None = None) -> None:
        """Resume a paused instance, or try a blocked one again."""
        await self._submit_audited_request(instance_id, ControlKind.RESUME, None, actor)

    async def terminate_workflow(self, instance_id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Terminate an instance: it ends at once, without compensation."""
        await self._submit_audited_request(instance_id, ControlKind.TERMINATE, reason, actor)

    async def retry_workflow(self, instance_id: str, *, actor: str | None = None) -> None:
        """Retry a failed instance from where it failed, with the current code; compensated activities run again."""
        await self._submit_audited_request(instance_id, ControlKind.RETRY, None, actor)

    async def _submit_audited_request(
        self, instance_id: str, kind: ControlKind, reason: str | None, actor: str | None
    ) -> None:
        """Submit a control request for an instance, and record its actor in the audit."""
        actor = actor or self._default_actor()
        await self._submit_request(instance_id, kind, reason, actor, audited=True)
        _audit.info("%s by %r: %r %r", kind.value, actor, instance_id, reason or "")

    def _default_actor(self) -> str:
        """Return the actor of a request that names none: this program and its host."""
        return f"{self._options['service_name'] or 'program'}@{socket.gethostname()}"

    async def _record_audit(self, actor: str, action: str, lines: Iterable[tuple[str | None, str]]) -> None:
        """Record actions in the audit. They are durable already, so a failure to record them is only logged."""
        now = self._clock.now()
        rows = [AuditRow(0, now, actor, action, instance_id, detail) for instance_id, detail in lines]
        for row in rows:  # with %r: line breaks in names from outside must not forge lines of the log
            _audit.info("%s by %r: %r %r", action, actor, row.instance_id, row.detail)
        try:
            if rows:
                await self._store.add_audit(rows)
        except StoreError as error:
            _audit.warning("%s by %r could not be recorded in the database: %s", action, actor, error)

    async def _submit_request(
        self, instance_id: str, kind: ControlKind, reason: str | None, by: str, *, audited: bool = False
    ) -> None:
        request = ControlRequest(instance_id, kind, self._clock.now(), reason, by, audited)
        answer = await self._require_committer().submit(request, partial(self._on_emitted, ()))
        if isinstance(answer, Refused):
            raise _refusal(instance_id, kind, answer.status)
        self._on_requested(instance_id, kind)

    def _on_requested(self, instance_id: str, kind: ControlKind) -> None:
        """Called when a control request is durable."""

    def _on_bulk_action_added(self) -> None:
        """Called when a bulk action was stored; an app carries it out."""

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
            stored = await self._require(instance_id)  # raises if the instance does not exist, which is the usual case
            status, output, error = stored.row.status, stored.output, stored.error
        else:
            status, ending = ended
            output, error = ending.output, ending.error
        for raw in (output, error):
            if raw is not None and is_encoded(raw):
                raise CodecError(not_decoded(f"The result of {instance_id}", raw))
        if status is Status.COMPLETED:
            return output if output is not None else b"null"
        raise await self._build_failure(instance_id, status, error)

    async def _await_end(self, instance_id: str, future: asyncio.Future[Any], timeout: Duration | None) -> Any:
        # Not while a test restarts the store: the first check after the restart resolves the future.
        restarting = self._open_store is None
        if self._results is not None and not restarting and not self._runs_here(instance_id):
            self._results.check_soon(instance_id)
        if timeout is None:
            return await future
        seconds = micros(timeout, "The timeout given to result()") / MICROS
        done, _ = await asyncio.wait({future}, timeout=seconds)
        if not done:
            raise TimeoutError(f"Instance {instance_id!r} did not end within {seconds:g} s; it continues.")
        return future.result()

    def _runs_here(self, instance_id: str) -> bool:
        """Whether the worker of this process will report the end of this instance."""
        return False

    async def _build_failure(self, instance_id: str, status: Status, raw: bytes | None) -> Exception:
        cause = decode_failure(raw) if raw is not None else None
        info = error_of(raw)
        if status is Status.CANCELLED:
            detail = f": {info.message}" if info is not None and info.message else ""
            return WorkflowCancelledError(f"Instance {instance_id!r} was cancelled{detail}.")
        if status is Status.TERMINATED:
            return WorkflowTerminatedError(f"Instance {instance_id!r} was terminated by an operator.")
        kind = WorkflowTimeoutError if isinstance(cause, WorkflowTimeoutError) else WorkflowFailedError
        what = f": {info.type.rpartition('.')[2]}: {info.message}" if info is not None else ""
        error = kind(f"Instance {instance_id!r} failed{what}")
        error.__cause__ = cause
        return error


def _not_found(instance_id: str) -> WorkflowNotFoundError:
    return WorkflowNotFoundError(f"There is no instance {instance_id!r} in this database.")


def _refusal(instance_id: str, kind: ControlKind, status: Status | None) -> Exception:
    if status is None:
        return _not_found(instance_id)
    if kind is ControlKind.CANCEL:
        why = "it is compensating after a failure" if status is Status.COMPENSATING else f"it is {status.value}"
        return WorkflowNotCancellableError(f"Instance {instance_id!r} cannot be cancelled: {why}.")
    return InvalidWorkflowStateError(f"Instance {instance_id!r} is {status.value}: {_REFUSALS[kind]}")


_REFUSALS = {
    ControlKind.PAUSE: "only a running or waiting instance can be paused.",
    ControlKind.RESUME: "only a paused or blocked instance can be resumed.",
    ControlKind.TERMINATE: "it has already ended.",
    ControlKind.RETRY: "only a failed instance can be retried, once its compensations have ended.",
}


def _check_statuses(status: Status | str | Sequence[Status | str] | None) -> tuple[Status, ...]:
    if status is None:
        return ()
    given = (status,) if isinstance(status, str) else tuple(status)
    try:
        return tuple(Status(value) for value in given)
    except ValueError as error:
        raise ConfigurationError(f"status={status!r}: {error}. The statuses are: {', '.join(Status)}.") from error


def _check_datetime(name: str, when: datetime | None) -> int | None:
    if when is None:
        return None
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise ConfigurationError(f"{name}={when!r}: give an aware datetime, e.g. datetime.now(UTC).")
    return to_micros(when)


def _check_filters(criteria: Mapping[str, Any]) -> Mapping[str, Any]:
    for path, value in criteria.items():
        if not isinstance(path, str) or not path:
            raise ConfigurationError(f"{path!r} is not a path: give dotted names, e.g. 'customer.id' or 'items.0.sku'.")
        if value is not None and not isinstance(value, str | int | float | bool):
            raise ConfigurationError(f"{path!r}: {value!r} cannot be searched for: give a string, number, boolean or None.")
    return criteria
