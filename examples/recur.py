"""A workflow that runs forever: it recurs, so its history stays short.

Output:
    average of 6 readings: 18.0
    generations: 3
    generation 1: recurred, began with {'count': 0, 'total': 0.0}, 2 entries
    generation 2: recurred, began with {'count': 2, 'total': 24.0}, 2 entries
    generation 3: completed, began with {'count': 4, 'total': 60.0}, 2 entries
"""

import asyncio

from romancy import App, WorkflowContext, wait_event, workflow

PER_GENERATION = 2  # hundreds in practice
LAST = 6  # so that the example ends


@workflow
async def thermometer(ctx: WorkflowContext, count: int = 0, total: float = 0.0) -> float:
    """Take some readings, then recur with the intermediate result. Readings that arrive meanwhile are not lost."""
    for _ in range(PER_GENERATION):
        total += (await wait_event(ctx, "reading", subject=ctx.instance_id, model=float)).data
        count += 1
    if count < LAST:
        await thermometer.recur(ctx, count, total)
    return total / count


async def main() -> None:
    """Send six readings, and look at the generations."""
    async with App("sqlite:///recur.db") as app:
        handle = await app.start_workflow(thermometer)
        for reading in (8.0, 16.0, 18.0, 18.0, 20.0, 28.0):
            await app.send_event("reading", "/roof", reading, subject=handle.instance_id)
        print("average of 6 readings:", await handle.result())

        last = await app.get_instance(handle.instance_id)
        assert last is not None
        print("generations:", last.generation)
        for number in range(1, last.generation + 1):
            one = await app.get_instance(handle.instance_id, generation=number)
            assert one is not None
            entries = [entry async for entry in app.history(handle.instance_id, generation=number)]
            print(f"generation {number}: {one.status}, began with {one.input}, {len(entries)} entries")


if __name__ == "__main__":
    asyncio.run(main())
