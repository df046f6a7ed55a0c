"""The store on MySQL and MariaDB."""

from __future__ import annotations

from romancy.clock import Clock
from romancy.store.mysql.database import MySqlDatabase
from romancy.store.sql.server import Crash
from romancy.store.sql.store import SqlStore


class MySqlStore(SqlStore):
    """A store in a MySQL or MariaDB database, shared by any number of processes."""

    def __init__(
        self, dsn: str, *, clock: Clock, auto_migrate: bool = True, pool_size: int = 8, crash: Crash | None = None
    ) -> None:
        server = MySqlDatabase(dsn, clock=clock, pool_size=pool_size, crash=crash)
        super().__init__(server, clock=clock, auto_migrate=auto_migrate)
