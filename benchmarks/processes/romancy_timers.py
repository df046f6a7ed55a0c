"""Measures romancy's timers: of workflows this process started, that exceed its cache, or that it finds in the file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from benchmarks.processes.task_entry import perform
from benchmarks.timer_load import TimerLog, start_all
from romancy import App, WorkflowContext, sleep_until, workflow

timer_log = TimerLog()


@workflow
async def sleeper(ctx: WorkflowContext, due: float) -> None:
    """Sleep until a time."""
    await sleep_until(ctx, datetime.fromtimestamp(due, UTC))
    timer_log.woke(due)


async def sleepers(database: str, count: int, spread: float, lead: float, cache_size: int, found: bool) -> dict[str, Any]:
    """Return how late the workflows resume. `found`: in another app than the one that started them."""
    dues = timer_log.plan(count, spread, lead)
    async with App(database, cache_size=cache_size) as app:
        await start_all(dues, lambda due: app.start_workflow(sleeper, due))
        if not found:
            return await timer_log.figures()
    async with App(database, cache_size=cache_size):
        return await timer_log.figures()


if __name__ == "__main__":
    perform(sleepers)
