"""Tests of `app.storage` as programs for Edda read it, and of the errors that they catch."""

from __future__ import annotations

from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient

from romancy import ConfigurationError, PayloadError, UnknownChannelModeError
from romancy.integrations.edda import (
    EddaApp,
    RetryPolicy,
    WorkflowContext,
    activity,
    sleep,
    subscribe,
    wait_event,
    workflow,
)

attempts: list[str] = []
QUICKLY = RetryPolicy(max_attempts=3, initial_interval=0.001)


@activity(retry_policy=QUICKLY)
async def dial(ctx: WorkflowContext, number: int) -> int:
    attempts.append("dial")
    if len(attempts) < 3:
        raise ConnectionError("busy")
    return number


@activity(retry_policy=QUICKLY)
async def shout(ctx: WorkflowContext) -> str:
    raise ValueError("no reply")


@activity
async def hum(ctx: WorkflowContext) -> str:
    return "mm"


@workflow
async def calling(ctx: WorkflowContext, number: int) -> str:
    await hum(ctx)
    await dial(ctx, number)
    await shout(ctx)
    return "never"


@workflow(event_handler=True)
async def greeted(ctx: WorkflowContext) -> str:
    event = await wait_event(ctx, "answered")
    return str(event.data)


@workflow
async def asking(ctx: WorkflowContext) -> str:
    await hum(ctx)
    return await greeted.start()


@workflow
async def resting(ctx: WorkflowContext) -> None:
    await hum(ctx)
    await sleep(ctx, 3600, timer_id="nap")


@workflow
async def joining(ctx: WorkflowContext) -> str:
    try:
        await subscribe(ctx, "news", mode="loudly")
    except ValueError as error:
        return str(error)
    return "joined"


async def test_the_history_has_attempts_and_stack_traces(file: str) -> None:
    attempts.clear()
    async with EddaApp("phone", file, workflows=[calling]) as app:
        with pytest.raises(Exception, match="no reply"):
            await calling.start(number=7)
        (found,) = (await app.find_instances())["instances"]
        hummed, dialled, shouted = await app.storage.get_history(found["instance_id"])
        instance = await app.storage.get_instance(found["instance_id"])
        assert await app.storage.get_history("calling-0") == []
    assert [one["id"] for one in (hummed, dialled, shouted)] == [1, 2, 3]
    assert {one["instance_id"] for one in (hummed, dialled, shouted)} == {found["instance_id"]}
    assert "retry_metadata" not in hummed["event_data"]
    assert "stack_trace" not in dialled["event_data"]
    tried = dialled["event_data"]["retry_metadata"]
    assert (tried["total_attempts"], tried["exhausted"]) == (3, False)
    assert [(one["attempt"], one["error_type"], one["message"]) for one in tried["errors"]] == [
        (1, "ConnectionError", "busy"),
        (2, "ConnectionError", "busy"),
    ]
    assert tried["last_error"] == {"error_type": "ConnectionError", "message": "busy"}
    failed = shouted["event_data"]
    assert (shouted["event_type"], failed["retry_metadata"]["exhausted"]) == ("ActivityFailed", True)
    assert (failed["retry_metadata"]["total_attempts"], len(failed["retry_metadata"]["errors"])) == (3, 2)
    assert "ValueError: no reply" in failed["stack_trace"]
    assert instance is not None
    assert instance["current_activity_id"] == "shout:1"
    assert "await shout(ctx)" in instance["source_code"]


async def test_what_an_instance_waits_for_is_its_current_activity(file: str) -> None:
    async with EddaApp("phone", file, workflows=[resting]) as app:
        found = await app.storage.get_instance(await resting.start())
    assert found is not None
    assert (found["status"], found["current_activity_id"]) == ("waiting_for_timer", "nap")


async def test_ids_begin_with_the_name_of_the_workflow(file: str) -> None:
    async with EddaApp("phone", file, workflows=[asking, greeted]) as app:
        caller = await asking.start()
        child = await app.romancy.get_handle(caller).result()
        await app.handle_cloudevent({"type": "greeted", "source": "door", "id": "1", "data": {}})
        ids = [one["instance_id"] for one in (await app.find_instances(workflow_name="greeted"))["instances"]]
    assert caller.startswith("asking-")
    assert child in ids
    assert len(ids) == 2
    assert all(one.startswith("greeted-") for one in ids)


async def test_an_unknown_mode_is_a_value_error(file: str) -> None:
    async with EddaApp("phone", file, workflows=[joining]) as app:
        message: Any = await app.romancy.get_handle(await joining.start()).result()
    assert "'broadcast', 'competing'" in message
    assert issubclass(UnknownChannelModeError, ConfigurationError)
    assert issubclass(PayloadError, ValueError)


async def test_an_event_is_accepted_as_plain_json(file: str) -> None:
    event = {"specversion": "1.0", "type": "greeted", "source": "door", "id": "1", "data": {}}
    app = EddaApp("phone", file, workflows=[greeted])
    try:
        async with AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as client:
            taken = await client.post("/", json=event)
            refused = await client.post("/", json={"type": "greeted"})
    finally:
        await app.shutdown()
    assert (taken.status_code, refused.status_code) == (202, 415)
    assert taken.json()["instance_ids"][0].startswith("greeted-")
