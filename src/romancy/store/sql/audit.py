"""What operators leave behind: who did what, and effects for many that go on without them."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.model.admin import AuditRow, BulkActionRow
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import NO_LIMIT


def add_audit(cursor: Cursor, rows: Sequence[AuditRow]) -> None:
    """Write down who did what."""
    cursor.many("add_audit", [(line.at, line.actor, line.action, line.instance_id, line.detail) for line in rows])


def list_audit(cursor: Cursor, *, instance_id: str | None, before: int | None, limit: int) -> list[AuditRow]:
    """What was done, newest first: to one instance, or all."""
    bound = NO_LIMIT if before is None else before
    if instance_id is None:
        return [AuditRow(*line) for line in cursor.rows("list_audit", (bound, limit))]
    return [AuditRow(*line) for line in cursor.rows("list_audit_of", (instance_id, bound, limit))]


def prune_audit(cursor: Cursor, *, before: int, limit: int) -> int:
    """Delete those of the oldest lines that were written before a time."""
    return cursor.run("prune_audit", {"before": before, "limit": limit})


def add_bulk_action(cursor: Cursor, action: BulkActionRow) -> None:
    """A batch begins."""
    cursor.run("add_bulk_action", tuple(action))


def bulk_action(cursor: Cursor, action_id: str) -> BulkActionRow | None:
    """One batch."""
    line = cursor.first("bulk_action_of", (action_id,))
    return None if line is None else BulkActionRow(*line)


def bulk_actions(cursor: Cursor, *, limit: int) -> list[BulkActionRow]:
    """The last batches, newest first."""
    return [BulkActionRow(*line) for line in cursor.rows("last_bulk_actions", (limit,))]


def has_open_bulk_action(cursor: Cursor, *, now: int) -> bool:
    """There is a batch that nobody works on."""
    return cursor.first("open_bulk_action", (now,)) is not None


def claim_bulk_action(cursor: Cursor, claimant: str, *, now: int, until: int) -> BulkActionRow | None:
    """The oldest batch that nobody works on, claimed until a time; None if there is none."""
    line = cursor.first("open_bulk_action", (now,))
    if line is None or not renew_claim(cursor, line[0], claimant, now=now, until=until):
        return None
    return bulk_action(cursor, line[0])


def renew_claim(cursor: Cursor, action_id: str, claimant: str, *, now: int, until: int) -> bool:
    """Claim a batch, or hold on to it. Not if somebody else has it, or it is over."""
    return bool(cursor.run("claim_bulk_action", {"id": action_id, "claimant": claimant, "now": now, "until": until}))


def save_bulk_action(cursor: Cursor, action: BulkActionRow, claimant: str, *, until: int) -> bool:
    """How far a batch has come. Not if the claim is lost, or it is over."""
    values = {
        "id": action.id,
        "status": action.status,
        "ended": action.ended_at,
        "done": action.done,
        "failed": action.failed,
        "scanned": action.scanned,
        "failures": action.failures,
        "cursor": action.cursor,
        "claimant": claimant,
        "until": until,
    }
    return bool(cursor.run("save_bulk_action", values))


def abort_bulk_action(cursor: Cursor, action_id: str, *, now: int) -> bool:
    """A batch goes no further. Not if it is over."""
    return bool(cursor.run("abort_bulk_action", (now, action_id)))
