"""Workers that are declared dead while alive, and workers that seem dead but must not be declared dead."""

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
    with Workers(tmp_path) as processes:
        yield processes


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with Client(str(tmp_path / "chaos.db"), workflows=order_workflows.WORKFLOWS) as one:
        yield one


class Observation:
    """What a test reads: the effect log, the logs of the workers, the database."""

    def __init__(self, folder: Path, workers: Workers) -> None:
        self.folder = folder
        self.workers = workers

    def lines(self, what: str, worker: Worker | None = None) -> list[order_workflows.Line]:
        """The lines of a kind, of one process or of all."""
        found = order_workflows.read(self.folder / "effects")
        return [line for line in found if line.what == what and (worker is None or line.pid == worker.pid)]

    async def wait_for_lines(self, what: str, count: int, worker: Worker | None = None) -> None:
        """Wait for this number of lines."""
        name = f"{count} lines {what!r}"
        await until(lambda: len(self.lines(what, worker)) >= count, f"{name}:\n{self.workers.texts()[-3000:]}", seconds=40)

    def incarnations(self, label: str) -> list[str]:
        """The registered incarnations of a worker."""
        return [name for (name,) in rows(self.folder, "SELECT id FROM romancy_workers WHERE label = ?", label)]

    def open_gate(self) -> None:
        """Let all waiting activities finish."""
        (self.folder / "gate").touch()

    def assert_recorded_once(self) -> None:
        """Nothing is recorded twice or left behind."""
        assert rows(self.folder, RECORDED_TWICE) == []
        assert rows(self.folder, LEFT_BEHIND) == []

    def assert_no_worker_was_declared_dead(self) -> None:
        """No log and no journal says that a worker was declared dead."""
        assert "dead" not in self.workers.texts()
        assert rows(self.folder, "SELECT * FROM romancy_journal WHERE kind = 'lost'") == []


@pytest.fixture
def observation(tmp_path: Path, workers: Workers) -> Observation:
    return Observation(tmp_path, workers)


async def _start_jobs(client: Client, count: int, prefix: str = "job") -> None:
    for number in range(count):
        await client.start_workflow(order_workflows.job.with_options(instance_id=f"{prefix}-{number}"), number)


async def _results(client: Client, count: int, prefix: str = "job") -> list[int]:
    return [await client.get_handle(f"{prefix}-{number}").result(timeout=40) for number in range(count)]


async def test_a_zombie_changes_nothing_and_starts_over(client: Client, workers: Workers, observation: Observation) -> None:
    zombie = workers.start()
    await _start_jobs(client, 6)
    await observation.wait_for_lines("begin", 6, zombie)
    (old_name,) = observation.incarnations("w1")

    zombie.stop()
    successor = workers.start()
    await observation.wait_for_lines("begin", 6, successor)  # once the lease has expired
    zombie.go_on()
    # A thread can only learn of the loss from heartbeat(), which raises LeaseLostError.
    await observation.wait_for_lines("lost", 6, zombie)
    await until(lambda: bool(set(observation.incarnations("w1")) - {old_name}), "the zombie registers under a new name")
    assert old_name not in observation.incarnations("w1")

    observation.open_gate()
    assert await _results(client, 6) == list(range(6))
    recorded = rows(observation.folder, "SELECT DISTINCT worker FROM romancy_history WHERE name LIKE 'hold%'")
    assert [name for (name,) in recorded] == observation.incarnations("w2")
    assert list(order_workflows.faults_of(order_workflows.read(observation.folder / "effects"), killed={zombie.pid})) == []
    observation.assert_recorded_once()

    successor.kill()
    await _start_jobs(client, 4, "later")
    assert await _results(client, 4, "later") == list(range(4))  # the worker runs instances again in its new incarnation
    assert {line.worker for line in observation.lines("done", zombie)} == set(observation.incarnations("w1"))


async def test_a_zombie_that_finishes_late_is_refused(client: Client, workers: Workers, observation: Observation) -> None:
    zombie = workers.start()
    await _start_jobs(client, 6)
    await observation.wait_for_lines("begin", 6, zombie)

    zombie.stop()
    successor = workers.start()
    await observation.wait_for_lines("begin", 6, successor)
    observation.open_gate()
    assert await _results(client, 6) == list(range(6))
    before = rows(observation.folder, "SELECT * FROM romancy_history ORDER BY instance_id, seq")

    zombie.go_on()  # its attempts find the gate open and have results to write
    await until(lambda: "declared dead" in zombie.text(), "the zombie learns of its death")
    successor.kill()
    await _start_jobs(client, 4, "later")
    assert await _results(client, 4, "later") == list(range(4))
    after = rows(observation.folder, "SELECT * FROM romancy_history WHERE instance_id LIKE 'job%' ORDER BY instance_id, seq")
    assert after == before
    observation.assert_recorded_once()


async def test_a_blocked_event_loop_is_not_a_dead_worker(client: Client, workers: Workers, observation: Observation) -> None:
    first = workers.start()
    await until(lambda: "ready" in first.text(), "the worker is ready")
    handle = await client.start_workflow(order_workflows.blocking, 3 * LEASE)
    await observation.wait_for_lines("begin", 1)
    workers.start()  # this worker would take over
    assert await handle.result(timeout=40)

    assert len(observation.lines("begin")) == 1
    observation.assert_no_worker_was_declared_dead()
    assert "WARNING romancy.worker the event loop has been blocked" in first.text()
    assert "time.sleep(seconds)" in first.text()  # the line that blocks


async def test_a_held_write_lock_does_not_make_a_worker_count_as_dead(
    client: Client, workers: Workers, observation: Observation
) -> None:
    workers.start()
    workers.start()
    await until(lambda: len(observation.incarnations("w1") + observation.incarnations("w2")) == 2, "both are registered")
    await _start_jobs(client, 6)
    await observation.wait_for_lines("begin", 6)
    for _ in range(2):
        with write_lock(observation.folder):
            starting = asyncio.create_task(client.start_workflow(order_workflows.order, 1))
            until_over = time.monotonic() + 2.5 * LEASE
            await until(lambda: time.monotonic() > until_over, "the lease has expired")  # noqa: B023
        handle = await starting
        assert await handle.result(timeout=40) == order_workflows.expected(1)
    observation.open_gate()
    assert await _results(client, 6) == list(range(6))

    observation.assert_no_worker_was_declared_dead()
    assert "locked" not in workers.texts()
    assert "Traceback" not in workers.texts()
    assert len(observation.lines("begin")) == len(
        {(line.op, line.instance, line.attempt) for line in observation.lines("begin")}
    )
    observation.assert_recorded_once()
