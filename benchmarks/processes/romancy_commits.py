"""Counts romancy's commits on PostgreSQL, one workflow at a time: its writing transactions, as seen by the driver."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from asyncpg import Connection
from asyncpg.connection import LoggedQuery

from benchmarks.processes.romancy_throughput import count
from benchmarks.processes.task_entry import perform
from romancy import App, Client, WorkflowContext, wait_event, workflow
from romancy.store.postgres.pool import PostgresPool

IDLE_OPTIONS: dict[str, Any] = {"poll_interval": 3600, "heartbeat_interval": 600, "lease_timeout": 3600}
"""Options of an app without regular work, such as heartbeats."""
_WRITES = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM) romancy_(?!commits)|FROM romancy_accept_events\(")
"""A statement that writes. (The token that every transaction inserts does not count.)"""

commits: list[str] = []
"""The first write of each commit."""


@workflow
async def watch(ctx: WorkflowContext, name: str) -> None:
    """Wait for one event."""
    await wait_event(ctx, "wakeup", subject=name)


class ConnectionLog:
    """Records the commits of one connection."""

    def __init__(self) -> None:
        self._within = False
        self._wrote: str | None = None

    def executed(self, query: LoggedQuery) -> None:
        """Record a statement that was executed."""
        text: str = query.query.strip()
        if text.startswith("BEGIN"):
            self._within, self._wrote = True, None
        elif text in ("COMMIT", "ROLLBACK"):
            if text == "COMMIT" and self._wrote:
                commits.append(self._wrote)
            self._within = False
        elif found := _WRITES.search(text):
            self._wrote = self._wrote or found[0]
            if not self._within:
                commits.append(found[0])


def count_commits() -> None:
    """Count the commits of all connections that are opened from now on."""
    connect = PostgresPool.connect

    async def counted(self: PostgresPool) -> Connection[Any]:
        connection = await connect(self)
        connection.add_query_logger(ConnectionLog().executed)
        return connection

    PostgresPool.connect = counted  # type: ignore[method-assign]


async def counts(database: str, times: int) -> dict[str, Any]:
    """Return the largest number of commits of a one-activity workflow, of a wait, and of an event for a waiting workflow."""
    count_commits()
    async with App(database, **IDLE_OPTIONS) as app:
        await (await app.start_workflow(count, 1)).result()
        await asyncio.sleep(0.5)  # the app's work at its start
        one_activity = [await _run(app) for _ in range(times)]
        waits = [await _wait(app, f"wait-{number}") for number in range(times)]
    async with Client(database) as client:  # no app is there that would resume the workflow, and commit too
        events = [await _send(client, f"wait-{number}") for number in range(times)]
    return {"one_activity": max(one_activity), "wait": max(waits), "event": max(events)}


async def _run(app: App) -> int:
    commits.clear()
    handle = await app.start_workflow(count, 1)
    await handle.result()
    return await _committed()


async def _wait(app: App, name: str) -> int:
    handle = await app.start_workflow(watch, name)
    commits.clear()
    while await handle.status() != "waiting_for_event":
        await asyncio.sleep(0.002)
    return await _committed()


async def _send(client: Client, name: str) -> int:
    commits.clear()
    await client.send_event("wakeup", "/bench", subject=name)
    return await _committed()


async def _committed() -> int:
    await asyncio.sleep(0.01)  # the driver logs its statements a little later
    return len(commits)


if __name__ == "__main__":
    perform(counts)
