"""Tests that the API conforms to its OpenAPI document: on top of a fake manager, and on top of a database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.api.fake_manager import FakeManager, serve

from romancy import App, Token, WorkflowContext, to_wsgi, wait_event, workflow
from romancy.api.openapi import document
from romancy.http.wsgi import WSGIApp

TOKEN = Token("t" * 20)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HEADERS = {"Authorization": f"Bearer {TOKEN.value}"}
DOCUMENT = "/api/v1/openapi.json"
BOUNDED = settings(max_examples=20, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])

schema = schemathesis.openapi.from_asgi(DOCUMENT, serve(FakeManager(), [TOKEN]), headers=HEADERS)


@schema.parametrize()  # pyright: ignore[reportUntypedFunctionDecorator]
@BOUNDED
def test_on_a_fake_manager(case: Any) -> None:
    case.call_and_validate(headers=HEADERS, checks=CHECKS)


@workflow
async def order(ctx: WorkflowContext, number: int = 0) -> object:
    return (await wait_event(ctx, "paid")).data


class StoredAPI:
    """The API of an app on a file, as a WSGI application: each request of the test has an event loop of its own."""

    def __init__(self) -> None:
        self._app: WSGIApp | None = None

    def open(self, database: str) -> None:
        self._app = to_wsgi(App(database, workflows=[order], auth=[TOKEN]))

    def close(self) -> None:
        assert self._app is not None
        self._app.close()

    def __call__(self, *args: Any) -> Any:
        assert self._app is not None
        return self._app(*args)


stored_api = StoredAPI()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    stored_api.open(str(tmp_path_factory.mktemp("api") / "romancy.db"))
    yield
    stored_api.close()


# The stream of a real app lasts for a minute.
on_a_database = schemathesis.openapi.from_dict(document()).exclude(path="/api/v1/stream")
on_a_database.app = stored_api


@pytest.mark.usefixtures("database")
@on_a_database.parametrize()  # pyright: ignore[reportUntypedFunctionDecorator]
@BOUNDED
def test_on_a_database(case: Any) -> None:
    case.call_and_validate(headers=HEADERS, checks=CHECKS)
