"""Two workers under load are killed again and again; every order completes correctly."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.chaos import order_workflows
from tests.chaos.worker_processes import (
    HISTORY_WITH_GAPS,
    LEFT_BEHIND,
    RECORDED_TWICE,
    WITHOUT_WAKE_SOURCE,
    Worker,
    Workers,
    rows,
    until,
)

from romancy import Client

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ORDERS = 300
KILLING = 12.0
"""Seconds during which workers are killed."""


async def test_killed_workers_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    rng = random.Random(20)
    killed: set[int] = set()
    with Workers(tmp_path) as workers:
        running = [workers.start(), workers.start()]
        async with Client(str(tmp_path / "chaos.db"), workflows=order_workflows.WORKFLOWS) as client:
            for number in range(ORDERS):
                await client.start_workflow(order_workflows.order.with_options(instance_id=f"order-{number}"), number)
            await _kill_at_random(workers, running, rng, killed, tmp_path)
            await until(lambda: _unfinished(tmp_path) == 0, f"every order ends:\n{workers.texts()[-3000:]}")
            for number in range(ORDERS):
                result = await client.get_result(f"order-{number}")
                wanted = order_workflows.expected(number)
                assert result.status == ("failed" if wanted is None else "completed"), (result, workers.texts()[-3000:])
                assert result.output == wanted
    assert len(killed) >= 3
    lines = order_workflows.read(tmp_path / "effects")
    assert list(order_workflows.faults_of(lines, killed=killed)) == []
    _check_effects(tmp_path, lines)
    for query in (RECORDED_TWICE, HISTORY_WITH_GAPS, LEFT_BEHIND, WITHOUT_WAKE_SOURCE):
        assert rows(tmp_path, query) == []
    assert "database is locked" not in workers.texts()
    assert "Traceback" not in workers.texts()


async def _kill_at_random(
    workers: Workers, running: list[Worker], rng: random.Random, killed: set[int], folder: Path
) -> None:
    end = time.monotonic() + KILLING
    while time.monotonic() < end and _unfinished(folder):
        await _effects_go_on(folder, more=rng.randrange(1, 150))
        victim = rng.randrange(len(running))
        running[victim].kill()
        killed.add(running[victim].pid)
        assert rows(folder, WITHOUT_WAKE_SOURCE) == []
        running[victim] = workers.start()


async def _effects_go_on(folder: Path, more: int) -> None:
    enough = len(order_workflows.read(folder / "effects")) + more
    await until(lambda: len(order_workflows.read(folder / "effects")) >= enough or not _unfinished(folder), "effects go on")


def _unfinished(folder: Path) -> int:
    found: int = rows(folder, "SELECT count(*) FROM romancy_instances WHERE ended_at IS NULL")[0][0]
    return found


def _check_effects(folder: Path, lines: list[order_workflows.Line]) -> None:
    """Everything that is recorded as completed was completed in that attempt."""
    done = {(line.instance, line.op, line.attempt) for line in lines if line.what == "done"}
    recorded = rows(
        folder,
        "SELECT instance_id, op, attempt FROM romancy_history WHERE kind IN ('activity', 'compensation') AND outcome = 'ok'",
    )
    assert set(recorded) <= done
    failed = [number for number in range(ORDERS) if order_workflows.expected(number) is None]
    undone = rows(
        folder, "SELECT instance_id, op FROM romancy_history WHERE kind = 'compensation' ORDER BY instance_id, seq"
    )
    wanted = [(f"order-{number}", op) for number in failed for op in ("compensate:reserve:2", "compensate:reserve:1")]
    assert sorted(undone) == sorted(wanted)
    assert [one for one in undone if one[0] == "order-5"] == [one for one in wanted if one[0] == "order-5"]
