"""The API of a real app, on every database."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount
from tests.api.asking import get, post
from tests.api.test_stream import Open, opened, told
from tests.http.calls import lifespan

from romancy import App, Client, WorkflowContext, wait_event, workflow

ID = "order/1\n\u2603 'x'"


@workflow
async def order(ctx: WorkflowContext, number: int) -> object:
    return (await wait_event(ctx, "paid")).data


async def start(app: Any, instance_id: str = ID, number: int = 2**60) -> None:
    body = {"workflow": "order", "input": {"number": number}, "instance_id": instance_id}
    answer = await post(app, "/api/v1/workflows/start", body)
    assert (answer.status, answer.json) == (200, {"instance_id": instance_id})


async def until(stream: Open, status: str) -> dict[str, Any]:
    """What a stream tells of a status."""
    while True:
        text = await stream.next()
        if text.startswith("id: ") and (data := told(text)[1])["status"] == status:
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


async def test_what_another_process_does_is_seen(database: str) -> None:
    app = App(database, workflows=[order])
    async with app, Client(database, workflows=[order]) as other:
        await start(app, "a")
        async with opened(app, "id=a") as stream, opened(app) as everything:
            await until(stream, "waiting_for_event")
            await other.terminate_workflow("a")
            await until(stream, "terminated")
            assert "changed" in await everything.next()


async def test_a_wrong_input_is_told_by_field(database: str) -> None:
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


async def test_deeds_each_by_itself(database: str) -> None:
    app = App(database, workflows=[order])
    async with app:
        await start(app, "a")
        done = (await post(app, "/api/v1/instances/do", {"deed": "terminate", "ids": ["a", "nobody"]})).json["items"]
        assert [(one["instance_id"], one["ok"], one["error_type"]) for one in done] == [
            ("a", True, None),
            ("nobody", False, "WorkflowNotFoundError"),
        ]
        assert (await get(app, "/api/v1/instance", id="a")).json["summary"]["status"] == "terminated"
        assert (await get(app, "/api/v1/instance", id="nobody")).status == 404
        assert (await get(app, "/api/v1/instances", filter="what:ever")).status == 400
        assert (await get(app, "/api/v1/instances", page_token="?")).status == 400


async def test_pages_by_key(database: str) -> None:
    app = App(database, workflows=[order])
    async with app:
        for number in range(5):
            await start(app, f"i-{number}", number)
        found: list[str] = []
        token: str | None = None
        while True:
            asked = {"limit": 2, **({"page_token": token} if token else {})}
            page = (await get(app, "/api/v1/instances", **asked)).json
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
