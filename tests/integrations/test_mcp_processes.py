"""Tests of an MCP server in a process that is killed: the next process continues the instances."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult
from tests.integrations.integration_helpers import wait_for
from tests.integrations.mcp_tasks_client import TasksClient, get_task, start_task

SHOP = Path(__file__).with_name("mcp_shop_server.py")


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "SHOP": str(folder), "AUTH": "yes"}


def extensions_for(tasks: bool) -> list[TasksClient]:
    return [TasksClient()] if tasks else []


def connection(port: int, http: httpx2.AsyncClient) -> Any:
    return streamable_http_client(f"http://127.0.0.1:{port}/", http_client=http)


@asynccontextmanager
async def over_stdio(folder: Path, mode: str, *, tasks: bool = False) -> AsyncIterator[Client]:
    """A client that starts a server process and talks to it over stdio."""
    server = StdioServerParameters(command=sys.executable, args=[str(SHOP), "stdio"], env=environment(folder))
    with (folder / "stderr").open("a") as errors:
        async with Client(stdio_client(server, errlog=errors), mode=mode, extensions=extensions_for(tasks)) as client:
            yield client


@contextmanager
def http_server(folder: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a server process; yield it and its port."""
    command = [sys.executable, str(SHOP), "http", str(port)]
    with subprocess.Popen(command, env=environment(folder), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@asynccontextmanager
async def over_http(port: int, mode: str, *, tasks: bool = False) -> AsyncIterator[Client]:
    """A client over HTTP with the token of an administrator."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": "Bearer the-admin"}, timeout=60) as http,
        Client(connection(port, http), mode=mode, extensions=extensions_for(tasks)) as client,
    ):
        yield client


def carrying_processes(folder: Path) -> list[int]:
    """The ids of the processes that have begun the activity `carry`."""
    return [int(path.name.partition("-")[2]) for path in folder.glob("carrying-*")]


def content_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def check_that_it_finishes(client: Client, instance_id: str, folder: Path) -> None:
    """Check that the new process finishes the instance without repeating `pack`."""
    status = content_of(await client.call_tool("workflow_status", {"instance_id": instance_id}))
    assert (status["ended"], status["steps_done"], status["last_step"]) == (False, 1, "pack")
    assert status["poll_interval_ms"] >= 1000
    (folder / "gate").touch()
    result = await client.call_tool("workflow_result", {"instance_id": instance_id, "wait": 50})
    assert content_of(result) == {"result": "a box with 2 tea, delivered"}
    assert (folder / "packed").read_text() == "2 tea\n"


@pytest.mark.chaos
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_stdio_a_new_process_continues(tmp_path: Path, mode: str) -> None:
    async with over_stdio(tmp_path, mode) as client:
        started = content_of(await client.call_tool("order", {"item": "tea", "amount": 2}))
        [pid] = await wait_for(lambda: carrying_processes(tmp_path), "the activity has begun")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(MCPError, match="closed"):
            await client.call_tool("workflow_status", {"instance_id": started["instance_id"]})
    async with over_stdio(tmp_path, mode) as client:
        await check_that_it_finishes(client, started["instance_id"], tmp_path)


@pytest.mark.chaos
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_http_the_same_client_asks_the_new_process(tmp_path: Path, mode: str) -> None:
    with http_server(tmp_path) as (first, port):
        async with over_http(port, mode) as client:
            started = content_of(await client.call_tool("order", {"item": "tea", "amount": 2}))
            await wait_for(lambda: carrying_processes(tmp_path), "the activity has begun")
            first.kill()
            first.wait()
            with http_server(tmp_path, port):
                await check_that_it_finishes(client, started["instance_id"], tmp_path)


async def check_that_the_task_finishes(client: Client, task_id: str, folder: Path) -> None:
    """Check that the new process finishes the task without repeating `pack`."""
    assert (await get_task(client.session, task_id)).status == "working"
    (folder / "gate").touch()
    while (state := await get_task(client.session, task_id)).status == "working":
        await asyncio.sleep(0.05)
    assert state.result is not None
    assert state.result["structuredContent"] == {"result": "a box with 2 tea, delivered"}
    assert (folder / "packed").read_text() == "2 tea\n"


@pytest.mark.chaos
async def test_over_stdio_a_task_is_known_to_the_new_process(tmp_path: Path) -> None:
    async with over_stdio(tmp_path, "auto", tasks=True) as client:
        task = await start_task(client, "order", {"item": "tea", "amount": 2})
        [pid] = await wait_for(lambda: carrying_processes(tmp_path), "the activity has begun")
        os.kill(pid, signal.SIGKILL)
    async with over_stdio(tmp_path, "auto", tasks=True) as client:
        await check_that_the_task_finishes(client, task.task_id, tmp_path)


@pytest.mark.chaos
async def test_over_http_a_task_is_known_to_the_new_process(tmp_path: Path) -> None:
    with http_server(tmp_path) as (first, port):
        async with over_http(port, "auto", tasks=True) as client:
            task = await start_task(client, "order", {"item": "tea", "amount": 2})
            await wait_for(lambda: carrying_processes(tmp_path), "the activity has begun")
            first.kill()
            first.wait()
            with http_server(tmp_path, port):
                await check_that_the_task_finishes(client, task.task_id, tmp_path)


async def test_the_server_ends_when_the_client_goes(tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    async with over_stdio(tmp_path, "auto") as client:
        started = content_of(await client.call_tool("order", {"item": "tea"}))
        assert content_of(await client.call_tool("workflow_result", {"instance_id": started["instance_id"], "wait": 30}))
    [pid] = carrying_processes(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert "Traceback" not in (tmp_path / "stderr").read_text()
