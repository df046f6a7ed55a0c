"""Reads the stored data of an instance: through a client and, for attempts and owners, through the store port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from romancy import Client, HistoryEntry, Instance, WorkflowNotFoundError
from romancy.clock import SystemClock
from romancy.model.history import AttemptRow
from romancy.store.open import open_store
from romancy.store.port import JournalEntry, Store

_POLL_INTERVAL = 1.0
"""Seconds between two queries of the database if no notification arrives."""


@dataclass(frozen=True, slots=True)
class Kill:
    """When a worker was killed, and the open attempt in the database at that time."""

    at: int
    attempt: AttemptRow


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """One instance with all its records."""

    instance: Instance
    history: tuple[HistoryEntry, ...]
    attempts: tuple[AttemptRow, ...]
    """Attempts that failed and were followed by another."""
    journal: tuple[JournalEntry, ...]
    kill: Kill | None = None
    """Not from the database, because a killed worker cannot write it."""


class RecordReader:
    """Reads the records of instances."""

    def __init__(self, client: Client, store: Store) -> None:
        self._client = client
        self._store = store
        self._written = asyncio.Event()
        store.on_remote_commit = self._written.set

    async def open_attempt(self, instance_id: str) -> AttemptRow:
        """Return the open attempt of an instance; wait until the database has one."""
        while True:
            self._written.clear()
            for attempt in await self._store.attempts(instance_id, 1):
                if attempt.open:
                    return attempt
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._written.wait(), _POLL_INTERVAL)

    async def read(self, instance_id: str, kill: Kill | None = None) -> InstanceRecord:
        """Return all records of one instance."""
        instance = await self._client.get_instance(instance_id)
        if instance is None:
            raise WorkflowNotFoundError(f"There is no instance {instance_id!r}.")
        return InstanceRecord(
            instance=instance,
            history=tuple([entry async for entry in self._client.history(instance_id)]),
            attempts=tuple(one for one in await self._store.attempts(instance_id, 1) if not one.open),
            journal=tuple(await self._store.journal(instance_id)),
            kill=kill,
        )


@asynccontextmanager
async def open_records(client: Client, database: str) -> AsyncGenerator[RecordReader]:
    """Open the records of a database that a client has already opened and migrated."""
    store = open_store(database, clock=SystemClock(), auto_migrate=False)
    await store.open()
    try:
        yield RecordReader(client, store)
    finally:
        await store.close()
