"""The operators' calls on every database."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from romancy import (
    ActivityContext,
    App,
    RetryPolicy,
    Status,
    WorkflowContext,
    WorkflowNotFoundError,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.manage.port import Manager
from romancy.manage.records import Deed, InputError, Verdict
from romancy.manage.service import DatabaseManager
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
        assert detail.summary.doing == "waits for event payment.completed, subject 42"
        assert detail.input == {"customer": {"id": "42", "age": 0}}
        assert Deed.CANCEL in detail.deeds
        history = await manager.get_history(one)
        assert [entry.name for entry in history.items] == ["charge"]
        timeline = await manager.get_timeline(one)
        assert [(span.kind, span.outcome) for span in timeline.spans] == [("activity", "ok"), ("event", "open")]
        assert "async def checkout" in (await manager.get_source(one) or "")
        with pytest.raises(WorkflowNotFoundError):
            await manager.get_instance("nobody")


async def test_an_event_is_sent_to_one_instance() -> None:
    async with TestEnvironment(workflows=[checkout]) as env:
        manager = manager_of(env.app)
        one, two = await started(env, manager, {"id": "42"}, {"id": "42"})
        explanation = await manager.explain(one)
        assert explanation.verdict is Verdict.HEALTHY
        assert "payment.completed" in explanation.because
        sent = await manager.send_event("payment.completed", "all", subject="42", to=one)
        assert sent.instance_ids == (one,)
        await env.settle()
        assert (await manager.get_instance(one)).output == "all"
        assert (await manager.get_instance(two)).summary.status is Status.WAITING_FOR_EVENT


async def test_deeds_are_done_to_each_by_itself() -> None:
    async with TestEnvironment(workflows=[checkout]) as env:
        manager = manager_of(env.app)
        one, bad = await started(env, manager, {"id": "1"}, {"id": "2", "age": -1})
        done = await manager.do(Deed.CANCEL, [one, bad, "nobody"], reason="closing", actor="ann")
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
