"""A batch of writes in one transaction: the short way where it will do; a write that cannot be made is answered alone."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.errors import CodecError, StoreError
from romancy.model.transition import Write, WriteResult
from romancy.store.sql.apply import apply_serialized, refused_data_error
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.store.sqlite.errors import BAD_DATA
from romancy.store.sqlite.fast_path import SqliteFastPath


def apply_batch(cursor: SqliteCursor, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
    """All writes at once. Raises what the driver raises if one of them cannot be stored."""
    quick = SqliteFastPath(cursor.raw)
    for index, write in enumerate(batch):
        quick.write(index, write)
    quick.flush()
    answers, late = quick.answers, sorted(quick.slow_path)
    if late:
        answers |= zip(late, apply_serialized(cursor, [batch[index] for index in late]), strict=True)
    return [answers[index] for index in range(len(batch))]


def apply_one_by_one(cursor: SqliteCursor, batch: Sequence[Write], path: str) -> list[WriteResult | StoreError]:
    """Each write by itself, so that one whose data is refused leaves the others alone."""
    return [_apply_one(cursor, write, path) for write in batch]


def _apply_one(cursor: SqliteCursor, write: Write, path: str) -> WriteResult | StoreError:
    cursor.raw.execute("SAVEPOINT alone")
    try:
        answer = apply_batch(cursor, [write])[0]
    except (CodecError, *BAD_DATA) as error:
        cursor.raw.execute("ROLLBACK TO alone")
        answer = error if isinstance(error, CodecError) else refused_data_error(path, write, str(error), error)
    cursor.raw.execute("RELEASE alone")
    return answer
