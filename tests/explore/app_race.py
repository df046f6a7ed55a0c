"""Two apps on one database, in two threads, that race for real: who speaks and who listens are let go by one barrier.

Each round has two who listen, one in each app, and one who speaks from each app. Here no order is chosen, and none is known
afterwards: what counts is that everything said is heard, once, and in the same order by all who hear all of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from romancy import ActivityContext, App, WorkflowContext, activity, receive, subscribe, wait_event, workflow

MODES = ("event", "broadcast", "competing", "direct")
_AT_ONCE = 20
"""So many rounds are on their way together."""
_PATIENCE = 20.0
"""Seconds until what was not heard counts as lost; whoever was not told looks once a second."""

barriers: dict[str, threading.Barrier] = {}


@activity
def meet(ctx: ActivityContext, round: str) -> None:
    """Wait until everybody in a round is ready."""
    barriers[round].wait(_PATIENCE)


@workflow
async def hear(ctx: WorkflowContext, round: str, mode: str) -> list[Any]:
    """Listen as often as there is something to hear."""
    if mode != "event":
        await subscribe(ctx, round, _mode(mode))
    await meet(ctx, round)
    heard: list[Any] = []
    for _ in range(2 if mode in ("event", "broadcast") else 1):
        heard.append((await wait_event(ctx, round) if mode == "event" else await receive(ctx, round)).data)
    return heard


def _mode(mode: str) -> Any:
    return mode


class Race:
    """Many rounds on one database; what was heard wrongly."""

    def __init__(self, database: str) -> None:
        self._database = database
        self.faults: list[str] = []
        self._heard: dict[tuple[str, str], list[Any]] = {}

    def run(self, rounds: int) -> None:
        """So many rounds of every kind."""
        both = threading.Barrier(2)
        for first in range(0, rounds, _AT_ONCE):
            names = [f"{number}" for number in range(first, min(first + _AT_ONCE, rounds))]
            barriers.update({name: threading.Barrier(4) for name in names})
            with ThreadPoolExecutor(2) as threads:
                sides = [threads.submit(asyncio.run, self._side(side, names, both)) for side in "ab"]
                for side in sides:
                    side.result()
            for name in names:
                self._check(name)

    async def _side(self, side: str, names: list[str], both: threading.Barrier) -> None:
        async with App(self._database, workflows=[hear], worker_id=side) as app:
            await asyncio.to_thread(both.wait, _PATIENCE)
            await asyncio.gather(*(self._round(app, side, name) for name in names))
            await asyncio.to_thread(both.wait, _PATIENCE)  # who leaves first must not leave its instances to the other

    async def _round(self, app: App, side: str, name: str) -> None:
        mode = mode_of(name)
        handle = await app.start_workflow(hear.with_options(instance_id=f"{name}/{side}"), name, mode)
        await asyncio.to_thread(barriers[name].wait, _PATIENCE)
        await _SAY[mode](app, side, name)
        try:
            self._heard[name, side] = await handle.result(timeout=_PATIENCE)
        except TimeoutError:
            self.faults.append(f"{name}/{side} ({mode}) has not heard everything")

    def _check(self, name: str) -> None:
        mode = mode_of(name)
        a, b = self._heard.get((name, "a"), []), self._heard.get((name, "b"), [])
        right: bool
        match mode:
            case "event" | "broadcast":
                right = a == b and sorted(a) == ["a", "b"]
            case "competing":
                right = sorted(a + b) == ["a", "b"]
            case _:
                right = a == ["b"] and b == ["a"]
        if not right:
            self.faults.append(f"{name} ({mode}): a heard {a}, b heard {b}")


def mode_of(name: str) -> str:
    """What a round is about."""
    return MODES[int(name) % len(MODES)]


async def _send_event(app: App, side: str, name: str) -> None:
    await app.send_event(name, "/race", side)


async def _publish(app: App, side: str, name: str) -> None:
    await app.publish(name, side)


async def _send_to(app: App, side: str, name: str) -> None:
    await app.send_to(f"{name}/{'a' if side == 'b' else 'b'}", name, side)


_SAY: dict[str, Callable[[App, str, str], Coroutine[Any, Any, None]]] = {
    "event": _send_event,
    "broadcast": _publish,
    "competing": _publish,
    "direct": _send_to,
}
