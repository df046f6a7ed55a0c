"""The API of a real app, on every database."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.api.fake_manager import get, post
from tests.api.test_sse import OpenStream, opened, parse_event
from tests.http.asgi_client import lifespan

from romancy import (
    ActivityContext,
    App,
    Client,
    ConfigurationError,
    RetryPolicy,
    Token,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    join_group,
    receive,
    subscribe,
    wait_event,
    workflow,
)
from romancy.api.endpoints import BASE, ENDPOINTS

ID = "order/1\n\u2603 'x'"


@workflow
async def order(ctx: WorkflowContext, number: int) -> object:
    return (await wait_event(ctx, "paid")).data


@activity(retry=RetryPolicy.none())
async def charge(ctx: ActivityContext) -> None:
    raise ValueError("<b>no</b> \0 \u202e")


@workflow
async def failing(ctx: WorkflowContext) -> None:
    await charge(ctx)


@workflow
async def listener(ctx: WorkflowContext) -> None:
    await subscribe(ctx, "news/ü")
    await join_group(ctx, "all")
    await receive(ctx, "news/ü")


async def start(app: Any, instance_id: str = ID, number: int = 2**60) -> None:
    body = {"workflow": "order", "input": {"number": number}, "instance_id": instance_id}
    answer = await post(app, "/api/v1/workflows/start", body)
    assert (answer.status, answer.json) == (200, {"instance_id": instance_id})


async def until(stream: OpenStream, status: str) -> dict[str, Any]:
    """Read a stream up to the event with a status; return the event's data."""
    while True:
        text = await stream.next()
        if text.startswith("id: ") and (data := parse_event(text)[1])["status"] == status:
            return dict(data)


async def test_an_instance_from_its_start_to_its_end(database: str) -> None:
    app = App(database, workflows=[order])
    async with app:
        await start(app)
        async with opened(app, "id=order/1%0A%E2%98%83%20%27x%27") as stream:
            await until(stream, "waiting_for_event")
            seen = (await get(app, "/api/v1/instance", id=ID)).json
            assert (seen["summary"]["instance_id"], seen["input"]) == (ID, {"number": 2**60})
            assert seen["summary"]["waiting_for"][0]["key"] == "paid"
            listed = (await get(app, "/api/v1/instances", filter="status:waiting_for_event")).json
            assert [one["instance_id"] for one in listed["items"]] == [ID]
            why = (await get(app, "/api/v1/instance/explain", id=ID)).json
            assert (why["instance_id"], why["wakes"][0]["kind"]) == (ID, "event")
            sent = await post(app, "/api/v1/events", {"type": "paid", "data": {"amount": 2**60}, "to": ID})
            assert (sent.status, sent.json["instance_ids"]) == (200, [ID])
            await until(stream, "completed")
        seen = (await get(app, "/api/v1/instance", id=ID)).json
        assert seen["output"] == {"amount": 2**60}
        entries = (await get(app, "/api/v1/instance/history", id=ID)).json["items"]
        assert [one["kind"] for one in entries] == ["event"]
        assert "async def order" in (await get(app, "/api/v1/instance/source", id=ID)).json["source"]


async def test_responses_have_the_shape_in_the_document(database: str) -> None:
    app = App(database, workflows=[order, failing, listener])
    async with app:
        await start(app, "a")
        failed = await app.start_workflow(failing.with_options(instance_id="f"))
        with pytest.raises(WorkflowFailedError):
            await failed.result()
        await app.start_workflow(listener.with_options(instance_id="l"))
        async with opened(app, "id=l") as stream:
            await until(stream, "waiting_for_message")
        batch = (await post(app, f"{BASE}/batches/start", {"action": "pause", "filter": "workflow:nothing"})).json[
            "batch_id"
        ]
        known: dict[str, list[dict[str, Any]]] = {
            "id": [{"id": "a"}, {"id": "f"}, {"id": "l"}],
            "/batch": [{"id": batch}],
            "/channel/subscribers": [{"name": "news/ü"}],
            "/group/members": [{"name": "all"}],
            "/workflow/schema": [{"name": "order"}],
            "/instance/event-schema": [{"id": "a", "op": "paid:1"}],
        }
        for endpoint in ENDPOINTS:
            if endpoint.method == "GET":
                usual = known["id"] if "id" in endpoint.request_model.model_fields else [{}]
                for question in known.get(endpoint.path, usual):
                    answer = await get(app, BASE + endpoint.path, **question)
                    assert (endpoint.path, answer.status) == (endpoint.path, 200)
                    TypeAdapter(endpoint.response_type).validate_json(answer.body)
        members = (await get(app, f"{BASE}/group/members", name="all")).json
        assert members["items"] == ["l"]


async def test_changes_of_this_process_are_notified(database: str) -> None:
    app = App(database, workflows=[order])
    async with app:
        await start(app, "a")
        assert app._watcher is not None
        app._watcher.settings = replace(app._watcher.settings, poll_interval=3600)  # changes are found by notifications only
        async with opened(app, "id=a") as stream:
            await until(stream, "waiting_for_event")
            await app.pause_workflow("a")
            await until(stream, "paused")


async def test_changes_of_another_process_are_found(database: str) -> None:
    app = App(database, workflows=[order])
    async with app, Client(database, workflows=[order]) as other:
        await start(app, "a")
        async with opened(app, "id=a") as stream, opened(app) as everything:
            await until(stream, "waiting_for_event")
            await other.terminate_workflow("a")
            await until(stream, "terminated")
            assert "changed" in await everything.next()


async def test_invalid_input_is_reported_by_field(database: str) -> None:
    app = App(database, workflows=[order])
    async with app:
        schema = (await get(app, "/api/v1/workflow/schema", name="order")).json["schema"]
        assert list(schema["properties"]) == ["number"]
        answer = await post(app, "/api/v1/workflows/start", {"workflow": "order", "input": {"number": "x"}})
        assert (answer.status, list(answer.json["fields"])) == (400, ["number"])
        assert (await post(app, "/api/v1/workflows/start", {"workflow": "none"})).status == 404
        await start(app, "a")
        other = {"workflow": "order", "input": {"number": 2}, "instance_id": "a"}
        assert (await post(app, "/api/v1/workflows/start", other)).json["error_type"] == "InstanceConflictError"


async def test_each_action_has_its_own_result(database: str) -> None:
    app = App(database, workflows=[order])
    async with app:
        await start(app, "a")
        done = (await post(app, "/api/v1/instances/do", {"action": "terminate", "ids": ["a", "missing"]})).json["items"]
        assert [(one["instance_id"], one["ok"], one["error_type"]) for one in done] == [
            ("a", True, None),
            ("missing", False, "WorkflowNotFoundError"),
        ]
        assert (await get(app, "/api/v1/instance", id="a")).json["summary"]["status"] == "terminated"
        assert (await get(app, "/api/v1/instance", id="missing")).status == 404
        assert (await get(app, "/api/v1/instances", filter="what:ever")).status == 400
        assert (await get(app, "/api/v1/instances", page_token="?")).status == 400


async def test_the_audit_names_the_token(database: str) -> None:
    ada = {"authorization": "Bearer secret"}
    app = App(database, workflows=[order], auth=[Token("secret", name="Ada")])
    async with app:
        body = {"workflow": "order", "input": {"number": 1}, "instance_id": "a"}
        assert (await post(app, f"{BASE}/workflows/start", body, ada)).status == 200
        assert (
            await post(app, f"{BASE}/instances/do", {"action": "pause", "ids": ["a"], "reason": "why"}, ada)
        ).status == 200
        lines = (await get(app, f"{BASE}/audit", ada, id="a")).json["items"]
        assert [(one["actor"], one["action"]) for one in lines] == [("Ada", "pause"), ("Ada", "start")]
        assert (await post(app, "/cancel/a", {"reason": "late"}, ada)).status == 200
        (line, *_) = (await get(app, f"{BASE}/audit", ada, id="a")).json["items"]
        assert (line["actor"], line["action"], line["detail"]) == ("Ada", "cancel", "late")


async def test_the_audit_names_the_caller_of_a_function_and_programs(database: str) -> None:
    app = App(database, workflows=[order], auth=lambda _: ("admin", "Grace"))
    async with app, Client(database) as client:
        await start(app, "a")
        await client.pause_workflow("a", "later")
        await client.resume_workflow("a", actor="nightly")
        assert (await post(app, "/cancel/a", {})).status == 200
        lines = (await get(app, f"{BASE}/audit", id="a")).json["items"]
        (by_http, by_name, by_program) = [(one["actor"], one["action"], one["detail"]) for one in lines][:3]
        assert (by_http, by_name) == (("Grace", "cancel", ""), ("nightly", "resume", ""))
        assert by_program == (f"program@{socket.gethostname()}", "pause", "later")


async def test_a_missing_extra_is_named(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("romancy.viewer")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'romancy\[http\]'"):
        await get(App(file), "/health/live")


async def test_pages_by_key(database: str) -> None:
    app = App(database, workflows=[order])
    async with app:
        for number in range(5):
            await start(app, f"i-{number}", number)
        found: list[str] = []
        token: str | None = None
        while True:
            parameters = {"limit": 2, **({"page_token": token} if token else {})}
            page = (await get(app, "/api/v1/instances", **parameters)).json
            found += [one["instance_id"] for one in page["items"]]
            token = page["next_page_token"]
            if token is None:
                break
        assert found == [f"i-{number}" for number in reversed(range(5))]


async def test_streams_end_with_the_app(file: str) -> None:
    app = App(file, workflows=[order])
    seen = asyncio.Event()

    async def watch() -> None:
        async with opened(app) as stream:
            seen.set()
            while (await stream.sent.get())["more_body"]:
                pass

    watching: list[asyncio.Task[None]] = []

    async def between() -> None:
        watching.append(asyncio.create_task(watch()))
        await seen.wait()

    assert [one["type"] for one in await lifespan(app, between)][-1] == "lifespan.shutdown.complete"
    await watching[0]


async def test_the_viewer_has_the_same_access_control(file: str) -> None:
    app = App(file, workflows=[order], auth=[Token("secret")])
    async with app:
        assert (await get(app, "/viewer/")).status == 401
        assert (await get(app, "/viewer/assets/viewer.css")).status == 200
        page = await get(app, "/viewer/", {"authorization": "Bearer secret"})
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "script-src 'self'" in page.headers["content-security-policy"]


async def test_where_the_app_is_mounted(file: str) -> None:
    app = App(file, workflows=[order])
    outer = Starlette(routes=[Mount("/flows", app)])
    async with app:
        await start(app, "a")
        answer = await get(outer, "/flows/api/v1/instance", id="a")
        assert (answer.status, answer.json["summary"]["instance_id"]) == (200, "a")
        document = json.loads((await get(outer, "/flows/api/v1/openapi.json")).body)
        assert document["openapi"] == "3.1.0"
        assert (await get(outer, "/flows/viewer/", {"host": "evil.example"})).status == 403
