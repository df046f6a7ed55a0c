"""Callbacks at times of the engine's clock, with a single timer of the event loop for all of them."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable

from romancy.clock import MICROS

_log = logging.getLogger("romancy.worker")
_MAX_SLEEP = 5.0
"""Seconds after which the clock is read again even if nothing is due: it may have been adjusted."""


class ScheduledCall:
    """A callback with its due time."""

    __slots__ = ("callback", "due")

    def __init__(self, due: int, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Prevent the call."""
        self.callback = None


class TimerHeap:
    """A heap of scheduled calls, ordered by due time."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._heap: list[tuple[int, int, ScheduledCall]] = []
        self._order = itertools.count()
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for: int | None = None
        self._closed = False

    def schedule(self, due: int, callback: Callable[[], None]) -> ScheduledCall:
        """Call back when the clock reaches `due`; soon, if that is past."""
        timer = ScheduledCall(due, callback)
        heapq.heappush(self._heap, (due, next(self._order), timer))
        if self._armed_for is None or due < self._armed_for:
            self._arm()
        return timer

    def next_due(self) -> int | None:
        """When the next call is due."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def fire(self) -> None:
        """Make all calls that are due, in the order of their times."""
        self._handle = None
        self._armed_for = None
        now = self._now()
        while (due := self.next_due()) is not None and due <= now:
            timer = heapq.heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                _run_callback(callback)
        self._arm()

    def close(self) -> None:
        """Drop all scheduled calls."""
        self._closed = True
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        """Have the event loop call `fire` in time."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._armed_for = None
        due = self.next_due()
        if due is None or self._closed:
            return
        self._armed_for = due
        delay = min(max(due - self._now(), 0) / MICROS, _MAX_SLEEP)
        self._handle = asyncio.get_running_loop().call_later(delay, self.fire)


def _run_callback(callback: Callable[[], None]) -> None:
    """Call back. A failure is logged: it must not prevent the calls that follow."""
    try:
        callback()
    except Exception:
        _log.exception("a timer's callback failed")
