"""Tests of the guide's recipes for Flask and Litestar, which need no integration module."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from litestar import Litestar, asgi, post
from litestar.params import FromPath
from litestar.testing import TestClient
from litestar.types import Receive, Scope, Send
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from romancy import App, WorkflowContext, to_wsgi, workflow

EVENT = {"specversion": "1.0", "type": "paid", "source": "/bank", "id": "1", "data": {"amount": 5}}
STRUCTURED = {"content-type": "application/cloudevents+json"}


@workflow
async def greet(ctx: WorkflowContext, name: str) -> str:
    return f"hello, {name}"


@workflow(event_handler=True)
async def paid(ctx: WorkflowContext, amount: int) -> int:
    return amount


@pytest.fixture
def flask(file: str) -> Iterator[FlaskClient]:
    """A Flask application with the app mounted in it."""
    app = App(file, workflows=[greet, paid])
    workflows = to_wsgi(app)
    site = Flask(__name__)
    site.wsgi_app = DispatcherMiddleware(site.wsgi_app, {"/romancy": workflows})  # type: ignore[method-assign]

    @site.post("/greet/<name>")
    def start(name: str) -> str:
        return workflows.run(app.start_workflow(greet, name)).instance_id

    @site.post("/greet/<name>/<ending>")
    def start_in_a_transaction(name: str, ending: str) -> str:
        with closing(sqlite3.connect(file)) as connection:
            handle = asyncio.run(app.using(connection).start_workflow(greet, name))
            connection.commit() if ending == "commit" else connection.rollback()
        return handle.instance_id

    @site.get("/result/<instance_id>")
    def result(instance_id: str) -> Any:
        if workflows.run(app.get_instance(instance_id)) is None:
            return "", 404
        return workflows.run(app.get_handle(instance_id).result(timeout=10))

    yield site.test_client()
    workflows.close()


def test_flask_starts_workflows(flask: FlaskClient) -> None:
    started = flask.post("/greet/Ada").text
    assert flask.get(f"/result/{started}").text == "hello, Ada"


def test_flask_starts_workflows_in_a_transaction(flask: FlaskClient) -> None:
    assert flask.get("/romancy/health/live").status_code == 200
    lost, kept = (flask.post(f"/greet/Bob/{ending}").text for ending in ("rollback", "commit"))
    assert flask.get(f"/result/{lost}").status_code == 404
    assert flask.get(f"/result/{kept}").text == "hello, Bob"


def test_flask_has_the_viewer_and_accepts_events(flask: FlaskClient) -> None:
    accepted = flask.post("/romancy/events", json=EVENT, headers=STRUCTURED)
    assert accepted.status_code == 202
    assert flask.get("/romancy/viewer/instances").status_code == 200
    (started,) = accepted.json["instance_ids"] if accepted.json else []
    page = flask.get(f"/romancy/viewer/instance?id={started}")
    assert (page.status_code, "paid" in page.text) == (200, True)


def litestar_with(app: App, path: str = "/romancy") -> Litestar:
    @post("/greet/{name:str}")
    async def start(name: FromPath[str]) -> str:
        return await (await app.start_workflow(greet, name)).result(timeout=10)

    @asgi(path, is_mount=True, copy_scope=True)
    async def romancy(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "client": ("127.0.0.1", 50000)}, receive, send)  # type: ignore[arg-type, unused-ignore]

    return Litestar([start, romancy], lifespan=[app])


def test_litestar_starts_workflows(database: str) -> None:
    with TestClient(litestar_with(App(database, workflows=[greet, paid]))) as client:
        assert client.post("/greet/Ada").text == "hello, Ada"


@pytest.mark.parametrize("path", ["/romancy", "/deep/down"])
def test_litestar_has_the_viewer_and_accepts_events(path: str, file: str) -> None:
    with TestClient(litestar_with(App(file, workflows=[greet, paid]), path), base_url="http://127.0.0.1") as client:
        accepted = client.post(f"{path}/events", json=EVENT, headers=STRUCTURED)
        assert accepted.status_code == 202
        (started,) = accepted.json()["instance_ids"]
        page = client.get(f"{path}/viewer/instance", params={"id": started})
        assert (page.status_code, "paid" in page.text) == (200, True)
        assert client.get(f"{path}/health/live").json() == {"status": "alive"}
