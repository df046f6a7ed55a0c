"""Converts the records of the store into the records of operators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from romancy.admin.records import ActionKind, InstanceDetail, InstanceSummary
from romancy.clock import to_datetime
from romancy.codec import is_encoded
from romancy.model.instance import AttemptEntry, Error, InstanceRow, JournalLine, StoredInstance
from romancy.model.status import Status
from romancy.model.transition import Wait, WaitKind
from romancy.presenters import error_of, value_of, waiting_of
from romancy.serde.failure import describe_failure

_LINE = 300
"""The most characters of an error in a list."""
_STEADY = {
    Status.PENDING: "not started yet",
    Status.PAUSED: "paused",
    Status.BLOCKED: "blocked: no worker has matching code",
    Status.COMPLETED: "completed",
    Status.CANCELLED: "cancelled",
    Status.TERMINATED: "terminated",
    Status.RECURRED: "continued in the next generation",
}


def summary_of(row: InstanceRow, waits: Sequence[Wait], error: bytes | None = None) -> InstanceSummary:
    """Return the summary of an instance for a list."""
    failure = None if error is None else error_line(error)
    return InstanceSummary(
        instance_id=row.instance_id,
        workflow_name=row.workflow,
        version=row.version or None,
        status=row.status,
        generation=row.generation,
        worker_id=row.owner,
        created_at=to_datetime(row.created_at),
        started_at=_time(row.started_at),
        updated_at=to_datetime(row.updated_at),
        ended_at=_time(row.ended_at),
        retrying_since=_time(row.retrying_since),
        waiting_for=tuple(waiting_of(wait) for wait in waits),
        doing=describe_state(row, waits, failure),
        error=failure,
    )


def detail_of(
    stored: StoredInstance, attempts: list[AttemptEntry], journal: list[JournalLine], generations: int
) -> InstanceDetail:
    """Return all data of an instance except its history."""
    row = stored.row
    return InstanceDetail(
        summary=summary_of(row, stored.waits, stored.error),
        input=value_of(stored.input),
        output=value_of(stored.output),
        error=_blocked(row, journal) or error_of(stored.error),
        generations=generations,
        code=row.code,
        python=row.python,
        deadline_at=_time(row.deadline_at),
        attempts=attempts,
        journal=journal,
        actions=allowed_actions(row),
    )


def allowed_actions(row: InstanceRow) -> list[ActionKind]:
    """Return the actions that the status of the instance allows."""
    status = row.status
    if status is Status.FAILED:
        return [ActionKind.RETRY]
    if status.ended:
        return []
    if status is Status.COMPENSATING:
        return [ActionKind.PAUSE, ActionKind.TERMINATE]
    if status is Status.PAUSED:
        return [ActionKind.RESUME, ActionKind.CANCEL, ActionKind.TERMINATE]
    if status is Status.BLOCKED:
        return [ActionKind.RESUME, ActionKind.CANCEL, ActionKind.TERMINATE]
    return [ActionKind.CANCEL, ActionKind.PAUSE, ActionKind.TERMINATE]


def describe_state(row: InstanceRow, waits: Sequence[Wait], error: str | None) -> str:
    """Return one line that describes the current step of the instance."""
    if row.status in _STEADY:
        return _STEADY[row.status]
    if row.status is Status.FAILED:
        return f"failed: {error}" if error else "failed"
    parts = [_waiting(wait) for wait in waits if row.owner is None or wait.kind in (WaitKind.EVENT, WaitKind.MESSAGE)]
    if row.status is Status.COMPENSATING:
        parts.insert(0, "compensating")
    elif row.owner is not None:
        parts.insert(0, f"running on {row.owner}")
    if row.retrying_since is not None and not any(wait.kind is WaitKind.RETRY for wait in waits):
        parts.append("an activity is being retried")
    return "; ".join(parts) or "ready to run"


def _waiting(wait: Wait) -> str:
    match wait.kind:
        case WaitKind.EVENT:
            subject = f", subject {wait.subject}" if wait.subject is not None else ""
            match = f", matching {match_text(wait.match)}" if wait.match is not None else ""
            return f"waiting for event {wait.key}{subject}{match}"
        case WaitKind.MESSAGE:
            return f"waiting for a message on channel {wait.key}"
        case WaitKind.TIMER:
            return "sleeping"
        case WaitKind.RETRY:
            return f"waiting for the next attempt of {wait.op}"


def match_text(raw: bytes) -> str:
    """Return the match of a wait as text."""
    return f"({value_of(raw)})" if is_encoded(raw) else raw.decode(errors="replace")


def error_line(raw: bytes) -> str:
    """Return type and message of a stored failure in one line."""
    info = describe_failure(raw)
    text = " ".join(f"{info.type.rpartition('.')[2]}: {info.message}".split())
    return text if len(text) <= _LINE else text[: _LINE - 1] + "…"


def _blocked(row: InstanceRow, journal: Sequence[JournalLine]) -> Error | None:
    if row.status is not Status.BLOCKED:
        return None
    reasons = [line.detail for line in journal if line.kind == "blocked"]
    return Error("Blocked", reasons[-1]) if reasons else None


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else to_datetime(micros)
