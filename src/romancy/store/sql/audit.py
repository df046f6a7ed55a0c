"""The audit log of operators' actions, and bulk actions, which workers run in the background."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.model.admin import AuditRow, BulkActionRow
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import NO_LIMIT


def add_audit(cursor: Cursor, rows: Sequence[AuditRow]) -> None:
    """Add rows to the audit log."""
    cursor.many("add_audit", [(row.at, row.actor, row.action, row.instance_id, row.detail) for row in rows])


def list_audit(cursor: Cursor, *, instance_id: str | None, before: int | None, limit: int) -> list[AuditRow]:
    """List the audit log, newest first: of one instance, or of all."""
    bound = NO_LIMIT if before is None else before
    if instance_id is None:
        return [AuditRow(*row) for row in cursor.rows("list_audit", (bound, limit))]
    return [AuditRow(*row) for row in cursor.rows("list_audit_of", (instance_id, bound, limit))]


def prune_audit(cursor: Cursor, *, before: int, limit: int) -> int:
    """Delete those of the oldest rows that were written before a time."""
    return cursor.run("prune_audit", {"before": before, "limit": limit})


def add_bulk_action(cursor: Cursor, action: BulkActionRow) -> None:
    """Add a bulk action."""
    cursor.run("add_bulk_action", tuple(action))


def bulk_action(cursor: Cursor, action_id: str) -> BulkActionRow | None:
    """Return one bulk action."""
    row = cursor.first("bulk_action_of", (action_id,))
    return None if row is None else BulkActionRow(*row)


def bulk_actions(cursor: Cursor, *, limit: int) -> list[BulkActionRow]:
    """List the last bulk actions, newest first."""
    return [BulkActionRow(*row) for row in cursor.rows("last_bulk_actions", (limit,))]


def has_open_bulk_action(cursor: Cursor, *, now: int) -> bool:
    """Return whether there is a running bulk action that is not claimed."""
    return cursor.first("open_bulk_action", (now,)) is not None


def claim_bulk_action(cursor: Cursor, claimant: str, *, now: int, until: int) -> BulkActionRow | None:
    """Claim the oldest running bulk action that is not claimed; None if there is none."""
    row = cursor.first("open_bulk_action", (now,))
    # Another worker may have claimed it since: the UPDATE of `renew_claim` decides.
    if row is None or not renew_claim(cursor, row[0], claimant, now=now, until=until):
        return None
    return bulk_action(cursor, row[0])


def renew_claim(cursor: Cursor, action_id: str, claimant: str, *, now: int, until: int) -> bool:
    """Claim a bulk action or extend its claim; False if another worker has claimed it or it is over."""
    return bool(cursor.run("claim_bulk_action", {"id": action_id, "claimant": claimant, "now": now, "until": until}))


def save_bulk_action(cursor: Cursor, action: BulkActionRow, claimant: str, *, until: int) -> bool:
    """Save the progress of a bulk action; False if the claim is lost or the action is over."""
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
    """Abort a bulk action; False if it is over already."""
    return bool(cursor.run("abort_bulk_action", (now, action_id)))
