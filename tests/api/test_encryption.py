"""The API and the viewer with encrypted payloads: with the key they show them, without it they respond and show none."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter
from tests.api.fake_manager import get

from romancy import App, Client, Encrypt, WorkflowContext, WorkflowFailedError, wait_event, workflow
from romancy.api.endpoints import BASE, ENDPOINTS
from romancy.testing import TestEnvironment

KEY = Encrypt({"k": b"k" * 32})
SECRET = "s3kr1t"


@workflow(name="encoded.order")
async def order(ctx: WorkflowContext, customer: str) -> Any:
    return (await wait_event(ctx, "paid", match={"by": customer})).data


@workflow(name="encoded.failing")
async def failing(ctx: WorkflowContext, customer: str) -> None:
    raise ValueError(customer)


@pytest.fixture
async def prepared(database: str) -> str:
    """A database with a waiting instance, a failed one, and an event that no instance waits for."""
    async with TestEnvironment(database, workflows=[order, failing], codec=KEY, broker="http://127.0.0.1:9/") as env:
        await env.app.start_workflow(order.with_options(instance_id="waits"), SECRET)
        with pytest.raises(WorkflowFailedError):
            await (await env.app.start_workflow(failing.with_options(instance_id="failed"), SECRET)).result()
        await env.app.send_event("paid", "tests", {"by": "another", "note": SECRET})
        await env.settle()
    return database


PAGES = [
    ("instance", {"id": "waits"}),
    ("instance", {"id": "failed"}),
    ("instance", {"id": "waits", "tab": "history"}),
    ("start", {"like": "waits", "workflow": "encoded.order"}),
    ("start", {"like": "waits", "workflow": "encoded.order", "as": "json"}),
    ("instances", {"q": "input.customer:x"}),
    ("outbox", {}),
    ("payload", {"id": "waits", "what": "input"}),
]


async def all_responses(app: App) -> str:
    """The text of all pages and of all responses of the API."""
    shown = ""
    for path, query in PAGES:
        answer = await get(app, f"/viewer/{path}", **query)
        assert answer.status < 500, (path, answer.body)
        shown += answer.body.decode()
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET" or "stream" in endpoint.path:
            continue
        named = [{"id": "waits"}, {"id": "failed"}] if "id" in endpoint.request_model.model_fields else [{}]
        for query in named:
            answer = await get(app, BASE + endpoint.path, **query)
            assert answer.status < 500, (endpoint.path, answer.body)
            if answer.status == 200:
                TypeAdapter(endpoint.response_type).validate_json(answer.body)
                shown += answer.body.decode()
    return shown


async def test_without_the_key_every_request_succeeds_and_shows_no_payload(prepared: str) -> None:
    async with App(prepared, workflows=[]) as app:
        shown = await all_responses(app)
        assert "encrypted with key" in shown
        assert SECRET not in shown
        why = (await get(app, f"{BASE}/instance/explain", id="waits")).json
        assert "it is encoded" in str(why)
        found = (await get(app, f"{BASE}/instances", filter="input.customer:s3kr1t")).json
        assert found["items"] == []


async def test_with_the_key_payloads_are_shown(prepared: str) -> None:
    async with App(prepared, workflows=[], codec=KEY) as app:
        shown = await all_responses(app)
        assert SECRET in shown
        assert "encrypted with key" not in shown
        why = (await get(app, f"{BASE}/instance/explain", id="waits")).json
        assert "another" in str(why)
        found = (await get(app, f"{BASE}/instances", filter="input.customer:s3kr1t")).json
        assert {one["instance_id"] for one in found["items"]} == {"waits", "failed"}
    async with Client(prepared, codec=KEY) as client:
        (entry,) = (await client.list_outbox()).items
        assert entry.event.data == {"by": "another", "note": SECRET}
