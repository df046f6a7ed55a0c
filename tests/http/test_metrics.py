"""GET /metrics: what a process counts, as Prometheus reads it."""

import asyncio

from tests.http.calls import call

from romancy import ActivityContext, App, WorkflowContext, activity, wait_event, workflow


@activity
async def greet(ctx: ActivityContext) -> str:
    return "hello"


@workflow
async def waiter(ctx: WorkflowContext) -> str:
    await greet(ctx)
    await wait_event(ctx, "go")
    return "gone"


def figures(text: str) -> dict[str, int]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: int(value) for name, value in (line.split() for line in lines)}


async def test_what_is_counted(database: str) -> None:
    async with App(database, workflows=[waiter]) as app:
        handle = await app.start_workflow(waiter)
        while figures((await call(app, "/metrics", method="GET")).body.decode()).get("romancy_instances_warm") != 1:
            await asyncio.sleep(0)
        before = figures((await call(app, "/metrics", method="GET")).body.decode())
        await app.send_event("go", "/test")
        await handle.result(timeout=30)
        after = figures((await call(app, "/metrics", method="GET")).body.decode())
    assert (before["romancy_instances_running"], before["romancy_activities_running"]) == (0, 0)
    assert (after["romancy_instances_running"], after["romancy_instances_warm"]) == (0, 0)
    assert after["romancy_commits_total"] > before["romancy_commits_total"] >= 2
    assert after["romancy_writes_total"] >= after["romancy_commits_total"]


async def test_each_figure_says_what_it_is(database: str) -> None:
    async with App(database, workflows=[waiter]) as app:
        answer = await call(app, "/metrics", method="GET")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.body.decode().splitlines()
    assert lines[0].startswith("# HELP romancy_instances_running ")
    assert lines[1] == "# TYPE romancy_instances_running gauge"
    assert "# TYPE romancy_commits_total counter" in lines


async def test_it_is_not_for_everybody(database: str) -> None:
    async with App(database, workflows=[waiter]) as app:
        assert (await call(app, "/metrics", method="GET", client=("192.0.2.1", 5000))).status == 403
        assert (await call(app, "/metrics")).status == 405
