"""A tour: workflows in every state, to explore in the viewer.

`python examples/demo.py` serves it until you press Ctrl+C. Open http://127.0.0.1:8000/viewer/ and try this:

- `order-paid-late` waits for its payment: send it the event `payment.received`, and it is shipped.
- `order-no-stock` has failed, and its reservation was compensated: look at its timeline.
- `weather` is retried again and again: see its next attempt, its error, and its line in the code.
- `newsletter` sleeps until tomorrow; `counter` recurs forever: look at its generations.
- Start more of them, cancel some, pause some.

Output with --once:
    order-paid: completed
    order-paid-late: waiting_for_event
    order-no-stock: failed
    weather: waiting_for_timer
    newsletter: waiting_for_timer
    counter: waiting_for_message
"""

import asyncio
import sys
from datetime import timedelta

import uvicorn

from romancy import (
    ActivityContext,
    App,
    RetryPolicy,
    Status,
    TerminalError,
    WorkflowContext,
    activity,
    receive,
    send_event,
    sleep,
    subscribe,
    wait_event,
    workflow,
)

PAID = "payment.received"


@activity
async def reserve(ctx: ActivityContext, item: str) -> str:
    """Take the item from the shelf."""
    return f"{item} reserved"


@reserve.compensate
async def put_back(ctx: ActivityContext, item: str) -> None:
    """Put the item back on the shelf."""


@activity
async def pack(ctx: ActivityContext, item: str) -> str:
    """Pack the item. Unicorns are not in stock."""
    if item == "unicorn":
        raise TerminalError("there are no unicorns")
    return f"parcel with a {item}"


@activity(retry=RetryPolicy(max_attempts=0, initial_interval=2.0, max_interval=30.0))
async def ask_the_weather(ctx: ActivityContext, city: str) -> str:
    """Ask a service that is unavailable."""
    raise ConnectionError(f"no weather data for {city}")


@workflow
async def order(ctx: WorkflowContext, item: str, cents: int) -> str:
    """Reserve, wait for the money, pack."""
    await reserve(ctx, item)
    await wait_event(ctx, PAID, subject=ctx.instance_id, timeout=timedelta(days=3))
    parcel = await pack(ctx, item)
    await send_event(ctx, "order.shipped", "/shop", {"parcel": parcel}, subject=ctx.instance_id)
    return parcel


@workflow
async def forecast(ctx: WorkflowContext, city: str) -> str:
    """Ask again until the service responds."""
    return await ask_the_weather(ctx, city)


@workflow
async def newsletter(ctx: WorkflowContext, reader: str) -> None:
    """Send one letter a day, forever."""
    await sleep(ctx, timedelta(days=1))
    await newsletter.recur(ctx, reader)


@workflow
async def counter(ctx: WorkflowContext, seen: int = 0) -> None:
    """Count the messages of the channel `clicks`, with a generation for each."""
    await subscribe(ctx, "clicks")
    await receive(ctx, "clicks")
    await counter.recur(ctx, seen + 1)


WANTED = {
    "order-paid": Status.COMPLETED,
    "order-paid-late": Status.WAITING_FOR_EVENT,
    "order-no-stock": Status.FAILED,
    "weather": Status.WAITING_FOR_TIMER,
    "newsletter": Status.WAITING_FOR_TIMER,
    "counter": Status.WAITING_FOR_MESSAGE,
}


async def begin(app: App) -> None:
    """Start one of each. Instances that exist from the last run are not started again."""
    await app.start_workflow(order.with_options(instance_id="order-paid"), "lamp", 1999)
    await app.start_workflow(order.with_options(instance_id="order-paid-late"), "chair", 4999)
    await app.start_workflow(order.with_options(instance_id="order-no-stock"), "unicorn", 9999)
    await app.start_workflow(forecast.with_options(instance_id="weather"), "Atlantis")
    await app.start_workflow(newsletter.with_options(instance_id="newsletter"), "Ada")
    await app.start_workflow(counter.with_options(instance_id="counter"))
    for paid in ("order-paid", "order-no-stock"):
        await app.send_event(PAID, "/bank", {"cents": 1999}, subject=paid, event_id=paid)


async def once(app: App) -> None:
    """Wait until each instance has its expected status."""
    async with app:
        await begin(app)
        for instance_id, status in WANTED.items():
            handle = app.get_handle(instance_id)
            while (found := await handle.status()) != status:
                await asyncio.sleep(0.01)
            print(f"{instance_id}: {found}")


async def serve(app: App) -> None:
    """Serve the app itself as the web application."""
    async with app:
        await begin(app)
        print("Open http://127.0.0.1:8000/viewer/ and press Ctrl+C to stop.")
        await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve()


if __name__ == "__main__":
    asyncio.run((once if "--once" in sys.argv else serve)(App("sqlite:///demo.db")))
