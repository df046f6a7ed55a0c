"""What a store needs of a database: transactions, and to be told when somebody else has written."""

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


class Database(Protocol):
    """Runs transactions; its errors are `StoreError`."""

    codec: Codec
    """For what the deciding code writes of payloads, and looks into."""

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        """Called on the event loop when another process (or connection) has written."""
        ...

    @on_remote_commit.setter
    def on_remote_commit(self, foreign: Callable[[], None] | None) -> None: ...

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
        """One transaction. In turn: no other that may concern several instances runs beside it."""
        ...

    async def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Reads; of one snapshot where they must fit together."""
        ...

    async def sync_clock(self) -> None:
        """Set the clock by the database's, if it has one, now."""
        ...

    async def vitals(self) -> Vitals:
        """Measure the database itself: product, latency, clock difference."""
        ...

    def engine(self) -> AsyncEngine:
        """Return an SQLAlchemy engine on the same database, for activities' own tables. Raises `ConfigurationError`."""
        ...

    def cursor_on(self, connection: Connection) -> Cursor:
        """The deciding code's statements in a transaction of such an engine."""
        ...

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name for it."""
        ...

    @property
    def has_staging(self) -> bool:
        """What is said in transactions of others has to wait until they have committed."""
        ...

    async def run_on(self, connection: object, work: Work[T]) -> T:
        """Do work on a connection of the driver. Raises `ConfigurationError` if it is none."""
        ...

    async def emit_staged(self) -> None:
        """Say what was staged, if there is anything."""
        ...

    def heartbeat(self, worker: str) -> HeartbeatConnection:
        """Return the heartbeat connection of a worker."""
        ...
