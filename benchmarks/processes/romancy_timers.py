"""romancy's timers: sleepers that this process started, that do not fit into its memory, or that it finds in the file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from benchmarks.processes.task_entry import perform
from benchmarks.timer_load import Naps, start_all
from romancy import App, WorkflowContext, sleep_until, workflow

naps = Naps()


@workflow
async def nap(ctx: WorkflowContext, due: float) -> None:
    """Sleep until a time."""
    await sleep_until(ctx, datetime.fromtimestamp(due, UTC))
    naps.rose(due)


async def sleepers(database: str, count: int, spread: float, lead: float, cache_size: int, found: bool) -> dict[str, Any]:
    """How late they go on. `found`: by another app than the one that started them."""
    dues = naps.plan(count, spread, lead)
    async with App(database, cache_size=cache_size) as app:
        await start_all(dues, lambda due: app.start_workflow(nap, due))
        if not found:
            return await naps.figures()
    async with App(database, cache_size=cache_size):
        return await naps.figures()


if __name__ == "__main__":
    perform(sleepers)
