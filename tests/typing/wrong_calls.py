"""Wrong calls. `test_typing.py` requires that the checkers report exactly the marked lines.

E: both checkers report the line. E-mypy, E-pyright: only this checker can, for the reason in the comment. Lines without a
mark are right, or wrong in a way that no checker detects; the latter are at the end.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable
from datetime import date, datetime

from tests.typing.right_calls import (
    Order,
    Receipt,
    Warehouse,
    charge,
    charge_eu,
    checkout,
    containers,
    either,
    only_names,
    ping,
    print_label,
    release,
    shipping,
    spread,
    weigh,
)

from romancy import (
    Activity,
    ActivityContext,
    App,
    Client,
    Operation,
    RetryPolicy,
    WorkflowContext,
    WorkflowHandle,
    activity,
    get_group_members,
    join_group,
    publish,
    receive,
    register_compensation,
    send_event,
    send_to,
    send_to_group,
    sleep,
    sleep_until,
    subscribe,
    wait_event,
    workflow,
)

# --- decorating activities


class Shop:
    @activity  # E a method: the first parameter is not a context
    async def method(self, ctx: ActivityContext, number: int) -> int:
        return number

    @activity  # E the same for a class method
    @classmethod
    async def of_class(cls, ctx: ActivityContext, number: int) -> int:
        return number


@activity  # E no context
async def no_context(order: Order) -> Receipt:
    return Receipt(1)


@activity  # E no parameters
async def no_parameter() -> Receipt:
    return Receipt(1)


@activity()  # E no context, with parentheses
def no_context_either(order: Order) -> Receipt:
    return Receipt(1)


@activity  # E the context can only be given by name
async def context_by_name(*, ctx: ActivityContext) -> Receipt:
    return Receipt(1)


@activity(retires=3)  # E no such option
async def unknown_option(ctx: ActivityContext) -> None: ...


@activity(retry=3)  # E a number is not a policy
async def retry_number(ctx: ActivityContext) -> None: ...


@activity(timeout="5s")  # E a string is not a duration
async def timeout_text(ctx: ActivityContext) -> None: ...


@activity(heartbeat_timeout=datetime(2030, 1, 1))  # E a time is not a duration
async def heartbeat_time(ctx: ActivityContext) -> None: ...


@activity(transactional="no")  # E a string is not a flag
async def transactional_text(ctx: ActivityContext) -> None: ...


@activity("charge")  # E options go by name
async def name_by_position(ctx: ActivityContext) -> None: ...


@activity(name=3)  # E a number is not a name
async def name_number(ctx: ActivityContext) -> None: ...


@activity
async def uses_session(ctx: WorkflowContext) -> int:
    return ctx.attempt  # E a workflow's context has no attempt


@activity
async def calls_another(ctx: ActivityContext, order: Order) -> Receipt:
    await sleep(ctx, 1)  # E durable functions need a workflow's context
    return await charge(ctx, order)  # E an activity cannot call an activity


# --- compensations


def undo_without_context() -> None: ...
async def undo_with_text(ctx: ActivityContext, order: str, *, tip: int = 0) -> None: ...
async def undo_without_arguments(ctx: ActivityContext) -> None: ...
async def undo_without_tip(ctx: ActivityContext, order: Order) -> None: ...
async def undo_with_more(ctx: ActivityContext, order: Order, more: int, *, tip: int = 0) -> None: ...
async def undo_other_result(ctx: ActivityContext, result: str, order: Order, *, tip: int = 0) -> None: ...
async def undo_result_last(ctx: ActivityContext, order: Order, result: Receipt, *, tip: int = 0) -> None: ...
async def undo_other_name(ctx: ActivityContext, o: Order, *, tip: int = 0) -> None: ...
def undo_with_value(ctx: ActivityContext, order: Order, *, tip: int = 0) -> int:
    return 3


charge.compensate(undo_without_context)  # E no context
charge.compensate(undo_with_text)  # E another type
charge.compensate(undo_without_arguments)  # E an argument is missing
charge.compensate(undo_without_tip)  # E a keyword is missing
charge.compensate(undo_with_more)  # E an argument that no caller gives
charge.compensate(undo_other_result)  # E the result has another type
charge.compensate(undo_result_last)  # E the result comes first
charge.compensate(undo_other_name)  # E a caller may give `order` by name
charge.compensate(undo_with_value)  # E its return value would be lost
charge.compensate(3)  # E not a function


@activity(compensation=lambda: None)  # E no context
async def lambda_without_context(ctx: ActivityContext) -> None: ...


@activity(compensation=undo_without_context)  # E the same
async def function_without_context(ctx: ActivityContext) -> None: ...


@activity(compensation="release")  # E a name is not a function
async def compensation_by_name(ctx: ActivityContext) -> None: ...


# --- decorating workflows


@workflow  # E a workflow is an `async def`
def not_async(ctx: WorkflowContext) -> int:
    return 1


@workflow  # E an activity's context
async def wrong_context(ctx: ActivityContext) -> int:
    return 1


@workflow  # E no context
async def workflow_without_context(order: Order) -> int:
    return 1


@workflow(nmae="x")  # E no such option
async def misspelt(ctx: WorkflowContext) -> int:
    return 1


@workflow(version=2)  # E versions are strings
async def version_number(ctx: WorkflowContext) -> int:
    return 1


@workflow(timeout="1h")  # E a string is not a duration
async def workflow_timeout_text(ctx: WorkflowContext) -> int:
    return 1


@workflow(event_handler=None)  # E not a flag
async def handler_none(ctx: WorkflowContext) -> int:
    return 1


@workflow()  # E a workflow is an `async def`, with parentheses too
def not_async_either(ctx: WorkflowContext) -> int:
    return 1


# --- calling


@workflow
async def calling(ctx: WorkflowContext, order: Order) -> int:
    await charge(order)  # E no context
    await charge(ctx)  # E no order
    await charge(ctx, "order")  # E a string is not an order
    await charge(ctx, order, 3)  # E `tip` goes by name
    await charge(ctx, order, tpi=3)  # E no such parameter
    await charge(ctx, order, tip="3")  # E a string is not a tip
    await charge(ctx, order, order=order)  # E given twice
    await charge(ctx=ctx, order=order)  # E the context goes by position
    await print_label(ctx, 1)  # E a `def` is checked as well
    await weigh()  # E neither context nor order
    await ping(ctx, order)  # E the activity takes no argument
    await only_names(ctx, "Main St")  # E `street` goes by name
    await only_names(ctx, number=3)  # E `street` is missing
    await spread(ctx, "1")  # E a string among the numbers
    await spread(ctx, 1, by=2)  # E a number among the texts
    await containers(ctx, [3], {}, ("a", None))  # E a list of numbers
    await Warehouse.pick(ctx, 3)  # E static methods are checked
    await either(App(), 3)  # E an app is not a context
    await functools.partial(charge, ctx)("order")  # E partial calls are checked
    await shipping(order.id)  # E an inline workflow needs the context
    await shipping(ctx, order)  # E the arguments are checked too
    return "done"  # E the workflow's own result


@workflow
async def with_options(ctx: WorkflowContext, order: Order) -> None:
    await charge.with_options(activity_id=1)(ctx, order)  # E ids are strings
    await charge.with_options(activity_id="x")(ctx, 1)  # E the arguments are still checked
    await charge.with_options(activityid="x")(ctx, order)  # E no such option
    await charge.with_options(retry=3)(ctx, order)  # E a number is not a policy
    await charge.with_options(timeout="3")(ctx, order)  # E a string is not a duration
    charge.with_options("charge:eu")  # E options go by name
    charge.with_options(name="x")  # E the name belongs to the activity


@workflow
async def results(ctx: WorkflowContext, order: Order) -> None:
    text: str = await charge(ctx, order)  # E a receipt is not a string
    receipt: Receipt = charge(ctx, order)  # E not awaited
    charge(ctx, order).total  # E not awaited
    charge(ctx, order)  # E not awaited
    shipping(ctx, order.id)  # E not awaited
    register_compensation(ctx, release, order)  # E not awaited
    sleep(ctx, 3)  # E-mypy not awaited; pyright looks at `async def` functions only
    labels: list[str] = await print_label(ctx, order)  # E bytes are no text
    (await charge(ctx, order)).nothing  # E a receipt has no such field
    two: tuple[Receipt, Receipt] = await asyncio.gather(charge(ctx, order))  # E one result is not two
    both: tuple[Receipt, str] = await asyncio.gather(charge(ctx, order), either(ctx, 1))  # E an int is not a string
    task: asyncio.Task[str] = asyncio.create_task(charge(ctx, order))  # E a receipt is not a string
    slept: int = await sleep(ctx, 1)  # E sleep returns None
    nap: Operation[int] = sleep(ctx, 1)  # E the same
    number: int = await asyncio.wait_for(charge(ctx, order), 3)  # E a receipt is not a number
    await asyncio.wait({charge(ctx, order)})  # E a coroutine is not accepted: make a task of it first


@workflow
async def waits(ctx: WorkflowContext, order: Order) -> None:
    await sleep(60)  # E no context
    await sleep(ctx)  # E no duration
    await sleep(ctx, "60")  # E a string is not a duration
    await sleep(ctx, None)  # E None is not a duration
    await sleep(ctx, 3, "short")  # E the id goes by name
    await sleep(ctx, 3, sleep_id=3)  # E ids are strings
    await sleep_until(ctx, 3)  # E a number is not a time
    await sleep_until(ctx, date(2030, 1, 1))  # E a day is not a time
    await sleep_until(datetime(2030, 1, 1))  # E no context
    await register_compensation(ctx, release)  # E no order
    await register_compensation(ctx, release, "order")  # E a string is not an order
    await register_compensation(ctx, release, order, tip="3")  # E a string is not a tip
    await register_compensation(ctx, undo_without_context)  # E no context
    await register_compensation(release, order)  # E no workflow's context
    ctx.heartbeat()  # E only an activity has a heartbeat
    ctx.instance  # E no such attribute
    ctx.uuid()  # E the method is called uuid4


# --- events and messages


@workflow
async def messaging(ctx: WorkflowContext, order: Order) -> None:
    await wait_event("order.paid")  # E no context
    await wait_event(ctx)  # E no type
    await wait_event(ctx, "t", 3)  # E the timeout goes by name
    await wait_event(ctx, "t", timeout="3")  # E a string is not a duration
    await wait_event(ctx, "t", subject=3)  # E subjects are strings
    await wait_event(ctx, "t", match=[3])  # E not a mapping of paths to values
    await wait_event(ctx, "t", match={"a": [3]})  # E a list is not a value
    await wait_event(ctx, "t", typ=Order)  # E no such option
    text: str = (await wait_event(ctx, "t", model=Order)).data  # E an order is not a string
    (await wait_event(ctx, "t", model=Order)).nothing  # E no such field
    (await wait_event(ctx, "t", model=Order)).data.nothing  # E no such field in the model
    wait_event(ctx, "t", model=Order).data  # E not awaited
    number: int = (await receive(ctx, "c", model=str)).data  # E a string is not a number
    await receive(ctx, "c", subject="x")  # E messages have no subject
    await receive(ctx, 3)  # E channels are strings
    await subscribe(ctx, "c", "everybody")  # E no such mode
    await subscribe(ctx, "c", 3)  # E not a mode
    await publish(ctx, "c")  # E no data
    await publish(ctx, "c", 1, {"a": 1})  # E metadata goes by name
    await publish(ctx, "c", 1, metadata=[1])  # E not a mapping of names to values
    await send_to(ctx, "c", 1)  # E no recipient
    await send_to_group(ctx, "g", 1)  # E no channel
    await send_event(ctx, "t")  # E no source
    await send_event(ctx, "t", "/s", extensions={"a": 1.5})  # E a fraction is not an extension
    await send_event(ctx, "t", "/s", local="no")  # E not a flag
    await join_group(ctx)  # E no group
    members: list[int] = await get_group_members(ctx, "g")  # E ids are strings
    await checkout.recur(ctx)  # E no order


@workflow
async def recurring(ctx: WorkflowContext, order: Order) -> None:
    await checkout.recur(ctx, "order")  # E a string is not an order


@workflow
async def recurring_without_waiting(ctx: WorkflowContext, order: Order) -> None:
    ctx.recur(order)  # E not awaited


@activity
async def waits_in_an_activity(ctx: ActivityContext) -> None:
    await wait_event(ctx, "t")  # E only a workflow waits
    await receive(ctx, "c")  # E the same
    await subscribe(ctx, "c")  # E only a workflow subscribes
    await join_group(ctx, "g")  # E only a workflow joins


# --- apps, clients, handles, policies


async def starting(app: App, client: Client, order: Order) -> None:
    await app.start_workflow(checkout)  # E no order
    await app.start_workflow(checkout, 3)  # E a number is not an order
    await app.start_workflow(checkout, order, 3)  # E a number is not a flag
    await app.start_workflow(checkout, order, expres=True)  # E no such parameter
    await app.start_workflow(checkout, order, instance_id="x")  # E an option of `with_options`
    await app.start_workflow(charge, order)  # E an activity is not a workflow
    await app.start_workflow(checkout.fn, order)  # E a plain function
    await app.start_workflow(checkout.with_options(instance_id=3), order)  # E ids are strings
    await app.start_workflow(checkout.with_options(instance_id="x"), 3)  # E the arguments are still checked
    checkout.with_options(instanceid="x")  # E no such option
    checkout.with_options("order-42")  # E options go by name
    await client.start_workflow(shipping, order)  # E the calls of a client are checked the same
    text: WorkflowHandle[str] = await app.start_workflow(checkout, order)  # E a receipt is not a string
    handle = await app.start_workflow(checkout, order)
    number: int = await handle.result()  # E a receipt is not a number
    await handle.result("3")  # E a string is not a duration
    await handle.cancel(3)  # E reasons are strings
    handle.result()  # E not awaited
    app.start_workflow(checkout, order)  # E not awaited
    async for entry in handle.history():
        entry.nothing  # E no such field


async def querying(app: App) -> None:
    app.register(charge)  # E an activity is not a workflow
    app.register("checkout")  # E a name is not a workflow
    (await app.get_instance("x")).status  # E the instance may not exist
    await app.get_instance(3)  # E ids are strings
    await app.list_instances(state="failed")  # E no such filter
    await app.list_instances(status=3)  # E not a status
    await app.list_instances(created_after="yesterday")  # E a string is not a time
    await app.list_instances(limit="10")  # E a string is not a number
    await app.find_instances("customer.id")  # E not a mapping of paths to values
    await app.cancel_workflow()  # E no id
    (await app.list_instances()).items[0].nothing  # E no such field


def making() -> None:
    App(3)  # E not a database
    App("orders.db", workflow=[checkout])  # E no such option
    App("orders.db", workflows=checkout)  # E not a list
    App("orders.db", workflows=[charge])  # E an activity is not a workflow
    App("orders.db", default_retry=3)  # E a number is not a policy
    App("orders.db", lease_timeout="30s")  # E a string is not a duration
    App("orders.db", [checkout])  # E options go by name
    Client("orders.db", worker_id="one")  # E a client has no worker
    RetryPolicy(attempts=3)  # E no such field
    RetryPolicy(max_attempts="3")  # E a string is not a number
    RetryPolicy(retryable=(ValueError("x"),))  # E classes, not instances
    RetryPolicy.fixed(3)  # E no interval
    RetryPolicy.none().max_attempts = 3  # E frozen
    RetryPolicy.exponential(3, 1.0, 10.0, 2.0)  # E one argument too many


async def plain(order: Order) -> None:
    print_label.fn(ActivityContext())  # E no order
    await print_label.fn(ActivityContext(), order)  # E a `def` gives its value at once
    await charge.fn(WorkflowContext(), order)  # E an activity's context
    await charge.fn(order)  # E no context
    charge.fn = charge_eu.fn  # E read only
    wrong: Activity[[int], Receipt] = charge  # E other parameters
    await checkout.fn(ActivityContext(), order)  # E a workflow's context


# --- errors that no checker detects: raised when decorating or calling


@activity(compensation=undo_with_text)
async def compensated(ctx: ActivityContext, order: Order, *, tip: int = 0) -> None: ...


@activity
def returns_awaitable(ctx: ActivityContext, number: int) -> Awaitable[int]:
    return either.fn(ctx, number)


async def unseen(ctx: WorkflowContext, app: App) -> None:
    await sleep_until(ctx, datetime(2030, 1, 1))  # naive
    await sleep(ctx, -1)
    await wait_event(ctx, "t", model="Order")  # the name of a type, not the type
    await app.start_workflow("chekout", 3)  # any name, any arguments
    await app.find_instances({"customer.id": "c1"}, state="failed")
    await ctx.recur(3)  # any arguments; `checkout.recur` is checked
