"""Measures how Edda wakes a workflow: from publishing an event to the line after `wait_event`, in one process.

Each workflow waits for an event type of its own: Edda's events have no subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

from edda import EddaApp, WorkflowContext, publish, wait_event, workflow

from benchmarks.processes.edda_engine import circumstances, edda
from benchmarks.processes.task_entry import perform
from benchmarks.wakeup_load import WakeupLog, burst, latencies

PAUSE = (0.1, 1.1)
wakeups = WakeupLog()


@workflow
async def watch(ctx: WorkflowContext, name: str) -> None:
    """Wait for one event."""
    await wait_event(ctx, name)
    wakeups.woke(name)


async def wait(names: Sequence[str]) -> None:
    """Start workflows: `start` returns when they wait."""
    for name in names:
        await watch.start(name=name)


async def send(app: EddaApp, name: str) -> None:
    """Wake one workflow."""
    await publish(app.storage, name, {"now": True}, worker_id=app.worker_id)


async def latency(database: str, samples: int) -> dict[str, Any]:
    """Measure with one waiting workflow at a time."""
    async with edda(database) as app:
        await latencies(wakeups, wait, partial(send, app), samples=1, pause=PAUSE)
        found = await latencies(wakeups, wait, partial(send, app), samples=samples, pause=PAUSE)
    return {"latency": median(found), "all": sorted(found), **circumstances()}


async def rate(database: str, waiting: int, senders: int, bursts: int) -> dict[str, Any]:
    """Measure with many waiting workflows."""
    async with edda(database) as app:
        sends = [partial(send, app)] * senders
        found = [await burst(wakeups, wait, sends, waiting=waiting, pause=PAUSE) for _ in range(bursts)]
    return {"rate": median(found), "all": found, **circumstances()}


if __name__ == "__main__":
    perform(latency, rate)
