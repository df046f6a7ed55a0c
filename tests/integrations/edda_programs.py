"""Programs that were written for Edda, with only the imports changed."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from romancy.integrations.edda import (
    EventTimeoutError,
    RetryExhaustedError,
    RetryPolicy,
    TerminalError,
    WorkflowContext,
    activity,
    compensation,
    on_failure,
    publish,
    receive,
    register_compensation,
    send_event_transactional,
    send_to,
    sleep,
    subscribe,
    wait_event,
    wait_timer,
    workflow,
)

done: list[str] = []
"""The side effects of the activities, in order."""

ONCE = RetryPolicy(max_attempts=1)


# --- simple


@activity
async def look_up(ctx: WorkflowContext, name: str) -> dict[str, Any]:
    done.append(f"look_up {name}")
    return {"name": name, "points": 3}


@activity
def add_up(ctx: WorkflowContext, points: int, bonus: int = 1) -> dict[str, Any]:
    done.append(f"add_up {points}")
    return {"total": points + bonus}


@workflow
async def membership(ctx: WorkflowContext, name: str) -> dict[str, Any]:
    found = await look_up(ctx, name)
    sums = await asyncio.gather(
        add_up(ctx, found["points"], activity_id="add:a"),
        add_up(ctx, 10, bonus=5, activity_id="add:b"),
    )
    return {"name": found["name"], "total": sum(one["total"] for one in sums)}


# --- compensation: by hand, and by @on_failure


@activity
async def reserve(ctx: WorkflowContext, order_id: str, items: list[str]) -> dict[str, Any]:
    done.append(f"reserve {order_id}")
    return {"reservation_id": f"R-{order_id}", "count": len(items)}


@compensation
async def release(ctx: WorkflowContext, reservation_id: str) -> None:
    done.append(f"release {reservation_id}")


@compensation
async def refund(ctx: WorkflowContext, order_id: str, payment_id: str, amount: float) -> dict[str, Any]:
    done.append(f"refund {payment_id} of {order_id}: {amount}")
    return {"refunded": True}


@activity
@on_failure(refund)
async def charge(ctx: WorkflowContext, order_id: str, amount: float) -> dict[str, Any]:
    done.append(f"charge {order_id}")
    return {"payment_id": f"P-{order_id}", "status": "charged"}


@activity(retry_policy=ONCE)
async def ship(ctx: WorkflowContext, order_id: str) -> dict[str, Any]:
    done.append(f"ship {order_id}")
    raise ConnectionError("no lorry")


@workflow
async def order(ctx: WorkflowContext, order_id: str, items: list[str], amount: float) -> dict[str, Any]:
    reserved = await reserve(ctx, order_id, items)
    await register_compensation(ctx, release, reservation_id=reserved["reservation_id"], activity_id="reserve:1")
    await charge(ctx, order_id, amount)
    await ship(ctx, order_id)
    return reserved


# --- cancellation: activities that register compensations


class Room(BaseModel):
    hotel: str
    number: int


@activity
async def cancel_room(ctx: WorkflowContext, room: Room) -> None:
    done.append(f"cancel {room.hotel} {room.number}")


@activity
async def book_room(ctx: WorkflowContext, hotel: str, number: int) -> Room:
    room = Room(hotel=hotel, number=number)
    await register_compensation(ctx, cancel_room, room=room)
    done.append(f"book {hotel}")
    return room


async def stop_flight(ctx: WorkflowContext, flight: str) -> None:
    done.append(f"stop {flight}")


async def not_named_by_the_activity(ctx: WorkflowContext, *args: Any) -> None:
    done.append("never")


@activity
async def book_flight(ctx: WorkflowContext, flight: str) -> dict[str, Any]:
    await register_compensation(ctx, stop_flight, flight)
    done.append(f"book {flight}")
    return {"flight": flight}


@workflow
async def journey(ctx: WorkflowContext, to: str) -> dict[str, Any]:
    room = await book_room(ctx, f"Hotel {to}", 12)
    flight = await book_flight(ctx, f"LH {to}")
    paid = await wait_event(ctx, event_type="journey.paid")
    return {"hotel": room.hotel, **flight, "paid": paid.data["amount"]}


# --- events and timers


class PaymentDone(BaseModel):
    order_id: str
    amount: float


@activity
async def begin_payment(ctx: WorkflowContext, order_id: str) -> dict[str, Any]:
    done.append(f"begin {order_id}")
    return {"payment_id": f"PAY-{order_id}"}


@workflow
async def payment(ctx: WorkflowContext, order_id: str) -> dict[str, Any]:
    begun = await begin_payment(ctx, order_id)
    event = await wait_event(ctx, event_type="payment.completed", timeout_seconds=300)
    return {"payment": begun["payment_id"], "data": event.data, "source": event.source, "type": event.type}


@workflow
async def typed_payment(ctx: WorkflowContext, order_id: str) -> dict[str, Any]:
    event = await wait_event(ctx, "payment.completed", model=PaymentDone)
    return {"amount": event.data.amount, "time": event.time, "order": event.data.order_id}


@workflow
async def patient(ctx: WorkflowContext) -> str:
    await wait_timer(ctx, duration_seconds=60)
    await sleep(ctx, 30, timer_id="second")
    try:
        await wait_event(ctx, "never", timeout_seconds=10)
    except EventTimeoutError as error:
        return f"{error.event_type} after {error.timeout_seconds}"
    return "came"


# --- messages


class Ask(BaseModel):
    request_id: str
    urgent: bool = False


@workflow(event_handler=True)
async def approval(ctx: WorkflowContext, ask: Ask) -> dict[str, Any]:
    message = await receive(ctx, channel="approval", timeout_seconds=300)
    return {"id": ask.request_id, "approved": message.data["approved"], "by": message.metadata["source_instance_id"]}


@workflow
async def approver(ctx: WorkflowContext, target_id: str) -> bool:
    return await send_to(ctx, instance_id=target_id, data={"approved": True}, channel="approval")


@workflow
async def listener(ctx: WorkflowContext, channel: str, mode: str) -> dict[str, Any]:
    await subscribe(ctx, channel, mode=mode)
    try:
        message = await receive(ctx, channel, timeout_seconds=600)
    except TimeoutError:
        return {"got": None}
    return {"got": message.data, "id": message.id, "channel": message.channel, "about": message.metadata.get("kind")}


@workflow
async def own_channel(ctx: WorkflowContext) -> list[Any]:
    """Receive from the instance's own channel by the name that Edda gives it."""
    mine = f"box:{ctx.instance_id}"
    await subscribe(ctx, mine)
    return [(await receive(ctx, mine)).data, (await receive(ctx, mine)).data]


@workflow
async def announcer(ctx: WorkflowContext, channel: str, text: str) -> str:
    return await publish(ctx, channel, {"text": text}, {"kind": "news"})


# --- retries

attempts: list[str] = []


@activity(retry_policy=RetryPolicy(initial_interval=0.5, backoff_coefficient=3.0, max_attempts=4))
async def flaky(ctx: WorkflowContext, fails: int) -> int:
    attempts.append("flaky")
    if len(attempts) <= fails:
        raise ConnectionError(f"attempt {len(attempts)}")
    return len(attempts)


@activity
async def hopeless(ctx: WorkflowContext) -> None:
    attempts.append("hopeless")
    raise TerminalError("no such user")


@workflow
async def stubborn(ctx: WorkflowContext, fails: int) -> dict[str, Any]:
    try:
        return {"attempts": await flaky(ctx, fails)}
    except RetryExhaustedError as error:
        return {"gave up": str(error.__cause__)}


@workflow
async def hasty(ctx: WorkflowContext) -> str:
    try:
        await hopeless(ctx)
    except TerminalError as error:
        return f"at once: {error}"
    return "?"


# --- loops and children


class Batch(BaseModel):
    total: int
    done: int = 0


@workflow
async def batches(ctx: WorkflowContext, batch: Batch) -> int:
    if batch.done < batch.total:
        await ctx.recur(total=batch.total, done=batch.done + 1)
    return batch.done


@workflow
async def child(ctx: WorkflowContext, ask: Ask, parent: str) -> None:
    await send_to(ctx, parent, {"id": ask.request_id}, channel=f"result:{parent}")


@workflow
async def parent(ctx: WorkflowContext, names: list[str]) -> list[str]:
    for name in names:
        await child.start(ask=Ask(request_id=name), parent=ctx.instance_id)
    found = [await receive(ctx, f"result:{ctx.instance_id}") for _ in names]
    return sorted(one.data["id"] for one in found)


# --- outbox


@activity
async def sell(ctx: WorkflowContext, item: str) -> dict[str, Any]:
    async with ctx.transaction():
        event_id = await send_event_transactional(ctx, "item.sold", "shop", {"item": item})
    done.append(f"sell {item}")
    if done.count(f"sell {item}") == 1:
        raise ConnectionError("the till is stuck")
    return {"event_id": event_id, "in_transaction": ctx.in_transaction()}


@workflow
async def sale(ctx: WorkflowContext, item: str) -> dict[str, Any]:
    sold = await sell(ctx, item)
    await send_event_transactional(ctx, event_type="sale.over", event_source="shop", event_data=Ask(request_id=item))
    return sold
