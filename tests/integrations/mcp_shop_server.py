"""An MCP server process for tests: `python mcp_shop_server.py stdio`, or `http PORT`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import uvicorn

from romancy import ActivityContext, App, Token, WorkflowContext, activity, wait_event, workflow
from romancy.integrations.mcp import ToolServer

FOLDER = Path(os.environ.get("SHOP", "."))
TOKENS = [Token("the-admin")]
app = App(
    f"sqlite:///{FOLDER / 'shop.db'}",
    heartbeat_interval=0.2,
    lease_timeout=1,
    shutdown_timeout=1,
    auth=TOKENS if "AUTH" in os.environ else None,
)
server = ToolServer(app, name="shop", instructions="Orders.")


@activity
async def pack(ctx: ActivityContext, item: str) -> str:
    with (FOLDER / "packed").open("a") as record:
        record.write(f"{item}\n")
    return f"a box with {item}"


@activity
async def carry(ctx: ActivityContext, box: str) -> str:
    (FOLDER / f"carrying-{os.getpid()}").touch()
    while not (FOLDER / "gate").exists():
        await asyncio.sleep(0.02)
    return f"{box}, delivered"


@server.tool(title="Order something")
@workflow
async def order(ctx: WorkflowContext, item: str, amount: int = 1) -> str:
    """Pack and deliver."""
    box = await pack(ctx, f"{amount} {item}")
    return await carry(ctx, box)


@server.tool(name="approve", description="Wait for a yes.")
@workflow
async def approval(ctx: WorkflowContext, what: str) -> dict[str, object]:
    return {"what": what, "answer": (await wait_event(ctx, "decided", subject=what)).data}


@workflow
async def secret(ctx: WorkflowContext) -> str:
    """A workflow that is not a tool: no client may see its instances."""
    return "gold"


@server.prompt
def sell(item: str) -> str:
    """A prompt that asks for a sales pitch."""
    return f"Sell me {item}."


async def serve_http(port: int) -> None:
    """Serve on a port, or on any free port if it is 0, and print the port."""
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(server.asgi_app(), lifespan="on", log_level="warning")
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    asyncio.run(server.run_stdio() if sys.argv[1] == "stdio" else serve_http(int(sys.argv[2])))
