"""An approval that escalates to the next approver after a timeout.

Output:
    asked the manager about a laptop
    asked the director about a laptop
    a laptop: approved by Grace, escalated
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, App, EventTimeoutError, WorkflowContext, activity, wait_event, workflow

TIMEOUT = timedelta(seconds=0.5)  # a day in practice
sent: asyncio.Queue[str] = asyncio.Queue()  # stands for the mail server


@dataclass
class Decision:
    """The answer of an approver."""

    approved: bool
    by: str


@activity
async def ask(ctx: ActivityContext, whom: str, what: str) -> None:
    """Send a mail."""
    print(f"asked the {whom} about {what}")
    await sent.put(whom)


@workflow
async def approval(ctx: WorkflowContext, what: str) -> str:
    """Ask the manager; after a day also ask the director. Both may answer."""
    await ask(ctx, "manager", what)
    escalated = ""
    try:
        answer = await wait_event(ctx, "approval.decided", subject=ctx.instance_id, model=Decision, timeout=TIMEOUT)
    except EventTimeoutError:
        escalated = ", escalated"
        await ask(ctx, "director", what)
        answer = await wait_event(ctx, "approval.decided", subject=ctx.instance_id, model=Decision)
    result = "approved" if answer.data.approved else "refused"
    return f"{what}: {result} by {answer.data.by}{escalated}"


async def main() -> None:
    """The manager is on holiday; the director answers."""
    async with App("sqlite:///approval.db") as app:
        handle = await app.start_workflow(approval, "a laptop")
        while await sent.get() != "director":
            pass
        await app.send_event("approval.decided", "/mail", Decision(True, "Grace"), subject=handle.instance_id)
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
