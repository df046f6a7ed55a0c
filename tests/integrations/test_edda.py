"""Tests of programs for Edda on this engine: with changed imports they run and survive crashes."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import pytest
from cloudevents.core.v1.event import CloudEvent
from httpx import ASGITransport, AsyncClient
from sqlalchemy import text
from tests.integrations import edda_programs as programs
from tests.integrations.edda_programs import done
from tests.outbox.fake_broker import Desk

import romancy
from romancy import App, ConfigurationError, InvalidWorkflowStateError, Status, TerminalError
from romancy.integrations import edda
from romancy.integrations.edda import EddaApp, RetryExhaustedError, WorkflowContext, publish, workflow
from romancy.integrations.edda.compensation import run_registered
from romancy.integrations.edda.context import RegisteredCompensation
from romancy.integrations.edda.current_app import unset_current_app
from romancy.integrations.edda.events import ReceivedEvent, send_event
from romancy.testing import TestEnvironment


@pytest.fixture(autouse=True)
def _clean() -> None:
    done.clear()
    programs.attempts.clear()


@asynccontextmanager
async def running(*workflows: Any, **options: Any) -> AsyncIterator[tuple[TestEnvironment, EddaApp]]:
    """A test environment, and its app as an Edda app."""
    async with TestEnvironment(workflows=[one.romancy for one in workflows], **options) as env:
        app = EddaApp.over(env.app)
        await app.initialize()
        try:
            yield env, app
        finally:
            unset_current_app(env.app)


async def result(env: TestEnvironment, instance_id: str) -> Any:
    return await env.app.get_handle(instance_id).result()


async def output(env: TestEnvironment, app: EddaApp, instance_id: str) -> Any:
    """The result of an instance that ends without any time passing."""
    await env.settle()
    found = await app.storage.get_instance(instance_id)
    assert found is not None
    assert found["status"] == "completed"
    return found["output_data"]["result"]


async def status(app: EddaApp, instance_id: str) -> str:
    found = await app.storage.get_instance(instance_id)
    assert found is not None
    return str(found["status"])


# --- simple


async def test_a_simple_program_runs_to_its_end_in_start(file: str) -> None:
    app = EddaApp(service_name="club", db_url=f"sqlite+aiosqlite:///{file}", workflows=[programs.membership])
    await app.initialize()
    try:
        instance_id = await programs.membership.start(name="Ada")
        found = await app.storage.get_instance(instance_id)
    finally:
        await app.shutdown()
    assert found is not None
    assert (found["status"], found["output_data"]) == ("completed", {"result": {"name": "Ada", "total": 19}})
    assert sorted(done) == ["add_up 10", "add_up 3", "look_up Ada"]


@pytest.mark.parametrize("step", range(1, 9))
async def test_a_simple_program_survives_a_crash(step: int) -> None:
    async with running(programs.membership) as (env, _):
        handle = await env.app.start_workflow(programs.membership.romancy, "Ada")
        env.crash_at_step(step)
        assert await handle.result() == {"name": "Ada", "total": 19}
        assert env.crashes == 1
        assert {entry.activity_id async for entry in handle.history()} >= {"look_up:1", "add:a", "add:b"}


# --- compensation

COMPENSATIONS = ["refund P-7 of 7: 9.5", "release R-7"]


async def test_completed_activities_are_compensated_in_reverse_order() -> None:
    async with running(programs.order) as (_, app):
        with pytest.raises(RetryExhaustedError) as caught:
            await programs.order.start(order_id="7", items=["a", "b"], amount=9.5)
        assert isinstance(caught.value.__cause__, ConnectionError)
        assert done == ["reserve 7", "charge 7", "ship 7", *COMPENSATIONS]
        page = await app.find_instances(input_filters={"order_id": "7"}, status="failed")
        assert [one["workflow_name"] for one in page["instances"]] == ["order"]
        assert page["instances"][0]["output_data"]["error_type"] == "RetryExhaustedError"
        assert page["has_more"] is False


async def test_compensation_continues_after_a_crash() -> None:
    async with running(programs.order) as (env, _):
        env.crash_at("activity.before", 5)  # the fifth call is `release`, after reserve, charge, ship and refund
        handle = await env.app.start_workflow(programs.order.romancy, "7", ["a"], 9.5)
        with pytest.raises(romancy.WorkflowFailedError):
            await handle.result()
        assert env.crashes == 1
        assert [one for one in done if one.startswith("re") and not one.startswith("reserve")] == COMPENSATIONS


@edda.compensation
async def needs_more(ctx: WorkflowContext, ticket: str) -> None:
    done.append("never")


@edda.activity
@edda.on_failure(needs_more)
async def forgetful(ctx: WorkflowContext, seat: int) -> dict[str, int]:
    return {"row": 4}


@workflow
async def failing(ctx: WorkflowContext) -> None:
    await forgetful(ctx, 3)
    raise ValueError("rain")


async def test_a_compensation_that_cannot_be_called_says_what_is_missing() -> None:
    async with running(failing) as (_, app):
        with pytest.raises(ValueError, match="rain"):
            await failing.start()
        (found,) = (await app.find_instances())["instances"]
        history = json.dumps(await app.storage.get_history(found["instance_id"]))
        assert "needs 'ticket', which neither the arguments of forgetful nor its result have" in history
        assert done == []


def test_a_compensated_activity_has_no_parameter_called_result() -> None:
    async def odd(ctx: WorkflowContext, result: int) -> None: ...

    with pytest.raises(ConfigurationError, match="parameter called `result`"):
        edda.activity(edda.on_failure(needs_more)(odd))


def test_on_failure_stands_below_activity() -> None:
    with pytest.raises(ConfigurationError, match="directly above the function, below @activity"):
        edda.on_failure(needs_more)(programs.ship)


# --- cancellation


async def test_registered_compensations_run_after_a_cancellation_and_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(programs.journey) as (env, app):
        instance_id = await programs.journey.start(to="Oslo")
        assert await status(app, instance_id) == "waiting_for_event"
        await env.restart()
        monkeypatch.setattr(sys.modules["romancy.integrations.edda.compensation"], "_known", {})  # as in a new process
        assert await app.replay_engine.cancel_workflow(instance_id, cancelled_by="Ada")
        with pytest.raises(romancy.WorkflowCancelledError, match="cancelled by Ada"):
            await result(env, instance_id)
        assert done == ["book Hotel Oslo", "book LH Oslo", "stop LH Oslo", "cancel Hotel Oslo 12"]
        assert await status(app, instance_id) == "cancelled"
        assert not await app.replay_engine.cancel_workflow(instance_id)
        assert not await app.replay_engine.cancel_workflow("missing")


FOREIGN = [
    ("os:system", ["touch"]),
    ("posix:system", ["touch"]),
    ("os:spawnlp", [0, "touch", "touch"]),
    ("asyncio.subprocess:create_subprocess_exec", ["touch"]),
    ("tests.integrations.edda_programs:not_named_by_the_activity", []),
    ("a_module_that_runs_when_imported:anything", []),
]


@pytest.mark.parametrize(("function", "args"), FOREIGN)
async def test_a_record_does_not_choose_what_is_called(
    function: str, args: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker with write access to the database replaces the function in a recorded result."""
    ran = tmp_path / "ran"
    (tmp_path / "a_module_that_runs_when_imported.py").write_text(f"open({str(ran)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    forged = RegisteredCompensation(function, [*args, str(ran)], {})
    with pytest.raises(TerminalError, match="is unknown in this process: decorate it with @compensation"):
        await run_registered([forged], programs.book_flight.func, cast(Any, None))
    assert not ran.exists()
    assert "never" not in done


async def test_an_activity_that_registers_returns_its_own_result() -> None:
    async with running(programs.journey) as (env, _):
        instance_id = await programs.journey.start(to="Oslo")
        await send_event("journey.paid", "bank", {"amount": 5})
        assert await result(env, instance_id) == {"hotel": "Hotel Oslo", "flight": "LH Oslo", "paid": 5}
        assert done == ["book Hotel Oslo", "book LH Oslo"]


async def hidden(ctx: WorkflowContext) -> None:
    await edda.register_compensation(ctx, programs.release, "R")


@edda.activity(retry_policy=programs.ONCE)
async def indirect(ctx: WorkflowContext) -> None:
    await hidden(ctx)


@workflow
async def registering_indirectly(ctx: WorkflowContext) -> None:
    await indirect(ctx)


async def test_registering_in_a_helper_of_an_activity_is_refused() -> None:
    async with running(registering_indirectly):
        with pytest.raises(RetryExhaustedError) as caught:
            await registering_indirectly.start()
        assert isinstance(caught.value.__cause__, InvalidWorkflowStateError)
        assert "in the activity's own function, or in the workflow" in str(caught.value.__cause__)


# --- events and timers


async def test_an_event_comes_after_a_crash() -> None:
    async with running(programs.payment, replay_always=True) as (env, app):
        instance_id = await programs.payment.start(order_id="1")
        assert await status(app, instance_id) == "waiting_for_event"
        await env.restart()
        await send_event(event_type="payment.completed", source="bank", data={"amount": 3})
        expected = {"payment": "PAY-1", "data": {"amount": 3}, "source": "bank", "type": "payment.completed"}
        assert await result(env, instance_id) == expected
        assert done == ["begin 1"]


async def test_the_data_of_an_event_has_a_type_and_its_time_is_text() -> None:
    async with running(programs.typed_payment) as (env, _):
        instance_id = await programs.typed_payment.start(order_id="1")
        await send_event("payment.completed", "bank", programs.PaymentDone(order_id="1", amount=2.5))
        assert await result(env, instance_id) == {"amount": 2.5, "time": "2030-01-01T00:00:00+00:00", "order": "1"}


async def test_timers_survive_a_crash_and_a_timeout_names_the_missing_event() -> None:
    async with running(programs.patient) as (env, app):
        instance_id = await programs.patient.start()
        assert await status(app, instance_id) == "waiting_for_timer"
        await env.advance(30)
        await env.restart()
        assert await result(env, instance_id) == "never after 10"
        assert (env.now() - env.now().replace(hour=0, minute=0, second=0)).total_seconds() == 100


@workflow
async def raw(ctx: WorkflowContext) -> str:
    event = await edda.wait_event(ctx, "raw")
    assert isinstance(event, ReceivedEvent)
    first = str(event.data["_binary"], "ascii")
    return first + str((await edda.wait_event(ctx, "plain")).data["_data"])


async def test_data_that_is_no_object_is_found_under_the_names_of_edda() -> None:
    async with running(raw) as (env, _):
        instance_id = await raw.start()
        await send_event("raw", "bank", b"bytes", datacontenttype="text/plain")
        await send_event("plain", "bank", [1])
        assert await result(env, instance_id) == "bytes[1]"


async def test_an_event_is_handled_as_a_cloudevent_or_a_dict_and_may_be_addressed() -> None:
    async with running(programs.payment) as (env, app):
        first, second = [await programs.payment.start(order_id=one) for one in "12"]
        about = {"specversion": "1.0", "type": "payment.completed", "source": "bank", "id": "e1", "eddainstanceid": second}
        await app.handle_cloudevent(CloudEvent(about, {"amount": 1}))
        assert (await output(env, app, second))["data"] == {"amount": 1}
        assert await status(app, first) == "waiting_for_event"
        await app.handle_cloudevent({"type": "payment.completed", "source": "bank", "id": "e2", "data": {"amount": 2}})
        assert (await result(env, first))["data"] == {"amount": 2}
        with pytest.raises(ConfigurationError, match="needs a CloudEvent or a dict"):
            await app.handle_cloudevent("payment.completed")


def structured(target: str, number: int) -> dict[str, Any]:
    about = {"specversion": "1.0", "type": "payment.completed", "source": "bank", "id": f"e{number}"}
    return {**about, "eddainstanceid": target, "data": {"amount": number}}


async def test_events_over_http_may_be_addressed_with_the_extension_of_edda(file: str) -> None:
    app = EddaApp("shop", file, workflows=[programs.payment])
    async with app, AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as web:
        ids = [await programs.payment.start(order_id=str(number)) for number in range(5)]
        about = {"ce-specversion": "1.0", "ce-type": "payment.completed", "ce-source": "bank", "ce-id": "b"}
        binary = {**about, "ce-eddainstanceid": ids[0], "content-type": "application/json"}
        answers = [await web.post("/", headers=binary, content=b'{"amount": 0}')]
        one = {"content-type": "application/cloudevents+json"}
        answers.append(await web.post("/", headers=one, content=json.dumps(structured(ids[1], 1))))
        batch = {"content-type": "application/cloudevents-batch+json"}
        several = [structured(ids[2], 2), structured(ids[3], 3)]
        answers.append(await web.post("/", headers=batch, content=json.dumps(several, indent=1)))
        assert [(one.status_code, one.json()["instance_ids"]) for one in answers] == [
            (202, [ids[0]]),
            (202, [ids[1]]),
            (202, [ids[2], ids[3]]),
        ]
        results = [await app.romancy.get_handle(one).result() for one in ids[:4]]
        assert [one["data"]["amount"] for one in results] == [0, 1, 2, 3]
        assert await status(app, ids[4]) == "waiting_for_event"


async def test_refusals_of_the_app_stay(file: str) -> None:
    app = EddaApp("shop", file, workflows=[programs.payment], max_body_size=2000)
    async with app, AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as web:
        headers = {"content-type": "application/cloudevents+json"}
        for body, expected in [
            (b'{"eddainstanceid": "x", "eddainstanceid": "y"}', 400),
            (b'[{"eddainstanceid": "x"}]', 400),
            (b'{"eddainstanceid"', 400),
            (b'\xff"eddainstanceid"', 400),
            (json.dumps({**structured("", 1), "eddainstanceid": 5}).encode(), 400),
            (json.dumps(structured("", 1)).encode(), 400),
            (json.dumps(structured("x" * 1025, 1)).encode(), 400),
            (json.dumps(structured("x" * 2000, 1)).encode(), 413),
        ]:
            assert (await web.post("/", headers=headers, content=body)).status_code == expected, body


async def test_bodies_are_left_to_the_limits_of_the_app(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Edda layer does not read bodies itself: it translates the events that the app has parsed."""
    handed_on: list[object] = []

    async def serve(self: App, scope: object, receive: object, send: object) -> None:
        handed_on.append(receive)

    monkeypatch.setattr(App, "__call__", serve)
    async with (app := EddaApp("shop", file, workflows=[programs.payment])):
        scope = {"type": "http", "headers": [(b"content-type", b"application/cloudevents-batch+json")]}

        async def receive() -> dict[str, Any]:
            raise AssertionError("the body was read")

        async def send(message: object) -> None: ...

        await app(scope, receive, send)
    assert handed_on == [receive]


# --- messages


async def test_a_message_to_one_instance_needs_no_subscription() -> None:
    async with running(programs.approval, programs.approver) as (env, app):
        accepted = await env.app.send_event("approval", "/desk", {"request_id": "r1"})
        (waiting,) = accepted.instance_ids
        await env.settle()
        assert await status(app, waiting) == "waiting_for_message"
        await env.restart()
        sender = await programs.approver.start(target_id=waiting)
        assert await result(env, sender) is True
        assert await result(env, waiting) == {"id": "r1", "approved": True, "by": sender}


async def test_a_message_to_an_unknown_instance_is_reported() -> None:
    async with running(programs.approver) as (env, _):
        assert await result(env, first := await programs.approver.start(target_id="missing")) is False
        assert await result(env, await programs.approver.start(target_id=first)) is False


async def test_broadcast_reaches_all_competing_one_direct_its_own() -> None:
    async with running(programs.listener, programs.announcer) as (env, app):
        everyone = [await programs.listener.start(channel="news", mode="broadcast") for _ in range(2)]
        workers = [await programs.listener.start(channel="jobs", mode="competing") for _ in range(2)]
        alone = await programs.listener.start(channel="box", mode="direct")
        message_id = await output(env, app, await programs.announcer.start(channel="news", text="hello"))
        heard = {"got": {"text": "hello"}, "id": message_id, "channel": "news", "about": "news"}
        assert [await output(env, app, one) for one in everyone] == [heard, heard]
        job_id = await publish(app.storage, "jobs", {"job": 1})
        await publish(app, "box", {"for": "all"})
        await publish(app, f"box:{alone}", {"for": "one"}, target_instance_id=alone)
        assert (await output(env, app, alone))["got"] == {"for": "one"}
        got = [await result(env, one) for one in workers]  # the instance without a message waits until its timeout
        assert [one["id"] for one in got if one["got"]] == [job_id]


async def test_the_channel_of_an_instance_may_be_named_by_hand() -> None:
    async with running(programs.own_channel) as (env, app):
        instance_id = await programs.own_channel.start()
        await publish(app, f"box:{instance_id}", 1)

        @workflow
        async def sender(ctx: WorkflowContext) -> bool:
            return await edda.send_to(ctx, instance_id, 2, channel="box")

        env.app.register(sender.romancy)
        await sender.start()
        assert await result(env, instance_id) == [1, 2]


# --- retries


async def test_retries_follow_the_policy() -> None:
    async with running(programs.stubborn) as (env, _):
        began = env.now()
        handle = await env.app.start_workflow(programs.stubborn.romancy, 2)
        assert await handle.result() == {"attempts": 3}
        assert (env.now() - began).total_seconds() == 0.5 + 1.5


async def test_attempts_are_used_up_with_the_last_error_as_the_cause_after_a_crash_too() -> None:
    async with running(programs.stubborn) as (env, _):
        handle = await env.app.start_workflow(programs.stubborn.romancy, 9)
        env.crash_at("commit.after", 2)
        assert await handle.result() == {"gave up": f"attempt {len(programs.attempts)}"}
        assert env.crashes == 1


async def test_a_terminal_error_is_not_retried() -> None:
    async with running(programs.hasty) as (env, _):
        assert await result(env, await programs.hasty.start()) == "at once: no such user"
        assert programs.attempts == ["hopeless"]


def test_policies_are_those_of_edda() -> None:
    policy = edda.RetryPolicy(max_attempts=None, non_retryable_error_types=(KeyError,))
    assert policy.romancy == romancy.RetryPolicy(0, max_duration=300.0, non_retryable=(KeyError,))
    assert [policy.calculate_delay(attempt) for attempt in (1, 2, 7)] == [1.0, 2.0, 60.0]
    assert policy.is_retryable(ValueError())
    assert not policy.is_retryable(KeyError())
    assert not policy.is_retryable(edda.TerminalError())
    with pytest.raises(ConfigurationError, match="give a RetryPolicy"):
        edda.activity(retry_policy=3)(programs.look_up.func)  # type: ignore[call-overload]


# --- loops and children


async def test_a_loop_begins_anew_with_the_fields_of_its_model() -> None:
    async with running(programs.batches) as (env, app):
        instance_id = await programs.batches.start(total=3)
        assert await result(env, instance_id) == 3
        found = await app.storage.get_instance(instance_id)
        assert found is not None
        assert found["continued_from"] == instance_id


@pytest.mark.parametrize("step", [3, 5, 8, 11])
async def test_children_are_started_once_whatever_happens_to_their_parent(step: int) -> None:
    async with running(programs.parent, programs.child) as (env, app):
        handle = await env.app.start_workflow(programs.parent.romancy, ["a", "b"])
        env.crash_at_step(step)
        assert await handle.result() == ["a", "b"]
        assert env.crashes == 1
        assert len((await app.find_instances(workflow_name="child"))["instances"]) == 2


@workflow
async def outer(ctx: WorkflowContext, name: str) -> int:
    return int((await programs.membership(ctx, name))["total"])


async def test_a_workflow_called_in_a_workflow_is_a_part_of_it() -> None:
    async with running(outer) as (env, _):
        assert await result(env, await outer.start(name="Ada")) == 19


# --- outbox


async def test_events_go_out_with_the_step_that_sends_them_and_not_with_one_that_failed() -> None:
    desk = Desk()
    async with running(programs.sale, broker=desk) as (env, _):
        handle = await env.app.start_workflow(programs.sale.romancy, "hat")
        env.crash_at("commit.before", 3)
        sold = await handle.result()
        await env.settle()
        assert env.crashes == 1
        assert sold["in_transaction"] is True
        assert done.count("sell hat") >= 2
        delivered = {(one.type, one.id) for one in desk.kept}
        assert ("item.sold", sold["event_id"]) in delivered
        assert sorted(kind for kind, _ in delivered) == ["item.sold", "sale.over"]


def test_an_outbox_needs_an_address() -> None:
    with pytest.raises(ConfigurationError, match="needs broker_url="):
        EddaApp("shop", outbox_enabled=True)


async def test_accepted_events_do_not_enter_the_outbox(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9"  # no server listens on this port: events for the broker stay in the outbox
    database = str(tmp_path / "shop.db")
    app = EddaApp("shop", database, outbox_enabled=True, broker_url=url, workflows=[programs.payment], shutdown_timeout=0)
    async with app:
        instance_id = await programs.payment.start(order_id="1")
        await app.handle_cloudevent({"type": "payment.completed", "source": "bank", "id": "e", "data": {}})
        assert (await app.romancy.get_handle(instance_id).result())["data"] == {}
        assert await app.storage.get_pending_outbox_events() == []
        await send_event("news", "shop", {})
        (left,) = await app.storage.get_pending_outbox_events(limit=100)
        assert (left["event_type"], left["event_source"], left["event_data"]) == ("news", "shop", {})


@edda.activity(retry_policy=edda.RetryPolicy(max_attempts=2, initial_interval=0.01))
async def shelve(ctx: WorkflowContext, title: str) -> None:
    await ctx.session.execute(text("INSERT INTO books VALUES (:title)"), {"title": title})
    await edda.send_event_transactional(ctx, "shelved", "library", {"title": title})
    done.append(title)
    if len(done) == 1:
        raise ConnectionError("the shelf fell")


@workflow
async def library(ctx: WorkflowContext, title: str) -> dict[str, Any]:
    await shelve(ctx, title)
    shelved = await edda.wait_event(ctx, "shelved", timeout_seconds=60)
    return dict(shelved.data)


async def test_rows_and_events_of_an_activity_commit_with_its_result(file: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE books (title TEXT)")
        async with EddaApp("library", file, workflows=[library]) as app:
            handle = app.romancy.get_handle(await library.start(title="Emma"))
            assert await handle.result() == {"title": "Emma"}
            assert connection.execute("SELECT title FROM books").fetchall() == [("Emma",)]
            assert done == ["Emma", "Emma"]


# --- names and attributes that are not available


def test_unavailable_names_name_the_replacement() -> None:
    from romancy.integrations.edda.unsupported import MODULE

    for name in MODULE:
        with pytest.raises(ConfigurationError, match=f"has no '{name}': .*use|romancy|viewer|engine"):
            getattr(edda, name)
    with pytest.raises(ConfigurationError, match=r"use receive\(ctx, channel"):
        exec("from romancy.integrations.edda import wait_message")
    with pytest.raises(AttributeError, match="Did you mean 'wait_event'"):
        getattr(edda, "wait_evnt")  # noqa: B009  it is not there
    with pytest.raises(ConfigurationError, match="an app with a broker relays by itself"):
        edda.OutboxRelayer()


async def test_unavailable_attributes_name_the_replacement(file: str) -> None:
    app = EddaApp("shop", file, workflows=[])
    for owner, name, message in [
        (app, "outbox_relayer", "relays by itself"),
        (app, "find_instance", "Did you mean 'find_instances'"),
        (app.storage, "engine", "ctx.session is for your own tables"),
        (app.replay_engine, "resume_by_name", "It offers cancel_workflow"),
        (programs.order, "lock_timeout_seconds", "lease_timeout"),
        (programs.ship, "fn", "has no 'fn'"),
    ]:
        with pytest.raises(AttributeError, match=message):
            getattr(owner, name)
    with pytest.raises(ConfigurationError, match="@workflow"):
        app.on_event("order.created")
    with pytest.raises(ConfigurationError, match="resumes automatically"):
        await programs.order.resume("x")
    with pytest.raises(ConfigurationError, match="Did you mean 'lease_timeout'"):
        EddaApp("shop", file, lease_timout=3)


@edda.activity(retry_policy=programs.ONCE)
async def using_context(ctx: WorkflowContext, what: str) -> str:
    match what:
        case "storage":
            return str(ctx.storage)
        case "post_commit":
            ctx.register_post_commit(lambda: edda.sleep(ctx, 1))
        case "sleep":
            await edda.sleep(ctx, 1)
        case _:
            await ctx.recur()
    return "?"


@workflow
async def asking(ctx: WorkflowContext, what: str) -> str:
    if what == "session":
        return str(ctx.session)
    if what == "transaction":
        async with ctx.transaction():
            return "?"
    if what == "nothing":
        await edda.sleep(ctx)
    try:
        return str(await using_context(ctx, what))
    except RetryExhaustedError as error:
        return str(error.__cause__)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("storage", "use ctx.session for your own tables"),
        ("post_commit", "make it the next activity"),
        ("sleep", "Only a workflow may use it"),
        ("recur", "Only a workflow may use it"),
    ],
)
async def test_unavailable_attributes_of_a_context_name_the_replacement(what: str, message: str) -> None:
    async with running(asking) as (env, _):
        assert message in await result(env, await asking.start(what=what))


@pytest.mark.parametrize(
    ("what", "message"),
    [("session", "Only an activity has a transaction"), ("transaction", "Only an activity"), ("nothing", "seconds to wait")],
)
async def test_a_workflow_has_no_transaction(what: str, message: str) -> None:
    async with running(asking):
        with pytest.raises((InvalidWorkflowStateError, TypeError), match=message):
            await asking.start(what=what)


async def test_without_an_app_nothing_starts() -> None:
    with pytest.raises(InvalidWorkflowStateError, match=r"order.start\(\) needs a running app"):
        await programs.order.start(order_id="1", items=[], amount=1.0)
    with pytest.raises(InvalidWorkflowStateError, match="needs a running app"):
        await send_event("a", "b", {})


async def test_a_broker_is_named_on_the_app() -> None:
    async with running(programs.order):
        with pytest.raises(ConfigurationError, match="EddaApp\\(outbox_enabled=True, broker_url"):
            await send_event("a", "b", {}, broker_url="http://elsewhere")


def test_only_async_functions_are_workflows() -> None:
    def plain(ctx: WorkflowContext) -> None: ...

    with pytest.raises(ConfigurationError, match="must be an `async def`"):
        workflow(plain)  # type: ignore[arg-type]  # pyright: ignore


async def test_options_without_effect_are_accepted(file: str) -> None:
    app = EddaApp("shop", file, max_overflow=1, pool_recycle=5, leader_lease_duration=9, workflows=[programs.order])
    async with app:
        assert (await app.romancy.list_instances(status=Status.RUNNING)).items == []


def test_every_module_of_edda_has_its_names() -> None:
    for module, names in {
        "activity": "activity",
        "app": "EddaApp",
        "channels": "ChannelMessage ChannelModeConflictError receive wait_timer",
        "compensation": "compensation on_failure register_compensation",
        "context": "WorkflowContext",
        "events": "ReceivedEvent send_event wait_event",
        "exceptions": "RetryExhaustedError TerminalError WorkflowCancelledException",
        "hooks": "HooksBase WorkflowHooks",
        "outbox": "OutboxRelayer send_event_transactional",
        "outbox.transactional": "send_event_transactional",
        "retry": "AGGRESSIVE_RETRY CONSERVATIVE_RETRY DEFAULT_RETRY_POLICY INFINITE_RETRY RetryPolicy",
        "workflow": "recur workflow",
        "wsgi": "create_wsgi_app",
    }.items():
        exec(f"from romancy.integrations.edda.{module} import {names.replace(' ', ', ')}")
