"""What happens in a world: clients come, processes live and die, everything goes wrong, and is well again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from tests.explore.participants import Cast, listen, seen, speak
from tests.explore.random_participants import random_cast
from tests.simulate.clients import Clients
from tests.simulate.final_checks import Ending
from tests.simulate.loop import Restless
from tests.simulate.order_workflows import arrived, order, random_order
from tests.simulate.simulated_process import Process
from tests.simulate.simulation import Failed, SimulatedBroker, World

from romancy.authoring.workflow import Workflow
from romancy.clock import MICROS
from romancy.model.status import Status
from romancy.store.open import open_store

_WORKFLOWS: list[Workflow[..., Any]] = [order, arrived, listen, speak]
_PATIENCE = 120.0
"""Virtual seconds after the last trouble within which everything must be done."""
_FAREWELLS = 1000
_LATE = 10.0
"""Virtual seconds in which whoever comes back late does."""


class Play:
    """One world from its beginning to its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} play")
        self._options = _options(chance)
        self._cast = random_cast("t", chance) if chance.random() < 0.7 else Cast((), (), ())
        self._orders = [random_order(f"o{number}", chance) for number in range(chance.randint(1, 5))]
        self._clients = Clients(world, random.Random(f"{world.seed} clients"))
        self._keepers: list[asyncio.Task[None]] = []
        self._reader = open_store(world.path, clock=world.clock, threads="inline")

    async def run(self) -> None:
        """All of it. What is wrong is in the ledger; raises `Failed` where it makes no sense to go on."""
        world = self._world
        world.note("", f"{world.weather}", f"{self._options}")
        await self._reader.open()
        world.watch.open()
        count = self._chance.choice([1, 2, 2, 3])
        self._keepers = [asyncio.create_task(self._keep(f"p{number}")) for number in range(count)]
        self._begin_clients()
        await self._trouble()
        await self._recover()
        await Ending(world, self._clients, self._reader).check(self._orders, self._cast)
        world.note("", "the end")

    def _begin_clients(self) -> None:
        clients, chance, cast = self._clients, self._chance, self._cast
        for spec in (*self._orders, *cast.listeners, *cast.speakers):
            clients.spawn(clients.start(spec, waits="steps" in spec and chance.random() < 0.5))
        for outsider in cast.outsiders:
            clients.spawn(clients.send(outsider))
        clients.spawn(clients.arrive("a0", chance.randint(0, 4)))
        for spec in (*self._orders, *cast.listeners):
            if chance.random() < 0.3:
                clients.spawn(clients.steer(spec["id"], chance.choice(["pause", "pause", "cancel", "terminate"])))

    async def _keep(self, name: str) -> None:
        """Bring up a process, and another when it is gone."""
        number = 0
        while True:
            number += 1
            process = Process(self._world, f"{name}.{number}", broker=SimulatedBroker(self._world), **self._options)
            self._world.processes.append(process)
            process.begin()
            await process.over
            await asyncio.sleep(self._chance.uniform(0.1, 5.0))

    # --- what goes wrong

    async def _trouble(self) -> None:
        world, weather = self._world, self._world.weather
        end = world.loop.time() + weather.lasts
        while (left := end - world.loop.time()) > 0:
            await self._sleep(min(left, weather.chance.expovariate(1 / weather.pause)))
            alive = [process for process in world.processes if not process.over.done()]
            if weather.disasters and alive:
                self._strike(weather.chance.choice(weather.disasters), weather.chance.choice(alive))

    def _strike(self, what: str, process: Process) -> None:
        world, chance = self._world, self._world.weather.chance
        until = world.loop.time() + chance.choice([0.5, 2.0, 6.0, 15.0])
        world.note(process.name, f"trouble: {what} until {until:.1f}")
        match what:
            case "kill":
                process.kill()
            case "restart":
                if process.up:
                    process.shut_down()
            case "outage":
                for one in world.processes:
                    one.cut(until)
            case "jump":
                world.clock.ahead += round(chance.choice([-2.0, -0.5, 0.5, 3.0, 10.0, 60.0]) * MICROS)
            case _:
                getattr(process, what)(until)

    async def _recover(self) -> None:
        """Nothing goes wrong any more: everything must come to its end."""
        world = self._world
        world.note("", "everything is well again")
        world.weather.clear_up()
        for process in world.processes:
            process.recover()
        deadline = world.loop.time() + _PATIENCE
        while list(self._left()):
            if world.loop.time() > deadline:
                self._tell_what_is_left()
            self._resume()
            await self._sleep(1.0)
        await self._sleep(_LATE)
        self._tell_what_is_left()

    def _resume(self) -> None:
        """Whoever is paused still, by a wish that was done late, goes on."""
        for row in self._world.watch.rows.values():
            if row.status is Status.PAUSED:
                self._clients.spawn(self._clients.resume(row.id))

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._clients.check()
        if self._world.ledger.faults:
            raise Failed("something went wrong")

    def _left(self) -> Iterator[str]:
        """What is not done."""
        world = self._world
        if not self._clients.done:
            yield "clients, who were not answered"
        endless = {spec["id"] for spec in self._cast.listeners}
        world.watch.look()
        for row in world.watch.rows.values():
            waits = row.owner is None and row.wake_at is None and row.status is not Status.PAUSED
            if not row.status.ended and not (row.id in endless and waits):
                yield f"{row}"
        for process in world.processes:
            if process.leaving and not process.over.done():
                yield f"{process.name}, which does not end"
        if world.watch.undelivered():
            yield f"{world.watch.undelivered()} events in the outbox"

    def _tell_what_is_left(self) -> None:
        for left in self._left():
            self._world.fault(f"forgotten: {left}")

    # --- the end

    async def clean_up(self) -> None:
        """Nothing of this world is left."""
        world = self._world
        for process in world.processes:
            process.discard()
            for store in process.stores:
                await store.close()
        await _cancel_everything()
        world.watch.close()
        await self._reader.close()
        for spec in self._cast.listeners:
            seen.pop(spec["id"], None)


async def _cancel_everything() -> None:
    """Some have to be told more than once: they clean up first."""
    for _ in range(_FAREWELLS):
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=0.01)
    raise Restless("something does not let itself be cancelled")


def _options(chance: random.Random) -> dict[str, Any]:
    return {
        "workflows": _WORKFLOWS,
        "cache_size": chance.choice([0, 1, 3, 1000]),
        "max_concurrent_workflows": chance.choice([1, 3, 1000, 1000]),
        "max_concurrent_activities": chance.choice([1, 3, 100]),
        "heartbeat_interval": 1.0,
        "lease_timeout": 4.0,
        "max_losses": 0,  # whoever is killed at random is no culprit
        "poll_interval": chance.choice([0.3, 1.0, 2.0]),
        "outbox_interval": chance.choice([0.5, 2.0]),
        "outbox_batch_size": chance.choice([1, 5, 100]),
        "shutdown_timeout": 2.0,
        "block_warning": 0.0,
    }
