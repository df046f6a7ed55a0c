"""The operators' calls, answered from the database."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from romancy.client import Client
from romancy.clock import MICROS, monotonic, to_datetime
from romancy.errors import ConfigurationError, RomancyError, WorkflowNotFoundError
from romancy.manage.explain import Facts, explain
from romancy.manage.filters import Filter, parse
from romancy.manage.records import (
    AuditPage,
    Batch,
    Count,
    Deed,
    Done,
    Explanation,
    Finding,
    HistoryPage,
    InstanceDetail,
    InstancePage,
    NamePage,
    OutboxPage,
    Overview,
    Preview,
    Sent,
    Started,
    Timeline,
    WorkerSummary,
    WorkflowSummary,
)
from romancy.manage.schemas import input_schema, read_input
from romancy.manage.summaries import detail_of, error_line, summary_of
from romancy.manage.timeline import draw
from romancy.model.instance import Query, Stored, WorkerRow
from romancy.model.status import Status
from romancy.model.talk import TARGET
from romancy.model.transition import Existing, RequestKind
from romancy.sending import page_limit
from romancy.store.port import Store
from romancy.using import check_same
from romancy.views import attempt_of, history_of, journal_of, outbox_entry_of, page_position, token_of, value_of

_audit = logging.getLogger("romancy.audit")
_TIME_BOX = 0.25
"""Seconds that a search takes before it gives back what it has."""
_WINDOW = 200
_DRAWN = 2000
"""Entries of a history that are drawn."""


class DatabaseManager:
    """The operators' calls on a client or an app, which must be running."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def _store(self) -> Store:
        return self._client._store

    def _now(self) -> int:
        return self._client._clock.now()

    def _lease(self) -> int:
        return round(self._client._options["lease_timeout"] * MICROS)

    # --- looking

    async def overview(self) -> Overview:
        """What needs attention, and how things go."""
        raise NotImplementedError

    async def list_instances(self, filter: str = "", *, limit: int = 50, page_token: str | None = None) -> InstancePage:
        """Instances that fit a filter line, newest first; a search by content has a bound in time."""
        limit = page_limit(limit)
        wanted = parse(filter, now=self._now())
        before = page_position(page_token) if page_token is not None else None
        found, at, more = await self._search(wanted, before, limit)
        items = [summary_of(one.row, one.waits, one.error) for one in found]
        stopped = more and len(found) < limit
        return InstancePage(
            items,
            token_of(*at) if more and at is not None else None,
            to_datetime(at[0]) if stopped and at is not None else None,
        )

    async def _search(
        self, wanted: Filter, before: tuple[int, str] | None, limit: int
    ) -> tuple[list[Stored], tuple[int, str] | None, bool]:
        """What fits below a key, how far the search came, and whether there may be more."""
        deadline = monotonic() + _TIME_BOX
        hits: list[Stored] = []
        if not wanted.statuses:
            return hits, None, False
        query = Query(
            status=() if len(wanted.statuses) >= len(Status) - 1 else tuple(wanted.statuses),
            created_after=wanted.created_after,
            created_before=None if wanted.created_before is None else wanted.created_before + 1,
            limit=_WINDOW,
        )
        while True:
            window = await self._store.list(replace(query, before=before))
            for one in window:
                if self._fits(wanted, one):
                    if len(hits) == limit:
                        return hits, before, True
                    hits.append(one)
                before = (one.row.created_at, one.row.instance_id)
            if len(window) < _WINDOW:
                return hits, before, False
            if monotonic() > deadline:
                return hits, before, True

    def _fits(self, wanted: Filter, one: Stored) -> bool:
        if not wanted.fits(one.row, one.waits, self._now()):
            return False
        if not wanted.by_content:
            return True
        return wanted.fits_content(value_of(one.input), "" if one.error is None else error_line(one.error))

    async def get_instance(self, instance_id: str, *, generation: int | None = None) -> InstanceDetail:
        """One instance."""
        stored = await self._client._require(instance_id)
        last = stored.row.generation
        if generation is not None and generation != last:
            stored = await self._archived(instance_id, generation)
        attempts = await self._store.attempts(instance_id, stored.row.generation)
        journal = await self._store.journal(instance_id)
        return detail_of(stored, [attempt_of(one) for one in attempts], [journal_of(one) for one in journal], last)

    async def _archived(self, instance_id: str, generation: int) -> Stored:
        stored = await self._store.get(instance_id, generation)
        if stored is None:
            raise WorkflowNotFoundError(f"Generation {generation} of {instance_id!r} is not there, or not any more.")
        return stored

    async def get_history(
        self, instance_id: str, *, generation: int | None = None, after: int = 0, limit: int = 200
    ) -> HistoryPage:
        """What happened in it."""
        limit = page_limit(limit)
        row = (await self._client._require(instance_id)).row
        number = row.generation if generation is None else generation
        entries = await self._store.history(instance_id, number, after=after, limit=limit + 1)
        items = [history_of(entry) for entry in entries[:limit]]
        return HistoryPage(items, items[-1].seq if len(entries) > limit else None)

    async def get_timeline(self, instance_id: str, *, generation: int | None = None) -> Timeline:
        """The same as stretches of time."""
        stored = await self._client._require(instance_id)
        if generation is not None and generation != stored.row.generation:
            stored = await self._archived(instance_id, generation)
        row = stored.row
        entries = await self._store.history(instance_id, row.generation, after=0, limit=_DRAWN + 1)
        attempts = await self._store.attempts(instance_id, row.generation)
        journal = [journal_of(one) for one in await self._store.journal(instance_id)]
        times = [entry.scheduled_at for entry in entries if entry.scheduled_at is not None]
        begun = (
            row.created_at if row.generation == 1 or row.status is Status.RECURRED else min(times, default=row.created_at)
        )
        return draw(
            row,
            entries[:_DRAWN],
            attempts,
            stored.waits,
            journal,
            begun_at=begun,
            now=self._now(),
            cut=len(entries) > _DRAWN,
        )

    async def get_source(self, instance_id: str) -> str | None:
        """The source of the workflow as this instance ran it."""
        return await self._store.source((await self._client._require(instance_id)).row.code)

    async def explain(self, instance_id: str) -> Explanation:
        """Why it stands where it stands."""
        return explain(await self._facts(instance_id))

    async def _facts(self, instance_id: str) -> Facts:
        stored = await self._client._require(instance_id)
        generation = stored.row.generation
        return Facts(
            stored=stored,
            now=self._now(),
            lease=self._lease(),
            workers=await self._store.workers(),
            attempts=await self._store.attempts(instance_id, generation),
            journal=await self._store.journal(instance_id),
            entries=await self._store.history(instance_id, generation, after=0, limit=_DRAWN),
        )

    async def list_workflows(self) -> list[WorkflowSummary]:
        """Workflows that live workers know, or that have instances in flight."""
        versions: dict[str, set[str]] = {}
        for worker in await self._living():
            for name, version in json.loads(worker.kinds):
                versions.setdefault(name, set()).add(version)
        here = {workflow.name: workflow for workflow in self._client._registry.all()}
        return [
            WorkflowSummary(
                name=name,
                versions=tuple(sorted(versions.get(name, ()))),
                in_flight=Count(0),
                completed=0,
                failed=0,
                p50=None,
                p95=None,
                points=[],
                event_handler=name in here and here[name].event_handler,
                startable=name in here,
            )
            for name in sorted(versions.keys() | here.keys())
        ]

    async def get_schema(self, workflow: str) -> dict[str, Any] | None:
        """The JSON Schema of a workflow's input; None if it is not known here."""
        try:
            return input_schema(self._client.get_workflow(workflow))
        except WorkflowNotFoundError:
            return None

    async def get_event_schema(self, instance_id: str, op: str) -> dict[str, Any] | None:
        """The JSON Schema of the data that a wait expects; None if it has no model or is not known here."""
        return None

    async def list_workers(self) -> list[WorkerSummary]:
        """Worker processes."""
        found: list[WorkerSummary] = []
        for row in await self._store.workers():
            owned = await self._store.owned(row.id)
            found.append(
                WorkerSummary(
                    worker_id=row.id,
                    service=row.service,
                    host=row.host,
                    pid=row.pid,
                    python=row.python,
                    started_at=to_datetime(row.started_at),
                    beat_at=to_datetime(row.beat_at),
                    alive=self._is_alive(row),
                    owned=Count(len(owned)),
                    workflows=tuple(f"{name} ({version})" if version else name for name, version in json.loads(row.kinds)),
                )
            )
        return found

    def _is_alive(self, row: WorkerRow) -> bool:
        return self._now() - row.beat_at <= self._lease() // 2

    async def _living(self) -> list[WorkerRow]:
        return [row for row in await self._store.workers() if self._is_alive(row)]

    async def list_channels(self, *, after: str = "", limit: int = 50) -> NamePage:
        """Channels by name."""
        raise NotImplementedError

    async def list_subscribers(self, channel: str, *, after: str = "", limit: int = 50) -> NamePage:
        """Who has subscribed to a channel."""
        raise NotImplementedError

    async def list_groups(self, *, after: str = "", limit: int = 50) -> NamePage:
        """Groups by name."""
        raise NotImplementedError

    async def list_members(self, group: str, *, after: str = "", limit: int = 50) -> NamePage:
        """Who is in a group."""
        raise NotImplementedError

    async def list_outbox(self, *, dead: bool | None = None, after: int = 0, limit: int = 50) -> OutboxPage:
        """What waits to be sent, and what could not be."""
        limit = page_limit(limit)
        found = await self._store.list_outbox(dead=dead, after=after, limit=limit + 1)
        items = [outbox_entry_of(row) for row in found[:limit]]
        return OutboxPage(items, items[-1].id if len(found) > limit else None)

    async def list_batches(self) -> list[Batch]:
        """The last batches, newest first."""
        raise NotImplementedError

    async def get_batch(self, batch_id: str) -> Batch:
        """One batch."""
        raise NotImplementedError

    async def list_audit(self, *, instance_id: str | None = None, before: int | None = None, limit: int = 50) -> AuditPage:
        """Who did what."""
        raise NotImplementedError

    async def doctor(self) -> list[Finding]:
        """Everything that can be checked, and what to do about it."""
        raise NotImplementedError

    # --- doing

    async def start(
        self, workflow: str, input: dict[str, Any], *, instance_id: str | None = None, actor: str = ""
    ) -> Started:
        """Start a workflow. Raises `InputError` (a `PayloadError`) naming the fields."""
        try:
            known = self._client.get_workflow(workflow)
        except WorkflowNotFoundError:
            started = await self._start_elsewhere(workflow, input, instance_id)
        else:
            args, kwargs = read_input(known, input)
            handle = await self._client.start_workflow(known.with_options(instance_id=instance_id), *args, **kwargs)
            started = handle.instance_id
        await self._note(actor, "start", started, workflow)
        return Started(started)

    async def _start_elsewhere(self, workflow: str, input: dict[str, Any], instance_id: str | None) -> str:
        """Start what only other apps know: they check the input when they run it."""
        versions = [
            version for worker in await self._living() for name, version in json.loads(worker.kinds) if name == workflow
        ]
        if not versions:
            raise WorkflowNotFoundError(
                f"No workflow is called {workflow!r}: no live worker knows it, nor does this process."
            )
        create = self._client._creation_by_name(workflow, (), input, self._now())
        create = create._replace(instance_id=instance_id or create.instance_id, version=versions[-1])
        answer = await self._client._write().submit(create)
        if isinstance(answer, Existing):
            check_same(create, answer)
        return create.instance_id

    async def send_event(
        self,
        type: str,
        data: Any = None,
        *,
        source: str = "romancy",
        subject: str | None = None,
        to: str | None = None,
        actor: str = "",
    ) -> Sent:
        """Send an event, to one instance or to everybody."""
        extensions = {} if to is None else {TARGET: to}
        accepted = await self._client.send_event(type, source, data, subject=subject, extensions=extensions)
        await self._note(actor, "send_event", to, f"{type} {accepted.id}")
        return Sent(accepted.instance_ids, accepted.duplicate)

    async def publish(self, channel: str, data: Any, *, to: str | None = None, actor: str = "") -> Sent:
        """Publish a message, or send it to one instance."""
        if to is None:
            message = await self._client.publish(channel, data)
        else:
            message = await self._client.send_to(to, channel, data)
        await self._note(actor, "publish", to, f"{channel} {message}")
        return Sent(() if to is None else (to,))

    async def preview(self, deed: Deed, instance_id: str) -> Preview:
        """What a deed would do."""
        await self._client._require(instance_id)
        return Preview(deed, instance_id, ())

    async def do(self, deed: Deed, ids: Sequence[str], *, reason: str | None = None, actor: str = "") -> list[Done]:
        """Do something to instances, each by itself."""
        return list(await asyncio.gather(*(self._do(deed, one, reason, actor) for one in ids)))

    async def _do(self, deed: Deed, instance_id: str, reason: str | None, actor: str) -> Done:
        try:
            await self._client._request(instance_id, RequestKind(deed), reason, actor)
        except RomancyError as error:
            return Done(instance_id, False, str(error), type(error).__name__)
        await self._note(actor, deed.value, instance_id, reason or "")
        return Done(instance_id, True)

    async def start_batch(self, deed: Deed, filter: str, *, reason: str | None = None, actor: str = "") -> Batch:
        """Do something to all instances that fit a filter."""
        raise NotImplementedError

    async def abort_batch(self, batch_id: str, *, actor: str = "") -> Batch:
        """Stop a batch; what is done is done."""
        raise NotImplementedError

    async def requeue_outbox(self, ids: Sequence[int] | None = None, *, actor: str = "") -> int:
        """Let dead letters be sent again: these, or all; how many."""
        done = await self._client.requeue_outbox(ids)
        await self._note(actor, "requeue_outbox", None, f"{done} events")
        return done

    async def prune(self, *, older_than: float, actor: str = "") -> int:
        """Delete instances that ended longer ago than these seconds; how many."""
        if not older_than >= 0:
            raise ConfigurationError(f"older_than={older_than!r}: give seconds, 0 or more.")
        before, deleted = self._now() - round(older_than * MICROS), 0
        while done := await self._store.prune(ended_before=before, limit=100):
            deleted += done
        await self._note(actor, "prune", None, f"{deleted} instances that ended before {to_datetime(before).isoformat()}")
        return deleted

    async def _note(self, actor: str, deed: str, instance_id: str | None, detail: str) -> None:
        """Write down who did what."""
        _audit.info("%s by %r: %r %r", deed, actor, instance_id, detail)  # as literals: no line breaks of strangers
