"""A booking with a person in the loop: a seat is held while the customer decides, and released after a refusal or a timeout.

Output:
    seat 12A held
    please confirm the booking of seat 12A
    seat 12A booked
    seat 12B held
    please confirm the booking of seat 12B
    seat 12B released
    failed: the customer said no
    seat 12C held
    please confirm the booking of seat 12C
    seat 12C released
    failed: booking (...) took longer than its timeout.
"""

import asyncio

from romancy import ActivityContext, App, WorkflowContext, WorkflowFailedError, activity, wait_event, workflow

TIMEOUT = 1.5  # seconds; a day or two in practice


@activity
async def hold(ctx: ActivityContext, seat: str) -> None:
    """Hold the seat for this customer."""
    print(f"seat {seat} held")


@hold.compensate
async def release(ctx: ActivityContext, seat: str) -> None:
    """Release the seat."""
    print(f"seat {seat} released")


@activity
async def ask(ctx: ActivityContext, seat: str) -> None:
    """Send a form; when it is filled in, the web server sends the event."""
    print(f"please confirm the booking of seat {seat}")


@workflow(timeout=TIMEOUT)
async def booking(ctx: WorkflowContext, seat: str) -> str:
    """An error or the timeout of the workflow fails it, and completed activities are compensated."""
    await hold(ctx, seat)
    await ask(ctx, seat)
    answer = await wait_event(ctx, "booking.answered", model=bool)  # addressed to this instance
    if not answer.data:
        raise ValueError("the customer said no")
    return f"seat {seat} booked"


async def main() -> None:
    """A customer who says yes, one who says no, and one who is away."""
    async with App("sqlite:///booking.db") as app:
        for seat, wanted in {"12A": True, "12B": False, "12C": None}.items():
            handle = await app.start_workflow(booking, seat)
            if wanted is not None:
                address = {"romancyinstanceid": handle.instance_id}
                await app.send_event("booking.answered", "/web", wanted, extensions=address)
            try:
                print(await handle.result())
            except WorkflowFailedError as error:
                print(f"failed: {error.__cause__}")


if __name__ == "__main__":
    asyncio.run(main())
