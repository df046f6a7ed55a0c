"""Tests of starts in the Edda layer: by `wf.start()`, by events, and with two workflows of one name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

import romancy
from romancy import ConfigurationError, Status
from romancy.integrations.edda import EddaApp, RetryPolicy, WorkflowContext, activity, workflow
from romancy.integrations.edda.current_app import unset_current_app
from romancy.testing import TestEnvironment

attempts: list[int] = []
SLOWLY = RetryPolicy(max_attempts=2, initial_interval=1.1, backoff_coefficient=1.0)


@activity(retry_policy=SLOWLY)
async def unsteady(ctx: WorkflowContext, works: bool) -> str:
    attempts.append(1)
    if len(attempts) == 1 or not works:
        raise ConnectionError("the connection is down")
    return "done"


@workflow
async def patient(ctx: WorkflowContext, works: bool = True) -> str:
    result: str = await unsteady(ctx, works)
    return result


@workflow
async def dozing(ctx: WorkflowContext) -> str:
    await asyncio.sleep(0.1)
    raise KeyError("awake")


# --- start waits for the end of the instance


async def test_start_returns_after_a_back_off_and_not_in_the_middle_of_it(file: str) -> None:
    attempts.clear()
    async with EddaApp("patient", file, workflows=[patient]) as app:
        instance_id = await patient.start()
        found = await app.storage.get_instance(instance_id)
    assert found is not None
    assert (found["status"], found["output_data"], len(attempts)) == ("completed", {"result": "done"}, 2)


async def test_start_raises_what_comes_after_a_back_off(file: str) -> None:
    attempts.clear()
    async with EddaApp("patient", file, workflows=[patient]):
        with pytest.raises(romancy.RetryExhaustedError):
            await patient.start(works=False)


async def test_start_raises_what_comes_after_a_pause_of_asyncio(file: str) -> None:
    async with EddaApp("dozing", file, workflows=[dozing]):
        with pytest.raises(KeyError, match="awake"):
            await dozing.start()


# --- the data of an event as arguments


class Order(BaseModel):
    number: int
    express: bool = False


@workflow(event_handler=True)
async def ordered(ctx: WorkflowContext, order: Order) -> Any:
    return order.model_dump()


@workflow(event_handler=True)
async def noted(ctx: WorkflowContext, order: dict[str, Any]) -> Any:
    return order


@workflow(event_handler=True)
async def listed(ctx: WorkflowContext, number: int, note: str = "none") -> Any:
    return [number, note]


@workflow(event_handler=True)
async def gathered(ctx: WorkflowContext, **fields: Any) -> Any:
    return fields


WHOLE = {"number": 7, "express": True}


@pytest.mark.parametrize(
    ("handler", "data", "returned"),
    [
        (ordered, {"order": WHOLE}, WHOLE),
        (ordered, {"order": {"number": 7}, "colour": "red"}, {"number": 7, "express": False}),
        (ordered, WHOLE, WHOLE),
        (noted, {"order": WHOLE}, WHOLE),
        (noted, {"order": WHOLE, "colour": "red"}, WHOLE),
        (listed, {"number": 7}, [7, "none"]),
        (listed, {"number": 7, "note": "soon", "colour": "red"}, [7, "soon"]),
        (gathered, {"number": 7, "note": "soon"}, {"number": 7, "note": "soon"}),
    ],
)
async def test_an_event_starts_a_workflow_with_its_fields_as_arguments(handler: Any, data: Any, returned: Any) -> None:
    async with TestEnvironment(workflows=[handler.romancy]) as env:
        app = EddaApp.over(env.app)
        await app.initialize()
        try:
            await app.handle_cloudevent({"type": handler.name, "source": "shop", "id": "1", "data": data})
            await env.settle()
            (found,) = (await app.find_instances(workflow_name=handler.name))["instances"]
            assert (found["status"], found["output_data"]) == ("completed", {"result": returned})
        finally:
            unset_current_app(env.app)


async def test_an_event_without_a_field_that_is_needed_gives_a_failed_instance() -> None:
    async with TestEnvironment(workflows=[listed.romancy]) as env:
        await env.app.send_event("listed", "shop", {"colour": "red"})
        await env.settle()
        (found,) = (await env.app.list_instances()).items
        assert found.status is Status.FAILED
        assert found.error is not None
        assert "'number' is missing" in found.error.message


# --- two workflows with one name


def _defined(module: str, returned: str) -> Any:
    async def renamed(ctx: WorkflowContext) -> str:
        return returned

    renamed.__module__ = module
    renamed.__qualname__ = "renamed"
    return workflow(renamed)


async def test_the_last_definition_of_a_name_is_meant(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = _defined("shop.old", "first"), _defined("shop.new", "last")
    monkeypatch.setattr("romancy.registry.registry.imported", [first.romancy, last.romancy])
    async with EddaApp("shop", file) as app:
        handle = app.romancy.get_handle(await last.start())
        assert await handle.result() == "last"


def test_two_that_are_named_to_one_app_are_refused_by_their_own_lines() -> None:
    first, last = _defined("shop.old", "first"), _defined("shop.new", "last")
    with pytest.raises(ConfigurationError, match=r"shop\.old\.renamed \(.*test_edda_starts\.py:"):
        EddaApp("shop", ":memory:", workflows=[first, last])
