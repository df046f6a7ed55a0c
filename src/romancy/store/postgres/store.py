"""The store on PostgreSQL."""

from __future__ import annotations

from romancy.clock import Clock
from romancy.store.postgres.database import PostgresDatabase
from romancy.store.postgres.dsn import check_dsn
from romancy.store.sql.server import Crash, IsResumedHere
from romancy.store.sql.store import SqlStore


class PostgresStore(SqlStore):
    """A store in a PostgreSQL database, shared by any number of processes."""

    def __init__(
        self,
        dsn: str,
        *,
        clock: Clock,
        auto_migrate: bool = True,
        pool_size: int = 8,
        listen_notify: bool | None = None,
        listen_dsn: str | None = None,
        crash: Crash | None = None,
        is_resumed_here: IsResumedHere | None = None,
    ) -> None:
        listen_dsn = None if listen_dsn is None else check_dsn(listen_dsn)
        server = PostgresDatabase(
            dsn,
            clock=clock,
            pool_size=pool_size,
            listen_notify=listen_notify,
            listen_dsn=listen_dsn,
            crash=crash,
            is_resumed_here=is_resumed_here,
        )
        super().__init__(server, clock=clock, auto_migrate=auto_migrate)
