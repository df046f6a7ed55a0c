"""Search for an order that violates an invariant: all orders for small scenarios, random ones for large scenarios."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.explore.explorer import Divergence, open_explorer
from tests.explore.participants import Participants
from tests.explore.random_participants import random_participants
from tests.explore.scheduler import NotifyMode, Scheduler
from tests.explore.small_scenarios import MODES, one_ends, one_is_cancelled, small
from tests.explore.strategies import ExhaustiveStrategy, RandomStrategy


class Found(NamedTuple):
    """The fault that was found, or None, and the number of rounds it took."""

    rounds: int
    fault: str | None


@dataclass(frozen=True)
class Case:
    """A small scenario of which every order is tried."""

    name: str
    make: Callable[[str], Participants]
    processes: int = 2
    notify_mode: NotifyMode = "late"
    gates_batches: bool = False
    crashes: int = 0
    delays: int = 0

    def __str__(self) -> str:
        return self.name


def try_all_orders(case: Case, most: int = 1_000_000) -> Found:
    """Try every order of a small scenario until a fault is found."""
    return asyncio.run(_try_all_orders(case, most))


async def _try_all_orders(case: Case, most: int) -> Found:
    strategy = ExhaustiveStrategy(crashes=case.crashes, delays=case.delays)
    scheduler = Scheduler(notify_mode=case.notify_mode, gates_batches=case.gates_batches)
    async with open_explorer(case.processes, scheduler) as explorer:
        for number in range(1, most + 1):
            try:
                await explorer.run_round(case.make(f"{number}"), strategy)
            except Divergence as divergence:
                return Found(number, f"{case}, order {number}: {divergence}")
            if not strategy.next():
                return Found(number, None)
    return Found(most, None)


def try_random_orders(seed: int, rounds: int) -> Found:
    """Run random participants in random orders until a fault is found."""
    return asyncio.run(_try_random_orders(seed, rounds))


async def _try_random_orders(seed: int, rounds: int) -> Found:
    rng = random.Random(seed)
    notify_mode: NotifyMode = rng.choice(("late", "late", "at once", "never"))
    scheduler = Scheduler(
        notify_mode=notify_mode,
        gates_batches=rng.random() < 0.5,
        extra_gates=rng.random() < 0.5,
        split=rng.random() < 0.3,
    )
    async with open_explorer(rng.choice([1, 2, 2]), scheduler, cache_size=rng.choice([0, 1, 1000])) as explorer:
        for number in range(1, rounds + 1):
            participants = random_participants(f"{number}", rng)
            try:
                await explorer.run_round(participants, RandomStrategy(rng.randrange(2**32), crashes=rng.choice([0, 1, 2])))
            except Divergence as divergence:
                return Found(number, f"seed {seed}, round {number}: {divergence}\n{participants}")
    return Found(rounds, None)


# --- small scenarios


def one_to_one() -> Iterator[Case]:
    """One sender and one listener; a process may die once, at any time."""
    for mode in MODES:
        for via in ("outside", "elsewhere", "workflow", "activity"):
            together = via == "outside"
            make = _maker(mode, 1, 1, via)
            yield Case(f"{mode} from {via}", make, 1 if together else 2, gates_batches=together, crashes=1)


def with_a_timeout() -> Iterator[Case]:
    """One sender and one listener whose timeout may expire at any time."""
    for mode in MODES:
        for notify_mode in _NOTIFY_MODES:
            make = _maker(mode, 1, 1, "elsewhere", timeout=1.0)
            yield Case(f"{mode} with a timeout, notified {notify_mode}", make, notify_mode=notify_mode, delays=1)


def with_an_activity() -> Iterator[Case]:
    """One sender and one listener that runs an activity meanwhile, so that it is owned when it is woken."""
    for mode in MODES:
        for notify_mode in _NOTIFY_MODES:
            make = _maker(mode, 1, 1, "elsewhere", busy=True)
            yield Case(f"{mode} beside an activity, notified {notify_mode}", make, notify_mode=notify_mode)


def several() -> Iterator[Case]:
    """Several senders, several listeners, or both; notifications come at once or never."""
    for mode, notify_mode in itertools.product(MODES, _NOTIFY_MODES):
        for senders, listeners, via in ((2, 1, "elsewhere"), (1, 2, "elsewhere"), (2, 2, "workflow"), (2, 2, "activity")):
            name = f"{mode}, {senders} to {listeners} from {via}, notified {notify_mode}"
            yield Case(name, _maker(mode, senders, listeners, via), notify_mode=notify_mode)
    yield Case("event, 2 to 2 from elsewhere", _maker("event", 2, 2, "elsewhere"), notify_mode="never")
    yield Case("competing, one ends", _ending("competing"), notify_mode="never")
    for notify_mode in _NOTIFY_MODES:
        yield Case(
            f"event, one is cancelled, notified {notify_mode}",
            lambda name: one_is_cancelled(name, "event"),
            notify_mode=notify_mode,
        )


def many() -> Iterator[Case]:
    """Variants with thousands of orders each."""
    for case in (*with_a_timeout(), *with_an_activity(), *several()):
        yield replace(case, name=f"{case}, with a crash", crashes=1)
    for mode, notify_mode in itertools.product(("broadcast", "competing"), _NOTIFY_MODES):
        yield Case(
            f"{mode}, 2 to 2 from elsewhere, notified {notify_mode}",
            _maker(mode, 2, 2, "elsewhere"),
            notify_mode=notify_mode,
        )
        yield Case(f"{mode}, one ends, notified {notify_mode}", _ending(mode), notify_mode=notify_mode)


_NOTIFY_MODES: tuple[NotifyMode, ...] = ("at once", "never")


def _maker(
    mode: str, senders: int, listeners: int, via: str, *, timeout: float | None = None, busy: bool = False
) -> Callable[[str], Participants]:
    return lambda name: small(name, mode, senders, listeners, via, timeout=timeout, busy=busy)


def _ending(mode: str) -> Callable[[str], Participants]:
    return lambda name: one_ends(name, mode)
