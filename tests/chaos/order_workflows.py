"""The workflows of the chaos tests; their activities write to an effect log.

The effect log is a file beside the database, with one line when an attempt begins and one when it has had its effect. A line
can be incomplete, temporarily while it is written across a page boundary, or permanently if the process is killed then.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from romancy import ActivityContext, LeaseLostError, RetryPolicy, Workflow, WorkflowContext, activity, sleep, workflow

EFFECT_LOG = "ROMANCY_TEST_EFFECT_LOG"
GATE = "ROMANCY_TEST_GATE"
"""The path of a file: `hold` and `hold_in_thread` wait until it exists."""

_AGAIN = RetryPolicy.fixed(4, 0.05)


@dataclass(frozen=True)
class Line:
    """One line of the effect log."""

    what: str
    instance: str
    op: str
    key: str
    attempt: int
    worker: str
    pid: int


def write(ctx: ActivityContext, what: str) -> None:
    """Append a line."""
    line = Line(what, ctx.instance_id, ctx.activity_id, ctx.idempotency_key, ctx.attempt, ctx.worker_id, os.getpid())
    descriptor = os.open(os.environ[EFFECT_LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"\n{json.dumps(asdict(line))}\n".encode())
    finally:
        os.close(descriptor)


def read(effect_log: Path) -> list[Line]:
    """The complete lines. An incomplete line is skipped."""
    texts = effect_log.read_text().splitlines() if effect_log.exists() else []
    return [Line(**json.loads(text)) for text in texts if text.endswith("}")]


def gate_is_open() -> bool:
    """Whether waiting activities may finish."""
    return Path(os.environ[GATE]).exists()


# --- orders: several activities, sleeps, failures, a saga


@activity(retry=_AGAIN)
async def reserve(ctx: ActivityContext, item: int) -> int:
    """Fail at the first attempt for every third item."""
    write(ctx, "begin")
    await asyncio.sleep(0.002)
    if item % 3 == 0 and ctx.attempt == 1:
        raise ConnectionError("try again")
    write(ctx, "done")
    return item + 1


@reserve.compensate
async def release(ctx: ActivityContext, item: int) -> None:
    """Compensate `reserve`."""
    write(ctx, "begin")
    await asyncio.sleep(0.002)
    write(ctx, "done")


@activity(retry=_AGAIN)
def weigh(ctx: ActivityContext, item: int) -> int:
    """An activity in a thread."""
    write(ctx, "begin")
    time.sleep(0.005)
    write(ctx, "done")
    return item * 2


@workflow
async def order(ctx: WorkflowContext, number: int) -> list[int]:
    """Fail and compensate for every fifth number."""
    first = await reserve(ctx, number)
    await sleep(ctx, 0.05 + 0.05 * (number % 4))
    weights = await asyncio.gather(*(weigh(ctx, number + part) for part in range(3)))
    async with asyncio.timeout(3600):
        second = await reserve(ctx, number + 1)
    await asyncio.sleep(0.02)
    if number % 5 == 0:
        raise ValueError(f"order {number} fails")
    return [first, *weights, second]


def expected(number: int) -> list[int] | None:
    """The result of an order; None if it fails."""
    if number % 5 == 0:
        return None
    return [number + 1, *(2 * (number + part) for part in range(3)), number + 2]


# --- activities that last until the gate opens


@activity(retry=RetryPolicy.none())
async def hold(ctx: ActivityContext, number: int) -> str:
    """Begin, wait for the gate, and finish."""
    write(ctx, "begin")
    try:
        while not gate_is_open():
            await asyncio.sleep(0.02)
            ctx.heartbeat()
    except (
        LeaseLostError,
        asyncio.CancelledError,
    ):  # whichever comes first: a cancellation at the await, or an error of the heartbeat
        write(ctx, "lost")
        raise
    write(ctx, "done")
    return ctx.worker_id


@activity(retry=RetryPolicy.none())
def hold_in_thread(ctx: ActivityContext, number: int) -> str:
    """Like `hold`, in a thread, which a takeover cannot cancel."""
    write(ctx, "begin")
    try:
        while not gate_is_open():
            time.sleep(0.02)
            ctx.heartbeat()
    except LeaseLostError:
        write(ctx, "lost")
        raise
    write(ctx, "done")
    return ctx.worker_id


@activity
async def after(ctx: ActivityContext, number: int) -> int:
    """The activity after `hold`."""
    write(ctx, "begin")
    write(ctx, "done")
    return number


@workflow
async def job(ctx: WorkflowContext, number: int) -> int:
    """Hold, and run another activity."""
    await (hold_in_thread(ctx, number) if number % 2 else hold(ctx, number))
    return await after(ctx, number)


@activity(retry=RetryPolicy.none())
async def block(ctx: ActivityContext, seconds: float) -> str:
    """Block the event loop."""
    write(ctx, "begin")
    time.sleep(seconds)  # noqa: ASYNC251 - the point of it
    write(ctx, "done")
    return ctx.worker_id


@workflow
async def blocking(ctx: WorkflowContext, seconds: float) -> str:
    """Run an activity that blocks the event loop."""
    return await block(ctx, seconds)


WORKFLOWS: list[Workflow[..., Any]] = [order, job, blocking]


# --- checks


def faults_of(lines: list[Line], *, killed: set[int]) -> Iterator[str]:
    """The faults in an effect log, where processes with these ids were killed or declared dead."""
    by_op: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        by_op.setdefault((line.instance, line.op), []).append(line)
    for (instance, op), group in by_op.items():
        name = f"{op} of {instance}"
        if len(keys := {line.key for line in group}) > 1:
            yield f"{name} ran under the idempotency keys {sorted(keys)}"
        begun = Counter(line.attempt for line in group if line.what == "begin")
        for attempt, times in begun.items():
            owners = [line.pid for line in group if line.what == "begin" and line.attempt == attempt]
            if times > 1 and any(pid not in killed for pid in owners[:-1]):
                yield f"attempt {attempt} of {name} began {times} times, not only after a kill: {owners}"
    holders: dict[str, set[tuple[str, str]]] = {}
    for line in lines:
        holders.setdefault(line.key, set()).add((line.instance, line.op))
    for key, operations in holders.items():
        if len(operations) > 1:
            yield f"{key} is the idempotency key of {sorted(operations)}"
