"""Tests of workflows as MCP tools, with the SDK's client over streamable HTTP in one process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClientExtension
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, CancelTaskRequestParams, Result, TextContent
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.integrations.mcp_tasks_client import CancelTask, TasksClient, get_task, start_task

from romancy import (
    ActivityContext,
    App,
    ConfigurationError,
    Instance,
    RetryPolicy,
    Status,
    Token,
    WaitingFor,
    WorkflowContext,
    WorkflowNotFoundError,
    activity,
    wait_event,
    workflow,
)
from romancy.admin.local import DatabaseManager
from romancy.integrations.mcp import ToolServer
from romancy.integrations.mcp.progress import Steps, message_of, poll_interval, status_of
from romancy.integrations.mcp.server import _StreamableHTTP

TOKENS = [Token("the-admin"), Token("the-reader", role="read"), Token("the-sender", role="events")]
HERE = ("127.0.0.1", 50000)
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "mcp.md"


@dataclass
class Item:
    sku: str
    amount: int


@activity(retry=RetryPolicy.none())
async def price(ctx: ActivityContext, item: Item) -> float:
    if item.amount > 99:
        raise ValueError("there are not so many")
    return item.amount * 2.5


@workflow
async def quote(ctx: WorkflowContext, item: Item, rebate: float = 0.0) -> float:
    """Quote the price of an item."""
    return await price(ctx, item) - rebate


@workflow
async def approval(ctx: WorkflowContext, what: str) -> dict[str, object]:
    return {"what": what, "answer": (await wait_event(ctx, "decided", subject=what)).data}


@workflow
async def secret(ctx: WorkflowContext) -> str:
    return "gold"


class Shop:
    """An app with a tool server, and clients of it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.server = ToolServer(app, name="shop", instructions="Ask for prices.")
        self.server.tool(quote)
        self.server.tool(name="approve", description="Wait for a yes.")(approval)

    @asynccontextmanager
    async def client(
        self,
        token: str | None = None,
        *,
        mode: str = "auto",
        at: tuple[str, int] | None = HERE,
        tasks: bool = False,
        url: str = "http://localhost/",
        outer: Any = None,
        **headers: str,
    ) -> AsyncIterator[Client]:
        """Connect a client of the SDK."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        transport = httpx2.ASGITransport(outer or self.server.asgi_app(), client=at)  # type: ignore[arg-type]
        extensions: Sequence[ClientExtension] = [TasksClient()] if tasks else []
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, headers=headers))
            connection = streamable_http_client(url, http_client=http)
            yield await stack.enter_async_context(Client(connection, mode=mode, extensions=extensions))

    async def decide(self, what: str) -> None:
        await self.app.send_event("decided", "/test", "yes", subject=what)


@asynccontextmanager
async def opened(folder: Path, auth: list[Token] | None = None) -> AsyncIterator[Shop]:
    async with App(f"sqlite:///{folder / 'shop.db'}", workflows=[quote, approval, secret], auth=auth) as app:
        yield Shop(app)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with opened(tmp_path) as shop:
        yield shop


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Shop]:
    async with opened(tmp_path, TOKENS) as shop:
        yield shop


def content_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def error_of(result: CallToolResult) -> str:
    assert result.is_error
    [text] = result.content
    assert isinstance(text, TextContent)
    return text.text


# --- tools


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_tool_is_described_by_its_workflow(shop: Shop, mode: str) -> None:
    async with shop.client(mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert client.instructions == "Ask for prices."
    assert list(tools) == ["quote", "approve", "workflow_status", "workflow_result", "workflow_cancel"]
    assert (tools["quote"].description or "").startswith("Quote the price of an item.")
    assert (tools["approve"].description or "").startswith("Wait for a yes.")
    schema = tools["quote"].input_schema
    assert schema["required"] == ["item"]
    assert schema["properties"]["rebate"]["default"] == 0.0
    assert schema["$defs"]["Item"]["properties"]["amount"]["type"] == "integer"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_starts_an_instance_that_other_tools_query(shop: Shop, mode: str) -> None:
    async with shop.client(mode=mode) as client:
        started = content_of(await client.call_tool("quote", {"item": {"sku": "tea", "amount": 2}, "rebate": 1}))
        which = {"instance_id": started["instance_id"]}
        assert content_of(await client.call_tool("workflow_result", {**which, "wait": 30})) == {"result": 4.0}
        status = content_of(await client.call_tool("workflow_status", which))
    assert (status["status"], status["ended"], status["tool"]) == ("completed", True, "quote")
    assert (status["steps_done"], status["last_step"], status["poll_interval_ms"]) == (1, "price", None)


async def test_the_status_has_the_wait_and_the_poll_interval(shop: Shop) -> None:
    async with shop.client() as client:
        started = content_of(await client.call_tool("approve", {"what": "leave"}))
        which = {"instance_id": started["instance_id"]}
        async with shop.client() as other:  # another client gets the same reply
            assert "no result yet: call again in" in error_of(await other.call_tool("workflow_result", which))
        await shop.decide("leave")
        result = content_of(await client.call_tool("workflow_result", {**which, "wait": 30}))
    assert result == {"result": {"what": "leave", "answer": "yes"}}


# --- four tools for a workflow


@asynccontextmanager
async def serve_four_tools(folder: Path, auth: list[Token] | None = None) -> AsyncIterator[Shop]:
    """A server with four tools for each of two workflows, and without the general tools."""
    async with App(f"sqlite:///{folder / 'shop.db'}", workflows=[quote, approval], auth=auth) as app:
        shop = Shop(app)
        shop.server = ToolServer(app)
        shop.server.tools(quote)
        shop.server.tools(
            approval, prefix="leave", description="Ask for leave.", result_description="Yes or no.", start="ask_for_leave"
        )
        yield shop


async def test_a_workflow_can_have_four_tools_of_its_own(tmp_path: Path) -> None:
    async with serve_four_tools(tmp_path) as shop, shop.client() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        started = content_of(await client.call_tool("quote_start", {"item": {"sku": "tea", "amount": 2}}))
        which = {"instance_id": started["instance_id"]}
        assert content_of(await client.call_tool("quote_result", {**which, "wait": 30})) == {"result": 5.0}
        assert content_of(await client.call_tool("quote_status", which))["ended"] is True
    assert set(tools) == {
        *("quote_start", "quote_status", "quote_result", "quote_cancel"),
        *("ask_for_leave", "leave_status", "leave_result", "leave_cancel"),
    }
    assert (tools["ask_for_leave"].description or "").startswith("Ask for leave.")
    assert "call leave_status, then leave_result" in (tools["ask_for_leave"].description or "")
    assert tools["leave_result"].description == "Yes or no."
    assert tools["leave_cancel"].annotations is not None
    assert tools["leave_cancel"].annotations.destructive_hint is True
    assert started["next"] == "Call quote_status or quote_result with this instance_id."


async def test_tools_of_a_workflow_know_only_its_instances(tmp_path: Path) -> None:
    async with serve_four_tools(tmp_path) as shop, shop.client() as client:
        which = {"instance_id": content_of(await client.call_tool("ask_for_leave", {"what": "leave"}))["instance_id"]}
        for question in ("quote_status", "quote_result", "quote_cancel"):
            assert "There is no instance" in error_of(await client.call_tool(question, which))
        assert content_of(await client.call_tool("leave_cancel", {**which, "reason": "rain"}))
        assert "cancelled" in error_of(await client.call_tool("leave_result", {**which, "wait": 30}))
        with pytest.raises(MCPError, match="no tool 'workflow_status'"):
            await client.call_tool("workflow_status", which)


async def test_a_reader_may_query_with_tools_of_a_workflow_but_not_start_or_cancel(tmp_path: Path) -> None:
    async with (
        serve_four_tools(tmp_path, TOKENS) as shop,
        shop.client("the-admin") as admin,
        shop.client("the-reader") as reader,
    ):
        which = {"instance_id": content_of(await admin.call_tool("ask_for_leave", {"what": "leave"}))["instance_id"]}
        assert content_of(await reader.call_tool("leave_status", which))["ended"] is False
        assert "role admin" in error_of(await reader.call_tool("ask_for_leave", {"what": "gold"}))
        assert "role admin" in error_of(await reader.call_tool("leave_cancel", which))


async def test_both_kinds_of_tools_stand_beside_each_other(shop: Shop) -> None:
    shop.server.tools(secret, prefix="vault")
    async with shop.client() as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        started = content_of(await client.call_tool("vault_start"))
        result = content_of(await client.call_tool("vault_result", {"instance_id": started["instance_id"], "wait": 30}))
    assert names >= {"quote", "workflow_status", "vault_start", "vault_status", "vault_result", "vault_cancel"}
    assert result == {"result": "gold"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "item: is missing"),
        ({"item": {"sku": "tea"}}, "item.amount: Field required"),
        ({"item": {"sku": "tea", "amount": "many"}}, "item.amount: Input should be a valid integer"),
        ({"item": {"sku": "tea", "amount": 1}, "color": "red"}, "color: is not a parameter"),
    ],
)
async def test_invalid_input_is_reported_by_field_and_starts_nothing(
    shop: Shop, arguments: dict[str, Any], message: str
) -> None:
    async with shop.client() as client:
        assert message in error_of(await client.call_tool("quote", arguments))
    assert (await shop.app.list_instances()).items == []


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("workflow_status", {}, "instance_id: Field required"),
        ("workflow_status", {"instance_id": "x", "other": 1}, "other: Extra inputs"),
        ("workflow_result", {"instance_id": "x", "wait": 1000}, "wait: Input should be less than or equal to 60"),
        ("workflow_result", {"instance_id": "x"}, "There is no instance 'x'"),
        ("workflow_cancel", {"instance_id": "x"}, "There is no instance 'x'"),
    ],
)
async def test_invalid_queries_are_refused_with_a_message(
    shop: Shop, tool: str, arguments: dict[str, Any], message: str
) -> None:
    async with shop.client() as client:
        assert message in error_of(await client.call_tool(tool, arguments))


async def test_a_workflow_that_fails_is_an_error_of_its_tool(shop: Shop) -> None:
    async with shop.client() as client:
        started = content_of(await client.call_tool("quote", {"item": {"sku": "tea", "amount": 100}}))
        query = {"instance_id": started["instance_id"], "wait": 30}
        assert "there are not so many" in error_of(await client.call_tool("workflow_result", query))


async def test_a_call_can_be_cancelled_once(shop: Shop) -> None:
    async with shop.client() as client:
        which = {"instance_id": content_of(await client.call_tool("approve", {"what": "leave"}))["instance_id"]}
        assert content_of(await client.call_tool("workflow_cancel", {**which, "reason": "too late"}))
        assert "cancelled" in error_of(await client.call_tool("workflow_result", {**which, "wait": 30}))
        assert "cannot be cancelled" in error_of(await client.call_tool("workflow_cancel", which))
    lines = (await DatabaseManager(shop.app).list_audit(instance_id=which["instance_id"])).items
    assert [(line.action, line.detail) for line in lines] == [("cancel", "too late"), ("start", "approval")]
    assert all(line.actor.endswith("(MCP)") for line in lines)


async def test_a_call_repeated_under_one_id_starts_once(shop: Shop) -> None:
    meta: Any = {"romancy/instance-id": "leave-7"}
    async with shop.client() as client:
        for _ in range(2):
            assert content_of(await client.call_tool("approve", {"what": "leave"}, meta=meta))["instance_id"] == "leave-7"
        assert "leave-7" in error_of(await client.call_tool("approve", {"what": "other"}, meta=meta))
        meta = {"romancy/instance-id": 7}
        assert "must be a string" in error_of(await client.call_tool("approve", {"what": "x"}, meta=meta))
    assert len((await shop.app.list_instances()).items) == 1


async def test_instances_of_other_workflows_are_not_seen(shop: Shop) -> None:
    hidden = await shop.app.start_workflow(secret)
    await hidden.result()
    async with shop.client() as client:
        for tool in ("workflow_status", "workflow_result", "workflow_cancel"):
            assert "There is no instance" in error_of(await client.call_tool(tool, {"instance_id": hidden.instance_id}))
        with pytest.raises(MCPError, match="no tool 'secret'"):
            await client.call_tool("secret", {})


# --- prompts


async def test_functions_are_prompts(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    @shop.server.prompt
    def sell(item: str) -> str:
        """A prompt that asks for a sales pitch."""
        return f"Sell me {item}."

    @shop.server.prompt(name="broken", title="A broken one")
    async def fails() -> str:
        raise RuntimeError("the reason")

    async with shop.client() as client:
        listed = {one.name: one for one in (await client.list_prompts()).prompts}
        [message] = (await client.get_prompt("sell", {"item": "tea"})).messages
        assert isinstance(message.content, TextContent)
        assert message.content.text == "Sell me tea."
        with pytest.raises(MCPError, match="Missing required arguments"):
            await client.get_prompt("sell")
        with pytest.raises(MCPError, match="no prompt 'buy'"):
            await client.get_prompt("buy")
        with pytest.raises(MCPError) as broken:
            await client.get_prompt("broken")
    assert (listed["sell"].description, listed["broken"].title) == ("A prompt that asks for a sales pitch.", "A broken one")
    assert [one.name for one in listed["sell"].arguments or ()] == ["item"]
    assert "the reason" not in str(broken.value)
    assert "the reason" in caplog.text


# --- tasks


async def test_a_client_that_knows_tasks_gets_the_result_from_one_call(shop: Shop) -> None:
    async with shop.client(tasks=True) as client:
        assert client.server_capabilities.extensions == {"io.modelcontextprotocol/tasks": {}}
        assert content_of(await client.call_tool("quote", {"item": {"sku": "tea", "amount": 2}})) == {"result": 5.0}
        failed = await client.call_tool("quote", {"item": {"sku": "tea", "amount": 100}})
        assert "there are not so many" in error_of(failed)
        assert "item: is missing" in error_of(await client.call_tool("quote", {}))


async def test_a_task_is_the_instance(shop: Shop) -> None:
    async with shop.client(tasks=True) as client:
        task = await start_task(client, "approve", {"what": "leave"})
        assert (task.status, task.poll_interval_ms >= 1000) == ("working", True)
        assert (await get_task(client.session, task.task_id)).status == "working"
        await shop.decide("leave")
        await shop.app.get_handle(task.task_id).result(timeout=30)
        assert (await get_task(client.session, task.task_id)).status == "completed"


async def test_a_task_is_cancelled_and_cancelling_again_is_fine(shop: Shop) -> None:
    async with shop.client(tasks=True) as client:
        task = await start_task(client, "approve", {"what": "leave"})
        for _ in range(2):
            await client.session.send_request(CancelTask(params=CancelTaskRequestParams(task_id=task.task_id)), Result)
            with pytest.raises(Exception, match="cancelled"):
                await shop.app.get_handle(task.task_id).result(timeout=30)
        assert (await get_task(client.session, task.task_id)).status == "cancelled"
        with pytest.raises(MCPError, match="There is no instance 'x'"):
            await get_task(client.session, "x")


async def test_a_client_without_the_extension_gets_no_task(shop: Shop) -> None:
    async with shop.client() as client:
        started = content_of(await client.call_tool("approve", {"what": "leave"}))
        with pytest.raises(MCPError, match="did not declare"):
            await get_task(client.session, started["instance_id"])


# --- access


async def status_for(shop: Shop, **asking: Any) -> int:
    """The HTTP status of the response to a plain request."""
    at = asking.pop("at", HERE)
    transport = httpx2.ASGITransport(shop.server.asgi_app(), client=at)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"accept": "application/json, text/event-stream", **asking.pop("headers", {})}
    url = asking.pop("url", "http://localhost/")
    async with httpx2.AsyncClient(transport=transport) as http:
        return (await http.request(asking.pop("method", "POST"), url, json=body, headers=headers)).status_code


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "Bearer the-admi", "Basic the-admin", "the-admin"])
async def test_without_a_token_that_is_known_nothing_is_answered(guarded: Shop, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    for method in ("POST", "GET", "DELETE"):
        assert await status_for(guarded, headers=headers, method=method) == 401


async def test_a_token_that_is_known_is_answered_from_anywhere(guarded: Shop) -> None:
    headers = {"authorization": "Bearer the-admin"}
    assert await status_for(guarded, headers=headers, at=("203.0.113.9", 1), url="https://shop.example/") == 200
    assert await status_for(guarded, headers={"authorization": "Bearer the-sender"}) == 403
    assert await status_for(guarded, headers=headers, method="GET") == 405


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_reader_may_query_but_not_start_or_cancel(guarded: Shop, mode: str) -> None:
    async with guarded.client("the-admin", mode=mode) as admin, guarded.client("the-reader", mode=mode) as reader:
        which = {"instance_id": content_of(await admin.call_tool("approve", {"what": "leave"}))["instance_id"]}
        assert content_of(await reader.call_tool("workflow_status", which))["ended"] is False
        assert "role admin" in error_of(await reader.call_tool("approve", {"what": "gold"}))
        assert "role admin" in error_of(await reader.call_tool("workflow_cancel", which))
        assert content_of(await admin.call_tool("workflow_cancel", which))
    assert len((await guarded.app.list_instances()).items) == 1


async def test_a_reader_with_tasks_may_not_start_or_cancel_either(guarded: Shop) -> None:
    async with guarded.client("the-admin", tasks=True) as admin, guarded.client("the-reader", tasks=True) as reader:
        task = await start_task(admin, "approve", {"what": "leave"})
        assert (await get_task(reader.session, task.task_id)).status == "working"
        assert "role admin" in error_of(await reader.call_tool("approve", {"what": "gold"}))
        with pytest.raises(MCPError, match="role admin"):
            await reader.session.send_request(CancelTask(params=CancelTaskRequestParams(task_id=task.task_id)), Result)


@pytest.mark.parametrize(
    "asking",
    [
        {"at": ("203.0.113.9", 1)},
        {"at": None},
        {"headers": {"x-forwarded-for": "127.0.0.1"}},
        {"headers": {"origin": "https://evil.example"}},
        {"url": "http://evil.example/"},
    ],
)
async def test_without_auth_only_this_machine_is_answered(shop: Shop, asking: dict[str, Any]) -> None:
    assert await status_for(shop) == 200
    assert await status_for(shop, **asking) == 403


@pytest.mark.parametrize("tasks", [False, True])
async def test_requests_without_a_checked_caller_are_refused(guarded: Shop, tasks: bool) -> None:
    bare = _StreamableHTTP(guarded.server._server(trusting=False))
    async with guarded.client("the-admin", outer=bare, tasks=tasks) as client:
        for tool, arguments in (("approve", {"what": "leave"}), ("workflow_status", {"instance_id": "x"})):
            with pytest.raises(MCPError, match="not been authenticated"):
                await client.call_tool(tool, arguments)
    assert (await guarded.app.list_instances()).items == []


async def test_it_can_be_mounted_and_starts_the_app_with_the_first_request(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'shop.db'}", workflows=[quote, approval])
    shop = Shop(app)
    site = Starlette(routes=[Mount("/tools", shop.server.asgi_app())])
    try:
        async with shop.client(outer=site, url="http://localhost/tools/") as client:
            started = content_of(await client.call_tool("quote", {"item": {"sku": "tea", "amount": 2}}))
            assert await app.get_handle(started["instance_id"]).result(timeout=30) == 5.0
    finally:
        await app.shutdown()


# --- what can be a tool


def test_what_cannot_be_a_tool_is_refused(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'shop.db'}", workflows=[quote])
    server = ToolServer(app)
    server.tool(quote)
    with pytest.raises(ConfigurationError, match="is already a tool"):
        server.tool(name="again")(quote)
    with pytest.raises(ConfigurationError, match="Two tools have the name 'quote'"):
        server.tool(name="quote")(approval)
    with pytest.raises(ConfigurationError, match="Two tools have the name 'workflow_status'"):
        server.tool(name="workflow_status")(approval)
    with pytest.raises(ConfigurationError, match="letters, digits"):
        server.tool(name="a b")(approval)
    with pytest.raises(ConfigurationError, match=r"above @workflow"):
        server.tool(price)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="Two tools have the name 'quote'"):
        server.tools(approval, start="quote")
    with pytest.raises(ConfigurationError, match="Two tools have the name 'workflow_status'"):
        server.tools(approval, prefix="workflow")
    with pytest.raises(ConfigurationError, match="Two tools have the name 'leave_status'"):
        server.tools(approval, prefix="leave", start="leave_status")
    with pytest.raises(ConfigurationError, match="letters, digits"):
        server.tools(approval, prefix="a b")
    with pytest.raises(ConfigurationError, match="give a workflow"):
        server.tools(price)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not an App"):
        ToolServer("sqlite:///shop.db")  # type: ignore[arg-type]
    server.tool(approval)
    with pytest.raises(WorkflowNotFoundError, match="not registered"):
        server.asgi_app()


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("romancy.integrations.mcp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp.types", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'romancy\[mcp\]'"):
        importlib.import_module("romancy.integrations.mcp")


# --- poll intervals

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def instance(status: Status, *, age: float = 0, due: float | None = None) -> Instance:
    now = NOON + timedelta(seconds=age)
    until = None if due is None else now + timedelta(seconds=due)
    waits = (WaitingFor("timer", "", now, until, "timer:1"),) if due is not None else ()
    return Instance("i", "w", None, status, 1, None, {}, None, None, waits, None, NOON, NOON, now, None)


@pytest.mark.parametrize(
    ("asked_about", "seconds"),
    [
        (instance(Status.RUNNING), 1),
        (instance(Status.RUNNING, age=100), 10),
        (instance(Status.RUNNING, age=10_000), 30),
        (instance(Status.WAITING_FOR_EVENT, age=10_000), 5),
        (instance(Status.WAITING_FOR_TIMER, due=0.1), 1),
        (instance(Status.WAITING_FOR_TIMER, due=12), 12),
        (instance(Status.WAITING_FOR_TIMER, due=86_400), 30),
        (instance(Status.BLOCKED), 5),
    ],
)
def test_the_suggested_interval_fits_what_is_waited_for(asked_about: Instance, seconds: float) -> None:
    assert poll_interval(asked_about) == timedelta(seconds=seconds)


@pytest.mark.parametrize("status", [one for one in Status if one.ended])
def test_an_ended_instance_has_no_poll_interval(status: Status) -> None:
    assert poll_interval(instance(status)) is None


def test_progress_is_a_sentence() -> None:
    assert message_of(instance(Status.RUNNING), Steps(1, "pack")) == "running; 1 step completed, the last one is pack"
    assert message_of(instance(Status.RUNNING), Steps(7, "pack", more=True)) == "running; more than 7 steps completed"
    waiting = message_of(instance(Status.WAITING_FOR_TIMER, due=5), Steps())
    assert waiting == "waiting_for_timer (timer until 2030-01-01T12:00:05+00:00); no steps completed yet"


# --- the page


def test_the_reference_names_everything() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    offered = {name for name in vars(ToolServer) if not name.startswith("_")}
    assert all(f"`{name}(" in page for name in offered)
    assert all(f"`{field}`" in page for field in status_of(instance(Status.RUNNING), Steps(), "tool"))
