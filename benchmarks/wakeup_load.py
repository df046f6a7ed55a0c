"""The wake-up load of all engines: workflows wait, each for its own event; a sender sends it; they record the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from random import Random
from time import perf_counter

Send = Callable[[str], Awaitable[None]]
"""Wakes the workflow that waits for this name."""
Wait = Callable[[Sequence[str]], Awaitable[None]]
"""Starts a workflow for each name; returns when all of them wait."""

_numbers = count(1)


class WakeupLog:
    """Records when each waiting workflow was woken."""

    def __init__(self) -> None:
        self._woken: dict[str, float] = {}
        self._missing = 0
        self._all = asyncio.Event()

    def expect(self, number: int) -> list[str]:
        """Return names for `number` workflows that will be woken."""
        self._woken.clear()
        self._all.clear()
        self._missing = number
        return [f"wait-{next(_numbers)}" for _ in range(number)]

    def woke(self, name: str) -> None:
        """Record a workflow that was woken: the workflow calls this in the line after its wait."""
        self._woken[name] = perf_counter()
        self._missing -= 1
        if not self._missing:
            self._all.set()

    async def last(self) -> float:
        """Wait until all expected workflows are woken; return when the last one was."""
        await self._all.wait()
        return max(self._woken.values())


async def latencies(wakeups: WakeupLog, wait: Wait, send: Send, *, samples: int, pause: tuple[float, float]) -> list[float]:
    """Return the seconds from sending to the line after the wait, one workflow after the other.

    Between waiting and sending lies a pause of random length, so that the sending hits an engine that polls at any time
    between two polls.
    """
    random, found = Random(7), []
    for _ in range(samples):
        names = wakeups.expect(1)
        await wait(names)
        await asyncio.sleep(random.uniform(*pause))
        begin = perf_counter()
        sending = asyncio.ensure_future(send(names[0]))
        found.append(await wakeups.last() - begin)
        await sending
    return found


async def burst(wakeups: WakeupLog, wait: Wait, sends: Sequence[Send], *, waiting: int, pause: tuple[float, float]) -> float:
    """Return wakes per second: many workflows wait, and each sender wakes its share of them, one after the other."""
    names = wakeups.expect(waiting)
    await wait(names)
    await asyncio.sleep(Random(waiting).uniform(*pause))
    begin = perf_counter()
    senders = [_send_all(send, names[number :: len(sends)]) for number, send in enumerate(sends)]
    sending = asyncio.gather(*senders)
    seconds = await wakeups.last() - begin
    await sending
    return waiting / seconds


async def _send_all(send: Send, names: Sequence[str]) -> None:
    for name in names:
        await send(name)
