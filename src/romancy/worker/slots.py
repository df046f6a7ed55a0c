"""How many attempts run at once."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """A counter with a queue: first come, first served. Cheaper than a semaphore when there is room."""

    def __init__(self, limit: int) -> None:
        self.free = limit
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> bool:
        """Somebody stands in the queue."""
        return bool(self._queue)

    @property
    def queued(self) -> int:
        """How many stand in it."""
        return sum(not turn.done() for turn in self._queue)

    def take(self) -> bool:
        """Take a slot if one is free."""
        if self.free > 0:
            self.free -= 1
            return True
        return False

    async def wait(self) -> None:
        """Wait for a slot; it is taken then."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the slot came together with the cancellation: pass it on
            raise

    def release(self) -> None:
        """Give a slot to the next in the queue, or back."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1
