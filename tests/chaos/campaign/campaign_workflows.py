"""The workflows of the campaign, with the faults that can be planted in them.

    order          writes a row, waits for its payment, receives words in order until `bye`, sleeps, stamps, publishes a
                   letter, sends an event; some orders fail and compensate, some are cancelled
    clerk          competes for letters and writes a row for each; recurs after some letters
    reader         receives the broadcast news
    event_counter  waits for the events that orders send
    ticker         sleeps and ticks, one generation for each tick, until it is stopped
    parcel         is started by an event

Rows are written through `ctx.session`, so there must be exactly one for each recorded activity.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import text
from tests.chaos import order_workflows
from tests.chaos.campaign.planted_faults import Plant, planted

from romancy import (
    ActivityContext,
    TerminalError,
    Workflow,
    WorkflowContext,
    activity,
    publish,
    receive,
    send_event,
    sleep,
    subscribe,
    wait_event,
    workflow,
)

DESK, LETTERS, NEWS = "desk", "letters", "news"
PAID, FINISHED, PARCEL, STOP_TICKING = "paid", "finished", "parcel", "stop-ticking"
SOURCE = "campaign"
"""The source of events that workflows send."""
STOP, BYE = "stop", "bye"
OK, FAILS, CANCELLED = "ok", "fails", "cancelled"
"""How an order is meant to end."""
AT_A_TIME = 20
"""Letters, news or events that an instance receives in one generation."""
TICK = 0.3

ROWS = "CREATE TABLE chaos_rows (instance_id VARCHAR(100), name VARCHAR(100), idem VARCHAR(300), tag VARCHAR(300))"


def tag_of(word: str) -> str:
    """The word without the number of the attempt: `order-1.bye#2` is `bye`."""
    return word.rpartition(".")[2].partition("#")[0]


async def _row(ctx: ActivityContext, name: str, tag: str) -> None:
    values = {"instance": ctx.instance_id, "name": name, "idem": ctx.idempotency_key, "tag": tag}
    statement = text("INSERT INTO chaos_rows (instance_id, name, idem, tag) VALUES (:instance, :name, :idem, :tag)")
    for _ in range(2 if planted(Plant.DOUBLED_ROW, tag) else 1):
        await ctx.session.execute(statement, values)


# --- orders


@activity
async def book(ctx: ActivityContext, number: int) -> int:
    """Write a row in the transaction that records the activity."""
    if not planted(Plant.LOST_ROW, ctx.instance_id):
        await _row(ctx, "book", f"book {number}")
    return number + 1


@book.compensate
async def unbook(ctx: ActivityContext, number: int) -> None:
    """Write another row in the same way."""
    if not planted(Plant.LOST_COMPENSATION, ctx.instance_id):
        await _row(ctx, "unbook", f"unbook {number}")


@activity
async def stamp(ctx: ActivityContext, number: int) -> int:
    """Write two lines to the effect log."""
    order_workflows.write(ctx, "begin")
    await asyncio.sleep(0.002)
    order_workflows.write(ctx, "done")
    return 2 * number


@activity
async def fail(ctx: ActivityContext) -> None:
    """Fail without retries."""
    raise TerminalError("this order fails")


@workflow
async def order(ctx: WorkflowContext, number: int, fate: str) -> dict[str, Any]:
    """Returns the payment and the words received."""
    await subscribe(ctx, DESK, "direct")
    await book(ctx, number)
    paid = await wait_event(ctx, PAID, subject=ctx.instance_id)
    words: list[str] = []
    while not words or tag_of(words[-1]) != BYE:
        words.append((await receive(ctx, DESK, model=str)).data)
    await sleep(ctx, 0.03 * (number % 4))
    if fate == FAILS:
        await fail(ctx)
    stamped = await stamp(ctx, number)
    if not planted(Plant.LOST_LETTER, ctx.instance_id):
        await publish(ctx, LETTERS, f"letter {ctx.instance_id}")
    await send_event(ctx, FINISHED, SOURCE, ctx.instance_id, subject="event_counter", event_id=f"finished-{ctx.instance_id}")
    return {"paid": paid.data, "words": words, "stamped": stamped}


def expected(number: int) -> dict[str, Any]:
    """The result of an order without its words."""
    return {"paid": {"amount": number}, "stamped": 2 * number}


# --- long-running workflows


@activity
async def file(ctx: ActivityContext, tag: str) -> None:
    """Write a row for a letter."""
    await _row(ctx, "file", tag)


@workflow
async def clerk(ctx: WorkflowContext, taken: int = 0) -> int:
    """Returns the number of letters filed."""
    await subscribe(ctx, LETTERS, "competing")
    for _ in range(AT_A_TIME):
        letter = (await receive(ctx, LETTERS, model=str)).data
        if tag_of(letter) == STOP:
            return taken
        await file(ctx, letter)
        taken += 1
    await ctx.recur(taken)


@workflow
async def reader(ctx: WorkflowContext, received: int = 0) -> int:
    """Returns the number of news received."""
    await subscribe(ctx, NEWS, "broadcast")
    for _ in range(AT_A_TIME):
        if tag_of((await receive(ctx, NEWS, model=str)).data) == STOP:
            return received
        received += 1
    await ctx.recur(received)


@workflow
async def event_counter(ctx: WorkflowContext, counted: int = 0) -> int:
    """Returns the number of events received."""
    for _ in range(AT_A_TIME):
        if (await wait_event(ctx, FINISHED, subject="event_counter")).data == STOP:
            return counted
        counted += 1
    await ctx.recur(counted)


@activity
async def tick(ctx: ActivityContext, number: int) -> int:
    """Write a row for a generation."""
    await _row(ctx, "tick", f"tick {number}")
    return number + 1


@workflow
async def ticker(ctx: WorkflowContext, number: int = 1) -> int:
    """Returns the number of the last tick."""
    following = await tick(ctx, number)
    stop = wait_event(ctx, STOP_TICKING)
    done, pending = await asyncio.wait({stop, sleep(ctx, TICK)}, return_when=asyncio.FIRST_COMPLETED)
    for other in pending:
        other.cancel()
    if stop in done:
        return number
    await ctx.recur(following)


@activity
async def unpack(ctx: ActivityContext, number: str) -> str:
    """Write a row for a parcel."""
    await _row(ctx, "unpack", number)
    return number


@workflow(name=PARCEL, event_handler=True)
async def parcel(ctx: WorkflowContext, number: str) -> str:
    """Returns the number of the parcel."""
    return await unpack(ctx, number)


WORKFLOWS: list[Workflow[..., Any]] = [order, clerk, reader, event_counter, ticker, parcel]
WITH_ROWS = ("book", "unbook", "file", "tick", "unpack")
"""Activities and compensations that write one row for each record."""
LONG_RUNNING = {"clerk": 4, "reader": 2, "event_counter": 1, "ticker": 2}
"""The number of instances of each long-running workflow."""
