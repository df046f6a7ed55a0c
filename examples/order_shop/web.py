"""The shop on the web."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any
from uuid import uuid4

from examples.order_shop.tables import Item, Notice, Order, prepare
from examples.order_shop.workflows import fulfil
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel, Field, PositiveInt
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from romancy import App
from romancy.integrations.fastapi import current_app, lifespan


def build(app: App, engine: AsyncEngine) -> FastAPI:
    """The web application, with the viewer in it."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        await prepare(engine)
        yield {"engine": engine}
        await engine.dispose()

    api = FastAPI(title="Order shop", lifespan=lifespan(app, life))
    api.include_router(router)
    api.mount("/romancy", app)
    return api


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    """A session for each request. Who writes commits: FastAPI ends this after the answer has been sent."""
    async with AsyncSession(request.state.engine) as session:
        yield session


Session = Annotated[AsyncSession, Depends(open_session)]
Workflows = Annotated[App, Depends(current_app)]
router = APIRouter()


class Wish(BaseModel):
    """What a customer orders."""

    customer: str
    item: str
    number: PositiveInt = 1
    hold: float = Field(default=300.0, gt=0, le=7 * 24 * 3600, description="Seconds until it must be paid.")


class CloudEvent(BaseModel):
    """What the outbox sends."""

    source: str
    id: str
    type: str
    data: dict[str, Any]


@router.post("/orders", status_code=201)
async def place(wish: Wish, session: Session, workflows: Workflows) -> dict[str, Any]:
    """The order and its workflow, in one transaction."""
    item = await session.get(Item, wish.item)
    if item is None:
        raise HTTPException(404, f"We have no {wish.item}.")
    order = Order(id=str(uuid4()), cents=item.cents * wish.number, **wish.model_dump(exclude={"hold"}))
    session.add(order)
    await session.flush()
    workflow = fulfil.with_options(instance_id=order.id)
    await workflows.using(session).start_workflow(workflow, order.id, wish.hold)
    answer = {"id": order.id, "cents": order.cents}
    await session.commit()
    return answer


@router.get("/orders/{order_id}")
async def show(order_id: str, session: Session, workflows: Workflows) -> dict[str, Any]:
    """How an order stands, and how its workflow does."""
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, "There is no such order.")
    return {
        "status": order.status,
        "paid": order.paid,
        "paid_back": order.paid_back,
        "workflow": await workflows.get_handle(order_id).status(),
    }


@router.get("/stock")
async def stock(session: Session) -> dict[str, int]:
    """What is on the shelves."""
    return {item.name: item.stock for item in await session.scalars(select(Item).order_by(Item.name))}


@router.post("/webhook", status_code=204)
async def webhook(event: CloudEvent, session: Session) -> None:
    """Where the outbox sends to; in real life, somebody else's server."""
    session.add(Notice(source=event.source, id=event.id, type=event.type, customer=event.data["customer"]))
    with suppress(IntegrityError):  # it has come before: at least once is the outbox's promise
        await session.commit()


@router.get("/notices")
async def notices(session: Session) -> list[tuple[str, str]]:
    """What has come to the webhook."""
    found = await session.scalars(select(Notice).order_by(Notice.customer, Notice.type))
    return [(notice.customer, notice.type) for notice in found]
