"""Workflows that work: activities that fail, naps, sagas, events for the broker; as data, so that chance can make them.

Each has one right result, which `expected` knows without running it.
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
_SOON = RetryPolicy(max_attempts=0, initial_interval=0.2, multiplier=2.0, max_interval=3.0)


class Outside(Protocol):
    """What activities act upon."""

    async def act(self, ctx: ActivityContext, step: Spec, *, undoes: bool = False) -> None:
        """An attempt begins; returns when it has had its effect."""
        ...

    def act_at_once(self, ctx: ActivityContext, step: Spec) -> None:
        """The same, for what cannot wait."""
        ...


outsides: list[Outside] = []
"""What activities act upon, last."""


class NotYet(Exception):
    """Try again."""


class Broken(Exception):
    """What an order that ends badly fails with."""


# --- what is done


async def _undo(ctx: ActivityContext, step: dict[str, Any]) -> None:
    await outsides[-1].act(ctx, step, undoes=True)


@activity(retry=_SOON)
async def work(ctx: ActivityContext, step: dict[str, Any]) -> int:
    """Have an effect, at last."""
    return await _work(ctx, step)


@activity(retry=_SOON, compensation=_undo)
async def book(ctx: ActivityContext, step: dict[str, Any]) -> int:
    """Have an effect that can be undone."""
    return await _work(ctx, step)


@activity(retry=_SOON, timeout=4)
async def hurry(ctx: ActivityContext, step: dict[str, Any]) -> int:
    """Have an effect in time."""
    return await _work(ctx, step)


@activity(retry=_SOON)
def chore(ctx: ActivityContext, step: dict[str, Any]) -> int:
    """Have an effect in a thread."""
    outsides[-1].act_at_once(ctx, step)
    return _outcome(ctx, step)


@activity(retry=_SOON)
async def tell(ctx: ActivityContext, step: dict[str, Any]) -> int:
    """Have an effect, and say so with its commit."""
    await send_event(ctx, step["type"], "/in", step["data"])
    return await _work(ctx, step)


async def _work(ctx: ActivityContext, step: Spec) -> int:
    await outsides[-1].act(ctx, step)
    return _outcome(ctx, step)


def _outcome(ctx: ActivityContext, step: Spec) -> int:
    if ctx.attempt <= step["fails"]:
        raise NotYet(f"attempt {ctx.attempt}")
    if step["breaks"]:
        raise TerminalError("never")
    value: int = step["value"]
    return value


_ACTS = {"work": work, "book": book, "hurry": hurry, "chore": chore, "tell": tell}


@workflow
async def order(ctx: WorkflowContext, spec: dict[str, Any]) -> int:
    """Take the steps of the spec, one after another; their sum."""
    total = 0
    for step in spec["steps"]:
        total += await _take(ctx, step)
    if spec["badly"]:
        raise Broken(str(total))
    return total


async def _take(ctx: WorkflowContext, step: Spec) -> int:
    match step["do"]:
        case "nap":
            await sleep(ctx, step["seconds"])
            return 0
        case "say":
            await send_event(ctx, step["type"], "/in", step["data"])
            return 0
        case "promise":
            await register_compensation(ctx, _undo, step)
            return 0
        case "gather":
            return sum(await asyncio.gather(*(_take(ctx, part) for part in step["parts"])))
        case "catch":
            try:
                return await _take(ctx, step["parts"][0])
            except TerminalError:
                return 1000
        case what:
            return await _ACTS[what](ctx, step)


@workflow(name=ARRIVED, event_handler=True)
async def arrived(ctx: WorkflowContext, by: str, n: int, k: int) -> int:
    """Do something about an event that has arrived."""
    step = {"do": "work", "fails": n % 2, "breaks": False, "value": n, "before": 0}
    return await work(ctx, step) + await work(ctx, step)


# --- making them


def random_order(id: str, chance: random.Random) -> Spec:
    """An order by chance."""
    return _Maker(id, chance).order()


class _Maker:
    def __init__(self, id: str, chance: random.Random) -> None:
        self._id = id
        self._chance = chance
        self._said = 0
        self._before = 0
        """How many activities must have ended before the next step begins."""

    def order(self) -> Spec:
        chance = self._chance
        steps = [self._step() for _ in range(chance.randint(1, 6))]
        return {"id": self._id, "steps": steps, "badly": chance.random() < 0.25}

    def _step(self) -> Spec:
        chance = self._chance
        match chance.choice(["act", "act", "act", "nap", "say", "promise", "gather", "catch"]):
            case "nap":
                return {"do": "nap", "seconds": chance.choice([0.1, 1.0, 3.0])}
            case "say":
                return {"do": "say", **self._event()}
            case "promise":
                return {"do": "promise", "value": 0}
            case "gather":
                parts = [self._act() for _ in range(chance.randint(2, 3))]
                self._before += len(parts)
                return {"do": "gather", "parts": parts}
            case "catch":
                part = {**self._act(), "breaks": True}
                self._before += 1
                return {"do": "catch", "parts": [part]}
            case _:
                act = self._act()
                self._before += 1
                return act

    def _act(self) -> Spec:
        chance = self._chance
        do = chance.choice(["work", "work", "book", "book", "hurry", "chore", "tell"])
        act = {"do": do, "fails": chance.choice([0, 0, 0, 1, 2]), "breaks": False, "value": chance.randint(1, 100)}
        return {**act, "before": self._before, **(self._event() if do == "tell" else {})}

    def _event(self) -> Spec:
        self._said += 1
        # Each by a sender of its own: of those who say things at the same time nobody is first.
        return {"type": "news", "data": {"by": f"{self._id}:{self._said}", "n": 0, "k": 0}}


def expected(spec: Spec) -> int:
    """What the steps of an order add up to."""
    return sum(_worth(step) for step in spec["steps"])


def _worth(step: Spec) -> int:
    match step["do"]:
        case "nap" | "say" | "promise":
            return 0
        case "gather":
            return sum(_worth(part) for part in step["parts"])
        case "catch":
            return 1000
        case _:
            value: int = step["value"]
            return value


def said_by(spec: Spec) -> list[str]:
    """Who speaks in an order that ends as it should."""
    return [step["data"]["by"] for step in _walk(spec["steps"]) if step["do"] in ("say", "tell") and not step.get("breaks")]


def _walk(steps: list[Spec]) -> Iterator[Spec]:
    for step in steps:
        yield step
        yield from _walk(step.get("parts", []))
