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
from tests.property.settings import examples
from tests.store.player import Place, Player
from tests.store.steps import Step, shortened, tell

from romancy.clock import SystemClock
from romancy.store.open import Server, open_store

Play = Callable[[Sequence[Step]], None]


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

        def played(story: Sequence[Step]) -> None:
            for place in places:
                kinds[place.name].empty(place.address)
            runner.run(Player(places).play(story))

        yield played
        for place in places:
            runner.run(place.store.close())
    for place in places:
        kinds[place.name].take_back(place.address)


def _open(runner: asyncio.Runner, name: str, address: str) -> Place:
    store = open_store(address, clock=SystemClock(), threads="inline", server=Server(listen_notify=False))
    runner.run(store.open())
    return Place(name, address, store)


@pytest.mark.timeout(600)
def test_every_database_does_the_same_and_what_it_should(play: Play) -> None:
    first = random.randrange(2**32)
    for seed in range(first, first + examples(200)):
        story = tell(random.Random(seed))
        if _fault(play, story) is not None:
            short = shortened(story, lambda steps: _fault(play, steps) is not None)
            lines = "\n".join(f"    {step}" for step in short)
            pytest.fail(f"story {seed}\n{lines}\nends with {_fault(play, short)}")


def _fault(play: Play, story: Sequence[Step]) -> str | None:
    try:
        play(story)
    except AssertionError as error:
        return str(error)
    return None
