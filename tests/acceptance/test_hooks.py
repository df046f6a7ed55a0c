"""Hooks: which calls they receive, in which order, each once; and that they cannot disturb the engine."""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    EventTimeoutError,
    Hooks,
    RetryExhaustedError,
    RetryPolicy,
    TerminalError,
    Workflow,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    register_compensation,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy import hooks as told
from romancy.hooks import HOOK_METHODS, queue
from romancy.testing import TestEnvironment

REPLAY = {"on_replay_start", "on_replay_complete", "on_activity_cache_hit"}


class HookRecorder(Hooks):
    """Hooks that record each call."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Any]] = []
        self.called = asyncio.Condition()

    async def _record(self, name: str, info: Any) -> None:
        self.lines.append((name, info))
        async with self.called:
            self.called.notify_all()

    def names(self, *but: str) -> list[str]:
        """The recorded calls as short texts."""
        return [_short(name, info) for name, info in self.lines if name not in but]

    def of(self, name: str) -> list[Any]:
        """The arguments of the calls of one hook."""
        return [info for hook_name, info in self.lines if hook_name == name]

    async def until(self, name: str, times: int = 1) -> None:
        """Wait until a hook was called so many times."""
        async with self.called:
            await self.called.wait_for(lambda: len(self.of(name)) >= times)


def _short(name: str, info: Any) -> str:
    subject = getattr(info, "activity_id", None) or getattr(info, "event_type", None)
    return f"{name.removeprefix('on_')} {subject}" if subject else name.removeprefix("on_")


def _recording(name: str) -> Any:
    async def hook(self: HookRecorder, info: Any) -> None:
        await self._record(name, info)

    return hook


for _name in HOOK_METHODS:
    setattr(HookRecorder, _name, _recording(_name))


@activity
async def pack(ctx: ActivityContext, what: str) -> str:
    return f"{what} packed"


async def release(ctx: ActivityContext) -> None: ...


@activity(retry=RetryPolicy.none())
async def refuse(ctx: ActivityContext) -> None:
    raise TerminalError("no")


async def record_hooks(flow: Workflow[..., Any], *args: Any, **options: Any) -> HookRecorder:
    """Run a workflow to its end, successful or not, and return the recorded calls."""
    recorder = HookRecorder()
    async with TestEnvironment(workflows=[flow], hooks=recorder, **options) as env:
        handle = await env.app.start_workflow(flow, *args)
        with contextlib.suppress(WorkflowFailedError, WorkflowCancelledError):
            await handle.result()
    return recorder


# --- calls and their order


async def test_a_workflow_is_told_from_its_start_to_its_end() -> None:
    @workflow
    async def order(ctx: WorkflowContext, what: str) -> str:
        await sleep(ctx, 60, sleep_id="rest")
        return await pack(ctx, what)

    recorder = await record_hooks(order, "book")

    assert recorder.names() == [
        "workflow_start",
        "timer_start rest",
        "timer_fired rest",
        "activity_start pack:1",
        "activity_complete pack:1",
        "workflow_complete",
    ]
    infos = [info for _, info in recorder.lines]
    assert {(info.workflow_name, info.generation) for info in infos} == {("order", 1)}
    assert len({(info.instance_id, info.worker_id) for info in infos}) == 1
    assert infos[0].input == {"what": "book"}
    assert (infos[2].at - infos[2].since).total_seconds() == 60
    assert infos[1].due == infos[2].at
    assert (infos[3].input, infos[3].attempt, infos[3].compensates) == ({"what": "book"}, 1, None)
    assert infos[4].result == "book packed"
    assert infos[5].result == "book packed"
    assert infos[5].created_at == infos[0].at


@pytest.mark.parametrize("forced", [False, True])
async def test_replay_tells_nothing_again(forced: bool) -> None:
    @workflow
    async def long(ctx: WorkflowContext) -> None:
        await pack(ctx, "a")
        await sleep(ctx, 60)
        await pack(ctx, "b")
        await send_event(ctx, "half", "/here")
        await sleep(ctx, 60)

    recorder = await record_hooks(long, replay_always=forced)

    assert recorder.names(*REPLAY) == [
        *["workflow_start", "activity_start pack:1", "activity_complete pack:1", "timer_start sleep:1"],
        *["timer_fired sleep:1", "activity_start pack:2", "activity_complete pack:2", "event_sent half"],
        *["timer_start sleep:2", "timer_fired sleep:2", "workflow_complete"],
    ]
    assert [info.activity_id for info in recorder.of("on_activity_cache_hit")] == ["pack:1", "pack:1", "pack:2"] * forced
    assert [info.entries for info in recorder.of("on_replay_start")] == [1, 4] * forced
    assert [info.problem for info in recorder.of("on_replay_complete")] == [None, None] * forced


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("step", range(1, 14))
async def test_a_crash_anywhere_tells_nothing_twice(step: int) -> None:
    @workflow
    async def talk(ctx: WorkflowContext) -> str:
        await asyncio.gather(pack(ctx, "a"), sleep(ctx, 5, sleep_id="rest"))
        event = await wait_event(ctx, "go", event_id="start")
        await send_event(ctx, "gone", "/here")
        return str(event.data)

    recorder = HookRecorder()
    async with TestEnvironment(workflows=[talk], hooks=recorder) as env:
        env.crash_at_step(step)
        handle = await asyncio.shield(_started(env, talk))
        await env.advance(10)
        await _insist(env)
        assert await handle.result() == "now"

    names = recorder.names(*REPLAY, "on_activity_start")  # an interrupted attempt is made again
    assert len(names) == len(set(names)), names
    assert env.crashes == 1
    assert names[-1] == "workflow_complete"


async def _started(env: TestEnvironment, flow: Workflow[..., Any]) -> Any:
    while True:
        try:
            return await env.app.start_workflow(flow.with_options(instance_id="one"))
        except Exception:
            await env.settle()


async def _insist(env: TestEnvironment) -> None:
    while True:
        try:
            await env.app.send_event("go", "/test", "now", event_id="1")
        except Exception:
            await env.settle()
        else:
            return


async def test_a_workflow_inside_a_workflow_is_a_part_of_it() -> None:
    @workflow
    async def inner(ctx: WorkflowContext) -> str:
        return await pack(ctx, "inner")

    @workflow
    async def outer(ctx: WorkflowContext) -> str:
        await pack(ctx, "outer")
        return await inner(ctx)

    recorder = await record_hooks(outer)

    assert recorder.names("on_activity_start") == [
        *["workflow_start", "activity_complete pack:1", "activity_complete pack:2", "workflow_complete"]
    ]
    assert {info.workflow_name for _, info in recorder.lines} == {"outer"}


async def test_an_instance_that_an_activity_starts_is_told_as_its_own() -> None:
    @workflow
    async def child(ctx: WorkflowContext) -> str:
        return await pack(ctx, "child")

    @activity
    async def spawn(ctx: ActivityContext) -> str:
        assert ctx.app is not None
        handle = await ctx.app.start_workflow(child.with_options(instance_id="child"))
        return await handle.result()

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        return await spawn(ctx)

    recorder = HookRecorder()
    async with TestEnvironment(workflows=[parent, child], hooks=recorder) as env:
        await (await env.app.start_workflow(parent.with_options(instance_id="parent"))).result()

    assert [_short(name, info) for name, info in recorder.lines if info.instance_id == "child"] == [
        *["workflow_start", "activity_start pack:1", "activity_complete pack:1", "workflow_complete"]
    ]
    assert recorder.names()[-1] == "workflow_complete"


# --- failures


async def test_retries_are_told_one_by_one() -> None:
    @activity(retry=RetryPolicy(max_attempts=3, initial_interval=10))
    async def flaky(ctx: ActivityContext) -> int:
        if ctx.attempt < 3:
            raise ConnectionError(f"busy {ctx.attempt}")
        return ctx.attempt

    @workflow
    async def patient(ctx: WorkflowContext) -> int:
        return await flaky(ctx)

    recorder = await record_hooks(patient)

    assert recorder.names() == [
        *["workflow_start", "activity_start flaky:1", "activity_retry flaky:1", "activity_start flaky:1"],
        *["activity_retry flaky:1", "activity_start flaky:1", "activity_complete flaky:1", "workflow_complete"],
    ]
    first, second = recorder.of("on_activity_retry")
    assert (first.attempt, first.error.message, first.lost) == (1, "busy 1", False)
    assert (second.next_at - second.at).total_seconds() == 20
    assert [info.attempt for info in recorder.of("on_activity_start")] == [1, 2, 3]
    assert recorder.of("on_activity_complete")[0].attempt == 3


async def test_compensations_are_told_as_activities_that_undo() -> None:
    @activity(compensation=release)
    async def book(ctx: ActivityContext) -> None: ...

    async def sweep_up(ctx: ActivityContext) -> None: ...

    @workflow
    async def trip(ctx: WorkflowContext) -> None:
        await register_compensation(ctx, sweep_up)
        await book(ctx)
        await refuse(ctx)

    recorder = await record_hooks(trip)

    ends = [name for name in recorder.names("on_activity_start") if "workflow_start" not in name]
    assert ends == [
        "activity_complete book:1",
        "activity_failed refuse:1",
        "activity_complete compensate:book:1",
        f"activity_complete {recorder.of('on_activity_complete')[2].activity_id}",
        "workflow_failed",
    ]
    undone = [info.compensates for info in recorder.of("on_activity_complete")]
    assert undone[:2] == [None, "book:1"]
    assert undone[2] is not None
    (failed,) = recorder.of("on_activity_failed")
    assert (failed.error.type.rpartition(".")[2], failed.error.message, failed.cancelled) == ("TerminalError", "no", False)
    (end,) = recorder.of("on_workflow_failed")
    assert end.error.message == "no"


async def test_a_cancelled_workflow_is_told_with_its_reason() -> None:
    @activity(compensation=release)
    async def book(ctx: ActivityContext) -> None: ...

    @workflow
    async def trip(ctx: WorkflowContext) -> None:
        await book(ctx)
        await sleep(ctx, 1000)

    recorder = HookRecorder()
    async with TestEnvironment(workflows=[trip], hooks=recorder) as env:
        handle = await env.app.start_workflow(trip)
        await env.settle()
        await handle.cancel("rain")
        with pytest.raises(WorkflowCancelledError):
            await handle.result()

    assert recorder.names("on_activity_start") == [
        *["workflow_start", "activity_complete book:1", "timer_start sleep:1"],
        *["activity_complete compensate:book:1", "workflow_cancelled"],
    ]
    (info,) = recorder.of("on_workflow_cancelled")
    assert info.reason == "rain"


async def test_an_activity_that_is_no_longer_awaited_is_told_as_cancelled() -> None:
    @activity
    async def endless(ctx: ActivityContext) -> None:
        await asyncio.Event().wait()

    @workflow
    async def hasty(ctx: WorkflowContext) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await endless(ctx)

    recorder = await record_hooks(hasty)

    (info,) = recorder.of("on_activity_failed")
    assert info.cancelled
    assert recorder.names()[-1] == "workflow_complete"


async def test_a_recorded_failure_is_a_cache_hit_too() -> None:
    @activity(retry=RetryPolicy.none())
    async def fail(ctx: ActivityContext) -> None:
        raise ConnectionError("away")

    @workflow
    async def stubborn(ctx: WorkflowContext) -> None:
        with contextlib.suppress(RetryExhaustedError):
            await fail(ctx)
        await sleep(ctx, 60)

    (hit,) = (await record_hooks(stubborn, replay_always=True)).of("on_activity_cache_hit")
    assert (hit.activity_id, hit.result, hit.error.type) == ("fail:1", None, "romancy.errors.RetryExhaustedError")


async def test_after_a_retry_of_the_whole_kept_results_are_cache_hits() -> None:
    broken = True

    @activity(retry=RetryPolicy.none())
    async def last(ctx: ActivityContext) -> None:
        if broken:
            raise TerminalError("not yet")

    @activity(compensation=release)
    async def undone(ctx: ActivityContext) -> None: ...

    @workflow
    async def steps(ctx: WorkflowContext) -> None:
        await undone(ctx)
        await pack(ctx, "kept")
        await last(ctx)

    recorder = HookRecorder()
    async with TestEnvironment(workflows=[steps], hooks=recorder) as env:
        handle = await env.app.start_workflow(steps)
        with pytest.raises(WorkflowFailedError):
            await handle.result()
        await recorder.until("on_workflow_failed")
        recorder.lines.clear()
        broken = False
        await env.app.retry_workflow(handle.instance_id)
        await handle.result()

    assert recorder.names("on_activity_start", "on_replay_start", "on_replay_complete") == [
        *["activity_complete undone:1", "activity_cache_hit pack:1", "activity_complete last:1", "workflow_complete"]
    ]


# --- events


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("early", [True, False])
async def test_a_wait_is_told_from_its_beginning_to_the_event(early: bool) -> None:
    @workflow
    async def ship(ctx: WorkflowContext) -> Any:
        await sleep(ctx, 1)
        return (await wait_event(ctx, "paid", subject="42", event_id="money")).data

    recorder = HookRecorder()
    async with TestEnvironment(workflows=[ship], hooks=recorder) as env:
        handle = await env.app.start_workflow(ship)
        if not early:
            await env.advance(10)
        await env.app.send_event("paid", "/bank", {"sum": 5}, subject="42")
        assert await handle.result() == {"sum": 5}

    assert recorder.names("on_timer_start", "on_timer_fired") == [
        *["workflow_start", "event_wait_start money", "event_received money", "event_wait_complete money"],
        "workflow_complete",
    ]
    (began,), (ended,) = recorder.of("on_event_wait_start"), recorder.of("on_event_wait_complete")
    assert (began.event_type, began.subject, began.due) == ("paid", "42", None)
    assert (ended.since, ended.event.data, ended.event.source) == (began.at, {"sum": 5}, "/bank")
    assert (ended.at - ended.since).total_seconds() == (0 if early else 9)


async def test_an_event_that_does_not_come_is_told() -> None:
    @workflow
    async def ship(ctx: WorkflowContext) -> None:
        with contextlib.suppress(EventTimeoutError):
            await wait_event(ctx, "paid", timeout=30, event_id="money")

    recorder = await record_hooks(ship)

    assert recorder.names() == [*["workflow_start", "event_wait_start money", "event_timeout money", "workflow_complete"]]
    (began,), (ended,) = recorder.of("on_event_wait_start"), recorder.of("on_event_timeout")
    assert (began.due, (ended.at - ended.since).total_seconds()) == (ended.at, 30)


@pytest.mark.parametrize("transactional", [True, False])
async def test_events_are_told_with_who_sent_them(transactional: bool) -> None:
    @activity(transactional=transactional)
    async def tell(ctx: ActivityContext) -> None:
        await send_event(ctx, "inner", "/activity", subject="s")

    @workflow
    async def speak(ctx: WorkflowContext) -> None:
        await tell(ctx)
        await send_event(ctx, "outer", "/workflow", {"n": 1}, event_id="7")
        await send_event(ctx, "raw", "/workflow", b"\xff", content_type="image/x")

    recorder = await record_hooks(speak)

    inner, outer, raw = recorder.of("on_event_sent")
    assert (inner.data, outer.data, raw.data) == (None, {"n": 1}, b"\xff")
    assert (inner.event_type, inner.source, inner.subject) == ("inner", "/activity", "s")
    assert (inner.activity_id, inner.attempt, bool(inner.event_id)) == ("tell:1", 1, True)
    assert (outer.event_type, outer.activity_id, outer.attempt, outer.event_id) == ("outer", None, None, "7")


async def test_what_a_failed_attempt_said_is_not_told() -> None:
    @activity(retry=RetryPolicy.fixed(2, 1))
    async def tell(ctx: ActivityContext) -> None:
        await send_event(ctx, f"attempt.{ctx.attempt}", "/activity")
        if ctx.attempt == 1:
            raise ConnectionError

    @workflow
    async def speak(ctx: WorkflowContext) -> None:
        await tell(ctx)

    recorder = await record_hooks(speak)

    assert [info.event_type for info in recorder.of("on_event_sent")] == ["attempt.2"]


async def test_an_event_that_starts_an_instance_is_told_as_received() -> None:
    @workflow(name="order.placed", event_handler=True)
    async def placed(ctx: WorkflowContext, order: int) -> int:
        return order

    @workflow(name="order.lost", event_handler=True)
    async def lost(ctx: WorkflowContext, order: int) -> int:
        return order

    recorder = HookRecorder()
    async with TestEnvironment(workflows=[placed, lost], hooks=recorder) as env:
        await env.app.send_event("order.placed", "/shop", {"order": 3})
        await env.settle()  # settles the first, so that the calls do not mix
        await env.app.send_event("order.lost", "/shop", {"nothing": "fits"})
        await env.settle()

    assert recorder.names() == [
        *["workflow_start", "event_received", "workflow_complete", "workflow_start", "event_received", "workflow_failed"]
    ]
    assert recorder.of("on_workflow_start")[0].event.data == {"order": 3}
    assert recorder.of("on_event_received")[0].activity_id is None


async def test_a_recurring_workflow_starts_once_and_tells_each_generation() -> None:
    @workflow
    async def count(ctx: WorkflowContext, n: int) -> int:
        await pack(ctx, str(n))
        if n < 3:
            await ctx.recur(n + 1)
        return n

    recorder = await record_hooks(count, 1)

    assert recorder.names("on_activity_start") == [
        *["workflow_start", "activity_complete pack:1", "workflow_recur"],
        *["activity_complete pack:1", "workflow_recur", "activity_complete pack:1", "workflow_complete"],
    ]
    assert [info.generation for info in recorder.of("on_activity_complete")] == [1, 2, 3]


@pytest.mark.usefixtures("everywhere")
async def test_who_takes_over_tells_only_what_is_new(new_database: Any) -> None:
    @activity
    async def hang(ctx: ActivityContext) -> str:
        if ctx.worker_id.startswith("first/"):
            await asyncio.Event().wait()
        return "done"

    @workflow
    async def relay(ctx: WorkflowContext) -> str:
        await pack(ctx, "a")
        _, result = await asyncio.gather(sleep(ctx, 0.01, sleep_id="rest"), hang(ctx))
        return result

    place, (first, second) = new_database(), (HookRecorder(), HookRecorder())
    dying = App(place, workflows=[relay], hooks=first, worker_id="first")
    await dying.startup()
    handle = await dying.start_workflow(relay.with_options(instance_id="one"))
    await first.until("on_activity_start", 2)
    await first.until("on_timer_fired")
    await dying._die()
    options: dict[str, Any] = {"heartbeat_interval": 0.05, "lease_timeout": 0.2, "poll_interval": 0.05}
    async with App(place, workflows=[relay], hooks=second, worker_id="second", **options) as app:
        assert await app.get_handle(handle.instance_id).result() == "done"

    assert first.names() == [
        *["workflow_start", "activity_start pack:1", "activity_complete pack:1", "timer_start rest"],
        *["activity_start hang:1", "timer_fired rest"],
    ]
    assert second.names() == [
        *["replay_start", "activity_cache_hit pack:1", "replay_complete"],
        *["activity_start hang:1", "activity_complete hang:1", "workflow_complete"],
    ]


async def test_an_attempt_that_is_lost_with_its_worker_is_told_by_the_next() -> None:
    beaten = asyncio.Event()

    @activity
    async def hang(ctx: ActivityContext) -> str:
        if ctx.last_heartbeat is None:
            ctx.heartbeat("half")
            beaten.set()
            await asyncio.Event().wait()
        return "done"

    @workflow
    async def relay(ctx: WorkflowContext) -> str:
        return await hang(ctx)

    recorder = HookRecorder()
    async with TestEnvironment(workflows=[relay], hooks=recorder) as env:
        handle = await env.app.start_workflow(relay)
        await beaten.wait()
        await env.settle()  # the heartbeat is written
        await env.restart()
        assert await handle.result() == "done"

    (info,) = recorder.of("on_activity_retry")
    assert (info.attempt, info.lost, info.error.type.rpartition(".")[2]) == (1, True, "LeaseLostError")
    assert [info.attempt for info in recorder.of("on_activity_start")] == [1, 2]


# --- errors of hooks


async def test_a_hook_that_raises_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Hooks):
        async def on_workflow_start(self, info: told.WorkflowStarted) -> None:
            raise ValueError("a")

        async def on_activity_start(self, info: told.ActivityStarted) -> None:
            raise SystemExit("b")

        async def on_activity_complete(self, info: told.ActivityCompleted) -> None:
            raise asyncio.CancelledError("c")

        def around_activity(self, info: told.ActivityStarted) -> AbstractContextManager[object]:
            raise ValueError("d")

        def event_extensions(self, info: told.EventSent) -> Mapping[str, str | int | bool]:
            raise ValueError("e")

    @workflow
    async def order(ctx: WorkflowContext) -> str:
        await send_event(ctx, "said", "/here")
        return await pack(ctx, "book")

    recorder = HookRecorder()
    async with TestEnvironment(workflows=[order], hooks=[Broken(), recorder]) as env:
        named = order.with_options(instance_id="1\nCRITICAL forged")  # must not make a line of its own
        assert await (await env.app.start_workflow(named)).result() == "book packed"

    assert recorder.names()[-1] == "workflow_complete"
    assert not any("\n" in record.getMessage() for record in caplog.records)
    complaints = [record.getMessage().partition(" ")[0] for record in caplog.records if record.name == "romancy.hooks"]
    assert {one.rpartition(".")[2] for one in complaints} == {
        *["around_activity", "event_extensions", "on_activity_complete", "on_activity_start", "on_workflow_start"]
    }
    assert len(complaints) == 5


async def test_a_slow_hook_holds_up_neither_the_engine_nor_other_hooks() -> None:
    gate = asyncio.Event()

    class Slow(Hooks):
        def __init__(self) -> None:
            self.called: list[str] = []

        async def on_workflow_start(self, info: told.WorkflowStarted) -> None:
            await gate.wait()
            self.called.append("start")

        async def on_workflow_complete(self, info: told.WorkflowCompleted) -> None:
            self.called.append("complete")

    @workflow
    async def order(ctx: WorkflowContext) -> str:
        return await pack(ctx, "book")

    slow, recorder = Slow(), HookRecorder()
    async with TestEnvironment(workflows=[order], hooks=[slow, recorder]) as env:
        assert await (await env.app.start_workflow(order)).result() == "book packed"
        await recorder.until("on_workflow_complete")
        assert slow.called == []
        gate.set()

    assert slow.called == ["start", "complete"]  # queued calls are made before the app is down


async def test_a_hook_that_never_ends_does_not_keep_an_app_from_stopping(caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    class Stuck(Hooks):
        async def on_workflow_start(self, info: told.WorkflowStarted) -> None:
            begun.set()
            await asyncio.Event().wait()

    @workflow
    async def order(ctx: WorkflowContext) -> None: ...

    async with TestEnvironment(workflows=[order], hooks=Stuck(), shutdown_timeout=0) as env:
        await (await env.app.start_workflow(order)).result()
        await begun.wait()

    assert "did not end in time" in caplog.text


async def test_calls_beyond_the_bound_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queue, "MAX_QUEUED_CALLS", 3)
    gate, called = asyncio.Event(), list[str]()

    class Slow(Hooks):
        async def on_activity_start(self, info: told.ActivityStarted) -> None:
            await gate.wait()
            called.append(info.activity_id)

    @workflow
    async def order(ctx: WorkflowContext) -> None:
        for n in range(8):
            await pack(ctx, str(n))

    with caplog.at_level(logging.WARNING, "romancy.hooks"):
        async with TestEnvironment(workflows=[order], hooks=Slow()) as env:
            await (await env.app.start_workflow(order)).result()
            gate.set()

    assert called == ["pack:1", "pack:2", "pack:3", "pack:4"]
    assert "4 calls were dropped" in caplog.text


async def test_plain_functions_are_hooks_too() -> None:
    called: list[str] = []

    class Plain(Hooks):
        def on_workflow_complete(self, info: told.WorkflowCompleted) -> None:  # type: ignore[override]
            called.append(info.result)

    @workflow
    async def order(ctx: WorkflowContext) -> str:
        return await pack(ctx, "book")

    async with TestEnvironment(workflows=[order], hooks=Plain()) as env:
        await (await env.app.start_workflow(order)).result()

    assert called == ["book packed"]


async def test_a_hook_may_use_the_app() -> None:
    @workflow
    async def second(ctx: WorkflowContext) -> None: ...

    class Chain(Hooks):
        async def on_workflow_complete(self, info: told.WorkflowCompleted) -> None:
            if info.workflow_name == "first":
                await env.app.start_workflow(second.with_options(instance_id="follower"))

    @workflow
    async def first(ctx: WorkflowContext) -> None: ...

    recorder = HookRecorder()
    async with TestEnvironment(workflows=[first, second], hooks=[Chain(), recorder]) as env:
        await (await env.app.start_workflow(first)).result()
        await recorder.until("on_workflow_complete", 2)

    assert [info.workflow_name for info in recorder.of("on_workflow_complete")] == ["first", "second"]


# --- around_activity and event_extensions

CURRENT = contextvars.ContextVar("CURRENT", default="nothing")


class Around(Hooks):
    """Sets a context variable around activities, and adds it to events."""

    def __init__(self, name: str = "a", log: list[str] | None = None) -> None:
        self.name, self.log = name, log if log is not None else []

    @contextlib.contextmanager
    def around_activity(self, info: told.ActivityStarted) -> Iterator[None]:
        token = CURRENT.set(f"{self.name} {info.activity_id}")
        self.log.append(f"+{self.name}")
        try:
            yield
        finally:
            self.log.append(f"-{self.name}")
            CURRENT.reset(token)

    def event_extensions(self, info: told.EventSent) -> Mapping[str, str | int | bool]:
        return {"who": f"{self.name} {info.activity_id}", self.name: 1}


async def test_what_is_around_an_activity_is_in_force_inside_it() -> None:
    @activity
    async def asked(ctx: ActivityContext) -> str:
        await asyncio.sleep(0)
        return CURRENT.get()

    @activity
    def asked_in_a_thread(ctx: ActivityContext) -> str:
        return CURRENT.get()

    @workflow
    async def ask(ctx: WorkflowContext) -> list[str]:
        return [await asked(ctx), await asked_in_a_thread(ctx), CURRENT.get()]

    log: list[str] = []
    async with TestEnvironment(workflows=[ask], hooks=[Around("a", log), Around("b", log)]) as env:
        result = await (await env.app.start_workflow(ask)).result()

    assert result == ["b asked:1", "b asked_in_a_thread:1", "nothing"]
    assert log == ["+a", "+b", "-b", "-a"] * 2


async def test_what_is_around_an_activity_cannot_swallow_its_error() -> None:
    class Swallow(Hooks):
        def around_activity(self, info: told.ActivityStarted) -> AbstractContextManager[object]:
            return contextlib.suppress(BaseException)

    @workflow
    async def fail(ctx: WorkflowContext) -> None:
        await refuse(ctx)

    async with TestEnvironment(workflows=[fail], hooks=Swallow()) as env:
        with pytest.raises(WorkflowFailedError):
            await (await env.app.start_workflow(fail)).result()


@pytest.mark.parametrize("of_its_own", [True, False])
async def test_what_is_around_an_activity_may_fail_with_it(of_its_own: bool, caplog: pytest.LogCaptureFixture) -> None:
    class Fragile(Hooks):
        @contextlib.contextmanager
        def around_activity(self, info: told.ActivityStarted) -> Iterator[None]:
            try:
                yield
            except Exception:
                if of_its_own:
                    raise LookupError("no span") from None
                raise

    @workflow
    async def fail(ctx: WorkflowContext) -> None:
        await refuse(ctx)

    async with TestEnvironment(workflows=[fail], hooks=Fragile()) as env:
        with pytest.raises(WorkflowFailedError, match=r"no$"):
            await (await env.app.start_workflow(fail)).result()
    assert ("no span" in caplog.text) == of_its_own


async def test_after_some_calls_at_a_stretch_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_YIELD_EVERY", 2)
    turns: list[Any] = []
    lane = queue.HookQueue(Hooks())
    for number in range(5):
        lane.push(turns.append, number)
    while len(turns) < 8:
        turns.append("another")
        await asyncio.sleep(0)
    await lane.abandon()
    assert turns[:6] == ["another", 0, 1, "another", 2, 3]


@pytest.mark.usefixtures("everywhere")
async def test_what_an_activity_with_a_session_says_is_told_once_it_is_committed() -> None:
    @activity
    async def tell(ctx: ActivityContext) -> None:
        assert await ctx.session.connection() is not None
        await send_event(ctx, "inner", "/activity")

    @workflow
    async def speak(ctx: WorkflowContext) -> None:
        await tell(ctx)

    recorder = await record_hooks(speak)
    assert [info.event_type for info in recorder.of("on_event_sent")] == ["inner"]


@pytest.mark.parametrize("transactional", [True, False])
async def test_hooks_add_to_events_and_the_sender_has_the_last_word(transactional: bool) -> None:
    @activity(transactional=transactional)
    async def tell(ctx: ActivityContext) -> None:
        await send_event(ctx, "inner", "/activity")

    @workflow
    async def speak(ctx: WorkflowContext) -> list[dict[str, Any]]:
        await tell(ctx)
        await send_event(ctx, "outer", "/workflow", extensions={"who": "me"})
        return [dict((await wait_event(ctx, name)).extensions) for name in ("inner", "outer")]

    async with TestEnvironment(workflows=[speak], hooks=[Around("a"), Around("b")], replay_always=True) as env:
        inner, outer = await (await env.app.start_workflow(speak)).result()

    assert inner == {"who": "a tell:1", "a": 1, "b": 1}
    assert outer == {"who": "me", "a": 1, "b": 1}
