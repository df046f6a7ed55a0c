"""The workflow of an order, and its activities."""

from examples.order_shop.tables import Item, Order
from pydantic import BaseModel
from sqlalchemy import update

from romancy import (
    ActivityContext,
    EventTimeoutError,
    RetryPolicy,
    RomancyError,
    TerminalError,
    WorkflowContext,
    activity,
    send_event,
    wait_event,
    workflow,
)


class Payment(BaseModel):
    """The data of the bank's event."""

    cents: int
    card: str


async def set_status(ctx: ActivityContext, order: Order, status: str, event: str) -> None:
    """Update the status of an order and send an event: both commit with the result of the activity, or not at all."""
    order.status = status
    await send_event(ctx, event, "/shop", {"customer": order.customer, "status": status}, subject=order.id)


@activity
async def reserve(ctx: ActivityContext, order_id: str) -> None:
    """Take the goods from the shelf, if there are enough."""
    order = await ctx.session.get_one(Order, order_id)
    enough = (Item.name == order.item) & (Item.stock >= order.number)
    connection = await ctx.session.connection()
    taken = await connection.execute(update(Item).where(enough).values(stock=Item.stock - order.number))
    if taken.rowcount == 0:
        raise TerminalError("sold out")
    await set_status(ctx, order, "reserved", "order.reserved")


@reserve.compensate
async def put_back(ctx: ActivityContext, order_id: str) -> None:
    """Put the goods back."""
    order = await ctx.session.get_one(Order, order_id)
    await ctx.session.execute(update(Item).where(Item.name == order.item).values(stock=Item.stock + order.number))


@activity
async def charge(ctx: ActivityContext, order_id: str, payment: Payment) -> None:
    """Take the money. A real bank gets `ctx.idempotency_key`: if this runs twice, it is one charge."""
    order = await ctx.session.get_one(Order, order_id)
    if payment.cents != order.cents:
        raise TerminalError(f"{payment.cents} cents are not {order.cents}")
    order.paid = payment.cents


@charge.compensate
async def pay_back(ctx: ActivityContext, order_id: str, payment: Payment) -> None:
    """Give the money back."""
    order = await ctx.session.get_one(Order, order_id)
    order.paid_back = payment.cents


@activity(retry=RetryPolicy.exponential(3, initial=0.1, maximum=10.0))
async def ship(ctx: ActivityContext, order_id: str) -> None:
    """Call the carrier, which fails at the first attempt, and always for Joe."""
    order = await ctx.session.get_one(Order, order_id)
    if ctx.attempt == 1 or order.customer == "Joe":
        raise ConnectionError("the carrier is on strike")
    await set_status(ctx, order, "shipped", "order.shipped")


@activity
async def close(ctx: ActivityContext, order_id: str, why: str) -> None:
    """Mark the order as cancelled, and send an event."""
    await set_status(ctx, await ctx.session.get_one(Order, order_id), f"cancelled, {why}", "order.cancelled")


@workflow
async def fulfil(ctx: WorkflowContext, order_id: str, hold: float) -> None:
    """Reserve, wait for the payment, ship. After an error, completed activities are compensated, the last one first."""
    try:
        await reserve(ctx, order_id)
        paid = await wait_event(ctx, "payment.received", subject=order_id, model=Payment, timeout=hold)
        await charge(ctx, order_id, paid.data)
        await ship(ctx, order_id)
    except RomancyError as error:
        why = "not paid in time" if isinstance(error, EventTimeoutError) else str(error.__cause__ or error)
        await close(ctx, order_id, why)
        raise
