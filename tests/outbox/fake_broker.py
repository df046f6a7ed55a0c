"""A broker whose answers a test determines, and which records its events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from romancy import RetryPolicy
from romancy.brokers import Event

SOON = RetryPolicy(max_attempts=0, initial_interval=0.01, max_interval=0.01)
"""Repeat soon, without a limit."""
Answer = Callable[[Event, int], Awaitable[None]]
"""Answers the nth delivery of an event."""


async def accept(event: Event, nth: int) -> None:
    """Accept the event."""


class Desk:
    """A broker that records all attempts as `given`, and accepted events as `kept`."""

    def __init__(
        self, answer: Answer = accept, *, name: str = "desk", retry: RetryPolicy = SOON, concurrency: int = 10
    ) -> None:
        self.name = name
        self.retry = retry
        self.concurrency = concurrency
        self.answer = answer
        self.given: list[Event] = []
        self.kept: list[Event] = []
        self.most = 0
        self.open = False
        self._current = 0
        self._changed = asyncio.Condition()

    async def start(self) -> None:
        self.open = True

    async def close(self) -> None:
        self.open = False

    async def send(self, event: Event) -> None:
        assert self.open
        self.given.append(event)
        self._current += 1
        self.most = max(self.most, self._current)
        await self._notify()
        try:
            await self.answer(event, self.times[event.id])
        finally:
            self._current -= 1
        self.kept.append(event)
        await self._notify()

    @property
    def ids(self) -> list[str]:
        """The ids of the accepted events."""
        return [event.id for event in self.kept]

    @property
    def times(self) -> Counter[str]:
        """The number of attempts for each event."""
        return Counter(event.id for event in self.given)

    async def has(self, *ids: str) -> None:
        """Wait until these events are accepted."""
        async with self._changed:
            await self._changed.wait_for(lambda: set(ids) <= set(self.ids))

    async def was_given(self, event_id: str, times: int = 1) -> None:
        """Wait until the event has been sent so many times."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.times[event_id] >= times)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
