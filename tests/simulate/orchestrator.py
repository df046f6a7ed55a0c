"""Orchestrator of one simulation: it runs clients and processes, injects faults, stops them, and checks the outcome."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from tests.explore.participants import Participants, listen, seen, send_items
from tests.explore.random_participants import random_participants
from tests.simulate.clients import Clients
from tests.simulate.final_checks import FinalChecks
from tests.simulate.loop import LivelockError
from tests.simulate.order_workflows import arrived, order, random_order
from tests.simulate.simulated_process import Process
from tests.simulate.simulation import Failed, SimulatedBroker, Simulation

from romancy.authoring.workflow import Workflow
from romancy.clock import MICROS
from romancy.model.status import Status
from romancy.store.open import open_store

_WORKFLOWS: list[Workflow[..., Any]] = [order, arrived, listen, send_items]
_TIMEOUT = 120.0
"""Virtual seconds after the last fault within which everything must have finished."""
_MAX_CANCELS = 1000
_GRACE = 10.0
"""Virtual seconds to wait for late calls after everything has finished."""


class Orchestrator:
    """Runs one simulation from start to end."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._rng = rng = random.Random(f"{simulation.seed} orchestrator")
        self._options = _options(rng)
        self._participants = random_participants("t", rng) if rng.random() < 0.7 else Participants((), (), ())
        self._orders = [random_order(f"o{number}", rng) for number in range(rng.randint(1, 5))]
        self._clients = Clients(simulation, random.Random(f"{simulation.seed} clients"))
        self._supervisors: list[asyncio.Task[None]] = []
        self._reader = open_store(simulation.path, clock=simulation.clock, threads="inline")

    async def run(self) -> None:
        """Run the simulation. Violations are recorded as faults; raises `Failed` when there is no point in continuing."""
        simulation = self._simulation
        simulation.note("", f"{simulation.fault_plan}", f"{self._options}")
        await self._reader.open()
        simulation.monitor.open()
        count = self._rng.choice([1, 2, 2, 3])
        self._supervisors = [asyncio.create_task(self._supervise(f"p{number}")) for number in range(count)]
        self._begin_clients()
        await self._inject_faults()
        await self._recover()
        await FinalChecks(simulation, self._clients, self._reader).check(self._orders, self._participants)
        simulation.note("", "the end")

    def _begin_clients(self) -> None:
        clients, rng, participants = self._clients, self._rng, self._participants
        for spec in (*self._orders, *participants.listeners, *participants.senders):
            clients.spawn(clients.start(spec, waits="steps" in spec and rng.random() < 0.5))
        for external_sender in participants.external_senders:
            clients.spawn(clients.send(external_sender))
        clients.spawn(clients.send_start_events("a0", rng.randint(0, 4)))
        for spec in (*self._orders, *participants.listeners):
            if rng.random() < 0.3:
                clients.spawn(clients.control(spec["id"], rng.choice(["pause", "pause", "cancel", "terminate"])))

    async def _supervise(self, name: str) -> None:
        """Start a process, and another one whenever it has ended."""
        number = 0
        while True:
            number += 1
            process = Process(
                self._simulation, f"{name}.{number}", broker=SimulatedBroker(self._simulation), **self._options
            )
            self._simulation.processes.append(process)
            process.begin()
            await process.over
            await asyncio.sleep(self._rng.uniform(0.1, 5.0))

    # --- faults

    async def _inject_faults(self) -> None:
        simulation, fault_plan = self._simulation, self._simulation.fault_plan
        end = simulation.loop.time() + fault_plan.lasts
        while (left := end - simulation.loop.time()) > 0:
            await self._sleep(min(left, fault_plan.rng.expovariate(1 / fault_plan.pause)))
            alive = [process for process in simulation.processes if not process.over.done()]
            if fault_plan.disasters and alive:
                self._inject_fault(fault_plan.rng.choice(fault_plan.disasters), fault_plan.rng.choice(alive))

    def _inject_fault(self, what: str, process: Process) -> None:
        simulation, rng = self._simulation, self._simulation.fault_plan.rng
        until = simulation.loop.time() + rng.choice([0.5, 2.0, 6.0, 15.0])
        simulation.note(process.name, f"fault: {what} until {until:.1f}")
        match what:
            case "kill":
                process.kill()
            case "restart":
                if process.up:
                    process.shut_down()
            case "outage":
                for one in simulation.processes:
                    one.cut(until)
            case "jump":
                simulation.clock.ahead += round(rng.choice([-2.0, -0.5, 0.5, 3.0, 10.0, 60.0]) * MICROS)
            case _:
                getattr(process, what)(until)

    async def _recover(self) -> None:
        """Stop all faults and wait until everything has finished."""
        simulation = self._simulation
        simulation.note("", "faults stop")
        simulation.fault_plan.stop_faults()
        for process in simulation.processes:
            process.recover()
        deadline = simulation.loop.time() + _TIMEOUT
        while list(self._unfinished()):
            if simulation.loop.time() > deadline:
                self._report_unfinished()
            self._resume()
            await self._sleep(1.0)
        await self._sleep(_GRACE)
        self._report_unfinished()

    def _resume(self) -> None:
        """Resume instances that are still paused because a pause took effect late."""
        for row in self._simulation.monitor.rows.values():
            if row.status is Status.PAUSED:
                self._clients.spawn(self._clients.resume(row.id))

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._clients.check()
        if self._simulation.model.faults:
            raise Failed("the simulation has faults")

    def _unfinished(self) -> Iterator[str]:
        """Everything that has not finished yet."""
        simulation = self._simulation
        if not self._clients.done:
            yield "clients without an answer"
        endless = {spec["id"] for spec in self._participants.listeners}
        simulation.monitor.check_rows()
        for row in simulation.monitor.rows.values():
            waits = row.owner is None and row.wake_at is None and row.status is not Status.PAUSED
            if not row.status.ended and not (row.id in endless and waits):
                yield f"{row}"
        for process in simulation.processes:
            if process.shutting_down and not process.over.done():
                yield f"{process.name}, which does not shut down"
        if simulation.monitor.outbox_size():
            yield f"{simulation.monitor.outbox_size()} events in the outbox"

    def _report_unfinished(self) -> None:
        for left in self._unfinished():
            self._simulation.fault(f"unfinished: {left}")

    # --- end

    async def clean_up(self) -> None:
        """Stop all processes and close all stores."""
        simulation = self._simulation
        for process in simulation.processes:
            process.discard()
            for store in process.stores:
                await store.close()
        await _cancel_everything()
        simulation.monitor.close()
        await self._reader.close()
        for spec in self._participants.listeners:
            seen.pop(spec["id"], None)


async def _cancel_everything() -> None:
    """Cancel every task, repeatedly, because some clean up first."""
    for _ in range(_MAX_CANCELS):
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=0.01)
    raise LivelockError("a task cannot be cancelled")


def _options(rng: random.Random) -> dict[str, Any]:
    return {
        "workflows": _WORKFLOWS,
        "cache_size": rng.choice([0, 1, 3, 1000]),
        "max_concurrent_workflows": rng.choice([1, 3, 1000, 1000]),
        "max_concurrent_activities": rng.choice([1, 3, 100]),
        "heartbeat_interval": 1.0,
        "lease_timeout": 4.0,
        "max_losses": 0,  # a process that is killed at random says nothing about the instances it ran
        "poll_interval": rng.choice([0.3, 1.0, 2.0]),
        "outbox_interval": rng.choice([0.5, 2.0]),
        "outbox_batch_size": rng.choice([1, 5, 100]),
        "shutdown_timeout": 2.0,
        "block_warning": 0.0,
    }
