"""What operators leave behind: who did what, and deeds for many that go on without them."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.model.operators import BatchRow, Deeded
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.keys import ALL


def note(cursor: Cursor, lines: Sequence[Deeded]) -> None:
    """Write down who did what."""
    cursor.many("add_audit", [(line.at, line.actor, line.deed, line.instance_id, line.detail) for line in lines])


def notes(cursor: Cursor, *, instance_id: str | None, before: int | None, limit: int) -> list[Deeded]:
    """What was done, newest first: to one instance, or all."""
    bound = ALL if before is None else before
    if instance_id is None:
        return [Deeded(*line) for line in cursor.rows("list_audit", (bound, limit))]
    return [Deeded(*line) for line in cursor.rows("list_audit_of", (instance_id, bound, limit))]


def forget(cursor: Cursor, *, before: int, limit: int) -> int:
    """Delete those of the oldest lines that were written before a time."""
    return cursor.run("forget_audit", {"before": before, "limit": limit})


def add_batch(cursor: Cursor, batch: BatchRow) -> None:
    """A batch begins."""
    cursor.run("add_batch", tuple(batch))


def batch(cursor: Cursor, batch_id: str) -> BatchRow | None:
    """One batch."""
    line = cursor.first("batch_of", (batch_id,))
    return None if line is None else BatchRow(*line)


def batches(cursor: Cursor, *, limit: int) -> list[BatchRow]:
    """The last batches, newest first."""
    return [BatchRow(*line) for line in cursor.rows("last_batches", (limit,))]


def is_any_open(cursor: Cursor, *, now: int) -> bool:
    """There is a batch that nobody works on."""
    return cursor.first("open_batch", (now,)) is not None


def take_batch(cursor: Cursor, claimant: str, *, now: int, until: int) -> BatchRow | None:
    """The oldest batch that nobody works on, claimed until a time; None if there is none."""
    line = cursor.first("open_batch", (now,))
    if line is None or not keep_batch(cursor, line[0], claimant, now=now, until=until):
        return None
    return batch(cursor, line[0])


def keep_batch(cursor: Cursor, batch_id: str, claimant: str, *, now: int, until: int) -> bool:
    """Claim a batch, or hold on to it. Not if somebody else has it, or it is over."""
    return bool(cursor.run("claim_batch", {"id": batch_id, "claimant": claimant, "now": now, "until": until}))


def save_batch(cursor: Cursor, batch: BatchRow, claimant: str, *, until: int) -> bool:
    """How far a batch has come. Not if the claim is lost, or it is over."""
    values = {
        "id": batch.id,
        "status": batch.status,
        "ended": batch.ended_at,
        "done": batch.done,
        "failed": batch.failed,
        "looked": batch.looked_at,
        "failures": batch.failures,
        "place": batch.place,
        "claimant": claimant,
        "until": until,
    }
    return bool(cursor.run("save_batch", values))


def abort_batch(cursor: Cursor, batch_id: str, *, now: int) -> bool:
    """A batch goes no further. Not if it is over."""
    return bool(cursor.run("abort_batch", (now, batch_id)))
