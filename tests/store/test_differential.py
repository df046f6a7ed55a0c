"""The databases do the same, and what they should: stories of chance are played on all of them at once.

After each step their answers and tables are compared with each other, and with a model of a few dictionaries; at the end all
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
from tests.store.differential import Place, Player
from tests.store.store_operations import Step, shortened, tell

from romancy.clock import SystemClock
from romancy.model.transition import Transition, WriteResult
from romancy.store.open import ServerOptions, open_store
from romancy.store.postgres.cursor import PostgresCursor
from romancy.store.sql import apply, channels, events, ownership, requests, transitions
from romancy.store.sql.transitions import apply_transition
from romancy.store.sql.unit_of_work import UnitOfWork

Play = Callable[[Sequence[Step], int], None]
Plant = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """Plays a story on an empty database of each kind."""
    folder: Path = tmp_path_factory.mktemp("stories")
    kinds = {name: databases.KINDS[name] for name in databases.names()}
    for name, why_not in [(name, kind.missing()) for name, kind in kinds.items()]:
        if why_not:
            print(f"without {name}: {why_not}")
            del kinds[name]
    if len(kinds) < 2:
        pytest.skip("there is only one kind of database to compare")
    with asyncio.Runner() as runner:
        places = [_open(runner, name, kind.lend(folder)) for name, kind in kinds.items()]

        def played(story: Sequence[Step], look_every: int) -> None:
            for place in places:
                kinds[place.name].empty(place.address)
            runner.run(Player(places).play(story, look_every))

        yield played
        for place in places:
            runner.run(place.store.close())
    for place in places:
        kinds[place.name].take_back(place.address)


def _open(runner: asyncio.Runner, name: str, address: str) -> Place:
    store = open_store(address, clock=SystemClock(), threads="inline", server=ServerOptions(listen_notify=False))
    runner.run(store.open())
    return Place(name, address, store)


def test_every_database_does_the_same_and_what_it_should(play: Play) -> None:
    fault = _first_fault(play, examples(100))
    if fault is not None:
        story = shortened(fault, lambda steps: _fault(play, steps) is not None)
        lines = "\n".join(f"    {step}" for step in story)
        pytest.fail(f"the story\n{lines}\nends with {_fault(play, story)}")


def _first_fault(play: Play, most: int) -> list[Step] | None:
    """The first story that does not end well. Its steps are looked at one by one only then, since that takes its time."""
    for _ in range(most):
        story = tell(random.Random(random.random()))
        if _fault(play, story, look_every=8) is not None:
            return story
    return None


def _fault(play: Play, story: Sequence[Step], *, look_every: int = 1) -> str | None:
    try:
        play(story, look_every)
    except AssertionError as error:
        return str(error)
    return None


# --- it finds what it is there for: in what all databases do, and in what one of them does


def _plant_no_call_that_is_passed_on(monkeypatch: Plant) -> None:
    for module in (channels, requests, transitions, ownership):
        monkeypatch.setattr(module, "wake_replacements", lambda cursor, ids, now: [])


def _plant_events_that_are_not_noted_as_consumed(monkeypatch: Plant) -> None:
    monkeypatch.setattr(events, "take", lambda cursor, instance_id, wanted, seq: None)


def _plant_a_careless_release(monkeypatch: Plant) -> None:
    def careless(ledger: UnitOfWork, write: Transition) -> WriteResult:
        state = ledger.states.get(write.instance_id)
        return apply_transition(ledger, write if state is None else write._replace(inbox_seen=state.inbox_version))

    monkeypatch.setattr(apply, "apply_transition", careless)


def _plant_unread_messages_that_stay(monkeypatch: Plant) -> None:
    run = PostgresCursor.run
    monkeypatch.setattr(
        PostgresCursor, "run", lambda self, name, values=(): name != "drop_delivery" and run(self, name, values)
    )


def _plant_nobody_in_line(monkeypatch: Plant) -> None:
    rows = PostgresCursor.rows
    monkeypatch.setattr(
        PostgresCursor, "rows", lambda self, name, values=(): [] if name == "next_waiter" else rows(self, name, values)
    )


@pytest.mark.parametrize(
    "plant",
    [
        _plant_no_call_that_is_passed_on,
        _plant_events_that_are_not_noted_as_consumed,
        _plant_a_careless_release,
        _plant_unread_messages_that_stay,
        _plant_nobody_in_line,
    ],
)
def test_a_planted_fault_is_found(play: Play, plant: Callable[[Plant], None], monkeypatch: Plant) -> None:
    plant(monkeypatch)
    assert _first_fault(play, 300) is not None
