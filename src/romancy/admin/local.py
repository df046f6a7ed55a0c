"""The `Manager` that works on a database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from romancy.admin import charts
from romancy.admin.bulk_actions import BulkActionRunner, to_bulk_action
from romancy.admin.descriptors import WorkflowDescriptor, bind_input, descriptor_key, read_descriptor, with_defaults
from romancy.admin.doctor import DoctorFacts, run_checks
from romancy.admin.explain import CandidateEvent, ChannelFacts, Facts, explain, pending_compensations
from romancy.admin.filters import OVERDUE, parse, quoted
from romancy.admin.introspection import AnyActivity, find_activities, model_schema
from romancy.admin.records import (
    ActionKind,
    ActionResult,
    AttentionItem,
    AuditEntry,
    AuditPage,
    BulkAction,
    ChannelPage,
    ChannelSummary,
    Count,
    Explanation,
    Finding,
    GroupPage,
    GroupSummary,
    HistoryPage,
    InstanceDetail,
    InstancePage,
    MemberPage,
    OutboxPage,
    Overview,
    Preview,
    SendResult,
    StartResult,
    Subscriber,
    SubscriberPage,
    Timeline,
    WorkerSummary,
    WorkflowSummary,
)
from romancy.admin.schemas import input_schema, read_input
from romancy.admin.search import search
from romancy.admin.summaries import allowed_actions, detail_of, summary_of
from romancy.admin.timeline import build_timeline
from romancy.client import Client
from romancy.clock import MICROS, to_datetime
from romancy.errors import ConfigurationError, RomancyError, StoreError, WorkflowNotFoundError
from romancy.messaging import page_limit
from romancy.model.admin import BulkActionRow, InstanceCounts, Minute
from romancy.model.history import Entry
from romancy.model.instance import InstanceRow, StoredInstance, WorkerRow
from romancy.model.messaging import TARGET
from romancy.model.status import Status
from romancy.model.transition import ControlKind, Existing, WaitKind
from romancy.presenters import attempt_of, history_of, journal_of, make_page_token, outbox_entry_of, parse_page_token
from romancy.store.port import Store
from romancy.transaction import check_same_start

_DRAWN = 2000
"""The most entries of a history that are drawn, or searched for failures and compensations."""
_MOST = 10_000
"""The limit of counts."""
_SAMPLE = 3000
"""The most instances of each status that are read to count the instances of workflows."""
_DAY = 24 * 3600 * MICROS
_NEAR = 5
"""The number of recent events that are compared with a wait."""
_MAX_BULK_ACTIONS = 100
_PRUNE = 100
"""The number of instances that one transaction deletes."""
_COMPENSATED = (Status.FAILED, Status.CANCELLED, Status.TERMINATED, Status.COMPENSATING)
"""The statuses in which an instance may have compensations."""


class DatabaseManager:
    """The queries and actions of an operator, through a client or an app, which must be running."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def _store(self) -> Store:
        return self._client._store

    def _now(self) -> int:
        return self._client._clock.now()

    def _lease(self) -> int:
        seconds: float = self._client._options["lease_timeout"]
        return round(seconds * MICROS)

    # --- queries

    async def overview(self) -> Overview:
        """Return what needs attention, the current rates, and the workers and workflows."""
        now = self._now()
        counts = await self._count_instances()
        workers = await self.list_workers()
        minutes = await self._store.minutes(since=max(0, now - charts.SHOWN * charts.MINUTE))
        names = {name for row in await self._live_workers() for name, _ in json.loads(row.workflows)}
        here = {workflow.name for workflow in self._client._registry.all()}
        return Overview(
            attention=_attention_items(counts, workers),
            in_flight={status.value: _count(n) for status, n in counts.statuses.items() if not status.ended},
            points=charts.chart_points(minutes, now=now),
            workers=workers,
            workflows=sorted(names | here),
        )

    async def _count_instances(self) -> InstanceCounts:
        now = self._now()
        return await self._store.count_instances(failed_since=max(0, now - _DAY), due_before=now - OVERDUE, most=_MOST + 1)

    async def list_instances(self, filter: str = "", *, limit: int = 50, page_token: str | None = None) -> InstancePage:
        """Return the instances that match a filter, newest first. The search has a time limit."""
        limit = page_limit(limit)
        now = self._now()
        wanted = parse(filter, now=now)
        before = parse_page_token(page_token) if page_token is not None else None
        found = await search(self._store, wanted, now=now, before=before, limit=limit)
        ended = [line.row.instance_id for line in found.rows if line.row.status.ended]
        errors = await self._store.errors(ended)
        items = [summary_of(line.row, line.waits, errors.get(line.row.instance_id)) for line in found.rows]
        return InstancePage(
            items,
            make_page_token(*found.end) if found.has_more and found.end is not None else None,
            to_datetime(found.end[0]) if found.stopped and found.end is not None else None,
        )

    async def get_instance(self, instance_id: str, *, generation: int | None = None) -> InstanceDetail:
        """Return an instance, in its latest generation or an earlier one."""
        stored = await self._client._require(instance_id)
        last = stored.row.generation
        if generation is not None and generation != last:
            stored = await self._archived(instance_id, generation)
        attempts = await self._store.attempts(instance_id, stored.row.generation)
        journal = await self._store.journal(instance_id)
        return detail_of(stored, [attempt_of(one) for one in attempts], [journal_of(one) for one in journal], last)

    async def _archived(self, instance_id: str, generation: int) -> StoredInstance:
        stored = await self._store.get(instance_id, generation)
        if stored is None:
            raise WorkflowNotFoundError(f"Generation {generation} of {instance_id!r} does not exist, or has been deleted.")
        return stored

    async def get_history(
        self, instance_id: str, *, generation: int | None = None, after: int = 0, limit: int = 200
    ) -> HistoryPage:
        """Return a page of the history of an instance, in order."""
        limit = page_limit(limit)
        row = (await self._client._require(instance_id)).row
        number = row.generation if generation is None else generation
        entries = await self._store.history(instance_id, number, after=after, limit=limit + 1)
        items = [history_of(entry) for entry in entries[:limit]]
        return HistoryPage(items, items[-1].seq if len(entries) > limit else None)

    async def get_timeline(self, instance_id: str, *, generation: int | None = None) -> Timeline:
        """Return the timeline of an instance."""
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
        return build_timeline(
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
        """Return the source code that the instance runs; None if it is not stored."""
        return await self._store.source((await self._client._require(instance_id)).row.code)

    async def explain(self, instance_id: str) -> Explanation:
        """Explain the status of an instance, and what will change it."""
        return explain(await self._facts(instance_id))

    async def _facts(self, instance_id: str) -> Facts:
        stored = await self._client._require(instance_id)
        row = stored.row
        attempts = await self._store.attempts(instance_id, row.generation)
        entries: Sequence[Entry] = ()
        if row.status in _COMPENSATED:
            entries = await self._store.history(instance_id, row.generation, after=0, limit=_DRAWN)
        code = find_activities([*(one.site for one in attempts), *(entry.site for entry in entries)])
        retry = self._client._options["default_retry"]
        return Facts(
            stored=stored,
            now=self._now(),
            lease=self._lease(),
            workers=await self._store.workers(),
            attempts=attempts,
            journal=await self._store.journal(instance_id),
            entries=entries,
            events=await self._events(stored),
            channels=await self._channel_facts(stored),
            most_attempts={
                one.op: (code[one.name].options.retry or retry).max_attempts for one in attempts if one.name in code
            },
            compensable=await self._compensable(row, code),
            usual_duration=await self._usual_duration(row.workflow) if row.owner is not None else None,
        )

    async def _compensable(self, row: InstanceRow, code: Mapping[str, AnyActivity]) -> frozenset[str]:
        """Return the activities that have a compensation. The code in this process decides, or else the descriptor."""
        descriptor = await self._descriptor(row.workflow, row.version)
        here = {name for name, activity in code.items() if activity.compensation_spec is not None}
        return frozenset(here | (descriptor.compensable - code.keys()))

    async def _events(self, stored: StoredInstance) -> dict[str, list[CandidateEvent]]:
        """Return the latest events of each type that an instance waits for."""
        kinds = {wait.key for wait in stored.waits if wait.kind is WaitKind.EVENT}
        found: dict[str, list[CandidateEvent]] = {}
        for kind in sorted(kinds):
            events = await self._store.last_events(kind, stored.row.instance_id, limit=_NEAR)
            found[kind] = [
                CandidateEvent(one.accepted_at, one.body, one.target, one.consumed, one.predates_instance) for one in events
            ]
        return found

    async def _channel_facts(self, stored: StoredInstance) -> dict[str, ChannelFacts]:
        """Return the state of each channel on which an instance waits for a message."""
        found: dict[str, ChannelFacts] = {}
        for name in sorted({wait.key for wait in stored.waits if wait.kind is WaitKind.MESSAGE}):
            state = await self._store.channel(name, most=_MOST)
            subscribed = await self._store.is_subscribed(name, stored.row.instance_id)
            found[name] = ChannelFacts(subscribed, state.mode, state.backlog, max(0, state.subscribers - subscribed))
        return found

    async def _usual_duration(self, workflow: str) -> float | None:
        minutes = await self._store.minutes(since=max(0, self._now() - charts.SHOWN * charts.MINUTE))
        return charts.quantile([one for one in minutes if one.workflow == workflow], 0.95)

    async def list_workflows(self) -> list[WorkflowSummary]:
        """Return the workflows that live workers have, or that have instances in flight or instances that ended recently."""
        now = self._now()
        versions: dict[str, set[str]] = {}
        for worker in await self._live_workers():
            for name, version in json.loads(worker.workflows):
                versions.setdefault(name, set()).add(version)
        here = {workflow.name: workflow for workflow in self._client._registry.all()}
        counts = await self._store.workflow_counts(most=_SAMPLE)
        minutes: dict[str, list[Minute]] = {}
        for minute in await self._store.minutes(since=max(0, now - charts.SHOWN * charts.MINUTE)):
            minutes.setdefault(minute.workflow, []).append(minute)
        return [
            WorkflowSummary(
                name=name,
                versions=tuple(sorted(versions.get(name, ()))),
                in_flight=Count(counts.workflows.get(name, 0), not counts.complete),
                completed=charts.ended(minutes.get(name, ()), Status.COMPLETED),
                failed=charts.ended(minutes.get(name, ()), Status.FAILED),
                p50=charts.quantile(minutes.get(name, ()), 0.5),
                p95=charts.quantile(minutes.get(name, ()), 0.95),
                points=charts.chart_points(minutes.get(name, ()), now=now),
                event_handler=name in here and here[name].event_handler,
                startable=name in here,
            )
            for name in sorted(versions.keys() | here.keys() | counts.workflows.keys() | minutes.keys())
        ]

    async def get_schema(self, workflow: str) -> dict[str, Any] | None:
        """Return the JSON Schema of a workflow's input; None if it is not known."""
        try:
            return input_schema(self._client.get_workflow(workflow))
        except WorkflowNotFoundError:
            versions = await self._live_versions(workflow)
            return (await self._descriptor(workflow, versions[-1])).schema if versions else None

    async def _live_versions(self, workflow: str) -> list[str]:
        return [
            version
            for worker in await self._live_workers()
            for name, version in json.loads(worker.workflows)
            if name == workflow
        ]

    async def _descriptor(self, workflow: str, version: str) -> WorkflowDescriptor:
        key = descriptor_key(workflow, version)
        return read_descriptor(None if key is None else await self._store.source(key))

    async def get_event_schema(self, instance_id: str, op: str) -> dict[str, Any] | None:
        """Return the JSON Schema of the data that a wait expects; None if the wait has no model, or if it is not known."""
        stored = await self._client._require(instance_id)
        sites = [wait.site for wait in stored.waits if wait.op == op]
        return model_schema(sites[0]) if sites else None

    async def list_workers(self) -> list[WorkerSummary]:
        """Return the worker processes."""
        rows = await self._store.workers()
        owned = await self._store.count_owned([row.id for row in rows], most=_MOST + 1)
        return [
            WorkerSummary(
                worker_id=row.id,
                service=row.service,
                host=row.hostname,
                pid=row.pid,
                python=row.python,
                started_at=to_datetime(row.started_at),
                beat_at=to_datetime(row.heartbeat_at),
                alive=self._is_alive(row),
                owned=_count(owned[row.id]),
                workflows=tuple(f"{name} ({version})" if version else name for name, version in json.loads(row.workflows)),
            )
            for row in rows
        ]

    def _is_alive(self, row: WorkerRow) -> bool:
        return self._now() - row.heartbeat_at <= self._lease() // 2

    async def _live_workers(self) -> list[WorkerRow]:
        return [row for row in await self._store.workers() if self._is_alive(row)]

    async def list_channels(self, *, after: str = "", limit: int = 50) -> ChannelPage:
        """Return the channels that have subscribers or pooled messages, by name."""
        found = await self._store.channels(after=after, limit=page_limit(limit) + 1, most=_MOST + 1)
        items = [
            ChannelSummary(one.name, one.mode, _count(one.subscribers), _count(one.backlog), _time(one.oldest_at))
            for one in found[:limit]
        ]
        return ChannelPage(items, items[-1].name if len(found) > limit else None)

    async def list_subscribers(self, channel: str, *, after: str = "", limit: int = 50) -> SubscriberPage:
        """Return the subscribers of a channel by instance id."""
        found = await self._store.subscribers(channel, after=after, limit=page_limit(limit) + 1, most=_MOST + 1)
        items = [
            Subscriber(one.instance_id, one.mode, to_datetime(one.since), _count(one.unread), one.waits)
            for one in found[:limit]
        ]
        return SubscriberPage(items, items[-1].instance_id if len(found) > limit else None)

    async def list_groups(self, *, after: str = "", limit: int = 50) -> GroupPage:
        """Return the groups by name."""
        found = await self._store.groups(after=after, limit=page_limit(limit) + 1, most=_MOST + 1)
        items = [GroupSummary(name, _count(members)) for name, members in found[:limit]]
        return GroupPage(items, items[-1].name if len(found) > limit else None)

    async def list_members(self, group: str, *, after: str = "", limit: int = 50) -> MemberPage:
        """Return the members of a group by instance id."""
        found = await self._store.page_of_members(group, after=after, limit=page_limit(limit) + 1)
        return MemberPage(found[:limit], found[limit - 1] if len(found) > limit else None)

    async def list_outbox(self, *, dead: bool | None = None, after: int = 0, limit: int = 50) -> OutboxPage:
        """Return the undelivered events and the dead letters, oldest first; with `dead`, only one of the two."""
        limit = page_limit(limit)
        found = await self._store.list_outbox(dead=dead, after=after, limit=limit + 1)
        items = [outbox_entry_of(row) for row in found[:limit]]
        return OutboxPage(items, items[-1].id if len(found) > limit else None)

    async def list_bulk_actions(self) -> list[BulkAction]:
        """Return the latest bulk actions, newest first."""
        return [to_bulk_action(row) for row in await self._store.bulk_actions(limit=_MAX_BULK_ACTIONS)]

    async def get_bulk_action(self, batch_id: str) -> BulkAction:
        """Return a bulk action. Raises `WorkflowNotFoundError`."""
        row = await self._store.bulk_action(batch_id)
        if row is None:
            raise WorkflowNotFoundError(f"There is no batch {batch_id!r} in this database.")
        return to_bulk_action(row)

    async def list_audit(self, *, instance_id: str | None = None, before: int | None = None, limit: int = 50) -> AuditPage:
        """Return the audit, newest first."""
        found = await self._store.audit(instance_id=instance_id, before=before, limit=page_limit(limit) + 1)
        items = [
            AuditEntry(one.number, to_datetime(one.at), one.actor, one.action, one.instance_id, one.detail)
            for one in found[:limit]
        ]
        return AuditPage(items, items[-1].number if len(found) > limit else None)

    async def doctor(self) -> list[Finding]:
        """Run every check, and return the findings with their remedies."""
        store = self._store
        try:
            examined = DoctorFacts(
                now=self._now(),
                lease=self._lease(),
                vitals=await store.vitals(),
                migrations=await store.migrations(),
                workers=await store.workers(),
                counts=await self._count_instances(),
                unclaimed_kinds=await store.kinds_waiting(),
                outbox_since=await store.outbox_lag(),
                options=self._client._options,
                visitors=self._client._visitors,
                count_limit=_MOST,
                concurrency_stall=self._client._concurrency_stall(),
            )
        except StoreError as error:
            return [Finding("database", "error", str(error), "See that the server runs and that its address is right.")]
        return run_checks(examined)

    # --- actions

    async def start(
        self, workflow: str, input: dict[str, Any], *, instance_id: str | None = None, actor: str = ""
    ) -> StartResult:
        """Start a workflow. Raises `InputError` (a `PayloadError`), which names the fields that are not valid."""
        try:
            known = self._client.get_workflow(workflow)
        except WorkflowNotFoundError:
            started = await self._start_by_name(workflow, input, instance_id)
        else:
            args, kwargs = read_input(known, input)
            handle = await self._client.start_workflow(known.with_options(instance_id=instance_id), *args, **kwargs)
            started = handle.instance_id
        await self._client._record_audit(actor, "start", [(started, workflow)])
        return StartResult(started)

    async def _start_by_name(self, workflow: str, input: dict[str, Any], instance_id: str | None) -> str:
        """Start a workflow that only other apps have. The input is checked by its descriptor, and again by the worker."""
        versions = await self._live_versions(workflow)
        if not versions:
            raise WorkflowNotFoundError(
                f"There is no workflow {workflow!r}: neither a running worker nor this process has it."
            )
        schema = (await self._descriptor(workflow, versions[-1])).schema
        create = self._client._creation_by_name(workflow, (), bind_input(workflow, schema, input), self._now())
        create = create._replace(instance_id=instance_id or create.instance_id, version=versions[-1])
        answer = await self._client._require_committer().submit(create)
        if isinstance(answer, Existing):
            check_same_start(
                create, answer, None, hidden=self._client._hides_payloads, filled=partial(with_defaults, schema)
            )
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
    ) -> SendResult:
        """Send an event, only to the instance `to` if it is given."""
        extensions = {} if to is None else {TARGET: to}
        accepted = await self._client.send_event(type, source, data, subject=subject, extensions=extensions)
        await self._client._record_audit(actor, "send_event", [(to, f"{type} {accepted.id}")])
        return SendResult(accepted.instance_ids, accepted.duplicate)

    async def publish(self, channel: str, data: Any, *, to: str | None = None, actor: str = "") -> SendResult:
        """Publish a message to a channel, or send it only to the instance `to`."""
        if to is None:
            message = await self._client.publish(channel, data)
        else:
            message = await self._client.send_to(to, channel, data)
        await self._client._record_audit(actor, "publish", [(to, f"{channel} {message}")])
        return SendResult(() if to is None else (to,))

    async def preview(self, action: ActionKind, instance_id: str) -> Preview:
        """Return the effects that an action would have on an instance."""
        stored = await self._client._require(instance_id)
        row = stored.row
        if action not in allowed_actions(row):
            return Preview(action, instance_id, (f"is refused, because the instance is {row.status.value}",))
        entries = await self._store.history(instance_id, row.generation, after=0, limit=_DRAWN)
        compensable = await self._compensable(row, find_activities(entry.site for entry in entries))
        return Preview(action, instance_id, tuple(_effects(action, stored, entries, compensable)))

    async def apply(
        self, action: ActionKind, ids: Sequence[str], *, reason: str | None = None, actor: str = ""
    ) -> list[ActionResult]:
        """Apply an action to each of the instances; return one result for each."""
        done = list(await asyncio.gather(*(self._apply_to_one(action, one, reason, actor) for one in ids)))
        lines = [(one.instance_id, (reason or "") if one.ok else f"refused: {one.error}") for one in done]
        await self._client._record_audit(actor, action.value, lines)
        return done

    async def _apply_to_one(self, action: ActionKind, instance_id: str, reason: str | None, actor: str) -> ActionResult:
        try:
            await self._client._submit_request(instance_id, ControlKind(action), reason, actor)
        except StoreError:
            raise
        except RomancyError as error:
            return ActionResult(instance_id, False, str(error), type(error).__name__)
        return ActionResult(instance_id, True)

    async def start_bulk_action(
        self, action: ActionKind, filter: str, *, reason: str | None = None, actor: str = ""
    ) -> BulkAction:
        """Begin to apply an action to every instance that matches a filter: an app does it in the background."""
        now = self._now()
        wanted = parse(filter, now=now)
        if not wanted.text:
            raise ConfigurationError("A batch needs a filter. For all instances that have not ended, use status:live.")
        batch = BulkActionRow(self._client._ids.instance_id(now), action.value, wanted.text, reason, actor, "running", now)
        await self._store.add_bulk_action(batch)
        await self._client._record_audit(actor, f"start_batch:{action.value}", [(None, f"{batch.id} {wanted.text}")])
        self._client._on_bulk_action_added()
        return to_bulk_action(batch)

    async def abort_bulk_action(self, batch_id: str, *, actor: str = "") -> BulkAction:
        """Abort a bulk action. What it has already done is not reverted."""
        await self.get_bulk_action(batch_id)
        if await self._store.abort_bulk_action(batch_id, now=self._now()):
            await self._client._record_audit(actor, "abort_batch", [(None, batch_id)])
        return await self.get_bulk_action(batch_id)

    def bulk_action_runner(self, claimant: str, *, every: float = 2.0) -> BulkActionRunner:
        """Return a runner that applies bulk actions in this process; it polls every `every` seconds."""

        async def apply(action: ActionKind, ids: Sequence[str], reason: str | None, actor: str) -> list[ActionResult]:
            return await self.apply(action, ids, reason=reason, actor=actor)

        return BulkActionRunner(lambda: self._store, self._client._clock, apply, claimant, every)

    async def requeue_outbox(self, ids: Sequence[int] | None = None, *, actor: str = "") -> int:
        """Requeue dead letters, all of them without `ids`; return how many."""
        done = await self._client.requeue_outbox(ids)
        await self._client._record_audit(actor, "requeue_outbox", [(None, "1 event" if done == 1 else f"{done} events")])
        return done

    async def prune(self, *, older_than: float, actor: str = "") -> int:
        """Delete the instances that ended more than `older_than` seconds ago; return how many."""
        if not 0 <= older_than < 1e10:
            raise ConfigurationError(f"older_than={older_than!r} is not valid: give a number of seconds, 0 or more.")
        if (now := await self._store.verified_time()) is None:
            jumped = StoreError(
                "Nothing was deleted: the clock of this machine has jumped within the last hour, so the age of instances "
                "is uncertain. Check the date of this machine, and prune again in an hour."
            )
            jumped.retryable = True
            raise jumped
        before, deleted = now - round(older_than * MICROS), 0
        while done := await self._store.prune_instances(ended_before=before, limit=_PRUNE):
            deleted += done
        await self._client._record_audit(
            actor,
            "prune",
            [(None, f"{deleted} instance{'' if deleted == 1 else 's'} that ended {older_than:g} s ago or earlier")],
        )
        return deleted


def _attention_items(counts: InstanceCounts, workers: Sequence[WorkerSummary]) -> list[AttentionItem]:
    """Return the items that need attention, each with the filter that finds it."""
    silent = [worker for worker in workers if not worker.alive]
    everything = [
        AttentionItem("failed", _count(counts.statuses[Status.FAILED]), "status:failed newer:24h"),
        AttentionItem("retrying", _count(counts.retrying), "retrying"),
        AttentionItem("overdue", _count(counts.overdue), "overdue"),
        AttentionItem("compensating", _count(counts.statuses[Status.COMPENSATING]), "status:compensating"),
        AttentionItem("dead_letters", _count(counts.dead_letters), ""),
        AttentionItem("unclaimable", _count(counts.statuses[Status.BLOCKED]), "status:blocked"),
        AttentionItem(
            "silent_workers", Count(len(silent)), " ".join(f"worker:{quoted(one.worker_id)}" for one in silent[:10])
        ),
    ]
    return [one for one in everything if one.count.value]


def _effects(
    action: ActionKind, stored: StoredInstance, entries: Sequence[Entry], compensable: frozenset[str]
) -> Iterable[str]:
    """Yield the effects of an action on an instance, each as one line."""
    pending = pending_compensations(entries, compensable)
    match action:
        case ActionKind.CANCEL:
            yield "raises CancelledError in the workflow, whose finally blocks run"
            yield from [f"ends the wait for {wait.key or wait.op}" for wait in stored.waits]
            yield from [f"compensates {entry.name or 'a registered compensation'} ({entry.op})" for entry in pending]
        case ActionKind.TERMINATE:
            yield "ends the instance at once, without running any more of its code"
            yield from [f"does not compensate {entry.name or 'a registered compensation'} ({entry.op})" for entry in pending]
        case ActionKind.RETRY:
            failed = [entry for entry in entries if entry.outcome == "error" and entry.role == 0]
            yield f"continues from {failed[-1].op}" if failed else "continues from the point of failure"
            compensated = [entry.op.removeprefix("compensate:") for entry in entries if entry.kind == "compensation"]
            yield from [f"runs {op} again, because it was compensated" for op in dict.fromkeys(compensated)]
        case ActionKind.PAUSE:
            yield "lets running attempts finish, and starts nothing new until the instance is resumed"
        case ActionKind.RESUME:
            yield "continues the instance from where it was"


def _count(value: int) -> Count:
    return Count(min(value, _MOST), value > _MOST)


def _time(micros: int | None) -> Any:
    return None if micros is None else to_datetime(micros)
