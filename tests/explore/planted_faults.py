"""What several planted faults need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from romancy.model.messaging import StoreCall, WaitSelector
from romancy.model.transition import CreateInstance, Transition, Write
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.messaging import MessagingTransaction


def in_vain(cursor: Cursor, batch: Sequence[Write]) -> set[tuple[str, str]]:
    """The waits of a batch, by instance and operation, for which there is nothing now."""
    return {
        (write.instance_id, ask.entry.op)
        for write, ask in waits_of(batch)
        if MessagingTransaction(cursor, write.now, create_nothing)._find_arrival(write.instance_id, ask) is None
    }


def waits_of(batch: Sequence[Write]) -> Iterator[tuple[Transition, StoreCall]]:
    """Everything that is waited for in a batch."""
    for write in batch:
        if isinstance(write, Transition):
            yield from ((write, ask) for ask in write.store_calls if isinstance(ask.command, WaitSelector))


def create_nothing(cursor: Cursor, creates: Sequence[CreateInstance]) -> None:
    """Nobody asks for that."""
