"""The timer load of both engines: many workflows sleep, each until its own time, and record how late they resume."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

AT_ONCE = 50
PROMPT = 0.05


class TimerLog:
    """Records how late each sleeping workflow has resumed."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._all = asyncio.Event()
        self._expected = 0

    def plan(self, sleepers: int, spread: float, lead: float) -> list[float]:
        """Return due times for `sleepers` workflows, evenly over `spread` seconds, beginning after `lead` seconds."""
        self._expected = sleepers
        begin = time.time() + lead
        return [begin + spread * number / sleepers for number in range(sleepers)]

    def woke(self, due: float) -> None:
        """Record a workflow that has resumed: the workflow calls this in the line after its sleep."""
        self.late.append(time.time() - due)
        if len(self.late) == self._expected:
            self._all.set()

    async def figures(self) -> dict[str, Any]:
        """Wait until all workflows have resumed; return how late they were."""
        await self._all.wait()
        late = sorted(self.late)
        return {
            "prompt": sum(0 <= one <= PROMPT for one in late) / len(late),
            "median": median(late),
            "most": late[int(0.99 * len(late))],
            "last": late[-1],
            "first": late[0],
        }


async def start_all(dues: list[float], start: Callable[[float], Awaitable[object]]) -> float:
    """Start a workflow for each time, `AT_ONCE` at a time; return the seconds left until the first is due."""
    left = iter(dues)

    async def some() -> None:
        for due in left:
            await start(due)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    spare = dues[0] - time.time()
    if spare <= 0:
        raise RuntimeError(f"starting took {-spare:.1f} s too long: the first was due before all were asleep")
    return spare
