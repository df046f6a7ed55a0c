"""Sending: events and messages from workflows, activities and clients arrive once, or not at all."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from pydantic import BaseModel, Field, SecretStr

from romancy import (
    ActivityContext,
    App,
    ChannelMessageTimeoutError,
    Client,
    ConfigurationError,
    EventTimeoutError,
    PayloadError,
    ReceivedEvent,
    RetryExhaustedError,
    RetryPolicy,
    Status,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowHandle,
    WorkflowIOError,
    WorkflowNotFoundError,
    activity,
    publish,
    receive,
    register_compensation,
    send_event,
    send_to,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


class Payment(BaseModel):
    order: str
    amount: float = Field(alias="theAmount")
    at: datetime = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Parcel:
    id: int
    tags: frozenset[str] = frozenset()


@workflow
async def events(ctx: WorkflowContext) -> list[Any]:
    """Collects the data of events until none has arrived for a day."""
    received: list[Any] = []
    while True:
        try:
            received.append((await wait_event(ctx, "told", timeout=timedelta(days=1))).data)
        except EventTimeoutError:
            return received


@workflow
async def messages(ctx: WorkflowContext) -> list[Any]:
    """Collects the data of messages until none has arrived for a day."""
    await subscribe(ctx, "told")
    received: list[Any] = []
    while True:
        try:
            received.append((await receive(ctx, "told", timeout=timedelta(days=1))).data)
        except ChannelMessageTimeoutError:
            return received


Receivers = tuple[WorkflowHandle[list[Any]], WorkflowHandle[list[Any]]]


async def start_receivers(env: TestEnvironment) -> Receivers:
    """Start a receiver of events and a receiver of messages."""
    receivers = (await env.app.start_workflow(events), await env.app.start_workflow(messages))
    await env.settle()
    return receivers


async def received_by(receivers: Receivers) -> list[list[Any]]:
    return [await asyncio.wait_for(handle.result(), 20) for handle in receivers]


async def failure(handle: WorkflowHandle[Any]) -> BaseException | None:
    """The error with which the instance failed."""
    with pytest.raises(WorkflowFailedError) as failed:
        await asyncio.wait_for(handle.result(), 10)
    return failed.value.__cause__


async def send_both(ctx: WorkflowContext | ActivityContext, what: Any) -> None:
    """Send the value as an event and as a message."""
    await send_event(ctx, "told", "/test", what)
    await publish(ctx, "told", what)


@activity
async def note(ctx: ActivityContext) -> None: ...


# --- from a workflow


async def test_an_event_of_a_workflow_with_everything_it_says_about_itself() -> None:
    got: list[ReceivedEvent[Any]] = []

    @workflow
    async def curious(ctx: WorkflowContext) -> None:
        got.append(await wait_event(ctx, "paid"))
        got.append(await wait_event(ctx, "paid"))

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await sleep(ctx, 60)
        await send_event(
            ctx,
            "paid",
            "/shop",
            b"\x89PNG",
            subject="42",
            event_id="e-1",
            content_type="image/png",
            extensions={"traceparent": "00-ab", "retries": 3},
        )
        await send_event(ctx, "paid", "/shop")

    start = datetime(2031, 5, 1, 12, tzinfo=UTC)
    async with TestEnvironment(workflows=[curious, speaker], start=start) as env:
        handle = await env.app.start_workflow(curious)
        await env.app.start_workflow(speaker)
        await handle.result()
    full, bare = got
    assert (full.id, full.type, full.source, full.specversion) == ("e-1", "paid", "/shop", "1.0")
    assert (full.subject, full.datacontenttype, full.data) == ("42", "image/png", b"\x89PNG")
    assert full.time == start + timedelta(seconds=60)
    assert full.extensions == {"traceparent": "00-ab", "retries": 3}
    assert bare.id
    assert (bare.data, bare.subject, bare.datacontenttype, bare.extensions) == (None, None, None, {})


@pytest.mark.parametrize("replay_always", [False, True])
async def test_what_a_workflow_says_is_said_once_however_often_it_is_replayed(replay_always: bool) -> None:
    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        for number in range(3):
            await send_both(ctx, number)
            await sleep(ctx, 60)

    async with TestEnvironment(workflows=[speaker, events, messages], replay_always=replay_always) as env:
        receivers = await start_receivers(env)
        handle = await env.app.start_workflow(speaker)
        for _ in range(3):
            await env.advance(30)
            await env.restart()
        await handle.result()
        assert await received_by(receivers) == [[0, 1, 2]] * 2


async def test_a_crash_at_any_step_says_everything_once() -> None:
    @activity
    async def announce(ctx: ActivityContext) -> None:
        await send_both(ctx, "from the activity")

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send_both(ctx, "first")
        await announce(ctx)
        await send_both(ctx, "last")

    told = ["first", "from the activity", "last"]
    crashes, step = 1, 0
    while crashes:
        step += 1
        async with TestEnvironment(workflows=[speaker, events, messages]) as env:
            receivers = await start_receivers(env)
            handle = await env.app.start_workflow(speaker)
            env.crash_at_step(step)
            sending = asyncio.ensure_future(handle.result())
            assert await received_by(receivers) == [told] * 2, f"crash at step {step}"
            await sending
            crashes = env.crashes
    assert step > 6


async def test_what_is_said_without_being_awaited_is_said() -> None:
    @workflow
    async def sending_workflow(ctx: WorkflowContext) -> None:
        said = [send_event(ctx, "told", "/test", 1), publish(ctx, "told", 1)]
        await sleep(ctx, 1)
        await asyncio.gather(send_event(ctx, "told", "/test", 2), publish(ctx, "told", 2))
        assert len(said) == 2

    async with TestEnvironment(workflows=[sending_workflow, events, messages], replay_always=True) as env:
        receivers = await start_receivers(env)
        await (await env.app.start_workflow(sending_workflow)).result()
        assert await received_by(receivers) == [[1, 2]] * 2


async def test_a_workflow_hears_itself() -> None:
    @workflow
    async def lonely(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "told")
        await send_both(ctx, "me")
        return [(await wait_event(ctx, "told")).data, (await receive(ctx, "told")).data]

    async with TestEnvironment(workflows=[lonely], replay_always=True) as env:
        assert await (await env.app.start_workflow(lonely)).result() == ["me", "me"]


@pytest.mark.parametrize("ending", ["returns", "raises", "recurs", "is cancelled"])
async def test_what_is_said_in_the_last_step_is_said_whatever_becomes_of_the_workflow(ending: str) -> None:
    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        if ctx.generation == 2:
            return
        try:
            if ending == "is cancelled":
                await sleep(ctx, 60)
        finally:
            await send_both(ctx, "bye")
        if ending == "raises":
            raise ValueError("broken")
        if ending == "recurs":
            await ctx.recur()

    async with TestEnvironment(workflows=[speaker, events, messages]) as env:
        receivers = await start_receivers(env)
        handle = await env.app.start_workflow(speaker)
        if ending == "is cancelled":
            await env.settle()
            await handle.cancel()
            with pytest.raises(WorkflowCancelledError):
                await handle.result()
        elif ending == "raises":
            await failure(handle)
        else:
            await handle.result()
        assert await received_by(receivers) == [["bye"]] * 2


async def test_a_retried_instance_does_not_say_again_what_it_has_said() -> None:
    broken = [True]

    @activity(retry=RetryPolicy.none())
    async def check(ctx: ActivityContext) -> None:
        if broken:
            raise ValueError("broken")

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send_both(ctx, "before")
        await check(ctx)
        await send_both(ctx, "after")

    async with TestEnvironment(workflows=[speaker, events, messages]) as env:
        receivers = await start_receivers(env)
        handle = await env.app.start_workflow(speaker)
        await failure(handle)
        broken.clear()
        await env.app.retry_workflow(handle.instance_id)
        await handle.result()
        assert await received_by(receivers) == [["before", "after"]] * 2


async def test_an_event_addressed_by_a_workflow() -> None:
    @workflow
    async def asker(ctx: WorkflowContext, target: str) -> None:
        await send_event(ctx, "question", "/test", "who?", extensions={"romancyinstanceid": target})

    @workflow
    async def answerer(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "question")).data

    async with TestEnvironment(workflows=[asker, answerer]) as env:
        right, wrong = [await env.app.start_workflow(answerer) for _ in range(2)]
        await env.app.start_workflow(asker, right.instance_id)
        assert await right.result() == "who?"
        assert await wrong.status() is Status.WAITING_FOR_EVENT


async def test_an_event_of_a_workflow_starts_workflows_once() -> None:
    @workflow(event_handler=True)
    async def order(ctx: WorkflowContext, number: int) -> int:
        return number

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        await send_event(ctx, "order", "/shop", {"number": 7})
        await sleep(ctx, 60)

    async with TestEnvironment(workflows=[order, shop], replay_always=True) as env:
        await (await env.app.start_workflow(shop)).result()
        (started,) = (await env.app.list_instances(workflow_name="order")).items
        assert started.output == 7


async def test_an_event_with_a_known_id_does_nothing() -> None:
    @workflow
    async def insistent(ctx: WorkflowContext) -> str:
        for number in range(3):
            await send_event(ctx, "told", "/test", number, event_id="same")
        return "said"

    async with TestEnvironment(workflows=[insistent, events, messages]) as env:
        receivers = await start_receivers(env)
        assert await (await env.app.start_workflow(insistent)).result() == "said"
        assert (await env.app.send_event("told", "/test", "outside", event_id="same")).duplicate
        assert await received_by(receivers) == [[0], []]


async def test_the_history_tells_what_was_sent() -> None:
    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send_event(ctx, "paid", "/shop", {"n": 1}, subject="42", event_id="e1")

    async with TestEnvironment(workflows=[speaker]) as env:
        handle = await env.app.start_workflow(speaker)
        await handle.result()
        (entry,) = [entry async for entry in handle.history()]
    assert (entry.kind, entry.activity_id, entry.outcome) == ("send_event", "send_event:paid:1", "ok")
    assert entry.input == {
        "type": "paid",
        "source": "/shop",
        "id": "e1",
        "subject": "42",
        "datacontenttype": "application/json",
        "data": {"n": 1},
    }


# --- from an activity


def sending_activity(plain: bool, send: Callable[[ActivityContext], Any], **options: Any) -> Any:
    """The same activity as a coroutine, or as a plain function in a thread."""
    if plain:

        def in_thread(ctx: ActivityContext) -> str:
            assert threading.current_thread() is not threading.main_thread()
            send(ctx)
            return "sent"

        return activity(name="send", **options)(in_thread)

    async def on_loop(ctx: ActivityContext) -> str:
        send(ctx)
        return "sent"

    return activity(name="send", **options)(on_loop)


@pytest.mark.parametrize("plain", [False, True])
async def test_what_failed_attempts_said_is_dropped_and_the_last_one_is_heard_once(plain: bool) -> None:
    def say(ctx: ActivityContext) -> None:
        # A plain function cannot await the results, and need not.
        _ = send_event(ctx, "told", "/test", f"attempt {ctx.attempt}"), publish(ctx, "told", f"attempt {ctx.attempt}")
        if ctx.attempt < 3:
            raise ConnectionError("busy")

    send = sending_activity(plain, say, retry=RetryPolicy.fixed(3, 1))

    @workflow
    async def speaker(ctx: WorkflowContext) -> str:
        sent: str = await send(ctx)
        return sent

    async with TestEnvironment(workflows=[speaker, events, messages]) as env:
        receivers = await start_receivers(env)
        assert await (await env.app.start_workflow(speaker)).result() == "sent"
        assert await received_by(receivers) == [["attempt 3"]] * 2


async def test_what_an_activity_that_gave_up_said_is_not_heard() -> None:
    @activity(retry=RetryPolicy.fixed(2, 1))
    async def send(ctx: ActivityContext) -> None:
        await send_both(ctx, ctx.attempt)
        raise ConnectionError("busy")

    @workflow
    async def speaker(ctx: WorkflowContext) -> str:
        try:
            await send(ctx)
        except RetryExhaustedError:
            await send_both(ctx, "gave up")
        return "done"

    async with TestEnvironment(workflows=[speaker, events, messages]) as env:
        receivers = await start_receivers(env)
        await (await env.app.start_workflow(speaker)).result()
        assert await received_by(receivers) == [["gave up"]] * 2


async def test_what_a_cancelled_attempt_or_one_without_a_storable_result_said_is_not_heard() -> None:
    @activity
    async def slow(ctx: ActivityContext) -> None:
        await send_both(ctx, "too slow")
        await asyncio.Event().wait()

    @activity
    async def confused(ctx: ActivityContext) -> object:
        await send_both(ctx, "confused")
        return object()

    @activity(timeout=1, retry=RetryPolicy.none())
    async def late(ctx: ActivityContext) -> None:
        await send_both(ctx, "late")
        await asyncio.Event().wait()

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        try:
            await asyncio.wait_for(slow(ctx), 1)
        except TimeoutError:
            await send_both(ctx, "cut off")
        for act in (confused, late):
            try:
                await cast(Any, act)(ctx)
            except (PayloadError, RetryExhaustedError):
                await send_both(ctx, "failed")

    async with TestEnvironment(workflows=[speaker, events, messages]) as env:
        receivers = await start_receivers(env)
        await (await env.app.start_workflow(speaker)).result()
        assert await received_by(receivers) == [["cut off", "failed", "failed"]] * 2


async def test_nothing_is_heard_before_the_attempt_is_recorded() -> None:
    said, finish = asyncio.Event(), asyncio.Event()

    @activity
    async def send(ctx: ActivityContext) -> None:
        await send_both(ctx, "said")
        said.set()
        await finish.wait()

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send(ctx)

    async with TestEnvironment(workflows=[speaker, events, messages]) as env:
        receivers = await start_receivers(env)
        handle = await env.app.start_workflow(speaker)
        await said.wait()
        await env.settle()
        for listener in receivers:
            assert [entry.kind async for entry in listener.history() if entry.kind in ("event", "message")] == []
        finish.set()
        await handle.result()
        assert await received_by(receivers) == [["said"]] * 2


async def test_an_attempt_that_was_cut_off_by_a_crash_is_heard_once() -> None:
    @activity
    async def send(ctx: ActivityContext) -> None:
        await send_both(ctx, ctx.idempotency_key)

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send(ctx)
        await note(ctx)

    for point in ("activity.before", "activity.after", "commit.before", "commit.after"):
        async with TestEnvironment(workflows=[speaker, events, messages]) as env:
            receivers = await start_receivers(env)
            handle = await env.app.start_workflow(speaker.with_options(instance_id="me"))
            env.crash_at(point)
            await asyncio.wait_for(handle.result(), 10)
            assert env.crashes == 1
            assert await received_by(receivers) == [["me:1:send:1"]] * 2, point


@pytest.mark.parametrize("plain", [False, True])
async def test_an_activity_without_a_transaction_is_heard_at_once_and_whatever_becomes_of_it(plain: bool) -> None:
    finish = threading.Event()

    def in_thread(ctx: ActivityContext) -> None:
        _ = publish(ctx, "told", f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            finish.wait(20)
            raise ConnectionError("busy")

    async def on_loop(ctx: ActivityContext) -> None:
        await publish(ctx, "told", f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            await asyncio.to_thread(finish.wait, 20)
            raise ConnectionError("busy")

    send: Any = activity(name="send", transactional=False)(cast(Any, in_thread if plain else on_loop))

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send(ctx)

    async with TestEnvironment(workflows=[speaker, messages]) as env:
        listener = await env.app.start_workflow(messages)
        await env.settle()
        handle = await env.app.start_workflow(speaker)
        async with asyncio.timeout(10):
            while not [entry async for entry in listener.history() if entry.kind == "message"]:
                await asyncio.sleep(0.001)
        assert await handle.status() is Status.RUNNING  # received while the activity still runs
        finish.set()
        await handle.result()
        assert await listener.result() == ["attempt 1", "attempt 2"]


async def test_an_event_without_a_transaction_has_one_id_over_the_attempts() -> None:
    """Every attempt sends the event, but with the same id, which is derived from the activity id."""

    @activity(transactional=False, retry=RetryPolicy.fixed(3, 1))
    async def send(ctx: ActivityContext) -> None:
        await send_event(ctx, "told", "/test", "the same")
        if ctx.attempt < 3:
            raise ConnectionError("busy")

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send(ctx)

    async with TestEnvironment(workflows=[speaker, events, messages]) as env:
        receivers = await start_receivers(env)
        await (await env.app.start_workflow(speaker)).result()
        assert await received_by(receivers) == [["the same"], []]


async def test_a_compensation_speaks_in_its_commit_too() -> None:
    @activity
    async def reserve(ctx: ActivityContext) -> None: ...

    @reserve.compensate
    async def release(ctx: ActivityContext) -> None:
        await send_both(ctx, f"released in attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise ConnectionError("busy")

    async def apologise(ctx: ActivityContext) -> None:
        await send_both(ctx, "sorry")

    @workflow
    async def booking(ctx: WorkflowContext) -> None:
        await reserve(ctx)
        await register_compensation(ctx, apologise)
        raise ValueError("no room")

    async with TestEnvironment(workflows=[booking, events, messages]) as env:
        receivers = await start_receivers(env)
        await failure(await env.app.start_workflow(booking))
        assert await received_by(receivers) == [["sorry", "released in attempt 2"]] * 2


async def test_an_activity_sends_to_one_instance() -> None:
    @workflow
    async def addressee(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "mail", "direct")
        message = await receive(ctx, "mail")
        return [message.data, message.sender_instance_id]

    @activity
    async def post(ctx: ActivityContext, target: str) -> None:
        await send_to(ctx, target, "mail", "letter")

    @workflow
    async def sender(ctx: WorkflowContext, target: str) -> None:
        await post(ctx, target)

    async with TestEnvironment(workflows=[addressee, sender]) as env:
        handle = await env.app.start_workflow(addressee)
        await env.settle()
        sending = await env.app.start_workflow(sender, handle.instance_id)
        await sending.result()
        assert await handle.result() == ["letter", sending.instance_id]


async def test_an_activity_without_a_transaction_learns_that_there_is_no_target() -> None:
    @activity(transactional=False, retry=RetryPolicy.none())
    async def post(ctx: ActivityContext) -> None:
        await send_to(ctx, "unknown", "mail", "letter")

    @workflow
    async def sender(ctx: WorkflowContext) -> None:
        await post(ctx)

    async with TestEnvironment(workflows=[sender]) as env:
        error = await failure(await env.app.start_workflow(sender))
    assert error is not None
    assert isinstance(error.__cause__, WorkflowNotFoundError)
    assert "unknown" in str(error.__cause__)


async def test_an_activity_in_a_transaction_learns_that_there_is_no_target() -> None:
    @activity(retry=RetryPolicy.none())
    async def post(ctx: ActivityContext) -> None:
        await send_to(ctx, "unknown", "mail", "letter")

    @workflow
    async def sender(ctx: WorkflowContext) -> None:
        await post(ctx)

    async with TestEnvironment(workflows=[sender]) as env:
        error = await failure(await env.app.start_workflow(sender))
    assert error is not None
    assert "unknown" in f"{error} {error.__cause__}"


async def test_an_activity_may_use_the_app_to_speak_at_once() -> None:
    @activity(retry=RetryPolicy.none())
    async def send(ctx: ActivityContext) -> None:
        await ctx.app.send_event("told", "/test", "by the app")
        await ctx.app.publish("told", "by the app")
        raise ValueError("broken")

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send(ctx)

    async with TestEnvironment(workflows=[speaker, events, messages]) as env:
        receivers = await start_receivers(env)
        await failure(await env.app.start_workflow(speaker))
        assert await received_by(receivers) == [["by the app"]] * 2


# --- values that can be sent


async def test_models_and_dataclasses_go_out_by_the_names_the_world_uses() -> None:
    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send_both(ctx, Payment(order="1", theAmount=2.5))
        await send_both(ctx, Parcel(7))
        await send_both(ctx, {"at": datetime(2030, 1, 1, tzinfo=UTC), "nested": [Parcel(8)]})

    async with TestEnvironment(workflows=[speaker, events, messages], replay_always=True) as env:
        receivers = await start_receivers(env)
        await (await env.app.start_workflow(speaker)).result()
        received = await received_by(receivers)
    assert received[0] == received[1]
    assert received[0] == [
        {"order": "1", "theAmount": 2.5, "at": "2030-01-01T00:00:00Z"},
        {"id": 7, "tags": []},
        {"at": "2030-01-01T00:00:00Z", "nested": [{"id": 8, "tags": []}]},
    ]


async def test_sets_do_not_make_a_replay_differ() -> None:
    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send_both(ctx, Parcel(1, frozenset({"a", "b", "c"})))
        await sleep(ctx, 60)

    async with TestEnvironment(workflows=[speaker, events, messages], replay_always=True) as env:
        receivers = await start_receivers(env)
        await (await env.app.start_workflow(speaker)).result()
        received = await received_by(receivers)
    assert [sorted(one[0]["tags"]) for one in received] == [["a", "b", "c"]] * 2


UNSENDABLE = [
    ({"a": [float("nan")]}, "a.0"),
    ({"a": float("inf")}, "a"),
    ({"name": "\ud800"}, "name"),
    ({"x": object()}, "object"),
    (SecretStr("s"), "SecretStr"),
]


@pytest.mark.parametrize(("data", "says"), UNSENDABLE, ids=lambda value: repr(value)[:24])
async def test_what_cannot_be_said_names_itself_and_nothing_goes_out(data: Any, says: str) -> None:
    attempts: list[int] = []

    @activity
    async def act(ctx: ActivityContext) -> None:
        attempts.append(ctx.attempt)
        await publish(ctx, "told", data)

    @workflow
    async def speaker(ctx: WorkflowContext, where: str) -> None:
        if where == "event":
            await send_event(ctx, "told", "/test", data)
        elif where == "message":
            await publish(ctx, "told", data)
        else:
            await act(ctx)

    async with TestEnvironment(workflows=[speaker, events, messages]) as env:
        receivers = await start_receivers(env)
        for where in ("event", "message", "activity"):
            error = await failure(await env.app.start_workflow(speaker, where))
            assert isinstance(error, PayloadError), where
            assert says in str(error)
            assert "told" in str(error)
        for call in (env.app.send_event("told", "/test", data), env.app.publish("told", data)):
            with pytest.raises(PayloadError, match="told"):
                await call
        assert await received_by(receivers) == [[], []]
    assert attempts == [1]


async def test_metadata_that_cannot_be_said() -> None:
    async with TestEnvironment(workflows=[messages]) as env:
        with pytest.raises(PayloadError, match="metadata"):
            await env.app.publish("told", 1, metadata={"x": float("nan")})
        with pytest.raises(ConfigurationError, match="metadata"):
            await env.app.publish("told", 1, metadata=cast(Any, ["x"]))


async def test_ten_megabytes_and_odd_texts() -> None:
    big = "x" * 10_000_000

    @workflow
    async def receiver(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "told")
        event, message = await wait_event(ctx, "told"), await receive(ctx, "told")
        return [event.data == big, message.data == big.encode(), event.subject, message.channel]

    async with TestEnvironment(workflows=[receiver]) as env:
        handle = await env.app.start_workflow(receiver)
        await env.settle()
        await env.app.send_event("told", "/test", big, subject="☃ é")
        await env.app.publish("told", big.encode())
        assert await handle.result() == [True, True, "☃ é", "told"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"type": ""}, "type"),
        ({"source": ""}, "source"),
        ({"source": 7}, "source"),
        ({"subject": ""}, "subject"),
        ({"event_id": ""}, "event_id"),
        ({"content_type": ""}, "content_type"),
        ({"extensions": {"Trace": "x"}}, "Trace"),
        ({"extensions": {"data": "x"}}, "data"),
        ({"extensions": {"id": "x"}}, "id"),
        ({"extensions": {"trace": 1.5}}, "trace"),
        ({"extensions": ["trace"]}, "extensions"),
    ],
    ids=repr,
)
async def test_an_event_that_makes_no_sense_says_so(options: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"type": "told", "source": "/test", "data": 1, **options}

    @workflow
    async def wrong(ctx: WorkflowContext) -> None:
        await send_event(ctx, **given)

    async with TestEnvironment(workflows=[wrong]) as env:
        with pytest.raises(ConfigurationError, match=says):
            await env.app.send_event(**given)
        error = await failure(await env.app.start_workflow(wrong))
    assert isinstance(error, ConfigurationError)
    assert says in str(error)


async def test_an_event_for_the_broker_only_needs_a_broker() -> None:
    @workflow
    async def wrong(ctx: WorkflowContext) -> None:
        await send_event(ctx, "told", "/test", local=False)

    async with TestEnvironment(workflows=[wrong]) as env:
        error = await failure(await env.app.start_workflow(wrong))
    assert isinstance(error, ConfigurationError)
    assert "broker" in str(error)


# --- from outside


async def test_a_client_without_a_worker_speaks_to_workflows_that_run_elsewhere(database: str) -> None:
    async with TestEnvironment(database, workflows=[events, messages]) as env:
        receivers = await start_receivers(env)
    async with Client(database, workflows=[], clock=env.clock) as client:
        accepted = await client.send_event("told", "/client", "event")
        assert accepted.instance_ids == (receivers[0].instance_id,)
        await client.publish("told", "message")
        await client.send_to(receivers[1].instance_id, "told", "letter")
    async with TestEnvironment(database, workflows=[events, messages], start=env.now()) as later:
        received = [await later.app.get_handle(one.instance_id).result() for one in receivers]
    assert received == [["event"], ["message", "letter"]]


async def test_workflow_code_may_not_use_the_app_to_speak() -> None:
    @workflow
    async def cheat(ctx: WorkflowContext, how: str) -> None:
        if how == "event":
            await ctx.app.send_event("told", "/test")
        elif how == "publish":
            await ctx.app.publish("told", 1)
        else:
            await ctx.app.send_to(ctx.instance_id, "told", 1)

    async with TestEnvironment(workflows=[cheat]) as env:
        for how in ("event", "publish", "send_to"):
            error = await failure(await env.app.start_workflow(cheat, how))
            assert isinstance(error, WorkflowIOError), how
            assert "activity" in str(error)


async def test_many_speakers_at_once_on_a_real_app(database: str) -> None:
    @workflow
    async def speaker(ctx: WorkflowContext, number: int) -> None:
        await send_both(ctx, number)
        await note(ctx)

    @workflow
    async def counter(ctx: WorkflowContext, count: int) -> list[list[int]]:
        await subscribe(ctx, "told")
        received_events = [(await wait_event(ctx, "told")).data for _ in range(count)]
        return [received_events, [(await receive(ctx, "told")).data for _ in range(count)]]

    async with App(database, workflows=[speaker, counter]) as first, App(database, workflows=[speaker, counter]) as second:
        counting = await first.start_workflow(counter, 40)
        while await counting.status() is not Status.WAITING_FOR_EVENT:
            await asyncio.sleep(0)
        handles = [await (first if number % 2 else second).start_workflow(speaker, number) for number in range(40)]
        await asyncio.gather(*(handle.result(timeout=20) for handle in handles))
        received = await counting.result(timeout=20)
    assert [sorted(one) for one in received] == [list(range(40))] * 2
