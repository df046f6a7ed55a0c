"""Participants of a round: listeners and senders as instances, and senders outside the processes; described as data."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.explore.scheduler import Scheduler

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
"""What each instance has received since its body was last started or replayed."""
schedulers: list[Scheduler] = []
"""The last one gates the activities of the scenario that is running."""


@dataclass(frozen=True)
class ExternalSender:
    """A client that sends items in order through one of the processes."""

    name: str
    process: int
    items: Sequence[Spec]


@dataclass(frozen=True)
class Participants:
    """All participants of one round."""

    listeners: Sequence[Spec]
    senders: Sequence[Spec]
    external_senders: Sequence[ExternalSender]


# --- listeners


@activity
async def work(ctx: ActivityContext) -> None:
    """An activity that keeps the instance owned until the scheduler lets it finish."""
    await schedulers[-1].gate("", f"work of {ctx.instance_id}")


@workflow
async def listen(ctx: WorkflowContext, spec: dict[str, Any]) -> list[str]:
    """Wait for events and messages according to the spec; returns the ids received."""
    received = seen[ctx.instance_id] = list(spec["received"])
    if spec["generation"] == 1:
        for channel, mode in spec["subscribe"]:
            await subscribe(ctx, channel, mode)
        for group in spec["groups"]:
            await join_group(ctx, group)
    done = 0
    while spec["rounds"] is None or done < spec["rounds"]:
        if spec["recur"] and done == spec["recur"]:
            left = None if spec["rounds"] is None else spec["rounds"] - done
            await ctx.recur({**spec, "received": received, "generation": spec["generation"] + 1, "rounds": left})
        await _MODES[spec["how"]](ctx, spec["waits"], received)
        done += 1
    return received


async def _each(ctx: WorkflowContext, waits: list[Spec], received: list[str]) -> None:
    for wait in waits:
        await _wait(ctx, wait, received)


async def _all(ctx: WorkflowContext, waits: list[Spec], received: list[str]) -> None:
    await asyncio.gather(*(_wait(ctx, wait, received) for wait in waits))


async def _first(ctx: WorkflowContext, waits: list[Spec], received: list[str]) -> None:
    tasks = [asyncio.create_task(_wait(ctx, wait, received)) for wait in waits]
    _, losers = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for loser in losers:
        loser.cancel()
    await asyncio.gather(*losers, return_exceptions=True)


async def _beside(ctx: WorkflowContext, waits: list[Spec], received: list[str]) -> None:
    working = asyncio.create_task(work(ctx))
    await _each(ctx, waits, received)
    await working


_MODES = {"each": _each, "all": _all, "first": _first, "beside": _beside}


async def _wait(ctx: WorkflowContext, wait: Spec, received: list[str]) -> None:
    try:
        if wait["on"] == "event":
            event = await wait_event(
                ctx, wait["type"], subject=wait["subject"], match=wait["match"], timeout=wait["timeout"]
            )
            received.append(event.id)
        else:
            message = await receive(ctx, wait["channel"], timeout=wait["timeout"])
            received.append(message.id)
    except (EventTimeoutError, ChannelMessageTimeoutError):
        return


# --- senders


class NotYet(Exception):
    """The first attempt fails after it has sent."""


@workflow
async def send_items(ctx: WorkflowContext, spec: dict[str, Any]) -> None:
    """Send the items of the spec, from the workflow itself or from activities."""
    for item in spec["items"]:
        if item["via"] == "workflow":
            await _send(ctx, item)
        else:
            await act(ctx, item)


@activity(retry=RetryPolicy(max_attempts=9, initial_interval=0.5))
async def act(ctx: ActivityContext, item: dict[str, Any]) -> None:
    """Send an item with the commit of an attempt."""
    await _send(ctx, item)
    await schedulers[-1].extra_gate("", f"act of {ctx.instance_id}")
    if item["via"] == "flaky activity" and ctx.attempt == 1:
        raise NotYet


async def _send(ctx: WorkflowContext | ActivityContext, item: Spec) -> None:
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
    """The extensions of an event that is addressed to one instance; None for other events."""
    return None if item["to"] is None else {TARGET: item["to"]}
