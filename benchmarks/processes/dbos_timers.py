"""DBOS's timers: `sleep_async` in workflows that this process started and holds in memory."""

from __future__ import annotations

import time
from typing import Any

from dbos import DBOS

from benchmarks.processes.dbos_engine import circumstances, dbos
from benchmarks.processes.task_entry import perform
from benchmarks.timer_load import Naps, start_all

naps = Naps()


@DBOS.workflow()
async def nap(due: float) -> None:
    """Sleep until a time."""
    await DBOS.sleep_async(due - time.time())
    naps.rose(due)


async def sleepers(database: str, count: int, spread: float, lead: float, wal: bool) -> dict[str, Any]:
    """How late they go on."""
    with dbos(database, wal=wal):
        await start_all(naps.plan(count, spread, lead), lambda due: DBOS.start_workflow_async(nap, due))
        return {**await naps.figures(), **circumstances()}


if __name__ == "__main__":
    perform(sleepers)
