"""Tests of every path of the API: the call of the manager, the response, and the requests that are refused."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from starlette.routing import Router
from tests.api.fake_manager import HUGE, FakeManager, get, post, serve
from tests.http.asgi_client import call

from romancy.admin.port import Manager
from romancy.admin.records import ActionKind, InputError
from romancy.api.endpoints import BASE, ENDPOINTS
from romancy.api.routes import routes
from romancy.errors import (
    ConfigurationError,
    InstanceConflictError,
    InvalidWorkflowStateError,
    PayloadError,
    StoreError,
    WorkflowNotCancellableError,
)
from romancy.http.problems import UnauthenticatedError

ID = "order/1\n\u2603"
READ_CALLS: list[tuple[str, dict[str, Any], str, tuple[Any, ...], dict[str, Any]]] = [
    ("/overview", {}, "overview", (), {}),
    ("/instances", {}, "list_instances", ("",), {"limit": 50, "page_token": None}),
    (
        "/instances",
        {"filter": "status:failed", "limit": 7, "page_token": "t"},
        "list_instances",
        ("status:failed",),
        {"limit": 7, "page_token": "t"},
    ),
    ("/instance", {"id": ID}, "get_instance", (ID,), {"generation": None}),
    ("/instance", {"id": ID, "generation": 2}, "get_instance", (ID,), {"generation": 2}),
    (
        "/instance/history",
        {"id": ID, "generation": 2, "after": HUGE, "limit": 3},
        "get_history",
        (ID,),
        {"generation": 2, "after": HUGE, "limit": 3},
    ),
    ("/instance/timeline", {"id": ID}, "get_timeline", (ID,), {"generation": None}),
    ("/instance/explain", {"id": ID}, "explain", (ID,), {}),
    ("/instance/source", {"id": ID}, "get_source", (ID,), {}),
    ("/instance/event-schema", {"id": ID, "op": "paid:1"}, "get_event_schema", (ID, "paid:1"), {}),
    ("/workflows", {}, "list_workflows", (), {}),
    ("/workflow/schema", {"name": "checkout"}, "get_schema", ("checkout",), {}),
    ("/workers", {}, "list_workers", (), {}),
    ("/channels", {"after": "b"}, "list_channels", (), {"after": "b", "limit": 50}),
    ("/channel/subscribers", {"name": "c"}, "list_subscribers", ("c",), {"after": "", "limit": 50}),
    ("/groups", {"limit": 200}, "list_groups", (), {"after": "", "limit": 200}),
    ("/group/members", {"name": "g", "after": "a"}, "list_members", ("g",), {"after": "a", "limit": 50}),
    ("/outbox", {"dead": "true", "after": HUGE}, "list_outbox", (), {"dead": True, "after": HUGE, "limit": 50}),
    ("/batches", {}, "list_bulk_actions", (), {}),
    ("/batch", {"id": "b1"}, "get_bulk_action", ("b1",), {}),
    ("/audit", {"id": ID, "before": 9}, "list_audit", (), {"instance_id": ID, "before": 9, "limit": 50}),
    ("/doctor", {}, "doctor", (), {}),
]
WRITE_CALLS: list[tuple[str, dict[str, Any], str, tuple[Any, ...], dict[str, Any]]] = [
    (
        "/workflows/start",
        {"workflow": "checkout", "input": {"number": HUGE}, "instance_id": ID},
        "start",
        ("checkout", {"number": HUGE}),
        {"instance_id": ID, "actor": "local"},
    ),
    (
        "/events",
        {"type": "paid", "data": [HUGE, "\0"], "to": ID},
        "send_event",
        ("paid", [HUGE, "\0"]),
        {"source": "romancy", "subject": None, "to": ID, "actor": "local"},
    ),
    ("/messages", {"channel": "c", "data": 1}, "publish", ("c", 1), {"to": None, "actor": "local"}),
    ("/preview", {"action": "cancel", "id": ID}, "preview", (ActionKind.CANCEL, ID), {}),
    (
        "/instances/do",
        {"action": "retry", "ids": [ID, "b"], "reason": "why"},
        "apply",
        (ActionKind.RETRY, [ID, "b"]),
        {"reason": "why", "actor": "local"},
    ),
    (
        "/batches/start",
        {"action": "cancel", "filter": "status:failed"},
        "start_bulk_action",
        (ActionKind.CANCEL, "status:failed"),
        {"reason": None, "actor": "local"},
    ),
    ("/batches/abort", {"id": "b1"}, "abort_bulk_action", ("b1",), {"actor": "local"}),
    ("/outbox/requeue", {"ids": [HUGE]}, "requeue_outbox", ([HUGE],), {"actor": "local"}),
    ("/outbox/requeue", {}, "requeue_outbox", (None,), {"actor": "local"}),
    ("/prune", {"older_than": 60}, "prune", (), {"older_than": 60.0, "actor": "local"}),
]


def test_every_call_of_the_port_has_a_path_and_every_path_is_tested() -> None:
    calls = {name for name, _ in inspect.getmembers(Manager, inspect.iscoroutinefunction)}
    assert {name for _, _, name, _, _ in READ_CALLS + WRITE_CALLS} == calls
    assert {path for path, *_ in READ_CALLS + WRITE_CALLS} == {one.path for one in ENDPOINTS}


@pytest.mark.parametrize(("path", "parameters", "name", "args", "kwargs"), READ_CALLS)
async def test_read_calls(path: str, parameters: dict[str, Any], name: str, args: Any, kwargs: Any) -> None:
    manager = FakeManager()
    answer = await get(serve(manager), BASE + path, **parameters)
    assert (answer.status, manager.last) == (200, (name, args, kwargs))
    assert isinstance(answer.json, dict)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(("path", "body", "name", "args", "kwargs"), WRITE_CALLS)
async def test_write_calls(path: str, body: dict[str, Any], name: str, args: Any, kwargs: Any) -> None:
    manager = FakeManager()
    answer = await post(serve(manager), BASE + path, body)
    assert (answer.status, manager.last) == (200, (name, args, kwargs))
    assert isinstance(answer.json, dict)


async def test_values_without_a_json_form_are_encoded() -> None:
    app = serve(FakeManager())
    answer = await get(app, f"{BASE}/instance", id="a")
    assert str(HUGE).encode() in answer.body
    assert answer.json["input"] == {"number": HUGE, "rate": "NaN"}
    assert answer.json["summary"]["created_at"] == "2026-01-31T12:00:00.123456Z"
    outbox = (await get(app, f"{BASE}/outbox")).json
    assert (outbox["next_after"], outbox["items"][0]["event"]["data"]) == (HUGE, "_wA=")


# --- refused requests


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("/instances", b"limit=0", "limit"),
        ("/instances", b"limit=201", "limit"),
        ("/instances", b"limit=x", "limit"),
        ("/instances", b"offset=5", "offset"),
        ("/instances", b"limit=5&limit=6", "limit"),
        ("/instance", b"", "id"),
        ("/instance", b"id=", "id"),
        ("/instance", b"id=a%00b", "id"),
        ("/instance", b"id=" + b"%C3%BC" * 600, "id"),
        ("/instance", b"id=a&generation=0", "generation"),
        ("/instance/history", b"id=a&after=-1", "after"),
        ("/instance/history", b"id=a&limit=1001", "limit"),
        ("/outbox", b"dead=perhaps", "dead"),
        ("/outbox", b"after=9223372036854775808", "after"),
    ],
)
async def test_an_invalid_parameter_is_named(path: str, query: bytes, field: str) -> None:
    manager = FakeManager()
    answer = await call(serve(manager), BASE + path, method="GET", query_string=query)
    assert (answer.status, answer.json["error_type"]) == (400, "MalformedRequestError")
    assert list(answer.json["fields"]) == [field]
    assert field in answer.json["error"]
    assert manager.calls == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/workflows/start", {}, "workflow"),
        ("/workflows/start", {"workflow": 5}, "workflow"),
        ("/workflows/start", {"workflow": "a", "input": []}, "input"),
        ("/workflows/start", {"workflow": "a", "id": "b"}, "id"),
        ("/instances/do", {"action": "praise", "ids": ["a"]}, "action"),
        ("/instances/do", {"action": "cancel", "ids": []}, "ids"),
        ("/instances/do", {"action": "cancel", "ids": ["a"] * 1001}, "ids"),
        ("/instances/do", {"action": "cancel", "ids": ["a", ""]}, "ids.1"),
        ("/instances/do", {"action": "cancel", "ids": ["a"], "reason": "x" * 4097}, "reason"),
        ("/outbox/requeue", {"ids": ["1"]}, "ids.0"),
        ("/prune", {"older_than": "60"}, "older_than"),
        ("/prune", {"older_than": -1}, "older_than"),
        ("/events", {"type": "a\0"}, "type"),
    ],
)
async def test_an_invalid_field_of_a_body_is_named(path: str, body: dict[str, Any], field: str) -> None:
    manager = FakeManager()
    answer = await post(serve(manager), BASE + path, body)
    assert (answer.status, list(answer.json["fields"])) == (400, [field])
    assert manager.calls == []


@pytest.mark.parametrize("body", [b"{", b"[]", b"5", b'{"older_than": NaN}', b'{"a": 1, "a": 2}', b"[" * 5000, b'"\\ud800"'])
async def test_a_body_that_is_no_object(body: bytes) -> None:
    answer = await post(serve(FakeManager()), f"{BASE}/prune", body)
    assert (answer.status, answer.json["error_type"]) == (400, "MalformedRequestError")


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
)
async def test_only_json(kind: str) -> None:
    answer = await post(serve(FakeManager()), f"{BASE}/prune", {"older_than": 1}, {"content-type": kind})
    assert (answer.status, answer.json["error_type"]) == (415, "UnsupportedContentTypeError")


async def test_a_body_that_is_too_large() -> None:
    answer = await post(serve(FakeManager(), max_body_size=10), f"{BASE}/prune", {"older_than": 1000})
    assert (answer.status, answer.json["error_type"]) == (413, "BodyTooLargeError")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PayloadError("no"), 400),
        (ConfigurationError("no"), 400),
        (InstanceConflictError("no"), 409),
        (InvalidWorkflowStateError("no"), 409),
        (WorkflowNotCancellableError("no"), 409),
        (StoreError("no"), 503),
    ],
)
async def test_errors_of_the_manager(error: Exception, status: int) -> None:
    answer = await post(serve(FakeManager(error=error)), f"{BASE}/prune", {"older_than": 1})
    expected = {"error": "no", "error_type": type(error).__name__, "retryable": status == 503}
    assert (answer.status, answer.json) == (status, expected)


async def test_an_invalid_field_of_the_input_is_named() -> None:
    error = InputError("The input does not fit.", {"order.amount": "is missing"})
    answer = await post(serve(FakeManager(error=error)), f"{BASE}/workflows/start", {"workflow": "a"})
    assert (answer.status, answer.json["fields"]) == (400, {"order.amount": "is missing"})


async def test_unknown_ids_paths_and_methods() -> None:
    app = serve(FakeManager())
    assert (await get(app, f"{BASE}/instance", id="missing")).json["error_type"] == "WorkflowNotFoundError"
    assert (await get(app, f"{BASE}/nothing")).status == 404
    assert set((await post(app, f"{BASE}/instance", {})).headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_a_fault_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    answer = await get(serve(FakeManager(error=ZeroDivisionError("secret"))), f"{BASE}/workers")
    assert (answer.status, "secret" in answer.body.decode()) == (500, False)
    assert "secret" in caplog.text


async def test_without_access_control_every_request_is_refused() -> None:
    manager: Any = FakeManager()
    with pytest.raises(UnauthenticatedError):
        await call(Router(routes(manager)), f"{BASE}/workers", method="GET")


async def test_the_document_names_every_path() -> None:
    answer = await get(serve(FakeManager()), f"{BASE}/openapi.json")
    document = json.loads(answer.body)
    found = {(path, method) for path, item in document["paths"].items() for method in item}
    expected = {(BASE + one.path, one.method.lower()) for one in ENDPOINTS}
    assert found == expected | {(f"{BASE}/openapi.json", "get"), (f"{BASE}/stream", "get")}
