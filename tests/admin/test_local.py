"""The operators' calls on every database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from romancy import (
    ActivityContext,
    App,
    ConfigurationError,
    RetryPolicy,
    Status,
    Token,
    WorkflowContext,
    WorkflowNotFoundError,
    activity,
    join_group,
    receive,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.admin import search
from romancy.admin.local import DatabaseManager
from romancy.admin.port import Manager
from romancy.admin.records import ActionKind, ChannelSummary, Health, InputError, Subscriber
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


class Customer(BaseModel):
    id: str
    age: int = 0


@activity(retry=RetryPolicy.none())
async def charge(ctx: ActivityContext, customer: Customer) -> str:
    if customer.age < 0:
        raise ValueError("too young")
    return "paid"


@workflow
async def checkout(ctx: WorkflowContext, customer: Customer) -> str:
    await charge(ctx, customer)
    event = await wait_event(ctx, "payment.completed", subject=customer.id)
    return str(event.data)


@workflow
async def nap(ctx: WorkflowContext, seconds: int = 3600) -> str:
    await sleep(ctx, seconds)
    return "rested"


@activity
async def look(ctx: ActivityContext) -> str:
    return "seen"


@activity
async def book(ctx: ActivityContext) -> str:
    return "booked"


@book.compensate
async def unbook(ctx: ActivityContext) -> None:
    """Compensates the booking."""


@workflow
async def trip(ctx: WorkflowContext) -> str:
    await look(ctx)
    await book(ctx)
    event = await wait_event(ctx, "trip.paid", model=Customer)
    return event.data.id


@workflow
async def listener(ctx: WorkflowContext) -> None:
    await subscribe(ctx, "news")
    await join_group(ctx, "crew")
    await receive(ctx, "news")


def manager_of(app: App) -> Manager:
    return DatabaseManager(app)


async def started(env: Any, manager: Manager, *inputs: dict[str, Any]) -> list[str]:
    ids = [(await manager.start("checkout", one)).instance_id for one in inputs]
    await env.settle()
    return ids


async def test_instances_are_found_by_what_they_are_and_have() -> None:
    async with TestEnvironment(workflows=[checkout, nap]) as env:
        manager = manager_of(env.app)
        one, two, three = await started(
            env, manager, {"customer": {"id": "1"}}, {"customer": {"id": "2"}}, {"id": "3", "age": -1}
        )
        asleep = (await manager.start("nap", {})).instance_id
        await env.settle()

        async def ids(line: str) -> set[str]:
            return {item.instance_id for item in (await manager.list_instances(line)).items}

        assert await ids("") == {one, two, three, asleep}
        assert await ids("status:failed") == {three}
        assert await ids("workflow:nap") == {asleep}
        assert await ids("status:live -workflow:nap") == {one, two}
        assert await ids("input.customer.id:2") == {two}
        assert await ids("waits:payment.completed") == {one, two}
        assert await ids("error:young") == {three}
        assert await ids(one) == {one}
        assert await ids("newer:1h") == {one, two, three, asleep}
        assert await ids("older:1h") == set()


async def test_one_instance_with_its_history_and_its_time_line() -> None:
    async with TestEnvironment(workflows=[checkout]) as env:
        manager = manager_of(env.app)
        (one,) = await started(env, manager, {"customer": {"id": "42"}})
        detail = await manager.get_instance(one)
        assert detail.summary.doing == "waiting for event payment.completed, subject 42"
        assert detail.input == {"customer": {"id": "42", "age": 0}}
        assert ActionKind.CANCEL in detail.actions
        history = await manager.get_history(one)
        assert [entry.name for entry in history.items] == ["charge"]
        timeline = await manager.get_timeline(one)
        assert [(span.kind, span.outcome) for span in timeline.spans] == [("activity", "ok"), ("event", "open")]
        assert "async def checkout" in (await manager.get_source(one) or "")
        with pytest.raises(WorkflowNotFoundError):
            await manager.get_instance("unknown")


async def test_an_event_is_sent_to_one_instance() -> None:
    async with TestEnvironment(workflows=[checkout]) as env:
        manager = manager_of(env.app)
        one, two = await started(env, manager, {"id": "42"}, {"id": "42"})
        explanation = await manager.explain(one)
        assert explanation.verdict is Health.HEALTHY
        assert "payment.completed" in explanation.because
        sent = await manager.send_event("payment.completed", "all", subject="42", to=one)
        assert sent.instance_ids == (one,)
        await env.settle()
        assert (await manager.get_instance(one)).output == "all"
        assert (await manager.get_instance(two)).summary.status is Status.WAITING_FOR_EVENT


async def test_actions_are_applied_to_each_instance_by_itself() -> None:
    async with TestEnvironment(workflows=[checkout]) as env:
        manager = manager_of(env.app)
        one, bad = await started(env, manager, {"id": "1"}, {"id": "2", "age": -1})
        done = await manager.apply(ActionKind.CANCEL, [one, bad, "unknown"], reason="closing", actor="ann")
        assert [(each.ok, each.error_type) for each in done] == [
            (True, None),
            (False, "WorkflowNotCancellableError"),
            (False, "WorkflowNotFoundError"),
        ]
        await env.settle()
        journal = (await manager.get_instance(one)).journal
        assert ("cancel", "closing", "ann") in [(line.kind, line.detail, line.worker_id) for line in journal]


async def test_wrong_input_is_told_by_field() -> None:
    async with TestEnvironment(workflows=[checkout, nap]) as env:
        manager = manager_of(env.app)
        with pytest.raises(InputError) as wrong:
            await manager.start("checkout", {"customer": {"age": "old"}})
        assert set(wrong.value.fields) == {"customer.id", "customer.age"}
        with pytest.raises(InputError) as unknown:
            await manager.start("nap", {"minutes": 3})
        assert set(unknown.value.fields) == {"minutes"}
        schema = await manager.get_schema("checkout")
        assert schema is not None
        assert schema["required"] == ["customer"]
        assert schema["$defs"]["Customer"]["properties"]["age"]["default"] == 0
        assert await manager.get_schema("elsewhere") is None


async def test_pages_meet_without_gap_or_overlap() -> None:
    async with TestEnvironment(workflows=[checkout, nap]) as env:
        manager = manager_of(env.app)
        ids = {(await manager.start("nap", {"seconds": n + 1})).instance_id for n in range(7)}
        await env.settle()
        for line in (
            "",
            "status:waiting",
            "workflow:nap",
            "input.seconds:1 input.seconds:2 input.seconds:3 -input.seconds:9",
        ):
            seen: list[str] = []
            token: str | None = None
            while True:
                page = await manager.list_instances(line, limit=2, page_token=token)
                seen += [item.instance_id for item in page.items]
                token = page.next_page_token
                if token is None:
                    break
            assert len(seen) == len(set(seen))
            assert set(seen) == ids or (line.startswith("input") and len(seen) == 3)


async def test_a_search_that_takes_too_long_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    async with TestEnvironment(workflows=[nap]) as env:
        manager = manager_of(env.app)
        for n in range(12):
            await manager.start("nap", {"seconds": n + 1}, instance_id=f"nap-{n:02}")
        await env.settle()
        monkeypatch.setattr(search, "_CONTENTS", 4)
        monkeypatch.setattr(search, "TIME_BOX", -1.0)
        page = await manager.list_instances("input.seconds:1")
        assert page.items == []
        assert page.searched_back_to is not None
        found: list[str] = []
        while page.next_page_token is not None:
            page = await manager.list_instances("input.seconds:1", page_token=page.next_page_token)
            found += [item.instance_id for item in page.items]
        assert found == ["nap-00"]


async def test_near_misses_are_found() -> None:
    async with TestEnvironment(workflows=[checkout]) as env:
        manager = manager_of(env.app)
        (one,) = await started(env, manager, {"id": "42"})
        assert "none has arrived" in (await manager.explain(one)).wakes[0].evidence[0]
        await manager.send_event("payment.completed", {}, subject="43")
        assert "its subject is '43', not '42'" in (await manager.explain(one)).wakes[0].evidence[0]


async def test_every_action_leaves_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async with TestEnvironment(workflows=[checkout]) as env:
        manager = manager_of(env.app)
        with caplog.at_level("INFO", logger="romancy.audit"):
            one = (await manager.start("checkout", {"id": "1"}, actor="ann")).instance_id
            await env.settle()
            await manager.apply(ActionKind.PAUSE, [one, "unknown"], reason="wait\nno", actor="bob")
            await manager.publish("news", 1, actor="ann")
            await manager.requeue_outbox(actor="ann")
            await manager.prune(older_than=10, actor="ann")
        page = await manager.list_audit()
        assert [(line.actor, line.action) for line in page.items] == [
            ("ann", "prune"),
            ("ann", "requeue_outbox"),
            ("ann", "publish"),
            ("bob", "pause"),
            ("bob", "pause"),
            ("ann", "start"),
        ]
        assert [line.detail for line in (await manager.list_audit(instance_id=one)).items] == ["wait\nno", "checkout"]
        assert "refused" in (await manager.list_audit(instance_id="unknown")).items[0].detail
        first = await manager.list_audit(limit=4)
        assert first.next_before is not None
        assert len((await manager.list_audit(before=first.next_before)).items) == 2
        logged = [record.getMessage() for record in caplog.records if record.name == "romancy.audit"]
        assert len(logged) == 6
        assert not any("\n" in line for line in logged), "a reason is logged as a literal"
        assert not any("\n" in record.getMessage() for record in caplog.records if record.name == "romancy.audit")


async def test_a_bulk_action_applies_to_all_that_match() -> None:
    async with TestEnvironment(workflows=[checkout, nap]) as env:
        manager = manager_of(env.app)
        ids = await started(env, manager, *({"id": str(n)} for n in range(120)))
        other = (await manager.start("nap", {})).instance_id
        await env.settle()
        batch = await manager.start_bulk_action(ActionKind.PAUSE, "workflow:checkout", reason="stop", actor="ann")
        assert (batch.status, batch.done) == ("running", 0)
        await env.advance(1)
        late = (await manager.start("checkout", {"id": "late"})).instance_id
        await env.settle()
        assert env.app._bulk_actions is not None
        assert await env.app._bulk_actions.run_next()
        assert not await env.app._bulk_actions.run_next()
        batch = await manager.get_bulk_action(batch.batch_id)
        assert (batch.status, batch.done, batch.failed) == ("done", 120, 0)
        statuses = {one: (await manager.get_instance(one)).summary.status for one in (ids[0], ids[-1], other, late)}
        assert [status is Status.PAUSED for status in statuses.values()] == [True, True, False, False]
        assert [one.batch_id for one in await manager.list_bulk_actions()] == [batch.batch_id]


async def test_a_batch_lists_what_failed_and_can_be_aborted() -> None:
    async with TestEnvironment(workflows=[checkout]) as env:
        manager = manager_of(env.app)
        await started(env, manager, {"id": "1", "age": -1})
        batch = await manager.start_bulk_action(ActionKind.CANCEL, "status:failed")
        assert env.app._bulk_actions is not None
        await env.app._bulk_actions.run_next()
        batch = await manager.get_bulk_action(batch.batch_id)
        assert (batch.done, batch.failed, batch.failures[0].error_type) == (0, 1, "WorkflowNotCancellableError")
        other = await manager.start_bulk_action(ActionKind.RETRY, "status:failed")
        assert (await manager.abort_bulk_action(other.batch_id, actor="ann")).status == "aborted"
        assert not await env.app._bulk_actions.run_next()
        with pytest.raises(ConfigurationError, match="needs a filter"):
            await manager.start_bulk_action(ActionKind.CANCEL, " ")
        with pytest.raises(WorkflowNotFoundError):
            await manager.get_bulk_action("nothing")


async def test_a_preview_tells_what_would_be_undone() -> None:
    async with TestEnvironment(workflows=[trip]) as env:
        manager = manager_of(env.app)
        one = (await manager.start("trip", {})).instance_id
        await env.settle()
        cancel = await manager.preview(ActionKind.CANCEL, one)
        assert "compensates book (book:1)" in cancel.effects
        assert not any("look" in line for line in cancel.effects)
        terminate = await manager.preview(ActionKind.TERMINATE, one)
        assert "does not compensate book (book:1)" in terminate.effects
        assert (await manager.preview(ActionKind.RETRY, one)).effects == (
            "is refused, because the instance is waiting_for_event",
        )


async def test_the_model_of_a_wait_is_found_in_the_code() -> None:
    async with TestEnvironment(workflows=[trip]) as env:
        manager = manager_of(env.app)
        one = (await manager.start("trip", {})).instance_id
        await env.settle()
        (wait,) = (await manager.get_instance(one)).summary.waiting_for
        schema = await manager.get_event_schema(one, wait.activity_id)
        assert schema is not None
        assert schema["title"] == "Customer"
        assert await manager.get_event_schema(one, "nothing") is None


async def test_the_overview_counts_and_links() -> None:
    async with TestEnvironment(workflows=[checkout, nap]) as env:
        manager = manager_of(env.app)
        await started(env, manager, {"id": "1"}, {"id": "2", "age": -1})
        overview = await manager.overview()
        assert {one.what: (one.count.value, one.filter) for one in overview.attention} == {
            "failed": (1, "status:failed newer:24h")
        }
        assert {status: str(count) for status, count in overview.in_flight.items() if count.value} == {
            "waiting_for_event": "1"
        }
        assert len(overview.points) == 60
        assert [worker.alive for worker in overview.workers] == [True]
        for one in overview.attention:
            assert len((await manager.list_instances(one.filter)).items) == one.count.value


async def test_workflows_with_what_ended_lately() -> None:
    async with TestEnvironment(workflows=[checkout, nap]) as env:
        manager = manager_of(env.app)
        for _ in range(3):
            await manager.start("nap", {"seconds": 10})
        await started(env, manager, {"id": "1", "age": -1}, {"id": "2"})
        await env.advance(60)
        assert env.app._maintenance is not None
        await env.app._maintenance.roll_up()
        found = {one.name: one for one in await manager.list_workflows()}
        assert (found["nap"].completed, found["nap"].failed, found["nap"].in_flight.value) == (3, 0, 0)
        assert (found["checkout"].failed, found["checkout"].in_flight.value) == (1, 1)
        assert 10 <= (found["nap"].p50 or 0) <= 12.5
        assert sum(point.completed for point in found["nap"].points) == 3
        assert found["nap"].startable


async def test_channels_and_groups() -> None:
    async with TestEnvironment(workflows=[listener]) as env:
        manager = manager_of(env.app)
        one = (await manager.start("listener", {})).instance_id
        await env.settle()
        (channel,) = (await manager.list_channels()).items
        assert isinstance(channel, ChannelSummary)
        assert (channel.name, channel.mode, channel.subscribers.value) == ("news", "broadcast", 1)
        (subscriber,) = (await manager.list_subscribers("news")).items
        assert isinstance(subscriber, Subscriber)
        assert (subscriber.instance_id, subscriber.waits) == (one, True)
        assert [str(group) for group in (await manager.list_groups()).items] == [
            "GroupSummary(name='crew', members=Count(value=1, more=False))"
        ]
        assert (await manager.list_members("crew")).items == [one]
        explanation = await manager.explain(one)
        assert "The channel has no unread messages." in explanation.wakes[0].evidence


async def test_the_doctor_finds_what_is_wrong() -> None:
    async with TestEnvironment(workflows=[checkout]) as env:
        manager = manager_of(env.app)
        await started(env, manager, {"id": "1"})
        well = {one.name: one.level for one in await manager.doctor()}
        assert well["database"] == well["schema"] == well["workers"] == well["claims"] == well["overdue"] == "ok"
        row = (await env.app._store.workers())[0]
        await env.app._store.register_worker(replace(row, id="old/1", heartbeat_at=row.heartbeat_at - 20_000_000))
        ill = await manager.doctor()
        assert any(one.name == "silent worker" and "old/1" in one.says and one.remedy for one in ill)


@pytest.mark.parametrize(
    ("auth", "exposed", "level", "says"),
    [
        (None, False, "ok", "only its own machine"),
        (None, True, "warning", "others can reach"),
        ([Token("secret")], True, "ok", "must authenticate"),
        ("open", False, "warning", "every caller"),
    ],
)
async def test_the_doctor_says_who_may_call(auth: Any, exposed: bool, level: str, says: str) -> None:
    async with TestEnvironment(workflows=[checkout], auth=auth) as env:
        env.app._visitors.exposed = exposed
        (found,) = [one for one in await manager_of(env.app).doctor() if one.name == "access"]
        assert found.level == level
        assert says in found.says
        assert bool(found.remedy) == (level != "ok")
        env.app._visitors.record_refusal(("203.0.113.9", 1))
        (found,) = [one for one in await manager_of(env.app).doctor() if one.name == "access"]
        assert ("1 event " in found.says) == (auth is None)


async def test_what_only_others_know_can_be_started_if_they_are_there() -> None:
    async with TestEnvironment(workflows=[nap]) as env:
        manager = manager_of(env.app)
        with pytest.raises(WorkflowNotFoundError):
            await manager.start("elsewhere", {})
        row = (await env.app._store.workers())[0]
        await env.app._store.register_worker(replace(row, id="other/1", workflows='[["elsewhere", "2"]]'))
        one = (await manager.start("elsewhere", {"n": 1}, instance_id="mine")).instance_id
        detail = await manager.get_instance(one)
        assert (detail.summary.instance_id, detail.summary.version, detail.input) == ("mine", "2", {"n": 1})
        assert "no running worker" not in (await manager.explain(one)).because
