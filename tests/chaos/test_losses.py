"""An activity that kills its process is paused after a few losses and affects no other instance."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.chaos.poison_worker import POISON, quadruple
from tests.chaos.worker_processes import ROOT

from romancy import ActivityContext, App, Client, Status, WorkflowContext, activity, workflow

pytestmark = pytest.mark.chaos

HEALTHY = 200


class Supervisor:
    """Keeps four workers running, like a supervisor."""

    def __init__(self, database: str, folder: Path) -> None:
        self._database, self._folder = database, folder
        self._workers: list[subprocess.Popen[bytes]] = []
        self.exits: list[int] = []

    def restart_dead(self) -> None:
        """Replace the workers that have ended."""
        dead = [worker for worker in self._workers if worker.poll() is not None]
        for worker in dead:
            self.exits.append(worker.returncode)
            worker.communicate()
            self._workers.remove(worker)
        while len(self._workers) < 4:
            name = f"w{len(self.exits) + len(self._workers) + 1}"
            with (self._folder / f"{name}.log").open("wb") as log:
                self._workers.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "tests.chaos.poison_worker", self._database, name],
                        cwd=ROOT,
                        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=log,
                    )
                )

    def kill(self) -> None:
        """Kill all workers."""
        for worker in self._workers:
            worker.kill()
            worker.communicate()


@contextmanager
def supervisor_on(database: str, folder: Path) -> Iterator[Supervisor]:
    """A supervisor with its workers for one test."""
    supervisor = Supervisor(database, folder)
    try:
        supervisor.restart_dead()
        yield supervisor
    finally:
        supervisor.kill()


async def test_a_poison_activity_is_paused_and_its_neighbours_complete(database: str, tmp_path: Path) -> None:
    async with Client(database, workflows=[quadruple]) as client:
        numbers = {f"healthy-{number}": number for number in range(HEALTHY)}
        for instance_id, number in numbers.items():
            await client.start_workflow(quadruple.with_options(instance_id=instance_id), number)
        await client.start_workflow(quadruple.with_options(instance_id="poison"), POISON)
        with supervisor_on(database, tmp_path) as supervisor:
            async with asyncio.timeout(300):
                while True:
                    supervisor.restart_dead()
                    poison = await client.get_instance("poison")
                    healthy = await client.list_instances(instance_id="healthy-", limit=HEALTHY)
                    if (
                        poison is not None
                        and poison.status is Status.PAUSED
                        and all(one.status is Status.COMPLETED for one in healthy.items)
                    ):
                        break
                    assert not [one for one in healthy.items if one.status is Status.PAUSED]
                    await asyncio.sleep(0.1)
            assert {one.instance_id: one.output for one in healthy.items} == {
                instance_id: 4 * number for instance_id, number in numbers.items()
            }
            assert set(supervisor.exits) == {137}
            assert len(supervisor.exits) <= 3


class HoldState:
    """State shared between a test and its activity."""

    def __init__(self) -> None:
        self.begun, self.keys = asyncio.Event(), list[str]()
        self.free = False


@activity
async def hold(ctx: ActivityContext) -> None:
    states[-1].keys.append(ctx.idempotency_key)
    states[-1].begun.set()
    if not states[-1].free:
        await asyncio.Event().wait()


@workflow
async def long(ctx: WorkflowContext) -> str:
    await hold(ctx)
    return "done"


states: list[HoldState] = []


async def test_a_hundred_rolling_restarts_count_nothing(database: str) -> None:
    state = HoldState()
    states.append(state)
    for restart in range(100):
        state.begun.clear()
        async with App(database, workflows=[long], shutdown_timeout=0, poll_interval=0.05, max_losses=1) as app:
            if restart == 0:
                await app.start_workflow(long.with_options(instance_id="long"))
            async with asyncio.timeout(60):
                await state.begun.wait()
    assert len(state.keys) == 100
    state.free = True
    async with App(database, workflows=[long], max_losses=1) as app:
        assert await app.get_handle("long").result(timeout=60) == "done"
        loaded = await app._store.load("long")
        assert loaded is not None
        assert loaded.losses == 0
