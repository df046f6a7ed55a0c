"""Every path of the API, once: its routes, its OpenAPI document and who may call it are read from here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from romancy.admin import records
from romancy.admin.port import Manager
from romancy.api import requests as ask
from romancy.api import responses
from romancy.http.access import Need, Needs

BASE = "/api/v1"

Q = TypeVar("Q", bound=ask.RequestModel)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Q]):
    """One path: what is asked there, and what is answered."""

    method: str
    path: str
    """Below `BASE`."""
    summary: str
    """What it is for, in a sentence."""
    request_model: type[Q]
    response_type: Any
    """The type of the answer."""
    handler: Callable[[Manager, Q, str], Awaitable[Any]]
    """Gets the manager, the question, and who asks."""
    need: Need
    refusals: tuple[int, ...] = ()
    """Statuses that only some paths have."""

    @property
    def name(self) -> str:
        """Tells it from the others."""
        words = self.path.strip("/").replace("/", "_")
        return f"{'get' if self.method == 'GET' else 'post'}_{words}"


def get_endpoint(
    path: str,
    summary: str,
    request_model: type[Q],
    response_type: Any,
    handler: Callable[[Manager, Q], Awaitable[Any]],
    *refusals: int,
) -> Endpoint[Q]:
    """A path that changes nothing."""
    return Endpoint(
        "GET",
        path,
        summary,
        request_model,
        response_type,
        lambda manager, asked, _: handler(manager, asked),
        Need.READ,
        refusals,
    )


def post_endpoint(
    path: str,
    summary: str,
    request_model: type[Q],
    response_type: Any,
    handler: Callable[[Manager, Q, str], Awaitable[Any]],
    *refusals: int,
    need: Need = Need.ADMIN,
) -> Endpoint[Q]:
    """A path that changes something."""
    return Endpoint("POST", path, summary, request_model, response_type, handler, need, refusals)


def needs() -> Needs:
    """What each path needs of whoever calls."""
    found: dict[tuple[str, str], Need] = {}
    for endpoint in ENDPOINTS:
        methods = ("GET", "HEAD") if endpoint.method == "GET" else (endpoint.method,)
        found |= {(method, BASE + endpoint.path): endpoint.need for method in methods}
    return found


# --- answers that need a shape


async def _workflows(manager: Manager, _: ask.RequestModel) -> responses.WorkflowsResponse:
    return responses.WorkflowsResponse(await manager.list_workflows())


async def _workers(manager: Manager, _: ask.RequestModel) -> responses.WorkersResponse:
    return responses.WorkersResponse(await manager.list_workers())


async def _batches(manager: Manager, _: ask.RequestModel) -> responses.BulkActionsResponse:
    return responses.BulkActionsResponse(await manager.list_bulk_actions())


async def _doctor(manager: Manager, _: ask.RequestModel) -> responses.FindingsResponse:
    return responses.FindingsResponse(await manager.doctor())


async def _source(manager: Manager, params: ask.InstanceParams) -> responses.SourceResponse:
    return responses.SourceResponse(await manager.get_source(params.id))


async def _schema(manager: Manager, params: ask.NameParams) -> responses.SchemaResponse:
    return responses.SchemaResponse(await manager.get_schema(params.name))


async def _event_schema(manager: Manager, params: ask.WaitParams) -> responses.SchemaResponse:
    return responses.SchemaResponse(await manager.get_event_schema(params.id, params.op))


async def _apply(manager: Manager, body: ask.ApplyAction, actor: str) -> responses.ActionsResponse:
    return responses.ActionsResponse(await manager.apply(body.action, body.ids, reason=body.reason, actor=actor))


async def _requeue(manager: Manager, body: ask.RequeueOutbox, actor: str) -> responses.CountResponse:
    return responses.CountResponse(await manager.requeue_outbox(body.ids, actor=actor))


async def _prune(manager: Manager, body: ask.PruneInstances, actor: str) -> responses.CountResponse:
    return responses.CountResponse(await manager.prune(older_than=body.older_than, actor=actor))


ENDPOINTS: tuple[Endpoint[Any], ...] = (
    get_endpoint(
        "/overview",
        "What needs attention, with current rates.",
        ask.RequestModel,
        records.Overview,
        lambda manager, _: manager.overview(),
    ),
    get_endpoint(
        "/instances",
        "Instances that match a filter, newest first.",
        ask.ListInstancesParams,
        records.InstancePage,
        lambda manager, q: manager.list_instances(q.filter, limit=q.limit, page_token=q.page_token),
    ),
    get_endpoint(
        "/instance",
        "One instance.",
        ask.GenerationParams,
        records.InstanceDetail,
        lambda manager, q: manager.get_instance(q.id, generation=q.generation),
        404,
    ),
    get_endpoint(
        "/instance/history",
        "The history of an instance, in order.",
        ask.HistoryParams,
        records.HistoryPage,
        lambda manager, q: manager.get_history(q.id, generation=q.generation, after=q.after, limit=q.limit),
        404,
    ),
    get_endpoint(
        "/instance/timeline",
        "The timeline of an instance.",
        ask.GenerationParams,
        records.Timeline,
        lambda manager, q: manager.get_timeline(q.id, generation=q.generation),
        404,
    ),
    get_endpoint(
        "/instance/explain",
        "An explanation of the status of an instance, with remedies.",
        ask.InstanceParams,
        records.Explanation,
        lambda manager, q: manager.explain(q.id),
        404,
    ),
    get_endpoint(
        "/instance/source",
        "The source code of the workflow with which an instance was started.",
        ask.InstanceParams,
        responses.SourceResponse,
        _source,
        404,
    ),
    get_endpoint(
        "/instance/event-schema",
        "The JSON Schema of the data that a wait expects.",
        ask.WaitParams,
        responses.SchemaResponse,
        _event_schema,
        404,
    ),
    get_endpoint("/workflows", "Workflows, with statistics.", ask.RequestModel, responses.WorkflowsResponse, _workflows),
    get_endpoint(
        "/workflow/schema", "The JSON Schema of a workflow's input.", ask.NameParams, responses.SchemaResponse, _schema, 404
    ),
    get_endpoint("/workers", "Worker processes.", ask.RequestModel, responses.WorkersResponse, _workers),
    get_endpoint(
        "/channels",
        "Channels by name.",
        ask.ListNamesParams,
        records.ChannelPage,
        lambda manager, q: manager.list_channels(after=q.after, limit=q.limit),
    ),
    get_endpoint(
        "/channel/subscribers",
        "Subscribers of a channel.",
        ask.ListMembersParams,
        records.SubscriberPage,
        lambda manager, q: manager.list_subscribers(q.name, after=q.after, limit=q.limit),
    ),
    get_endpoint(
        "/groups",
        "Groups by name.",
        ask.ListNamesParams,
        records.GroupPage,
        lambda manager, q: manager.list_groups(after=q.after, limit=q.limit),
    ),
    get_endpoint(
        "/group/members",
        "Members of a group.",
        ask.ListMembersParams,
        records.MemberPage,
        lambda manager, q: manager.list_members(q.name, after=q.after, limit=q.limit),
    ),
    get_endpoint(
        "/outbox",
        "Events in the outbox: pending events and dead letters.",
        ask.OutboxParams,
        records.OutboxPage,
        lambda manager, q: manager.list_outbox(dead=q.dead, after=q.after, limit=q.limit),
    ),
    get_endpoint("/batches", "The latest batches, newest first.", ask.RequestModel, responses.BulkActionsResponse, _batches),
    get_endpoint(
        "/batch",
        "One batch.",
        ask.BulkActionParams,
        records.BulkAction,
        lambda manager, q: manager.get_bulk_action(q.id),
        404,
    ),
    get_endpoint(
        "/audit",
        "Actions by operators, newest first.",
        ask.AuditParams,
        records.AuditPage,
        lambda manager, q: manager.list_audit(instance_id=q.id, before=q.before, limit=q.limit),
    ),
    get_endpoint(
        "/doctor",
        "Checks of the database, workers and instances, with remedies.",
        ask.RequestModel,
        responses.FindingsResponse,
        _doctor,
    ),
    post_endpoint(
        "/workflows/start",
        "Start a workflow.",
        ask.StartWorkflow,
        records.StartResult,
        lambda manager, q, actor: manager.start(q.workflow, q.input, instance_id=q.instance_id, actor=actor),
        404,
        409,
    ),
    post_endpoint(
        "/events",
        "Send an event to one instance, or to all that are waiting for it.",
        ask.SubmitEvent,
        records.SendResult,
        lambda manager, q, actor: manager.send_event(
            q.type, q.data, source=q.source, subject=q.subject, to=q.to, actor=actor
        ),
        404,
        409,
        need=Need.EVENTS,
    ),
    post_endpoint(
        "/messages",
        "Publish a message, or send it to one instance.",
        ask.SubmitMessage,
        records.SendResult,
        lambda manager, q, actor: manager.publish(q.channel, q.data, to=q.to, actor=actor),
        404,
        409,
    ),
    post_endpoint(
        "/preview",
        "Preview the effects of an action, without applying it.",
        ask.PreviewAction,
        records.Preview,
        lambda manager, q, _: manager.preview(q.action, q.id),
        404,
        409,
        need=Need.READ,
    ),
    post_endpoint(
        "/instances/do", "Apply an action to instances, each separately.", ask.ApplyAction, responses.ActionsResponse, _apply
    ),
    post_endpoint(
        "/batches/start",
        "Start a batch: apply an action to all instances that match a filter, in the background.",
        ask.StartBulkAction,
        records.BulkAction,
        lambda manager, q, actor: manager.start_bulk_action(q.action, q.filter, reason=q.reason, actor=actor),
        409,
    ),
    post_endpoint(
        "/batches/abort",
        "Abort a batch; finished actions are not reverted.",
        ask.AbortBulkAction,
        records.BulkAction,
        lambda manager, q, actor: manager.abort_bulk_action(q.id, actor=actor),
        404,
        409,
    ),
    post_endpoint("/outbox/requeue", "Requeue dead letters.", ask.RequeueOutbox, responses.CountResponse, _requeue),
    post_endpoint(
        "/prune", "Delete instances that ended some time ago.", ask.PruneInstances, responses.CountResponse, _prune
    ),
)
