"""Measures how DBOS wakes a workflow: from `send` to the line after `recv`, in one process.

It uses `recv_async` in an `async def` workflow and `send_async`, as in romancy's measurement. (`set_event` and `get_event`
work the other way round: a workflow publishes a value, and its clients poll.)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from dbos import DBOS, SetWorkflowID
from dbos._dbos import _get_dbos_instance
from sqlalchemy import event
from sqlalchemy.engine import Engine

from benchmarks.processes.dbos_engine import circumstances, dbos
from benchmarks.processes.task_entry import perform
from benchmarks.wakeup_load import WakeupLog, burst, latencies

AGES = 3600.0
wakeups = WakeupLog()
executed: Counter[str] = Counter()


@DBOS.workflow()
async def watch(name: str) -> None:
    """Wait for one message."""
    await DBOS.recv_async("wakeup", timeout_seconds=AGES)
    wakeups.woke(name)


async def wait(names: Sequence[str]) -> None:
    """Start workflows, and return when all of them wait."""
    for name in names:
        with SetWorkflowID(name):
            await DBOS.start_workflow_async(watch, name)
    waiting = _get_dbos_instance()._sys_db.notifications_map
    while len(waiting.snapshot()) < len(names):
        await asyncio.sleep(0.01)


async def send(name: str) -> None:
    """Wake one workflow."""
    await DBOS.send_async(name, "now", "wakeup")


async def latency(database: str, wal: bool, poll_interval: float | None, samples: int) -> dict[str, Any]:
    """Measure with one waiting workflow at a time."""
    with dbos(database, wal=wal, poll_interval=poll_interval):
        pause = (0.1, 0.1 + (poll_interval or 1.0))
        await latencies(wakeups, wait, send, samples=1, pause=pause)
        found = await latencies(wakeups, wait, send, samples=samples, pause=pause)
    return {"latency": median(found), "all": sorted(found), **circumstances()}


async def rate(
    database: str, wal: bool, poll_interval: float | None, waiting: int, senders: int, bursts: int
) -> dict[str, Any]:
    """Measure with many waiting workflows."""
    with dbos(database, wal=wal, poll_interval=poll_interval):
        pause = (0.1, 0.1 + (poll_interval or 1.0))
        found = [await burst(wakeups, wait, [send] * senders, waiting=waiting, pause=pause) for _ in range(bursts + 1)]
    return {"rate": median(found[1:]), "all": found[1:], **circumstances()}


async def statements(database: str, wal: bool, poll_interval: float | None, waiting: int, seconds: float) -> dict[str, Any]:
    """Count the statements of an idle app, without and with waiting workflows."""

    @event.listens_for(Engine, "before_cursor_execute")
    def _(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        executed.update([statement.split("\n")[0][:60]])

    with dbos(database, wal=wal, poll_interval=poll_interval):
        without_waits = await _count_while_idle(seconds)
        await wait(wakeups.expect(waiting))
        with_waits = await _count_while_idle(seconds)
    return {"none_waiting": without_waits, "some_waiting": with_waits, "seconds": seconds}


async def _count_while_idle(seconds: float) -> dict[str, int]:
    await asyncio.sleep(0.3)
    executed.clear()
    await asyncio.sleep(seconds)
    return dict(executed)


if __name__ == "__main__":
    perform(latency, rate, statements)
