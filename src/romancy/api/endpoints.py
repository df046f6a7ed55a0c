"""The table of all endpoints, from which the routes, the OpenAPI document and the access rules are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from romancy.admin import records
from romancy.admin.port import Manager
from romancy.api import requests, responses
from romancy.http.access import Need, Needs

BASE = "/api/v1"

Q = TypeVar("Q", bound=requests.RequestModel)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Q]):
    """One endpoint: its method and path, its request and response, and its handler."""

    method: str
    path: str
    """Below `BASE`."""
    summary: str
    """The summary in the OpenAPI document: one sentence."""
    request_model: type[Q]
    response_type: Any
    """The type of the response."""
    handler: Callable[[Manager, Q, str], Awaitable[Any]]
    """Called with the manager, the validated request and the name of the caller, which the audit records."""
    need: Need
    refusals: tuple[int, ...] = ()
    """The error statuses that not all endpoints have in common."""

    @property
    def name(self) -> str:
        """A unique name: the `operationId` in the OpenAPI document."""
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
    """Return an endpoint that only reads."""
    return Endpoint(
        "GET",
        path,
        summary,
        request_model,
        response_type,
        lambda manager, params, _: handler(manager, params),
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
    """Return an endpoint that takes a body."""
    return Endpoint("POST", path, summary, request_model, response_type, handler, need, refusals)


def needs() -> Needs:
    """Return the access that each path needs."""
    found: dict[tuple[str, str], Need] = {}
    for endpoint in ENDPOINTS:
        methods = ("GET", "HEAD") if endpoint.method == "GET" else (endpoint.method,)
        found |= {(method, BASE + endpoint.path): endpoint.need for method in methods}
    return found


# --- handlers that wrap a list or a value


async def _workflows(manager: Manager, _: requests.RequestModel) -> responses.WorkflowsResponse:
    return responses.WorkflowsResponse(await manager.list_workflows())


async def _workers(manager: Manager, _: requests.RequestModel) -> responses.WorkersResponse:
    return responses.WorkersResponse(await manager.list_workers())


async def _batches(manager: Manager, _: requests.RequestModel) -> responses.BulkActionsResponse:
    return responses.BulkActionsResponse(await manager.list_bulk_actions())


async def _doctor(manager: Manager, _: requests.RequestModel) -> responses.FindingsResponse:
    return responses.FindingsResponse(await manager.doctor())


async def _source(manager: Manager, params: requests.InstanceParams) -> responses.SourceResponse:
    return responses.SourceResponse(await manager.get_source(params.id))


async def _schema(manager: Manager, params: requests.NameParams) -> responses.SchemaResponse:
    return responses.SchemaResponse(await manager.get_schema(params.name))


async def _event_schema(manager: Manager, params: requests.WaitParams) -> responses.SchemaResponse:
    return responses.SchemaResponse(await manager.get_event_schema(params.id, params.op))


async def _apply(manager: Manager, body: requests.ApplyAction, actor: str) -> responses.ActionsResponse:
    return responses.ActionsResponse(await manager.apply(body.action, body.ids, reason=body.reason, actor=actor))


async def _requeue(manager: Manager, body: requests.RequeueOutbox, actor: str) -> responses.CountResponse:
    return responses.CountResponse(await manager.requeue_outbox(body.ids, actor=actor))


async def _prune(manager: Manager, body: requests.PruneInstances, actor: str) -> responses.CountResponse:
    return responses.CountResponse(await manager.prune(older_than=body.older_than, actor=actor))


ENDPOINTS: tuple[Endpoint[Any], ...] = (
    get_endpoint(
        "/overview",
        "Get counts, rates and workers, with the items that need attention.",
        requests.RequestModel,
        records.Overview,
        lambda manager, _: manager.overview(),
    ),
    get_endpoint(
        "/instances",
        "List the instances that match a filter, newest first.",
        requests.ListInstancesParams,
        records.InstancePage,
        lambda manager, q: manager.list_instances(q.filter, limit=q.limit, page_token=q.page_token),
    ),
    get_endpoint(
        "/instance",
        "Get one instance.",
        requests.GenerationParams,
        records.InstanceDetail,
        lambda manager, q: manager.get_instance(q.id, generation=q.generation),
        404,
    ),
    get_endpoint(
        "/instance/history",
        "List the history of an instance, in order.",
        requests.HistoryParams,
        records.HistoryPage,
        lambda manager, q: manager.get_history(q.id, generation=q.generation, after=q.after, limit=q.limit),
        404,
    ),
    get_endpoint(
        "/instance/timeline",
        "Get the history of an instance as spans of time.",
        requests.GenerationParams,
        records.Timeline,
        lambda manager, q: manager.get_timeline(q.id, generation=q.generation),
        404,
    ),
    get_endpoint(
        "/instance/explain",
        "Explain why an instance is in its present state, with remedies.",
        requests.InstanceParams,
        records.Explanation,
        lambda manager, q: manager.explain(q.id),
        404,
    ),
    get_endpoint(
        "/instance/source",
        "Get the source code of the workflow, as the instance ran it.",
        requests.InstanceParams,
        responses.SourceResponse,
        _source,
        404,
    ),
    get_endpoint(
        "/instance/event-schema",
        "Get the JSON Schema of the data that a wait expects.",
        requests.WaitParams,
        responses.SchemaResponse,
        _event_schema,
        404,
    ),
    get_endpoint(
        "/workflows", "List the workflows, with statistics.", requests.RequestModel, responses.WorkflowsResponse, _workflows
    ),
    get_endpoint(
        "/workflow/schema",
        "Get the JSON Schema of a workflow's input.",
        requests.NameParams,
        responses.SchemaResponse,
        _schema,
        404,
    ),
    get_endpoint("/workers", "List the workers.", requests.RequestModel, responses.WorkersResponse, _workers),
    get_endpoint(
        "/channels",
        "List the channels, by name.",
        requests.ListNamesParams,
        records.ChannelPage,
        lambda manager, q: manager.list_channels(after=q.after, limit=q.limit),
    ),
    get_endpoint(
        "/channel/subscribers",
        "List the subscribers of a channel.",
        requests.ListMembersParams,
        records.SubscriberPage,
        lambda manager, q: manager.list_subscribers(q.name, after=q.after, limit=q.limit),
    ),
    get_endpoint(
        "/groups",
        "List the groups, by name.",
        requests.ListNamesParams,
        records.GroupPage,
        lambda manager, q: manager.list_groups(after=q.after, limit=q.limit),
    ),
    get_endpoint(
        "/group/members",
        "List the members of a group.",
        requests.ListMembersParams,
        records.MemberPage,
        lambda manager, q: manager.list_members(q.name, after=q.after, limit=q.limit),
    ),
    get_endpoint(
        "/outbox",
        "List the events in the outbox: pending events and dead letters.",
        requests.OutboxParams,
        records.OutboxPage,
        lambda manager, q: manager.list_outbox(dead=q.dead, after=q.after, limit=q.limit),
    ),
    get_endpoint(
        "/batches", "List the latest batches, newest first.", requests.RequestModel, responses.BulkActionsResponse, _batches
    ),
    get_endpoint(
        "/batch",
        "Get one batch.",
        requests.BulkActionParams,
        records.BulkAction,
        lambda manager, q: manager.get_bulk_action(q.id),
        404,
    ),
    get_endpoint(
        "/audit",
        "List the actions of operators, newest first.",
        requests.AuditParams,
        records.AuditPage,
        lambda manager, q: manager.list_audit(instance_id=q.id, before=q.before, limit=q.limit),
    ),
    get_endpoint(
        "/doctor",
        "Check the database, the workers and the instances, and list the results with remedies.",
        requests.RequestModel,
        responses.FindingsResponse,
        _doctor,
    ),
    post_endpoint(
        "/workflows/start",
        "Start a workflow.",
        requests.StartWorkflow,
        records.StartResult,
        lambda manager, q, actor: manager.start(q.workflow, q.input, instance_id=q.instance_id, actor=actor),
        404,
        409,
    ),
    post_endpoint(
        "/events",
        "Send an event to one instance, or to all instances that wait for it.",
        requests.SubmitEvent,
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
        requests.SubmitMessage,
        records.SendResult,
        lambda manager, q, actor: manager.publish(q.channel, q.data, to=q.to, actor=actor),
        404,
        409,
    ),
    post_endpoint(
        "/preview",
        "Preview the effects of an action, without applying it.",
        requests.PreviewAction,
        records.Preview,
        lambda manager, q, _: manager.preview(q.action, q.id),
        404,
        409,
        need=Need.READ,
    ),
    post_endpoint(
        "/instances/do",
        "Apply an action to instances, each separately.",
        requests.ApplyAction,
        responses.ActionsResponse,
        _apply,
    ),
    post_endpoint(
        "/batches/start",
        "Start a batch: apply an action to all instances that match a filter, in the background.",
        requests.StartBulkAction,
        records.BulkAction,
        lambda manager, q, actor: manager.start_bulk_action(q.action, q.filter, reason=q.reason, actor=actor),
        409,
    ),
    post_endpoint(
        "/batches/abort",
        "Abort a batch; actions that were already applied are not reverted.",
        requests.AbortBulkAction,
        records.BulkAction,
        lambda manager, q, actor: manager.abort_bulk_action(q.id, actor=actor),
        404,
        409,
    ),
    post_endpoint(
        "/outbox/requeue",
        "Requeue dead letters, so that they are sent again.",
        requests.RequeueOutbox,
        responses.CountResponse,
        _requeue,
    ),
    post_endpoint(
        "/prune",
        "Delete the instances that ended at least a given time ago.",
        requests.PruneInstances,
        responses.CountResponse,
        _prune,
    ),
)
