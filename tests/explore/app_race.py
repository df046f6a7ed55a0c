"""Real race of two apps on one database, each in its own thread, started by one barrier.

Each round has a receiver and a sender in each app. The order is neither chosen nor known. The check is that every receiver
gets everything once, and that all receivers of the same things get them in the same order.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from romancy import ActivityContext, App, WorkflowContext, activity, receive, subscribe, wait_event, workflow

MODES = ("event", "broadcast", "competing", "direct")
_CONCURRENT_ROUNDS = 20
"""The number of rounds that run concurrently."""
_TIMEOUT = 20.0
"""Seconds after which a missing item counts as lost; long enough for a poll, so that notifications may be lost."""

barriers: dict[str, threading.Barrier] = {}


@activity
def wait_for_round(ctx: ActivityContext, round: str) -> None:
    """Block until both receivers and both senders of a round are ready."""
    barriers[round].wait(_TIMEOUT)


@workflow
async def receive_all(ctx: WorkflowContext, round: str, mode: str) -> list[Any]:
    """Receive everything that is sent in a round."""
    if mode != "event":
        await subscribe(ctx, round, _mode(mode))
    await wait_for_round(ctx, round)
    received: list[Any] = []
    for _ in range(2 if mode in ("event", "broadcast") else 1):
        received.append((await wait_event(ctx, round) if mode == "event" else await receive(ctx, round)).data)
    return received


def _mode(mode: str) -> Any:
    return mode


class Race:
    """Runs rounds on one database and collects faults."""

    def __init__(self, database: str) -> None:
        self._database = database
        self.faults: list[str] = []
        self._received: dict[tuple[str, str], list[Any]] = {}

    def run(self, rounds: int) -> None:
        """Run this number of rounds, taking the modes in turn."""
        both = threading.Barrier(2)
        for first in range(0, rounds, _CONCURRENT_ROUNDS):
            names = [f"{number}" for number in range(first, min(first + _CONCURRENT_ROUNDS, rounds))]
            barriers.update({name: threading.Barrier(4) for name in names})
            with ThreadPoolExecutor(2) as threads:
                sides = [threads.submit(asyncio.run, self._side(side, names, both)) for side in "ab"]
                for side in sides:
                    side.result()
            for name in names:
                self._check(name)

    async def _side(self, side: str, names: list[str], both: threading.Barrier) -> None:
        async with App(self._database, workflows=[receive_all], worker_id=side) as app:
            await asyncio.to_thread(both.wait, _TIMEOUT)
            await asyncio.gather(*(self._round(app, side, name) for name in names))
            await asyncio.to_thread(both.wait, _TIMEOUT)  # no app may hand its instances to the other

    async def _round(self, app: App, side: str, name: str) -> None:
        mode = mode_of(name)
        handle = await app.start_workflow(receive_all.with_options(instance_id=f"{name}/{side}"), name, mode)
        await asyncio.to_thread(barriers[name].wait, _TIMEOUT)
        await _SEND[mode](app, side, name)
        try:
            self._received[name, side] = await handle.result(timeout=_TIMEOUT)
        except TimeoutError:
            self.faults.append(f"{name}/{side} ({mode}) has not received everything")

    def _check(self, name: str) -> None:
        mode = mode_of(name)
        a, b = self._received.get((name, "a"), []), self._received.get((name, "b"), [])
        right: bool
        match mode:
            case "event" | "broadcast":
                right = a == b and sorted(a) == ["a", "b"]
            case "competing":
                right = sorted(a + b) == ["a", "b"]
            case _:
                right = a == ["b"] and b == ["a"]
        if not right:
            self.faults.append(f"{name} ({mode}): a received {a}, b received {b}")


def mode_of(name: str) -> str:
    """The mode of a round."""
    return MODES[int(name) % len(MODES)]


async def _send_event(app: App, side: str, name: str) -> None:
    await app.send_event(name, "/race", side)


async def _publish(app: App, side: str, name: str) -> None:
    await app.publish(name, side)


async def _send_to(app: App, side: str, name: str) -> None:
    await app.send_to(f"{name}/{'a' if side == 'b' else 'b'}", name, side)


_SEND: dict[str, Callable[[App, str, str], Coroutine[Any, Any, None]]] = {
    "event": _send_event,
    "broadcast": _publish,
    "competing": _publish,
    "direct": _send_to,
}
