"""Who talks: instances that listen, instances that speak, and senders outside; as data, so that chance can make them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.explore.scheduler import Hand

from romancy import (
    ActivityContext,
    ChannelMessageTimeoutError,
    EventTimeoutError,
    InvalidWorkflowStateError,
    RetryPolicy,
    WorkflowContext,
    WorkflowNotFoundError,
    activity,
    join_group,
    publish,
    receive,
    send_event,
    send_to,
    send_to_group,
    subscribe,
    wait_event,
    workflow,
)
from romancy.model.messaging import TARGET

Spec: TypeAlias = dict[str, Any]

seen: dict[str, list[str]] = {}
"""What the body of each instance has been given, since it was last begun or replayed."""
hands: list[Hand] = []
"""The hand that holds the activities, last."""


@dataclass(frozen=True)
class Outsider:
    """Says things from outside, one after another, through one of the processes."""

    name: str
    process: int
    items: Sequence[Spec]


@dataclass(frozen=True)
class Cast:
    """Everybody who takes part."""

    listeners: Sequence[Spec]
    speakers: Sequence[Spec]
    outsiders: Sequence[Outsider]


# --- listening


@activity
async def work(ctx: ActivityContext) -> None:
    """Keep the instance in hand for a while."""
    await hands[-1].gate("", f"work of {ctx.instance_id}")


@workflow
async def listen(ctx: WorkflowContext, spec: dict[str, Any]) -> list[str]:
    """Wait for what the spec says, so many times; what came."""
    heard = seen[ctx.instance_id] = list(spec["heard"])
    if spec["generation"] == 1:
        for channel, mode in spec["subscribe"]:
            await subscribe(ctx, channel, mode)
        for group in spec["groups"]:
            await join_group(ctx, group)
    done = 0
    while spec["rounds"] is None or done < spec["rounds"]:
        if spec["recur"] and done == spec["recur"]:
            left = None if spec["rounds"] is None else spec["rounds"] - done
            await ctx.recur({**spec, "heard": heard, "generation": spec["generation"] + 1, "rounds": left})
        await _HOW[spec["how"]](ctx, spec["waits"], heard)
        done += 1
    return heard


async def _each(ctx: WorkflowContext, waits: list[Spec], heard: list[str]) -> None:
    for wait in waits:
        await _hear(ctx, wait, heard)


async def _all(ctx: WorkflowContext, waits: list[Spec], heard: list[str]) -> None:
    await asyncio.gather(*(_hear(ctx, wait, heard) for wait in waits))


async def _first(ctx: WorkflowContext, waits: list[Spec], heard: list[str]) -> None:
    tasks = [asyncio.create_task(_hear(ctx, wait, heard)) for wait in waits]
    _, losers = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for loser in losers:
        loser.cancel()
    await asyncio.gather(*losers, return_exceptions=True)


async def _beside(ctx: WorkflowContext, waits: list[Spec], heard: list[str]) -> None:
    working = asyncio.create_task(work(ctx))
    await _each(ctx, waits, heard)
    await working


_HOW = {"each": _each, "all": _all, "first": _first, "beside": _beside}


async def _hear(ctx: WorkflowContext, wait: Spec, heard: list[str]) -> None:
    try:
        if wait["on"] == "event":
            event = await wait_event(
                ctx, wait["type"], subject=wait["subject"], match=wait["match"], timeout=wait["timeout"]
            )
            heard.append(event.id)
        else:
            message = await receive(ctx, wait["channel"], timeout=wait["timeout"])
            heard.append(message.id)
    except (EventTimeoutError, ChannelMessageTimeoutError):
        return


# --- speaking


class NotYet(Exception):
    """The first attempt fails, after it has spoken."""


@workflow
async def speak(ctx: WorkflowContext, spec: dict[str, Any]) -> None:
    """Say what the spec says, in the workflow itself or in activities."""
    for item in spec["items"]:
        if item["via"] == "workflow":
            await _say(ctx, item)
        else:
            await act(ctx, item)


@activity(retry=RetryPolicy(max_attempts=9, initial_interval=0.5))
async def act(ctx: ActivityContext, item: dict[str, Any]) -> None:
    """Say something with the commit of an attempt."""
    await _say(ctx, item)
    await hands[-1].late("", f"act of {ctx.instance_id}")
    if item["via"] == "flaky activity" and ctx.attempt == 1:
        raise NotYet


async def _say(ctx: WorkflowContext | ActivityContext, item: Spec) -> None:
    data = item["data"]
    match item["how"]:
        case "event":
            await send_event(ctx, item["type"], "/in", data, subject=item["subject"], extensions=addressed(item))
        case "publish":
            await publish(ctx, item["channel"], data)
        case "group":
            await send_to_group(ctx, item["group"], item["channel"], data)
        case _:
            try:
                await send_to(ctx, item["to"], item["channel"], data)
            except (WorkflowNotFoundError, InvalidWorkflowStateError):
                return


def addressed(item: Spec) -> dict[str, str | int | bool] | None:
    """The extensions of an event that is for one instance, if it is."""
    return None if item["to"] is None else {TARGET: item["to"]}
