"""A saga: when the card is refused, the bookings are compensated, the last one first.

Output:
    booked hotel
    booked flight
    cancelled flight (flight-1)
    cancelled hotel (hotel-1)
    failed: card refused
"""

import asyncio

from romancy import ActivityContext, App, TerminalError, WorkflowContext, WorkflowFailedError, activity, workflow


@activity
async def book(ctx: ActivityContext, what: str) -> str:
    """Book something; the result is its number."""
    print("booked", what)
    return f"{what}-1"


@book.compensate
async def cancel(ctx: ActivityContext, result: str, what: str) -> None:
    """Cancel a booking. A compensation gets the result and the arguments of the activity."""
    print("cancelled", what, f"({result})")


@activity
async def charge(ctx: ActivityContext, cents: int) -> None:
    """Refuse the card. A terminal error is not retried."""
    raise TerminalError("card refused")


@workflow
async def trip(ctx: WorkflowContext, cents: int) -> list[str]:
    """Book, book, pay."""
    booked = [await book(ctx, "hotel"), await book(ctx, "flight")]
    await charge(ctx, cents)
    return booked


async def main() -> None:
    """Let one instance fail."""
    async with App("sqlite:///saga.db") as app:
        handle = await app.start_workflow(trip, 50_000)
        try:
            await handle.result()
        except WorkflowFailedError as error:
            print(f"{await handle.status()}: {error.__cause__}")


if __name__ == "__main__":
    asyncio.run(main())
