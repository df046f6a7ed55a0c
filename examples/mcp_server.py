"""Workflows as tools of an MCP server: a call outlives the server that took it.

`python mcp_server.py serve` is the server, for any MCP client. Without an argument this program is such a client.

Output:
    tools: deliver, workflow_status, workflow_result, workflow_cancel
    prompts: recommend
    deliver was called; that server is gone
    another one knows: a box with tea, at your door
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters, stdio_client

from romancy import ActivityContext, App, WorkflowContext, activity, sleep, workflow
from romancy.integrations.mcp import ToolServer

server = ToolServer(App("sqlite:///mcp_server.db"), name="shop")


@activity
async def pack(ctx: ActivityContext, item: str) -> str:
    """Put the item into a box."""
    return f"a box with {item}"


@server.tool
@workflow
async def deliver(ctx: WorkflowContext, item: str) -> str:
    """Pack an item and bring it to the customer's door."""
    box = await pack(ctx, item)
    await sleep(ctx, 1)  # the delivery: a day in practice
    return f"{box}, at your door"


@server.prompt
def recommend(item: str) -> str:
    """A prompt that users can choose."""
    return f"Tell me in one sentence why I should order {item}."


async def main() -> None:
    """Call a tool, leave, and ask another process for the result."""
    shop = StdioServerParameters(command=sys.executable, args=[__file__, "serve"])
    async with Client(stdio_client(shop)) as client:
        print("tools:", ", ".join(tool.name for tool in (await client.list_tools()).tools))
        print("prompts:", ", ".join(prompt.name for prompt in (await client.list_prompts()).prompts))
        started = (await client.call_tool("deliver", {"item": "tea"})).structured_content
    print("deliver was called; that server is gone")
    async with Client(stdio_client(shop)) as client:
        asked = {"instance_id": started["instance_id"], "wait": 20}
        answer = await client.call_tool("workflow_result", asked)
        print("another one knows:", answer.structured_content["result"])


if __name__ == "__main__":
    asyncio.run(server.run_stdio() if sys.argv[1:] == ["serve"] else main())
