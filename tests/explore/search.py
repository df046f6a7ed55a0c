"""Looks for an order in which something goes wrong: all of them for small casts, some for large ones."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.explore.explorer import Divergence, laboratory
from tests.explore.participants import Cast
from tests.explore.random_participants import random_cast
from tests.explore.scheduler import Hand, Tells
from tests.explore.small_scenarios import MODES, one_ends, one_is_cancelled, small
from tests.explore.strategies import Chance, Every


class Found(NamedTuple):
    """What was found, and after how many rounds; None: nothing was."""

    rounds: int
    fault: str | None


@dataclass(frozen=True)
class Case:
    """A small cast, of which every order is to be tried."""

    name: str
    make: Callable[[str], Cast]
    processes: int = 2
    tells: Tells = "late"
    gathers: bool = False
    crashes: int = 0
    delays: int = 0

    def __str__(self) -> str:
        return self.name


def try_orders(case: Case, most: int = 1_000_000) -> Found:
    """Try every order of a small cast, as long as nothing is found."""
    return asyncio.run(_try_orders(case, most))


async def _try_orders(case: Case, most: int) -> Found:
    every = Every(crashes=case.crashes, delays=case.delays)
    hand = Hand(tells=case.tells, gathers=case.gathers)
    async with laboratory(case.processes, hand) as there:
        for number in range(1, most + 1):
            try:
                await there.play(case.make(f"{number}"), every)
            except Divergence as divergence:
                return Found(number, f"{case}, order {number}: {divergence}")
            if not every.next():
                return Found(number, None)
    return Found(most, None)


def try_chance(seed: int, rounds: int) -> Found:
    """Play casts made by chance in orders made by chance."""
    return asyncio.run(_try_chance(seed, rounds))


async def _try_chance(seed: int, rounds: int) -> Found:
    chance = random.Random(seed)
    tells: Tells = chance.choice(("late", "late", "at once", "never"))
    hand = Hand(tells=tells, gathers=chance.random() < 0.5, reads=chance.random() < 0.5, split=chance.random() < 0.3)
    async with laboratory(chance.choice([1, 2, 2]), hand, warm=chance.choice([0, 1, 1000])) as there:
        for number in range(1, rounds + 1):
            cast = random_cast(f"{number}", chance)
            try:
                await there.play(cast, Chance(chance.randrange(2**32), crashes=chance.choice([0, 1, 2])))
            except Divergence as divergence:
                return Found(number, f"seed {seed}, round {number}: {divergence}\n{cast}")
    return Found(rounds, None)


# --- small casts


def one_to_one() -> Iterator[Case]:
    """One who speaks and one who listens; one process may die, at any time."""
    for mode in MODES:
        for via in ("outside", "elsewhere", "workflow", "activity"):
            together = via == "outside"
            make = _maker(mode, 1, 1, via)
            yield Case(f"{mode} from {via}", make, 1 if together else 2, gathers=together, crashes=1)


def with_a_timeout() -> Iterator[Case]:
    """One who speaks and one whose patience may end, at any time."""
    for mode in MODES:
        for tells in _TELLS:
            make = _maker(mode, 1, 1, "elsewhere", timeout=1.0)
            yield Case(f"{mode} with a timeout, told {tells}", make, tells=tells, delays=1)


def with_an_activity() -> Iterator[Case]:
    """One who speaks and one who has something to do while it listens: it is in hand when it is called."""
    for mode in MODES:
        for tells in _TELLS:
            make = _maker(mode, 1, 1, "elsewhere", busy=True)
            yield Case(f"{mode} beside an activity, told {tells}", make, tells=tells)


def several() -> Iterator[Case]:
    """Two who speak, two who listen, or both; they are told at once, or never."""
    for mode, tells in itertools.product(MODES, _TELLS):
        for senders, listeners, via in ((2, 1, "elsewhere"), (1, 2, "elsewhere"), (2, 2, "workflow"), (2, 2, "activity")):
            name = f"{mode}, {senders} to {listeners} from {via}, told {tells}"
            yield Case(name, _maker(mode, senders, listeners, via), tells=tells)
    yield Case("event, 2 to 2 from elsewhere", _maker("event", 2, 2, "elsewhere"), tells="never")
    yield Case("competing, one ends", _ending("competing"), tells="never")
    for tells in _TELLS:
        yield Case(f"event, one is cancelled, told {tells}", lambda name: one_is_cancelled(name, "event"), tells=tells)


def many() -> Iterator[Case]:
    """As the others, where there are thousands of orders."""
    for case in (*with_a_timeout(), *with_an_activity(), *several()):
        yield replace(case, name=f"{case}, with a crash", crashes=1)
    for mode, tells in itertools.product(("broadcast", "competing"), _TELLS):
        yield Case(f"{mode}, 2 to 2 from elsewhere, told {tells}", _maker(mode, 2, 2, "elsewhere"), tells=tells)
        yield Case(f"{mode}, one ends, told {tells}", _ending(mode), tells=tells)


_TELLS: tuple[Tells, ...] = ("at once", "never")


def _maker(
    mode: str, senders: int, listeners: int, via: str, *, timeout: float | None = None, busy: bool = False
) -> Callable[[str], Cast]:
    return lambda name: small(name, mode, senders, listeners, via, timeout=timeout, busy=busy)


def _ending(mode: str) -> Callable[[str], Cast]:
    return lambda name: one_ends(name, mode)
