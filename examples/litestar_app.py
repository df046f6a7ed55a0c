"""Litestar: the app is one of its lifespan managers, and is mounted like any ASGI application.

`python examples/litestar_app.py` serves it on port 8000: orders at /schema, the viewer at /romancy/viewer/.

Output with --once:
    POST /orders: 201 {'order': 'order-1'}
    GET /orders/order-1: 200 {'status': 'completed', 'parcel': 'parcel with a lamp'}
    GET /romancy/health/live: 200 {'status': 'alive'}
"""

import sys
from typing import Any

import uvicorn
from litestar import Litestar, asgi, get, post
from litestar.params import FromPath, FromQuery
from litestar.testing import TestClient
from litestar.types import Receive, Scope, Send

from romancy import ActivityContext, App, WorkflowContext, activity, workflow


@activity
async def pack(ctx: ActivityContext, item: str) -> str:
    """Pack the item."""
    return f"parcel with {item}"


@workflow
async def fulfil(ctx: WorkflowContext, item: str) -> str:
    """Runs after the response."""
    return await pack(ctx, item)


app = App("sqlite:///litestar_app.db", workflows=[fulfil])


@post("/orders")
async def place(order: FromQuery[str], item: FromQuery[str]) -> dict[str, str]:
    """Start a workflow. With a SQLAlchemy session: `app.using(session).start_workflow(...)`."""
    handle = await app.start_workflow(fulfil.with_options(instance_id=order), item)
    return {"order": handle.instance_id}


@get("/orders/{order:str}")
async def show(order: FromPath[str]) -> dict[str, Any]:
    """Return the status of the workflow, after waiting for its result."""
    parcel = await app.get_handle(order).result(timeout=10)
    return {"status": await app.get_handle(order).status(), "parcel": parcel}


@asgi("/romancy", is_mount=True, copy_scope=True)
async def romancy(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve events, the API and the viewer."""
    await app(scope, receive, send)  # type: ignore[arg-type]


site = Litestar([place, show, romancy], lifespan=[app])


def once() -> None:
    """Use it as a test would: the client runs the lifespan."""
    with TestClient(site) as client:
        answer = client.post("/orders", params={"order": "order-1", "item": "a lamp"})
        print("POST /orders:", answer.status_code, answer.json())
        for path in ("/orders/order-1", "/romancy/health/live"):
            answer = client.get(path)
            print(f"GET {path}:", answer.status_code, answer.json())


if __name__ == "__main__":
    if "--once" in sys.argv:
        once()
    else:
        uvicorn.run(site)
