"""Applies a batch of writes in one transaction: on the fast path where possible, else on the slow path."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.errors import CodecError, StoreError
from romancy.model.transition import Write, WriteResult
from romancy.store.sql.apply import apply_serialized, refused_data_error
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.store.sqlite.errors import BAD_DATA
from romancy.store.sqlite.fast_path import SqliteFastPath


def apply_batch(cursor: SqliteCursor, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
    """Apply all writes. Raises the driver's error if the data of one of them cannot be stored."""
    fast_path = SqliteFastPath(cursor.raw)
    for index, write in enumerate(batch):
        fast_path.write(index, write)
    fast_path.flush()
    results, slow_path = fast_path.results, sorted(fast_path.slow_path)
    if slow_path:
        results |= zip(slow_path, apply_serialized(cursor, [batch[index] for index in slow_path]), strict=True)
    return [results[index] for index in range(len(batch))]


def apply_one_by_one(cursor: SqliteCursor, batch: Sequence[Write], path: str) -> list[WriteResult | StoreError]:
    """Apply each write in a savepoint of its own, so that one whose data is refused does not fail the others."""
    return [_apply_one(cursor, write, path) for write in batch]


def _apply_one(cursor: SqliteCursor, write: Write, path: str) -> WriteResult | StoreError:
    cursor.raw.execute("SAVEPOINT alone")
    try:
        result = apply_batch(cursor, [write])[0]
    except (CodecError, *BAD_DATA) as error:
        cursor.raw.execute("ROLLBACK TO alone")
        result = error if isinstance(error, CodecError) else refused_data_error(path, write, str(error), error)
    cursor.raw.execute("RELEASE alone")
    return result
