"""A batch of writes in one transaction: the short way where it will do; a write that cannot be made is answered alone."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.errors import CodecError, StoreError
from romancy.model.transition import Answer, Write
from romancy.store.sql.batch import refused, write_deliberately
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.store.sqlite.failures import BAD_DATA
from romancy.store.sqlite.quick import Quick


def write_whole(cursor: SqliteCursor, batch: Sequence[Write]) -> list[Answer | StoreError]:
    """All writes at once. Raises what the driver raises if one of them cannot be stored."""
    quick = Quick(cursor.raw)
    for index, write in enumerate(batch):
        quick.write(index, write)
    quick.flush()
    answers, late = quick.answers, sorted(quick.late)
    if late:
        answers |= zip(late, write_deliberately(cursor, [batch[index] for index in late]), strict=True)
    return [answers[index] for index in range(len(batch))]


def write_singly(cursor: SqliteCursor, batch: Sequence[Write], path: str) -> list[Answer | StoreError]:
    """Each write by itself, so that one whose data is refused leaves the others alone."""
    return [_write_alone(cursor, write, path) for write in batch]


def _write_alone(cursor: SqliteCursor, write: Write, path: str) -> Answer | StoreError:
    cursor.raw.execute("SAVEPOINT alone")
    try:
        answer = write_whole(cursor, [write])[0]
    except (CodecError, *BAD_DATA) as error:
        cursor.raw.execute("ROLLBACK TO alone")
        answer = error if isinstance(error, CodecError) else refused(path, write, str(error), error)
    cursor.raw.execute("RELEASE alone")
    return answer
