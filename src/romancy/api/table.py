"""Every path of the API, once: its routes, its OpenAPI document and who may call it are read from here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from romancy.api import questions as ask
from romancy.api import shapes
from romancy.ingress.access import Need, Needs
from romancy.manage import records
from romancy.manage.port import Manager

BASE = "/api/v1"

Q = TypeVar("Q", bound=ask.Question)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Q]):
    """One path: what is asked there, and what is answered."""

    method: str
    path: str
    """Below `BASE`."""
    says: str
    """What it is for, in a sentence."""
    question: type[Q]
    answer: Any
    """The type of the answer."""
    call: Callable[[Manager, Q, str], Awaitable[Any]]
    """Gets the manager, the question, and who asks."""
    need: Need
    refusals: tuple[int, ...] = ()
    """Statuses that only some paths have."""

    @property
    def name(self) -> str:
        """Tells it from the others."""
        words = self.path.strip("/").replace("/", "_")
        return f"{'get' if self.method == 'GET' else 'post'}_{words}"


def look(
    path: str,
    says: str,
    question: type[Q],
    answer: Any,
    call: Callable[[Manager, Q], Awaitable[Any]],
    *refusals: int,
) -> Endpoint[Q]:
    """A path that changes nothing."""
    return Endpoint("GET", path, says, question, answer, lambda manager, asked, _: call(manager, asked), Need.READ, refusals)


def do(
    path: str,
    says: str,
    question: type[Q],
    answer: Any,
    call: Callable[[Manager, Q, str], Awaitable[Any]],
    *refusals: int,
    need: Need = Need.ADMIN,
) -> Endpoint[Q]:
    """A path that changes something."""
    return Endpoint("POST", path, says, question, answer, call, need, refusals)


def needs() -> Needs:
    """What each path needs of whoever calls."""
    found: dict[tuple[str, str], Need] = {}
    for endpoint in ENDPOINTS:
        methods = ("GET", "HEAD") if endpoint.method == "GET" else (endpoint.method,)
        found |= {(method, BASE + endpoint.path): endpoint.need for method in methods}
    return found


# --- answers that need a shape


async def _workflows(manager: Manager, _: ask.Question) -> shapes.Workflows:
    return shapes.Workflows(await manager.list_workflows())


async def _workers(manager: Manager, _: ask.Question) -> shapes.Workers:
    return shapes.Workers(await manager.list_workers())


async def _batches(manager: Manager, _: ask.Question) -> shapes.Batches:
    return shapes.Batches(await manager.list_batches())


async def _doctor(manager: Manager, _: ask.Question) -> shapes.Findings:
    return shapes.Findings(await manager.doctor())


async def _source(manager: Manager, asked: ask.OneInstance) -> shapes.Source:
    return shapes.Source(await manager.get_source(asked.id))


async def _schema(manager: Manager, asked: ask.OneName) -> shapes.Schema:
    return shapes.Schema(await manager.get_schema(asked.name))


async def _event_schema(manager: Manager, asked: ask.OneWait) -> shapes.Schema:
    return shapes.Schema(await manager.get_event_schema(asked.id, asked.op))


async def _do(manager: Manager, asked: ask.ToBeDone, actor: str) -> shapes.Deeds:
    return shapes.Deeds(await manager.do(asked.deed, asked.ids, reason=asked.reason, actor=actor))


async def _requeue(manager: Manager, asked: ask.Requeue, actor: str) -> shapes.Counted:
    return shapes.Counted(await manager.requeue_outbox(asked.ids, actor=actor))


async def _prune(manager: Manager, asked: ask.Prune, actor: str) -> shapes.Counted:
    return shapes.Counted(await manager.prune(older_than=asked.older_than, actor=actor))


ENDPOINTS: tuple[Endpoint[Any], ...] = (
    look(
        "/overview",
        "What needs attention, and how things go.",
        ask.Question,
        records.Overview,
        lambda manager, _: manager.overview(),
    ),
    look(
        "/instances",
        "Instances that fit a filter, newest first.",
        ask.Instances,
        records.InstancePage,
        lambda manager, q: manager.list_instances(q.filter, limit=q.limit, page_token=q.page_token),
    ),
    look(
        "/instance",
        "One instance.",
        ask.OneGeneration,
        records.InstanceDetail,
        lambda manager, q: manager.get_instance(q.id, generation=q.generation),
        404,
    ),
    look(
        "/instance/history",
        "What happened in an instance, in order.",
        ask.History,
        records.HistoryPage,
        lambda manager, q: manager.get_history(q.id, generation=q.generation, after=q.after, limit=q.limit),
        404,
    ),
    look(
        "/instance/timeline",
        "What happened in an instance, as stretches of time.",
        ask.OneGeneration,
        records.Timeline,
        lambda manager, q: manager.get_timeline(q.id, generation=q.generation),
        404,
    ),
    look(
        "/instance/explain",
        "Why an instance stands where it stands, and what will move it.",
        ask.OneInstance,
        records.Explanation,
        lambda manager, q: manager.explain(q.id),
        404,
    ),
    look("/instance/source", "The source of its workflow, as it ran it.", ask.OneInstance, shapes.Source, _source, 404),
    look(
        "/instance/event-schema",
        "The JSON Schema of the data that a wait expects.",
        ask.OneWait,
        shapes.Schema,
        _event_schema,
        404,
    ),
    look("/workflows", "Workflows, and how they fare.", ask.Question, shapes.Workflows, _workflows),
    look("/workflow/schema", "The JSON Schema of a workflow's input.", ask.OneName, shapes.Schema, _schema, 404),
    look("/workers", "Worker processes.", ask.Question, shapes.Workers, _workers),
    look(
        "/channels",
        "Channels by name.",
        ask.Names,
        records.ChannelPage,
        lambda manager, q: manager.list_channels(after=q.after, limit=q.limit),
    ),
    look(
        "/channel/subscribers",
        "Who has subscribed to a channel.",
        ask.NamesIn,
        records.SubscriberPage,
        lambda manager, q: manager.list_subscribers(q.name, after=q.after, limit=q.limit),
    ),
    look(
        "/groups",
        "Groups by name.",
        ask.Names,
        records.GroupPage,
        lambda manager, q: manager.list_groups(after=q.after, limit=q.limit),
    ),
    look(
        "/group/members",
        "Who is in a group.",
        ask.NamesIn,
        records.MemberPage,
        lambda manager, q: manager.list_members(q.name, after=q.after, limit=q.limit),
    ),
    look(
        "/outbox",
        "Events on their way to brokers, and those given up.",
        ask.Outbox,
        records.OutboxPage,
        lambda manager, q: manager.list_outbox(dead=q.dead, after=q.after, limit=q.limit),
    ),
    look("/batches", "The last batches, newest first.", ask.Question, shapes.Batches, _batches),
    look("/batch", "One batch.", ask.OneBatch, records.Batch, lambda manager, q: manager.get_batch(q.id), 404),
    look(
        "/audit",
        "Who did what, newest first.",
        ask.Audit,
        records.AuditPage,
        lambda manager, q: manager.list_audit(instance_id=q.id, before=q.before, limit=q.limit),
    ),
    look("/doctor", "Everything that can be checked, and what to do about it.", ask.Question, shapes.Findings, _doctor),
    do(
        "/workflows/start",
        "Start a workflow.",
        ask.Start,
        records.Started,
        lambda manager, q, actor: manager.start(q.workflow, q.input, instance_id=q.instance_id, actor=actor),
        404,
        409,
    ),
    do(
        "/events",
        "Send an event, to one instance or to all that wait for it.",
        ask.Event,
        records.Sent,
        lambda manager, q, actor: manager.send_event(
            q.type, q.data, source=q.source, subject=q.subject, to=q.to, actor=actor
        ),
        404,
        409,
        need=Need.EVENTS,
    ),
    do(
        "/messages",
        "Publish a message, or send it to one instance.",
        ask.Message,
        records.Sent,
        lambda manager, q, actor: manager.publish(q.channel, q.data, to=q.to, actor=actor),
        404,
        409,
    ),
    do(
        "/preview",
        "What a deed would do. Changes nothing.",
        ask.Considered,
        records.Preview,
        lambda manager, q, _: manager.preview(q.deed, q.id),
        404,
        409,
        need=Need.READ,
    ),
    do("/instances/do", "Do something to instances, each by itself.", ask.ToBeDone, shapes.Deeds, _do),
    do(
        "/batches/start",
        "Do something to all instances that fit a filter; it goes on when you leave.",
        ask.NewBatch,
        records.Batch,
        lambda manager, q, actor: manager.start_batch(q.deed, q.filter, reason=q.reason, actor=actor),
        409,
    ),
    do(
        "/batches/abort",
        "Stop a batch; what is done is done.",
        ask.ThatBatch,
        records.Batch,
        lambda manager, q, actor: manager.abort_batch(q.id, actor=actor),
        404,
        409,
    ),
    do("/outbox/requeue", "Let dead letters be sent again.", ask.Requeue, shapes.Counted, _requeue),
    do("/prune", "Delete instances that have ended.", ask.Prune, shapes.Counted, _prune),
)
