"""A replay compares arguments by their values under today's types; it names each difference."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from sqlalchemy.ext.asyncio import AsyncEngine

from romancy import (
    ActivityContext,
    Encrypt,
    EventTimeoutError,
    InstanceConflictError,
    Status,
    Workflow,
    WorkflowContext,
    activity,
    join_group,
    publish,
    register_compensation,
    send_event,
    send_to,
    send_to_group,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")

START = datetime(2020, 1, 1, tzinfo=UTC)


class Item(BaseModel):
    sku: str
    price: int


class Order(BaseModel):
    id: int
    items: list[Item]


class PricedItem(BaseModel):
    sku: str
    price: float
    currency: str = "EUR"


class WideOrder(BaseModel):
    id: int
    items: list[PricedItem]
    note: str = ""


class StrictOrder(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: int


def program(model: type[BaseModel], given: Callable[[Any], Any] = lambda value: value, *, reordered: bool = False) -> Any:
    """A workflow that passes its order to every kind of operation. All workflows of this function have the same name."""

    @activity(name="pack")
    async def pack(ctx: ActivityContext, order: model, extra: dict[str, int]) -> int:  # type: ignore[valid-type]
        return 1

    @activity(name="unpack")
    async def unpack(ctx: ActivityContext, order: model) -> None:  # type: ignore[valid-type]
        return None

    @workflow(name="meaning.order")
    async def order(ctx: WorkflowContext, order: model, *, notes: dict[str, int] | None = None) -> str:  # type: ignore[valid-type]
        now = given(order)
        extra = {"b": 2, "a": 1} if reordered else {"a": 1, "b": 2}
        await subscribe(ctx, "orders", mode="broadcast")
        await join_group(ctx, "packers")
        await pack(ctx, now, extra)
        await register_compensation(ctx, unpack, now)
        await publish(ctx, "orders", {"order": now, **extra}, metadata={"order": now})
        await send_event(ctx, "order.packed", "/orders", now)
        await send_to(ctx, ctx.instance_id, "own", [now, extra])
        await send_to_group(ctx, "packers", "own", now)
        match: dict[str, Any] = {"to": "x", "by": "y"} if reordered else {"by": "y", "to": "x"}
        with contextlib.suppress(EventTimeoutError):
            await wait_event(ctx, "never", timeout=60, match=match, event_id="w")
        await sleep(ctx, 3600)
        return "done"

    return order


ORDER = {"id": 7, "items": [{"sku": "a", "price": 3}, {"sku": "b", "price": 4}]}


async def begun(database: str, of: Workflow[..., Any], model: type[BaseModel], **options: Any) -> None:
    async with TestEnvironment(database, workflows=[of], start=START, **options) as env:
        await env.app.start_workflow(of.with_options(instance_id="o"), model.model_validate(ORDER))
        await env.advance(1800)
        assert (await env.app.get_result("o")).status is Status.WAITING_FOR_TIMER


async def replayed(database: str, of: Workflow[..., Any], **options: Any) -> str:
    """The result of the instance with this code, or the message with which it is blocked."""
    async with TestEnvironment(database, workflows=[of], start=START, **options) as env:
        await env.advance(7200)
        found = await env.app.get_result("o")
        return str(found.output) if found.error is None else found.error.message


async def test_a_model_with_more_fields_and_wider_types_in_another_order_goes_on(database: str) -> None:
    await begun(database, program(Order), Order)
    assert await replayed(database, program(WideOrder, reordered=True)) == "done"


async def test_a_real_difference_blocks_and_is_named(database: str) -> None:
    await begun(database, program(Order), Order)

    def dearer(order: WideOrder) -> WideOrder:
        order.items[1].price += 0.5
        return order

    reason = await replayed(database, program(WideOrder, dearer))
    assert "activity pack:1" in reason
    assert "with other arguments: order.items[1].price was 4.0, and is now 4.5. " in reason
    assert "ctx.now(), ctx.random(), ctx.uuid4(), or an activity" in reason


async def test_what_was_recorded_and_does_not_fit_any_more_is_told(database: str) -> None:
    @activity(name="pack")
    async def pack(ctx: ActivityContext, order: Any) -> int:
        return 1

    @activity(name="pack")
    async def strictly(ctx: ActivityContext, order: StrictOrder) -> int:
        return 1

    def of(one: Any) -> Any:
        @workflow(name="meaning.order")
        async def order(ctx: WorkflowContext, order: dict[str, Any]) -> str:
            given = StrictOrder(id=7) if one is strictly else order
            await one(ctx, given)
            await sleep(ctx, 3600)
            return "done"

        return order

    async with TestEnvironment(database, workflows=[before := of(pack)], start=START) as env:
        await env.app.start_workflow(before.with_options(instance_id="o"), ORDER)
        await env.settle()
    reason = await replayed(database, of(strictly))
    assert "the recorded value does not match the current types of the code: argument 'order' of activity 'pack'" in reason


async def test_values_that_are_encrypted_are_not_shown(database: str) -> None:
    key = Encrypt({"2026": b"k" * 32})
    await begun(database, program(Order), Order, codec=key)

    def other(order: Order) -> Order:
        return order.model_copy(update={"id": 1234567})

    reason = await replayed(database, program(Order, other), codec=key)
    assert "with other arguments: order.id differs (its values are encrypted)" in reason
    assert "1234567" not in reason
    async with TestEnvironment(database, workflows=[known := program(Order)], start=START, codec=key) as env:
        with pytest.raises(InstanceConflictError, match=r"order\.id differs \(its values are encrypted\)"):
            await env.app.start_workflow(known.with_options(instance_id="o"), Order(id=1234567, items=[]))


def said(what: str, value: Any) -> Any:
    async def say(ctx: WorkflowContext) -> None:
        match what:
            case "publish":
                await publish(ctx, "c", value)
            case "send_event":
                await send_event(ctx, "e", "/s", value)
            case "send_to":
                await send_to(ctx, ctx.instance_id, "c", value)
            case _:
                await send_to_group(ctx, "g", "c", value)

    @workflow(name="meaning.order")
    async def order(ctx: WorkflowContext) -> str:
        await say(ctx)
        await sleep(ctx, 3600)
        return "done"

    return order


@pytest.mark.parametrize("what", ["publish", "send_event", "send_to", "send_to_group"])
async def test_what_was_said_is_compared_likewise(database: str, what: str) -> None:
    narrow, wide = Order.model_validate(ORDER), WideOrder.model_validate(ORDER)
    first = said(what, {"order": narrow, "of": [narrow]})
    async with TestEnvironment(database, workflows=[first], start=START) as env:
        await env.app.start_workflow(first.with_options(instance_id="o"))
        await env.settle()
    dearer = wide.model_copy(update={"id": 8})
    reason = await replayed(database, said(what, {"of": [dearer], "order": wide}))
    assert "data.of[0].id was 7, and is now 8" in reason
    async with TestEnvironment(database, workflows=[same := said(what, {"of": [wide], "order": wide})], start=START) as env:
        await env.app.resume_workflow("o")
        await env.advance(7200)
        assert await env.app.get_handle("o").result() == "done", same


# --- idempotent starts


async def test_the_same_start_after_a_deploy_is_the_same_instance(database: str) -> None:
    await begun(database, program(Order), Order)
    wide = program(WideOrder)
    async with TestEnvironment(database, workflows=[wide], start=START) as env:
        named = wide.with_options(instance_id="o")
        await env.app.start_workflow(named, WideOrder.model_validate(ORDER))
        await env.app.start_workflow(named, WideOrder.model_validate(ORDER), notes=None)
        with pytest.raises(
            InstanceConflictError, match=r"'o' is already used .* other arguments: order\.note was \"\", and is now \"x\""
        ):
            await env.app.start_workflow(named, WideOrder.model_validate({**ORDER, "note": "x"}))
        with pytest.raises(InstanceConflictError, match=r"notes was null, and is now \{\"a\":1\}"):
            await env.app.start_workflow(named, WideOrder.model_validate(ORDER), notes={"a": 1})


@workflow(name="meaning.any")
async def anything(ctx: WorkflowContext, /, **given: Any) -> int:
    return len(given)


async def test_the_order_of_keys_is_no_difference(database: str) -> None:
    async with TestEnvironment(database, workflows=[anything], start=START, codec=Encrypt({"k": b"k" * 32})) as env:
        named = anything.with_options(instance_id="o")
        await env.app.start_workflow(named, a=1, b={"x": [1.5, None], "y": True})
        await env.settle()  # the same holds after its end
        await env.app.start_workflow(named, b={"y": True, "x": [1.5, None]}, a=1)
        with pytest.raises(InstanceConflictError):
            await env.app.start_workflow(named, b={"y": 1, "x": [1.5, None]}, a=1)


async def test_many_at_once_of_one_id_whatever_their_order_are_one_instance(database: str) -> None:
    async with TestEnvironment(database, workflows=[anything], start=START) as env:
        named = anything.with_options(instance_id="o")
        calls = [env.app.start_workflow(named, **dict(items)) for items in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)]) * 5]
        assert {handle.instance_id for handle in await asyncio.gather(*calls)} == {"o"}
        calls = [env.app.start_workflow(named, a=1, b=n) for n in range(1, 5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(one, InstanceConflictError) for one in answers] == [True, False, True, True]


async def test_staged_starts_compare_within_the_callers_transaction(database: str, shop: AsyncEngine) -> None:
    async with TestEnvironment(database, workflows=[anything], start=START) as env:
        named = anything.with_options(instance_id="o")
        async with shop.begin() as connection:
            using = env.app.using(connection)
            await using.start_workflow(named, a=1, b=2)
            await using.start_workflow(named, b=2, a=1)
            with pytest.raises(InstanceConflictError, match=r"given\.b was 2, and is now 3"):
                await using.start_workflow(named, a=1, b=3)
        await env.settle()
        assert await env.app.get_handle("o").result() == 2


async def test_an_instance_that_began_anew_is_known_by_its_first_input(database: str) -> None:
    @workflow(name="meaning.again")
    async def again(ctx: WorkflowContext, /, n: int, **rest: int) -> int:
        if n < 3:
            await ctx.recur(n + 1)
        return n

    for keeps in (True, False):
        async with TestEnvironment(database, workflows=[again], start=START, archive_history=keeps) as env:
            named = again.with_options(instance_id=f"keeps-{keeps}")
            await env.app.start_workflow(named, 1, a=1, b=2)
            await env.settle()
            assert await env.app.get_handle(f"keeps-{keeps}").result() == 3
            await env.app.start_workflow(named, 1, a=1, b=2)
            if keeps:
                await env.app.start_workflow(named, 1, b=2, a=1)
            else:
                with pytest.raises(InstanceConflictError, match="is no longer stored"):
                    await env.app.start_workflow(named, 1, b=2, a=1)
