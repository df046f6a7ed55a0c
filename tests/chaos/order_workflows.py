"""The workflows that the chaos tests run, each effect a line in a ledger file.

The ledger is what the world saw: one line when an attempt begins, one when it has had its effect. It lies beside the
database. A line can be half there: while it is written over the end of a page, or for good if its writer is killed then.
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

LEDGER = "ROMANCY_TEST_LEDGER"
GATE = "ROMANCY_TEST_GATE"
"""A file: `work` waits until it exists."""

_AGAIN = RetryPolicy.fixed(4, 0.05)


@dataclass(frozen=True)
class Line:
    """One line of the ledger."""

    what: str
    instance: str
    op: str
    key: str
    attempt: int
    worker: str
    pid: int


def write(ctx: ActivityContext, what: str) -> None:
    """Add a line."""
    line = Line(what, ctx.instance_id, ctx.activity_id, ctx.idempotency_key, ctx.attempt, ctx.worker_id, os.getpid())
    descriptor = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"\n{json.dumps(asdict(line))}\n".encode())
    finally:
        os.close(descriptor)


def read(ledger: Path) -> list[Line]:
    """Every line that is whole: who has begun to write another has not come further."""
    texts = ledger.read_text().splitlines() if ledger.exists() else []
    return [Line(**json.loads(text)) for text in texts if text.endswith("}")]


def gate_is_open() -> bool:
    """What waits may go on."""
    return Path(os.environ[GATE]).exists()


# --- orders: several activities, sleeps, failures, a saga


@activity(retry=_AGAIN)
async def reserve(ctx: ActivityContext, item: int) -> int:
    """Fails at its first attempt for every third item."""
    write(ctx, "begin")
    await asyncio.sleep(0.002)
    if item % 3 == 0 and ctx.attempt == 1:
        raise ConnectionError("try again")
    write(ctx, "done")
    return item + 1


@reserve.compensate
async def release(ctx: ActivityContext, item: int) -> None:
    """Undoes `reserve`."""
    write(ctx, "begin")
    await asyncio.sleep(0.002)
    write(ctx, "done")


@activity(retry=_AGAIN)
def weigh(ctx: ActivityContext, item: int) -> int:
    """In a thread."""
    write(ctx, "begin")
    time.sleep(0.005)
    write(ctx, "done")
    return item * 2


@workflow
async def order(ctx: WorkflowContext, number: int) -> list[int]:
    """Fails and compensates for every fifth number."""
    first = await reserve(ctx, number)
    await sleep(ctx, 0.05 + 0.05 * (number % 4))
    weights = await asyncio.gather(*(weigh(ctx, number + part) for part in range(3)))
    async with asyncio.timeout(3600):
        second = await reserve(ctx, number + 1)
    await asyncio.sleep(0.02)
    if number % 5 == 0:
        raise ValueError(f"order {number} cannot be")
    return [first, *weights, second]


def expected(number: int) -> list[int] | None:
    """The result of an order; None: it fails."""
    if number % 5 == 0:
        return None
    return [number + 1, *(2 * (number + part) for part in range(3)), number + 2]


# --- work that lasts until the test says so


@activity(retry=RetryPolicy.none())
async def hold(ctx: ActivityContext, number: int) -> str:
    """Begins, waits for the gate, and is done."""
    write(ctx, "begin")
    try:
        while not gate_is_open():
            await asyncio.sleep(0.02)
            ctx.heartbeat()
    except (
        LeaseLostError,
        asyncio.CancelledError,
    ):  # whichever comes first: cancelled at the await, or told by the heartbeat
        write(ctx, "lost")
        raise
    write(ctx, "done")
    return ctx.worker_id


@activity(retry=RetryPolicy.none())
def hold_in_thread(ctx: ActivityContext, number: int) -> str:
    """As `hold`, in a thread, which no takeover can cancel."""
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
    """What follows."""
    write(ctx, "begin")
    write(ctx, "done")
    return number


@workflow
async def job(ctx: WorkflowContext, number: int) -> int:
    """Holds, then goes on."""
    await (hold_in_thread(ctx, number) if number % 2 else hold(ctx, number))
    return await after(ctx, number)


@activity(retry=RetryPolicy.none())
async def block(ctx: ActivityContext, seconds: float) -> str:
    """Blocks the event loop, as nobody should."""
    write(ctx, "begin")
    time.sleep(seconds)  # noqa: ASYNC251 - the point of it
    write(ctx, "done")
    return ctx.worker_id


@workflow
async def blocking(ctx: WorkflowContext, seconds: float) -> str:
    """Blocks the event loop."""
    return await block(ctx, seconds)


WORKFLOWS: list[Workflow[..., Any]] = [order, job, blocking]


# --- what must hold


def faults_of(lines: list[Line], *, killed: set[int]) -> Iterator[str]:
    """What is wrong in a ledger, where processes with these ids were killed or declared dead."""
    by_op: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        by_op.setdefault((line.instance, line.op), []).append(line)
    for (instance, op), group in by_op.items():
        name = f"{op} of {instance}"
        if len(keys := {line.key for line in group}) > 1:
            yield f"{name} ran with keys {sorted(keys)}"
        begun = Counter(line.attempt for line in group if line.what == "begin")
        for attempt, times in begun.items():
            owners = [line.pid for line in group if line.what == "begin" and line.attempt == attempt]
            if times > 1 and any(pid not in killed for pid in owners[:-1]):
                yield f"attempt {attempt} of {name} began {times} times, not only where a worker was killed: {owners}"
    holders: dict[str, set[tuple[str, str]]] = {}
    for line in lines:
        holders.setdefault(line.key, set()).add((line.instance, line.op))
    for key, operations in holders.items():
        if len(operations) > 1:
            yield f"{key} is the key of {sorted(operations)}"
