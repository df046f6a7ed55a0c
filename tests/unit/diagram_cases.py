"""Workflows to draw, one for each construct, and functions that run and draw them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from romancy import (
    ActivityContext,
    EventTimeoutError,
    HistoryEntry,
    Instance,
    RetryPolicy,
    TerminalError,
    Workflow,
    WorkflowContext,
    activity,
    publish,
    receive,
    recur,
    register_compensation,
    send_event,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.testing import TestEnvironment
from romancy.viewer.diagram import Diagram, draw


@activity(retry=RetryPolicy.none())
async def act(ctx: ActivityContext, what: Any) -> Any:
    if isinstance(what, str) and what.startswith("bad"):
        raise TerminalError(f"{what} went wrong")
    return what


@activity
async def undo(ctx: ActivityContext, what: str) -> None: ...


@activity(compensation=undo)
async def book(ctx: ActivityContext, what: str) -> str:
    return what


@activity(retry=RetryPolicy.fixed(5, 60))
async def stubborn(ctx: ActivityContext) -> None:
    raise ValueError("not yet")


@workflow
async def same_in_both_branches(ctx: WorkflowContext, amount: int) -> str:
    if amount > 100:
        await act(ctx, "much")
    elif amount > 10:
        await act(ctx, "some")
    else:
        await act(ctx, "little")
    await act(ctx, "after")
    return "ended"


@workflow
async def loops(ctx: WorkflowContext, items: list[str]) -> None:
    for item in items:
        await act(ctx, item)
    rounds = 0
    while rounds < 2:
        rounds += 1
        await act(ctx, rounds)
    for _ in []:
        await act(ctx, "never")


@workflow
async def left_by_break(ctx: WorkflowContext, stop: int) -> None:
    number = 0
    while True:
        number += await act(ctx, 1)
        if number == stop:
            break
        await act(ctx, "again")
    await act(ctx, "after")


@workflow
async def tries(ctx: WorkflowContext, what: str) -> str:
    try:
        await act(ctx, what)
        await act(ctx, "second")
    except TerminalError:
        await act(ctx, "mended")
    except ValueError:
        await act(ctx, "odd")
    else:
        await act(ctx, "fine")
    finally:
        await act(ctx, "finally")
    return "ended"


@workflow
async def returns_in_a_handler(ctx: WorkflowContext, what: str) -> str:
    try:
        await act(ctx, what)
    except TerminalError:
        await act(ctx, "mended")
        return "mended"
    finally:
        await act(ctx, "finally")
    await act(ctx, "after")
    return "ended"


@workflow
async def gathers(ctx: WorkflowContext) -> None:
    await asyncio.gather(act(ctx, "one"), act(ctx, "two"), *[act(ctx, number) for number in range(3)])
    await asyncio.gather(helper(ctx, "first"), helper(ctx, "second"))
    await asyncio.gather(act(ctx, "three"), asyncio.sleep(5))


@workflow
async def both_ways(ctx: WorkflowContext) -> None:
    await helper(ctx, "awaited")
    await asyncio.gather(helper(ctx, "task"), act(ctx, "beside"))


@workflow
async def task_group(ctx: WorkflowContext) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(act(ctx, "left"))
        group.create_task(helper(ctx, "right"))
    await act(ctx, "after")


async def helper(ctx: WorkflowContext, what: str) -> Any:
    return await act(ctx, "in helper")


@workflow
async def nested_helpers(ctx: WorkflowContext, first: bool) -> None:
    async def inner(what: str) -> None:
        await act(ctx, "in inner")
        await helper(ctx, what)

    if first:
        await inner("a")
    else:
        await inner("b")


class Till:
    async def pay(self, context: WorkflowContext) -> None:
        await act(context, "paid")


@workflow
async def by_way_of_an_object(ctx: WorkflowContext, pay: bool) -> None:
    till = Till()
    if pay:
        await till.pay(ctx)
    else:
        await till.pay(ctx)


@workflow
async def matches(ctx: WorkflowContext, how: Any) -> None:
    match how:  # pyright: ignore[reportMatchNotExhaustive]
        case "post":
            await act(ctx, "posted")
        case {"courier": _}:
            await act(ctx, "carried")
        case _ if how == 7:
            await act(ctx, "seven")


@workflow
async def returns_early(ctx: WorkflowContext, empty: bool) -> str:
    await act(ctx, "look")
    if empty:
        return "nothing to do"
    await act(ctx, "do it")
    return "done"


@workflow
async def raises(ctx: WorkflowContext, wrong: bool) -> None:
    await act(ctx, "look")
    if wrong:
        raise TerminalError("wrong")
    await act(ctx, "do it")


def plain(fn: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(fn)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return await fn(*args, **kwargs)

    return wrapped


@workflow(
    name="decorated",
    version="2",
)
@plain
async def decorated(ctx: WorkflowContext, yes: bool) -> None:
    # calls over several lines, by attribute and with options
    if yes:
        await act(
            ctx,
            "long",
        )
    else:
        await act(
            ctx,
            "long",
        )
    await act.with_options(
        activity_id="mine",
    )(ctx, "with options")
    await (
        Shelf
        .first
        .act(ctx, "by attribute")
    )  # fmt: skip
    x = [await act(ctx, "a"), await act(ctx, "b")] if yes else [await act(ctx, "c")]
    assert x


class Shelf:
    class first:
        act = act


@workflow
async def says_and_waits(ctx: WorkflowContext) -> None:
    await subscribe(ctx, "news")
    await publish(ctx, "news", "hello")
    await receive(ctx, "news")
    await send_event(ctx, "order.made", "/shop", {"n": 1})
    await register_compensation(ctx, undo, "all")
    await sleep(ctx, 5)
    await asyncio.sleep(5)
    with contextlib.suppress(EventTimeoutError):
        await wait_event(ctx, "early", timeout=5)
    await wait_event(ctx, "order.paid")
    await wait_event(ctx, "order.shipped")


@workflow
async def undone(ctx: WorkflowContext) -> None:
    await book(ctx, "room")
    await act(ctx, "bad")


@workflow
async def patient(ctx: WorkflowContext) -> None:
    await stubborn(ctx)


@workflow
async def again(ctx: WorkflowContext, rounds: int) -> None:
    await act(ctx, rounds)
    if rounds > 1:
        await recur(ctx, rounds - 1)


@workflow
async def timed_out(ctx: WorkflowContext) -> None:
    try:
        async with asyncio.timeout(5):
            await wait_event(ctx, "never")
    except TimeoutError:
        await act(ctx, "late")


@workflow
async def hidden(ctx: WorkflowContext) -> None:
    do = functools.partial(act, ctx)
    await do("partly hidden")
    await asyncio.create_task(unseen_task(lambda: act(ctx, "in a lambda")))


async def unseen_task(start: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    await start()


@dataclass
class RunRecords:
    """The records of a run."""

    source: str
    entries: list[HistoryEntry]
    instance: Instance

    def draw(self) -> Diagram:
        return draw(self.source, self.entries, open=self.instance.waiting_for, status=self.instance.status)


async def run(made: Workflow[..., Any], *args: Any, seconds: float = 30, events: tuple[str, ...] = ()) -> RunRecords:
    """Run a workflow on virtual time, and return its records."""
    async with TestEnvironment(workflows=[made]) as env:
        handle = await env.app.start_workflow(made, *args)
        await env.settle()
        await env.advance(seconds)
        for event in events:
            await env.app.send_event(event, "/tests", {})
            await env.settle()
        instance = await env.app.get_instance(handle.instance_id)
        loaded = await env.app._store.load(handle.instance_id)
        assert instance is not None
        assert loaded is not None
        source = await env.app._store.source(loaded.row.code)
        return RunRecords(source or "", [entry async for entry in handle.history()], instance)


def highlighted(drawing: Diagram) -> dict[str, str]:
    """The highlighted operations: their texts in the code, and their states."""
    return {node.text.partition(", line")[0]: node.state for node in drawing.nodes if node.state != "untaken"}


def untaken(drawing: Diagram) -> set[str]:
    return {node.text.partition(", line")[0] for node in drawing.nodes if node.state == "untaken"}


def paths(drawing: Diagram) -> dict[str, bool]:
    """Branches, blocks and exits, and whether the path runs through them."""
    found: dict[str, bool] = {}

    def visit(lines: Any) -> None:
        for line in lines:
            text, _, way = line.text.rpartition(", ")
            if way in ("taken", "not taken"):
                found[text] = way == "taken"
            visit(line.below)

    visit(drawing.outline)
    return found
