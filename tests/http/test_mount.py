"""Tests of a real app that is mounted in other applications, with and without their lifespan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.http.asgi_client import STRUCTURED, call, lifespan, structured

from romancy import App, WorkflowContext, workflow


@workflow(event_handler=True)
async def paid(ctx: WorkflowContext, amount: float) -> float:
    return amount


def in_starlette(app: App, lifespan: Any = None) -> Any:
    return Starlette(routes=[Mount("/x", app)], lifespan=lifespan)


def in_fastapi(app: App, lifespan: Any = None) -> Any:
    outer = FastAPI(lifespan=lifespan)
    outer.mount("/x", app)
    return outer


def in_two(app: App, lifespan: Any = None) -> Any:
    return Starlette(routes=[Mount("/x", Starlette(routes=[Mount("/y", app)]))], lifespan=lifespan)


def in_litestar(app: App, lifespan: Any = None, path: str = "/x") -> Any:
    @asgi(path, is_mount=True, copy_scope=True)
    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    return Litestar([mounted], lifespan=[lifespan] if lifespan else None)


def in_litestar_in_starlette(app: App, lifespan: Any = None) -> Any:
    return Starlette(routes=[Mount("/x", in_litestar(app, lifespan, "/y"))])


def in_litestar_alone(app: App, lifespan: Any = None) -> Any:
    return in_litestar(app, lifespan, "/")


MOUNTS = {
    "Starlette": (in_starlette, "/x"),
    "FastAPI": (in_fastapi, "/x"),
    "twice": (in_two, "/x/y"),
    "Litestar": (in_litestar, "/x"),
    "Litestar at the root": (in_litestar_alone, ""),
    "Litestar in Starlette": (in_litestar_in_starlette, "/x/y"),
    "alone": (lambda app, lifespan=None: app, ""),
}
mounts = pytest.mark.parametrize(("mount", "root"), MOUNTS.values(), ids=MOUNTS)


def client_of(outer: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=outer), base_url="http://localhost")


async def check(client: httpx.AsyncClient, app: App, root: str) -> None:
    """Check that an event is accepted, and that errors are the app's own and not those of the outer application."""
    answer = await client.post(f"{root}/events", content=structured(), headers=STRUCTURED)
    assert answer.status_code == 202
    (instance_id,) = answer.json()["instance_ids"]
    assert await app.get_handle(instance_id).result(timeout=30) == 99.99
    assert (await client.post(f"{root}/", content=structured(), headers=STRUCTURED)).json()["instance_ids"] == []
    for path, status in [(f"/cancel/{instance_id}", 409), ("/cancel/a%2Fb", 404), ("/nowhere", 404), ("/health/live", 405)]:
        answer = await client.post(f"{root}{path}")
        assert (answer.status_code, answer.json()["retryable"]) == (status, False)


@mounts
async def test_without_a_lifespan(mount: Any, root: str, database: str) -> None:
    app = App(database, workflows=[paid])
    async with client_of(mount(app)) as client:
        await check(client, app, root)
    await app.shutdown()


@mounts
async def test_started_by_the_lifespan_of_the_outer_application(mount: Any, root: str, database: str) -> None:
    app = App(database, workflows=[paid])

    @asynccontextmanager
    async def life(_: Any) -> AsyncIterator[None]:
        async with app:
            yield

    outer = mount(app, life)
    async with life(outer), client_of(outer) as client:
        await check(client, app, root)


def test_alone_under_a_lifespan_twice(database: str) -> None:
    """The app is started twice, each time on a new event loop, as tests of users do."""
    app = App(database, workflows=[paid])

    async def post(number: int) -> None:
        answer = await call(app, "/", structured(id=str(number)), headers=STRUCTURED)
        assert (answer.status, len(answer.json["instance_ids"])) == (202, 1)

    for number in range(2):
        messages = asyncio.run(lifespan(app, partial(post, number)))
        assert messages[-1]["type"] == "lifespan.shutdown.complete"


async def test_the_database_is_away(tmp_path: Any) -> None:
    app = App(str(tmp_path / "no" / "such" / "folder.db"))
    async with client_of(app) as client:
        answer = await client.post("/", content=structured(), headers=STRUCTURED)
        assert (answer.status_code, answer.json()["retryable"]) == (503, True)
        assert (await client.get("/health/ready")).status_code == 503
        assert (await client.get("/health/live")).status_code == 200


async def test_an_app_that_was_shut_down_refuses_requests(database: str) -> None:
    app = App(database, workflows=[paid])
    async with client_of(app) as client:
        assert (await client.get("/health/live")).status_code == 200
        assert (await client.post("/", content=structured(), headers=STRUCTURED)).status_code == 202
        await app.shutdown()
        answer = await client.post("/", content=structured(id="2"), headers=STRUCTURED)
        assert (answer.status_code, answer.json()["retryable"]) == (503, True)
        assert (await client.get("/health/ready")).status_code == 503
