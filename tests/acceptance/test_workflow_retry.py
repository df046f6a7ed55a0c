"""`retry_workflow` runs a failed instance again, for every kind of failure, with the same code and with corrected code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from romancy import (
    ActivityContext,
    RetryPolicy,
    Status,
    TerminalError,
    Workflow,
    WorkflowContext,
    activity,
    publish,
    receive,
    recur,
    send_event,
    sleep,
    sleep_until,
    subscribe,
    wait_event,
    workflow,
)
from romancy.testing import TestEnvironment

START = datetime(2020, 1, 1, tzinfo=UTC)
LONG = timedelta(days=2)
ran: list[str] = []
healed = False


@activity
async def book(ctx: ActivityContext) -> str:
    ran.append("book")
    return "ticket"


@activity(name="book")
async def book_for_good(ctx: ActivityContext) -> str:
    ran.append("book")
    return "ticket"


@book.compensate
async def unbook(ctx: ActivityContext) -> None:
    ran.append("unbook")


@activity(retry=RetryPolicy.none())
async def pay(ctx: ActivityContext) -> str:
    ran.append("pay")
    if not healed:
        raise ConnectionError("the bank is down")
    return "paid"


@activity
async def pay_never(ctx: ActivityContext) -> str:
    ran.append("pay")
    if not healed:
        raise TerminalError("no such account")
    return "paid"


@activity
async def pay_slowly(ctx: ActivityContext) -> str:
    ran.append("pay")
    if not healed:
        await asyncio.Event().wait()
    return "paid"


@activity
async def pay_object(ctx: ActivityContext, how: object) -> str:
    return "paid"


@activity
async def tidy(ctx: ActivityContext) -> None:
    ran.append("tidy")


@activity
async def ship(ctx: ActivityContext) -> str:
    ran.append("ship")
    return "shipped"


class Receipt(BaseModel):
    number: int


# --- kinds of failure


async def activity_fails(ctx: WorkflowContext) -> str:
    return await pay(ctx)


async def activity_fails_for_good(ctx: WorkflowContext) -> str:
    return await pay_never(ctx)


async def activity_fails_and_is_tidied_up(ctx: WorkflowContext) -> str:
    try:
        return await pay(ctx)
    finally:
        await tidy(ctx)


async def exceeds_the_timeout_of_the_workflow(ctx: WorkflowContext) -> str:
    return str((await wait_event(ctx, "paid")).data)


async def exceeds_it_with_waits_and_tidies_up(ctx: WorkflowContext) -> str:
    try:
        return str((await wait_event(ctx, "paid")).data)
    finally:
        await tidy(ctx)


async def exceeds_a_limit(ctx: WorkflowContext) -> str:
    async with asyncio.timeout(3600):
        return await pay_slowly(ctx)


async def exceeds_a_limit_and_tidies_up(ctx: WorkflowContext) -> str:
    try:
        return await asyncio.wait_for(pay_slowly(ctx), 3600)
    finally:
        await tidy(ctx)


async def fails_within_a_limit(ctx: WorkflowContext) -> str:
    async with asyncio.timeout(3600):
        return await pay(ctx)


async def event_does_not_come(ctx: WorkflowContext) -> str:
    return str((await wait_event(ctx, "paid", timeout=3600)).data)


async def message_does_not_come(ctx: WorkflowContext) -> str:
    return str((await receive(ctx, "paid", timeout=3600)).data)


async def event_does_not_fit(ctx: WorkflowContext) -> str:
    return str(await wait_event(ctx, "misfit", model=Receipt))


async def raises(ctx: WorkflowContext) -> str:
    return str(1 / 0)


async def raises_a_terminal_error(ctx: WorkflowContext) -> str:
    raise TerminalError("never")


async def raises_after_saying_much(ctx: WorkflowContext) -> str:
    await tidy(ctx)
    await send_event(ctx, "said", "/test", 1)
    await publish(ctx, "said", 2)
    raise ValueError("a bug")


async def raises_beside_others(ctx: WorkflowContext) -> str:
    async def other() -> None:
        await sleep(ctx, 60)
        raise ValueError("a bug")

    async with asyncio.TaskGroup() as group:
        paid = group.create_task(pay_slowly(ctx))
        group.create_task(other())
    return paid.result()


async def asks_what_cannot_be_stored(ctx: WorkflowContext) -> str:
    return await pay_object(ctx, object())


async def returns_what_cannot_be_stored(ctx: WorkflowContext) -> str:
    anything: Any = object()
    return anything  # type: ignore[no-any-return]


async def is_stuck(ctx: WorkflowContext) -> str:
    await asyncio.Event().wait()
    return "never"


async def spins(ctx: WorkflowContext) -> str:
    while True:
        await asyncio.sleep(0)


async def recurs_in_an_invalid_state(ctx: WorkflowContext) -> str:
    paying = pay_slowly(ctx)
    await recur(ctx)
    return await paying


async def receives_without_a_subscription(ctx: WorkflowContext) -> str:
    return str(await receive(ctx, "unsubscribed"))


async def cancels_itself(ctx: WorkflowContext) -> str:
    raise asyncio.CancelledError


@dataclass(frozen=True)
class FailureCase:
    do: Callable[[WorkflowContext], Awaitable[str]]
    heals: bool = False
    """The same code succeeds after `healed` was set."""
    timeout: timedelta | None = None
    sends: bool = False
    """The awaited event and message are sent after `healed` was set."""


FAILURES = [
    FailureCase(activity_fails, heals=True),
    FailureCase(activity_fails_for_good, heals=True),
    FailureCase(activity_fails_and_is_tidied_up, heals=True),
    FailureCase(exceeds_the_timeout_of_the_workflow, heals=True, timeout=timedelta(hours=1), sends=True),
    FailureCase(exceeds_it_with_waits_and_tidies_up, heals=True, timeout=timedelta(hours=1), sends=True),
    FailureCase(exceeds_a_limit, heals=True),
    FailureCase(exceeds_a_limit_and_tidies_up, heals=True),
    FailureCase(fails_within_a_limit, heals=True),
    FailureCase(event_does_not_come, heals=True, sends=True),
    FailureCase(message_does_not_come, heals=True, sends=True),
    FailureCase(event_does_not_fit),
    FailureCase(raises),
    FailureCase(raises_a_terminal_error),
    FailureCase(raises_after_saying_much),
    FailureCase(raises_beside_others),
    FailureCase(asks_what_cannot_be_stored),
    FailureCase(returns_what_cannot_be_stored),
    FailureCase(is_stuck),
    FailureCase(spins),
    FailureCase(recurs_in_an_invalid_state),
    FailureCase(receives_without_a_subscription),
    FailureCase(cancels_itself),
]


async def returns(ctx: WorkflowContext) -> str:
    return "mended"


async def does_more(ctx: WorkflowContext) -> str:
    await asyncio.sleep(60)
    await sleep_until(ctx, START)
    async with asyncio.timeout(60):
        return await ship(ctx)


def job(case: FailureCase, do: Callable[[WorkflowContext], Awaitable[str]], *, compensated: bool) -> Workflow[[], str]:
    """Workflows that differ in their last step and have one name."""

    @workflow(name="job", timeout=case.timeout)
    async def job(ctx: WorkflowContext) -> str:
        await (book if compensated else book_for_good)(ctx)
        await subscribe(ctx, "paid")
        await sleep(ctx, 60)
        return await do(ctx)

    return job


@pytest.fixture(autouse=True)
def _nothing_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    ran.clear()
    monkeypatch.setitem(globals(), "healed", False)


async def failed(env: TestEnvironment) -> None:
    """Check that the job has failed and stays so for a day."""
    await env.advance(LONG)
    found = await env.app.get_instance("job")
    assert found is not None
    assert (found.status, found.worker_id) == (Status.FAILED, None), found.error
    assert ran.count("unbook") in (0, ran.count("book"))


async def run_until_it_fails(env: TestEnvironment, code: Workflow[[], str]) -> None:
    await env.app.start_workflow(code.with_options(instance_id="job"))
    await env.settle()
    await env.app.send_event("misfit", "/test", {"number": "none"})
    await failed(env)


async def try_again(env: TestEnvironment, case: FailureCase) -> Any:
    await env.app.retry_workflow("job")
    await env.settle()
    if case.sends and healed:
        await env.app.send_event("paid", "/test", "paid")
        await env.app.publish("paid", "paid")
    await env.restart()  # the records since the retry must be replayed, too
    await env.advance(LONG)
    return await env.app.get_result("job")


@pytest.mark.parametrize("compensated", [False, True], ids=["as-it-was", "compensated"])
@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case.do.__name__)
async def test_with_the_code_it_failed_with(case: FailureCase, compensated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    code = job(case, case.do, compensated=compensated)
    async with TestEnvironment(workflows=[code], start=START) as env:
        await run_until_it_fails(env, code)
        before = await env.app.get_result("job")
        for _ in range(2):
            again = await try_again(env, case)
            assert (again.status, again.error) == (before.status, before.error)
            await failed(env)
        monkeypatch.setitem(globals(), "healed", True)
        again = await try_again(env, case)
        assert (again.status, again.output) == ((Status.COMPLETED, "paid") if case.heals else (Status.FAILED, None))
    assert ran.count("book") == (4 if compensated else 1)


@pytest.mark.parametrize("compensated", [False, True], ids=["as-it-was", "compensated"])
@pytest.mark.parametrize("mended", [returns, does_more])
@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case.do.__name__)
async def test_with_mended_code(
    case: FailureCase, mended: Callable[[WorkflowContext], Awaitable[str]], compensated: bool, file: str
) -> None:
    code = job(case, case.do, compensated=compensated)
    async with TestEnvironment(file, workflows=[code], start=START) as env:
        await run_until_it_fails(env, code)
        await try_again(env, case)  # without success
        await failed(env)
        left = env.now()
    async with TestEnvironment(file, workflows=[job(case, mended, compensated=compensated)], start=left) as env:
        await env.app.retry_workflow("job")
        await env.restart()
        await env.advance(59)
        assert ran.count("ship") == 0, "the sleep begins at the retry"
        await env.restart()
        await env.advance(LONG)
        found = await env.app.get_result("job")
    assert (found.status, found.output) == (Status.COMPLETED, "mended" if mended is returns else "shipped"), found.error
    assert ran.count("book") == (3 if compensated else 1)
    assert ran.count("ship") == (mended is does_more)


@pytest.mark.parametrize("case", [FAILURES[0], FAILURES[3], FAILURES[5], FAILURES[11]], ids=lambda case: case.do.__name__)
async def test_on_every_database(case: FailureCase, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = job(case, case.do, compensated=True)
    async with TestEnvironment(database, workflows=[code], start=START) as env:
        await run_until_it_fails(env, code)
        assert (await try_again(env, case)).status is Status.FAILED
        left = env.now()
    code = job(case, case.do if case.heals else does_more, compensated=True)
    monkeypatch.setitem(globals(), "healed", True)
    async with TestEnvironment(database, workflows=[code], start=left) as env:
        found = await try_again(env, case)
    assert (found.status, found.output) == (Status.COMPLETED, "paid" if case.heals else "shipped")


async def test_nothing_is_said_twice_and_no_result_is_asked_for_twice(file: str) -> None:
    heard: list[str] = []

    @workflow(name="said", event_handler=True)
    async def hears(ctx: WorkflowContext, said: int) -> None:
        heard.append(ctx.instance_id)

    case = FailureCase(raises_after_saying_much)
    code = job(case, case.do, compensated=False)
    async with TestEnvironment(file, workflows=[code, hears], start=START) as env:
        await run_until_it_fails(env, code)
        for _ in range(3):
            await try_again(env, case)
    assert len(heard) == 1
    assert ran == ["book", "tidy"]


@workflow(name="job")
async def begins_otherwise(ctx: WorkflowContext) -> str:
    await ship(ctx)
    return await pay(ctx)


@workflow(name="job")
async def ends_too_early(ctx: WorkflowContext) -> str:
    return "at once"


@activity(name="book")
async def book_by_number(ctx: ActivityContext) -> int:
    return 7


@workflow(name="job")
async def reads_otherwise(ctx: WorkflowContext) -> str:
    await book_by_number(ctx)
    await subscribe(ctx, "paid")
    await sleep(ctx, 60)
    return await pay(ctx)


@workflow(name="job", version="2")
async def of_another_version(ctx: WorkflowContext) -> str:
    return "never run"


@pytest.mark.parametrize("misfit", [begins_otherwise, ends_too_early, reads_otherwise, of_another_version])
async def test_code_that_does_not_fit_does_not_spoil_it(
    misfit: Workflow[[], str], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = FAILURES[0]
    code = job(case, case.do, compensated=False)
    async with TestEnvironment(file, workflows=[code], start=START) as env:
        await run_until_it_fails(env, code)
    async with TestEnvironment(file, workflows=[misfit], start=START + LONG) as env:
        await env.app.retry_workflow("job")
        await env.advance(LONG)
        found = await env.app.get_result("job")
        assert found.status is (Status.PENDING if misfit is of_another_version else Status.BLOCKED)
        if found.status is Status.BLOCKED:  # a second request does no harm
            await env.app.resume_workflow("job")
            await env.advance(LONG)
    monkeypatch.setitem(globals(), "healed", True)
    async with TestEnvironment(file, workflows=[code], start=START + 3 * LONG) as env:
        await env.advance(LONG)
        assert (await env.app.get_result("job")).output == "paid"
    assert ran == ["book", "pay", "pay"]


async def test_one_that_failed_before_it_began(file: str) -> None:
    @workflow(name="receipt", event_handler=True)
    async def by_number(ctx: WorkflowContext, receipt: Receipt) -> int:
        return receipt.number

    @workflow(name="receipt", event_handler=True)
    async def by_name(ctx: WorkflowContext, number: str) -> str:
        return number

    async with TestEnvironment(file, workflows=[by_number], start=START) as env:
        await env.app.send_event("receipt", "/test", {"number": "none"})
        await env.settle()
        (found,) = (await env.app.list_instances()).items
        for _ in range(2):
            assert (await env.app.get_result(found.instance_id)).status is Status.FAILED
            await env.app.retry_workflow(found.instance_id)
            await env.settle()
    async with TestEnvironment(file, workflows=[by_name], start=START) as env:
        await env.app.retry_workflow(found.instance_id)
        await env.settle()
        assert (await env.app.get_result(found.instance_id)).output == "none"


async def test_a_workflow_that_an_event_started_has_its_timeout_again(monkeypatch: pytest.MonkeyPatch) -> None:
    @workflow(name="ordered", event_handler=True, timeout=timedelta(hours=1))
    async def ordered(ctx: WorkflowContext, n: int) -> str:
        return str((await wait_event(ctx, "paid")).data)

    async with TestEnvironment(workflows=[ordered], start=START) as env:
        await env.app.send_event("ordered", "/test", {"n": 1})
        await env.advance(LONG)
        (found,) = (await env.app.list_instances()).items
        for wait in (timedelta(minutes=61), timedelta(minutes=59)):
            assert (await env.app.get_result(found.instance_id)).status is Status.FAILED
            await env.app.retry_workflow(found.instance_id)
            await env.advance(wait)
            await env.restart()
        await env.app.send_event("paid", "/test", "paid")
        await env.settle()
        assert (await env.app.get_result(found.instance_id)).output == "paid"
