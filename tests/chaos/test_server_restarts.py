"""Workers on a database server are killed, stopped and declared dead while the server is restarted.

`ROMANCY_STORM=5000` sets the number of visits; the default is lower.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests import mariadb, servers
from tests.chaos import competing_consumers, hotel_workload, order_workflows
from tests.chaos.hotel_workload import (
    Acknowledgements,
    FaultInjector,
    HotelClient,
    HotelWorkers,
    count,
    faults,
    rows,
    stop_clerks,
    until,
)
from tests.chaos.worker_processes import LEFT_BEHIND, RECORDED_TWICE

from romancy import App, Client

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

VISITS = int(os.environ.get("ROMANCY_STORM", "600"))
WORKERS, CLERKS = 4, 6


@pytest.fixture
def server() -> Iterator[servers.Postgres]:
    one = servers.Postgres("max_connections=200")
    yield one
    one.remove()


@pytest.fixture(params=["postgres", "mariadb"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A database on a server of the test's own."""
    if request.param == "mariadb" and mariadb.why_not():
        pytest.skip(mariadb.why_not())
    server = servers.Postgres("max_connections=200") if request.param == "postgres" else mariadb.MariaDb()
    address = server.address if isinstance(server, servers.Postgres) else mariadb.new_database(server.address)
    yield Target(server, address, WORKERS if request.param == "postgres" else 2)
    server.remove()


@dataclass(frozen=True)
class Target:
    """A server, a database on it, and the number of workers."""

    server: hotel_workload.Server
    address: str
    workers: int


async def test_a_storm_loses_nothing_and_repeats_nothing(target: Target, tmp_path: Path) -> None:
    acknowledgements, rng, address = Acknowledgements(), random.Random(7), target.address
    with HotelWorkers(address, tmp_path) as workers:
        injector = FaultInjector(workers, target.server, rng, pause=1.0 + VISITS / 1000)
        injector.begin(target.workers)
        async with Client(address, workflows=[hotel_workload.visit, competing_consumers.clerk]) as client:
            await competing_consumers.start_clerks(client, CLERKS)
            serving = asyncio.create_task(HotelClient(client, acknowledgements, rng).serve(VISITS))
            await injector.run(address, VISITS)
            await serving
            await _all_gone(address, workers)
            await stop_clerks(client, CLERKS)
        assert await faults(address, tmp_path, acknowledgements, VISITS) == [], workers.texts()[-4000:]
        assert injector.restarts == [False, True]
        assert injector.killed >= 2
        assert injector.stopped >= 1
        assert "Traceback" not in workers.texts()


async def _all_gone(address: str, workers: HotelWorkers) -> None:
    async def none_left() -> bool:
        return await count(address, hotel_workload.UNFINISHED) == 0

    await until(none_left, "every visit ends", more=lambda: workers.texts()[-4000:])


# --- a worker that was declared dead, and a check that finds its writes


async def _zombie_writes(address: str, folder: Path, fault: str) -> list[str]:
    """Stop a worker that owns instances, let another take over, continue the first, and return the faults found."""
    first, second = folder / "first", folder / "second"
    first.mkdir()
    second.mkdir()
    with HotelWorkers(address, first, fault) as zombies, HotelWorkers(address, second) as successors:
        async with Client(address, workflows=order_workflows.WORKFLOWS) as client:
            zombie = zombies.start()
            for number in range(0, 12, 2):
                await client.start_workflow(order_workflows.job.with_options(instance_id=f"job-{number}"), number)
            await _begun(first, 6)
            zombie.stop()
            successors.start()
            await _begun(second, 6)  # once the lease has expired
            (first / "gate").touch()
            zombie.go_on()  # its attempts find the gate open

            async def over() -> bool:
                written = "SELECT count(*) FROM romancy_history WHERE name = 'hold'"
                return "declared dead" in zombie.text() or await count(address, written) == 6

            await until(over, "the zombie learns of its death, or has written", more=zombie.text)
            (second / "gate").touch()
            for number in range(0, 12, 2):
                await client.get_handle(f"job-{number}").result(timeout=40)
    queries = (
        RECORDED_TWICE,
        LEFT_BEHIND,
        hotel_workload.TWO_WRITERS,
        hotel_workload.EPOCH_FALLS,
        hotel_workload.WRITTEN_LATE,
    )
    return [f"{row}" for query in queries for row in await rows(address, query)]


async def _begun(folder: Path, times: int) -> None:
    async def seen() -> bool:
        return len([line for line in order_workflows.read(folder / "effects") if line.what == "begin"]) >= times

    await until(seen, f"{times} attempts begin", more=lambda: "\n".join(log.read_text() for log in folder.glob("*.log")))


async def test_a_zombie_changes_nothing(server: servers.Postgres, tmp_path: Path) -> None:
    assert await _zombie_writes(server.address, tmp_path, "") == []


async def test_the_checks_find_a_zombie_that_writes(server: servers.Postgres, tmp_path: Path) -> None:
    assert await _zombie_writes(server.address, tmp_path, "unfenced") != []


# --- tests of the checks

Found: TypeAlias = Callable[[], Awaitable[list[str]]]


@pytest.fixture
def address() -> str:
    return servers.shared_postgres_database()


@pytest.fixture
def found(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Found:
    """Runs twenty visits in this process, and returns the faults found."""
    monkeypatch.setenv(order_workflows.EFFECT_LOG, str(tmp_path / "effects"))

    async def run() -> list[str]:
        acknowledgements = Acknowledgements()
        async with App(address, workflows=[hotel_workload.visit, competing_consumers.clerk]) as app:
            await servers.empty_postgres(address)
            await competing_consumers.start_clerks(app, 2)
            await HotelClient(app, acknowledgements, random.Random(1)).serve(20)
            await app.send_to(hotel_workload.name_of(19), hotel_workload.DESK, "the last word")

            async def most_are_gone() -> bool:
                return await count(address, hotel_workload.FINISHED) >= 19

            await until(most_are_gone, "visits end")
            await stop_clerks(app, 2)
        return await faults(address, tmp_path, acknowledgements, 20)

    return run


async def test_the_checks_find_an_event_that_was_acknowledged_but_not_stored(
    found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = App.send_event

    async def too_soon(app: App, *args: Any, **more: Any) -> Any:
        return None if more["subject"] == "3" else await send(app, *args, **more)

    monkeypatch.setattr(App, "send_event", too_soon)
    wrong = await found()
    assert "event paid-3 was acknowledged but is missing" in wrong
    assert any(one.startswith("visit-3 is (") for one in wrong)
