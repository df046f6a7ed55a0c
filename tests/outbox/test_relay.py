"""Events from workflows to brokers, on every database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import pytest
from tests.http.asgi_client import STRUCTURED, call
from tests.outbox.fake_broker import Desk

from romancy import (
    ActivityContext,
    App,
    Client,
    ConfigurationError,
    EventRejectedError,
    OutboxEntry,
    RetryPolicy,
    Status,
    Workflow,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    send_event,
    wait_event,
    workflow,
)
from romancy.brokers import BrokerError, Event
from romancy.model.outbox import OutboxRow
from romancy.outbox.relay import Relay
from romancy.serde.messaging import event_json
from romancy.store.sql.store import SqlStore

NEVER = RetryPolicy(max_attempts=1)


@activity
async def send_told(ctx: ActivityContext, event_id: str, local: bool) -> None:
    await send_event(ctx, "told", "/shop", {"by": "activity"}, event_id=event_id, local=local)


@activity(retry=RetryPolicy.fixed(3, 0))
async def send_at_the_end(ctx: ActivityContext) -> None:
    await send_event(ctx, "told", "/shop", event_id=f"attempt-{ctx.attempt}")
    if ctx.attempt < 3:
        raise RuntimeError("not yet")


@activity(transactional=False, retry=NEVER)
async def send_at_once(ctx: ActivityContext) -> None:
    await send_event(ctx, "told", "/shop", event_id="at-once", local=False)
    raise RuntimeError("too late to take it back")


@activity
async def send_with_session(ctx: ActivityContext) -> None:
    from sqlalchemy import text

    await ctx.session.execute(text("SELECT 1"))
    await send_event(ctx, "told", "/shop", event_id="with-session", local=False)


@workflow
async def sending_workflow(ctx: WorkflowContext, event_id: str, local: bool = True) -> None:
    await send_event(ctx, "told", "/shop", {"n": 1}, event_id=event_id, subject="s", extensions={"trace": 7}, local=local)


@workflow
async def waiting_workflow(ctx: WorkflowContext) -> str:
    return (await wait_event(ctx, "told")).id


@workflow
async def by_activity(ctx: WorkflowContext, event_id: str, local: bool = True) -> None:
    await send_told(ctx, event_id, local)


@workflow
async def by_late_activity(ctx: WorkflowContext) -> None:
    await send_at_the_end(ctx)


@workflow
async def by_hasty_activity(ctx: WorkflowContext) -> None:
    await send_at_once(ctx)


@workflow
async def by_session(ctx: WorkflowContext) -> None:
    await send_with_session(ctx)


ALL: list[Workflow[..., Any]] = [
    sending_workflow,
    waiting_workflow,
    by_activity,
    by_late_activity,
    by_hasty_activity,
    by_session,
]


def app_on(database: str, broker: Any = None, **more: Any) -> App:
    return App(database, workflows=ALL, broker=broker, outbox_interval=30, **more)


async def entries(app: Client, dead: bool | None = None) -> list[OutboxEntry]:
    return (await app.list_outbox(dead=dead)).items


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        await asyncio.sleep(0.005)


async def left(app: Client, count: int = 0, dead: bool | None = None) -> list[OutboxEntry]:
    """Wait until the outbox has so many entries, and return them."""

    async def has_count() -> bool:
        return len(await entries(app, dead)) == count

    await until(has_count)
    return await entries(app, dead)


async def emptied(app: Client) -> None:
    await left(app, 0)


# --- sending


async def test_an_event_goes_to_those_who_wait_here_and_to_the_broker(database: str) -> None:
    desk = Desk()
    async with app_on(database, desk) as app:
        waiting = await app.start_workflow(waiting_workflow)
        await (await app.start_workflow(sending_workflow, "e-1")).result()
        await desk.has("e-1")
        assert await waiting.result(timeout=30) == "e-1"
        await emptied(app)
    (event,) = desk.kept
    assert (event.type, event.source, event.subject, event.data) == ("told", "/shop", "s", b'{"n":1}')
    assert (event.extensions, event.datacontenttype) == ({"trace": 7}, "application/json")
    assert event.time is not None


async def test_an_event_for_brokers_only_wakes_no_instance(database: str) -> None:
    desk = Desk()
    async with app_on(database, desk) as app:
        waiting = await app.start_workflow(waiting_workflow)
        await (await app.start_workflow(sending_workflow, "out", local=False)).result()
        await (await app.start_workflow(by_activity, "out-2", local=False)).result()
        accepted = await app.send_event("told", "/shop", event_id="out-3", local=False)
        assert (accepted.duplicate, accepted.instance_ids) == (False, ())
        await desk.has("out", "out-2", "out-3")
        await app.send_event("told", "/shop", event_id="in")
        assert await waiting.result(timeout=30) == "in"


async def test_an_event_goes_with_the_attempt_that_succeeds(database: str) -> None:
    desk = Desk()
    async with app_on(database, desk) as app:
        await (await app.start_workflow(by_late_activity)).result()
        await desk.has("attempt-3")
        await emptied(app)
    assert desk.ids == ["attempt-3"]


async def test_an_activity_without_a_transaction_sends_at_once(database: str) -> None:
    desk = Desk()
    async with app_on(database, desk) as app:
        with pytest.raises(WorkflowFailedError):
            await (await app.start_workflow(by_hasty_activity)).result()
        await desk.has("at-once")


async def test_an_activity_with_a_session_sends_with_its_commit(database: str) -> None:
    desk = Desk()
    async with app_on(database, desk) as app:
        await (await app.start_workflow(by_session)).result(timeout=30)
        await desk.has("with-session")


async def test_what_a_client_sends_an_app_relays(database: str) -> None:
    desk = Desk()
    async with (
        App(database, workflows=ALL, broker=desk, outbox_interval=0.02),
        Client(database, workflows=[], broker=Desk()) as client,
    ):
        await client.send_event("told", "/shop", event_id="e-1")
        await desk.has("e-1")


async def test_each_broker_gets_it_under_its_name(database: str) -> None:
    one, two = Desk(), Desk()
    async with app_on(database, {"one": one, "two": two}) as app:
        await app.send_event("told", "/shop", event_id="e-1")
        await asyncio.gather(one.has("e-1"), two.has("e-1"))


async def test_what_a_lock_of_another_claim_covered_is_found_at_the_next_look(database: str) -> None:
    desk, claims = Desk(), list[int]()
    claim = SqlStore.claim_outbox

    async def covered(self: SqlStore, *given: Any, **more: Any) -> list[OutboxRow]:
        claims.append(len(claims))
        return [] if len(claims) == 1 else await claim(self, *given, **more)

    with mock.patch.object(SqlStore, "claim_outbox", covered):
        async with App(database, workflows=ALL, broker=desk, outbox_interval=3600) as app:
            await app.send_event("told", "/shop", event_id="e-1")
            await desk.has("e-1")
    assert len(claims) >= 2


async def test_a_duplicate_is_not_sent_again(database: str) -> None:
    desk = Desk()
    async with app_on(database, desk) as app:
        for event_id in ("e-1", "e-1", "e-2"):
            await app.send_event("told", "/shop", event_id=event_id)
        await desk.has("e-1", "e-2")
        await emptied(app)
    assert desk.times == {"e-1": 1, "e-2": 1}


async def test_what_comes_from_outside_does_not_go_round_in_circles(database: str) -> None:
    desk = Desk()
    async with app_on(database, desk) as app:
        await app.accept_events([Event("from-outside", "/bank", "told")])
        assert await entries(app) == []


async def test_what_comes_back_is_known(database: str) -> None:
    async def post_back(event: Event, nth: int) -> None:
        answer = await call(app, "/events", headers=STRUCTURED, body=event_json(event))
        assert answer.status == 202, answer.body

    desk = Desk(post_back)
    async with app_on(database, desk) as app:
        first = await app.start_workflow(waiting_workflow)
        await app.send_event("told", "/shop", event_id="e-1")
        assert await first.result(timeout=30) == "e-1"
        second = await app.start_workflow(waiting_workflow)
        await desk.has("e-1")
        await app.send_event("told", "/shop", event_id="e-2")
        assert await second.result(timeout=30) == "e-2", "the first event was a duplicate when it came back"


async def test_what_was_for_brokers_only_is_accepted_when_it_comes_back(database: str) -> None:
    async def post_back(event: Event, nth: int) -> None:
        await app.accept_events([event])

    desk = Desk(post_back)
    async with app_on(database, desk) as app:
        waiting = await app.start_workflow(waiting_workflow)
        await app.send_event("told", "/shop", event_id="e-1", local=False)
        assert await waiting.result(timeout=30) == "e-1"


# --- without a broker


async def test_for_brokers_only_there_must_be_one(database: str) -> None:
    async with app_on(database, default_retry=RetryPolicy.none()) as app, Client(database, workflows=ALL) as client:
        for one in (app, client):
            with pytest.raises(ConfigurationError, match="this app has none"):
                await one.send_event("told", "/shop", local=False)
        for wf in (sending_workflow, by_activity):
            handle = await app.start_workflow(wf, "e-1", local=False)
            with pytest.raises(WorkflowFailedError, match="this app has none"):
                await handle.result()
        with pytest.raises(ConfigurationError, match="True or False"):
            await app.send_event("told", "/shop", local=1)  # type: ignore[arg-type]


@workflow
async def send_and_wait(ctx: WorkflowContext) -> str:
    await send_event(ctx, "told", "/shop", event_id="e-1", local=False)
    return (await wait_event(ctx, "go on")).id


async def test_what_was_sent_with_a_broker_can_be_replayed_without(database: str) -> None:
    desk = Desk()
    async with App(database, workflows=[send_and_wait], broker=desk) as app:
        handle = await app.start_workflow(send_and_wait)
        await desk.has("e-1")
        while await handle.status() is not Status.WAITING_FOR_EVENT:
            await asyncio.sleep(0.005)
    async with App(database, workflows=[send_and_wait]) as app:
        await app.send_event("go on", "/shop", event_id="g-1")
        assert await app.get_handle(handle.instance_id).result(timeout=30) == "g-1"


async def test_an_app_leaves_the_rows_of_other_brokers_alone(database: str) -> None:
    async with Client(database, workflows=[], broker=Desk(name="far")) as client:
        await client.send_event("told", "/shop", event_id="for-another")
    desk = Desk()
    async with app_on(database, desk) as app:
        await app.send_event("told", "/shop", event_id="mine")
        await desk.has("mine")
        (far,) = await left(app, 1)
    assert (far.broker, far.event.id, far.attempts, far.claimed_by) == ("far", "for-another", 0, None)
    assert desk.ids == ["mine"]


# --- errors


async def test_one_that_fails_does_not_hold_up_the_others(database: str) -> None:
    async def answer(event: Event, nth: int) -> None:
        if event.id == "bad":
            raise BrokerError("not this one")

    desk = Desk(answer)
    async with app_on(database, desk) as app:
        await app.send_event("told", "/shop", event_id="bad")
        await desk.was_given("bad", 2)
        for n in range(20):
            await app.send_event("told", "/shop", event_id=f"e-{n}")
        await desk.has(*(f"e-{n}" for n in range(20)))
        (bad,) = await left(app, 1)
        assert bad.event.id == "bad"
        assert bad.attempts >= 2


async def test_a_row_is_there_until_the_broker_has_answered(database: str) -> None:
    """If it were deleted earlier, a crash during the delivery would lose the event."""
    left: list[str] = []
    apps: list[App] = []

    async def answer(event: Event, nth: int) -> None:
        if event.id == "e-1":  # the relay sends another event meanwhile, and records its delivery
            await apps[0].send_event("told", "/shop", event_id="e-2")
            await desk.has("e-2")
            left.extend(entry.event.id for entry in (await apps[0].list_outbox()).items)

    desk = Desk(answer)
    async with app_on(database, desk) as app:
        apps.append(app)
        await app.send_event("told", "/shop", event_id="e-1")
        await desk.has("e-1")
        await emptied(app)
    assert "e-1" in left


async def test_one_that_hangs_does_not_hold_up_the_others(database: str) -> None:
    released = asyncio.Event()

    async def answer(event: Event, nth: int) -> None:
        if event.id == "slow":
            await released.wait()

    desk = Desk(answer, concurrency=2)
    async with app_on(database, desk, outbox_batch_size=2) as app:
        await app.send_event("told", "/shop", event_id="slow")
        await desk.was_given("slow")
        for n in range(9):
            await app.send_event("told", "/shop", event_id=f"e-{n}")
        await desk.has(*(f"e-{n}" for n in range(9)))
        released.set()
        await desk.has("slow")


async def test_a_broker_that_is_away_does_not_hold_up_another(database: str) -> None:
    async def away(event: Event, nth: int) -> None:
        raise ConnectionRefusedError("unreachable")

    here, there = Desk(name="here"), Desk(away, name="there")
    async with app_on(database, [there, here]) as app:
        for n in range(5):
            await app.send_event("told", "/shop", event_id=f"e-{n}")
        await here.has(*(f"e-{n}" for n in range(5)))
        assert {entry.broker for entry in await left(app, 5)} == {"there"}


@pytest.mark.parametrize(
    "error", [RuntimeError("x\0y\ud800"), TimeoutError(), asyncio.CancelledError(), GeneratorExit(), BaseException("odd")]
)
async def test_whatever_a_broker_raises_it_is_tried_again(database: str, error: BaseException) -> None:
    async def answer(event: Event, nth: int) -> None:
        if nth <= 2:
            raise error

    desk = Desk(answer)
    async with app_on(database, desk) as app:
        await app.send_event("told", "/shop", event_id="e-1")
        await desk.has("e-1")
        await emptied(app)
    assert desk.times == {"e-1": 3}


async def test_what_is_rejected_is_dead_at_once_and_can_be_requeued(database: str) -> None:
    async def answer(event: Event, nth: int) -> None:
        if nth == 1:
            raise EventRejectedError("410 Gone")

    desk = Desk(answer)
    async with app_on(database, desk) as app:
        for n in range(3):
            await app.send_event("told", "/shop", event_id=f"e-{n}")
        first, *_ = await left(app, 3, dead=True)
        assert (first.attempts, first.last_error, first.next_at) == (1, "410 Gone", None)
        assert first.dead_at is not None
        assert await entries(app, dead=False) == []
        assert await app.requeue_outbox([first.id, 10**12]) == 1
        await desk.has(first.event.id)
        assert await app.requeue_outbox() == 2
        await desk.has("e-0", "e-1", "e-2")
        await emptied(app)
        assert await app.requeue_outbox() == 0


async def test_after_its_last_attempt_it_is_dead(database: str) -> None:
    async def answer(event: Event, nth: int) -> None:
        raise BrokerError("never")

    desk = Desk(answer, retry=RetryPolicy.fixed(3, 0.01))
    async with app_on(database, desk) as app:
        await app.send_event("told", "/shop", event_id="e-1")
        (entry,) = await left(app, 1, dead=True)
        assert entry.attempts == 3
    assert desk.times == {"e-1": 3}


async def test_a_broker_that_does_not_start_is_started_again(database: str, caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Desk):
        starts = 0

        async def start(self) -> None:
            self.starts += 1
            if self.starts == 1:
                raise ConnectionRefusedError("not yet")
            await super().start()

    desk = Slow()
    async with app_on(database, desk) as app:
        await app.send_event("told", "/shop", event_id="e-1")
        await desk.has("e-1")
    assert desk.starts == 2
    assert "could not be started, will try again: ConnectionRefusedError: not yet" in caplog.text


async def test_trouble_is_logged_once_and_its_end_too(database: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "romancy.outbox")

    async def answer(event: Event, nth: int) -> None:
        if nth <= 3:
            raise BrokerError("no route\nCRITICAL\x1b[31m forged")

    desk = Desk(answer)
    async with app_on(database, desk) as app:
        await app.send_event("told", "/shop", event_id="e-1")
        await desk.has("e-1")
        await emptied(app)
    assert caplog.text.count("will try again: no route CRITICAL\\x1b[31m forged") == 1
    assert "accepts events again" in caplog.text


# --- concurrency and shutdown


async def test_a_broker_gets_no_more_at_once_than_it_wants(database: str) -> None:
    together = asyncio.Barrier(3)

    async def answer(event: Event, nth: int) -> None:
        await together.wait()

    desk = Desk(answer, concurrency=3)
    async with app_on(database, desk, outbox_batch_size=7) as app:
        for n in range(30):
            await app.send_event("told", "/shop", event_id=f"e-{n}", local=False)
        await desk.has(*(f"e-{n}" for n in range(30)))
    assert desk.most == 3


async def test_at_shutdown_what_is_on_its_way_arrives(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    released = asyncio.Event()
    stop = Relay.stop

    async def release_and_stop(relay: Relay, seconds: float) -> None:
        asyncio.get_running_loop().call_soon(released.set)  # once the relay waits
        await stop(relay, seconds)

    monkeypatch.setattr(Relay, "stop", release_and_stop)

    async def answer(event: Event, nth: int) -> None:
        await released.wait()

    desk = Desk(answer)
    app = app_on(database, desk)
    await app.startup()
    await app.send_event("told", "/shop", event_id="e-1")
    await desk.was_given("e-1")
    await app.shutdown()
    assert (desk.ids, desk.open) == (["e-1"], False)
    async with Client(database, workflows=[]) as client:
        assert await entries(client) == []


async def test_at_shutdown_what_takes_too_long_is_given_back(database: str) -> None:
    async def answer(event: Event, nth: int) -> None:
        await asyncio.Event().wait()

    desk = Desk(answer, concurrency=1)
    app = app_on(database, desk, shutdown_timeout=0)
    await app.startup()
    for n in range(3):
        await app.send_event("told", "/shop", event_id=f"e-{n}")
    await desk.was_given("e-0")
    await app.shutdown()
    async with Client(database, workflows=[]) as client:
        found = [(entry.event.id, entry.attempts, entry.claimed_by) for entry in await entries(client)]
    assert found == [(f"e-{n}", 0, None) for n in range(3)]
    other = Desk()
    async with app_on(database, other):
        await other.has("e-0", "e-1", "e-2")


async def test_an_app_can_start_again(database: str) -> None:
    desk = Desk()
    app = app_on(database, desk)
    for n in range(2):
        async with app:
            await app.send_event("told", "/shop", event_id=f"e-{n}")
            await desk.has(f"e-{n}")


async def test_a_send_that_outlives_its_claim_is_cut_off(database: str) -> None:
    async def answer(event: Event, nth: int) -> None:
        if nth == 1:
            await asyncio.Event().wait()

    desk = Desk(answer)
    async with app_on(database, desk, heartbeat_interval=0.05, lease_timeout=0.2) as app:
        await app.send_event("told", "/shop", event_id="e-1")
        await desk.has("e-1")
    assert desk.times == {"e-1": 2}


# --- listing


async def test_the_list_has_pages(database: str) -> None:
    async with Client(database, workflows=[], broker=Desk()) as client:
        for n in range(5):
            await client.send_event("told", "/shop", {"n": n}, event_id=f"e-{n}")
        first = await client.list_outbox(limit=3)
        rest = await client.list_outbox(limit=3, page_token=first.next_page_token)
        assert [entry.event.data for entry in first.items + rest.items] == [{"n": n} for n in range(5)]
        assert (first.has_more, rest.has_more) == (True, False)
        wrongs: list[dict[str, Any]] = [{"dead": 1}, {"limit": 0}, {"page_token": "x"}]
        for wrong in wrongs:
            with pytest.raises(ConfigurationError):
                await client.list_outbox(**wrong)
        for ids in (["1"], "12", [0], [2**63], [True]):
            with pytest.raises(ConfigurationError, match="ids="):
                await client.requeue_outbox(ids)  # type: ignore[arg-type]


async def test_it_is_counted(database: str) -> None:
    async def answer(event: Event, nth: int) -> None:
        if event.id == "bad":
            raise EventRejectedError("no")

    desk = Desk(answer)
    async with app_on(database, desk) as app:
        await app.send_event("told", "/shop", event_id="good")
        await app.send_event("told", "/shop", event_id="bad")
        await desk.has("good")
        await desk.was_given("bad")

        def figure(name: str) -> float:
            return {one.name: one.value for one in app.metrics()}[name]

        async def settled() -> bool:
            return figure("romancy_outbox_failed_total") == 1 and figure("romancy_outbox_delivered_total") == 1

        await until(settled)
        assert figure("romancy_outbox_pending") >= 0
        assert figure("romancy_outbox_dead") >= 0
    async with app_on(database) as app:
        assert not [one for one in app.metrics() if "outbox" in one.name]
