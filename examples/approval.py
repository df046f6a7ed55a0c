"""An approval that goes to the next in line when nobody answers in time.

Output:
    asked the manager about a laptop
    asked the director about a laptop
    a laptop: approved by Grace, escalated
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, App, EventTimeoutError, WorkflowContext, activity, wait_event, workflow

PATIENCE = timedelta(seconds=0.5)  # a day, in an office
mails: asyncio.Queue[str] = asyncio.Queue()  # stands for the mail server


@dataclass
class Decision:
    """What an approver answers."""

    approved: bool
    by: str


@activity
async def ask(ctx: ActivityContext, whom: str, what: str) -> None:
    """Send a mail."""
    print(f"asked the {whom} about {what}")
    await mails.put(whom)


@workflow
async def approval(ctx: WorkflowContext, what: str) -> str:
    """The manager has a day; then the director is asked, and the manager may still answer."""
    await ask(ctx, "manager", what)
    escalated = ""
    try:
        answer = await wait_event(ctx, "approval.decided", subject=ctx.instance_id, model=Decision, timeout=PATIENCE)
    except EventTimeoutError:
        escalated = ", escalated"
        await ask(ctx, "director", what)
        answer = await wait_event(ctx, "approval.decided", subject=ctx.instance_id, model=Decision)
    verdict = "approved" if answer.data.approved else "refused"
    return f"{what}: {verdict} by {answer.data.by}{escalated}"


async def main() -> None:
    """The manager is on holiday; the director answers."""
    async with App("sqlite:///approval.db") as app:
        handle = await app.start_workflow(approval, "a laptop")
        while await mails.get() != "director":
            pass
        await app.send_event("approval.decided", "/mail", Decision(True, "Grace"), subject=handle.instance_id)
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
