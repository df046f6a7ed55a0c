"""Workers that are held for dead and are not, and workers that seem dead and must not be held for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.chaos import order_workflows
from tests.chaos.worker_processes import LEASE, LEFT_BEHIND, RECORDED_TWICE, Worker, Workers, rows, until, write_lock

from romancy import Client

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with Workers(tmp_path) as them:
        yield them


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with Client(str(tmp_path / "chaos.db"), workflows=order_workflows.WORKFLOWS) as one:
        yield one


class Story:
    """What a test looks at: the ledger, the logs, the database."""

    def __init__(self, folder: Path, workers: Workers) -> None:
        self.folder = folder
        self.workers = workers

    def lines(self, what: str, worker: Worker | None = None) -> list[order_workflows.Line]:
        """The lines of a kind, of one process or all."""
        found = order_workflows.read(self.folder / "ledger")
        return [line for line in found if line.what == what and (worker is None or line.pid == worker.pid)]

    async def sees(self, what: str, count: int, worker: Worker | None = None) -> None:
        """Wait for lines."""
        name = f"{count} lines {what!r}"
        await until(lambda: len(self.lines(what, worker)) >= count, f"{name}:\n{self.workers.texts()[-3000:]}", seconds=40)

    def incarnations(self, label: str) -> list[str]:
        """The names under which a worker is known now."""
        return [name for (name,) in rows(self.folder, "SELECT id FROM romancy_workers WHERE label = ?", label)]

    def open_gate(self) -> None:
        """Let everything finish that waits."""
        (self.folder / "gate").touch()

    def assert_recorded_once(self) -> None:
        """Nothing is recorded twice or left behind."""
        assert rows(self.folder, RECORDED_TWICE) == []
        assert rows(self.folder, LEFT_BEHIND) == []

    def assert_nobody_was_declared_dead(self) -> None:
        """In no log and no journal."""
        assert "dead" not in self.workers.texts()
        assert rows(self.folder, "SELECT * FROM romancy_journal WHERE kind = 'lost'") == []


@pytest.fixture
def story(tmp_path: Path, workers: Workers) -> Story:
    return Story(tmp_path, workers)


async def _start_jobs(client: Client, count: int, prefix: str = "job") -> None:
    for number in range(count):
        await client.start_workflow(order_workflows.job.with_options(instance_id=f"{prefix}-{number}"), number)


async def _results(client: Client, count: int, prefix: str = "job") -> list[int]:
    return [await client.get_handle(f"{prefix}-{number}").result(timeout=40) for number in range(count)]


async def test_a_zombie_changes_nothing_and_starts_over(client: Client, workers: Workers, story: Story) -> None:
    zombie = workers.start()
    await _start_jobs(client, 6)
    await story.sees("begin", 6, zombie)
    (old_name,) = story.incarnations("w1")

    zombie.stop()
    heir = workers.start()
    await story.sees("begin", 6, heir)  # all of them, once the lease has run out
    zombie.go_on()
    await story.sees("lost", 6, zombie)  # in threads, only heartbeat() can have told: it raised LeaseLostError
    await until(lambda: bool(set(story.incarnations("w1")) - {old_name}), "the zombie enlists under a new name")
    assert old_name not in story.incarnations("w1")

    story.open_gate()
    assert await _results(client, 6) == list(range(6))
    recorded = rows(story.folder, "SELECT DISTINCT worker FROM romancy_history WHERE name LIKE 'hold%'")
    assert [name for (name,) in recorded] == story.incarnations("w2")
    assert list(order_workflows.faults_of(order_workflows.read(story.folder / "ledger"), killed={zombie.pid})) == []
    story.assert_recorded_once()

    heir.kill()
    await _start_jobs(client, 4, "later")
    assert await _results(client, 4, "later") == list(range(4))  # the former zombie works
    assert {line.worker for line in story.lines("done", zombie)} == set(story.incarnations("w1"))


async def test_a_zombie_that_finishes_late_is_refused(client: Client, workers: Workers, story: Story) -> None:
    zombie = workers.start()
    await _start_jobs(client, 6)
    await story.sees("begin", 6, zombie)

    zombie.stop()
    heir = workers.start()
    await story.sees("begin", 6, heir)
    story.open_gate()
    assert await _results(client, 6) == list(range(6))
    before = rows(story.folder, "SELECT * FROM romancy_history ORDER BY instance_id, seq")

    zombie.go_on()  # its attempts find the gate open, and have results to write
    await until(lambda: "declared dead" in zombie.text(), "the zombie learns of it")
    heir.kill()
    await _start_jobs(client, 4, "later")
    assert await _results(client, 4, "later") == list(range(4))
    after = rows(story.folder, "SELECT * FROM romancy_history WHERE instance_id LIKE 'job%' ORDER BY instance_id, seq")
    assert after == before
    story.assert_recorded_once()


async def test_a_blocked_event_loop_is_not_a_dead_worker(client: Client, workers: Workers, story: Story) -> None:
    first = workers.start()
    await until(lambda: "ready" in first.text(), "the worker is ready")
    handle = await client.start_workflow(order_workflows.blocking, 3 * LEASE)
    await story.sees("begin", 1)
    workers.start()  # would take over
    assert await handle.result(timeout=40)

    assert len(story.lines("begin")) == 1
    story.assert_nobody_was_declared_dead()
    assert "WARNING romancy.worker the event loop has been blocked" in first.text()
    assert "time.sleep(seconds)" in first.text()  # the culprit's line


async def test_a_held_write_lock_kills_nobody(client: Client, workers: Workers, story: Story) -> None:
    workers.start()
    workers.start()
    await until(lambda: len(story.incarnations("w1") + story.incarnations("w2")) == 2, "both enlist")
    await _start_jobs(client, 6)
    await story.sees("begin", 6)
    for _ in range(2):
        with write_lock(story.folder):
            starting = asyncio.create_task(client.start_workflow(order_workflows.order, 1))
            until_over = time.monotonic() + 2.5 * LEASE
            await until(lambda: time.monotonic() > until_over, "the lease has run out")  # noqa: B023
        handle = await starting
        assert await handle.result(timeout=40) == order_workflows.expected(1)
    story.open_gate()
    assert await _results(client, 6) == list(range(6))

    story.assert_nobody_was_declared_dead()
    assert "locked" not in workers.texts()
    assert "Traceback" not in workers.texts()
    assert len(story.lines("begin")) == len({(line.op, line.instance, line.attempt) for line in story.lines("begin")})
    story.assert_recorded_once()
