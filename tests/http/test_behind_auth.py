"""Tests of a user's application that is protected by the app's `auth`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from romancy import App, ConfigurationError, PayloadError, Token, WorkflowContext, WorkflowNotFoundError, workflow
from romancy.http.types import ASGIApp, Receive, Scope, Send

HERE = ("127.0.0.1", 50000)
TOKENS = [Token("the-admin", name="Ada"), Token("the-reader", role="read"), Token("the-sender", role="events")]


@workflow
async def double(ctx: WorkflowContext, number: int) -> int:
    return 2 * number


async def own(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that returns the caller's name, role and path."""
    caller, request = scope["romancy.caller"], Request(scope)
    await PlainTextResponse(f"{caller.name} {caller.role} {request.url.path}")(scope, receive, send)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    app = App(f"sqlite:///{tmp_path / 'own.db'}", workflows=[double], auth=TOKENS)
    yield app
    await app.shutdown()


async def ask(
    inner: ASGIApp, token: str | None = None, *, at: tuple[str, int] = HERE, method: str = "GET", **headers: str
) -> httpx.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        given["authorization"] = f"Bearer {token}"
    transport = httpx.ASGITransport(inner, client=at)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.request(method, "/health/live", headers=given)  # a path that needs no token in the app itself


@pytest.mark.parametrize(
    ("role", "allowed"),
    [("admin", ["the-admin"]), ("read", ["the-admin", "the-reader"]), ("events", ["the-admin", "the-sender"])],
)
async def test_callers_need_the_role_on_every_path(app: App, role: str, allowed: list[str]) -> None:
    inner = app.behind_auth(own, role=role)
    for method in ("GET", "POST", "OPTIONS"):
        assert (await ask(inner, method=method)).status_code == 401
        for token in ("the-admin", "the-reader", "the-sender"):
            assert (await ask(inner, token, method=method)).status_code == (200 if token in allowed else 403)


async def test_the_application_receives_the_caller(app: App) -> None:
    assert (await ask(app.behind_auth(own), "the-admin")).text == "Ada admin /health/live"


async def test_without_auth_other_machines_and_other_origins_are_refused(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'own.db'}", workflows=[double])
    inner = app.behind_auth(own)
    try:
        assert (await ask(inner)).text == "local admin /health/live"
        assert (await ask(inner, at=("203.0.113.9", 1))).status_code == 403
        assert (await ask(inner, method="POST", origin="http://localhost")).status_code == 403
        assert (await ask(inner, method="POST", origin="http://localhost", x_romancy_request="1")).status_code == 200
    finally:
        await app.shutdown()


def test_an_unknown_role_is_refused(app: App) -> None:
    with pytest.raises(ConfigurationError, match="admin, read, events"):
        app.behind_auth(own, role="boss")


async def test_a_workflow_starts_with_json_that_fits_its_schema(app: App) -> None:
    schema = app.input_schema(double)
    assert (schema["required"], schema["properties"]["number"]["type"]) == (["number"], "integer")
    assert app.input_schema("double") == schema
    async with app:
        handle = await app.start_with_input("double", {"number": 21}, instance_id="d-1")
        assert (handle.instance_id, await handle.result(timeout=30)) == ("d-1", 42)
        with pytest.raises(PayloadError, match="number: is missing"):
            await app.start_with_input(double, {})
        with pytest.raises(WorkflowNotFoundError):
            await app.start_with_input("triple", {})
