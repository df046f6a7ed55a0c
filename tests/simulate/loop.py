"""Deterministic event loop for several simulated processes, on virtual time.

Each process has a lane: a ready queue of its own that keeps asyncio's order. The loop picks the next lane at random, so
there is no order between lanes. A frozen lane does not run until its time has come, and then finds everything that was
queued meanwhile (SIGSTOP). A dead lane never runs again (SIGKILL). When no lane can run, time moves to the next timer:
nothing waits in real time, and the same seed produces the same order.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Any, cast

_FOREVER = float("inf")
_MAX_TURNS = 100_000


class LivelockError(BaseException):
    """Lanes keep running while no time passes. (Not an `Exception`, so that the engine cannot catch it and continue.)"""


class Lane:
    """The ready queue of one process."""

    def __init__(self, name: str, owner: object = None) -> None:
        self.name = name
        self.owner = owner
        self.ready: deque[asyncio.Handle] = deque()
        self.frozen_until = 0.0
        self.dead = False
        self._dropped: list[asyncio.Handle] = []

    def freeze(self, until: float) -> None:
        """Do not run before this time."""
        self.frozen_until = max(self.frozen_until, until)

    def thaw(self) -> None:
        """Run again."""
        self.frozen_until = 0.0

    def kill(self) -> None:
        """Never run again."""
        self.dead = True
        self._dropped += self.ready  # kept: a coroutine that is dropped before it finishes would produce a warning
        self.ready.clear()

    def put(self, handle: asyncio.Handle) -> None:
        """Queue a callback."""
        (self._dropped if self.dead else self.ready).append(handle)

    def revive(self) -> None:
        """Run again after the simulation, so that the tasks of a killed process can be cancelled cleanly."""
        self.dead = False
        self.thaw()
        self.ready += self._dropped

    def context(self) -> contextvars.Context:
        """A context whose callbacks and tasks run in this lane."""
        context = contextvars.Context()
        context.run(_LANE.set, self)
        return context


_OUTSIDE = Lane("outside")
_LANE: contextvars.ContextVar[Lane] = contextvars.ContextVar("lane", default=_OUTSIDE)


def lane() -> Lane:
    """The lane of the current callback."""
    return _LANE.get()


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop that runs one pass of one lane at a time."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._now = 0.0
        self._lanes: list[Lane] = [Lane("outside")]
        self._timers: list[tuple[float, int, Lane, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._turns = 0
        """Passes since time last advanced."""

    def add(self, lane: Lane) -> None:
        """Add the lane of a new process."""
        self._lanes.append(lane)

    def time(self) -> float:
        """Seconds since the start of the simulation."""
        return self._now

    # --- scheduling

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Queue a callback in the lane of its context."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._lane_of(context).put(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there are no threads

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback after a delay."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback at a time."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), self._lane_of(context), handle))
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run the function inline after a random delay, instead of in a thread."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._rng.expovariate(200.0), run)
        return future

    def _lane_of(self, context: contextvars.Context) -> Lane:
        whose = context.get(_LANE, _OUTSIDE)
        return self._lanes[0] if whose is _OUTSIDE else whose

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: a cancelled timer is dropped when it is due."""

    # --- running

    def _run_once(self) -> None:
        self._fire_timers()
        waiting = [lane for lane in self._lanes if lane.ready and lane.frozen_until <= self._now]
        if not waiting:
            self._advance_time()
            return
        self._turns += 1
        if self._turns > _MAX_TURNS:
            raise LivelockError(f"{_MAX_TURNS} passes while no time passed: {', '.join(lane.name for lane in waiting)}")
        lane = waiting[0] if len(waiting) == 1 else self._rng.choice(waiting)
        for _ in range(len(lane.ready)):
            if not lane.ready:  # a callback has killed the process
                break
            handle = lane.ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _fire_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            _, _, lane, handle = heapq.heappop(timers)
            if not handle.cancelled():
                lane.put(handle)

    def _advance_time(self) -> None:
        """Advance to the next time at which a lane can run."""
        timers = self._timers
        while timers and (timers[0][2].dead or timers[0][3].cancelled()):
            heapq.heappop(timers)
        next_timer = timers[0][0] if timers else _FOREVER
        thaws = min((lane.frozen_until for lane in self._lanes if lane.ready), default=_FOREVER)
        then = min(next_timer, thaws)
        if then == _FOREVER:
            if not cast(Any, self)._stopping:
                raise LivelockError("no lane can ever run again")
            return
        self._now = max(self._now, then)
        self._turns = 0

    def _process_events(self, event_list: Any) -> None:
        """Nothing to do: there is no I/O."""

    def _write_to_self(self) -> None:
        """Nothing to do: the loop never sleeps."""
