"""What must hold when everything has come to its end."""

from __future__ import annotations

from typing import Any

from tests.explore.invariants import check as check_talk
from tests.explore.participants import Cast
from tests.explore.scenario import Scene, Stage
from tests.explore.scheduler import Hand
from tests.simulate.clients import Clients
from tests.simulate.order_workflows import ARRIVED, Spec, arrived, expected, order, said_by
from tests.simulate.simulation import World

from romancy.authoring.workflow import Workflow
from romancy.core.commands import Finish
from romancy.errors import DeterminismViolationError
from romancy.model.history import Kind, Outcome
from romancy.model.instance import StoredInstance
from romancy.model.status import Status
from romancy.store.port import Store
from romancy.testing import RecordedHistory, replay_history
from romancy.testing.environment import VirtualClock


class Ending:
    """Looks at everything once more."""

    def __init__(self, world: World, clients: Clients, reader: Store) -> None:
        self._world = world
        self._clients = clients
        self._reader = reader

    async def check(self, orders: list[Spec], cast: Cast) -> None:
        """Enter into the ledger whatever is wrong."""
        self._check_promises()
        for row in self._world.watch.rows.values():
            self._world.watch.check_history(row)
            if row.workflow in (order.name, ARRIVED):
                self._world.check_recorded(row.id, row.generation)
        for spec in orders:
            await self._check_order(spec)
        await self._check_arrivals()
        stage = Stage((), Hand(), VirtualClock(), self._reader)
        await check_talk(Scene(stage, cast, self._world.ledger, [*self._world.acknowledged]))

    def _check_promises(self) -> None:
        world = self._world
        for id in world.started:
            if id not in world.watch.rows:
                world.fault(f"{id} was acknowledged, and is gone")
        for id, may_be in world.ended_by_order.items():
            if world.watch.rows[id].status not in may_be:
                world.fault(f"{id} was to be {' or '.join(sorted(may_be))}, and is {world.watch.rows[id].status}")
        if lost := world.ledger.for_broker.keys() - set(world.received):
            world.fault(f"the broker never got {sorted(lost)}")

    # --- orders

    async def _check_order(self, spec: Spec) -> None:
        id, world = spec["id"], self._world
        stored = await self._get(id)
        status = stored.row.status
        steered = id in self._clients.steered and status in (Status.CANCELLED, Status.TERMINATED)
        if status is not (Status.FAILED if spec["badly"] else Status.COMPLETED) and not steered:
            world.fault(f"{id} is {status}: {stored.error!r}")
        self._check_result(spec, stored)
        if not steered:
            said = [sent.data["by"] for sent in world.ledger.sent.values() if sent.data["by"].startswith(f"{id}:")]
            if sorted(said) != sorted(said_by(spec)):
                world.fault(f"{id} was to say {said_by(spec)}, and said {said}")
        await self._check_replay(stored, order)
        self._check_way_back(id, stored)

    def _check_result(self, spec: Spec, stored: StoredInstance) -> None:
        id, right = spec["id"], expected(spec)
        told = self._clients.results.get(id)
        if stored.row.status is Status.COMPLETED:
            result = order.result.decode(stored.output or b"")
            if result != right or told not in (None, right):
                self._world.fault(f"{id} returned {result}, not {right}; told: {told}")
        elif told is not None:
            self._world.fault(f"{id} is {stored.row.status}, and somebody was given the result {told}")

    def _check_way_back(self, id: str, stored: StoredInstance) -> None:
        """What can be undone was, the last first; or nothing was."""
        history = self._world.watch.history(id, stored.row.generation)
        done = [entry.op for entry in history if entry.kind == Kind.COMPENSATION]
        undoable = [f"compensate:{entry.op}" for entry in history if _is_undoable(entry)]
        if stored.row.status in (Status.FAILED, Status.CANCELLED) and done != undoable[::-1]:
            self._world.fault(f"{id} has undone {done}; completed were {undoable}")
        if stored.row.status is Status.COMPLETED and done:
            self._world.fault(f"{id} has undone {done} although nothing failed")

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
            self._world.fault(f"{row.instance_id} cannot be replayed: {error}")
            return
        again = workflow.result.encode(verdict.value) if isinstance(verdict, Finish) else None
        if row.status is Status.COMPLETED and again != stored.output:
            self._world.fault(f"{row.instance_id} returned {stored.output!r}; replayed, {again!r}")

    # --- what events start

    async def _check_arrivals(self) -> None:
        """Each event has started one instance."""
        world, results = self._world, list[int]()
        events = [sent for sent in world.ledger.sent.values() if sent.event is not None and sent.event.type == ARRIVED]
        for row in world.watch.rows.values():
            if row.workflow == ARRIVED:
                stored = await self._get(row.id)
                results.append(-1 if stored.output is None else arrived.result.decode(stored.output))
                await self._check_replay(stored, arrived)
        if sorted(results) != sorted(2 * sent.data["n"] for sent in events):
            world.fault(f"events {[sent.id for sent in events]} have started what returned {results}")

    async def _get(self, id: str) -> StoredInstance:
        stored = await self._reader.get(id)
        assert stored is not None
        return stored


def _is_undoable(entry: Any) -> bool:
    if entry.kind == Kind.ACTIVITY:
        return bool(entry.name == "book" and entry.outcome == Outcome.OK)
    return bool(entry.kind == Kind.REGISTRATION)
