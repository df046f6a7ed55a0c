"""A group: one instance sends a message to all members, and each of them replies.

Output:
    asked 3 shops for a lamp
    dearest: 31, cheapest: 19
    members left: 0
"""

import asyncio

from romancy import (
    App,
    WorkflowContext,
    get_group_members,
    join_group,
    receive,
    send_to,
    send_to_group,
    subscribe,
    workflow,
)


@workflow
async def shop(ctx: WorkflowContext, price: int) -> None:
    """Join, answer one question, and end. An instance that ends leaves its groups."""
    await subscribe(ctx, "questions", "direct")
    await join_group(ctx, "shops")
    question = await receive(ctx, "questions")
    await send_to(ctx, question.metadata["reply_to"], "offers", price)


@workflow
async def buyer(ctx: WorkflowContext, item: str) -> str:
    """Ask all shops, and receive the offer of each."""
    await subscribe(ctx, "offers", "direct")
    shops = await get_group_members(ctx, "shops")
    await send_to_group(ctx, "shops", "questions", item, metadata={"reply_to": ctx.instance_id})
    offers = [(await receive(ctx, "offers", model=int)).data for _ in shops]
    return f"asked {len(shops)} shops for {item}\ndearest: {max(offers)}, cheapest: {min(offers)}"


async def main() -> None:
    """Run three shops and a buyer."""
    async with App("sqlite:///groups.db") as app:
        shops = [await app.start_workflow(shop, price) for price in (24, 19, 31)]
        while len(await app.get_group_members("shops")) < len(shops):
            await asyncio.sleep(0.01)
        handle = await app.start_workflow(buyer, "a lamp")
        print(await handle.result())
        await asyncio.gather(*[handle.result() for handle in shops])
        print("members left:", len(await app.get_group_members("shops")))


if __name__ == "__main__":
    asyncio.run(main())
