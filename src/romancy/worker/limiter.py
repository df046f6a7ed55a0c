"""Limits how many attempts run at once."""

from __future__ import annotations

import asyncio
from collections import deque


class ConcurrencyLimiter:
    """A counter with a queue: first come, first served. Cheaper than a semaphore when there is room."""

    def __init__(self, limit: int) -> None:
        self.free = limit
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def has_waiters(self) -> bool:
        """The queue is not empty."""
        return bool(self._queue)

    @property
    def queued(self) -> int:
        """How many attempts wait for a slot."""
        return sum(not waiter.done() for waiter in self._queue)

    def try_acquire(self) -> bool:
        """Take a slot if one is free."""
        if self.free > 0:
            self.free -= 1
            return True
        return False

    async def acquire(self) -> None:
        """Wait for a slot and take it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()  # the slot came together with the cancellation: pass it on
            raise

    def release(self) -> None:
        """Pass a slot to the next attempt in the queue, or free it."""
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.free += 1
