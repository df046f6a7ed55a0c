"""A loan: small ones are decided by a score, large ones by a person, unless the applicant withdraws first.

Output:
    Ada, 500: approved by the score
    Bob, 90000: refused by an officer: no income
    Eve, 90000: withdrawn
"""

import asyncio

from romancy import ActivityContext, App, WorkflowContext, WorkflowHandle, activity, wait_event, workflow


@activity
async def score(ctx: ActivityContext, name: str) -> int:
    """Ask the credit agency."""
    return 640 + len(name)


@workflow
async def loan(ctx: WorkflowContext, name: str, amount: int) -> str:
    """The first event counts. The other wait is cancelled, and does not consume its event."""
    if await score(ctx, name) > 600 and amount < 1000:
        return "approved by the score"
    waits = [wait_event(ctx, kind, subject=ctx.instance_id) for kind in ("loan.reviewed", "loan.withdrawn")]
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in pending:
        wait.cancel()
    event = done.pop().result()
    if event.type == "loan.withdrawn":
        return "withdrawn"
    return f"{'approved' if event.data['approved'] else 'refused'} by an officer: {event.data['reason']}"


async def decide(app: App, bob: WorkflowHandle[str], eve: WorkflowHandle[str]) -> None:
    """Outside of the workflow: an officer reviews one application, an applicant withdraws another."""
    review = {"approved": False, "reason": "no income"}
    await app.send_event("loan.reviewed", "/officers/7", review, subject=bob.instance_id)
    await app.send_event("loan.withdrawn", "/website", subject=eve.instance_id)


async def main() -> None:
    """Run three applications."""
    async with App("sqlite:///loan_approval.db") as app:
        applications = [("Ada", 500), ("Bob", 90000), ("Eve", 90000)]
        handles = [await app.start_workflow(loan, *one) for one in applications]
        async with asyncio.TaskGroup() as outside:
            outside.create_task(decide(app, handles[1], handles[2]))
            for (name, amount), handle in zip(applications, handles, strict=True):
                print(f"{name}, {amount}: {await handle.result()}")


if __name__ == "__main__":
    asyncio.run(main())
