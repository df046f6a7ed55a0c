"""Tests of Edda's hooks: they are called for the same events as romancy's hooks, with Edda's arguments."""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

import romancy
from romancy import ConfigurationError, Error
from romancy import hooks as infos
from romancy.integrations.edda import (
    EddaApp,
    HooksBase,
    RetryPolicy,
    WorkflowContext,
    WorkflowHooks,
    activity,
    compensation,
    on_failure,
    register_compensation,
    send_event_transactional,
    wait_event,
    workflow,
)
from romancy.integrations.edda import hooks as edda_hooks
from romancy.integrations.edda.hooks import HooksAdapter, rebuild_error
from romancy.testing import TestEnvironment


class RecordingHooks:
    """Hooks without a base class that record every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)

        async def write(*args: Any) -> None:
            self.calls.append((name.removeprefix("on_"), *args))

        return write

    def of(self, name: str) -> list[list[Any]]:
        return [rest for what, *rest in self.calls if what == name]


class Cake(BaseModel):
    eggs: int


class BurntError(Exception):
    """An error whose constructor needs more than a message."""

    def __init__(self, minutes: int, *, shelf: str) -> None:
        super().__init__(f"{minutes} minutes are too long")
        self.minutes = minutes
        self.shelf = shelf


@compensation
async def throw_away(ctx: WorkflowContext, eggs: int) -> None: ...


@activity
@on_failure(throw_away)
async def stir(ctx: WorkflowContext, eggs: int) -> Cake:
    return Cake(eggs=eggs)


@activity(retry_policy=RetryPolicy(max_attempts=2, initial_interval=3))
async def bake(ctx: WorkflowContext) -> None:
    raise BurntError(40, shelf="top")


@workflow
async def birthday(ctx: WorkflowContext, eggs: int) -> Cake:
    cake = await stir(ctx, eggs)
    with contextlib.suppress(romancy.RetryExhaustedError):
        await bake(ctx)
    return cake


@workflow
async def accident(ctx: WorkflowContext) -> None:
    await stir(ctx, 1)
    await bake(ctx)


@activity
async def invite(ctx: WorkflowContext, who: str) -> str:
    await register_compensation(ctx, throw_away, eggs=1)
    await send_event_transactional(ctx, "invited", "host", {"who": who})
    return who


@workflow
async def party(ctx: WorkflowContext) -> str:
    who = await invite(ctx, "Ada")
    event = await wait_event(ctx, "answered")
    return f"{who}: {event.data['says']}"


async def record_hooks(flow: Any, *args: Any, **options: Any) -> tuple[RecordingHooks, str]:
    """Run an instance to its end; return its hooks and its id."""
    recording = RecordingHooks()
    async with TestEnvironment(workflows=[flow.romancy], hooks=HooksAdapter(recording), **options) as env:
        handle = await env.app.start_workflow(flow.romancy.with_options(instance_id="one"), *args)
        with contextlib.suppress(romancy.WorkflowFailedError):
            await handle.result()
    return recording, handle.instance_id


async def test_hooks_get_typed_results_and_the_original_errors() -> None:
    recording, one = await record_hooks(birthday, 3)
    names = [what for what, *_ in recording.calls]
    assert names == [
        *["workflow_start", "activity_start", "activity_complete"],
        *["activity_start", "activity_retry", "activity_failed", "workflow_complete"],
    ]
    assert recording.of("workflow_start") == [[one, "birthday", {"eggs": 3}]]
    assert recording.of("activity_start") == [[one, "stir:1", "stir", False], [one, "bake:1", "bake", False]]
    assert recording.of("activity_complete") == [[one, "stir:1", "stir", Cake(eggs=3), False]]
    assert recording.of("workflow_complete") == [[one, "birthday", Cake(eggs=3)]]
    ((_, _, _, error, attempt, delay),) = recording.of("activity_retry")
    assert (type(error), error.minutes, error.shelf, attempt, delay) == (BurntError, 40, "top", 1, 3.0)
    ((*what, last),) = recording.of("activity_failed")
    assert (what, type(last), last is not error) == ([one, "bake:1", "bake"], BurntError, True)


async def test_hooks_are_not_called_for_compensations() -> None:
    recording, one = await record_hooks(accident)
    assert {args[1] for name in ("activity_start", "activity_complete") for args in recording.of(name)} == {
        "stir:1",
        "bake:1",
    }
    ((*what, error),) = recording.of("workflow_failed")
    assert (what, type(error).__name__) == ([one, "accident"], "RetryExhaustedError")


async def test_hooks_are_told_which_results_come_from_the_history() -> None:
    recording = RecordingHooks()
    async with TestEnvironment(workflows=[party.romancy], hooks=HooksAdapter(recording)) as env:
        handle = await env.app.start_workflow(party.romancy.with_options(instance_id="one"))
        await env.settle()
        assert recording.of("event_sent") == [["invited", "host", {"who": "Ada"}]]
        assert recording.of("activity_complete") == [["one", "invite:1", "invite", "Ada", False]]
        recording.calls.clear()
        await env.restart()
        await env.app.send_event("answered", "guest", {"says": "yes"})
        assert await handle.result() == "Ada: yes"
    assert recording.calls == [
        ("activity_start", "one", "invite:1", "invite", True),
        ("activity_complete", "one", "invite:1", "invite", "Ada", True),
        ("event_received", "one", "answered", {"says": "yes"}),
        ("workflow_complete", "one", "party", "Ada: yes"),
    ]


@workflow
async def sorry(ctx: WorkflowContext) -> str:
    with contextlib.suppress(romancy.RetryExhaustedError):
        await bake(ctx)
    return str((await wait_event(ctx, "answered")).data["says"])


async def test_an_error_from_the_history_is_reported_as_a_failure() -> None:
    recording = RecordingHooks()
    async with TestEnvironment(workflows=[sorry.romancy], hooks=HooksAdapter(recording)) as env:
        handle = await env.app.start_workflow(sorry.romancy)
        await env.advance(10)
        recording.calls.clear()
        await env.restart()
        await env.app.send_event("answered", "guest", {"says": "never mind"})
        await handle.result()
    assert [what for what, *_ in recording.calls][:2] == ["activity_start", "activity_failed"]
    error = recording.of("activity_failed")[0][3]
    assert isinstance(error, romancy.RetryExhaustedError)


async def test_hooks_are_called_for_a_cancellation() -> None:
    recording = RecordingHooks()
    async with TestEnvironment(workflows=[party.romancy], hooks=HooksAdapter(recording)) as env:
        handle = await env.app.start_workflow(party.romancy.with_options(instance_id="one"))
        await env.settle()
        await handle.cancel()
        with pytest.raises(romancy.WorkflowCancelledError):
            await handle.result()
    assert recording.calls[-1] == ("workflow_cancelled", "one", "party")


async def test_hooks_of_both_kinds_may_be_given_together(database: str) -> None:
    results: list[str] = []

    class Ours(romancy.Hooks):
        async def on_workflow_complete(self, info: infos.WorkflowCompleted) -> None:
            results.append(f"ours {info.result}")

    class Some(HooksBase):
        async def on_workflow_complete(self, instance_id: str, workflow_name: str, result: Any) -> None:
            results.append(f"some {result!r}")

    class Declared(WorkflowHooks):
        async def on_activity_complete(
            self, instance_id: str, activity_id: str, activity_name: str, result: Any, cache_hit: bool
        ) -> None:
            results.append(f"declared {activity_name}")

    class Plain:
        def on_workflow_cancelled(self, instance_id: str, workflow_name: str) -> None: ...

    hooks = [Ours(), Some(), Declared(), Plain()]
    async with EddaApp("kitchen", database, hooks=hooks, workflows=[light]) as app:
        await light.start()
        assert app.hooks == hooks
    assert sorted(results) == ["declared stir", "ours {'eggs': 2}", "some Cake(eggs=2)"]


@workflow
async def light(ctx: WorkflowContext) -> Cake:
    return await stir(ctx, 2)


async def test_a_hook_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(HooksBase):
        async def on_workflow_start(self, instance_id: str, workflow_name: str, input_data: dict[str, Any]) -> None:
            raise ValueError("no")

    async with TestEnvironment(workflows=[light.romancy], hooks=HooksAdapter(Broken())) as env:
        assert await (await env.app.start_workflow(light.romancy)).result() == Cake(eggs=2)
    assert [one.levelno for one in caplog.records if one.name == "romancy.hooks"] == [logging.ERROR]


@pytest.mark.parametrize("given", [3, object(), HooksBase])
def test_an_object_without_hook_methods_is_refused(given: Any, file: str) -> None:
    with pytest.raises(ConfigurationError, match="such as on_workflow_start; see HooksBase"):
        EddaApp("kitchen", file, hooks=given)


def test_errors_are_made_of_their_names() -> None:
    burnt = rebuild_error(Error(f"{__name__}.BurntError", "40 minutes", "line 1"))
    assert (type(burnt), str(burnt), burnt.__notes__) == (BurntError, "40 minutes", ["line 1"])
    assert type(rebuild_error(Error("ValueError", "v"))) is ValueError
    assert type(rebuild_error(Error("builtins.KeyError", "v"))) is KeyError
    gone = rebuild_error(Error("of.another.program.Outer.GoneError", "away"))
    assert (type(gone).__name__, type(gone).__mro__[1], str(gone)) == ("GoneError", Exception, "away")
    assert type(rebuild_error(Error("asyncio.exceptions.CancelledError", "c"))).__mro__[1] is Exception


async def test_unreported_errors_do_not_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edda_hooks, "_MAX_ERRORS", 2)
    telling = HooksAdapter(RecordingHooks())
    for attempt in range(1, 6):
        started = infos.ActivityStarted(**_info(), attempt=attempt, scheduled_at=NOW)
        with pytest.raises(ValueError, match=str(attempt)), telling.around_activity(started):
            raise ValueError(str(attempt))
    assert [str(error) for error in telling._raised.values()] == ["4", "5"]


NOW = datetime(2030, 1, 1, tzinfo=UTC)


def _info() -> dict[str, Any]:
    common = {"instance_id": "one", "workflow_name": "w", "generation": 1, "worker_id": "me", "at": NOW}
    return {**common, "activity_id": "bake:1", "activity_name": "bake"}
