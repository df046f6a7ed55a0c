"""Tests of the app in FastAPI: lifespan, the dependency, transactions of requests, and the viewer below any mount path."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Annotated, Any
from urllib.parse import urljoin

import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, WebSocket
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from romancy import App, Client, ConfigurationError, WorkflowContext, workflow
from romancy.integrations.fastapi import current_app, lifespan

_DRIVERS = {"postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy"}
Current = Annotated[App, Depends(current_app)]
CurrentClient = Annotated[Client, Depends(current_app)]


@workflow
async def greet(ctx: WorkflowContext, name: str) -> str:
    return f"hello, {name}"


def client_on_this_machine(api: Any, **options: Any) -> TestClient:
    """A client on this machine, which may use the viewer without a token."""
    return TestClient(api, base_url="http://localhost", client=("127.0.0.1", 50000), **options)


def greeting(app: Client, yours: Any = None) -> FastAPI:
    api = FastAPI(lifespan=lifespan(app, yours))

    @api.get("/greet/{name}")
    async def greeted(name: str, workflows: Current) -> str:
        return await (await workflows.start_workflow(greet, name)).result(timeout=10)

    return api


def test_requests_find_the_app_that_the_lifespan_has_started(database: str) -> None:
    app = App(database, workflows=[greet])
    with client_on_this_machine(greeting(app)) as client:
        assert client.get("/greet/Ada").json() == "hello, Ada"
    with client_on_this_machine(greeting(app)) as client:  # a second lifespan, on another event loop
        assert client.get("/greet/Bob").json() == "hello, Bob"


def test_your_own_lifespan_begins_first_ends_last_and_keeps_its_state(file: str) -> None:
    app = App(file, workflows=[greet])
    steps: list[str] = []

    @asynccontextmanager
    async def yours(api: FastAPI) -> AsyncIterator[dict[str, str]]:
        steps.append(f"{api.title} begins, app: {await app.ready()}")
        yield {"pool": "a pool"}
        steps.append(f"{api.title} ends, app: {await app.ready()}")

    api = greeting(app, yours)

    @api.get("/pool")
    async def pool(request: Request, workflows: Current) -> str:
        await workflows.start_workflow(greet, "Ada")
        steps.append("a request, and the app takes work")
        return str(request.state.pool)

    with client_on_this_machine(api) as client:
        assert client.get("/pool").json() == "a pool"
    assert steps == [
        "FastAPI begins, app: the app is not running",
        "a request, and the app takes work",
        "FastAPI ends, app: the app is not running",
    ]


def test_a_lifespan_that_fails_does_not_start_the_app(file: str) -> None:
    app = App(file, workflows=[greet])

    @asynccontextmanager
    async def broken(_: FastAPI) -> AsyncIterator[None]:
        raise OSError("no pool")
        yield

    with pytest.raises(OSError, match="no pool"), client_on_this_machine(greeting(app, broken)):
        pass
    with pytest.raises(ConfigurationError, match="lifespan=lifespan"):
        client_on_this_machine(greeting(app)).get("/greet/Ada")


def test_a_client_in_place_of_an_app(file: str) -> None:
    api = FastAPI(lifespan=lifespan(Client(file, workflows=[greet])))

    @api.post("/greet/{name}")
    async def start(name: str, workflows: CurrentClient) -> str:
        handle = await workflows.start_workflow(greet, name)
        return await handle.status()

    with client_on_this_machine(api) as client:
        assert client.post("/greet/Ada").json() == "pending"


def test_a_router_an_application_inside_and_a_web_socket_find_it_too(file: str) -> None:
    api = FastAPI(lifespan=lifespan(App(file, workflows=[greet])))
    inner = FastAPI()

    @inner.get("/greet")
    async def inside(workflows: Current) -> str:
        return await (await workflows.start_workflow(greet, "Bob")).result(timeout=10)

    @api.websocket("/talk")
    async def talk(socket: WebSocket, workflows: Current) -> None:
        await socket.accept()
        await socket.send_json(await (await workflows.start_workflow(greet, "Ada")).result(timeout=10))

    api.mount("/inner", inner)
    with client_on_this_machine(api) as client:
        assert client.get("/inner/greet").json() == "hello, Bob"
        with client.websocket_connect("/talk") as socket:
            assert socket.receive_json() == "hello, Ada"


def test_starlette_alone(file: str) -> None:
    async def greeted(request: StarletteRequest) -> PlainTextResponse:
        app = await current_app(request)
        return PlainTextResponse(await (await app.start_workflow(greet, "Ada")).result(timeout=10))

    site = Starlette(routes=[Route("/", greeted)], lifespan=lifespan(App(file, workflows=[greet])))
    with client_on_this_machine(site) as client:
        assert client.get("/").text == "hello, Ada"


@pytest.fixture
def shop(database: str) -> Iterator[TestClient]:
    """An API whose requests write a row and start a workflow in one transaction."""
    scheme, colon, rest = database.partition(":")
    engine = create_async_engine(f"{_DRIVERS[scheme]}:{rest}" if colon else f"sqlite+aiosqlite:///{database}")

    @asynccontextmanager
    async def tables(_: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:
            await connection.execute(text("CREATE TABLE orders (id VARCHAR(50) PRIMARY KEY)"))
        yield
        await engine.dispose()

    async def open_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    session_of_request = Annotated[AsyncSession, Depends(open_session)]
    api = FastAPI(lifespan=lifespan(App(database, workflows=[greet], poll_interval=0.1), tables))

    async def place(order: str, session: Any, workflows: Any, fails: bool = False) -> str:
        await session.execute(text("INSERT INTO orders VALUES (:id)"), {"id": order})
        handle = await workflows.using(session).start_workflow(greet.with_options(instance_id=order), order)
        if fails:
            raise HTTPException(409, "the order was withdrawn")
        await session.commit()
        return str(await handle.result(timeout=10))

    async def found(order: str, session: Any, workflows: Any) -> list[bool]:
        row = (await session.execute(text("SELECT id FROM orders WHERE id = :id"), {"id": order})).first()
        return [row is not None, await workflows.get_instance(order) is not None]

    for function in (place, found):
        function.__annotations__ |= {"session": session_of_request, "workflows": Current}
    api.post("/orders/{order}")(place)
    api.get("/orders/{order}")(found)
    with client_on_this_machine(api) as client:
        yield client


def test_a_workflow_in_the_transaction_of_the_request(shop: TestClient) -> None:
    assert shop.post("/orders/a").json() == "hello, a"
    assert shop.get("/orders/a").json() == [True, True]


def test_a_request_that_fails_starts_nothing(shop: TestClient) -> None:
    assert shop.post("/orders/a?fails=true").status_code == 409
    assert shop.get("/orders/a").json() == [False, False]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "romancy.integrations.fastapi")
    monkeypatch.setitem(sys.modules, "starlette.requests", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'romancy\[http\]'"):
        importlib.import_module("romancy.integrations.fastapi")


def test_what_is_mounted_without_auth_is_for_this_machine_only(file: str) -> None:
    """The app as the example mounts it: callers on other machines can neither send events nor control nor read."""
    app = App(file, workflows=[greet])
    api = greeting(app)
    api.mount("/romancy", app)
    event = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "evil", "ce-type": "payment.confirmed"}
    elsewhere = TestClient(api, base_url="http://shop.example", client=("203.0.113.9", 1))
    with client_on_this_machine(api) as here:
        for client, sent in ((here, 202), (elsewhere, 403)):
            assert client.post("/romancy/events", headers=event).status_code == sent
            assert client.get("/romancy/viewer/").status_code == (200 if sent == 202 else 403)
            assert client.get("/romancy/health/live").status_code == 200


@pytest.mark.parametrize("root", ["", "/shop", "/a/b"])
def test_the_viewer_at_any_root_path(root: str, file: str) -> None:
    app = App(file, workflows=[greet])
    api = greeting(app)
    api.mount("/flows", app)
    with client_on_this_machine(api, root_path=root) as client:
        assert client.get(f"{root}/greet/Ada").json() == "hello, Ada"
        address = f"{root}/flows/viewer/instances"
        page = client.get(address)
        assert page.status_code == 200
        assert "greet" in page.text
        links = re.findall(r'(?:href|src)="([^"#]+)', page.text)
        assert len(links) > 5
        for link in set(links):
            assert client.get(urljoin(address, unescape(link))).status_code == 200, link
