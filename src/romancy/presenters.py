"""The conversion of stored records into the public records that users and operators read."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any

from romancy.clock import to_datetime
from romancy.codec import encoding_of, is_encoded
from romancy.errors import ConfigurationError
from romancy.model.history import AttemptRow, Entry, Outcome, Role
from romancy.model.instance import AttemptEntry, Error, HistoryEntry, Instance, JournalLine, StoredInstance, WaitingFor
from romancy.model.messaging import TARGET, ReceivedEvent, UndeliverableEvent
from romancy.model.outbox import OutboxEntry, OutboxRow
from romancy.model.transition import Wait
from romancy.serde.failure import describe_failure
from romancy.serde.messaging import received_event
from romancy.store.port import JournalEntry


def value_of(raw: bytes | None) -> Any:
    """Return a stored payload as plain JSON.

    A payload that is damaged or encoded becomes a text that says so, because an error would hide the rest of the record.
    """
    if is_encoded(raw):
        return f"encoded: {encoding_of(raw or b'')}"
    try:
        return None if raw is None else json.loads(raw)
    except (ValueError, RecursionError):
        return repr(raw)


def error_of(raw: bytes | None) -> Error | None:
    """Convert a stored failure."""
    if raw is None:
        return None
    info = describe_failure(raw)
    cause = f"\nCaused by:\n{info.cause.trace}" if info.cause is not None and info.cause.trace else ""
    return Error(info.type, info.message, info.trace + cause)


def instance_of(stored: StoredInstance, error: Error | None = None) -> Instance:
    """Convert a stored instance; `error` replaces its own."""
    row = stored.row
    return Instance(
        instance_id=row.instance_id,
        workflow_name=row.workflow,
        version=row.version or None,
        status=row.status,
        generation=row.generation,
        continued_from=row.generation - 1 if row.generation > 1 else None,
        input=value_of(stored.input),
        output=value_of(stored.output),
        error=error or error_of(stored.error),
        waiting_for=tuple(waiting_of(wait) for wait in stored.waits),
        worker_id=row.owner,
        created_at=to_datetime(row.created_at),
        started_at=_time(row.started_at),
        updated_at=to_datetime(row.updated_at),
        ended_at=_time(row.ended_at),
    )


def waiting_of(wait: Wait) -> WaitingFor:
    """Convert a wait of an instance."""
    return WaitingFor(
        kind=wait.kind.value,
        key=wait.key or wait.op.rpartition(":")[0] or wait.op,
        since=to_datetime(wait.since),
        due=_time(wait.due),
        activity_id=wait.op,
        subject=wait.subject,
        match=value_of(wait.match),
        site=wait.site,
    )


def history_of(entry: Entry) -> HistoryEntry:
    """Convert an entry of a history."""
    failed = entry.outcome is Outcome.ERROR
    return HistoryEntry(
        seq=entry.seq,
        kind=entry.kind.value,
        activity_id=entry.op,
        name=entry.name,
        outcome=entry.outcome.value,
        attempt=entry.attempt,
        input=value_of(entry.input),
        result=None if failed else _plain(entry),
        error=error_of(entry.value) if failed else None,
        worker_id=entry.worker,
        at=to_datetime(entry.at),
        scheduled_at=_time(entry.scheduled_at),
        started_at=_time(entry.started_at),
        ended_at=_time(entry.ended_at),
        epoch=entry.epoch,
        site=entry.site,
        replayed=entry.role is Role.FED,
    )


def attempt_of(row: AttemptRow) -> AttemptEntry:
    """Convert an attempt of an activity."""
    return AttemptEntry(
        activity_id=row.op,
        name=row.name,
        attempt=row.attempt,
        open=row.open,
        error=error_of(row.error),
        worker_id=row.worker,
        epoch=row.epoch,
        scheduled_at=to_datetime(row.scheduled_at),
        started_at=to_datetime(row.started_at),
        ended_at=_time(row.ended_at),
        next_at=_time(row.next_at),
        heartbeat_at=_time(row.heartbeat_at),
        site=row.site,
    )


def journal_of(entry: JournalEntry) -> JournalLine:
    """Convert an entry of a journal."""
    return JournalLine(to_datetime(entry.at), entry.note.kind, entry.note.detail, entry.worker, entry.epoch)


def undeliverable_of(accepted_at: int, raw: bytes) -> UndeliverableEvent:
    """Convert an event that no instance can receive."""
    event = _event(raw)
    return UndeliverableEvent(str(event.extensions.get(TARGET, "")), event, to_datetime(accepted_at))


def outbox_entry_of(row: OutboxRow) -> OutboxEntry:
    """Convert a row of the outbox."""
    return OutboxEntry(
        id=row.seq,
        broker=row.broker,
        event=_event(row.body),
        created_at=to_datetime(row.created_at),
        attempts=row.attempts,
        next_at=_time(row.next_at),
        claimed_by=row.claimed_by,
        last_error=row.last_error,
        dead_at=_time(row.dead_at),
    )


def _event(raw: bytes) -> ReceivedEvent[Any]:
    """Decode an event. If the codec here cannot, return a placeholder that says so."""
    if is_encoded(raw):
        return ReceivedEvent("", "encoded", "", "1.0", None, None, None, None, value_of(raw), {})
    return received_event(raw)


def _plain(entry: Entry) -> Any:
    if entry.kind == "cancel" and not is_encoded(entry.value):
        return entry.value.decode() if entry.value is not None else None
    return value_of(entry.value)


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else to_datetime(micros)


def make_page_token(created_at: int, instance_id: str) -> str:
    """Make the token for the end of a page, after which the next page begins."""
    return base64.urlsafe_b64encode(f"{created_at}:{instance_id}".encode()).decode()


def parse_page_token(token: str) -> tuple[int, str]:
    """Parse a token that `make_page_token` made. Raises `ConfigurationError` for any other text."""
    try:
        created_at, _, instance_id = base64.b64decode(token, altchars=b"-_", validate=True).decode().partition(":")
        if not (created_at.isascii() and created_at.isdecimal() and len(created_at) < 19) or "\0" in instance_id:
            raise ValueError("not a page token")  # and perhaps a number or a text that some databases refuse
        return int(created_at), instance_id
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"page_token={token!r} is not a page token: pass the next_page_token of the previous page, unchanged."
        ) from error
