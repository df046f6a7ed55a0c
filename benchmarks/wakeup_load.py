"""Waking, as both engines are driven: workflows wait for a bell, each for its own; somebody rings; they note the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from random import Random
from time import perf_counter

Ring = Callable[[str], Awaitable[None]]
"""Wake whoever waits for a bell of this name."""
Wait = Callable[[Sequence[str]], Awaitable[None]]
"""Start a workflow for each name; returns when all of them wait."""

_numbers = count(1)


class Bells:
    """Who has been woken, and when."""

    def __init__(self) -> None:
        self._woken: dict[str, float] = {}
        self._missing = 0
        self._all = asyncio.Event()

    def expect(self, bells: int) -> list[str]:
        """Names for so many bells that will be rung."""
        self._woken.clear()
        self._all.clear()
        self._missing = bells
        return [f"bell-{next(_numbers)}" for _ in range(bells)]

    def woke(self, name: str) -> None:
        """The line behind the wait: called by the workflow."""
        self._woken[name] = perf_counter()
        self._missing -= 1
        if not self._missing:
            self._all.set()

    async def last(self) -> float:
        """When the last of those expected was woken."""
        await self._all.wait()
        return max(self._woken.values())


async def latencies(bells: Bells, wait: Wait, ring: Ring, *, samples: int, pause: tuple[float, float]) -> list[float]:
    """Seconds from ringing to the line behind the wait, one workflow after the other.

    Between waiting and ringing lies a pause of random length: an engine that looks now and then is not always found just
    before it looks, nor just after.
    """
    chance, found = Random(7), []
    for _ in range(samples):
        names = bells.expect(1)
        await wait(names)
        await asyncio.sleep(chance.uniform(*pause))
        begin = perf_counter()
        ringing = asyncio.ensure_future(ring(names[0]))
        found.append(await bells.last() - begin)
        await ringing
    return found


async def burst(bells: Bells, wait: Wait, rings: Sequence[Ring], *, waiting: int, pause: tuple[float, float]) -> float:
    """Wakes in a second: many wait, some senders ring for their share of them, one after the other each."""
    names = bells.expect(waiting)
    await wait(names)
    await asyncio.sleep(Random(waiting).uniform(*pause))
    begin = perf_counter()
    senders = [_ring_all(ring, names[number :: len(rings)]) for number, ring in enumerate(rings)]
    ringing = asyncio.gather(*senders)
    seconds = await bells.last() - begin
    await ringing
    return waiting / seconds


async def _ring_all(ring: Ring, names: Sequence[str]) -> None:
    for name in names:
        await ring(name)
