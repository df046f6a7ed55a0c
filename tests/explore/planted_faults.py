"""Helpers for planted faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from romancy.model.messaging import StoreCall, WaitSelector
from romancy.model.transition import CreateInstance, Transition, Write
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.messaging import MessagingTransaction


def unmatched_waits(cursor: Cursor, batch: Sequence[Write]) -> set[tuple[str, str]]:
    """The waits of a batch, by instance and operation, that nothing available matches now."""
    return {
        (write.instance_id, store_call.entry.op)
        for write, store_call in waits_of(batch)
        if MessagingTransaction(cursor, write.now, refuse_creation)._find_arrival(write.instance_id, store_call) is None
    }


def waits_of(batch: Sequence[Write]) -> Iterator[tuple[Transition, StoreCall]]:
    """All waits of a batch."""
    for write in batch:
        if isinstance(write, Transition):
            yield from (
                (write, store_call) for store_call in write.store_calls if isinstance(store_call.command, WaitSelector)
            )


def refuse_creation(cursor: Cursor, creates: Sequence[CreateInstance]) -> None:
    """Nothing to do: these faults create no instances."""
