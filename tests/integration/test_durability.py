"""What an activity sees in the database when it starts: everything that led to it."""

from __future__ import annotations

from tests import databases

from romancy import ActivityContext, App, WorkflowContext, activity, workflow


async def test_what_led_to_an_activity_is_durable_before_it_starts(database: str) -> None:
    @activity
    async def reserve(ctx: ActivityContext) -> str:
        return "reserved"

    @activity
    def look(ctx: ActivityContext) -> list[str]:
        """As another process would."""
        return [str(name) for (name,) in databases.execute(database, "SELECT op FROM romancy_history")]

    @workflow
    async def order(ctx: WorkflowContext) -> list[str]:
        await reserve(ctx)
        return await look(ctx)

    async with App(database, workflows=[order]) as app:
        assert await (await app.start_workflow(order)).result() == ["reserve:1"]
