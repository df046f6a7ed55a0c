"""Random workflows with activities that fail, sleeps, sagas and events for the broker, described as data.

Each order has exactly one correct result, which `expected` computes without running it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

from romancy import (
    ActivityContext,
    RetryPolicy,
    TerminalError,
    WorkflowContext,
    activity,
    register_compensation,
    send_event,
    sleep,
    workflow,
)

Spec: TypeAlias = dict[str, Any]
ARRIVED = "arrived"
_RETRY = RetryPolicy(max_attempts=0, initial_interval=0.2, multiplier=2.0, max_interval=3.0)


class EffectRecorder(Protocol):
    """Records the effects of activities."""

    async def record_attempt(self, ctx: ActivityContext, step: Spec, *, compensates: bool = False) -> None:
        """Record that an attempt begins; return once its effect is recorded."""
        ...

    def record_attempt_in_thread(self, ctx: ActivityContext, step: Spec) -> None:
        """The same for a synchronous activity."""
        ...


effect_recorders: list[EffectRecorder] = []
"""The last one records the effects of the simulation that is running."""


class NotYet(Exception):
    """Error of an attempt that is to be retried."""


class Broken(Exception):
    """Error of an order that is to fail."""


# --- activities


async def _compensate(ctx: ActivityContext, step: dict[str, Any]) -> None:
    await effect_recorders[-1].record_attempt(ctx, step, compensates=True)


@activity(retry=_RETRY)
async def work(ctx: ActivityContext, step: dict[str, Any]) -> int:
    """Have an effect, possibly after failed attempts."""
    return await _work(ctx, step)


@activity(retry=_RETRY, compensation=_compensate)
async def book(ctx: ActivityContext, step: dict[str, Any]) -> int:
    """Have an effect that can be compensated."""
    return await _work(ctx, step)


@activity(retry=_RETRY, timeout=4)
async def work_in_time(ctx: ActivityContext, step: dict[str, Any]) -> int:
    """Have an effect, with a timeout for each attempt."""
    return await _work(ctx, step)


@activity(retry=_RETRY)
def work_in_thread(ctx: ActivityContext, step: dict[str, Any]) -> int:
    """Have an effect, in a thread."""
    effect_recorders[-1].record_attempt_in_thread(ctx, step)
    return _outcome(ctx, step)


@activity(retry=_RETRY)
async def work_and_send(ctx: ActivityContext, step: dict[str, Any]) -> int:
    """Have an effect, and send an event with its commit."""
    await send_event(ctx, step["type"], "/in", step["data"])
    return await _work(ctx, step)


async def _work(ctx: ActivityContext, step: Spec) -> int:
    await effect_recorders[-1].record_attempt(ctx, step)
    return _outcome(ctx, step)


def _outcome(ctx: ActivityContext, step: Spec) -> int:
    if ctx.attempt <= step["fails"]:
        raise NotYet(f"attempt {ctx.attempt}")
    if step["breaks"]:
        raise TerminalError("never")
    value: int = step["value"]
    return value


_ACTIVITIES = {
    "work": work,
    "book": book,
    "work_in_time": work_in_time,
    "work_in_thread": work_in_thread,
    "work_and_send": work_and_send,
}


@workflow
async def order(ctx: WorkflowContext, spec: dict[str, Any]) -> int:
    """Run the steps of the spec in order; returns their sum."""
    total = 0
    for step in spec["steps"]:
        total += await _run_step(ctx, step)
    if spec["raises"]:
        raise Broken(str(total))
    return total


async def _run_step(ctx: WorkflowContext, step: Spec) -> int:
    match step["do"]:
        case "sleep":
            await sleep(ctx, step["seconds"])
            return 0
        case "send":
            await send_event(ctx, step["type"], "/in", step["data"])
            return 0
        case "register":
            await register_compensation(ctx, _compensate, step)
            return 0
        case "gather":
            return sum(await asyncio.gather(*(_run_step(ctx, part) for part in step["parts"])))
        case "catch":
            try:
                return await _run_step(ctx, step["parts"][0])
            except TerminalError:
                return 1000
        case name:
            return await _ACTIVITIES[name](ctx, step)


@workflow(name=ARRIVED, event_handler=True)
async def arrived(ctx: WorkflowContext, by: str, n: int, k: int) -> int:
    """Run two activities for the event that started it."""
    step = {"do": "work", "fails": n % 2, "breaks": False, "value": n, "before": 0}
    return await work(ctx, step) + await work(ctx, step)


# --- random orders


def random_order(id: str, rng: random.Random) -> Spec:
    """A random order."""
    return _Maker(id, rng).order()


class _Maker:
    def __init__(self, id: str, rng: random.Random) -> None:
        self._id = id
        self._rng = rng
        self._sent_count = 0
        self._before = 0
        """The number of activities that must have ended before the next step begins."""

    def order(self) -> Spec:
        rng = self._rng
        steps = [self._step() for _ in range(rng.randint(1, 6))]
        return {"id": self._id, "steps": steps, "raises": rng.random() < 0.25}

    def _step(self) -> Spec:
        rng = self._rng
        match rng.choice(["act", "act", "act", "sleep", "send", "register", "gather", "catch"]):
            case "sleep":
                return {"do": "sleep", "seconds": rng.choice([0.1, 1.0, 3.0])}
            case "send":
                return {"do": "send", **self._event()}
            case "register":
                return {"do": "register", "value": 0}
            case "gather":
                parts = [self._act() for _ in range(rng.randint(2, 3))]
                self._before += len(parts)
                return {"do": "gather", "parts": parts}
            case "catch":
                part = {**self._act(), "breaks": True}
                self._before += 1
                return {"do": "catch", "parts": [part]}
            case _:
                activity_step = self._act()
                self._before += 1
                return activity_step

    def _act(self) -> Spec:
        rng = self._rng
        do = rng.choice(["work", "work", "book", "book", "work_in_time", "work_in_thread", "work_and_send"])
        activity_step = {
            "do": do,
            "fails": rng.choice([0, 0, 0, 1, 2]),
            "breaks": False,
            "value": rng.randint(1, 100),
        }
        return {**activity_step, "before": self._before, **(self._event() if do == "work_and_send" else {})}

    def _event(self) -> Spec:
        self._sent_count += 1
        # Each event has its own sender: events sent concurrently have no order that the model could check.
        return {"type": "news", "data": {"by": f"{self._id}:{self._sent_count}", "n": 0, "k": 0}}


def expected(spec: Spec) -> int:
    """The sum of the steps of an order."""
    return sum(_expected_value(step) for step in spec["steps"])


def _expected_value(step: Spec) -> int:
    match step["do"]:
        case "sleep" | "send" | "register":
            return 0
        case "gather":
            return sum(_expected_value(part) for part in step["parts"])
        case "catch":
            return 1000
        case _:
            value: int = step["value"]
            return value


def expected_senders(spec: Spec) -> list[str]:
    """The senders of all events that an order sends if it ends as planned."""
    return [
        step["data"]["by"]
        for step in _walk(spec["steps"])
        if step["do"] in ("send", "work_and_send") and not step.get("breaks")
    ]


def _walk(steps: list[Spec]) -> Iterator[Spec]:
    for step in steps:
        yield step
        yield from _walk(step.get("parts", []))
