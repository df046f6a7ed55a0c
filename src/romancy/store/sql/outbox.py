"""The outbox: rows are enqueued by the transaction that sends an event, and claimed and delivered by relays.

A row becomes visible with the commit that sends its event, and not before. A relay's claim of a row expires by itself, and
the outcome that a relay records counts only while the relay has the claim.
"""

from __future__ import annotations

from collections.abc import Sequence

from romancy.model.messaging import Event
from romancy.model.outbox import DeadLettered, Delayed, Delivered, DeliveryOutcome, OutboxRow, Returned
from romancy.serde.messaging import event_json
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import as_json

OUTBOX_CONTEXT = ("outbox",)
"""The encoding context of an event's body in the outbox."""
_LISTS = {None: "list_outbox", False: "list_outbox_pending", True: "list_outbox_dead"}


def enqueue(cursor: Cursor, event: Event, brokers: Sequence[str], now: int) -> None:
    """Enqueue an event, one row for each broker."""
    body = cursor.codec.encode(event_json(event), OUTBOX_CONTEXT)
    cursor.many("enqueue_outbox", [(broker, body, now, now, now) for broker in brokers])


def claim(cursor: Cursor, broker: str, claimant: str, *, now: int, until: int, limit: int) -> list[OutboxRow]:
    """Claim up to `limit` due rows of a broker, until `until`."""
    due = [OutboxRow(*row) for row in cursor.rows("due_outbox", {"broker": broker, "now": now, "limit": limit})]
    # The claim counts as an attempt: an event whose delivery kills the relay still reaches its retry limit.
    if due:
        cursor.run("claim_outbox", {"claim": claimant, "until": until, "seqs": as_json([row.seq for row in due])})
    return [row._replace(claimed_by=claimant, next_at=until, attempts=row.attempts + 1) for row in due]


def record_outcomes(cursor: Cursor, claimant: str, outcomes: Sequence[DeliveryOutcome]) -> None:
    """Record the outcomes of rows. The outcome of a row whose claim is lost is ignored."""
    for name, kind in (("deliver_outbox", Delivered), ("return_outbox", Returned)):
        if seqs := [one.seq for one in outcomes if isinstance(one, kind)]:
            cursor.run(name, {"claim": claimant, "seqs": as_json(seqs)})
    delayed = [(one.next_at, one.error, one.seq, claimant) for one in outcomes if isinstance(one, Delayed)]
    dead_lettered = [(one.at, one.error, one.seq, claimant) for one in outcomes if isinstance(one, DeadLettered)]
    for name, rows in (("delay_outbox", delayed), ("dead_letter_outbox", dead_lettered)):
        if rows:
            cursor.many(name, rows)


def next_due(cursor: Cursor, broker: str) -> int | None:
    """Return when the next row of a broker is due or its claim expires."""
    found: int | None = cursor.only("next_outbox", (broker,))[0]
    return found


def list_rows(cursor: Cursor, dead: bool | None, *, after: int, limit: int) -> list[OutboxRow]:
    """List rows with `seq` above `after`: only dead ones, only others, or (None) all."""
    return [OutboxRow(*row) for row in cursor.rows(_LISTS[dead], (after, limit))]


def requeue(cursor: Cursor, ids: Sequence[int] | None, *, now: int, limit: int) -> int:
    """Make dead rows due again: those given, or up to `limit` of all."""
    if ids is None:
        ids = [row.seq for row in list_rows(cursor, True, after=0, limit=limit)]
    return cursor.run("requeue_outbox", {"now": now, "seqs": as_json(list(ids))}) if ids else 0


def prune(cursor: Cursor, broker: str, *, dead_before: int, limit: int) -> int:
    """Delete dead rows of a broker."""
    old = [row[0] for row in cursor.rows("old_outbox", (broker, dead_before, limit))]
    return cursor.run("prune_outbox", {"seqs": as_json(old)}) if old else 0


def count(cursor: Cursor, broker: str, *, most: int) -> tuple[int, int]:
    """Count the waiting and the dead rows of a broker, up to `most` each."""
    waiting, dead = cursor.only("count_outbox", {"broker": broker, "most": most})
    return int(waiting), int(dead)


def oldest(cursor: Cursor, broker: str, *, most: int) -> int | None:
    """Return when the oldest of the rows that are due first was enqueued."""
    found: int | None = cursor.only("oldest_outbox", {"broker": broker, "most": most})[0]
    return found
