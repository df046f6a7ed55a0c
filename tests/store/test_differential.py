"""All databases answer alike and as specified: random operations run on all of them at once.

After each step, answers and tables are compared with each other and with a model of a few dictionaries; at the end, all
that can be read. `ROMANCY_EXAMPLES=2000` is a longer search.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests import databases
from tests.property.hypothesis_settings import examples
from tests.store.differential import DifferentialRun, StoreUnderTest
from tests.store.store_operations import Advance, Prune, Start, Step, random_steps, reduce

from romancy.clock import SystemClock
from romancy.model.transition import Transition, WriteResult
from romancy.store.open import ServerOptions, open_store
from romancy.store.postgres.cursor import PostgresCursor
from romancy.store.sql import apply, channels, events, ownership, requests, transitions
from romancy.store.sql.transitions import apply_transition
from romancy.store.sql.unit_of_work import UnitOfWork

RunSteps = Callable[[Sequence[Step], int], None]
Plant = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def run_steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunSteps]:
    """Runs a sequence of steps on an empty database of each kind."""
    folder: Path = tmp_path_factory.mktemp("stories")
    kinds = {name: databases.KINDS[name] for name in databases.names()}
    for name, why_not in [(name, kind.missing()) for name, kind in kinds.items()]:
        if why_not:
            print(f"without {name}: {why_not}")
            del kinds[name]
    if len(kinds) < 2:
        pytest.skip("there is only one kind of database to compare")
    with asyncio.Runner() as runner:
        targets = [_open(runner, name, kind.lend(folder)) for name, kind in kinds.items()]

        def run_on_all(steps: Sequence[Step], compare_every: int) -> None:
            for target in targets:
                kinds[target.name].empty(target.address)
            runner.run(DifferentialRun(targets).run(steps, compare_every))

        yield run_on_all
        for target in targets:
            runner.run(target.store.close())
    for target in targets:
        kinds[target.name].take_back(target.address)


def _open(runner: asyncio.Runner, name: str, address: str) -> StoreUnderTest:
    store = open_store(address, clock=SystemClock(), threads="inline", server=ServerOptions(listen_notify=False))
    runner.run(store.open())
    return StoreUnderTest(name, address, store)


def test_every_database_does_the_same_and_what_it_should(run_steps: RunSteps) -> None:
    fault = _first_fault(run_steps, examples(100))
    if fault is not None:
        steps = reduce(fault, lambda steps: _fault(run_steps, steps) is not None)
        lines = "\n".join(f"    {step}" for step in steps)
        pytest.fail(f"the steps\n{lines}\nfail with {_fault(run_steps, steps)}")


def test_a_start_is_repeated_after_the_first_generation_was_deleted(run_steps: RunSteps) -> None:
    for ends in ([Advance("a", then="forget")], [Advance("a", then="recur"), Prune("trim", 0)]):
        assert _fault(run_steps, [Start("a"), *ends, Start("a", other=True)]) is None


def _first_fault(run_steps: RunSteps, most: int) -> list[Step] | None:
    """The first failing sequence. Its tables are compared after every step only then, because that is slow."""
    for _ in range(most):
        steps = random_steps(random.Random(random.random()))
        if _fault(run_steps, steps, compare_every=8) is not None:
            return steps
    return None


def _fault(run_steps: RunSteps, steps: Sequence[Step], *, compare_every: int = 1) -> str | None:
    try:
        run_steps(steps, compare_every)
    except AssertionError as error:
        return str(error)
    return None


# --- planted faults, in all databases or in one


def _plant_no_replacement_is_woken(monkeypatch: Plant) -> None:
    for module in (channels, requests, transitions, ownership):
        monkeypatch.setattr(module, "wake_replacements", lambda cursor, ids, now: [])


def _plant_events_that_are_not_noted_as_consumed(monkeypatch: Plant) -> None:
    monkeypatch.setattr(events, "take", lambda cursor, instance_id, wanted, seq: None)


def _plant_a_release_that_ignores_new_items(monkeypatch: Plant) -> None:
    def release_without_reading(unit: UnitOfWork, write: Transition) -> WriteResult:
        state = unit.states.get(write.instance_id)
        return apply_transition(unit, write if state is None else write._replace(inbox_seen=state.inbox_version))

    monkeypatch.setattr(apply, "apply_transition", release_without_reading)


def _plant_unread_messages_that_stay(monkeypatch: Plant) -> None:
    run = PostgresCursor.run
    monkeypatch.setattr(
        PostgresCursor, "run", lambda self, name, values=(): name != "drop_delivery" and run(self, name, values)
    )


def _plant_no_next_waiter(monkeypatch: Plant) -> None:
    rows = PostgresCursor.rows
    monkeypatch.setattr(
        PostgresCursor, "rows", lambda self, name, values=(): [] if name == "next_waiter" else rows(self, name, values)
    )


@pytest.mark.parametrize(
    "plant",
    [
        _plant_no_replacement_is_woken,
        _plant_events_that_are_not_noted_as_consumed,
        _plant_a_release_that_ignores_new_items,
        _plant_unread_messages_that_stay,
        _plant_no_next_waiter,
    ],
)
def test_a_planted_fault_is_found(run_steps: RunSteps, plant: Callable[[Plant], None], monkeypatch: Plant) -> None:
    plant(monkeypatch)
    assert _first_fault(run_steps, 300) is not None
