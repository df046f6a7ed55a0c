"""Tests of the diagram of an instance in the browser: exactly the path that was executed is highlighted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.viewer.conftest import Site

from romancy import ActivityContext, App, TerminalError, WorkflowContext, activity, wait_event, workflow
from romancy.model.status import Status


@activity
async def weigh(ctx: ActivityContext, number: int) -> int:
    return number


@activity
async def refund(ctx: ActivityContext, number: int) -> int:
    raise TerminalError("nothing was paid")


@activity
async def tell(ctx: ActivityContext, text: str) -> str:
    return text


@workflow
async def branching(ctx: WorkflowContext, number: int) -> str:
    if number > 10:
        return await tell(ctx, "large")
    if number > 5:
        return await tell(ctx, "middle")
    else:
        return await tell(ctx, "small")


@workflow
async def looping(ctx: WorkflowContext, number: int) -> int:
    for step in range(number):
        await weigh(ctx, step)
    while number > 100:
        await tell(ctx, "never")
    return number


@workflow
async def trying(ctx: WorkflowContext, number: int) -> str:
    try:
        await weigh(ctx, number)
        await refund(ctx, number)
        await tell(ctx, "refunded")
    except TerminalError:
        return await tell(ctx, "apology")
    return "never"


@workflow
async def fanning(ctx: WorkflowContext, number: int) -> list[Any]:
    return list(await asyncio.gather(weigh(ctx, number), tell(ctx, "one"), tell(ctx, "two")))


@workflow
async def halting(ctx: WorkflowContext, number: int) -> str:
    await weigh(ctx, number)
    await wait_event(ctx, "never.comes")
    return await tell(ctx, "later")


ALL = (branching, looping, trying, fanning)


@asynccontextmanager
async def sample_paths(database: str, *, empty: bool = False) -> AsyncIterator[SimpleNamespace]:
    async with App(database, workflows=[*ALL, halting]) as app:
        for one in ALL:
            await (await app.start_workflow(one.with_options(instance_id=one.name), 3)).result()
        await app.start_workflow(halting.with_options(instance_id="halting"), 3)
        while not (await app.list_instances(status=Status.WAITING_FOR_EVENT)).items:
            await asyncio.sleep(0.01)
        yield SimpleNamespace(app=app)


@pytest.fixture(scope="module")
def diagrams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("sample_paths"), make=sample_paths)
    made.start()
    yield made
    made.stop()


def nodes(page: Page, site: Site, instance_id: str, state: str) -> Locator:
    page.goto(f"{site.root}/viewer/instance?id={instance_id}&view=diagram")
    expect(page.locator("svg.diagram")).to_be_visible()
    return page.locator(f"svg.diagram g.node.{state} text.label")


def test_only_the_executed_one_of_equal_branches_is_highlighted(diagrams: Site, page: Page) -> None:
    expect(nodes(page, diagrams, "branching", "taken")).to_have_text(["tell"])
    expect(page.locator("svg.diagram g.node.untaken text.label")).to_have_text(["tell", "tell"])
    expect(page.locator("svg.diagram g.node.taken")).to_contain_text("small")


def test_a_loop_shows_its_number_of_rounds(diagrams: Site, page: Page) -> None:
    expect(nodes(page, diagrams, "looping", "taken")).to_have_text(["weigh"])
    expect(page.locator("svg.diagram g.node.taken")).to_contain_text("×3")
    expect(page.locator("svg.diagram g.node.untaken text.label")).to_have_text(["tell"])


def test_the_failed_activity_and_its_handler_are_marked(diagrams: Site, page: Page) -> None:
    expect(nodes(page, diagrams, "trying", "failed")).to_have_text(["refund"])
    expect(page.locator("svg.diagram g.node.taken text.label")).to_have_text(["weigh", "tell"])
    expect(page.locator("svg.diagram g.node.untaken text.label")).to_have_text(["tell"])


def test_concurrent_activities_are_marked(diagrams: Site, page: Page) -> None:
    taken = nodes(page, diagrams, "fanning", "taken")
    expect(taken).to_have_count(3)
    tops = {round(box["y"]) for one in taken.all() if (box := one.bounding_box()) is not None}
    assert len(tops) == 1, "concurrent activities are drawn side by side"


def test_the_wait_is_marked(diagrams: Site, page: Page) -> None:
    expect(nodes(page, diagrams, "halting", "waiting")).to_have_count(1)
    expect(page.locator("svg.diagram g.node.taken text.label")).to_have_text(["weigh"])
    expect(page.locator("svg.diagram g.node.untaken text.label")).to_have_text(["tell"])
    page.locator("svg.diagram g.node.waiting").focus()
    expect(page.locator("svg.diagram g.node.waiting")).to_be_focused()
