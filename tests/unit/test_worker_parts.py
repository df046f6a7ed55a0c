"""The small parts of a worker: timers, limiter, times, ids and page tokens."""

from __future__ import annotations

import asyncio
import base64
import uuid
from datetime import UTC, datetime
from functools import partial

import pytest

from romancy import ConfigurationError
from romancy.clock import SystemClock, to_datetime, to_micros
from romancy.ids import RandomIds
from romancy.presenters import make_page_token, parse_page_token
from romancy.testing import VirtualClock
from romancy.worker.limiter import ConcurrencyLimiter
from romancy.worker.timers import TimerHeap


class ManualTimerHeap(TimerHeap):
    def _arm(self) -> None:
        """The test fires the timers."""


def test_timers_fire_in_order_of_their_time_and_only_when_due() -> None:
    clock = VirtualClock()
    timers, fired = ManualTimerHeap(clock.now), list[str]()
    start = clock.now()
    for name, due in (("c", 30), ("a", 10), ("b", 20), ("b2", 20)):
        timers.schedule(start + due, partial(fired.append, name))
    timers.schedule(start + 15, partial(fired.append, "cancelled")).cancel()

    clock.move_to(start + 20)
    timers.fire()

    assert fired == ["a", "b", "b2"]
    assert timers.next_due() == start + 30


def test_a_due_timer_that_a_timer_schedules_fires_in_the_same_round() -> None:
    clock = VirtualClock()
    timers, fired = ManualTimerHeap(clock.now), list[str]()

    def first() -> None:
        timers.schedule(clock.now(), partial(fired.append, "second"))

    timers.schedule(clock.now(), first)

    timers.fire()

    assert fired == ["second"]


async def test_real_timers_fire_by_themselves_soonest_first() -> None:
    clock, fired = SystemClock(), list[str]()
    timers, done, now = TimerHeap(clock.now), asyncio.Event(), clock.now()
    timers.schedule(now + 20_000, lambda: fired.append("late"))
    timers.schedule(now + 20_001, done.set)
    timers.schedule(now - 5, lambda: fired.append("past"))

    await done.wait()

    assert fired == ["past", "late"]
    timers.close()


async def test_slots_go_to_those_who_came_first() -> None:
    limiter, order = ConcurrencyLimiter(1), list[int]()

    async def hold(number: int) -> None:
        if not limiter.try_acquire():
            await limiter.acquire()
        order.append(number)
        await asyncio.sleep(0)
        limiter.release()

    await asyncio.gather(*[hold(number) for number in range(5)])

    assert order == [0, 1, 2, 3, 4]
    assert limiter.free == 1


async def test_a_slot_that_comes_together_with_a_cancellation_is_passed_on() -> None:
    limiter = ConcurrencyLimiter(1)
    assert limiter.try_acquire()
    assert not limiter.try_acquire()
    waiting = asyncio.ensure_future(limiter.acquire())
    await asyncio.sleep(0)

    limiter.release()
    waiting.cancel()
    await asyncio.wait({waiting})

    assert limiter.free == 1


def test_instance_ids_are_uuids_in_order_of_time() -> None:
    ids = RandomIds()
    made = [uuid.UUID(ids.instance_id(moment * 1_000_000)) for moment in range(1_700_000_000, 1_700_000_010)]

    assert all(one.version == 7 for one in made)
    assert made == sorted(made)
    assert len({ids.incarnation() for _ in range(100)}) == 100


def test_times_survive_the_way_to_the_engine_and_back_exactly() -> None:
    moment = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    assert to_datetime(to_micros(moment)) == moment


def test_page_tokens_carry_any_id() -> None:
    assert parse_page_token(make_page_token(17, "a:b/ç")) == (17, "a:b/ç")
    with pytest.raises(ConfigurationError, match="page_token='nonsense'"):
        parse_page_token("nonsense")


@pytest.mark.parametrize("place", ["", "x:y", "-1:a", "1e3:a", f"{10**30}:a", "\u00b2:a", "1_0:a", "1:a\0"])
def test_forged_page_tokens(place: str) -> None:
    """Otherwise the database would refuse the token, with a less helpful error."""
    with pytest.raises(ConfigurationError, match="page_token"):
        parse_page_token(base64.urlsafe_b64encode(place.encode()).decode())
