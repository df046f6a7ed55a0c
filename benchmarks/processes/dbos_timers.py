"""Measures DBOS's timers: `sleep_async` in workflows that this process has started and keeps in memory."""

from __future__ import annotations

import time
from typing import Any

from dbos import DBOS

from benchmarks.processes.dbos_engine import circumstances, dbos
from benchmarks.processes.task_entry import perform
from benchmarks.timer_load import TimerLog, start_all

timer_log = TimerLog()


@DBOS.workflow()
async def sleeper(due: float) -> None:
    """Sleep until a time."""
    await DBOS.sleep_async(due - time.time())
    timer_log.woke(due)


async def sleepers(database: str, count: int, spread: float, lead: float, wal: bool) -> dict[str, Any]:
    """Return how late the workflows resume."""
    with dbos(database, wal=wal):
        await start_all(timer_log.plan(count, spread, lead), lambda due: DBOS.start_workflow_async(sleeper, due))
        return {**await timer_log.figures(), **circumstances()}


if __name__ == "__main__":
    perform(sleepers)
