"""Edda woken: from publishing an event to the line behind its `wait_event`, in one process.

Who waits for an event of its own waits for a type of its own: it has nothing like a subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

from edda import EddaApp, WorkflowContext, publish, wait_event, workflow

from benchmarks.processes.edda_engine import circumstances, edda
from benchmarks.processes.task_entry import perform
from benchmarks.wakeup_load import Bells, burst, latencies

PAUSE = (0.1, 1.1)
bells = Bells()


@workflow
async def watch(ctx: WorkflowContext, name: str) -> None:
    """Wait for one bell."""
    await wait_event(ctx, name)
    bells.woke(name)


async def wait(names: Sequence[str]) -> None:
    """Start those who wait: `start` returns when they do."""
    for name in names:
        await watch.start(name=name)


async def ring(app: EddaApp, name: str) -> None:
    """Wake one."""
    await publish(app.storage, name, {"now": True}, worker_id=app.worker_id)


async def latency(database: str, samples: int) -> dict[str, Any]:
    """One waits at a time."""
    async with edda(database) as app:
        await latencies(bells, wait, partial(ring, app), samples=1, pause=PAUSE)
        found = await latencies(bells, wait, partial(ring, app), samples=samples, pause=PAUSE)
    return {"latency": median(found), "all": sorted(found), **circumstances()}


async def rate(database: str, waiting: int, senders: int, bursts: int) -> dict[str, Any]:
    """Many wait."""
    async with edda(database) as app:
        rings = [partial(ring, app)] * senders
        found = [await burst(bells, wait, rings, waiting=waiting, pause=PAUSE) for _ in range(bursts)]
    return {"rate": median(found), "all": found, **circumstances()}


if __name__ == "__main__":
    perform(latency, rate)
