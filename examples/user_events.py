"""Events for one user: by subject, for all instances that wait for it, or addressed to one instance.

Output:
    Ada said hello twice: 2 instances woken
    Bob's profile was addressed: 1 instance woken
    mail to Ada: hello
    history of Ada: hello
    profile of Bob: new address
    not delivered: goodbye
"""

import asyncio

from romancy import App, WorkflowContext, wait_event, workflow


@workflow
async def mail(ctx: WorkflowContext, user: str) -> str:
    """Wait for an event of a user. The subject is indexed, so a million instances may wait for different ones."""
    event = await wait_event(ctx, "user.spoke", subject=user)
    return f"mail to {user}: {event.data}"


@workflow
async def history(ctx: WorkflowContext, user: str) -> str:
    """Wait for the same event: each waiting instance receives it once."""
    event = await wait_event(ctx, "user.spoke", subject=user)
    return f"history of {user}: {event.data}"


@workflow
async def profile(ctx: WorkflowContext, user: str) -> str:
    """Wait for events that are addressed to this instance: the sender needs only its id."""
    event = await wait_event(ctx, "profile.changed")
    return f"profile of {user}: {event.data}"


async def main() -> None:
    """Start three instances, and send their events."""
    async with App("sqlite:///user_events.db") as app:
        handles = [await app.start_workflow(mail, "Ada"), await app.start_workflow(history, "Ada")]
        bob = await app.start_workflow(profile, "Bob")
        for handle in (*handles, bob):
            while await handle.status() != "waiting_for_event":
                await asyncio.sleep(0.01)

        spoken = await app.send_event("user.spoke", "/chat", "hello", subject="Ada")
        await app.send_event("user.spoke", "/chat", "hello", subject="Ada", event_id=spoken.id)  # a duplicate: ignored
        print(f"Ada said hello twice: {len(spoken.instance_ids)} instances woken")
        address = {"romancyinstanceid": bob.instance_id}
        addressed = await app.send_event("profile.changed", "/web", "new address", extensions=address)
        print(f"Bob's profile was addressed: {len(addressed.instance_ids)} instance woken")
        for handle in (*handles, bob):
            print(await handle.result())

        late = await app.send_event("profile.changed", "/web", "goodbye", extensions=address)
        lost = [one.event for one in (await app.list_undeliverable_events()).items if one.event.id == late.id]
        print("not delivered:", lost[0].data)


if __name__ == "__main__":
    asyncio.run(main())
