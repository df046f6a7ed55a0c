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
    """Yield a session for each request. Handlers commit themselves, because FastAPI ends this after the response."""
    async with AsyncSession(request.state.engine) as session:
        yield session


Session = Annotated[AsyncSession, Depends(open_session)]
Workflows = Annotated[App, Depends(current_app)]
router = APIRouter()


class OrderRequest(BaseModel):
    """The order of a customer."""

    customer: str
    item: str
    number: PositiveInt = 1
    hold: float = Field(default=300.0, gt=0, le=7 * 24 * 3600, description="Seconds until it must be paid.")


class CloudEvent(BaseModel):
    """An event from the outbox."""

    source: str
    id: str
    type: str
    data: dict[str, Any]


@router.post("/orders", status_code=201)
async def place(wanted: OrderRequest, session: Session, workflows: Workflows) -> dict[str, Any]:
    """Create the order and its workflow in one transaction."""
    item = await session.get(Item, wanted.item)
    if item is None:
        raise HTTPException(404, f"We have no {wanted.item}.")
    order = Order(id=str(uuid4()), cents=item.cents * wanted.number, **wanted.model_dump(exclude={"hold"}))
    session.add(order)
    await session.flush()
    workflow = fulfil.with_options(instance_id=order.id)
    await workflows.using(session).start_workflow(workflow, order.id, wanted.hold)
    created = {"id": order.id, "cents": order.cents}
    await session.commit()
    return created


@router.get("/orders/{order_id}")
async def show(order_id: str, session: Session, workflows: Workflows) -> dict[str, Any]:
    """Return the status of an order and of its workflow."""
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
    """Return the stock."""
    return {item.name: item.stock for item in await session.scalars(select(Item).order_by(Item.name))}


@router.post("/webhook", status_code=204)
async def webhook(event: CloudEvent, session: Session) -> None:
    """Receive events from the outbox. In practice this is a server of another company."""
    session.add(Notice(source=event.source, id=event.id, type=event.type, customer=event.data["customer"]))
    with suppress(IntegrityError):  # a duplicate: the outbox delivers at least once
        await session.commit()


@router.get("/notices")
async def notices(session: Session) -> list[tuple[str, str]]:
    """Return the events that the webhook has received."""
    found = await session.scalars(select(Notice).order_by(Notice.customer, Notice.type))
    return [(notice.customer, notice.type) for notice in found]
