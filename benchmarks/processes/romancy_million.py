"""Times the calls and pages of operators with very many instances."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Any
from urllib.parse import urlencode

from benchmarks.million_rows import WORKFLOWS, SeedRows, fill_postgres, fill_sqlite, instance_id, workflow_name
from benchmarks.processes.task_entry import perform
from romancy import App, Client, WorkflowContext, wait_event, workflow
from romancy.admin.local import DatabaseManager
from romancy.admin.records import ActionKind
from romancy.authoring.workflow import Workflow
from romancy.clock import SystemClock

Call = Callable[[], Awaitable[Any]]
Times = dict[str, dict[str, float]]

FILTERS = {
    "all": "",
    "waiting": "status:waiting",
    "failed": "status:failed",
    "failed, one workflow": "status:failed workflow:flow-1",
    "one workflow": "workflow:flow-3",
    "retrying": "retrying",
    "overdue": "overdue",
    "older than a day, live": "status:live older:1d",
    "by what it waits for": "waits:payment.completed",
    "beginning of an id": "order-00001",
    "a whole id": f"id:{instance_id(10)}",
    "an error": "error:TimeoutError",
}
FREE = {
    "input, a frequent value": "input.customer.id:c-7",
    "input, a missing value": "input.customer.id:none",
    "an error that does not occur": "error:Nothing",
    "a workflow that does not exist": "workflow:nothing",
}
"""Searches that may have to read all instances: they stop after a time limit."""


def _flow(name: str) -> Workflow[..., Any]:
    @workflow(name=name)
    async def flow(ctx: WorkflowContext, customer: dict[str, Any], amount: int) -> str:
        await wait_event(ctx, "payment.completed", subject=str(amount))
        return "done"

    return flow


def _flows() -> list[Workflow[..., Any]]:
    return [_flow(workflow_name(n)) for n in range(WORKFLOWS)]


async def fill(database: str, instances: int) -> dict[str, Any]:
    """Create the tables and insert `instances` instances."""
    async with Client(database, workflows=[]):
        pass
    rows = SeedRows(instances, SystemClock().now())
    begin = perf_counter()
    if database.startswith("postgresql"):
        await fill_postgres(database, rows)
    else:
        fill_sqlite(database, rows)
    return {"seconds": perf_counter() - begin}


async def time_calls(database: str, instances: int, times: int) -> dict[str, Any]:
    """Return the seconds that each call and each page takes: the median and the worst of `times` times."""
    async with App(database, workflows=_flows(), poll_interval=3600) as app:
        manager = DatabaseManager(app)
        calls = await _timed(_query_calls(manager, instances), times)
        searches = await _timed({name: _listing(manager, line) for name, line in FREE.items()}, times)
        pages = await _timed(await _pages(app, instances), times)
        free = {f"search: {name}": _page(app, "instances", q=line) for name, line in FREE.items()} if pages else {}
        searches |= await _timed(free, times)
        actions = await _timed(_action_calls(manager, instances), times)
    return {"calls": calls, "searches": searches, "pages": pages, "actions": actions}


async def _timed(calls: dict[str, Call], times: int) -> Times:
    found: Times = {}
    for name, call in calls.items():
        took: list[float] = []
        for _ in range(times):
            begin = perf_counter()
            await call()
            took.append(perf_counter() - begin)
        found[name] = {"median": median(took), "worst": max(took)}
    return found


def _listing(manager: DatabaseManager, line: str) -> Call:
    return lambda: manager.list_instances(line)


def _query_calls(manager: DatabaseManager, instances: int) -> dict[str, Call]:
    last = instances - 1
    timer, event, message = (instance_id(n) for n in (0, 10, 20))
    failed, done = instance_id(last - last % 100 - 99), instance_id(last - last % 100 - 98)

    async def second_page() -> None:
        first = await manager.list_instances("")
        await manager.list_instances("", page_token=first.next_page_token)

    return {
        "overview": manager.overview,
        **{f"list_instances: {name}": _listing(manager, line) for name, line in FILTERS.items()},
        "list_instances: two pages": second_page,
        "get_instance": lambda: manager.get_instance(done),
        "get_instance, failed": lambda: manager.get_instance(failed),
        "get_history": lambda: manager.get_history(done),
        "get_timeline": lambda: manager.get_timeline(done),
        "get_source": lambda: manager.get_source(done),
        "explain, timer": lambda: manager.explain(timer),
        "explain, event": lambda: manager.explain(event),
        "explain, message": lambda: manager.explain(message),
        "explain, failed": lambda: manager.explain(failed),
        "list_workflows": manager.list_workflows,
        "get_schema": lambda: manager.get_schema(workflow_name(1)),
        "get_event_schema": lambda: manager.get_event_schema(event, "event:1"),
        "list_workers": manager.list_workers,
        "list_channels": manager.list_channels,
        "list_subscribers": lambda: manager.list_subscribers("jobs-2"),
        "list_groups": manager.list_groups,
        "list_members": lambda: manager.list_members("crew-1"),
        "list_outbox": manager.list_outbox,
        "list_outbox, dead": lambda: manager.list_outbox(dead=True),
        "list_bulk_actions": manager.list_bulk_actions,
        "list_audit": manager.list_audit,
        "list_audit, one instance": lambda: manager.list_audit(instance_id=event),
        "doctor": manager.doctor,
        **{
            f"preview, {action}": _preview(manager, action, failed if action is ActionKind.RETRY else event)
            for action in ActionKind
        },
    }


def _preview(manager: DatabaseManager, action: ActionKind, instance: str) -> Call:
    return lambda: manager.preview(action, instance)


def _action_calls(manager: DatabaseManager, instances: int) -> dict[str, Call]:
    numbers = iter(range(10, instances, 30))  # instances that wait for events

    def each(action: ActionKind) -> Call:
        return lambda: manager.apply(action, [instance_id(next(numbers))])

    async def batch() -> None:
        begun = await manager.start_bulk_action(ActionKind.PAUSE, f"id:{instance_id(next(numbers))}")
        await manager.get_bulk_action(begun.batch_id)
        await manager.abort_bulk_action(begun.batch_id)

    async def start() -> None:
        await manager.start(workflow_name(1), {"customer": {"id": "new"}, "amount": -1})

    return {
        "start": start,
        "send_event": lambda: manager.send_event("nothing.waits", {}),
        "send_event, to one": lambda: manager.send_event("payment.completed", {}, to=instance_id(next(numbers))),
        "publish": lambda: manager.publish("news", 1),
        **{f"apply, {action}": each(action) for action in (ActionKind.PAUSE, ActionKind.CANCEL, ActionKind.TERMINATE)},
        "start_bulk_action, get_bulk_action, abort_bulk_action": batch,
        "requeue_outbox, one": lambda: manager.requeue_outbox([1]),
        "prune, nothing": lambda: manager.prune(older_than=10 * 365 * 86400.0),
    }


# --- pages


class PageError(Exception):
    """A page did not respond with status 200."""


async def _pages(app: App, instances: int) -> dict[str, Call]:
    """Return the pages of the viewer; none if there is no viewer."""
    if await _get(app, "/viewer/", {}) == 404:
        return {}
    last = instances - 1
    event, failed = instance_id(10), instance_id(last - last % 100 - 99)
    return {
        "metrics": lambda: _get(app, "/metrics", {}),
        "overview": _page(app, ""),
        **{f"instances: {name}": _page(app, "instances", q=line) for name, line in FILTERS.items()},
        **{f"instance, {view}": _page(app, "instance", id=failed, view=view) for view in ("history", "diagram", "code")},
        "instance, waiting": _page(app, "instance", id=event),
        **{name: _page(app, name) for name in ("workflows", "workers", "channels", "groups", "outbox", "batches", "audit")},
        "channel": _page(app, "channels", name="jobs-2"),
        "group": _page(app, "groups", name="crew-1"),
        "outbox, dead": _page(app, "outbox", dead="1"),
        "start": _page(app, "start", workflow=workflow_name(1)),
        "event": _page(app, "event", id=event, op="event:1"),
        "confirm": _page(app, "confirm", action="cancel", id=event),
    }


def _page(app: App, name: str, /, **query: str) -> Call:
    async def request() -> None:
        status = await _get(app, f"/viewer/{name}", query)
        if status != 200:
            raise PageError(f"/viewer/{name} {query}: {status}")

    return request


async def _get(app: App, path: str, query: dict[str, str]) -> int:
    """Request a page as a browser on this machine does; return the status."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "root_path": "",
        "query_string": urlencode(query).encode(),
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 5000),
        "server": ("localhost", 80),
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    status: int = sent[0]["status"]
    return status


if __name__ == "__main__":
    perform(fill, time_calls)
