"""Random workflows as data, and the one workflow that runs them.

Every activity of a program has its own number, which identifies its effects independently of its id.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any, TypeAlias

from hypothesis import strategies as st
from tests.property.crashes.effect_log import effect_log_of

from romancy import (
    ActivityContext,
    RetryPolicy,
    TerminalError,
    WorkflowContext,
    activity,
    register_compensation,
    sleep,
    workflow,
)

Node: TypeAlias = dict[str, Any]

# The instance stays owned during the first pause, and is released for the second.
_TWICE_AGAIN = RetryPolicy(max_attempts=3, initial_interval=0.5, multiplier=4.0)


class PlannedError(Exception):
    """Error of an attempt, or of the body itself."""


async def _work(ctx: ActivityContext, number: int, fails: int, terminal: bool) -> int:
    log = effect_log_of(ctx.instance_id)
    await log.begin(ctx, number)
    if ctx.attempt <= fails:
        raise TerminalError(f"never {number}") if terminal else PlannedError(f"not yet {number}")
    log.finish(ctx, number)
    return number * 10


async def _compensate(ctx: ActivityContext, number: int, fails: int) -> None:
    log = effect_log_of(ctx.instance_id)
    await log.begin(ctx, number, compensating=True)
    if ctx.attempt <= fails:
        raise PlannedError(f"cannot compensate {number} yet")
    log.finish(ctx, number)


@activity(retry=_TWICE_AGAIN)
async def plain(ctx: ActivityContext, number: int, fails: int, terminal: bool) -> int:
    """An activity without a compensation."""
    return await _work(ctx, number, fails, terminal)


@activity(retry=_TWICE_AGAIN)
async def compensable(ctx: ActivityContext, number: int, fails: int, terminal: bool) -> int:
    """An activity with a compensation."""
    return await _work(ctx, number, fails, terminal)


@compensable.compensate
async def compensate_it(ctx: ActivityContext, number: int, fails: int, terminal: bool) -> None:
    """Compensate `compensable`; if the activity failed at first, so does the compensation."""
    await _compensate(ctx, number, min(fails, 1))


async def compensate_by_hand(ctx: ActivityContext, number: int) -> None:
    """A compensation registered explicitly."""
    await _compensate(ctx, number, 0)


@workflow
async def interpret(ctx: WorkflowContext, program: dict[str, Any]) -> Any:
    """Run a program."""
    return await _step(ctx, program)


async def _step(ctx: WorkflowContext, node: Node) -> Any:
    match node["do"]:
        case "act":
            called = compensable if node["undo"] else plain
            return await called(ctx, node["number"], node["fails"], node["terminal"])
        case "register":
            return await register_compensation(ctx, compensate_by_hand, node["number"])
        case "sleep":
            return await sleep(ctx, node["seconds"])
        case "raise":
            raise PlannedError("raised by the body")
        case "sequence":
            return [await _step(ctx, part) for part in node["parts"]]
        case "gather":
            return await asyncio.gather(*(_step(ctx, part) for part in node["parts"]))
        case "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_step(ctx, part)) for part in node["parts"]]
            return [task.result() for task in tasks]
        case "beside":
            first = asyncio.create_task(_step(ctx, node["parts"][0]))
            last = [await _step(ctx, part) for part in node["parts"][1:]]
            return [await first, last]
        case "race":
            return await _race(ctx, node["parts"])
        case "timeout":
            try:
                async with asyncio.timeout(node["seconds"]):
                    return await _step(ctx, node["parts"][0])
            except TimeoutError:
                return "too late"
        case "catch":
            try:
                return await _step(ctx, node["parts"][0])
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        case unknown:
            raise AssertionError(unknown)


async def _race(ctx: WorkflowContext, parts: list[Node]) -> Any:
    tasks = [asyncio.create_task(_step(ctx, part)) for part in parts]
    done, losers = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for loser in losers:
        loser.cancel()
    await asyncio.gather(*losers, return_exceptions=True)
    return [await task for task in tasks if task in done]


# --- random programs


def _node(do: str, **what: st.SearchStrategy[Any]) -> st.SearchStrategy[Node]:
    return st.fixed_dictionaries({"do": st.just(do), **what})


_seconds = st.sampled_from([0.5, 1.0, 2.0, 3.0, 100.0])
_leaves = st.one_of(
    _node("act", undo=st.booleans(), fails=st.sampled_from([0, 0, 0, 0, 1, 2, 3]), terminal=st.booleans()),
    _node("act", undo=st.just(True), fails=st.just(0), terminal=st.just(False)),
    _node("sleep", seconds=_seconds),
    _node("register"),
)


def _branches(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(nodes, min_size=2, max_size=3)
    one = st.lists(nodes, min_size=1, max_size=1)
    return st.one_of(
        _node("sequence", parts=several),
        _node("sequence", parts=several),
        _node("gather", parts=several),
        _node("group", parts=several),
        _node("race", parts=several),
        _node("beside", parts=several),
        _node("timeout", parts=one, seconds=_seconds),
        _node("catch", parts=one),
    )


def _finished(node: Node, fails: bool) -> Node:
    parts = [node, {"do": "raise"}] if fails else [node]
    program: Node = {"do": "sequence", "parts": parts}
    numbers = itertools.count(1)
    for one in walk(program):
        one["number"] = next(numbers)
    return program


programs = st.builds(_finished, st.recursive(_leaves, _branches, max_leaves=8), st.booleans())


def walk(node: Node) -> Iterator[Node]:
    """A node and all nodes below it."""
    yield node
    for part in node.get("parts", ()):
        yield from walk(part)


def is_exact(program: Node) -> bool:
    """Whether the program has one result for every order of completion, because it contains no race.

    When a part of a concurrent node fails, its siblings race against the failure.
    """
    for node in walk(program):
        if node["do"] in ("race", "timeout"):
            return False
        if node["do"] in ("gather", "group", "beside") and any(_may_fail(below) for below in walk(node)):
            return False
    return True


def _may_fail(node: Node) -> bool:
    return node["do"] == "raise" or (
        node["do"] == "act" and bool(node["fails"]) and (node["terminal"] or node["fails"] >= 3)
    )
