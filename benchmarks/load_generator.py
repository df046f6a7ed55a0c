"""Keeps an engine busy for a while. Both sides are driven by this one function."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Driven:
    """What was done in which time."""

    done: int
    seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        """Workflows in a second."""
        return self.done / self.seconds

    @property
    def latency(self) -> float:
        """Median seconds from start to result."""
        return median(self.latencies)


async def drive(one: Callable[[], Awaitable[None]], *, at_once: int, seconds: float) -> Driven:
    """Run `one` again and again, so many at once, until the time is up.

    What was begun is finished and counted; without time each of them runs once.
    """
    latencies: list[float] = []
    begin = perf_counter()

    async def loop() -> None:
        now = begin
        while not latencies or now < begin + seconds:
            await one()
            before, now = now, perf_counter()
            latencies.append(now - before)

    await asyncio.gather(*(loop() for _ in range(at_once)))
    return Driven(len(latencies), perf_counter() - begin, latencies)
