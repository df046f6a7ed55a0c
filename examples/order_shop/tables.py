"""The shop's own tables. They are in the database of the workflows, so that one transaction can change both."""

from sqlalchemy import ForeignKey, String
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SHELVES = {"lamps": (5, 1999), "chairs": (2, 4999)}


class Base(DeclarativeBase):
    """The base class of all tables."""


class Item(Base):
    """An item for sale."""

    __tablename__ = "shop_items"
    name: Mapped[str] = mapped_column(String(50), primary_key=True)
    stock: Mapped[int]
    cents: Mapped[int]


class Order(Base):
    """An order of a customer. Its id is that of its workflow."""

    __tablename__ = "shop_orders"
    id: Mapped[str] = mapped_column(String(50), primary_key=True)
    customer: Mapped[str] = mapped_column(String(50))
    item: Mapped[str] = mapped_column(String(50), ForeignKey(Item.name))
    number: Mapped[int]
    cents: Mapped[int]
    status: Mapped[str] = mapped_column(String(100), default="new")
    paid: Mapped[int] = mapped_column(default=0)
    paid_back: Mapped[int] = mapped_column(default=0)


class Notice(Base):
    """An event that the webhook has received. The primary key makes duplicates harmless."""

    __tablename__ = "shop_notices"
    source: Mapped[str] = mapped_column(String(100), primary_key=True)
    id: Mapped[str] = mapped_column(String(100), primary_key=True)
    type: Mapped[str] = mapped_column(String(100))
    customer: Mapped[str] = mapped_column(String(50))


async def prepare(engine: AsyncEngine) -> None:
    """Create the tables and the stock, the first time."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(engine) as session, session.begin():
        for name, (stock, cents) in SHELVES.items():
            if await session.get(Item, name) is None:
                session.add(Item(name=name, stock=stock, cents=cents))
