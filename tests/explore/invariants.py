"""Invariants that hold once nothing can happen any more."""

from __future__ import annotations

from tests.explore.participants import Spec, listen, seen
from tests.explore.scenario import Scenario
from tests.model.messaging import InstanceState

from romancy import DeterminismViolationError
from romancy.model.instance import LoadedInstance
from romancy.model.status import Status
from romancy.testing import RecordedHistory, replay_history


async def check(scenario: Scenario) -> None:
    """Check all invariants; each violation is recorded as a fault of the model."""
    model = scenario.model
    for id in scenario.acknowledged:
        if id not in model.sent:
            model.fault(f"{id} was acknowledged, but never committed")
    for spec in scenario.participants.listeners:
        await _check_listener(scenario, spec["id"])
    for spec in scenario.participants.senders:
        await _check_sender(scenario, spec)


async def _check_listener(scenario: Scenario, id: str) -> None:
    model = scenario.model
    instance, loaded = model.instances[id], await scenario.cluster.load(id)
    for op, store_call in instance.waits.items():
        available = next(model.available(id, store_call), None)
        if available is not None:
            model.fault(f"{id} waits for {op}, but {available.id} is available")
    _check_idle(scenario, instance, loaded)
    pending = _replay(scenario, loaded)
    if missing := set(pending) - set(loaded.waits):
        model.fault(f"{id} waits for {sorted(missing)}, but the store has no such waits")
    if seen[id] != instance.received:
        model.fault(f"{id} has received {seen[id]}; the model says {instance.received}")
    if loaded.row.status is Status.COMPLETED:
        await _check_result(scenario, id, instance)


def _check_idle(scenario: Scenario, instance: InstanceState, loaded: LoadedInstance) -> None:
    """An instance that has not ended has no owner, and has a wake time or a wait."""
    row, model = loaded.row, scenario.model
    if instance.ended != row.status.ended:
        model.fault(f"{row.instance_id} is {row.status}")
    if row.status.ended:
        return
    if row.owner is not None or (row.wake_at is None and not loaded.waits):
        model.fault(f"{row.instance_id} is {row.status}, and nothing will wake it: {row}")


def _replay(scenario: Scenario, loaded: LoadedInstance) -> tuple[str, ...]:
    """Replay an instance and return its pending operations; `seen` then holds what it received."""
    row = loaded.row
    history = RecordedHistory(
        row.workflow, row.version, row.instance_id, row.generation, loaded.begun_at, loaded.input, loaded.history
    )
    try:
        replayed = replay_history(listen, history)
    except DeterminismViolationError as error:
        scenario.model.fault(f"{row.instance_id} cannot be replayed: {error}")
        return ()
    return () if row.status.ended else replayed.pending


async def _check_result(scenario: Scenario, id: str, instance: InstanceState) -> None:
    stored = await scenario.cluster.store.get(id)
    assert stored is not None
    assert stored.output is not None
    result = listen.result.decode(stored.output)
    if result != instance.received:
        scenario.model.fault(f"{id} has returned {result}; the model says {instance.received}")


async def _check_sender(scenario: Scenario, spec: Spec) -> None:
    """A sender has completed and has sent each item once, except to instances that may have ended."""
    model, id = scenario.model, spec["id"]
    row = (await scenario.cluster.load(id)).row
    if row.status is not Status.COMPLETED:
        model.fault(f"{id} is {row.status}: {row}")
    sent = [sent.data["n"] for sent in model.sent.values() if sent.data["by"] == id]
    expected = [item["data"]["n"] for item in spec["items"] if item["how"] != "to"]
    if [number for number in sent if number in expected] != expected:
        model.fault(f"{id} should send {expected}, but sent {sent}")
