"""An activity that kills its process is stopped, and takes no neighbour with it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.chaos.poison_worker import POISON, meal
from tests.chaos.worker_processes import ROOT

from romancy import ActivityContext, App, Client, Status, WorkflowContext, activity, workflow

pytestmark = pytest.mark.chaos

HEALTHY = 200


class Fleet:
    """Four workers; one that dies is replaced, as a supervisor does."""

    def __init__(self, database: str, folder: Path) -> None:
        self._database, self._folder = database, folder
        self._workers: list[subprocess.Popen[bytes]] = []
        self.exits: list[int] = []

    def tend(self) -> None:
        """Start what is missing."""
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
        """End them all."""
        for worker in self._workers:
            worker.kill()
            worker.communicate()


@contextmanager
def fleet_on(database: str, folder: Path) -> Iterator[Fleet]:
    """A fleet for one test."""
    fleet = Fleet(database, folder)
    try:
        fleet.tend()
        yield fleet
    finally:
        fleet.kill()


async def test_a_poison_activity_is_paused_and_its_neighbours_complete(database: str, tmp_path: Path) -> None:
    async with Client(database, workflows=[meal]) as client:
        numbers = {f"healthy-{number}": number for number in range(HEALTHY)}
        for instance_id, number in numbers.items():
            await client.start_workflow(meal.with_options(instance_id=instance_id), number)
        await client.start_workflow(meal.with_options(instance_id="poison"), POISON)
        with fleet_on(database, tmp_path) as fleet:
            async with asyncio.timeout(300):
                while True:
                    fleet.tend()
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
            assert set(fleet.exits) == {137}
            assert len(fleet.exits) <= 3


class Stage:
    """What the activity of a test waits for, and tells."""

    def __init__(self) -> None:
        self.begun, self.keys = asyncio.Event(), list[str]()
        self.free = False


@activity
async def hold(ctx: ActivityContext) -> None:
    stages[-1].keys.append(ctx.idempotency_key)
    stages[-1].begun.set()
    if not stages[-1].free:
        await asyncio.Event().wait()


@workflow
async def long(ctx: WorkflowContext) -> str:
    await hold(ctx)
    return "done"


stages: list[Stage] = []


async def test_a_hundred_rolling_restarts_count_nothing(database: str) -> None:
    stage = Stage()
    stages.append(stage)
    for restart in range(100):
        stage.begun.clear()
        async with App(database, workflows=[long], shutdown_timeout=0, poll_interval=0.05, max_losses=1) as app:
            if restart == 0:
                await app.start_workflow(long.with_options(instance_id="long"))
            async with asyncio.timeout(60):
                await stage.begun.wait()
    assert len(stage.keys) == 100
    stage.free = True
    async with App(database, workflows=[long], max_losses=1) as app:
        assert await app.get_handle("long").result(timeout=60) == "done"
        loaded = await app._store.load("long")
        assert loaded is not None
        assert loaded.losses == 0
