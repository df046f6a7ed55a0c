"""A broker that does what a test tells it, and remembers what it was given."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from romancy import RetryPolicy
from romancy.brokers import Event

SOON = RetryPolicy(max_attempts=0, initial_interval=0.01, max_interval=0.01)
"""Again at once, for ever."""
Answer = Callable[[Event, int], Awaitable[None]]
"""What to do with an event that is given for the nth time."""


async def taken(event: Event, nth: int) -> None:
    """Everything is well."""


class Desk:
    """A broker. `given` are all attempts, `kept` what was taken."""

    def __init__(
        self, answer: Answer = taken, *, name: str = "desk", retry: RetryPolicy = SOON, concurrency: int = 10
    ) -> None:
        self.name = name
        self.retry = retry
        self.concurrency = concurrency
        self.answer = answer
        self.given: list[Event] = []
        self.kept: list[Event] = []
        self.most = 0
        self.open = False
        self._now = 0
        self._changed = asyncio.Condition()

    async def start(self) -> None:
        self.open = True

    async def close(self) -> None:
        self.open = False

    async def send(self, event: Event) -> None:
        assert self.open
        self.given.append(event)
        self._now += 1
        self.most = max(self.most, self._now)
        await self._tell()
        try:
            await self.answer(event, self.times[event.id])
        finally:
            self._now -= 1
        self.kept.append(event)
        await self._tell()

    @property
    def ids(self) -> list[str]:
        """The events that were taken."""
        return [event.id for event in self.kept]

    @property
    def times(self) -> Counter[str]:
        """How often each event was given."""
        return Counter(event.id for event in self.given)

    async def has(self, *ids: str) -> None:
        """Wait until these were taken."""
        async with self._changed:
            await self._changed.wait_for(lambda: set(ids) <= set(self.ids))

    async def was_given(self, event_id: str, times: int = 1) -> None:
        """Wait until it was given so often."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.times[event_id] >= times)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
