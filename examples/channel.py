"""Channels: jobs for one of several workers, and notifications for all subscribers.

Output:
    6 jobs, each done once: ['job-1', 'job-2', 'job-3', 'job-4', 'job-5', 'job-6']
    phone got: 2 workers, 6 jobs
    screen got: 2 workers, 6 jobs
"""

import asyncio

from romancy import App, WorkflowContext, WorkflowHandle, publish, receive, subscribe, workflow


@workflow
async def job_worker(ctx: WorkflowContext) -> list[str]:
    """Competing: each job goes to exactly one subscriber."""
    await subscribe(ctx, "jobs", "competing")
    done: list[str] = []
    while (job := await receive(ctx, "jobs", model=str)).data != "stop":
        done.append(job.data)
    return done


@workflow
async def display(ctx: WorkflowContext, name: str) -> str:
    """Broadcast: each notification goes to all current subscribers."""
    await subscribe(ctx, "notifications", "broadcast")
    message = await receive(ctx, "notifications", model=str)
    return f"{name} got: {message.data}"


@workflow
async def boss(ctx: WorkflowContext, jobs: list[str], workers: int) -> None:
    """Publish jobs. They stay in the channel until a worker receives them."""
    for job in [*jobs, *["stop"] * workers]:
        await publish(ctx, "jobs", job)


async def subscribed(handle: WorkflowHandle[str]) -> None:
    """Return when a display waits for its notification."""
    while await handle.status() != "waiting_for_message":
        await asyncio.sleep(0.01)


async def main() -> None:
    """Two workers, two displays."""
    async with App("sqlite:///channel.db") as app:
        await app.start_workflow(boss, [f"job-{n}" for n in range(1, 7)], 2)
        workers = [await app.start_workflow(job_worker) for _ in range(2)]
        done = [job for worker in workers for job in await worker.result()]
        print(f"{len(done)} jobs, each done once:", sorted(done))

        displays = [await app.start_workflow(display, name) for name in ("phone", "screen")]
        await asyncio.gather(*[subscribed(handle) for handle in displays])
        await app.publish("notifications", f"{len(workers)} workers, {len(done)} jobs")
        for handle in displays:
            print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
