"""Tests of Edda's integrations: MCP, OpenTelemetry, and the modules that are not available."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from opentelemetry import metrics, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

from romancy import ConfigurationError
from romancy.integrations import edda
from romancy.integrations.edda import EddaApp, WorkflowContext, wait_event, workflow
from romancy.integrations.edda.current_app import unset_current_app
from romancy.integrations.edda.integrations.mcp import EddaMCPServer
from romancy.integrations.edda.integrations.opentelemetry import (
    OpenTelemetryHooks,
    extract_trace_context,
    inject_trace_context,
)
from romancy.integrations.edda.unsupported import MODULES
from romancy.integrations.opentelemetry import trace_id_of

PACKAGE = edda.__name__
HERE = ("127.0.0.1", 50000)


# --- modules that are not available


@pytest.mark.parametrize("name", [*MODULES, "storage.models", "viewer_ui.app", "integrations.graph.nodes"])
def test_an_unavailable_module_names_the_replacement(name: str) -> None:
    top = next(one for one in MODULES if name == one or name.startswith(f"{one}."))
    for error in (ConfigurationError, ImportError):
        with pytest.raises(error, match=f"has no '{top}': .*(use|viewer|engine)"):
            importlib.import_module(f"{PACKAGE}.{name}")


@pytest.mark.parametrize("line", ["from {0} import storage", "from {0}.integrations import graph", "import {0}.replay"])
def test_every_way_to_import_an_unavailable_module_names_the_replacement(line: str) -> None:
    with pytest.raises(ConfigurationError, match="has no '"):
        exec(line.format(PACKAGE))


def test_a_module_that_edda_lacks_too_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{PACKAGE}.sagas")


# --- MCP


class Cup(BaseModel):
    tea: str
    sugar: int = 0


async def brew(ctx: WorkflowContext, cup: Cup) -> dict[str, Any]:
    """Brew a cup."""
    return cup.model_dump()


@workflow(event_handler=True)
async def serve(ctx: WorkflowContext, table: int) -> Any:
    """Serve the tea when the event arrives."""
    return (await wait_event(ctx, "asked")).data


@asynccontextmanager
async def serving(file: str, **options: Any) -> AsyncIterator[EddaMCPServer]:
    server = EddaMCPServer("tea", f"sqlite+aiosqlite:///{file}", workflows=[], **options)
    server.durable_tool(description="Tea, quickly.")(brew)
    server.durable_tool(serve)

    @server.prompt
    async def explain(instance_id: str) -> str:
        """Explain the status of an instance."""
        found = await server.storage.get_instance(instance_id)
        return "nothing" if found is None else str(found["status"])

    try:
        yield server
    finally:
        await server.shutdown()


@asynccontextmanager
async def client_of(site: Any, token: str | None = None, path: str = "/mcp") -> AsyncIterator[Client]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    transport = httpx2.ASGITransport(site, client=HERE)
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers) as http,
        Client(streamable_http_client(f"http://localhost{path}", http_client=http)) as client,
    ):
        yield client


def content_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


@pytest.mark.parametrize("path", ["/", "/mcp", "/mcp/"])
async def test_each_workflow_is_four_tools_under_eddas_names(file: str, path: str) -> None:
    async with serving(file) as server, client_of(server.asgi_app(), path=path) as client:
        tools = {tool.name: tool.description or "" for tool in (await client.list_tools()).tools}
        started = content_of(await client.call_tool("brew", {"cup": {"tea": "green"}}))
        which = {"instance_id": started["instance_id"]}
        assert content_of(await client.call_tool("brew_result", {**which, "wait": 30})) == {
            "result": {"tea": "green", "sugar": 0}
        }
        assert content_of(await client.call_tool("brew_status", which))["status"] == "completed"
        [message] = (await client.get_prompt("explain", which)).messages
        assert isinstance(message.content, TextContent)
        assert message.content.text == "completed"
    assert started["instance_id"].startswith("brew-")
    assert set(tools) == {f"{one}{end}" for one in ("brew", "serve") for end in ("", "_status", "_result", "_cancel")}
    assert tools["brew"].startswith("Tea, quickly.")
    assert tools["serve"].startswith("Serve the tea when the event arrives.")
    assert tools["serve_result"] == "Get result of serve workflow (if completed)"


async def test_the_paths_of_the_app_stand_beside_it(file: str) -> None:
    async with serving(file) as server:
        site = server.asgi_app()
        transport = httpx2.ASGITransport(site, client=HERE)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            event = {"specversion": "1.0", "type": "serve", "source": "/door", "id": "1", "data": {"table": 3}}
            (instance_id,) = (await http.post("/events", json=event)).json()["instance_ids"]
            assert (await http.post(f"/cancel/{instance_id}")).status_code == 200
            assert (await http.get("/health/live")).status_code == 200
        async with client_of(site) as client:
            again = await client.call_tool("serve_cancel", {"instance_id": instance_id})
        assert again.is_error


async def test_a_token_verifier_decides_and_no_token_is_no_token(file: str) -> None:
    shown: list[str] = []

    def verify(token: str) -> bool:
        shown.append(token)
        return token == "good"

    async with serving(file, token_verifier=verify) as server:
        site = server.asgi_app()
        async with client_of(site, "good") as client:
            assert content_of(await client.call_tool("brew", {"cup": {"tea": "green"}}))
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(site, client=HERE)) as http:
            for headers in (
                {},
                {"authorization": "Bearer bad"},
                {"authorization": "Basic good"},
                {"authorization": "Bearer "},
            ):
                answer = await http.post("http://localhost/mcp", json=body, headers=headers)
                assert answer.status_code == 401, headers
    assert set(shown) == {"good", "bad"}


async def test_a_verifier_may_be_awaited(file: str) -> None:
    async def verify(token: str) -> bool:
        await asyncio.sleep(0)
        return token == "good"

    async with serving(file, token_verifier=verify) as server, client_of(server.asgi_app(), "good") as client:
        assert content_of(await client.call_tool("brew", {"cup": {"tea": "green"}}))


def test_a_server_of_a_closed_event_loop_is_refused(file: str) -> None:
    server = EddaMCPServer("tea", file, workflows=[])
    asyncio.run(server.initialize())
    try:
        with pytest.raises(ConfigurationError, match="Remove that call"):
            asyncio.run(server.asgi_app()({"type": "lifespan"}, _unexpected, _unexpected))  # type: ignore[arg-type]
    finally:
        unset_current_app(server._edda_app.romancy)


async def _unexpected(*_: Any) -> Any:
    raise AssertionError("nothing is received or sent")


async def test_unavailable_attributes_of_a_server_name_the_replacement(file: str) -> None:
    async with serving(file) as server:
        with pytest.raises(AttributeError, match=r"`server\.romancy`"):
            _ = server._mcp
        with pytest.raises(AttributeError, match="Did you mean 'durable_tool'"):
            _ = server.durable_tol


# --- OpenTelemetry


@workflow(event_handler=True)
async def noted(ctx: WorkflowContext) -> str:
    return (await wait_event(ctx, "paid")).type


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The exporter of a tracer provider that is set for the whole process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


async def test_the_context_in_the_data_of_events_links_their_traces(file: str, exporter: InMemorySpanExporter) -> None:
    hooks = OpenTelemetryHooks("till")
    data = inject_trace_context(hooks, "elsewhere-1", {"order": 7})
    async with EddaApp("till", file, hooks=hooks, workflows=[noted]) as app:
        await app.handle_cloudevent({"type": "noted", "source": "shop", "id": "1", "data": data})
        (found,) = (await app.find_instances())["instances"]
        await app.handle_cloudevent({"type": "paid", "source": "bank", "id": "2", "data": data})
        await app.romancy.get_handle(found["instance_id"]).result()
    linked = {one.name: one.links[0].context.trace_id for one in exporter.get_finished_spans() if one.links}
    assert linked == {"start noted": trace_id_of("elsewhere-1"), "wait paid": trace_id_of("elsewhere-1")}


def test_a_context_is_read_as_it_was_written(exporter: InMemorySpanExporter) -> None:
    data = inject_trace_context(OpenTelemetryHooks("till"), "pay-1", {"order": 7})
    assert data["order"] == 7
    found = trace.get_current_span(extract_trace_context(data)).get_span_context()
    assert found.trace_id == trace_id_of("pay-1")
    assert [extract_trace_context(one) for one in ({}, {"_trace_context": "x"})] == [None, None]


PRINTING = """
from romancy.integrations.edda.integrations.opentelemetry import OpenTelemetryHooks
from opentelemetry import metrics, trace

hooks = OpenTelemetryHooks(service_name="till", enable_metrics=True)
trace.get_tracer("x").start_span("seen").end()
metrics.get_meter("x").create_counter("counted").add(1)
"""


def test_without_providers_it_sets_up_the_console() -> None:
    done = subprocess.run([sys.executable, "-c", PRINTING], capture_output=True, text=True, timeout=50, check=True)
    for part in ('"name": "seen"', '"name": "counted"', '"service.name": "till"'):
        assert part in done.stdout


@pytest.mark.parametrize("enable_metrics", [False, True])
def test_a_missing_package_for_tracing_is_named(monkeypatch: pytest.MonkeyPatch, enable_metrics: bool) -> None:
    class ProxyTracerProvider:
        __module__ = "opentelemetry.trace"

    provided: Callable[[], Any] = TracerProvider if enable_metrics else ProxyTracerProvider
    monkeypatch.setattr(trace, "get_tracer_provider", provided)
    monkeypatch.setattr(metrics, "get_meter_provider", ProxyTracerProvider)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)
    with pytest.raises(ConfigurationError, match="pip install opentelemetry-exporter-otlp-proto-grpc"):
        OpenTelemetryHooks(otlp_endpoint="http://localhost:4317", enable_metrics=enable_metrics)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(ConfigurationError, match="pip install opentelemetry-sdk"):
        OpenTelemetryHooks(enable_metrics=enable_metrics)
