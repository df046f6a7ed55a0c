"""Messaging in workflows: store calls and effects, the same in every replay and after a retry."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from tests.unit.instance_driver import BEGIN, SECOND, Body, Drive, InstanceDriver, charge, message, paid, replay_anew

import romancy
from romancy import (
    ActivityContext,
    ChannelMessageTimeoutError,
    ChannelMode,
    ChannelModeConflictError,
    ChannelNotSubscribedError,
    DeterminismViolationError,
    EventTimeoutError,
    GroupNotJoinedError,
    InvalidWorkflowStateError,
    ReceivedMessage,
    WorkflowContext,
    WorkflowNotFoundError,
    get_group_members,
    join_group,
    leave_group,
    publish,
    receive,
    recur,
    send_event,
    send_to,
    send_to_group,
    sleep,
    subscribe,
    unsubscribe,
    wait_event,
)
from romancy.core.rewind import rewind
from romancy.model.history import Entry, Kind, Outcome, Role
from romancy.model.messaging import (
    Effect,
    Event,
    JoinGroup,
    LeaveGroup,
    ListMembers,
    Message,
    Publish,
    SendEvent,
    SendTo,
    SendToGroup,
    StoreReply,
    Subscribe,
    Unsubscribe,
    WaitSelector,
)

# --- waits


async def two_waits(ctx: WorkflowContext) -> list[Any]:
    first = await wait_event(ctx, "paid", subject="42", match={"b": 1, "a": None}, timeout=60)
    second = await wait_event(ctx, "paid", event_id="the-second")
    return [first.id, second.id]


def test_a_wait_is_asked_of_the_store_with_all_it_wants(drive: Drive) -> None:
    driver = drive(two_waits)
    assert driver.start() == ["paid:1"]
    (issue,) = driver.store_calls
    assert (issue.kind, issue.name, issue.due) == (Kind.EVENT, "paid", BEGIN + 60 * SECOND)
    assert issue.detail == WaitSelector("paid", "42", b'{"a":null,"b":1}')
    assert issue.input == b'{"type":"paid","subject":"42","match":{"a":null,"b":1}}'
    assert len(issue.digest) == 8
    assert issue.site.startswith("tests.unit.test_messaging:two_waits:")
    assert driver.execution.take_store_calls() == []
    assert driver.execution.next_due() == BEGIN + 60 * SECOND


def test_an_answer_is_fed_and_not_recorded_again(drive: Drive) -> None:
    driver = drive(two_waits)
    driver.start()
    assert driver.answer(("paid:1", paid(1))) == ["the-second"]
    assert driver.execution.seq == 1
    assert not driver.execution.has_entries
    driver.answer(("the-second", paid(2)))
    assert driver.result == ["e-1", "e-2"]
    assert replay_anew(drive, driver).result == ["e-1", "e-2"]


def test_after_a_replay_exactly_what_is_open_is_asked(drive: Drive) -> None:
    driver = drive(two_waits)
    driver.start()
    driver.answer(("paid:1", paid()))
    again = replay_anew(drive, driver)
    assert [issue.op for issue in again.store_calls] == ["the-second"]
    assert again.execution.take_withdrawn() == []
    assert again.execution.take_effects() == []


def test_an_answer_must_stand_where_the_history_goes_on(drive: Drive) -> None:
    driver = drive(two_waits)
    driver.start()
    with pytest.raises(AssertionError, match="entry 2, where entry 1"):
        driver.execution.feed_replies(StoreReply("paid:1", 2, BEGIN, Outcome.OK, paid()))


def test_a_reply_without_a_store_call_is_refused(drive: Drive) -> None:
    driver = drive(two_waits)
    driver.start()
    with pytest.raises(AssertionError, match="not pending"):
        driver.execution.feed_replies(StoreReply("paid:9", 1, BEGIN, Outcome.OK, paid()))


def test_the_time_of_an_answer_is_the_runs(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> datetime:
        await wait_event(ctx, "paid")
        return ctx.now()

    driver = drive(body)
    driver.start()
    driver.answer(("paid:1", paid()))
    assert driver.result == datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC)
    assert replay_anew(drive, driver).result == driver.result


@pytest.mark.parametrize(
    "changed",
    [
        lambda ctx: wait_event(ctx, "paid", subject="43"),
        lambda ctx: wait_event(ctx, "paid", match={"a": 1}),
        lambda ctx: receive(ctx, "paid"),
        lambda ctx: wait_event(ctx, "refunded"),
    ],
)
def test_a_wait_for_something_else_does_not_fit_the_history(changed: Callable[[Any], Awaitable[Any]], drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "paid", subject="42")
        await sleep(ctx, 1)

    async def other(ctx: WorkflowContext) -> None:
        await changed(ctx)
        await sleep(ctx, 1)

    driver = drive(body)
    driver.start()
    driver.answer(("paid:1", paid()))
    with pytest.raises(DeterminismViolationError, match="recorded: event paid:1"):
        drive(other, history=driver.history).replay()


def test_another_timeout_fits_the_history(drive: Drive) -> None:
    async def body(ctx: WorkflowContext, timeout: int) -> str:
        return (await wait_event(ctx, "paid", timeout=timeout)).id

    driver = drive(body, 3)
    driver.start()
    driver.answer(("paid:1", paid()))
    again = drive(body, 5, history=driver.history)
    again.replay()
    assert again.result == "e-1"


def test_what_is_due_comes_in_order_of_time_waits_and_timers_alike(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> None:
        await asyncio.gather(wait_event(ctx, "paid", timeout=3), sleep(ctx, 2), receive(ctx, "orders", timeout=1))

    driver = drive(body)
    driver.start()
    due = driver.execution.due_issues(BEGIN + 3 * SECOND)
    assert [issue.op for issue in due] == ["receive:orders:1", "sleep:1", "paid:1"]
    assert [issue.op for issue in driver.execution.due_issues(BEGIN + 1 * SECOND)] == ["receive:orders:1"]


def test_a_very_long_timeout_fits_a_column(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "paid", timeout=1e18)

    driver = drive(body)
    driver.start()
    assert driver.execution.next_due() == 253_402_300_799 * SECOND


def test_asked_and_withdrawn_in_one_breath_is_never_asked(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> None:
        wait_event(ctx, "paid").cancel()
        await wait_event(ctx, "shipped")

    driver = drive(body)
    assert driver.start() == ["shipped:1"]
    assert driver.execution.take_withdrawn() == []


async def race(ctx: WorkflowContext) -> str:
    waits = [wait_event(ctx, "a"), wait_event(ctx, "b")]
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in pending:
        wait.cancel()
    won = done.pop().result().id
    await send_event(ctx, "won", "/race", won)
    await charge(ctx, 1)
    return str(won)


def test_a_wait_that_lost_is_withdrawn(drive: Drive) -> None:
    driver = drive(race)
    assert driver.start() == ["a:1", "b:1"]
    assert driver.answer(("b:1", paid(2))) == ["charge:1"]
    assert driver.execution.take_withdrawn() == ["a:1"]
    again = replay_anew(drive, driver)
    assert again.store_calls == []
    assert again.execution.take_withdrawn() == []


def test_a_reply_in_the_same_commit_as_the_one_that_won_is_not_fed(drive: Drive) -> None:
    driver = drive(race)
    driver.start()
    assert driver.answer(("b:1", paid(2)), ("a:1", paid(1))) == ["charge:1"]
    assert [(entry.seq, entry.op) for entry in driver.history] == [(1, "b:1"), (2, "a:1"), (3, "send_event:won:1")]
    driver.ok("charge:1", b"1")
    assert driver.result == "e-2"
    again = replay_anew(drive, driver)
    assert again.result == "e-2"
    assert again.effects == []


def test_answers_of_one_commit_stand_before_what_follows_from_them(drive: Drive) -> None:
    async def say(ctx: WorkflowContext, channel: str) -> None:
        await subscribe(ctx, channel)
        await publish(ctx, channel, "hello")

    async def body(ctx: WorkflowContext) -> None:
        await asyncio.gather(say(ctx, "a"), say(ctx, "b"))
        await sleep(ctx, 1)

    driver = drive(body)
    driver.start()
    driver.answer(("subscribe:a:1", None), ("subscribe:b:1", None))
    seqs = [(entry.seq, entry.op) for entry in driver.history]
    assert seqs == [(1, "subscribe:a:1"), (2, "subscribe:b:1"), (3, "publish:a:1"), (4, "publish:b:1")]
    again = replay_anew(drive, driver)
    assert list(again.run.pending) == ["sleep:1"]
    assert again.effects == []


def test_a_recorded_answer_to_a_wait_withdrawn_long_before_does_not_fit(drive: Drive) -> None:
    driver = drive(race)
    driver.start()
    driver.answer(("b:1", paid(2)))
    driver.ok("charge:1", b"1")
    late = Entry(9, Kind.EVENT, "a:1", Outcome.OK, driver.at, "a", digest=driver.store_calls[0].digest, value=paid(1))
    with pytest.raises(DeterminismViolationError, match="event a:1"):
        drive(race, history=[*driver.history, late]).replay()


def test_waits_are_withdrawn_when_the_body_ends(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> None:
        task = asyncio.create_task(asyncio.wait_for(wait_event(ctx, "paid"), 9))
        await charge(ctx, 1)
        assert not task.done()

    driver = drive(body)
    driver.start()
    driver.ok("charge:1", b"1")
    assert driver.result is None
    assert "paid:1" in driver.execution.take_withdrawn()


# --- replies


class Case(NamedTuple):
    ask: Callable[[Any], Awaitable[Any]]
    op: str
    kind: Kind
    command: object
    input: bytes
    answer: bytes | None = None
    result: object = None


CASES = [
    Case(
        lambda ctx: subscribe(ctx, "orders"),
        "subscribe:orders:1",
        Kind.SUBSCRIBE,
        Subscribe("orders", ChannelMode.BROADCAST),
        b'{"channel":"orders","mode":"broadcast"}',
    ),
    Case(
        lambda ctx: subscribe(ctx, "orders", ChannelMode.COMPETING),
        "subscribe:orders:1",
        Kind.SUBSCRIBE,
        Subscribe("orders", ChannelMode.COMPETING),
        b'{"channel":"orders","mode":"competing"}',
    ),
    Case(
        lambda ctx: send_to(ctx, "order-2", "orders", {"n": 1}, metadata={"why": "x"}),
        "send_to:orders:1",
        Kind.SEND_TO,
        SendTo(Message("", "orders", b'{"n":1}', False, b'{"why":"x"}', "order-1"), "order-2"),
        b'{"channel":"orders","to":"order-2","metadata":{"why":"x"},"data":{"n":1}}',
    ),
    Case(
        lambda ctx: leave_group(ctx, "riders"),
        "leave_group:riders:1",
        Kind.LEAVE_GROUP,
        LeaveGroup("riders"),
        b'{"group":"riders"}',
    ),
    Case(
        lambda ctx: get_group_members(ctx, "riders"),
        "get_group_members:riders:1",
        Kind.MEMBERS,
        ListMembers("riders"),
        b'{"group":"riders"}',
        b'["a","b"]',
        ["a", "b"],
    ),
    Case(
        lambda ctx: receive(ctx, "orders"),
        "receive:orders:1",
        Kind.MESSAGE,
        WaitSelector("orders"),
        b'{"channel":"orders"}',
        message(),
        ReceivedMessage("m-1", "orders", 3, {"a": [1]}, "order-7", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_what_is_asked_and_what_comes_of_it(case: Case, drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> Any:
        return await case.ask(ctx)

    driver = drive(body)
    assert driver.start() == [case.op]
    (issue,) = driver.store_calls
    assert (issue.kind, issue.detail, issue.input) == (case.kind, case.command, case.input)
    driver.answer((case.op, case.answer))
    assert driver.result == case.result
    assert replay_anew(drive, driver).result == case.result


@pytest.mark.parametrize(
    "error",
    [
        EventTimeoutError("No event came."),
        ChannelMessageTimeoutError("No message came."),
        ChannelNotSubscribedError("Not subscribed."),
        ChannelModeConflictError("In use."),
        GroupNotJoinedError("Not a member."),
        WorkflowNotFoundError("No instance."),
        InvalidWorkflowStateError("It has ended."),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_errors_of_the_store_are_raised_live_and_replayed(case: Case, error: Exception, drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> Any:
        await case.ask(ctx)

    driver = drive(body)
    driver.start()
    driver.answer((case.op, error))
    for failure in (driver.failure, replay_anew(drive, driver).failure):
        assert type(failure) is type(error)
        assert str(failure) == str(error)


# --- effects


async def sending_workflow(ctx: WorkflowContext) -> None:
    await send_event(ctx, "paid", "/shop", {"n": 1}, subject="42", extensions={"b": 1, "a": "x"})
    await publish(ctx, "orders", b"\xff", metadata={"k": [1]})
    await charge(ctx, 1)
    await send_to_group(ctx, "riders", "orders", [1])
    await unsubscribe(ctx, "orders")
    await join_group(ctx, "riders")
    await charge(ctx, 2)


EFFECTS = [
    (
        "send_event:paid:1",
        SendEvent(
            Event(
                "",
                "/shop",
                "paid",
                b'{"n":1}',
                subject="42",
                time="2023-11-14T22:13:20Z",
                datacontenttype="application/json",
                extensions={"a": "x", "b": 1},
            )
        ),
    ),
    ("publish:orders:1", Publish(Message("", "orders", b"\xff", True, b'{"k":[1]}', "order-1"))),
    ("send_to_group:riders:1", SendToGroup(Message("", "orders", b"[1]", False, b"{}", "order-1"), "riders")),
    ("unsubscribe:orders:1", Unsubscribe("orders")),
    ("join_group:riders:1", JoinGroup("riders")),
]


def test_a_sent_message_is_an_effect_of_the_commit_that_records_it(drive: Drive) -> None:
    driver = drive(sending_workflow)
    assert driver.start() == ["charge:1"]
    assert driver.effects == EFFECTS[:2]
    assert [(entry.op, entry.role) for entry in driver.history] == [(op, Role.OUT_OF_BAND) for op, _ in EFFECTS[:2]]
    assert driver.history[1].input == b'{"channel":"orders","metadata":{"k":[1]},"data_base64":"/w=="}'
    assert driver.ok("charge:1") == ["charge:2"]
    assert driver.effects == EFFECTS


def test_what_was_said_is_not_said_again_by_a_replay(drive: Drive) -> None:
    driver = drive(sending_workflow)
    driver.start()
    driver.ok("charge:1")
    again = replay_anew(drive, driver)
    assert again.effects == []
    assert len(again.history) == len(driver.history)
    assert list(again.run.pending) == ["charge:2"]


def test_a_replay_from_the_middle_says_the_rest(drive: Drive) -> None:
    driver = drive(sending_workflow)
    driver.start()
    again = replay_anew(drive, driver)
    again.ok("charge:1")
    assert again.effects == EFFECTS[2:]


def test_saying_something_else_does_not_fit_the_history(drive: Drive) -> None:
    async def body(ctx: WorkflowContext, text: str) -> None:
        await publish(ctx, "orders", text)
        await sleep(ctx, 1)

    driver = drive(body, "one")
    driver.start()
    with pytest.raises(DeterminismViolationError, match="publish:orders:1 was recorded with other arguments"):
        drive(body, "two", history=driver.history).replay()


@pytest.mark.parametrize(
    ("body", "talks"),
    [
        (lambda ctx: publish(ctx, "orders", 1), True),
        (lambda ctx: subscribe(ctx, "orders"), True),
        (lambda ctx: sleep(ctx, 1), False),
        (lambda ctx: charge(ctx, 1), False),
        (lambda ctx: romancy.register_compensation(ctx, charge, 1), False),
    ],
)
def test_whether_it_has_talked(body: Callable[[Any], Awaitable[Any]], talks: bool, drive: Drive) -> None:
    async def whole(ctx: WorkflowContext) -> None:
        await body(ctx)
        await sleep(ctx, 1)

    driver = drive(whole)
    assert driver.execution.used_messaging is False
    driver.start()
    assert driver.execution.used_messaging is talks
    again = replay_anew(drive, driver)
    assert again.execution.used_messaging is talks


def test_what_was_said_before_a_retry_has_been_said_even_if_the_code_never_comes_there_again(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> None:
        await sleep(ctx, 1)

    entry = Entry(1, Kind.SUBSCRIBE, "subscribe:a:1", Outcome.OK, 0, role=Role.RETAINED)
    driver = drive(body, history=[entry])
    driver.replay()
    assert driver.execution.used_messaging


# --- in an activity


async def test_what_an_activity_says_is_left_for_its_commit() -> None:
    ctx = ActivityContext(instance_id="order-1")
    await send_event(ctx, "paid", "/shop", {"n": 1})
    await publish(ctx, "orders", 1)
    await send_to(ctx, "order-2", "orders", 2)
    await asyncio.gather(send_to_group(ctx, "riders", "orders", 3))
    assert ctx._effects == [
        SendEvent(Event("", "/shop", "paid", b'{"n":1}', datacontenttype="application/json")),
        Publish(Message("", "orders", b"1", sender="order-1")),
        SendTo(Message("", "orders", b"2", sender="order-1"), "order-2"),
        SendToGroup(Message("", "orders", b"3", sender="order-1"), "riders"),
    ]


def test_a_plain_function_in_a_thread_speaks_without_awaiting() -> None:
    ctx = ActivityContext()
    thread = threading.Thread(target=lambda: publish(ctx, "orders", 1))
    thread.start()
    thread.join()
    assert ctx._effects == [Publish(Message("", "orders", b"1"))]


async def test_a_context_with_a_sender_sends_at_once() -> None:
    sent: list[Effect] = []

    async def send(effect: Effect) -> str:
        sent.append(effect)
        return "sent"

    ctx = ActivityContext(sender=send)
    saying: Awaitable[Any] = publish(ctx, "orders", 1)
    given = await saying
    assert (given, sent, ctx._effects) == ("sent", [Publish(Message("", "orders", b"1"))], [])


@pytest.mark.parametrize(
    "call",
    [
        lambda ctx: wait_event(ctx, "paid"),
        lambda ctx: receive(ctx, "orders"),
        lambda ctx: subscribe(ctx, "orders"),
        lambda ctx: unsubscribe(ctx, "orders"),
        lambda ctx: join_group(ctx, "riders"),
        lambda ctx: leave_group(ctx, "riders"),
        lambda ctx: get_group_members(ctx, "riders"),
        lambda ctx: recur(ctx),
    ],
)
async def test_only_workflows_wait_and_belong(call: Callable[[Any], Awaitable[Any]]) -> None:
    with pytest.raises(InvalidWorkflowStateError, match="inside an activity"):
        await call(ActivityContext())
    with pytest.raises(InvalidWorkflowStateError, match="belongs to no running workflow"):
        await call(WorkflowContext())
    with pytest.raises(InvalidWorkflowStateError, match="without a workflow's context"):
        await call("order-1")


@pytest.mark.parametrize(
    "call",
    [
        lambda ctx: send_event(ctx, "paid", "/shop"),
        lambda ctx: publish(ctx, "orders", 1),
        lambda ctx: send_to(ctx, "order-2", "orders", 1),
        lambda ctx: send_to_group(ctx, "riders", "orders", 1),
    ],
)
def test_sending_needs_a_context(call: Callable[[Any], object]) -> None:
    with pytest.raises(InvalidWorkflowStateError, match="belongs to no running workflow"):
        _ = call(WorkflowContext())
    with pytest.raises(InvalidWorkflowStateError, match="without a workflow's context"):
        _ = call("order-1")


# --- a retry of the instance


async def order(ctx: WorkflowContext, text: str = "hello") -> str:
    await subscribe(ctx, "orders")
    first = await charge(ctx, 1)
    event = await wait_event(ctx, "paid")
    await publish(ctx, "orders", text)
    await charge(ctx, 2)
    return f"{first} {event.id}"


def run_failing_order(drive: Drive, body: Body = order) -> InstanceDriver:
    driver = drive(body)
    driver.start()
    driver.answer(("subscribe:orders:1", None))
    driver.ok("charge:1", b"7")
    driver.answer(("paid:1", paid()))
    driver.error("charge:2")
    assert isinstance(driver.failure, ValueError)
    return driver


def rewound_history(driver: InstanceDriver) -> list[Entry]:
    roles = dict(rewind(driver.history).roles)
    return [entry._replace(role=roles.get(entry.seq, entry.role)) for entry in driver.history]


def test_what_failed_is_tried_again_and_nothing_else(drive: Drive) -> None:
    again = drive(order, history=rewound_history(run_failing_order(drive)))
    assert again.replay() == ["charge:2"]
    assert again.effects == []
    again.ok("charge:2", b"7")
    assert again.result == "7 e-1"


def compensated_from_the_start(driver: InstanceDriver) -> list[Entry]:
    """A history in which the first charge was compensated, so that it is repeated from there."""
    undo = Entry(
        driver.execution.seq + 1, Kind.COMPENSATION, "compensate:charge:1", Outcome.OK, driver.at, role=Role.OUT_OF_BAND
    )
    driver.history.append(undo)
    return rewound_history(driver)


def test_answers_after_the_cut_are_kept_and_what_was_said_is_not_said_again(drive: Drive) -> None:
    history = compensated_from_the_start(run_failing_order(drive))
    roles = {entry.op: entry.role for entry in history}
    assert roles["subscribe:orders:1"] is Role.FED
    assert roles["paid:1"] is Role.RETAINED
    assert roles["publish:orders:1"] is Role.RETAINED
    assert roles["charge:1"] is roles["charge:2"] is Role.DISCARDED

    again = drive(order, history=history)
    assert again.replay() == ["charge:1"]
    assert again.ok("charge:1", b"8") == ["charge:2"]
    assert again.store_calls == []
    assert again.effects == []
    new = [(entry.op, entry.role, entry.value) for entry in again.history[len(history) :]]
    assert new == [
        ("charge:1", Role.FED, b"8"),
        ("paid:1", Role.FED, paid()),
        ("publish:orders:1", Role.OUT_OF_BAND, None),
    ]
    third = replay_anew(drive, again)
    assert third.effects == []
    third.ok("charge:2")
    assert third.result == "8 e-1"


def test_said_differently_after_a_retry_it_is_said(drive: Drive) -> None:
    history = compensated_from_the_start(run_failing_order(drive))
    again = drive(order, "bye", history=history)
    again.replay()
    again.ok("charge:1", b"8")
    assert [op for op, _ in again.effects] == ["publish:orders:1"]
    third = replay_anew(drive, again)
    assert third.effects == []
    assert list(third.run.pending) == ["charge:2"]


def test_once_this_round_has_recorded_it_saying_something_else_does_not_fit(drive: Drive) -> None:
    again = drive(order, history=compensated_from_the_start(run_failing_order(drive)))
    again.replay()
    again.ok("charge:1", b"8")
    with pytest.raises(DeterminismViolationError, match="publish:orders:1"):
        drive(order, "bye", history=again.history).replay()


def test_an_ask_that_is_another_now_is_asked_anew(drive: Drive) -> None:
    async def changed(ctx: WorkflowContext) -> None:
        await subscribe(ctx, "orders")
        await charge(ctx, 1)
        await wait_event(ctx, "paid", subject="42")

    again = drive(changed, history=compensated_from_the_start(run_failing_order(drive)))
    again.replay()
    assert again.ok("charge:1") == ["paid:1"]


def test_what_was_said_in_one_round_stays_said_through_another_retry(drive: Drive) -> None:
    again = drive(order, history=compensated_from_the_start(run_failing_order(drive)))
    again.replay()
    again.ok("charge:1", b"8")
    again.error("charge:2")
    third = drive(order, history=compensated_from_the_start(again))
    assert third.replay() == ["charge:1"]
    assert third.ok("charge:1", b"9") == ["charge:2"]
    assert third.effects == []
    assert third.store_calls == []


def test_a_wait_that_was_in_vain_is_tried_again(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> str:
        await charge(ctx, 1)
        return (await wait_event(ctx, "paid", timeout=1)).id

    driver = drive(body)
    driver.start()
    driver.ok("charge:1")
    driver.answer(("paid:1", EventTimeoutError("late")))
    assert isinstance(driver.failure, EventTimeoutError)
    again = drive(body, history=rewound_history(driver))
    assert again.replay() == ["paid:1"]
    again.answer(("paid:1", paid()))
    assert again.result == "e-1"
