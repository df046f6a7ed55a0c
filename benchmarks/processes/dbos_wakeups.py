"""DBOS woken: from its `send` to the line behind its `recv`, in one process, by its own calls.

`recv_async` in an `async def` workflow and `send_async`, as on our side. (`set_event` and `get_event` are the other way
round: a workflow tells, others look.)
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
from benchmarks.wakeup_load import Bells, burst, latencies

AGES = 3600.0
bells = Bells()
said: Counter[str] = Counter()


@DBOS.workflow()
async def watch(name: str) -> None:
    """Wait for one bell."""
    await DBOS.recv_async("ring", timeout_seconds=AGES)
    bells.woke(name)


async def wait(names: Sequence[str]) -> None:
    """Start those who wait."""
    for name in names:
        with SetWorkflowID(name):
            await DBOS.start_workflow_async(watch, name)
    waiting = _get_dbos_instance()._sys_db.notifications_map
    while len(waiting.snapshot()) < len(names):
        await asyncio.sleep(0.01)


async def ring(name: str) -> None:
    """Wake one."""
    await DBOS.send_async(name, "now", "ring")


async def latency(database: str, wal: bool, look_every: float | None, samples: int) -> dict[str, Any]:
    """One waits at a time."""
    with dbos(database, wal=wal, look_every=look_every):
        pause = (0.1, 0.1 + (look_every or 1.0))
        await latencies(bells, wait, ring, samples=1, pause=pause)
        found = await latencies(bells, wait, ring, samples=samples, pause=pause)
    return {"latency": median(found), "all": sorted(found), **circumstances()}


async def rate(
    database: str, wal: bool, look_every: float | None, waiting: int, senders: int, bursts: int
) -> dict[str, Any]:
    """Many wait."""
    with dbos(database, wal=wal, look_every=look_every):
        pause = (0.1, 0.1 + (look_every or 1.0))
        found = [await burst(bells, wait, [ring] * senders, waiting=waiting, pause=pause) for _ in range(bursts + 1)]
    return {"rate": median(found[1:]), "all": found[1:], **circumstances()}


async def statements(database: str, wal: bool, look_every: float | None, waiting: int, seconds: float) -> dict[str, Any]:
    """Statements while it is idle, nobody or somebody waiting."""

    @event.listens_for(Engine, "before_cursor_execute")
    def _(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        said.update([statement.split("\n")[0][:60]])

    with dbos(database, wal=wal, look_every=look_every):
        nobody = await _silence(seconds)
        await wait(bells.expect(waiting))
        somebody = await _silence(seconds)
    return {"nobody": nobody, "somebody": somebody, "seconds": seconds}


async def _silence(seconds: float) -> dict[str, int]:
    await asyncio.sleep(0.3)
    said.clear()
    await asyncio.sleep(seconds)
    return dict(said)


if __name__ == "__main__":
    perform(latency, rate, statements)
