"""Keeps an engine busy for a time. All engines are driven by this one function."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The number of finished workflows, and the time they took."""

    done: int
    seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        """Workflows per second."""
        return self.done / self.seconds

    @property
    def latency(self) -> float:
        """Median seconds from start to result."""
        return median(self.latencies)


async def drive(one: Callable[[], Awaitable[None]], *, at_once: int, seconds: float) -> LoadResult:
    """Run `one` again and again, `at_once` at a time, until `seconds` have passed.

    Runs that have begun are finished and counted. With `seconds=0` each of them runs once.
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
    return LoadResult(len(latencies), perf_counter() - begin, latencies)
