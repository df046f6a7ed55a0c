"""Ten clerks in three processes compete for messages; processes are killed; each message is consumed once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.chaos import competing_consumers, order_workflows
from tests.chaos.message_workers import MessageWorkers
from tests.chaos.worker_processes import (
    HISTORY_WITH_GAPS,
    LEFT_BEHIND,
    RECORDED_TWICE,
    WITHOUT_WAKE_SOURCE,
    Worker,
    rows,
    until,
)

from romancy import App, Client
from romancy.store.sql import channels
from romancy.store.sqlite.cursor import SqliteCursor

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

LETTERS, CLERKS, PROCESSES, KILLS = 20_000, 10, 3, 9


async def test_each_letter_is_used_once_whichever_process_is_killed(tmp_path: Path) -> None:
    killed: set[int] = set()
    with MessageWorkers(tmp_path) as workers:
        running = [workers.start() for _ in range(PROCESSES)]
        async with Client(str(tmp_path / "chaos.db"), workflows=[competing_consumers.clerk]) as client:
            await competing_consumers.start_clerks(client, CLERKS)
            posting = asyncio.create_task(competing_consumers.publish_letters(client, LETTERS, clerks=CLERKS))
            await _kill_on_the_way(workers, running, killed, tmp_path)
            await posting
            for name in competing_consumers.names(CLERKS):
                await client.get_handle(name).result(timeout=200)
            assert await competing_consumers.faults(client, tmp_path, LETTERS, CLERKS, killed) == []
    assert len(killed) == KILLS
    for query in (RECORDED_TWICE, HISTORY_WITH_GAPS, LEFT_BEHIND, "SELECT * FROM romancy_subscriptions"):
        assert rows(tmp_path, query) == []
    assert "database is locked" not in workers.texts()
    assert "Traceback" not in workers.texts()
    owners = rows(tmp_path, "SELECT count(DISTINCT worker) FROM romancy_history WHERE kind = 'message'")
    assert owners[0][0] > PROCESSES  # other processes continued the work
    assert "instances released from dead workers" in workers.texts()  # some processes owned instances when they were killed


async def _kill_on_the_way(workers: MessageWorkers, running: list[Worker], killed: set[int], folder: Path) -> None:
    rng = random.Random(10)
    for number in range(1, KILLS + 1):
        far_enough = number * LETTERS // (KILLS + 1) - rng.randrange(LETTERS // 20)
        await until(
            lambda: competing_consumers.taken(folder) >= far_enough,  # noqa: B023
            f"letters are taken:\n{workers.texts()[-3000:]}",
        )
        victim = rng.randrange(PROCESSES)
        running[victim].kill()
        killed.add(running[victim].pid)
        assert rows(folder, WITHOUT_WAKE_SOURCE) == []
        running[victim] = workers.start()


# --- tests of the checks

Found: TypeAlias = Callable[[], Awaitable[list[str]]]


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Found:
    """Lets two clerks take a hundred letters in this process, and returns the faults found."""
    monkeypatch.setenv(order_workflows.EFFECT_LOG, str(tmp_path / "effects"))

    async def run() -> list[str]:
        async with App(str(tmp_path / "chaos.db"), workflows=[competing_consumers.clerk]) as app:
            await competing_consumers.start_clerks(app, 2)
            await competing_consumers.publish_letters(app, 100, clerks=2)
            for name in competing_consumers.names(2):
                await app.get_handle(name).result(timeout=30)
            return await competing_consumers.faults(app, tmp_path, 100, 2, set())

    return run


async def test_the_checks_find_nothing_without_a_fault(found: Found) -> None:
    assert await found() == []


async def test_the_checks_find_a_letter_that_is_received_twice(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    take, spared = channels.take, iter([3])

    def forget_once(cursor: SqliteCursor, instance_id: str, channel: str, seq: int) -> None:
        if next(spared, None) is None:
            take(cursor, instance_id, channel, seq)

    monkeypatch.setattr(channels, "take", forget_once)
    wrong = await found()
    assert len([one for one in wrong if one.endswith("was received 2 times")]) == 1
    assert "the clerks counted 101 letters" in wrong


async def test_the_checks_find_a_letter_that_is_lost(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    find, lost = channels.find, iter([1])

    def lose_once(cursor: SqliteCursor, instance_id: str, channel: str, *args: Any) -> tuple[int, int, bytes] | None:
        found = find(cursor, instance_id, channel, *args)
        if found is None or next(lost, None) is None:
            return found
        channels.take(cursor, instance_id, channel, found[1])
        return None

    monkeypatch.setattr(channels, "find", lose_once)
    wrong = await found()
    assert len([one for one in wrong if one.endswith("was received 0 times")]) == 1
    assert "the clerks counted 99 letters" in wrong
