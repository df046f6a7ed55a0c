"""The small parts of a worker: alarms and slots; time, ids and page tokens."""

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


class HandAlarms(TimerHeap):
    def _arm(self) -> None:
        """Rung by hand."""


def test_alarms_ring_in_order_of_their_time_and_only_when_due() -> None:
    clock = VirtualClock()
    alarms, rung = HandAlarms(clock.now), list[str]()
    start = clock.now()
    for name, due in (("c", 30), ("a", 10), ("b", 20), ("b2", 20)):
        alarms.schedule(start + due, partial(rung.append, name))
    alarms.schedule(start + 15, partial(rung.append, "cancelled")).cancel()

    clock.move_to(start + 20)
    alarms.fire()

    assert rung == ["a", "b", "b2"]
    assert alarms.next_due() == start + 30


def test_an_alarm_set_by_an_alarm_rings_in_the_same_round_if_it_is_due() -> None:
    clock = VirtualClock()
    alarms, rung = HandAlarms(clock.now), list[str]()

    def first() -> None:
        alarms.schedule(clock.now(), partial(rung.append, "second"))

    alarms.schedule(clock.now(), first)

    alarms.fire()

    assert rung == ["second"]


async def test_real_alarms_ring_by_themselves_soonest_first() -> None:
    clock, rung = SystemClock(), list[str]()
    alarms, done = TimerHeap(clock.now), asyncio.Event()
    alarms.schedule(clock.now() + 20_000, lambda: rung.append("late"))
    alarms.schedule(clock.now() + 20_001, done.set)
    alarms.schedule(clock.now() - 5, lambda: rung.append("past"))

    await done.wait()

    assert rung == ["past", "late"]
    alarms.close()


async def test_slots_go_to_those_who_came_first() -> None:
    slots, order = ConcurrencyLimiter(1), list[int]()

    async def hold(number: int) -> None:
        if not slots.try_acquire():
            await slots.acquire()
        order.append(number)
        await asyncio.sleep(0)
        slots.release()

    await asyncio.gather(*[hold(number) for number in range(5)])

    assert order == [0, 1, 2, 3, 4]
    assert slots.free == 1


async def test_a_slot_that_comes_together_with_a_cancellation_is_passed_on() -> None:
    slots = ConcurrencyLimiter(1)
    assert slots.try_acquire()
    assert not slots.try_acquire()
    waiting = asyncio.ensure_future(slots.acquire())
    await asyncio.sleep(0)

    slots.release()
    waiting.cancel()
    await asyncio.wait({waiting})

    assert slots.free == 1


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
def test_page_tokens_that_nobody_was_given(place: str) -> None:
    """What a database cannot take would be its trouble otherwise, and not the caller's."""
    with pytest.raises(ConfigurationError, match="page_token"):
        parse_page_token(base64.urlsafe_b64encode(place.encode()).decode())
