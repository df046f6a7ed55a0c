"""FastAPI: an order and its workflow in one transaction, and the viewer beside them.

`python examples/fastapi_app.py` serves it on port 8000: orders at /docs, the viewer at /romancy/viewer/.

Output with --once:
    POST /orders: 201 {'order': 'order-1'}
    GET /orders/order-1: 200 {'status': 'completed', 'parcel': 'parcel with 2 lamps'}
    POST /orders, no such item: 404, and nothing was started: None
    GET /romancy/health/live: 200 {'status': 'alive'}
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from romancy import ActivityContext, App, WorkflowContext, activity, workflow
from romancy.integrations.fastapi import current_app, lifespan

engine = create_async_engine("sqlite+aiosqlite:///fastapi_app.db")


@activity
async def pack(ctx: ActivityContext, order: str) -> str:
    """Read the order in the transaction that also records the result."""
    row = (await ctx.session.execute(text("SELECT item, number FROM orders WHERE id = :id"), {"id": order})).one()
    return f"parcel with {row.number} {row.item}"


@workflow
async def fulfil(ctx: WorkflowContext, order: str) -> str:
    """Runs after the response."""
    return await pack(ctx, order)


@asynccontextmanager
async def tables(_: FastAPI) -> AsyncIterator[None]:
    """Your own lifespan, around that of the app."""
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT, number INTEGER)"))
    yield
    await engine.dispose()


app = App("sqlite:///fastapi_app.db", workflows=[fulfil])
api = FastAPI(lifespan=lifespan(app, tables))
api.mount("/romancy", app)  # accepts only this machine, unless the app has auth=[Token(...)]
Workflows = Annotated[App, Depends(current_app)]


@api.post("/orders", status_code=201)
async def place(order: str, item: str, number: int, workflows: Workflows) -> dict[str, str]:
    """Commit the order and its workflow together, before the response. A repeated request changes nothing."""
    async with AsyncSession(engine) as session, session.begin():
        row = {"id": order, "item": item, "number": number}
        await session.execute(text("INSERT INTO orders VALUES (:id, :item, :number) ON CONFLICT DO NOTHING"), row)
        await workflows.using(session).start_workflow(fulfil.with_options(instance_id=order), order)
        if item not in ("lamps", "chairs"):
            raise HTTPException(404, f"we have no {item}")
    return {"order": order}


@api.get("/orders/{order}")
async def show(order: str, workflows: Workflows) -> dict[str, Any]:
    """Return the status of the workflow, after waiting for its result."""
    parcel = await workflows.get_handle(order).result(timeout=10)
    return {"status": await workflows.get_handle(order).status(), "parcel": parcel}


def once() -> None:
    """Use it as a test would: the client runs the lifespan."""
    with TestClient(api) as client:
        answer = client.post("/orders", params={"order": "order-1", "item": "lamps", "number": 2})
        print("POST /orders:", answer.status_code, answer.json())
        answer = client.get("/orders/order-1")
        print("GET /orders/order-1:", answer.status_code, answer.json())
        answer = client.post("/orders", params={"order": "order-2", "item": "unicorns", "number": 1})
        found = client.portal.call(app.get_instance, "order-2") if client.portal else None
        print(f"POST /orders, no such item: {answer.status_code}, and nothing was started: {found}")
        answer = client.get("/romancy/health/live")
        print("GET /romancy/health/live:", answer.status_code, answer.json())


if __name__ == "__main__":
    if "--once" in sys.argv:
        once()
    else:
        uvicorn.run(api)
