"""`TransactionRunner`: the part of a database that `SqlStore` needs: transactions, and notice of remote commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from romancy.codec import Codec
from romancy.errors import StoreError
from romancy.model.admin import Vitals
from romancy.model.transition import Write, WriteResult
from romancy.store.port import HeartbeatConnection
from romancy.store.sql.cursor import Cursor

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")
Work: TypeAlias = Callable[[Cursor], T]


class TransactionRunner(Protocol):
    """Runs transactions; its errors are `StoreError`."""

    codec: Codec
    """Encodes and decodes the payloads that the SQL layer itself writes and reads."""

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        """Called on the event loop after a commit by another process or connection."""
        ...

    @on_remote_commit.setter
    def on_remote_commit(self, callback: Callable[[], None] | None) -> None: ...

    async def migrations(self) -> list[tuple[str, bool]]:
        """List the schema's migrations by name, each with whether it has been applied. The database need not be open."""
        ...

    async def open(self, *, auto_migrate: bool, now: int) -> None:
        """Connect, and bring the schema up to date (or check that it is up to date)."""
        ...

    async def close(self) -> None:
        """Finish queued calls and disconnect. Safe to call twice."""
        ...

    @property
    def concurrent_batches(self) -> int:
        """How many batches the committer should have in flight at a time."""
        ...

    @property
    def call_timeout(self) -> float:
        """Seconds within which every call returns or raises."""
        ...

    async def commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        """Write a batch; return one result for each write, in order."""
        ...

    async def write(self, work: Work[T], *, point: str = "commit", serialized: bool = True) -> T:
        """Run work in one transaction. With `serialized`, no other serialized transaction runs at the same time."""
        ...

    async def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Run reads; with `snapshot`, all on one snapshot."""
        ...

    async def sync_clock(self) -> None:
        """Set the clock by the database's time now, if the database has a clock of its own."""
        ...

    async def vitals(self) -> Vitals:
        """Measure the database itself: product, latency, clock difference."""
        ...

    def engine(self) -> AsyncEngine:
        """Return an SQLAlchemy engine on the same database, for activities' own tables. Raises `ConfigurationError`."""
        ...

    def cursor_on(self, connection: Connection) -> Cursor:
        """Return a cursor for named statements in a transaction of such an engine."""
        ...

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the dialect."""
        ...

    @property
    def has_staging(self) -> bool:
        """Whether effects of callers' transactions are staged until those have committed."""
        ...

    async def run_on(self, connection: object, work: Work[T]) -> T:
        """Run work on a caller's driver connection. Raises `ConfigurationError` if it is not a connection of the driver."""
        ...

    async def emit_staged(self) -> None:
        """Emit staged effects, if there are any."""
        ...

    def heartbeat(self, worker: str) -> HeartbeatConnection:
        """Return the heartbeat connection of a worker."""
        ...
