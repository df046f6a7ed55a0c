"""Checks on the final state, after faults have stopped and every instance has ended or waits."""

from __future__ import annotations

from typing import Any

from tests.explore.invariants import check as check_messaging
from tests.explore.participants import Participants
from tests.explore.scenario import Cluster, Scenario
from tests.explore.scheduler import Scheduler
from tests.simulate.clients import Clients
from tests.simulate.order_workflows import ARRIVED, Spec, arrived, expected, expected_senders, order
from tests.simulate.simulation import Simulation

from romancy.authoring.workflow import Workflow
from romancy.core.commands import Finish
from romancy.errors import DeterminismViolationError
from romancy.model.history import Kind, Outcome
from romancy.model.instance import StoredInstance
from romancy.model.status import Status
from romancy.store.port import Store
from romancy.testing import RecordedHistory, replay_history
from romancy.testing.environment import VirtualClock


class FinalChecks:
    """Compares the final state of the database with the answers that clients got and with the reference model."""

    def __init__(self, simulation: Simulation, clients: Clients, reader: Store) -> None:
        self._simulation = simulation
        self._clients = clients
        self._reader = reader

    async def check(self, orders: list[Spec], participants: Participants) -> None:
        """Run all checks; each violation is recorded as a fault of the simulation."""
        self._check_promises()
        for row in self._simulation.monitor.rows.values():
            self._simulation.monitor.check_history(row)
            if row.workflow in (order.name, ARRIVED):
                self._simulation.check_recorded_effects(row.id, row.generation)
        for spec in orders:
            await self._check_order(spec)
        await self._check_arrivals()
        cluster = Cluster((), Scheduler(), VirtualClock(), self._reader)
        await check_messaging(Scenario(cluster, participants, self._simulation.model, [*self._simulation.acknowledged]))

    def _check_promises(self) -> None:
        simulation = self._simulation
        for id in simulation.started:
            if id not in simulation.monitor.rows:
                simulation.fault(f"{id} was acknowledged, but is gone")
        for id, allowed in simulation.acknowledged_ends.items():
            if simulation.monitor.rows[id].status not in allowed:
                simulation.fault(
                    f"{id} should be {' or '.join(sorted(allowed))}, but is {simulation.monitor.rows[id].status}"
                )
        if lost := simulation.model.for_broker.keys() - set(simulation.received):
            simulation.fault(f"the broker never received {sorted(lost)}")

    # --- orders

    async def _check_order(self, spec: Spec) -> None:
        id, simulation = spec["id"], self._simulation
        stored = await self._get(id)
        status = stored.row.status
        controlled = id in self._clients.controlled and status in (Status.CANCELLED, Status.TERMINATED)
        if status is not (Status.FAILED if spec["raises"] else Status.COMPLETED) and not controlled:
            simulation.fault(f"{id} is {status}: {stored.error!r}")
        self._check_result(spec, stored)
        if not controlled:
            sent_by_order = [
                sent.data["by"] for sent in simulation.model.sent.values() if sent.data["by"].startswith(f"{id}:")
            ]
            if sorted(sent_by_order) != sorted(expected_senders(spec)):
                simulation.fault(f"{id} should send {expected_senders(spec)}, but sent {sent_by_order}")
        await self._check_replay(stored, order)
        self._check_compensation(id, stored)

    def _check_result(self, spec: Spec, stored: StoredInstance) -> None:
        id, correct = spec["id"], expected(spec)
        returned = self._clients.results.get(id)
        if stored.row.status is Status.COMPLETED:
            result = order.result.decode(stored.output or b"")
            if result != correct or returned not in (None, correct):
                self._simulation.fault(f"{id} returned {result}, not {correct}; a client received {returned}")
        elif returned is not None:
            self._simulation.fault(f"{id} is {stored.row.status}, but a client received the result {returned}")

    def _check_compensation(self, id: str, stored: StoredInstance) -> None:
        """Completed steps are compensated in reverse order if the order failed or was cancelled, and none otherwise."""
        history = self._simulation.monitor.history(id, stored.row.generation)
        done = [entry.op for entry in history if entry.kind == Kind.COMPENSATION]
        compensable = [f"compensate:{entry.op}" for entry in history if _is_compensable(entry)]
        if stored.row.status in (Status.FAILED, Status.CANCELLED) and done != compensable[::-1]:
            self._simulation.fault(f"{id} ran the compensations {done}; expected were {compensable} in reverse")
        if stored.row.status is Status.COMPLETED and done:
            self._simulation.fault(f"{id} ran the compensations {done} although nothing failed")

    async def _check_replay(self, stored: StoredInstance, workflow: Workflow[..., Any]) -> None:
        loaded = await self._reader.load(stored.row.instance_id)
        assert loaded is not None
        row = loaded.row
        recorded = RecordedHistory(
            row.workflow, row.version, row.instance_id, row.generation, loaded.begun_at, loaded.input, loaded.history
        )
        try:
            verdict = replay_history(workflow, recorded).verdict
        except DeterminismViolationError as error:
            self._simulation.fault(f"{row.instance_id} cannot be replayed: {error}")
            return
        again = workflow.result.encode(verdict.value) if isinstance(verdict, Finish) else None
        if row.status is Status.COMPLETED and again != stored.output:
            self._simulation.fault(f"{row.instance_id} returned {stored.output!r}; replayed, {again!r}")

    # --- instances started by events

    async def _check_arrivals(self) -> None:
        """Each event has started exactly one instance."""
        simulation, results = self._simulation, list[int]()
        events = [sent for sent in simulation.model.sent.values() if sent.event is not None and sent.event.type == ARRIVED]
        for row in simulation.monitor.rows.values():
            if row.workflow == ARRIVED:
                stored = await self._get(row.id)
                results.append(-1 if stored.output is None else arrived.result.decode(stored.output))
                await self._check_replay(stored, arrived)
        if sorted(results) != sorted(2 * sent.data["n"] for sent in events):
            simulation.fault(f"events {[sent.id for sent in events]} have started instances that returned {results}")

    async def _get(self, id: str) -> StoredInstance:
        stored = await self._reader.get(id)
        assert stored is not None
        return stored


def _is_compensable(entry: Any) -> bool:
    if entry.kind == Kind.ACTIVITY:
        return bool(entry.name == "book" and entry.outcome == Outcome.OK)
    return bool(entry.kind == Kind.REGISTRATION)
