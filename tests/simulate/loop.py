"""An event loop for several processes at once: virtual time, and chance decides who goes next.

Each process has a lane: a queue of its own, which keeps the order asyncio promises. Between two lanes there is no order but
the one that chance makes. A lane that is frozen does not run until its time has come, and finds then all that has gathered
(SIGSTOP); a lane that is dead never runs again (SIGKILL). When nobody can run, time moves to the next timer: nothing waits
for real, and the same seed gives the same order again.
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
_RESTLESS = 100_000


class Restless(BaseException):
    """Something goes round in circles while no time passes. (No `Exception`: the engine must not go on all the same.)"""


class Lane:
    """What one process is to do next."""

    def __init__(self, name: str, owner: object = None) -> None:
        self.name = name
        self.owner = owner
        self.ready: deque[asyncio.Handle] = deque()
        self.frozen_until = 0.0
        self.dead = False
        self._buried: list[asyncio.Handle] = []

    def freeze(self, until: float) -> None:
        """Do nothing until then."""
        self.frozen_until = max(self.frozen_until, until)

    def thaw(self) -> None:
        """Go on."""
        self.frozen_until = 0.0

    def kill(self) -> None:
        """Do nothing, ever."""
        self.dead = True
        self._buried += self.ready  # kept: what is thrown away unfinished would complain
        self.ready.clear()

    def put(self, handle: asyncio.Handle) -> None:
        """Something more to do."""
        (self._buried if self.dead else self.ready).append(handle)

    def rise(self) -> None:
        """When all is over, the dead may finish, so that nothing is left of them."""
        self.dead = False
        self.thaw()
        self.ready += self._buried

    def context(self) -> contextvars.Context:
        """A context in which everything that is begun belongs to this lane."""
        context = contextvars.Context()
        context.run(_LANE.set, self)
        return context


_OUTSIDE = Lane("outside")
_LANE: contextvars.ContextVar[Lane] = contextvars.ContextVar("lane", default=_OUTSIDE)


def lane() -> Lane:
    """The lane that runs now."""
    return _LANE.get()


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs lanes, one turn of one lane at a time."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._now = 0.0
        self._lanes: list[Lane] = [Lane("outside")]
        self._timers: list[tuple[float, int, Lane, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._turns = 0
        """Turns since time has passed."""

    def add(self, lane: Lane) -> None:
        """A process more."""
        self._lanes.append(lane)

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._now

    # --- what is to be done

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Call in a turn of the lane that the context belongs to."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._lane_of(context).put(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there are no threads

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Call when some time has passed."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a time."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), self._lane_of(context), handle))
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """What others do in a thread is done here, after a while."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._chance.expovariate(200.0), run)
        return future

    def _lane_of(self, context: contextvars.Context) -> Lane:
        whose = context.get(_LANE, _OUTSIDE)
        return self._lanes[0] if whose is _OUTSIDE else whose

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    # --- turns

    def _run_once(self) -> None:
        self._ring()
        waiting = [lane for lane in self._lanes if lane.ready and lane.frozen_until <= self._now]
        if not waiting:
            self._pass_time()
            return
        self._turns += 1
        if self._turns > _RESTLESS:
            raise Restless(f"{_RESTLESS} turns, and no time has passed: {', '.join(lane.name for lane in waiting)}")
        lane = waiting[0] if len(waiting) == 1 else self._chance.choice(waiting)
        for _ in range(len(lane.ready)):
            if not lane.ready:  # it died
                break
            handle = lane.ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _ring(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            _, _, lane, handle = heapq.heappop(timers)
            if not handle.cancelled():
                lane.put(handle)

    def _pass_time(self) -> None:
        """Move to when somebody can go on."""
        timers = self._timers
        while timers and (timers[0][2].dead or timers[0][3].cancelled()):
            heapq.heappop(timers)
        next_timer = timers[0][0] if timers else _FOREVER
        thaws = min((lane.frozen_until for lane in self._lanes if lane.ready), default=_FOREVER)
        then = min(next_timer, thaws)
        if then == _FOREVER:
            if not cast(Any, self)._stopping:
                raise Restless("nobody can ever go on")
            return
        self._now = max(self._now, then)
        self._turns = 0

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""
