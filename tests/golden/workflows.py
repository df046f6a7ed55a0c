"""Workflows whose histories are recorded: their code must not change. New cases get new workflows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from romancy import (
    ActivityContext,
    EventTimeoutError,
    RetryPolicy,
    TerminalError,
    WorkflowContext,
    activity,
    get_group_members,
    join_group,
    publish,
    receive,
    recur,
    register_compensation,
    send_event,
    send_to,
    sleep,
    subscribe,
    unsubscribe,
    wait_event,
    workflow,
)


class Parcel(BaseModel):
    """A pydantic model as argument and result."""

    number: int
    weight: Decimal
    due: datetime | None = None


@dataclass
class Place:
    """A dataclass as argument and result."""

    town: str
    code: bytes


@activity
async def double(ctx: ActivityContext, n: int) -> int:
    """The simplest activity."""
    return 2 * n


@activity
def in_a_thread(ctx: ActivityContext, word: str) -> str:
    """A synchronous activity."""
    return word.upper()


@activity(retry=RetryPolicy(max_attempts=3, initial_interval=1))
async def at_the_third_try(ctx: ActivityContext) -> int:
    """Fail twice."""
    if ctx.attempt < 3:
        raise ConnectionError(f"try {ctx.attempt}")
    return ctx.attempt


@activity
async def refuse(ctx: ActivityContext, why: str) -> None:
    """Fail without retries."""
    raise TerminalError(why)


@activity
async def pack(ctx: ActivityContext, parcel: Parcel, place: Place) -> tuple[Parcel, Place]:
    """Return changed copies of the arguments."""
    return parcel.model_copy(update={"number": parcel.number + 1}), Place(place.town, place.code[::-1])


@pack.compensate
async def unpack(ctx: ActivityContext, result: tuple[Parcel, Place], parcel: Parcel, place: Place) -> None:
    """Compensate `pack`."""


@activity
async def undo(ctx: ActivityContext, what: str) -> None:
    """A compensation registered explicitly."""


@activity
async def tell(ctx: ActivityContext, kind: str, n: int) -> None:
    """Send an event with the commit of the activity."""
    await send_event(ctx, kind, "/golden", {"n": n})


@workflow
async def golden_steps(ctx: WorkflowContext, n: int) -> list[Any]:
    """Activities in sequence, in a thread, and with retries."""
    doubled = [await double(ctx, i) for i in range(n)]
    return [*doubled, await in_a_thread(ctx, "loud"), await at_the_third_try(ctx)]


@workflow
async def golden_payloads(ctx: WorkflowContext, parcel: Parcel, place: Place) -> tuple[Parcel, Place]:
    """Models, dataclasses, bytes, decimals and times."""
    return await pack(ctx, parcel, place)


@workflow
async def golden_together(ctx: WorkflowContext) -> dict[str, Any]:
    """asyncio's gather, groups, timeouts, wait, queues and locks."""
    found: dict[str, Any] = {"gathered": await asyncio.gather(*[double(ctx, n) for n in range(3)])}
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(double(ctx, n)) for n in (10, 20)]
    found["grouped"] = [task.result() for task in tasks]
    try:
        async with asyncio.timeout(60):
            await sleep(ctx, 3600)
    except TimeoutError:
        found["timed out"] = True
    quick, slow = asyncio.create_task(sleep(ctx, 1)), asyncio.create_task(sleep(ctx, timedelta(days=1)))
    done, pending = await asyncio.wait({quick, slow}, return_when=asyncio.FIRST_COMPLETED)
    found["first"] = quick in done and slow in pending
    slow.cancel()
    queue: asyncio.Queue[int] = asyncio.Queue()
    lock = asyncio.Lock()

    async def produce(n: int) -> None:
        async with lock:
            await queue.put(await double(ctx, n))

    await asyncio.gather(produce(1), produce(2))
    found["queued"] = [queue.get_nowait() for _ in range(2)]
    await asyncio.sleep(5)
    return found


@workflow
async def golden_chance(ctx: WorkflowContext) -> bool:
    """Time, random numbers and ids come from the context."""
    seen = {ctx.now().isoformat(), str(ctx.random().random()), str(ctx.uuid4())}
    for word in sorted(seen):
        await in_a_thread(ctx, word)
    await sleep(ctx, 1)
    flips = [ctx.random().random() < 0.5 for _ in range(8)]
    for heads in flips:
        await (double(ctx, 1) if heads else in_a_thread(ctx, "tails"))
    return len(flips) == 8


@workflow
async def golden_saga(ctx: WorkflowContext) -> None:
    """Fail and compensate."""
    await pack(ctx, Parcel(number=1, weight=Decimal("1.50")), Place("Ulm", b"\x00\xff"))
    await register_compensation(ctx, undo, "by hand")
    try:
        await refuse(ctx, "first")
    except TerminalError:
        await double(ctx, 1)
    await refuse(ctx, "second")


@workflow
async def golden_events(ctx: WorkflowContext) -> list[Any]:
    """Send events to itself, and wait for one that never comes."""
    await send_event(ctx, "golden.made", "/golden", {"n": 1})
    await tell(ctx, "golden.told", 2)
    told = await wait_event(ctx, "golden.told")
    try:
        await wait_event(ctx, "golden.never", timeout=30)
    except EventTimeoutError:
        return [told.data["n"]]
    return []


@workflow
async def golden_channels(ctx: WorkflowContext) -> list[Any]:
    """Subscribe, publish and receive; groups; a message to itself."""
    await subscribe(ctx, "golden", "broadcast")
    await publish(ctx, "golden", {"n": 1})
    await publish(ctx, "golden", b"\x01\x02", metadata={"k": "v"})
    first, second = await receive(ctx, "golden"), await receive(ctx, "golden")
    await unsubscribe(ctx, "golden")
    await join_group(ctx, "golden-group")
    members = await get_group_members(ctx, "golden-group")
    await subscribe(ctx, "golden-direct", "direct")
    await send_to(ctx, ctx.instance_id, "golden-direct", "to me")
    third = await receive(ctx, "golden-direct")
    return [first.data, second.data == b"\x01\x02", second.metadata, len(members), third.data]


@workflow
async def golden_rounds(ctx: WorkflowContext, n: int) -> int:
    """Recur; the last generation is recorded."""
    await double(ctx, n)
    if n < 3:
        await recur(ctx, n + 1)
    return n


@workflow
async def golden_cancelled(ctx: WorkflowContext) -> str:
    """Be cancelled while sleeping, clean up, and compensate."""
    await pack(ctx, Parcel(number=1, weight=Decimal(1)), Place("Bonn", b""))
    try:
        await sleep(ctx, timedelta(days=30))
    finally:
        await double(ctx, 99)
    return "never"


# --- in flight when the database was saved


@workflow
async def golden_waits_for_event(ctx: WorkflowContext) -> int:
    """Wait for `golden.go`."""
    before = await double(ctx, 1)
    event = await wait_event(ctx, "golden.go", subject=ctx.instance_id)
    return before + await double(ctx, event.data["n"])


@workflow
async def golden_waits_for_message(ctx: WorkflowContext) -> list[int]:
    """Have an unread message, and wait for two more."""
    await subscribe(ctx, "golden-line", "competing")
    return [(await receive(ctx, "golden-line")).data for _ in range(3)]


@workflow
async def golden_sleeps(ctx: WorkflowContext) -> list[Any]:
    """Sleep for two months, while another task waits for a day."""

    async def impatient() -> str:
        try:
            await wait_event(ctx, "golden.never", timeout=timedelta(days=1))
        except EventTimeoutError:
            return "gave up"
        return "?"

    _, said = await asyncio.gather(sleep(ctx, timedelta(days=60)), impatient())
    return [said, await double(ctx, 4)]


@workflow
async def golden_retries(ctx: WorkflowContext) -> int:
    """Be between two attempts of an activity."""
    return await patient(ctx)


@activity(retry=RetryPolicy(max_attempts=3, initial_interval=30))
async def patient(ctx: ActivityContext) -> int:
    """Fail once, and be retried after half a minute."""
    if ctx.attempt == 1:
        raise ConnectionError("not yet")
    return ctx.attempt


@workflow
async def golden_rounds_on(ctx: WorkflowContext, n: int) -> int:
    """Wait for an event in the second generation."""
    if n == 1:
        await recur(ctx, 2)
    event = await wait_event(ctx, "golden.go", subject=ctx.instance_id)
    return n + int(event.data["n"])
